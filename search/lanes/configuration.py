"""Splits a study's configurations into a bucket's Plan and the traced values.

In both parts, names `env.<key>` belong to the environment.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...core.envs import registry as environments
from ...core.hypers import Hypers, hypers_of
from ...core.plan import FEATURES, EnvPlan, Plan, features_of, plan_hash, plan_of
from ...environments.registry import find, held_out_keys
from ...errors import ConfigError, UnknownNameError, suggestion
from ...knobs import KNOBS
from ...spaces.space import Condition
from ...studies.chunk_sizes import ChunkSizes, chunk_sizes_of
from ...studies.env_spec import EnvSpec
from ...studies.spec import Study
from ...studies.study_environments import env_settings
from .contract import Resolved

_SEPARATE = "separate_vf_optimiser"


@dataclass(frozen=True)
class Parts:
    """A complete configuration in the core's form: the payload of `Split.resolve`."""

    config: Mapping[str, Any]  # every hyperparameter and environment parameter
    plan: Plan
    env_params: Mapping[str, float]  # of the training environment
    eval_params: Mapping[str, float]  # of the evaluation environment
    named: EnvSpec  # the environment as written in the study
    imports: tuple[str, ...] = ()  # the study's files of user code

    @cached_property
    def hypers(self) -> Hypers:
        """The traced part; the first access also creates the environments."""
        each = ((self.plan.env, self.env_params), (self.plan.eval_env, self.eval_params))
        with self.named.named_in_errors(), _init_with(self.imports):
            taken = [environments.params_of(environments.make(at), given) for at, given in each]
        return hypers_of(self.config, *taken)


@contextmanager
def _init_with(imports: tuple[str, ...]) -> Generator[None]:
    """In errors that advise `hpo init`, name the files that register the environment."""
    try:
        yield
    except ConfigError as error:
        if imports and "init" in error.remedies:
            error.remedies["init"] = (error.remedies["init"], imports)
        raise


def parts_of(resolved: Resolved) -> Parts:
    return resolved.payload


class Split:
    """Splits each configuration of a study into its static and traced parts."""

    def __init__(self, study: Study):
        self.study = study
        # absolute: environments may change the working folder
        self.source = Path(study.source).absolute()
        possible = _possible_values(study)
        self.features = features_of(possible)
        self.separate_critic = True in possible[_SEPARATE]
        self.reward_units = frozenset(map(bool, possible["raw_reward_deviation"]))

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """Resolve a complete configuration; ConfigError if it has no program."""
        parts = self.parts(config)
        steps = self.chunk_sizes(parts.plan).steps_per_chunk
        return Resolved(config, plan_hash(parts.plan), steps, parts)

    def parts(self, config: Mapping[str, Any]) -> Parts:
        given = env_settings(config)
        train = {**self.study.env.values, **given}
        env, params = self._env_plan(train)
        eval_env, eval_params = self._env_plan(
            {**train, **held_out_keys(self.study.env.id, self.study.evaluation.env)}
        )
        plan = plan_of(config, env, eval_env, self._possible_features(config))
        files = tuple(str(Path(self.study.source) / file) for file in self.study.imports)
        return Parts(config, plan, params, eval_params, self.study.env, files)

    def _possible_features(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the features that configurations in the same bucket may turn on.

        A searched switch is off in all of them if its conditions on static hyperparameters fail.
        """
        known = {**self.study.space.constants, **config}

        def may_hold(condition: Condition) -> bool:
            name = condition.name
            return name.startswith("env.") or KNOBS[name].traced or condition.holds(known)

        searched = self.study.space.parameters
        active = {parameter.name for parameter in searched if all(map(may_hold, parameter.when))}
        off = {parameter.name for parameter in searched} - active
        return tuple(name for name in self.features if FEATURES[name] not in off)

    def chunk_sizes(self, plan: Plan) -> ChunkSizes:
        return chunk_sizes_of(self.study, plan.steps_per_update)

    def _env_plan(self, given: Mapping[str, Any]) -> tuple[EnvPlan, dict[str, float]]:
        """Return the static part of the environment, and its traced parameters.

        Environments defined in user code are created here; the keys of others were checked
        earlier.
        """
        id_ = self.study.env.id
        with self.study.env.named_in_errors():
            try:
                plan, params = environments.plan_of_env(id_, given, self.study.source)
            except UnknownNameError as error:
                if self.study.imports and not suggestion(id_, error.known):
                    files = " and ".join(self.study.imports)
                    hint = (
                        f"to register it, {files} needs a line such as register({id_!r}, MyClass)"
                    )
                    error.args = (f"{error}; {hint}",)
                raise
            if find(id_) is None:
                environments.make(plan)
        return plan, params


def knobs_of(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if not name.startswith("env.")}


def _possible_values(study: Study) -> dict[str, set[Any]]:
    """Return the possible values of each switch of a costly feature."""
    possible: dict[str, set[Any]] = {}
    searched = {parameter.name for parameter in study.space.parameters}
    for name in (*FEATURES.values(), _SEPARATE):
        if name in searched:
            possible[name] = {True, False}
        else:
            possible[name] = {study.fixed.get(name, KNOBS[name].default)}
        possible[name] |= {given[name] for given in study.enqueue if name in given}
    return possible
