"""From a source's settings to a draft: its system, its values, the system's defaults."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..environments.registry import find as find_environment
from ..errors import ConfigError, HpoError
from ..knobs import KNOBS, check_value, matters
from ..studies.init_file import SEARCHED
from ..studies.study_keys import SECTIONS
from ..studies.study_values import count_of
from . import jaxdem_rules, xlron_rules
from .converted_study import Draft, Source, is_of_the_file
from .formats import read_word
from .lost_names import ask_about_the_system, refuse_lost
from .name_mapping import (
    COMMON,
    UNKNOWN,
    NoCounterpart,
    Row,
    Settings,
    System,
    in_words,
    mapping_of,
    plain_name,
)
from .optax_calls import schedule_of
from .plain_python import Unread
from .tables import (
    another_algorithm,
    find,
    recognise,
    system,
    version_named,
    version_told,
    versions_of,
)


def _before_sb3(draft: Draft, source: Source) -> None:
    policy = source.constants.pop("policy", None)
    if policy is not None:  # before its arguments
        source.constants = {"policy": policy, **source.constants}
    for name in ("n_steps", "batch_size") if "Lstm" in str(policy) else ():
        if name not in source.names():
            source.constants[name] = 128
            draft.note(f"{name}: 128, the default of the recurrent PPO")
    zoo = source.words[1:] and not {"n_steps", "learning_rate", "gamma"} & source.constants.keys()
    if zoo and source.family == "sb3" and source.find("algo") in ("ppo", "ppo_lstm"):
        text = "its settings are in rl-zoo3's hyperparams/; import as rlzoo"
        raise draft.fault(f"{text} {source.find('algo')}.yml", env=source.find("env") or "ID")
    normalise, theirs = source.find("normalize"), None
    given = {} if normalise is True else normalise
    if isinstance(given, dict) and given.get("norm_reward", True):
        theirs = given.get("gamma", 0.99 if source.calls else None)  # rl-zoo3 gives it its own
    if theirs is not None and source.values("gamma", 0.99) != [theirs]:
        draft.note(
            f"normalize: its gamma is {theirs}; rewards are normalised with the study's gamma here"
        )
    _rollouts(draft, source, "log_interval", ("n_steps", 2048), ("n_envs", 1))
    if source.calls and isinstance(source.find("save_freq"), int):
        calls, envs = source.find("save_freq"), source.values("n_envs", 1)[0]
        source.constants["save_freq"] = calls * int(envs)
        draft.note(f"save_freq: {calls} calls of {envs} environments there")
    if source.find("use_sde") is not True or "use_sde" not in draft.without:
        return
    with suppress(NoCounterpart):  # refused where it is taken
        arguments = mapping_of(source.constants.get("policy_kwargs"))
        if "log_std_init" in arguments:
            value = arguments.pop("log_std_init")
            source.constants["policy_kwargs"] = arguments
            draft.leave_out(f"log_std_init {value}", "with use_sde it is of a matrix of noise")


def _after_sb3(draft: Draft) -> None:
    _decay_as_torch(draft)
    if draft.fixed.get("network") not in ("lstm", "gru"):
        return
    draft.note(
        "network: hidden_sizes are before the recurrent layer here, net_arch is after it there"
    )
    if {"minibatch_size", "num_envs", "rollout_length"} & set(draft.space):
        return
    envs, steps = (
        int(draft.fixed.get(name, KNOBS[name].default)) for name in ("num_envs", "rollout_length")
    )
    rows = int(draft.fixed.pop("minibatch_size", None) or 64)
    wanted = max(1, math.ceil(envs * steps / rows))
    parts = max(part for part in range(1, envs + 1) if part <= wanted and envs % part == 0)
    draft.fixed["num_minibatches"] = parts
    if parts != wanted:
        draft.note(
            f"batch_size: {rows} makes {wanted} minibatches; here {parts}, as recurrent "
            f"networks learn from whole rollouts of {envs} environments"
        )


def _before_torch(draft: Draft, source: Source) -> None:
    for name in ("log_interval", "save_interval"):
        _rollouts(draft, source, name, ("rollout_steps", 2048), ("num_envs", 4))
    helpers = list(dict.fromkeys(call for call in source.calls if call in _HELPERS))
    if len(helpers) > 1:
        text = f"it calls {' and '.join(helpers)}, which train with other defaults; keep one"
        raise draft.fault(text)
    for helper in helpers:
        _take_helper(draft, source, helper)


_HELPERS: Mapping[str, Mapping[str, Any]] = {
    "train_discrete": {"env_id": "CartPole-v1", "total_timesteps": 500_000},
    "train_continuous": {"env_id": "HalfCheetah-v4", "total_timesteps": 1_000_000,
                         "hidden_sizes": [256, 256], "action_space_type": "continuous"},
    "train_with_transformer_backbone": {
        "env_id": "CartPole-v1", "total_timesteps": 500_000,
        "backbone_cls": "TransformerPolicyBackbone"},
}  # fmt: skip
"""Helper of the single-file PPO -> the defaults in which it differs from PPOConfig."""


def _take_helper(draft: Draft, source: Source, helper: str) -> None:
    rows = [draft.row(name) for name in source.names()]
    set_ = {row.target for row in rows if row is not None}
    for name, value in _HELPERS[helper].items():
        row = draft.row(name)
        if name in source.names() or (row is not None and row.target and row.target in set_):
            continue
        source.constants[name] = value
        draft.defaults.append(f"{name} {value}")
    draft.note(f"{helper}: its other settings are taken from PPOConfig")


def _rollouts(
    draft: Draft, source: Source, name: str, steps: tuple[str, int], envs: tuple[str, int]
) -> None:
    """Turn a number of rollouts into env steps; -1 leaves it to the program."""
    if name not in source.constants:
        return
    rollouts = max(0, count_of(read_word(source.constants[name])) or 0)
    lengths, widths = source.values(*steps), source.values(*envs)
    if not rollouts:
        source.drop(name)
        draft.idle.append(f"{name} (off)")
    elif len(lengths) > 1 or len(widths) > 1:
        source.drop(name)
        key = "log_every" if "log" in name else "checkpoint.policies_every"
        draft.leave_out(name, f"{steps[0]} is searched, so its env steps vary; give {key}")
    else:
        source.constants[name] = rollouts * int(lengths[0]) * int(widths[0])


def _decay_as_torch(draft: Draft) -> None:
    """Turn adam into adam_l2 where weights decay: torch.optim.Adam adds decay to the gradient."""
    if not (draft.fixed.get("weight_decay") or "weight_decay" in draft.space):
        return
    searched = draft.space.get("optimiser", {}).get("values", ())
    optimiser = draft.fixed.get("optimiser", "adam")
    if "sgd" in (optimiser, *searched):
        draft.note(
            "weight_decay: PyTorch's SGD adds it before the momentum, which makes it about "
            "1/(1 - momentum) times as strong as here, where it is decoupled"
        )
    if "adam" in searched:
        values = ["adam_l2" if word == "adam" else word for word in searched]
        draft.space["optimiser"] = {**draft.space["optimiser"], "values": values}
    elif optimiser == "adam" and not searched:
        draft.fixed["optimiser"] = "adam_l2"
    else:
        return
    draft.note("weight_decay: PyTorch's Adam adds it to the gradient, so the optimiser is adam_l2")


_RANGES = {"tanh_gaussian": (-1.0, 1.0), "beta": (0.0, 1.0)}


def _after_torch(draft: Draft) -> None:
    """Keep actions in the range that the single-file PPO sends to the environment."""
    _decay_as_torch(draft)
    kind = draft.fixed.get("distribution")
    discrete = draft.entry is not None and draft.entry.actions == "discrete"
    named = {"action_low", "action_high"} & {*draft.fixed, *draft.space}
    if kind not in _RANGES or discrete or named:
        return
    low, high = _RANGES[kind]
    draft.fixed |= {"action_low": low, "action_high": high}
    draft.note(
        f"action_low, action_high: {low:g} and {high:g}, as the environment gets its "
        f"{kind} actions unscaled there; off: they fill the environment's own range"
    )


def _before_lerax(draft: Draft, source: Source) -> None:
    """Give version 0.0.2 as many minibatches as it has: their rows are of one environment."""
    if draft.system.tag != "0.0.2":
        return
    defaults = draft.system.defaults
    batches, envs = (source.values(name, defaults[name]) for name in ("num_batches", "num_envs"))
    if len(batches) > 1 or len(envs) > 1:
        return
    parts = int(batches[0]) * int(envs[0])
    source.put("num_batches", parts)
    draft.note(
        f"num_batches: {batches[0]}, of num_steps alone in 0.0.2, so an epoch has {parts} "
        "minibatches"
    )


_PARTS = {"params": "parameters", "opt_state": "optimiser", "loss": "losses",
          "trajectories": "trajectories"}  # fmt: skip
"""What ARLBench writes into a checkpoint -> a part of ours."""
_TRACKED = {
    "track_metrics": ("losses", "gradients", "advantages"),
    "track_trajectories": ("trajectories",),
}


def _before_arlbench(draft: Draft, source: Source) -> None:
    if "environment.name" in source.constants:
        source.drop("environment")  # the file that Hydra reads, whose name is given, too
    _steps_of_autorl(draft, source)
    count, total = count_of(source.find("n_eval_steps")), source.values("n_total_timesteps", 10**6)
    if count and len(total) == 1:
        every = max(1, (count_of(total[0]) or 0) // count)
        source.put("n_eval_steps", every if count > 1 else "rungs")
        draft.note(f"n_eval_steps: {count} evaluations in a run, one every {every:,} env steps")
    _parts_of_arlbench(draft, source)
    brax = "brax" in [source.find(name) for name in source.names() if name.endswith("framework")]
    for name in {"environment.name", "autorl.env_name", "env_name"} & source.constants.keys():
        if brax and ":" not in (env := str(source.find(name))):
            source.constants[name] = f"brax:{env}"


_AUTORL = {"n_envs": 10, "n_total_timesteps": 100_000}
"""Defaults of AutoRLEnv that are not those of the training itself."""


def _steps_of_autorl(draft: Draft, source: Source) -> None:
    """Drop the steps that an AutoRLEnv may take, which have the name of a rollout's length."""
    of_env = ["autorl.n_steps"] if "autorl.n_steps" in source.constants else []
    if "AutoRLEnv" in source.calls and "n_steps" in source.constants:
        of_env.append("n_steps")
    for name in of_env:
        steps = source.find(name)
        del source.constants[name]
        draft.leave_out(name, f"an AutoRLEnv takes at most {steps} steps there, a training each")
    for name, value in _AUTORL.items() if "AutoRLEnv" in source.calls else ():
        if name not in source.names():
            source.constants[name] = value
            draft.defaults.append(f"{name} {value}")


