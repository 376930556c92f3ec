"""Translates the names and values of other systems to ours."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal

from ..files.plain_data import is_number
from .derived import Derived
from .plain_values import NotPlain, value_of


class NoCounterpart(Exception):
    """A value that no study can express; the message gives the reason."""


class SettingsRow(dict[str, Any]):
    """Several of our settings: target -> value, with targets as in `NameRow`."""


def rounded(value: float) -> float:
    return float(f"{value:.12g}")  # 0.99, not 0.9900000000000001, for 1 - 0.01


def in_words(value: Any) -> str:
    """Format one of our values as in the documentation."""
    if isinstance(value, SettingsRow):
        return ", ".join(f"{name} {in_words(one)}" for name, one in value.items()) or "nothing"
    if isinstance(value, NoCounterpart):
        return "refused"
    if value is None:
        return "off"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


# ------------------------------------------------------------------------- transforms


def _same_value(value: Any) -> Any:
    return value


def _no_range(number: float) -> float:
    raise NoCounterpart("its range has no counterpart; list the values to try")


@dataclass(frozen=True)
class Values:
    """A transform of values, by default the identity; its functions may raise `NoCounterpart`."""

    of: Callable[[Any], Any] = _same_value  # value -> ours, or `Settings`
    bound: Callable[[float], float] = _same_value  # an end of a range -> ours
    scaled: Callable[[float], float] = (
        _same_value  # a width, such as a deviation or a step -> ours
    )
    kind: Callable[[str], str] = _same_value  # distribution -> ours; may exchange the ends
    meaning: str = ""  # for the documentation; empty if values are unchanged
    table: Mapping[Any, Any] | None = None  # the table, if the transform is one: foreign -> ours

    @property
    def steps_differ(self) -> bool:
        """Whether equal steps become unequal in our units, so that a stepped range is listed."""
        return self.bound is not _no_range and self.scaled is _no_range


SAME = Values()


def parsed(read: Callable[[Any], Any], meaning: str) -> Values:
    """Return a transform that reads single values, not ranges."""
    return Values(read, _no_range, _no_range, meaning=meaning)


def times(factor: float) -> Values:
    """Return a transform that scales numbers; other values are unchanged."""

    def scaled(value: Any) -> Any:
        if not is_number(value):
            return value
        return rounded(value * factor)

    return Values(scaled, scaled, lambda width: abs(scaled(width)), meaning=f"times {factor:g}")


def words(table: Mapping[Any, Any], others: Any = SAME) -> Values:
    """Return a transform that looks values up in a table.

    >>> words({"swish": "silu", True: 1.0}).of("Swish"), words({True: 1.0}).of(2)
    ('silu', 2)
    """

    def of(value: Any) -> Any:
        ours = next((one for foreign, one in table.items() if _is_equal(foreign, value)), others)
        if isinstance(ours, NoCounterpart):
            raise ours
        if isinstance(ours, Values):
            return ours.of(value)
        return ours

    meaning = "; ".join(f"{in_words(foreign)}: {in_words(one)}" for foreign, one in table.items())
    return Values(of, _no_range, _no_range, meaning=meaning, table=table)


def _is_equal(foreign: Any, value: Any) -> bool:
    if isinstance(foreign, str) and isinstance(value, str):
        return foreign.lower() == value.lower()
    return isinstance(foreign, bool) == isinstance(value, bool) and foreign == value


def scheduled(knob: str, schedule: str, end: str) -> Values:
    """Return settings for a number, or for `lin_0.001`: linear from that number to 0."""

    def of(value: Any) -> Any:
        if not isinstance(value, str | dict):
            return value
        word, _, number = str(value).partition("_")
        try:
            initial = float(number)
        except ValueError:
            initial = math.nan
        if word not in ("lin", "linear") or not math.isfinite(initial):
            raise NoCounterpart(f"{value!r} is not a schedule such as lin_0.001")
        return SettingsRow({knob: initial, schedule: "linear", end: 0.0})

    return Values(of, meaning="lin_X falls linearly from X to 0")


def arguments(
    known: Mapping[str, str | Callable[[Any], SettingsRow]],
    harmless: Mapping[str, tuple[Any, ...]] | None = None,
) -> Callable[[Any], SettingsRow]:
    """Return a reader for a mapping: name -> our setting, or a reader for that name's value.

    >>> arguments({"eps": "adam_eps"}, {"fused": (True,)})("dict(eps=1e-5, fused=True)")
    {'adam_eps': 1e-05}
    """

    def read(value: Any) -> SettingsRow:
        settings = SettingsRow()
        for name, given in mapping_of(value).items():
            ours = known.get(name)
            if isinstance(ours, str):
                settings[ours] = given
            elif ours is not None:
                settings |= ours(given)
            elif given not in (harmless or {}).get(name, ()):
                raise NoCounterpart(f"{name}={given!r} has no counterpart")
        return settings

    return read


def _checked_number(value: Any) -> float:
    if not is_number(value):
        raise NoCounterpart(f"{value!r} is not a number")
    return value


def _one_minus(value: Any) -> float:
    return rounded(1.0 - _checked_number(value))


def _power_of_two(value: Any) -> int:
    if not float(_checked_number(value)).is_integer() or not 0 <= value < 64:
        raise NoCounterpart(f"{value!r} is not an exponent of two")
    return 2 ** int(value)


def _positive_or_none(value: Any) -> Any:
    if isinstance(value, str):
        raise NoCounterpart(
            f"{value!r} is a schedule, which has no counterpart here; give a number"
        )
    if is_number(value) and value <= 0:
        return None
    return value


def _positive_bound(number: float) -> float:
    if number < 0:
        raise NoCounterpart("it is off at 0 and below; start the range above 0")
    return number or 1e-6


def orthogonal(value: Any) -> SettingsRow:
    """Read a switch for orthogonal initialisation; off means PyTorch's default."""
    if value in (False, "False", "false"):
        return SettingsRow(TORCH_INIT)
    return SettingsRow()


