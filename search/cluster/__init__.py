"""Populations in equal shares on the workers of a Ray cluster; only `via_ray` imports Ray."""
