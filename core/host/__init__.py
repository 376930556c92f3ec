"""Environments stepped by the host, in this process or in workers."""