def _read_value(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return value_of(value)
    except NotPlain as error:
        raise NoCounterpart(f"it cannot be read: {error}") from None


def mapping_of(value: Any) -> dict[str, Any]:
    """Return a mapping, which may be given as Python text; None becomes {}."""
    value = _read_value(value)
    if not isinstance(value, dict | None):
        raise NoCounterpart(f"{value!r} is not a mapping")
    return dict(value or {})


def env_keys(value: Any) -> SettingsRow:
    return SettingsRow({f"env.{key}": one for key, one in mapping_of(value).items()})


def widths_of(value: Any) -> list[int]:
    """Return one list of widths; different widths of actor and critic have no counterpart.

    >>> widths_of({"pi": [64, 64], "vf": [64, 64]}), widths_of("[256, 256]")
    ([64, 64], [256, 256])
    """
    value = _read_value(value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        value = value[0]  # the notation before Stable-Baselines3 1.8
    if isinstance(value, dict):
        if set(value) - {"pi", "vf", "qf"}:
            raise NoCounterpart(f"{value!r} is not a pair of towers pi and vf")
        policy, critic = value.get("pi", []), value.get("vf", [])
        if policy != critic:
            raise NoCounterpart(
                f"policy {policy} and critic {critic} differ, but hpo uses the same widths "
                "for both"
            )
        value = policy
    if not isinstance(value, list) or any(isinstance(x, dict) for x in value):
        raise NoCounterpart(
            f"{value!r} is not one list of widths, such as [64, 64]; hpo shares all layers "
            "(shared_encoder), or none"
        )
    return value


# ----------------------------------------------------- values shared by several systems

# uniform within 1/sqrt(inputs), so the variance is 1/(3 inputs)
_TORCH_GAIN = round(1.0 / math.sqrt(3.0), 6)
# the variance of PyTorch's default initialisation of linear layers (also Equinox's)
TORCH_INIT = SettingsRow(
    initialisation="lecun",
    hidden_gain=_TORCH_GAIN,
    policy_gain=_TORCH_GAIN,
    value_gain=_TORCH_GAIN,
)
# settings in which most implementations differ from our defaults, or may do so later
PLAIN_PPO: Mapping[str, Any] = {
    "logr_clip": None, "adv_clip": None, "lr_schedule": "constant",
    "normalise_observations": False, "normalise_rewards": False, "log_std_init": 0.0,
    "value_clip_eps": None, "target_kl": None,
}  # fmt: skip
# the usual options of VecNormalize and of Gymnasium's wrappers
NORMALISED = SettingsRow(
    normalise_observations=True, observation_clip=10.0, normalise_rewards=True, reward_clip=10.0
)
VALUE_CLIP = words({True: "same", False: None})
ACTIVATIONS = words(
    {"nn.Tanh": "tanh", "nn.ReLU": "relu", "nn.ELU": "elu", "nn.GELU": "gelu",
     "nn.LeakyReLU": "leaky_relu", "nn.SiLU": "silu", "th.nn.Tanh": "tanh",
     "th.nn.ReLU": "relu", "torch.nn.Tanh": "tanh", "torch.nn.ReLU": "relu",
     "LeakyReLU": "leaky_relu", "swish": "silu", "Tanh": "tanh", "ReLU": "relu", "ELU": "elu",
     "GELU": "gelu", "SiLU": "silu"}
)  # fmt: skip
TRANSFORMS: Mapping[str, Values] = {
    "activation": ACTIVATIONS,
    "anneal": words(
        {True: SettingsRow(lr_schedule="linear", lr_end_fraction=0.0), False: "constant"}
    ),
    "env_keys": parsed(env_keys, "keys of the environment"),
    "network": words(
        {
            "rnn": "lstm",
            "recurrent": "lstm",
            "MlpPolicy": "mlp",
            "CnnPolicy": "cnn",
            "MlpLstmPolicy": "lstm",
        }
    ),
    "off": Values(_positive_or_none, _positive_bound, meaning="off at 0 and below"),
    "one_minus": Values(
        _one_minus,
        _one_minus,
        _no_range,
        lambda kind: "one_minus_log" if kind == "log_uniform" else kind,
        "one minus the value",
    ),
    "orthogonal": parsed(orthogonal, "false: PyTorch's default"),
    "power_of_two": Values(
        _power_of_two, _power_of_two, _no_range, lambda _: "pow2", "two to the power of the value"
    ),
    "swish": words({"swish": "silu"}),
    "value_clip": VALUE_CLIP,
}
"""Name in the tables -> transform, as in `anneal_lr lr_schedule@anneal`."""

STATISTICS = "hpo updates running statistics once per rollout, the source after every env step"
OUTPUT = "output is set by `loggers` and `checkpoint`"
MACHINE = "lanes use all local devices; see `population`"
COMPUTED = "computed from other names"
PPO_ALONE = "a study trains only PPO"
ENDED = (
    "hpo bootstraps episodes truncated by a time limit from their last observation; {} "
    "treats them as terminated"
)


# --------------------------------------------------------------------- rows and systems

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "unknown"})()
"""Stands for a default that does not matter, or that follows from other names."""


