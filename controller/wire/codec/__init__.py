"""Schemas to bytes and back."""
