"""Populations of lanes: the interface that the search uses, and its implementations."""
