"""`hpo report`: everything about a study as one HTML file that needs nothing else."""
