"""This machine: its devices, package versions, and worker processes for environments."""
