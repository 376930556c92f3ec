"""The terminal, and its view of a running study."""
