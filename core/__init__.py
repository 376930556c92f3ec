"""The compiled half: pure functions on arrays."""
