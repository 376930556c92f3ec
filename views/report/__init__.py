"""`hpo report`: everything about a study in one self-contained HTML file."""
