"""Deciding, and nothing else: no I/O, no clock, no chance, no logging. Imports only the pure `controller.wire`."""
