"""Custom training classes: their base class, and the arrays that each lane keeps.

A `Training` declares its hyperparameters and defines four pure functions. `fixed` hyperparameters
are Python values on `self`; each combination of them needs a separate compiled program. `traced`
hyperparameters are float32 scalars on `h` that may differ between lanes.

The engine stores only the leaves of the state that `init` returns. Their structure comes from
`init`, which is traced again in each program. So a state may contain functions that close over
`h`, such as a flax `TrainState` with an optax optimiser, and a lane that gets new hyperparameters
continues training with them. Arrays that `init` computed from `h` are not updated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

from ..errors import ConfigError
from ..files.working_folder import same_working_folder
from ..knobs.knob import Knob, KnobType
from .envs import contract
from .envs import registry as environments
from .envs.contract import Environment, HostedEnvironment, agents_of
from .evaluation import EVALUATION, STEP_LIMIT, Players, play, step_words
from .lane_state import use_key
from .plan import EnvPlan
from .training_errors import SetOutsideSetup, in_user_words

_MOST_STEPS = 10**12  # more than any run; sums of many runs stay within 64 bits

_NO_NAMES = ("unit", "epoch", "learns_after", "length", "steps_per_update", "knobs",
             "given", "env_params", "shared")  # fmt: skip


class Declared:
    """One hyperparameter of a `Training`; see `fixed` and `traced`."""

    def __init__(self, default: Any, traced: bool, meaning: str, **rest: Any):
        self.default, self.is_traced, self.meaning, self.rest = default, traced, meaning, rest
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, training: Training | None, owner: type) -> Any:
        if training is None:
            return self
        if self.is_traced:
            raise TypeError(f"{self.name} is traced: read h.{self.name}, not self.{self.name}")
        return training.fixed_values[self.name]

    def knob(self) -> Knob:
        rest = dict(self.rest)
        type_ = rest.pop("type", None) or _type_of(self.name, self.default)
        if type_ == "choice":
            rest["choices"] = tuple(rest.get("choices") or (self.default,))
        return Knob(
            self.name,
            type_,
            self.default,
            self.is_traced,
            meaning=self.meaning,
            **{name: value for name, value in rest.items() if value is not None},
        )


def traced(
    default: float,
    meaning: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    low_open: bool = False,
    search: Mapping[str, Any] | None = None,
) -> Any:
    """Declare a hyperparameter that may differ between lanes: a float32 scalar on `h`.

    Args:
        default: the value, which trial 0 uses.
        meaning: one line, with the unit.
        low: the smallest legal value.
        high: the largest legal value.
        low_open: whether `low` itself is illegal.
        search: the distribution that `hpo init` writes for it, in the form of a study file, such
            as `{"min": 1e-5, "max": 1e-2, "distribution": "log_uniform"}`.
    """
    return Declared(
        float(default), True, meaning, low=low, high=high, low_open=low_open, search=search
    )


def fixed(
    default: Any,
    meaning: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
    search: Mapping[str, Any] | None = None,
) -> Any:
    """Declare a hyperparameter that is compiled in: a Python value on `self`.

    Its type is the type of the default: bool, int, float, str (one of `choices`), or a tuple of
    layer widths. The other arguments are the same as for `traced`.
    """
    return Declared(default, False, meaning, low=low, high=high, choices=choices, search=search)


def _type_of(name: str, default: Any) -> KnobType:
    for kind, type_ in _TYPES.items():
        if isinstance(default, kind):
            return type_
    raise ConfigError(
        f"{name} is hpo.fixed({default!r}); allowed: true or false, a number, a string, or a "
        "tuple of widths"
    )


@dataclass(frozen=True)
class StudyEnvironment:
    """The study's environment, as training classes see it."""

    plan: EnvPlan
    params: Mapping[str, float]
    steps: int | None = None  # env steps of an evaluation in continuous operation
    cut_after: int = STEP_LIMIT


class _EnvironmentOfStudy(property):
    """The type of the property by which a training class requests the study's environment."""


