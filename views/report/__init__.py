"""`hpo report`: everything about a study as one self-contained HTML file."""
