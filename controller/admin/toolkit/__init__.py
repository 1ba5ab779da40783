"""What all tools share: flags, the run from arguments to exit code, output, failures, and each version's words."""
