"""The run loop, and its steps between two chunks (docs/architecture.md lists them in order)."""
