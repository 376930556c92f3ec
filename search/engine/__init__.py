"""The run loop and the steps between two chunks (docs/search.md lists them in order)."""
