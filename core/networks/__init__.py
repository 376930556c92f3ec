"""Networks: one actor-critic module per file, found by name in `registry`."""