@dataclass(frozen=True)
class NameRow:
    name: str  # as written there; hyphens are equivalent to underscores
    fate: Literal["taken", "left out", "refused"]
    # a hyperparameter, `env` (the id), `env.<key>`, `env_steps`, `seed`,
    # `loggers.<type>[.<option>]`, or `<section>.<key>`; empty unless the row is `taken`
    target: str = ""
    values: Values = SAME
    default: Any = UNKNOWN  # the default there, in their terms; imports write it if ours differs
    because: str = ""  # why it is left out or refused
    harmless: tuple[Any, ...] = ()  # values that have no effect
    note: str = ""  # how the meaning differs here; printed if the name is taken

    def settings(self, value: Any) -> dict[str, Any]:
        """Return our settings, target -> value, for one of their values."""
        ours = self.values.of(value)
        if isinstance(ours, SettingsRow):
            return dict(ours)
        return {self.target: ours}


def taken(
    name: str, target: str, default: Any = UNKNOWN, values: Values = SAME, note: str = ""
) -> NameRow:
    """Return a row for a name that has a counterpart.

    `=` in a target means the name in lower case; a suffix such as `@anneal` is one of
    `TRANSFORMS`.
    """
    target, _, transform = target.replace("=", name.lower()).partition("@")
    if transform:
        values = TRANSFORMS[transform]
    unset = (None,) * (target == "seed")
    return NameRow(name, "taken", target, values, default, "", unset, note)


def table(text: str, note: str = "") -> tuple[NameRow, ...]:
    """Return the rows in a string of `name target[@transform] [default]; ...`."""
    parts = (part.split(maxsplit=2) for part in text.replace("\n", ";").split(";"))
    return tuple(
        taken(name, target, *map(_literal_or_text, default), note=note)
        for name, target, *default in filter(None, parts)
    )


