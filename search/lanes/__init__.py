"""Populations of lanes: the contract of the search, and its implementation over `hpo.core`."""
