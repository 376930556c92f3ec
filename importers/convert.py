"""From what a source sets to a draft: whose it is, its values, its system's defaults."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..environments.registry import find as find_environment
from ..errors import ConfigError, HpoError
from ..knobs import KNOBS, check_value, matters
from ..studies.study_keys import SECTIONS
from ..studies.study_values import count_of
from .converted_study import Draft, Source, is_of_the_file
from .formats import read_word
from .name_mapping import COMMON, UNKNOWN, NoCounterpart, Row, Settings, mapping_of, plain_name
from .tables import another_algorithm, find, recognise, system, versions_of
from .xlron_rules import XlronRules


class Rules(Protocol):
    """What follows from several names of one system together."""

    def before(self, draft: Draft, source: Source) -> None:
        """Change the source where names hang together, before any is translated."""

    def after(self, draft: Draft, source: Source) -> None:
        """Add to the draft what follows from all names."""


class _Sb3Rules:
    def before(self, draft: Draft, source: Source) -> None:
        """Put the policy before its arguments; drop what belongs to noise left out."""
        policy = source.constants.pop("policy", None)
        if policy is not None:
            source.constants = {"policy": policy, **source.constants}
        for name in ("n_steps", "batch_size") if "Lstm" in str(policy) else ():
            if name not in source.names():
                source.constants[name] = 128
                draft.note(f"{name}: 128, the default of the recurrent PPO")
        _rollouts(draft, source, "log_interval", ("n_steps", 2048), ("n_envs", 1))
        if source.calls and isinstance(source.find("save_freq"), int):
            calls, envs = source.find("save_freq"), source.values("n_envs", 1)[0]
            source.constants["save_freq"] = calls * int(envs)
            draft.note(f"save_freq: {calls} calls of {envs} environments there")
        if read_word(source.constants.get("use_sde")) is True and "use_sde" in draft.without:
            _without_sde(draft, source)

    def after(self, draft: Draft, source: Source) -> None:
        """Note how memory differs, and cut minibatches into whole segments."""
        _torch_decay(draft)
        if draft.fixed.get("network") in ("lstm", "gru"):
            draft.note(
                "network: hidden_sizes stand before the memory here, net_arch behind it there"
            )
            if not {"minibatch_size", "num_envs", "rollout_length"} & set(draft.space):
                _whole_segments(draft)


class _TorchRules:
    def before(self, draft: Draft, source: Source) -> None:
        """Turn intervals of updates into env steps; a helper is a call with some names set."""
        for name in ("log_interval", "save_interval"):
            _rollouts(draft, source, name, ("rollout_steps", 2048), ("num_envs", 4))
        helper = next((call for call in source.calls if call.startswith("train_")), "")
        if helper == "train_with_transformer_backbone":
            source.constants.setdefault("backbone_cls", "TransformerPolicyBackbone")
        if helper:
            draft.note(f"{helper}: what it sets besides its arguments is taken from PPOConfig")

    def after(self, draft: Draft, source: Source) -> None:
        """Let Adam decay as it does there."""
        _torch_decay(draft)


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
        draft.leave_out(name, f"{steps[0]} is searched, so it is no one number of env steps; "
                              f"give {key}")  # fmt: skip
    else:
        source.constants[name] = rollouts * int(lengths[0]) * int(widths[0])


def _torch_decay(draft: Draft) -> None:
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


def _without_sde(draft: Draft, source: Source) -> None:
    name = "log_std_init"
    because = "with use_sde it is of a matrix of noise, not of the actions' deviation"
    try:
        arguments = mapping_of(source.constants.get("policy_kwargs"))
    except NoCounterpart as reason:
        raise ConfigError(f"policy_kwargs: {reason}") from None
    if name in arguments:
        value = arguments.pop(name)
        source.constants["policy_kwargs"] = arguments
        draft.leave_out(f"{name} {value}", because)


def _whole_segments(draft: Draft) -> None:
    """Choose minibatches of whole segments for a recurrent network, as near as can be."""

    def known(knob: str) -> int:
        return int(draft.fixed.get(knob, KNOBS[knob].default))

    envs, steps = known("num_envs"), known("rollout_length")
    rows = int(draft.fixed.pop("minibatch_size", None) or 64)
    wanted = max(1, math.ceil(envs * steps / rows))
    parts = max(part for part in range(1, envs + 1) if part <= wanted and envs % part == 0)
    draft.fixed["num_minibatches"] = parts
    if parts != wanted:
        draft.note(
            f"batch_size: {rows} would make {wanted} minibatches of {envs * steps} rows; networks "
            f"with a memory learn from whole rollouts of {envs} environments here, so there are "
            f"{parts}"
        )


class _JaxdemRules:
    def before(self, draft: Draft, source: Source) -> None:
        """Turn the number of updates into env steps, and minibatches into passes."""
        defaults = {**draft.system.defaults, "num_epochs": 1000}

        def one(name: str) -> int:
            return count_of(source.values(name, defaults[name])[0]) or 0

        envs, steps, parts = one("num_envs"), one("num_steps_epoch"), one("num_minibatches")
        if "total_timesteps" in source.names() or "env_steps" in source.names():
            source.drop("num_epochs")
        elif one("num_epochs") and envs and steps:
            updates = one("num_epochs")
            source.drop("num_epochs")
            source.constants["env_steps"] = updates * envs * steps
            draft.note(
                f"num_epochs: {updates:,} updates of {envs} x {steps} env steps are "
                f"{updates * envs * steps:,} env steps"
            )
        old = draft.system.name == "jaxdem_2025_09"
        size = count_of(source.find("minibatch_size")) or 0
        if not size and old and parts and envs % parts:
            size = envs // parts
            draft.defaults.append(f"minibatch_size {size}")
        if not size or not envs or not steps:
            return
        if 0 not in source.values("importance_sampling_alpha", 1.0):
            source.put("minibatch_size", size * steps if old else size)
            source.constants.setdefault("num_minibatches", parts)
            if old:
                draft.note(f"minibatch_size: {size} segments of {steps} env steps there")
        else:
            _passes(draft, source, envs * (1 if old else steps), parts, old)

    def after(self, draft: Draft, source: Source) -> None:
        """Let the cosine end where it does there: after as many minibatches as updates."""
        parts = draft.fixed.get("num_minibatches", KNOBS["num_minibatches"].default)
        parts = parts * draft.fixed.get("update_epochs", 1) if isinstance(parts, int) else None
        together = draft.fixed.get("accumulate_minibatches", 1)
        if draft.fixed.get("lr_schedule") == "cosine" and parts and parts > 1:
            draft.fixed["lr_schedule_multiplier"] = 1.0 / parts
            draft.note(
                f"lr_schedule_multiplier: 1/{parts}, as the cosine counts minibatches there "
                "and is over after as many of them as there are updates; 1 for the whole run"
            )
        rate = draft.fixed.get("learning_rate", KNOBS["learning_rate"].default)
        if together > 1 and "learning_rate" not in draft.space:
            draft.fixed["learning_rate"] = float(f"{rate * together:.12g}")
            draft.note(
                f"accumulate_n_gradients: the steps of {together} minibatches are added there; "
                f"here one step goes along their mean gradient, so learning_rate is {together} "
                "times as large"
            )


def _passes(draft: Draft, source: Source, total: int, parts: int, segments: bool) -> None:
    """Turn so many minibatches of some size into passes over the rollout."""
    size = count_of(source.find("minibatch_size")) or 0
    unit = "segments" if segments else "env steps"
    if not size or not total or (size * parts) % total or total % size:
        passes = max(1, round(size * parts / total)) if total else 1
        raise ConfigError(
            f"{draft.source}: {parts} minibatches of {size} {unit} are "
            f"{size * parts / max(1, total):.3g} passes over {total}; here there are whole passes "
            "in equal parts",
            flags={
                "without": "minibatch_size",
                "num_minibatches": max(1, round(total / max(1, size))),
                "update_epochs": passes,
            },
        )
    source.drop("minibatch_size")
    source.put("num_minibatches", total // size)
    source.constants["update_epochs"] = size * parts // total
    draft.note(
        f"minibatch_size: {parts} minibatches of {size} {unit} are {size * parts // total} "
        f"pass(es) of {total // size} minibatches over {total}"
    )


class _ArlbenchRules:
    def before(self, draft: Draft, source: Source) -> None:
        """Name an environment of Brax as one: its framework stands under a name of its own."""
        frameworks = [source.find(name) for name in source.names() if name.endswith("framework")]
        for name in ("environment.name", "autorl.env_name", "env_name"):
            env = str(source.find(name))
            if "brax" in frameworks and name in source.constants and ":" not in env:
                source.constants[name] = f"brax:{env}"

    def after(self, draft: Draft, source: Source) -> None:
        """Add nothing."""


RULES: Mapping[str, Rules] = {
    "xlron": XlronRules(), "sb3": _Sb3Rules(), "jaxdem": _JaxdemRules(),
    "torch_ppo": _TorchRules(), "arlbench": _ArlbenchRules(),
}  # fmt: skip
"""By a system's family."""


