"""Environments: the contract, the registry, and one adapter a library."""
