"""Proposes trials, runs them in lanes of compiled programs, and stops poor ones early.

    from hpo.search.lanes.local import LocalFactory
    from hpo.search.run import run

    results = run(study, Path("results/cartpole"), LocalFactory(study))

Import modules by their full names, because some of them load jax or Optuna (docs/architecture.md).
"""

if __name__ == "search":
    raise ImportError("import hpo.search instead, after `pip install -e .`")