def begin(draft: Draft, source: Source, given: Mapping[str, Any]) -> None:
    """Recognise whose names a source has; note what told, and which version they are read at."""
    draft.without = tuple(filter(None, str(given.get("without", "")).replace("-", "_").split(",")))
    if "system" in given:
        draft.system = system(str(given["system"]))
        return
    draft.system, why = recognise((*source.names(), *given), source.words, source.family)
    if source.family and draft.system is COMMON:
        draft.system, why = system(source.family), ""
    if why and not source.family:
        draft.note(f"taken for {draft.system.title}, as {why}; system=none: for none")
    one, names = draft.system, {name.replace("-", "_") for name in source.names()}
    others = "; ".join(f"{other.version}: system={other.name}" for other in versions_of(one))
    if one.name != one.family and any(mark <= names for mark in one.marks):
        draft.note(f"version: only {one.title} {one.version} has such names; others are {others}")
    elif others:
        draft.note(f"version: its names do not tell versions apart; {others}")


def take(draft: Draft, source: Source, given: Mapping[str, Any]) -> None:
    """Put everything that a source sets into a draft."""
    told = another_algorithm(source.words)
    if told and given.get("system") != COMMON.name:
        raise ConfigError(f"{draft.source}: {told}")
    draft.read = list(source.names())
    begin(draft, source, given)
    for name, value in given.items():
        if not is_of_the_file(name) and name not in ("system", "without", "metric", "name"):
            source.drop(name, name.replace("-", "_"))
            source.constants[name] = value
    for name in source.names():
        row = draft.row(name)
        if name.replace("-", "_") in draft.without and row is not None and row.fate == "taken":
            for given in (source.constants, source.searched):
                given.pop(name, None)
            draft.leave_out(name, "as asked")
    rules = RULES.get(draft.system.family)
    if rules is not None:
        rules.before(draft, source)
    for name in [name for name in source.names() if _names_env(draft, name)]:
        if name in source.constants:
            draft.constant(name, source.constants.pop(name))
        elif len(source.searched[name].get("values", ())) == 1:
            draft.constant(name, source.searched.pop(name)["values"][0])
    _once_each(draft, source)
    for name, value in source.constants.items():
        draft.constant(name, value)
    for name, distribution in source.searched.items():
        draft.searched(name, distribution)
    settle(draft, source)
    if rules is not None:
        rules.after(draft, source)
    unlisted = set(draft.unlisted())
    draft.taken |= {name: [] for name in draft.read if name in unlisted & source.used}


