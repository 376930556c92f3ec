"""Results that travel: a study and its claims in one file, and the file checked elsewhere."""
