"""Traces and log files in, one versioned layout out."""
