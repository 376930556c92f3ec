"""The run loop and the steps between two chunks (docs/architecture.md lists them in order)."""
