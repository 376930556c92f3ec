"""The study that `AutoRLEnv` runs: the one given, cut so that decisions fall between chunks.

Nothing in it stops or confirms runs, and every knob searched is one that may change in mid-run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...knobs import KNOBS
from ...studies.load import load, loads
from ...studies.several import only_one_environment
from ...studies.spec import EarlyTerminate, Seeds, Study
from ...studies.writer import to_yaml

__all__ = ["check_changeable", "study_of"]


def study_of(study: Study | str | Path | Mapping[str, Any], runs: int, steps: int) -> Study:
    """Return the study whose chunks end where decisions fall, and whose lanes hold the runs.

    Args:
        study: a study file, its data, or a loaded study.
        runs: how many, at least 1.
        steps: decisions of a run, from 1 to the env steps of a run.

    Raises:
        ConfigError: a number is out of range.
    """
    study = _loaded(study)
    if runs < 1 or steps < 1 or steps > study.env_steps:
        raise ConfigError(
            f"runs is {runs} and steps {steps}; allowed: at least 1 of each, and no more steps "
            f"than the {study.env_steps} env steps of a run"
        )
    every = -(-study.env_steps // steps)
    return dataclasses.replace(
        study,
        early_terminate=EarlyTerminate("pbt", every=every),
        seeds=Seeds(),
        confirm=None,
        population=dataclasses.replace(study.population, lanes=None),
        budget=dataclasses.replace(study.budget, trials=max(2, runs)),
    )


def check_changeable(study: Study) -> None:
    """Refuse what is searched and cannot change in mid-run; user code must have been imported.

    Raises:
        ConfigError: a searched knob, or key of the environment, is static.
    """
    from ...core.envs.registry import float_params

    only_one_environment(study, "AutoRL")
    floats = {f"env.{name}" for name in float_params(study.env.id)}
    for name in study.space.names:
        if name not in floats and (name.startswith("env.") or not KNOBS[name].traced):
            where = "`env`" if name.startswith("env.") else "`fixed`"
            raise ConfigError(
                f"{name} is part of the compiled program and cannot change in mid-run; put it "
                f"under {where}"
            )


def _loaded(study: Study | str | Path | Mapping[str, Any]) -> Study:
    if isinstance(study, Study):
        return study
    if isinstance(study, Mapping):
        return loads(to_yaml({"name": "autorl", **study}), "study")
    return load(study)
