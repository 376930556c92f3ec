"""Portable results: a study and its claims in one file, which others can check."""
