"""Parts of a paper about a study: the methods paragraph, tables, figures and references."""