def _once_each(draft: Draft, source: Source) -> None:
    """Refuse names that would be one target, as actor.lr and critic.lr."""
    found: dict[str, list[str]] = {}
    for name in source.names():
        target = draft.target(name)
        if target is not None:
            found.setdefault(target, []).append(name)
    for target, names in found.items():
        if len(names) > 1 and _clash(draft, source, names):
            raise ConfigError(
                f"{' and '.join(names)} would both be {target} here, which has one value; leave "
                "one of them out",
                flags={"without": names[0]},
            )


def _clash(draft: Draft, source: Source, names: Sequence[str]) -> bool:
    """Return whether several names of one target of ours cannot all be meant.

    Names that a system's own table has beside each other are its rules' business.
    """
    if len({plain_name(name) for name in names}) < len(names):
        return True
    if all(draft.system.find(name) for name in names):
        return False
    given = [source.find(name) for name in names if name in source.constants]
    numbers = {one for one in given if isinstance(one, int | float)}
    return len(given) < len(names) or len(numbers) > 1


def _names_env(draft: Draft, name: str) -> bool:
    row = find(name, draft.system)
    return row is not None and row.target == "env"


# ---------------------------------------------------------- what the source leaves unsaid


def settle(draft: Draft, source: Source) -> None:
    """Write down what the system's program would do where the source is silent."""
    said = {name.replace("-", "_") for name in (*source.names(), *source.used)}
    for row in draft.system.rows:
        silent = row.default is UNKNOWN or row.name in draft.silent
        if row.fate != "taken" or silent or row.name.replace("-", "_") in said:
            continue
        if _is_set(draft, row.target) or is_idle(draft, row.target):
            continue
        draft.defaults.append(f"{row.name} {row.default}")
        _put_default(draft, row)
    _add_always(draft)


