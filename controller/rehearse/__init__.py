"""`kwob rehearse`: what an operator's plan will do to a cluster. The real controller on virtual time, fluid brokers."""
