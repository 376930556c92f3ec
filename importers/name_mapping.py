"""How a value of another system becomes a value of ours."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from .plain_python import NotPlain, value_of


class NoCounterpart(Exception):
    """A value that a study cannot say; the message is the reason."""


class Settings(dict[str, Any]):
    """Several of our settings at once: target -> value, as targets are written in `rows.Row`."""


def _itself(value: Any) -> Any:
    return value


def _no_range(number: float) -> float:
    raise NoCounterpart("list the values that matter; a range of it has no counterpart")


@dataclass(frozen=True)
class Values:
    """One transform; this one returns values as they are.

    Attributes:
        of: value -> ours, or `Settings`; raises `NoCounterpart`.
        bound: the end of a range -> ours; raises `NoCounterpart`.
        scaled: a width, such as a deviation or a step -> ours.
        kind: a distribution of theirs -> ours; ends of ranges may change places.
        meaning: one line for the documents; empty where values stay as they are.
        table: where it is a table, theirs -> ours.
    """

    of: Callable[[Any], Any] = _itself
    bound: Callable[[float], float] = _itself
    scaled: Callable[[float], float] = _itself
    kind: Callable[[str], str] = _itself
    meaning: str = ""
    table: Mapping[Any, Any] | None = None


SAME = Values()


def times(factor: float) -> Values:
    """Return a number's scaling, in twelve digits; anything else stays as it is.

    >>> times(2.0).of(0.5), times(2.0).of(None)
    (1.0, None)
    """

    def scaled(value: Any) -> Any:
        return float(f"{value * factor:.12g}") if is_number(value) else value

    return Values(scaled, scaled, lambda width: abs(scaled(width)), meaning=f"times {factor:g}")


def one_minus() -> Values:
    """Return one minus a number.

    >>> one_minus().of(0.01), one_minus().kind("log_uniform")
    (0.99, 'one_minus_log')
    """

    def of(value: Any) -> float:
        return float(f"{1.0 - _number(value):.12g}")

    kinds = {"log_uniform": "one_minus_log"}
    return Values(of, of, _no_range, lambda kind: kinds.get(kind, kind), "one minus it")


def power_of_two() -> Values:
    """Return two to the power of a whole number.

    >>> power_of_two().of(7), power_of_two().kind("int_uniform")
    (128, 'pow2')
    """

    def of(value: Any) -> int:
        if not float(_number(value)).is_integer() or not 0 <= value < 64:
            raise NoCounterpart(f"{value!r} is not an exponent of two")
        return 2 ** int(value)

    return Values(of, of, _no_range, lambda _: "pow2", "two to the power of it")


def off(up_to: float = 0.0) -> Values:
    """Return a number that switches the thing off up to a limit.

    >>> off(0.0).of(-1.0), off(0.0).of(0.3)
    (None, 0.3)
    """

    def of(value: Any) -> Any:
        if isinstance(value, str):
            raise NoCounterpart(f"{value!r}: it has no schedule here; give a number")
        return None if is_number(value) and value <= up_to else value

    def bound(number: float) -> float:
        if number < up_to:
            raise NoCounterpart(f"it is off at {up_to:g} and below; begin the range above")
        return number if number > up_to else up_to + 1e-6

    return Values(of, bound, meaning=f"off at {up_to:g} and below")


def words(table: Mapping[Any, Any], others: Any = SAME) -> Values:
    """Return a table of values.

    >>> words({"swish": "silu", True: 1.0}).of("Swish"), words({True: 1.0}).of(2)
    ('silu', 2)
    """

    def of(value: Any) -> Any:
        ours = next((one for theirs, one in table.items() if _equal(theirs, value)), others)
        if isinstance(ours, NoCounterpart):
            raise ours
        return ours.of(value) if isinstance(ours, Values) else ours

    meaning = "; ".join(f"{in_words(theirs)}: {in_words(one)}" for theirs, one in table.items())
    return Values(of, _no_range, _no_range, meaning=meaning, table=table)


def parsed(read: Callable[[Any], Any], says: str) -> Values:
    """Return a transform of single values by a function, with its meaning for the documents."""
    return Values(read, _no_range, _no_range, meaning=says)


def scheduled(knob: str, schedule: str, end: str) -> Values:
    """Return a number, or `lin_0.001`: from there to 0, linearly."""

    def of(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        word, _, number = value.partition("_")
        try:
            initial = float(number)
        except ValueError:
            initial = math.nan
        if word not in ("lin", "linear") or not math.isfinite(initial):
            raise NoCounterpart(f"{value!r} is not a schedule such as lin_0.001")
        return Settings({knob: initial, schedule: "linear", end: 0.0})

    return Values(of, meaning="lin_X falls linearly from X to 0")


def is_number(value: Any) -> bool:
    """Return whether a value is a number, and not a switch."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def in_words(value: Any) -> str:
    """Return a value of ours for the documents."""
    if isinstance(value, Settings):
        return ", ".join(f"{name} {in_words(one)}" for name, one in value.items()) or "nothing"
    if isinstance(value, NoCounterpart):
        return "refused"
    if value is None:
        return "off"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(value: Any) -> float:
    if not is_number(value):
        raise NoCounterpart(f"{value!r} is not a number")
    return value