def _put_default(draft: Draft, row: Row) -> None:
    try:
        value = row.values.of(row.default)
    except NoCounterpart as reason:
        raise ConfigError(f"{draft.source}: its {row.name} is {row.default!r} by default: {reason}"
                          ) from None  # fmt: skip
    settings = value if isinstance(value, Settings) else {row.target: value}
    if not all(_same(draft, target, one) for target, one in settings.items()):
        for target, one in settings.items():
            draft.put(row.name, target, one)


def _add_always(draft: Draft) -> None:
    """Add what the system's program always does, and what differs whatever is set."""
    named = {row.target for row in draft.system.rows if row.default is not UNKNOWN}
    for target, value in draft.system.always.items():
        if target in named or _is_set(draft, target) or is_idle(draft, target):
            continue
        checked = check_value(target, value)
        if target == "hidden_sizes" and {"hidden_size", "num_layers"} & {
            *draft.fixed,
            *draft.space,
        }:
            continue  # fmt: skip
        draft.defaults.append(f"({target} {value})")
        if checked != KNOBS[target].default or _is_filled(draft, target):
            draft.fixed[target] = checked
    for text in draft.system.differs:
        draft.note(text)


def _is_filled(draft: Draft, target: str) -> bool:
    """Whether ours would not be the default that the table of knobs has."""
    filled = draft.fixed.get("network", "mlp") in ("cnn", "gnn", "transformer")
    return (target == "activation" and filled) or target == "reward_clip"


def is_idle(draft: Draft, target: str) -> bool:
    """Whether a knob changes nothing in this study."""
    network = draft.fixed.get("network", "mlp")
    if target in KNOBS and "network" not in draft.space and not matters(target, network):
        return True
    switches = {"observation_clip": "normalise_observations", "reward_clip": "normalise_rewards",
                "adv_clip": "normalise_advantages"}  # fmt: skip
    switch = switches.get(target)
    if switch is not None:
        return not draft.fixed.get(switch, KNOBS[switch].default) and switch not in draft.space
    if target in ("log_std_init", "distribution"):
        return _actions(draft) == "discrete"
    if target in ("lr_schedule_multiplier", "lr_decay_exponent"):
        return draft.fixed.get("lr_schedule", "constant") == "constant"
    return False


def _actions(draft: Draft) -> str:
    try:
        entry = find_environment(str(draft.env.get("id", "")))
    except HpoError:
        return "any"
    return "any" if entry is None else entry.actions


def _same(draft: Draft, target: str, value: Any) -> bool:
    if target in KNOBS and value is not None:
        value = check_value(target, value)
    return value == _ours(draft, target)


def _is_set(draft: Draft, target: str) -> bool:
    section, _, key = target.partition(".")
    if target in KNOBS:
        return target in draft.fixed or target in draft.space
    if section == "env":
        return target in draft.space or (key or "id") in draft.env
    return key in draft.rest.get(section, {}) if key else target in draft.rest


def _ours(draft: Draft, target: str) -> Any:
    """Return what we take where a study is silent."""
    section, _, key = target.partition(".")
    if target in KNOBS:
        return KNOBS[target].default
    entry = draft.entry
    if section == "env" and entry is not None:
        return entry.keys[key].default if key in entry.keys else entry.params.get(key)
    fields = {field.key: field.default for field in SECTIONS.get(section, ())}
    return fields.get(key, UNKNOWN)


# ----------------------------------------------------------------- around a configuration

_SEARCHED = ("learning_rate", "gamma", "gae_lambda", "clip_eps", "ent_coef", "update_epochs")


def add_space(draft: Draft, names: Iterable[str] = _SEARCHED) -> None:
    """Search around a draft's fixed values, which become the space's default configuration."""
    if draft.space:
        raise ConfigError(
            f"{draft.source} has a search space already; only a single configuration gets one"
        )
    for name in names:
        value = draft.fixed.get(name, KNOBS[name].default)
        fields = dict(KNOBS[name].search or {})
        if fields.get("distribution") == "one_minus_log" and value >= 1.0:
            draft.note(f"space: {name} stays {value!r}, the end of its range")
            continue
        draft.fixed.pop(name, None)
        if value > 0 or "zero" not in fields:
            fields["min"], fields["max"] = min(fields["min"], value), max(fields["max"], value)
        fields["default"] = value
        draft.space[name] = fields
    draft.note("space: around the file's values, which are the default and are tried first")
    draft.rest["search"] = {"method": "tpe"}
    draft.rest["early_terminate"] = {
        "type": "asha", "min": max(1, draft.rest.get("env_steps", 1_000_000) // 16), "eta": 4.0,
    }  # fmt: skip
    draft.rest["seeds"] = {"per_config": 3, **draft.rest.get("seeds", {})}
    draft.rest["budget"] = {"trials": 64}
