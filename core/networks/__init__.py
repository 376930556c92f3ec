"""Networks: one actor-critic module a file, found by name in `registry`."""