def _equal(theirs: Any, value: Any) -> bool:
    if isinstance(theirs, str) and isinstance(value, str):
        return theirs.lower() == value.lower()
    return isinstance(theirs, bool) == isinstance(value, bool) and theirs == value


# ------------------------------------------------------ values that several systems share

_TORCH_GAIN = round(1.0 / math.sqrt(3.0), 6)  # uniform within 1/sqrt(inputs): 1/(3 inputs)

LINEAR = Settings(lr_schedule="linear", lr_end_fraction=0.0)
ANNEAL = words({True: LINEAR, False: "constant"})
VALUE_CLIP = words({True: "same", False: None})
TORCH_INIT = Settings(
    initialisation="lecun", hidden_gain=_TORCH_GAIN, policy_gain=_TORCH_GAIN,
    value_gain=_TORCH_GAIN,
)  # fmt: skip
"""The variance of PyTorch's own initialisation of linear layers (and of Equinox's)."""

PLAIN_PPO: Mapping[str, Any] = {
    "logr_clip": None, "adv_clip": None, "lr_schedule": "constant",
    "normalise_observations": False, "normalise_rewards": False, "log_std_init": 0.0,
    "value_clip_eps": None, "target_kl": None,
}  # fmt: skip
"""What most implementations have in common that ours has otherwise, or may have one day."""

NORMALISED = Settings(
    normalise_observations=True, observation_clip=10.0, normalise_rewards=True, reward_clip=10.0
)
"""Both normalised and clipped at 10, as VecNormalize and Gymnasium's wrappers are used."""

STATISTICS = "running statistics change once a rollout here, with every env step there"

ACTIVATIONS = words(
    {"nn.Tanh": "tanh", "nn.ReLU": "relu", "nn.ELU": "elu", "nn.GELU": "gelu",
     "nn.LeakyReLU": "leaky_relu", "nn.SiLU": "silu", "th.nn.Tanh": "tanh",
     "th.nn.ReLU": "relu", "torch.nn.Tanh": "tanh", "torch.nn.ReLU": "relu",
     "LeakyReLU": "leaky_relu", "swish": "silu", "Tanh": "tanh", "ReLU": "relu", "ELU": "elu",
     "GELU": "gelu", "SiLU": "silu"}
)  # fmt: skip


def orthogonal(value: Any) -> Settings:
    """Read a switch of orthogonal initialisation; off is PyTorch's own."""
    return Settings() if value not in (False, "False", "false") else Settings(TORCH_INIT)


def _read(value: Any) -> Any:
    try:
        return value_of(value) if isinstance(value, str) else value
    except NotPlain as error:
        raise NoCounterpart(f"it cannot be read: {error}") from None


def mapping_of(value: Any) -> dict[str, Any]:
    """Return a mapping that may be written as Python, such as `dict(a=1)`; None is empty.

    >>> mapping_of("dict(norm_obs=False)")
    {'norm_obs': False}
    """
    value = _read(value)
    if not isinstance(value, dict | None):
        raise NoCounterpart(f"{value!r} is not a mapping")
    return dict(value or {})


def env_keys(value: Any) -> Settings:
    """Read a mapping of an environment's keys."""
    return Settings({f"env.{key}": one for key, one in mapping_of(value).items()})


