"""Converts files of other systems to studies; `foreign_names/` has the name tables."""
