"""Conversion of other systems' files to studies; `foreign_names/` has the name tables."""
