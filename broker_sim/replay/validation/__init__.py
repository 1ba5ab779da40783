"""The replay held against what really happened in recorded runs."""
