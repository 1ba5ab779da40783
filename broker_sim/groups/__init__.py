"""Consumer groups: a pure state machine per group, and the coordinator that gives it time, connections and a log."""
