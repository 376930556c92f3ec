"""A study as parts of a paper: the methods paragraph, tables, figures and references."""
