"""Moves of replicas: plans, their preview, execution, progress, verification, and the throttles that belong to them."""
