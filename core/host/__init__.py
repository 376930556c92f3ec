"""Environments that the host steps: Gymnasium's, in this process or in worker processes."""
