"""The kinds of steps that a plan has: faults, and what administrators and strangers do. Each acts on its own stream of
chance."""
