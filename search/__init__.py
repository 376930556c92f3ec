"""Who proposes and who decides: the search loop, samplers, pruners, lanes, confirm, resume.

    from hpo.search.run import run

    results = run(study, Path("results/cartpole"), LocalFactory(study))

Modules are imported by name, since some of them load jax or Optuna.
"""
