"""Training runs as an environment whose actions are hyperparameters."""
