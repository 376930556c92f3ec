"""The terminal, and the view of a running study on it."""