def _literal_or_text(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def left(because: str, names: str) -> tuple[NameRow, ...]:
    """Return rows for space-separated names that do not affect training."""
    return tuple(NameRow(name, "left out", because=because) for name in names.split())


def refused(
    because: str, names: str, harmless: tuple[Any, ...] = (None, False)
) -> tuple[NameRow, ...]:
    """Return rows for names that affect training and have no counterpart."""
    return tuple(NameRow(n, "refused", because=because, harmless=harmless) for n in names.split())


def with_defaults(rows: Iterable[NameRow], defaults: Mapping[str, Any]) -> tuple[NameRow, ...]:
    return tuple(replace(row, default=defaults.get(row.name, row.default)) for row in rows)


def name_sets(text: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(part.split()) for part in text.split(";") if part)


@dataclass(frozen=True)
class PythonCalls:
    """The calls in a Python file that set a system's names.

    >>> calls = PythonCalls(
    ...     names=("PPO",),  # PPO(learning_rate=1e-3)
    ...     order={"PPO": "policy env"},  # PPO("MlpPolicy", "CartPole-v1")
    ...     around={"VecNormalize": "normalize", "DummyVecEnv": "n_envs=env_fns"},
    ...     made={"Model": "model"},  # Model.create("LSTMActorCritic")
    ... )
    """

    names: tuple[str, ...] = ()  # functions and classes whose arguments are the system's names
    # call -> names of its positional arguments; `_` is an object, `*` may also be a starred
    # argument
    order: Mapping[str, str] = field(default_factory=dict[str, str])
    # other calls that affect training -> the equivalent name: `name`, or `name=keyword` if the
    # value is that keyword argument
    around: Mapping[str, str] = field(default_factory=dict[str, str])
    # class -> the name that the first argument of its `create` is equivalent to
    made: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class System:
    name: str  # as given for `system`; `family_version` for another version or script
    title: str
    rows: tuple[NameRow, ...]
    programs: tuple[str, ...] = ()  # scripts (`cleanrl/ppo.py`) or packages in its command lines
    marks: tuple[frozenset[str], ...] = ()  # sets of names that no other system has
    python: PythonCalls = field(default_factory=lambda: PythonCalls())
    derived: tuple[Derived, ...] = ()  # names whose value is computed from several names
    version: str = ""
    tag: str = ""  # the version as given for `--version`, if the family has several
    # arguments, functions and classes that no other version of its family has
    only: frozenset[str] = frozenset()
    together: tuple[frozenset[str], ...] = ()  # sets of names that no other version has together
    exact: bool = False  # case matters: `GAMMA` and `gamma` are different names there
    source: str = ""  # where its names, defaults and meanings are documented
    # settings without a name there: our target -> our value; imports write it if ours differs
    always: Mapping[str, Any] = field(default_factory=dict)
    differs: tuple[str, ...] = ()  # differences that no setting removes; printed with every import
    _index: dict[str, NameRow] = field(default_factory=dict, repr=False, compare=False)
    _folded: dict[str, NameRow] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for row in self.rows:
            if self._index.setdefault(self._lookup_key(row.name), row) is not row:
                raise ValueError(f"{self.name}: {row.name!r} appears twice")
            known = self._folded.setdefault(plain_name(row.name, last=False), row)
            if known.fate != "taken":
                self._folded[plain_name(row.name, last=False)] = row

    def find(self, name: str) -> NameRow | None:
        """Return the row of a name: first by the whole dotted name, then by its last part."""
        last = name.rsplit(".", 1)[-1]
        return self._index.get(self._lookup_key(name)) or self._index.get(self._lookup_key(last))

    def guess(self, name: str) -> NameRow | None:
        return self.find(name) or self._folded.get(plain_name(name, last=False))

    def nearest(self, name: str) -> NameRow | None:
        """Return the row whose name is closest to an unknown one; `COMMON` accepts any name."""
        last = self._lookup_key(name.rsplit(".", 1)[-1])
        if self is COMMON or last.startswith("_"):
            return None
        near = get_close_matches(last, self._index, n=1, cutoff=0.8)
        if not near:
            return None
        return self._index[near[0]]

    @property
    def family(self) -> str:
        if self.name == "torch_ppo":
            return self.name
        return self.name.partition("_")[0]

    @property
    def defaults(self) -> Mapping[str, Any]:
        return {row.name: row.default for row in self.rows if row.default is not UNKNOWN}

    def _lookup_key(self, name: str) -> str:
        underscored = name.replace("-", "_")
        if self.exact:
            return underscored
        return underscored.lower()


def plain_name(name: str, last: bool = True) -> str:
    """Return the last part of a name in lower case, with underscores."""
    if last:
        name = name.rsplit(".", 1)[-1]
    return name.replace("-", "_").lower()


# ------------------------------------------------------------- names shared by many systems

SEARCH_METHODS = {"bayes": "tpe", "bayesian": "tpe", "bayesopt": "gp", "cma-es": "cmaes",
                  "cma": "cmaes", "random_search": "random", "grid_search": "grid",
                  "nsga-ii": "nsga2"}  # fmt: skip
"""Search method of another system -> ours."""

# target[@transform]: its names elsewhere
_SYNONYMS = """
    env: env env_id env_name environment gym_id env_type task task_id env.id
    env_steps: env_steps total_timesteps total_steps num_timesteps timesteps total_env_steps
    env_steps: num_env_steps max_timesteps n_timesteps
    seed: seed
    seeds.per_config: num_learners num_seeds n_seeds
    evaluation.episodes: eval_episodes n_eval_episodes num_eval_episodes
    learning_rate: lr lr_actor actor_lr step_size
    lr_schedule@anneal: anneal_lr decay_learning_rates
    vf_learning_rate: lr_critic critic_lr
    max_grad_norm: max_gradient_norm
    adam_beta1: beta1
    adam_beta2: beta2
    sgd_momentum: momentum
    optimiser: opt
    separate_vf_optimiser: separate_vf_optimizer
    gamma: discount advantage_gamma
    gamma@one_minus: one_minus_gamma
    gae_lambda: lambda advantage_lambda
    gae_lambda@one_minus: one_minus_gae_lambda
    vf_gae_lambda: critic_lambda value_lambda
    clip_eps: clip_epsilon ppo_clip_eps clip_coefficient clip_range clip_coef
    value_clip_eps: vf_clip_eps clip_range_vf
    value_clip_eps@value_clip: clip_value_loss clip_vloss
    vf_coef: value_coef ppo_value_coeff value_loss_coefficient
    ent_coef: entropy_coef ppo_entropy_coeff entropy_loss_coefficient
    normalise_observations: norm_obs obs_norm
    normalise_rewards: norm_reward reward_norm
    normalise_advantages: norm_adv normalize_advantage normalise_advantage
    reward_centering: reward_centring
    priority_alpha: importance_sampling_alpha prio_alpha
    priority_beta0: importance_sampling_beta prio_beta0
    anneal_priority_beta: anneal_prio_beta
    rho_clip: advantage_rho_clip vtrace_rho_clip
    c_clip: advantage_c_clip vtrace_c_clip
    update_epochs: n_epochs num_epochs epochs
    num_envs: n_envs
    rollout_length: n_steps num_steps rollout_steps num_steps_epoch
    rollout_length@power_of_two: n_steps_pow
    num_minibatches: num_batches n_minibatches
    minibatch_size: batch_size
    minibatch_size@power_of_two: batch_size_pow
    network@network: network architecture arch policy policy_type network_type model_type
    history: frame_stack num_frames
    hidden_sizes: net_arch hidden_layers
    recurrent_size: rnn_size lstm_hidden_size
    activation@swish: activation activation_fn
    loggers.wandb: wandb track use_wandb
    loggers.wandb.project: project wandb_project wandb_project_name
    loggers.wandb.entity: wandb_entity entity"""

COMMON = System(
    "none",
    "any system",
    (
        *(
            taken(name, line.split(": ")[0].strip())
            for line in _SYNONYMS.strip().splitlines()
            for name in line.split(": ")[1].split()
        ),
        *left(
            OUTPUT,
            "experiment_name exp_name save_model capture_video verbose tensorboard_log "
            "log_dir run_name group",
        ),
        *left(
            "it counts updates, calls or env steps, depending on the program; "
            "`checkpoint: {policies_every: ...}` counts env steps",
            "save_interval save_freq checkpoint_interval",
        ),
        *left(
            "it counts updates, episodes or env steps, depending on the program; `log_every` "
            "counts env steps",
            "log_interval log_freq log_frequency",
        ),
        *left(
            MACHINE,
            "device cuda gpu num_devices visible_devices num_workers "
            "torch_deterministic preallocate_mem preallocate_mem_fraction num_threads",
        ),
        *refused(
            PPO_ALONE,
            "algo algorithm",
            (None, "ppo", "PPO", "ppo_continuous_action", "recurrent_ppo"),
        ),
    ),
    source="names with the same spelling in many places",
)
