"""Traces of clusters that never were, with the truth beside them: for tests, demonstrations and scale.

Everything is drawn from one seed. The ISR changes are not run through the rules of the replay (`broker_sim.isr`):
traffic and faults are drawn first, and what must follow is then computed from whole columns in closed form, so that the
replay of a generated trace is held against something else than itself.
"""