ENV_KEYS = parsed(env_keys, "keys of the environment")


def widths_of(value: Any) -> list[int]:
    """Return one list of widths: both towers have the same here.

    >>> widths_of({"pi": [64, 64], "vf": [64, 64]}), widths_of("[256, 256]")
    ([64, 64], [256, 256])
    """
    value = _read(value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        value = value[0]  # how it was written before 1.8
    if isinstance(value, dict):
        if set(value) - {"pi", "vf", "qf"}:
            raise NoCounterpart(f"{value!r} is not a pair of towers pi and vf")
        policy, critic = value.get("pi", []), value.get("vf", [])
        if policy != critic:
            raise NoCounterpart(
                f"policy {policy} and critic {critic} differ, but both have the same widths "
                "here; give hidden_sizes"
            )
        value = policy
    if not isinstance(value, list) or any(isinstance(x, dict) for x in value):
        raise NoCounterpart(
            f"{value!r} has shared layers before separate ones; either all are shared here "
            "(shared_encoder), or none"
        )
    return value


UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "unknown"})()
"""The default of a name whose default does not matter, or follows from other names."""


@dataclass(frozen=True)
class Row:
    """One name of another system.

    Attributes:
        name: as written there; hyphens count as underscores.
        fate: what becomes of it.
        target: a knob's name, `env` (the id), `env.<key>`, `env_steps`, `seed`,
            `loggers.<type>[.<option>]`, or `<section>.<key>`; empty unless it is taken.
        values: how its values become ours.
        default: its value there when nobody names it, in their terms; imports write it down where
            ours differs.
        because: why it is left out or refused.
        harmless: values of a refused name at which it does nothing.
        note: what is not quite the same here; told when the name is taken.
    """

    name: str
    fate: Literal["taken", "left out", "refused"]
    target: str = ""
    values: Values = SAME
    default: Any = UNKNOWN
    because: str = ""
    harmless: tuple[Any, ...] = ()
    note: str = ""


def taken(
    name: str, target: str, default: Any = UNKNOWN, values: Values = SAME, note: str = ""
) -> Row:
    """Return a row of a name with a counterpart."""
    return Row(name, "taken", target, values, default, note=note)


def same(table: str) -> tuple[Row, ...]:
    """Return rows whose values stay as they are, from a text of `name target [default]; ...`."""
    rows = (part.split(maxsplit=2) for part in table.replace("\n", ";").split(";"))
    return tuple(taken(name, target, *map(_literal, default))
                 for name, target, *default in filter(None, rows))  # fmt: skip


def left(because: str, *names: str) -> tuple[Row, ...]:
    """Return rows of names that decide nothing about what is trained."""
    return tuple(Row(name, "left out", because=because) for name in names)


def refused(
    because: str, *names: str, harmless: tuple[Any, ...] = (None, False)
) -> tuple[Row, ...]:
    """Return rows of names that change what is trained and have no counterpart."""
    return tuple(Row(n, "refused", because=because, harmless=harmless) for n in names)


