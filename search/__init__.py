"""Who proposes and who decides: the search over the lanes of compiled programs.

    from hpo.search.lanes.local import LocalFactory
    from hpo.search.run import run

    results = run(study, Path("results/cartpole"), LocalFactory(study))

`engine` is the loop and its steps, `state` what it knows, `lanes` what it runs on. `samplers`
propose and `rules` judge. `ray_tune` puts Ray Tune in the loop's place, `cluster` lanes on other
machines; `analysis` looks back. Modules are imported by name,
since some of them load jax or Optuna.
"""
