"""Populations divided equally among the workers of a Ray cluster; only `via_ray` imports Ray."""