@dataclass(frozen=True)
class System:
    """All names of one system, at one version.

    Attributes:
        name: one word, as `--system` takes it; `family_version` for an older or newer version.
        title: for people.
        version: which version's names, defaults and code these are.
        rows: one for each name.
        programs: what a command names it by: a script (`cleanrl/ppo.py`) or a package (`xlron`).
        marks: sets of names that only it has; all names of one set recognise it.
        calls: functions and classes of Python whose arguments are its names.
        around: other calls that change what is trained -> the name that each amounts to, as
            `name`, or as `name=keyword` where it has one value.
        exact: capitals matter: `GAMMA` and `gamma` are different things there.
        strict: its program refuses a flag that it does not have, so one that is almost a row is
            a slip of the hand.
        source: where the names, defaults and meanings can be read.
        always: what its program does under no name: our target -> our value; imports write it
            down where ours differs.
        differs: what is not the same here whatever is set; told with every import.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    programs: tuple[str, ...] = ()
    marks: tuple[frozenset[str], ...] = ()
    calls: tuple[str, ...] = ()
    around: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    exact: bool = False
    strict: bool = False
    source: str = ""
    always: Mapping[str, Any] = field(default_factory=dict)
    differs: tuple[str, ...] = ()
    _index: dict[str, Row] = field(default_factory=dict, repr=False, compare=False)
    _folded: dict[str, Row] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for row in self.rows:
            if self._index.setdefault(self._key(row.name), row) is not row:
                raise ValueError(f"{self.name}: {row.name!r} stands twice")
            known = self._folded.setdefault(plain_name(row.name, last=False), row)
            if known.fate != "taken":
                self._folded[plain_name(row.name, last=False)] = row

    def find(self, name: str) -> Row | None:
        """Return the row of a name: the whole dotted name first, then its last part."""
        last = name.rsplit(".", 1)[-1]
        return self._index.get(self._key(name)) or self._index.get(self._key(last))

    def guess(self, name: str) -> Row | None:
        """Return the row of a name whatever its capitals, for hints."""
        return self.find(name) or self._folded.get(plain_name(name, last=False))

    def nearest(self, name: str) -> str | None:
        """Return the name of the row that an unknown name is almost; None if none is."""
        near = get_close_matches(name, [row.name for row in self.rows], n=1, cutoff=0.8)
        return near[0] if near else None

    @property
    def family(self) -> str:
        """The system without its version or script."""
        return self.name if self.name == "torch_ppo" else self.name.partition("_")[0]

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Name -> value there when nobody names it."""
        return {row.name: row.default for row in self.rows if row.default is not UNKNOWN}

    def _key(self, name: str) -> str:
        underscored = name.replace("-", "_")
        return underscored if self.exact else underscored.lower()


def plain_name(name: str, last: bool = True) -> str:
    """Return the last part of a name in small letters, with underscores.

    >>> plain_name("TOTAL-Timesteps"), plain_name("config.env_id")
    ('total_timesteps', 'env_id')
    """
    return (name.rsplit(".", 1)[-1] if last else name).replace("-", "_").lower()


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


OUTPUT = "output is chosen by `loggers` and `checkpoint`"
MACHINE = "lanes use all local devices; see `population`"
COMPUTED = "computed from other names there"
PPO_ALONE = "a study trains with PPO alone"

SEARCH_METHODS = {"bayes": "tpe", "bayesian": "tpe", "bayesopt": "gp", "cma-es": "cmaes",
                  "cma": "cmaes", "random_search": "random", "grid_search": "grid",
                  "nsga-ii": "nsga2"}  # fmt: skip
"""Search method elsewhere -> ours."""

METRICS_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(
        ("rollout/ep_rew_mean", "eval/mean_reward", "charts/episodic_return",
         "charts/mean_reward", "eval/episodic_return", "eval/episode_reward",
         "returned_episode_returns", "reward_mean", "eval_rewards"), "eval/return_mean"),
    **dict.fromkeys(
        ("rollout/ep_len_mean", "eval/mean_ep_length", "charts/episodic_length",
         "charts/mean_ep_length", "eval/mean_length", "returned_episode_lengths"),
        "eval/length_mean"),
    "eval/std_reward": "eval/return_std", "eval/min_reward": "eval/return_min",
    "eval/max_reward": "eval/return_max",
}  # fmt: skip
"""What other systems log of episodes, in small letters -> the metric of an evaluation here.

Theirs are mostly of episodes seen in training; ours are of greedy episodes on seeds of their own.
"""


def each(target: str, *names: str, **rest: object) -> tuple[Row, ...]:
    """Return one row for each name of one target."""
    return tuple(taken(name, target, **rest) for name in names)  # type: ignore[arg-type]


_NETWORKS = words(
    {"rnn": "lstm", "recurrent": "lstm", "MlpPolicy": "mlp", "CnnPolicy": "cnn",
     "MlpLstmPolicy": "lstm"}
)  # fmt: skip

_STUDY = (
    *each("env", "env", "env_id", "env_name", "environment", "gym_id", "env_type", "task",
          "task_id", "env.id"),
    *each("env_steps", "env_steps", "total_timesteps", "total_steps", "num_timesteps",
          "timesteps", "total_env_steps", "num_env_steps", "max_timesteps", "n_timesteps"),
    taken("seed", "seed"),
    *each("seeds.per_config", "num_learners", "num_seeds", "n_seeds"),
    *each("evaluation.episodes", "eval_episodes", "n_eval_episodes", "num_eval_episodes"),
)  # fmt: skip

