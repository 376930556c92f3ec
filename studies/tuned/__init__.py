"""Tuned configurations that ship: their records, what others publish, and studies made of them."""
