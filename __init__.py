"""`hpo`: sweeps and hyperparameter optimisation of PPO, many trials as lanes of one program."""

__version__ = "0.1.0"
__all__ = ["__version__"]
