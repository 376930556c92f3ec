"""Environments stepped by the host: Gymnasium's, in this process or in workers."""
