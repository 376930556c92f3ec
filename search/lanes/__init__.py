"""Populations of lanes: what a program of the core looks like to a search.

`contract` is all that a search knows of lanes. `local` implements it over `hpo.core` on the
devices of this machine, `analytic` with formulas, for tests and timing. `configuration` splits
the configurations of a study into what the core takes, `lane_count` is the rule for how many
run side by side.
"""