def _environment_of(training: Training) -> Environment:
    assert training.given is not None  # checked by the study
    return environments.make(training.given.plan)


def environment() -> Any:
    """Declare an attribute that contains the environment named in the study under `env`.

    Its type is `Environment`; its functions `reset`, `step` and `action_mask` take `h.env_params`.
    """
    return _EnvironmentOfStudy(_environment_of)


_TYPES: Mapping[type, KnobType] = {
    bool: "bool", int: "int", float: "float", str: "choice", tuple: "widths",
}  # fmt: skip


class Training:
    """Base class for custom training code, which runs in the lanes of a study.

    Class attributes:
        unit: the unit of a run's length, in words.
        epoch: the number of units per epoch, which allows `length: 20 epochs`.
        learns_after: the hyperparameter that sets the number of units before the first gradient
            step, if any; `hpo check` compares it with the length.

    Attributes:
        length: the length of a full run, in units; known in `setup`.
        steps_per_update: units per `update`; set by `setup`.

    A class with an `hpo.environment()` may have `act` instead of `evaluate`.

    Methods must be pure: equal arguments give equal results, and there are no side effects.

    >>> class Slope(Training):
    ...     unit, steps_per_update = "steps", 10
    ...     rate = traced(0.1, "step size", low=0.0)
    ...     def init(self, key, h):
    ...         return jax.random.normal(key)
    ...     def update(self, state, h):
    ...         return state - h.rate * 2.0 * state, {"loss": state**2}
    ...     def evaluate(self, state, h, key):
    ...         return {"return": -(state**2)}
    >>> list(Slope.declared())
    ['rate']
    """

    unit: ClassVar[str] = "env steps"
    epoch: ClassVar[int | None] = None
    learns_after: ClassVar[str] = ""

    length: int
    steps_per_update: int
    _made_before: ClassVar[dict[str, Training]]

    def __init_subclass__(cls) -> None:
        for name in _NO_NAMES:
            if isinstance(vars(cls).get(name), Declared):
                raise ConfigError(f"{cls.__name__}.{name} cannot be a hyperparameter; rename it")
        late = cls.learns_after
        if late and not isinstance(getattr(cls, late, None), Declared):
            raise ConfigError(
                f"{cls.__name__}.learns_after is {late!r}, which is not one of its hyperparameters"
            )

    def __init__(
        self, values: Mapping[str, Any], length: int, given: StudyEnvironment | None = None
    ):
        """Create an instance for one combination of fixed values, and run `setup` once."""
        self.fixed_values, self.length, self.given = dict(values), length, given
        with same_working_folder():
            self.setup()

    def __setattr__(self, name: str, value: Any) -> None:
        self._check_setup(name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        self._check_setup(name)
        object.__delattr__(self, name)

    def _check_setup(self, name: str) -> None:
        if "_is_set_up" in vars(self):
            raise SetOutsideSetup(name)

    def setup(self) -> None:
        """Prepare objects that lanes share (networks, data, environments); set `steps_per_update`.

        Afterwards the object is frozen: values that change in training belong in the state.
        """

    def shared(self) -> Any:
        """Return a pytree of arrays that all lanes read as `h.shared`, or None.

        The arrays are passed to the program, once per device. Arrays on `self` would become
        constants of the program, which take long to compile if large.
        """
        return None

    def init(self, key: jax.Array, h: Any) -> Any:
        """Return the initial state of a lane, a pytree of arrays, from a typed PRNG key."""
        raise NotImplementedError

    def update(self, state: Any, h: Any) -> tuple[Any, Mapping[str, Any]]:
        """Train for `steps_per_update` units; return the new state and metrics.

        The new state must have the same structure, shapes and dtypes. Metrics are a dictionary of
        scalars.
        """
        raise NotImplementedError

    def evaluate(self, state: Any, h: Any, key: jax.Array) -> Mapping[str, Any]:
        """Evaluate one episode, or one sample, with a typed key; return a dictionary of scalars.

        `return` and `length` describe an episode; all other names become metrics `eval/<name>`.
        """
        found = self.play(state, h, jax.random.key_data(key), 1)
        return {name: values[0] for name, values in found.items()}

    def act(self, state: Any, h: Any, observation: Any, mask: Any, key: jax.Array) -> Any:
        """Return the action for one observation during evaluation.

        `mask` (bool) marks the valid actions; it is None if the environment has no mask.
        """
        raise NotImplementedError

    def play(
        self, state: Any, h: Any, key: UInt32[Array, "2"], episodes: int
    ) -> dict[str, Float[Array, " episodes"]]:
        """Play episodes with `act`; return results under the same names as for PPO policies."""
        assert self.given is not None
        found = play(self.player(state, h, key), episodes, self.given.steps, self.given.cut_after)
        values = {"return": found.returns, "length": found.lengths, **found.metrics}
        return {name: value[0] for name, value in values.items()}

    def player(self, state: Any, h: Any, key: UInt32[Array, "2"]) -> Players:
        """Return a player whose actions come from `act`."""
        assert self.given is not None
        env: Environment = environments.make(self.given.plan)

        def act(step: Any, env_state: Any, observation: Any, memory: Any) -> Any:
            env_state, observation = jax.tree.map(lambda x: x[0], (env_state, observation))
            mask = contract.mask_all(env, env_state, h.env_params)
            drawn = jax.random.fold_in(use_key(key, EVALUATION, step + 1), 1)
            own = jax.random.split(drawn, jax.tree.leaves(observation)[0].shape[0])
            axes = (0, None if mask is None else 0, 0)
            action = jax.vmap(partial(self.act, state, h), axes)(observation, mask, own)
            return action[None], step_words(key, step, len(own))[None], memory

        params = jax.tree.map(lambda x: jnp.asarray(x)[None], h.env_params)
        return Players(env, params, key[None], act, lambda shape: ())

    @classmethod
    def takes_environment(cls) -> bool:
        """Return whether the study must specify the environment."""
        return any(
            isinstance(value, _EnvironmentOfStudy)
            for base in cls.__mro__
            for value in vars(base).values()
        )

    @classmethod
    def acts(cls) -> bool:
        """Return whether evaluation uses `act`."""
        return cls.evaluate is Training.evaluate and cls.takes_environment()

    @classmethod
    def of(
        cls, values: Mapping[str, Any], length: int, given: StudyEnvironment | None = None
    ) -> Training:
        """Return the instance for one combination of fixed values; it is created only once.

        Raises:
            ConfigError: `setup` failed, or `steps_per_update` is not a whole number above 0.
        """
        kept: dict[str, Training] = cls.__dict__.get("_made_before") or {}
        cls._made_before = kept
        name = repr((sorted(values.items()), length, given, given and given.plan.folder))
        if name not in kept:
            if cls.evaluate is Training.evaluate and (given is None or cls.act is Training.act):
                raise ConfigError(
                    f"{cls.__name__} has no evaluate; define it, or define act and set "
                    "env = hpo.environment()"
                )
            if given is not None:
                _check_environment(cls, given)
            with in_user_words(cls, "setup"):
                made = cls(values, length, given)
            _check_steps(made)
            vars(made)["_is_set_up"] = True
            kept[name] = made
        return kept[name]

    @classmethod
    def declared(cls) -> dict[str, Knob]:
        """Return the hyperparameters by name, base classes first."""
        found: dict[str, Knob] = {}
        for base in reversed(cls.__mro__):
            for name, value in vars(base).items():
                if isinstance(value, Declared):
                    found[name] = value.knob()
                else:
                    found.pop(name, None)
        return found


def _check_steps(training: Training) -> None:
    cls = type(training)
    steps: Any = getattr(training, "steps_per_update", None)
    is_whole = isinstance(steps, int | np.integer) and not isinstance(steps, bool)
    if is_whole and 1 <= steps <= _MOST_STEPS:
        return
    allowed = "an integer above 0"
    if is_whole and steps > _MOST_STEPS:
        allowed = f"an integer from 1 to {_MOST_STEPS:,}"
    raise ConfigError(
        f"{cls.__name__}.steps_per_update is {steps!r}; set it in setup() to the number of "
        f"{cls.unit} per update, {allowed}"
    )


def _check_environment(cls: type[Training], given: StudyEnvironment) -> None:
    env = environments.make(given.plan)
    if isinstance(env, HostedEnvironment):
        raise ConfigError(
            f"{env.id} runs outside compiled programs; {cls.__name__} needs a "
            "compiled environment, such as a gymnax or brax one"
        )
    if agents_of(env) > 1:
        raise ConfigError(f"{env.id} has {agents_of(env)} agents; {cls.__name__} controls one")


def shared_of(training: Training) -> Any:
    """Return the arrays from `shared`, which is called once."""
    kept = vars(training)
    if "_shared" not in kept:
        cls = type(training)
        with in_user_words(cls, "shared"):
            found = training.shared()
            kept["_shared"] = jax.tree.map(np.asarray, found)
    return kept["_shared"]


class Lane:
    """One training lane as arrays: the leaves of its state, without their structure.

    Typed keys are kept as words and weak types are made strong, so that leaves can be copied,
    stored and restored.
    """

    def __init__(self, training: Training, traced_names: tuple[str, ...], shared: Any = None):
        if shared is None:
            shared = shared_of(training)
        self.training, self.names, self.shared = training, traced_names, shared

    def reading(self, shared: Any) -> Lane:
        """Return a copy of the lane with the arrays that a program receives as `h.shared`."""
        return Lane(self.training, self.names, shared)

    def hypers(self, values: Mapping[str, Any]) -> Any:
        found = SimpleNamespace(**{name: values[name] for name in self.names})
        if self.shared is not None:
            found.shared = self.shared
        given = self.training.given
        if given is not None:
            found.env_params = environments.params_of(environments.make(given.plan), given.params)
        return found

    def init(self, key: Any, values: Mapping[str, Any]) -> list[Any]:
        return words_of(jax.tree.leaves(self.training.init(key, self.hypers(values))))

    def state(self, leaves: list[Any], values: Mapping[str, Any]) -> Any:
        """Return a state with these leaves, in the structure that a new trace of `init` gives."""
        example = self.training.init(jax.random.key(0), self.hypers(values))
        old, structure = jax.tree.flatten(example)
        return structure.unflatten(_restore_keys(leaves, old))

    def update(
        self, leaves: list[Any], values: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        state = self.state(leaves, values)
        after, metrics = self.training.update(state, self.hypers(values))
        return words_of(jax.tree.leaves(after)), _float_scalars(metrics)

    def evaluate(self, leaves: list[Any], values: Mapping[str, Any], key: Any) -> dict[str, Any]:
        state = self.state(leaves, values)
        return _float_scalars(self.training.evaluate(state, self.hypers(values), key))

    def episodes(
        self, leaves: list[Any], values: Mapping[str, Any], key: UInt32[Array, "2"], count: int
    ) -> dict[str, Float[Array, " count"]]:
        """Return values by name from `count` episodes, evaluated with a lane's key."""
        if self.training.acts():
            state = self.state(leaves, values)
            return _float_scalars(self.training.play(state, self.hypers(values), key, count))
        keys = jax.random.split(use_key(key, EVALUATION), count)
        return jax.vmap(lambda key: self.evaluate(leaves, values, key))(keys)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)


def words_of(leaves: list[Any]) -> list[Any]:
    return [*map(_as_word, leaves)]


def _as_word(leaf: Any) -> Any:
    if _is_key(leaf):
        return jax.random.key_data(leaf)
    return jax.lax.convert_element_type(leaf, jnp.result_type(leaf))


def _restore_keys(leaves: list[Any], like: list[Any]) -> list[Any]:
    return [
        jax.random.wrap_key_data(leaf, impl=jax.random.key_impl(old)) if _is_key(old) else leaf
        for leaf, old in zip(leaves, like, strict=True)
    ]


def _float_scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: jnp.asarray(value, jnp.float32) for name, value in sorted(values.items())}