def _parts_of_arlbench(draft: Draft, source: Source) -> None:
    """Put the saved and tracked parts, which are written with each policy."""
    parts = dict[str, None]()
    for name in tuple(source.constants):
        leaf, value = name.rsplit(".", 1)[-1], source.find(name)
        found: Iterable[str] = ()
        if leaf == "checkpoint":
            words = value if isinstance(value, list) else re.findall(r"\w+", str(value or ""))
            odd = [word for word in words if word not in (*_PARTS, "all", "buffer")]
            if odd:
                text = f"{name} has {odd[0]!r}; known: {', '.join(_PARTS)}, all"
                raise draft.fault(text, flags={"without": name})
            found = _PARTS.values() if "all" in words else [_PARTS.get(one, "") for one in words]
        elif leaf in _TRACKED and value is True:
            found = _TRACKED[leaf]
        parts |= dict.fromkeys(filter(None, found))
        if found:
            source.drop(name)
            draft.taken[name] = ["checkpoint.parts"]
        elif leaf in ("checkpoint", *_TRACKED):
            source.drop(name)
            draft.idle.append(f"{name} {value}")
    if parts:
        draft.section("checkpoint")["parts"] = list(parts)
        draft.note("checkpoint.parts: written with the policies of the best trials")


def _before_brax(draft: Draft, source: Source) -> None:
    """Turn unrolls into a rollout: brax collects `batch_size` x `num_minibatches` of them."""
    defaults = draft.system.defaults
    names = ("num_envs", "batch_size", "num_minibatches", "unroll_length")
    given = {name: source.values(name, defaults.get(name, 32)) for name in names}
    searched = [name for name, values in given.items() if len(values) != 1]
    if searched:
        text = f"{searched[0]} is searched, which decides the length of a rollout with "
        text += ", ".join(name for name in names if name != searched[0])
        raise draft.fault(
            f"{text}; import the sweep once for each value",
            flags={searched[0]: given[searched[0]][0]},
        )
    envs, batch, parts, unroll = (count_of(given[name][0]) or 0 for name in names)
    if min(envs, batch, parts, unroll) < 1 or batch * parts % envs:
        text = (
            f"batch_size x num_minibatches is {batch * parts} unrolls; brax needs a multiple of "
        )
        raise draft.fault(f"{text}num_envs ({envs})", flags={"num_envs": parts})
    source.drop("batch_size")
    source.put("unroll_length", unroll * (batch * parts // envs))
    source.constants |= {"num_envs": envs, "num_minibatches": parts}
    draft.note(
        f"batch_size: {batch} x {parts} unrolls of {unroll} env steps make an update, so "
        f"rollout_length is {unroll * (batch * parts // envs)}"
    )
    total, evals = count_of(source.find("num_timesteps")), count_of(source.find("num_evals"))
    source.drop("num_evals")
    if total and evals and evals > 1:
        source.constants["num_evals"] = max(1, total // (evals - 1))
    if not {"network_factory", "hidden_sizes"} & set(source.names()):
        text = "its layers are brax's own, 4 of 32 for the policy and 5 of 256 for the value, but "
        raise draft.fault(
            f"{text}both have the same here; name them", flags={"hidden_sizes": "[256,256]"}
        )
    length = source.constants.get("episode_length")
    if isinstance(length, Unread):
        source.drop("episode_length")
        draft.leave_out("episode_length", f"{length}; the environment's own length is taken")


NOT_NAMES = ("system", "version", "without", "metric", "name", "imports")
"""Flags of the import, which a source does not have."""
_BEFORE: Mapping[str, Callable[[Draft, Source], None]] = {
    "xlron": xlron_rules.before, "sb3": _before_sb3, "jaxdem": jaxdem_rules.before,
    "lerax": _before_lerax, "torch_ppo": _before_torch, "arlbench": _before_arlbench,
    "brax": _before_brax,
}  # fmt: skip
"""Family of systems -> what changes a source before its names are translated."""
_AFTER: Mapping[str, Callable[[Draft], None]] = {
    "xlron": xlron_rules.after, "sb3": _after_sb3, "jaxdem": jaxdem_rules.after,
    "torch_ppo": _after_torch,
}  # fmt: skip


_GONE = object()
_OF_TORCH = ("sb3", "cleanrl", "torch_ppo")  # whose optimisers take no schedules of optax


def begin(draft: Draft, source: Source, given: Mapping[str, Any]) -> None:
    draft.without = tuple(filter(None, str(given.get("without", "")).replace("-", "_").split(",")))
    if "system" in given:
        draft.system = system(str(given["system"]))
        if "version" in given or draft.system.name == draft.system.family:
            _choose_version(draft, source, given)
        return
    draft.system, why = recognise((*source.names(), *given), source.words, source.family)
    if source.family and draft.system is COMMON:
        draft.system, why = system(source.family), ""
    if why and not source.family:
        draft.note(f"taken for {draft.system.title}, as {why}; system=none: for none")
    _choose_version(draft, source, given)


def _choose_version(draft: Draft, source: Source, given: Mapping[str, Any]) -> None:
    """Choose the version: the one given, or the only one with these names, else the newest."""
    if "version" in given:
        draft.system = version_named(draft.system, str(given["version"]))
        return
    names = {name.replace("-", "_") for name in (*source.names(), *source.mentioned, *given)}
    draft.system, told = version_told(draft.system, names)
    one, reason = draft.system, f"only it has {', '.join(told)}"
    small = "" if told else jaxdem_rules.counts_segments(draft, source)
    if small:
        draft.system = one = version_named(one, jaxdem_rules.SEGMENTS)
        told, reason = ("minibatch_size",), small
    others = " or ".join(map(_version_flag, versions_of(one)))
    if told and others:
        draft.note(f"version: {one.title} {one.version}, as {reason}; else {others}")
    elif others:
        draft.note(
            f"version: {one.title} {one.version}; its names fit other versions, too: {others}"
        )


def _version_flag(one: System) -> str:
    """Return how a version is chosen; the name of a system without a version chooses none."""
    named = "" if one.name == one.family else f"system={one.name}, "
    return f"version={one.tag.partition(' ')[0]} ({named}{one.version})"


def take(draft: Draft, source: Source, given: Mapping[str, Any]) -> None:
    other = another_algorithm(source.words)
    if other and given.get("system") != COMMON.name:
        raise draft.fault(other)
    begin(draft, source, given)
    source.negate(draft.system)
    draft.read = list(source.names())
    others = [name for name in named_env(draft, source.names()) if name not in given]
    wanted = [str(given[name]).removeprefix("gym:") for name in named_env(draft, given)]
    for name in others if wanted else ():
        same = source.constants.get(name) in wanted
        source.drop(name)
        if not same:
            draft.leave_out(name, "another environment is given")
    if named_lengths(draft, given):
        source.loops = {}
    merged = {
        name: value
        for name, value in given.items()
        if not is_of_the_file(name) and name not in NOT_NAMES
    }
    for name, value in merged.items():
        source.drop(name, name.replace("-", "_"))
        source.constants[name] = value
    _apply_rules(draft, source)
    changed = (n for n, value in merged.items() if source.constants.get(n, _GONE) != value)
    draft.ruled = set(changed)
    put_env(draft, source)
    _count_loops(draft, source)
    ask_about_the_system(draft, source, given)
    refuse_lost(draft, source)
    _check_targets(draft, source)
    for name, value in source.constants.items():
        draft.constant(name, value)
    for name, distribution in source.searched.items():
        draft.searched(name, distribution)
    add_defaults(draft, source)
    if draft.system.family in _AFTER:
        _AFTER[draft.system.family](draft)
    unlisted = set(draft.unlisted())
    draft.taken |= {name: [] for name in draft.read if name in unlisted & source.used}


def _apply_rules(draft: Draft, source: Source) -> None:
    """Leave out what the user does not want, and let the system change its names."""
    leave_out_asked(draft, source)
    draft.sought = set(source.searched)
    for name, reason in source.objects.items():
        draft.leave_out(name, reason)
    family = draft.system.family
    if family not in _OF_TORCH:
        _read_schedules(draft, source)
    if family in _BEFORE:
        _BEFORE[family](draft, source)


def _read_schedules(draft: Draft, source: Source) -> None:
    """Read a schedule of optax as the rate that it starts or peaks with; the rest comes later."""
    for name, value in source.constants.items():
        if draft.target(name) != "learning_rate" or not isinstance(value, Unread):
            continue
        try:
            schedule = schedule_of(value)
        except NoCounterpart as reason:
            text = f"{draft.source}:{value.line}: {name} is {value}: {reason}"
            raise ConfigError(text, flags={name: "VALUE"}, without={"without": name}) from None
        if schedule is None:
            continue
        source.constants[name] = schedule.learning_rate
        if any(draft.target(other) == "lr_schedule" for other in source.names()):
            draft.note(
                f"{name}: {schedule.learning_rate:g} of {value}, as another name gives the "
                "schedule"
            )
            continue
        draft.schedule = schedule
        draft.silent |= {row.name for row in draft.system.rows if row.target == "lr_schedule"}
        draft.note(f"{name}: {value} gives {schedule.learning_rate:g} and lr_schedule")


def _count_loops(draft: Draft, source: Source) -> None:
    """Multiply the length of a training call that a loop repeats on one agent."""
    calls = ("step",) if "AutoRLEnv" in source.calls else ("learn", "train")
    name = next(
        (
            name
            for name in source.constants
            if (row := draft.row(name)) and row.target == "env_steps"
        ),
        None,
    )
    called = next((call for call in calls if source.loops.get(call, 1) != 1), None)
    total = None if name is None else count_of(source.find(name))
    if name is None or called is None or total is None:
        return
    times = source.loops[called]
    if not times:
        text = (
            f"{called} is called in a loop, and how often cannot be read; give the env steps of "
        )
        raise draft.fault(f"{text}the whole training", flags={"env_steps": 10 * total})
    source.constants[name] = total * times
    draft.note(f"{name}: {total:,}, {times} times in a loop")


def put_env(draft: Draft, source: Source) -> None:
    """Put the environment first, as it decides what other names mean."""
    for name in named_env(draft, source.names()):
        if name in source.constants:
            draft.constant(name, source.constants.pop(name))
        elif len(source.searched[name].get("values", ())) == 1:
            draft.constant(name, source.searched.pop(name)["values"][0])


def leave_out_asked(draft: Draft, source: Source) -> None:
    for name in source.names():
        row = draft.row(name)
        if name.replace("-", "_") in draft.without and row is not None and row.fate == "taken":
            source.constants.pop(name, None)
            source.searched.pop(name, None)
            draft.leave_out(name, "as asked")


def named_lengths(draft: Draft, names: Iterable[str]) -> list[str]:
    return [name for name in names if (row := draft.row(name)) and row.target == "env_steps"]


def named_env(draft: Draft, names: Iterable[str]) -> list[str]:
    rows = {name: find(name, draft.system) for name in names}
    return [name for name, row in rows.items() if row and row.target == "env"]


def _check_targets(draft: Draft, source: Source) -> None:
    """Refuse names that have one target, such as actor.lr and critic.lr."""
    found: dict[str, list[str]] = {}
    for name in source.names():
        target = draft.target(name)
        if target is not None:
            found.setdefault(target, []).append(name)
    for target, names in found.items():
        if len(names) > 1 and _clash(draft, source, names):
            text = f"{' and '.join(names)} would both be {target} here; leave one of them out"
            raise ConfigError(text, flags={"without": names[0]})


def _clash(draft: Draft, source: Source, names: Sequence[str]) -> bool:
    """Return whether several names of one target contradict each other."""
    if len({repr(source.constants.get(name, name)) for name in names}) == 1:
        return False
    if len({plain_name(name) for name in names}) < len(names):
        return True
    if all(draft.system.find(name) for name in names):
        return False
    given = [source.find(name) for name in names if name in source.constants]
    numbers = {one for one in given if isinstance(one, int | float)}
    return len(given) < len(names) or len(numbers) > 1


def _add_critic(draft: Draft) -> None:
    """Separate the optimiser of the critic where a source has a learning rate for it."""
    name = next(
        (
            name
            for name in draft.taken
            if plain_name(name) in ("critic_lr", "lr_critic")
            and draft.taken[name] == ["vf_learning_rate"]
        ),
        None,
    )
    if name is not None and "separate_vf_optimiser" not in draft.fixed:
        draft.fixed["separate_vf_optimiser"] = True
        draft.note(f"{name}: the critic has its own optimiser (separate_vf_optimiser)")


def add_defaults(draft: Draft, source: Source) -> None:
    """Add the system's defaults where ours differ, and its other differences."""
    _add_critic(draft)
    given = {name.replace("-", "_") for name in (*source.names(), *source.used)}
    known = [row for row in draft.system.rows if row.default is not UNKNOWN]
    for row in known:
        named = row.name in draft.silent or row.name.replace("-", "_") in given
        idle = _is_set(draft, row.target) or _is_idle(draft, row.target)
        if row.fate != "taken" or named or idle:
            continue
        try:
            settings = row.settings(row.default)
        except NoCounterpart as reason:
            raise draft.fault(f"its {row.name} is {row.default!r} by default: {reason}") from None
        draft.defaults.append(_shown_default(row, settings))
        if not all(_is_ours(draft, target, one) for target, one in settings.items()):
            for target, one in settings.items():
                draft.put(row.name, target, one)
    targets = {row.target for row in known}
    for target, value in draft.system.always.items():
        if target in targets or _is_set(draft, target) or _is_idle(draft, target):
            continue
        checked = check_value(target, value)
        sized = {"hidden_size", "num_layers"} & {*draft.fixed, *draft.space}
        if target == "hidden_sizes" and sized:
            continue
        draft.defaults.append(f"({target} {value})")
        # our defaults of these two depend on other settings
        other = draft.fixed.get("network", "mlp") in ("cnn", "gnn", "transformer")
        depends = target == "reward_clip" or (target == "activation" and other)
        if depends or checked != KNOBS[target].default:
            draft.fixed[target] = checked
    for text in draft.system.differs:
        draft.note(text)


def _shown_default(row: Row, settings: Mapping[str, Any]) -> str:
    """Return a default as it is there, and in brackets ours if that differs."""
    shown = f"{row.name} {row.default}"
    if settings == {row.target: row.default} or not settings:
        return shown
    ours = in_words(Settings(settings)) if len(settings) > 1 else in_words(*settings.values())
    return f"{shown} (here {ours})" if ours != in_words(row.default) else shown


def _is_idle(draft: Draft, target: str) -> bool:
    network = draft.fixed.get("network", "mlp")
    if target in KNOBS and "network" not in draft.space and not matters(target, network):
        return True
    switches = {"observation_clip": "normalise_observations", "reward_clip": "normalise_rewards",
                "adv_clip": "normalise_advantages",
                "average_reward_initial": "reward_centering"}  # fmt: skip
    switch = switches.get(target)
    if switch is not None:
        return not draft.fixed.get(switch, KNOBS[switch].default) and switch not in draft.space
    if target in ("log_std_init", "distribution"):
        with suppress(HpoError):
            entry = find_environment(str(draft.env.get("id", "")))
            return entry is not None and entry.actions == "discrete"
    if target in ("lr_schedule_multiplier", "lr_decay_exponent"):
        return draft.fixed.get("lr_schedule", "constant") == "constant"
    return False


def _is_set(draft: Draft, target: str) -> bool:
    if target == "lr_schedule" and draft.schedule is not None:
        return True
    section, _, key = target.partition(".")
    if target in KNOBS:
        return target in draft.fixed or target in draft.space
    if section == "env":
        return target in draft.space or (key or "id") in draft.env
    return key in draft.rest.get(section, {}) if key else target in draft.rest


def _is_ours(draft: Draft, target: str, value: Any) -> bool:
    section, _, key = target.partition(".")
    if target in KNOBS:
        return (value if value is None else check_value(target, value)) == KNOBS[target].default
    entry = draft.entry
    if section == "env" and entry is not None:
        return value == entry.default_of(key)
    defaults = {field.key: field.default for field in SECTIONS.get(section, ())}
    return value == defaults.get(key, UNKNOWN)


def add_space(draft: Draft) -> None:
    """Search around a draft's fixed values, which become the space's default configuration."""
    if draft.space:
        raise draft.fault("it has a search space already; only a single configuration gets one")
    for name in SEARCHED:
        value = draft.fixed.get(name, KNOBS[name].default)
        fields = dict(KNOBS[name].search or {})
        if fields.get("distribution") == "one_minus_log" and value >= 1.0:
            draft.note(f"space: {name} stays {value!r}, the end of its range")
            continue
        draft.fixed.pop(name, None)
        if value > 0 or "zero" not in fields:
            fields["min"], fields["max"] = min(fields["min"], value), max(fields["max"], value)
        draft.space[name] = {**fields, "default": value}
    draft.note("space: around the file's values, which are the default and are tried first")
    draft.rest["search"] = {"method": "tpe"}
    draft.rest["early_terminate"] = {"type": "asha"}
    draft.rest["seeds"] = {"per_config": 3, **draft.rest.get("seeds", {})}
    draft.rest["budget"] = {"trials": 64}
