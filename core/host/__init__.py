"""Environments that the host steps, in this process or in workers."""
