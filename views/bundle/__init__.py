"""Portable results: a study and its claims in a single file that others can check."""
