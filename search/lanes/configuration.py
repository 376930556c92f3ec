"""How the configurations of one study become what the core takes.

A complete configuration is split into the Plan of its bucket and the traced rest; a name
`env.<key>` goes to the environment, on whichever side that key belongs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.envs import registry as environments
from ...core.hypers import Hypers, make_hypers
from ...core.plan import FEATURES, EnvPlan, Plan, features_of, make_plan
from ...environments import files_of
from ...knobs import KNOBS, complete
from ...spaces.space import Condition
from ...studies.quanta import Quanta, quanta_of
from ...studies.spec import Study

__all__ = ["Split", "knobs_of"]

_SEPARATE = "separate_vf_optimiser"


class Split:
    """The two parts of every configuration of one study.

    Attributes:
        study: what is asked.
        features: costly switches that it may turn on in some bucket.
        separate_critic: whether some configuration may give the critic its own optimiser.
        reward_units: the values of `raw_reward_deviation` that some configuration may have.
    """

    def __init__(self, study: Study):
        self.study = study
        possible = _possible(study)
        self.features = features_of(possible)
        self.separate_critic = True in possible[_SEPARATE]
        self.reward_units = frozenset(map(bool, possible["raw_reward_deviation"]))

    def plan(self, config: Mapping[str, Any]) -> Plan:
        """Return the static part of a configuration of this study."""
        overrides = self.study.evaluation.env
        env, eval_env = self._env_plan(config, {}), self._env_plan(config, overrides)
        return make_plan(knobs_of(config), env, eval_env, self._features(config))

    def _features(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the features that configurations of the same bucket as this one may turn on.

        A searched switch whose conditions on static knobs do not hold is off in all of them.
        """
        known = {**self.study.space.constants, **complete(knobs_of(config))}

        def may_hold(condition: Condition) -> bool:
            name = condition.name
            return name.startswith("env.") or KNOBS[name].traced or condition.holds(known)

        searched = self.study.space.parameters
        active = {parameter.name for parameter in searched if all(map(may_hold, parameter.when))}
        off = {parameter.name for parameter in searched} - active
        return tuple(name for name in self.features if FEATURES[name] not in off)

    def env_params(self, config: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
        """Return the given parameters of the training and of the evaluation environment."""
        plan = self.plan(config)
        overrides = self.study.evaluation.env
        return self._params(plan.env, config, {}), self._params(plan.eval_env, config, overrides)

    def hypers(self, config: Mapping[str, Any]) -> Hypers:
        """Return the traced part of a configuration of this study."""
        plan = self.plan(config)
        train, held_out = self.env_params(config)
        return make_hypers(
            knobs_of(config),
            environments.params_of(environments.make(plan.env), train),
            environments.params_of(environments.make(plan.eval_env), held_out),
        )

    def quanta(self, plan: Plan) -> Quanta:
        """Return how the runs of a bucket are cut into chunks."""
        return quanta_of(self.study, plan.steps_per_update)

    def _env_plan(self, config: Mapping[str, Any], overrides: Mapping[str, Any]) -> EnvPlan:
        """Return the static part of the environment: given keys that are no traced parameter."""
        id_ = self.study.env.id
        given = {**self.study.env.values, **_env_values(config), **overrides}
        floats = environments.float_params(id_)
        keys = {name: _frozen(value) for name, value in given.items() if name not in floats}
        folder = self.study.source if files_of(id_, keys) else ""
        return EnvPlan(id_, tuple(sorted(keys.items())), folder)

    def _params(self, plan: EnvPlan, config: Mapping[str, Any], overrides: Mapping[str, Any]
                ) -> dict[str, float]:  # fmt: skip
        given = {**self.study.env.values, **_env_values(config), **overrides}
        static = dict(plan.keys)
        return {name: value for name, value in given.items() if name not in static}


def knobs_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without what belongs to the environment."""
    return {name: value for name, value in config.items() if not name.startswith("env.")}


def _env_values(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name[4:]: value for name, value in config.items() if name.startswith("env.")}


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, (list, tuple)) else value


def _possible(study: Study) -> dict[str, set[Any]]:
    """Give, for the switches that matter here, the values the study can give them, or as good."""
    possible: dict[str, set[Any]] = {}
    searched = {parameter.name for parameter in study.space.parameters}
    for name in (*FEATURES.values(), _SEPARATE):
        if name in searched:
            possible[name] = {True, False}
        else:
            possible[name] = {study.fixed.get(name, KNOBS[name].default)}
        possible[name] |= {given[name] for given in study.enqueue if name in given}
    return possible
