"""Environments: the contract, the registry, and one adapter per library."""
