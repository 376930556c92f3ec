"""`hpo compare`: which of two trials, or of the best trials of two studies, is better."""
