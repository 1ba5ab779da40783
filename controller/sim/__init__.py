"""Whole simulated clusters: a seed draws a world, its load, faults and operations; oracles look at all of it."""
