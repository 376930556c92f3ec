"""The rules that judge trials at a rung: stop, pause, or copy another trial.

`registry` has the contract and the names; `pbt_perturb` and `pb2` change the hyperparameters of a
copy in a population that evolves.
"""