_OPTIMISATION = (
    *each("learning_rate", "lr", "lr_actor", "step_size"),
    *each("lr_schedule", "anneal_lr", values=ANNEAL),
    taken("lr_critic", "vf_learning_rate"),
    *each("max_grad_norm", "max_gradient_norm"),
    *each("adam_beta1", "beta1"),
    *each("adam_beta2", "beta2"),
    taken("momentum", "sgd_momentum"),
    *each("optimiser", "opt"),
    taken("separate_vf_optimizer", "separate_vf_optimiser"),
)

_PPO = (
    *each("gamma", "discount", "advantage_gamma"),
    *each("gae_lambda", "lambda", "advantage_lambda"),
    *each("vf_gae_lambda", "critic_lambda", "value_lambda"),
    *each("clip_eps", "clip_epsilon", "ppo_clip_eps", "clip_coefficient", "clip_range",
          "clip_coef"),
    *each("value_clip_eps", "vf_clip_eps", "clip_range_vf"),
    *each("value_clip_eps", "clip_value_loss", "clip_vloss", values=VALUE_CLIP),
    *each("vf_coef", "value_coef", "ppo_value_coeff", "value_loss_coefficient"),
    *each("ent_coef", "entropy_coef", "ppo_entropy_coeff", "entropy_loss_coefficient"),
    *each("normalise_observations", "norm_obs", "obs_norm"),
    *each("normalise_rewards", "norm_reward", "reward_norm"),
    *each("normalise_advantages", "norm_adv", "normalize_advantage", "normalise_advantage"),
    taken("reward_centring", "reward_centering"),
    *each("priority_alpha", "importance_sampling_alpha", "prio_alpha"),
    *each("priority_beta0", "importance_sampling_beta", "prio_beta0"),
    taken("anneal_prio_beta", "anneal_priority_beta"),
    *each("rho_clip", "advantage_rho_clip", "vtrace_rho_clip"),
    *each("c_clip", "advantage_c_clip", "vtrace_c_clip"),
    *each("update_epochs", "n_epochs", "num_epochs", "epochs"),
)  # fmt: skip

_SHAPE = (
    *each("num_envs", "n_envs"),
    *each("rollout_length", "n_steps", "num_steps", "rollout_steps", "num_steps_epoch"),
    *each("num_minibatches", "num_batches", "n_minibatches"),
    *each("minibatch_size", "batch_size"),
    *each("network", "network", "architecture", "arch", "policy", "policy_type", "network_type",
          "model_type", values=_NETWORKS),
    *each("history", "frame_stack", "num_frames"),
    *each("hidden_sizes", "net_arch", "hidden_layers"),
    *each("recurrent_size", "rnn_size", "lstm_hidden_size"),
    *each("activation", "activation", "activation_fn", values=words({"swish": "silu"})),
)  # fmt: skip

_REST = (
    *each("loggers.wandb", "wandb", "track", "use_wandb"),
    *each("loggers.wandb.project", "project", "wandb_project", "wandb_project_name"),
    *each("loggers.wandb.entity", "wandb_entity", "entity"),
    *left(OUTPUT, "experiment_name", "exp_name", "save_model", "capture_video", "verbose",
          "tensorboard_log", "log_dir", "run_name", "group"),
    *left("it counts updates, calls or env steps, as its program has it; "
          "`checkpoint: {policies_every: ...}` counts env steps",
          "save_interval", "save_freq", "checkpoint_interval"),
    *left("it counts updates, episodes or env steps, as its program has it; `log_every` counts "
          "env steps", "log_interval", "log_freq", "log_frequency"),
    *left(MACHINE, "device", "cuda", "gpu", "num_devices", "visible_devices", "num_workers",
          "torch_deterministic", "preallocate_mem", "preallocate_mem_fraction", "num_threads"),
    *refused(PPO_ALONE, "algo", "algorithm",
             harmless=(None, "ppo", "PPO", "ppo_continuous_action", "recurrent_ppo")),
)  # fmt: skip

COMMON = System(
    "none",
    "any system",
    (*_STUDY, *_OPTIMISATION, *_PPO, *_SHAPE, *_REST),
    source="names that are spelled alike in many places",
)
