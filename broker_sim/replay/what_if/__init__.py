"""What would have happened with another setting: sweeps over lists of values, beside what was recorded (§9.1-9.3)."""
