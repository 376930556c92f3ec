"""This machine: its devices, and the worker processes that step environments outside of jax."""
