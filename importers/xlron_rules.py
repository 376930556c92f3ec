"""Import rules for XLRON's interdependent flags, which keep their meaning in XLRON's code.

In version 1.1.0 (train/train_utils.py, train/ppo.py, make_env.py):

- `warmup_cosine` rises from LR itself to LR x WARMUP_MULTIPLIER (by default 1: no ramp).
- `cosine` passes LR x LR_END_FRACTION to optax as the *fraction* `alpha`, so it ends at LR x LR x
  LR_END_FRACTION, nearly 0. The cosine schedules of the entropy and the valid mass do the same.
- Learning-rate schedules count gradient steps. Schedules of entropy, valid mass and lambda count
  updates (gradient steps with STEP_ON_GRADIENT). The horizon of the learning rate and the entropy
  is in gradient steps, and that of lambda in updates. With the fixes of July 2026, the schedules
  of the learning rate and the entropy end with the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ..errors import counted
from ..files.plain_data import is_number
from ..foreign_names.name_mapping import rounded
from ..foreign_names.xlron_table import OLDER, XLRON_JULY
from .converted_study import ConvertedStudy, ImportSource
from .formats import file_name, read_word

_INCREMENT = 100_000
_MOST_NETWORKS = 10


def before(draft: ConvertedStudy, source: ImportSource) -> None:
    for old, new in OLDER.items():
        for given in (source.constants, source.searched):
            if old in given:
                given[new] = given.pop(old)
                source.used.add(old)
                draft.note(f"{old}: an earlier name of {new}")
    _check_kinds(draft, source)
    if on(source.find("EVAL_MODEL")):
        raise draft.fault(
            "--EVAL_MODEL only evaluates; train a policy, then evaluate it",
            evaluate=True,
        )
    if _any_on(source, "EVAL_HEURISTIC"):
        raise draft.fault(
            "--EVAL_HEURISTIC only evaluates; to evaluate the heuristic, import its command "
            "separately"
        )
    if "env_type" not in source.names():
        source.constants["env_type"] = "rmsa"
        draft.defaults.append("env_type rmsa")
    if any(source.values("MINIBATCH_SIZE", None)):
        _ignore_names(draft, source, "XLRON computes it from NUM_MINIBATCHES", "MINIBATCH_SIZE")
    for rule in (
        _translate_length,
        _translate_traffic,
        _translate_algorithm,
        _translate_networks,
        _translate_init,
        _translate_evaluation,
        _translate_schedules,
    ):
        rule(draft, source)


def after(draft: ConvertedStudy) -> None:
    if any(
        draft.fixed.get(name) or name in draft.space
        for name in ("weight_decay", "vf_weight_decay")
    ):
        draft.fixed["optimiser"] = "adamw"
        draft.note(
            "WEIGHT_DECAY: XLRON decouples weight decay as AdamW does, so optimiser is adamw"
        )
    counted = "service"
    if draft.env.get("reward") == "bitrate":
        counted = "bitrate"
    metric = {"name": f"eval/{counted}_blocking_probability", "goal": "minimize"}
    draft.rest.setdefault("metric", metric)
    evaluation, env = draft.section("evaluation"), draft.env
    if env.get("continuous"):
        evaluation.setdefault("episodes", 8)
        evaluation.setdefault("steps", 5000)
    else:
        env["warmup_requests"] = 0
        evaluation.pop("steps", None)
        evaluation.setdefault("episodes", 20)
    if env.get("id") == "rwa":
        env.pop("guardband", None)
        env["bitrates"] = [env.get("slot_width", 12.5)]
        draft.note("values_bw: each request takes one wavelength of slot_size, as in XLRON's rwa")
    elif env.get("id") == "rwa_lightpath_reuse":
        env.pop("guardband", None)
        scale = env.get("scale_factor", 1.0)
        if scale != 1.0 and "max_requests" in env:
            env["max_requests"] = int(scale * env["max_requests"])
            draft.note(
                "max_requests: multiplied by scale_factor, as in XLRON's rwa_lightpath_reuse"
            )


def on(value: Any) -> bool:
    return read_word(value) in (True, 1)


def _any_on(source: ImportSource, name: str) -> bool:
    return any(map(on, source.values(name, False)))


def _check_kinds(draft: ConvertedStudy, source: ImportSource) -> None:
    """Reject strings for numeric flags, and mappings or lists for flags that take a word."""
    for name in source.names():
        row = draft.system.find(name)
        if row is None or (row.fate != "taken" and name != "STEPS_PER_INCREMENT"):
            continue
        number = is_number(row.default) or name == "STEPS_PER_INCREMENT"
        word = isinstance(row.default, str | bool) or name.endswith("_SCHEDULE")
        for value in source.values(name, None):
            if number and not is_number(value):
                raise draft.fault(f"{name} is {value!r}; allowed: a number")
            if word and isinstance(value, list | dict):
                raise draft.fault(f"{name} is {value!r}; allowed: one word")


def _translate_length(draft: ConvertedStudy, source: ImportSource) -> None:
    names = {
        "TOTAL_TIMESTEPS": 10**6,
        "STEPS_PER_INCREMENT": _INCREMENT,
        "NUM_ENVS": 1,
        "ROLLOUT_LENGTH": 150,
    }
    given = [source.values(name, default) for name, default in names.items()]
    if any(len(values) > 1 for values in given):
        return
    total, increment, envs, rollout = (int(values[0]) for values in given)
    if min(envs, rollout) < 1:  # reported when they are taken
        return
    increment = _increment_steps(total, increment, rollout * envs)
    updates = max(1, increment // (rollout * envs)) * max(1, total // increment)
    trained = updates * rollout * envs
    if trained != total:
        draft.note(
            f"TOTAL_TIMESTEPS: {total:,} in the source, but XLRON trains for {trained:,} env "
            "steps, in whole updates and increments of STEPS_PER_INCREMENT"
        )


def _increment_steps(total: int, increment: int, update: int) -> int:
    """Return the number of env steps per increment: at most the whole run, at least one update."""
    return max(min(total, increment), update)


def _translate_traffic(draft: ConvertedStudy, source: ImportSource) -> None:
    _limit_block_slots(draft, source)
    if source.values("env_type", "rmsa")[0] in ("rwa", "rwa_lightpath_reuse"):
        draft.silent.add("guardband")
    if on(source.find("continuous_operation")):
        draft.silent.add("max_requests")
    if source.find("traffic_intensity"):
        source.constants["load"] = source.constants.pop("traffic_intensity")
        draft.note("traffic_intensity: XLRON uses it as the load and ignores --load")
    if source.find("custom_traffic_matrix_csv_filepath"):
        if _any_on(source, "random_traffic"):
            draft.leave_out("random_traffic", "XLRON uses the given matrix instead")
        source.drop("random_traffic")
        draft.silent.add("random_traffic")
    _listed_requests(draft, source)


def _limit_block_slots(draft: ConvertedStudy, source: ImportSource) -> None:
    """Limit the number of slots in a block to the slots per link."""
    name, slots = "aggregate_slots", source.values("link_resources", 5)
    if name not in source.names() or len(slots) != 1:
        return
    if all(width <= slots[0] for width in source.values(name, 1)):
        return
    draft.note(f"{name}: limited to link_resources ({slots[0]}), which gives each path one block")
    fields = source.searched.get(name, {})
    if name in source.constants:
        source.constants[name] = slots[0]
    elif "values" in fields:
        fields["values"] = sorted({min(read_word(one), slots[0]) for one in fields["values"]})


def _listed_requests(draft: ConvertedStudy, source: ImportSource) -> None:
    """Use a request file only if the flag that makes XLRON read it is also set."""
    name = "traffic_requests_csv_filepath"
    listed = source.find(name)
    if on(source.find("deterministic_requests")) and listed:
        source.drop("deterministic_requests")
    elif listed and not _any_on(source, "deterministic_requests"):
        _ignore_names(draft, source, "XLRON reads it only with --deterministic_requests", name)


def _ignore_names(draft: ConvertedStudy, source: ImportSource, reason: str, *names: str) -> None:
    for name in names:
        if name in source.names():
            draft.leave_out(name, reason)
        source.drop(name)


def _translate_algorithm(draft: ConvertedStudy, source: ImportSource) -> None:
    if source.values("GAE_LAMBDA", None) == [None]:
        source.drop("GAE_LAMBDA")
        draft.note("GAE_LAMBDA: without it, lambda is annealed, by default from 0.9 towards 0.98")
    else:
        names = ("INITIAL_LAMBDA", "FINAL_LAMBDA", "LAMBDA_SCHEDULE_MULTIPLIER")
        _ignore_names(draft, source, "GAE_LAMBDA is given, so lambda is not annealed", *names)
        draft.silent.update(names)
    clips = ("RHO_CLIP", "C_CLIP")
    off = [name for name in clips if _is_clip_off(source, name)]
    if off:
        source.drop(*off)
        _ignore_names(draft, source, f"has no effect while {off[0]} is off", *clips)
    if any(source.values("PRIO_ALPHA", 0.0)) and source.values("PRIO_BETA0", 1.0) == [1.0]:
        if "PRIO_ALPHA" in source.searched:
            draft.lost.append("PRIO_ALPHA")
        _ignore_names(
            draft,
            source,
            "has no effect in XLRON while PRIO_BETA0 is 1 (its default)",
            "PRIO_ALPHA",
        )
        source.drop("PRIO_BETA0")


def _is_clip_off(source: ImportSource, name: str) -> bool:
    return all(value is None or value <= 0 for value in source.values(name, -1.0))


def _translate_networks(draft: ConvertedStudy, source: ImportSource) -> None:
    kinds = _network_kinds(draft, source)
    if "transformer" not in kinds:
        _ignore_names(draft, source, "no transformer is trained", "transformer_obs_type")
    _complete_layers(draft, source, kinds)
    _shared_sizes(draft, source)
    if kinds != {"mlp"}:
        draft.note(
            "XLRON initialises the heads of gnn and transformer as hpo does (policy_gain, "
            "value_gain), and divides the logits of its gnn by --temperature (5)"
        )
        return
    draft.fixed |= {"policy_gain": math.sqrt(2.0), "value_gain": math.sqrt(2.0)}
    draft.note("policy_gain, value_gain: sqrt(2), as in XLRON's mlp")
    if any(source.values("mlp_layer_norm", False)):
        source.drop("mlp_layer_norm")
        draft.fixed["layer_norm"] = True
        draft.note("mlp_layer_norm: before the non-linearity in hpo, after it in XLRON")


def _network_kinds(draft: ConvertedStudy, source: ImportSource) -> set[str]:
    """Return the trained networks; the transformer overrides the gnn, as in XLRON."""
    transformer = set(source.values("USE_TRANSFORMER", False))
    gnn = set(source.values("USE_GNN", False))
    searched = len(transformer) > 1 or len(gnn) > 1
    if len(transformer) > 1 and len(gnn) > 1:
        raise draft.fault(
            "USE_TRANSFORMER and USE_GNN are both searched; search one of them, and "
            "import the sweep once per value of the other"
        )
    if any(source.values("USE_RNN", False)) and not (transformer | gnn) - {False}:
        draft.note(
            "USE_RNN: XLRON still trains an mlp, but draws samples differently; use network=lstm "
            "for a recurrent network"
        )
    if transformer == {True}:
        source.drop("USE_GNN")
        return {"transformer"}
    if gnn == {True} and not searched:
        return {"gnn"}
    if gnn == {True}:
        source.searched["network"] = {"values": ["transformer", "gnn"]}
        source.searched.pop("USE_TRANSFORMER")
        source.drop("USE_GNN")
        return {"transformer", "gnn"}
    source.drop("USE_GNN", "USE_TRANSFORMER")
    if not searched:
        return {"mlp"}
    name, kind = "USE_TRANSFORMER", "transformer"
    if len(gnn) > 1:
        name, kind = "USE_GNN", "gnn"
    source.searched["network"] = {"values": ["mlp", kind]}
    draft.note(f"{name} is searched, so network is searched, too")
    return {"mlp", kind}


def _complete_layers(draft: ConvertedStudy, source: ImportSource, kinds: set[str]) -> None:
    """For an MLP, fill in the default of NUM_LAYERS or NUM_UNITS if only the other is set."""
    pair = {"NUM_LAYERS": 2, "NUM_UNITS": 64}
    named = [name for name in pair if name in source.names()]
    if "mlp" not in kinds:
        _ignore_names(
            draft,
            source,
            f"only for mlp; ignored by {' and '.join(sorted(kinds))}",
            *pair,
            "ACTIVATION",
        )
        draft.silent.update((*pair, "ACTIVATION"))
        return
    if not named:
        draft.silent.update(pair)
        return
    for name, default in pair.items():
        if name not in named:
            source.constants[name] = default
            draft.defaults.append(f"{name} {default}")
    if any(name in source.searched for name in pair):
        return
    layers, units = (source.find(name) for name in pair)
    for name, given in zip(pair, (layers, units), strict=True):
        if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 16384:
            raise draft.fault(f"{name} is {given!r}; allowed: an integer from 1 to 16384")
    draft.put("NUM_LAYERS and NUM_UNITS", "hidden_sizes", [units] * min(layers, 65))
    source.drop(*pair)
    draft.silent.update(pair)


def _shared_sizes(draft: ConvertedStudy, source: ImportSource) -> None:
    """Apply mlp_layers and mlp_latent to all parts of the gnn, if the width is set."""
    layers, width = source.values("mlp_layers", None), source.values("mlp_latent", None)
    if width == [None]:
        if layers != [None]:
            draft.leave_out("mlp_layers", "has no effect in XLRON without mlp_latent")
    elif len(layers) > 1 or len(width) > 1:
        raise draft.fault(
            "mlp_layers and mlp_latent set the size of all parts of the gnn, so they "
            "cannot be searched; search a single part's size instead, such as edge_mlp_latent"
        )
    elif layers == [None]:
        raise draft.fault("mlp_latent needs mlp_layers; XLRON fails without it")
    else:
        for part in ("edge", "node", "global", "attn"):
            source.put(f"{part}_mlp_latent", width[0])
            if part != "attn" or source.find("attn_mlp_layers") != 0:
                source.put(f"{part}_mlp_layers", layers[0])
        draft.note("mlp_layers and mlp_latent set the sizes of all four parts of the gnn")
    source.drop("mlp_layers", "mlp_latent")


def _translate_init(draft: ConvertedStudy, source: ImportSource) -> None:
    flags = ("MODEL_PATH", "KEEP_VF", "RETRAIN_MODEL", "EXPERIMENT_NAME")
    path, keep, retrain, name = (source.find(flag) for flag in flags)
    source.drop(*flags)
    if name:
        draft.rest["name"] = file_name(str(name), "xlron")
    if not retrain or "RETRAIN_MODEL" in draft.without:
        if path is not None:
            draft.leave_out("MODEL_PATH", "policies are saved in the study's folder")
        return
    if path is None:
        raise draft.fault("RETRAIN_MODEL needs MODEL_PATH, the path of the model")
    if PurePath(str(path)).suffix == ".eqx":
        text = f"RETRAIN_MODEL starts from {path}, whose Equinox weights cannot be read; "
        raise draft.fault(
            f"{text}name a policy that hpo saved, or start fresh",
            flags={"MODEL_PATH": "DIR"},
            without={"without": "RETRAIN_MODEL"},
        )
    draft.rest["init"] = {"from": str(path), "keep": "all"}
    if keep:
        draft.rest["init"]["keep"] = "critic"


def _largest_value(source: ImportSource, name: str, default: int) -> int:
    return max(map(int, source.values(name, default)))


def _translate_evaluation(draft: ConvertedStudy, source: ImportSource) -> None:
    total = _largest_value(source, "TOTAL_TIMESTEPS", 10**6)
    networks = _largest_value(source, "NUM_ENVS", 1)
    update = networks * _largest_value(source, "ROLLOUT_LENGTH", 150)
    increment = _increment_steps(
        total, _largest_value(source, "STEPS_PER_INCREMENT", _INCREMENT), update
    )
    section, apart = draft.section("evaluation"), increment
    evaluates, saves = on(source.find("EVAL_DURING_TRAINING")), on(source.find("SAVE_MODEL"))
    if evaluates:
        apart = int((source.find("EVAL_FREQUENCY") or 1) * increment)
        _evaluate_as_there(draft, source, min(networks, _MOST_NETWORKS), increment)
    else:
        _ignore_names(
            draft, source, "has no effect in XLRON without EVAL_DURING_TRAINING", *_EVALUATIONS
        )
    if (evaluates or saves) and apart <= total:
        section["every"] = apart
    elif evaluates:
        draft.note(
            f"EVAL_FREQUENCY: a run is shorter than {apart:,} env steps, so policies are "
            "evaluated only at the end"
        )
    if saves:
        draft.section("checkpoint")["best_evaluation"] = True
        when = "evaluated at the end"
        if apart <= total:
            when = f"evaluated every {apart:,} env steps"
        draft.note(
            f"SAVE_MODEL: the policy with the best evaluation is kept ({when}); XLRON "
            "compares the training results of increments"
        )
    source.drop("SAVE_MODEL", "EVAL_DURING_TRAINING", *_EVALUATIONS)
    _translate_downsampling(draft, source)


_EVALUATIONS = ("EVAL_FREQUENCY", "EVAL_TIMESTEPS", "deterministic")


def _evaluate_as_there(
    draft: ConvertedStudy, source: ImportSource, networks: int, increment: int
) -> None:
    steps, greedy = source.find("EVAL_TIMESTEPS"), bool(source.find("deterministic"))
    if steps is None:
        steps = 10_000
    steps = steps or increment
    draft.section("evaluation").update(episodes=networks, steps=int(steps), greedy=greedy)
    if not greedy:
        draft.note(
            "evaluation.greedy: false, because XLRON samples actions unless --deterministic is set"
        )


def _translate_downsampling(draft: ConvertedStudy, source: ImportSource) -> None:
    points = source.find("DOWNSAMPLE_FACTOR")
    if not points or not on(source.find("WANDB")):
        return
    if points <= 1:
        source.drop("DOWNSAMPLE_FACTOR")
    else:
        chunks = max(1, round(points / max(source.values("ROLLOUT_LENGTH", 150))))
        source.constants["DOWNSAMPLE_FACTOR"] = chunks
        draft.note(
            f"DOWNSAMPLE_FACTOR: XLRON averages over {points} env steps, but hpo averages over "
            f"whole chunks of updates (here {counted(chunks, 'chunk')})"
        )


@dataclass(frozen=True)
class _Scheduled:
    """A value that XLRON schedules, and the flag that sets its final fraction."""

    kinds: set[Any]  # kinds of schedule; several if the kind is searched
    values: list[float]
    fraction: str  # the flag that sets its end
    end: float = 0.1  # default of that flag


def _translate_schedules(draft: ConvertedStudy, source: ImportSource) -> None:
    separate = any(source.values("SEPARATE_VF_OPTIMIZER", False))
    kinds = set(source.values("LR_SCHEDULE", "cosine"))
    critic = {kind for kind in source.values("VF_LR_SCHEDULE", None) if kind is not None}
    rates = source.values("LR", 5e-4)
    if "warmup_cosine" in kinds or (separate and "warmup_cosine" in critic):
        draft.fixed["lr_warmup_start_fraction"] = 1.0
        draft.note(
            "lr_warmup_start_fraction: 1, also for the critic, because XLRON's warm-up starts at "
            "LR and rises to LR x WARMUP_MULTIPLIER (1 by default, so no rise)"
        )
    if separate:
        _schedule_of_critic(draft, source, critic or kinds, rates)
    _scale_end(draft, source, _Scheduled(kinds, rates, "LR_END_FRACTION"))
    for prefix, value, end in (("ENT", "ENT_COEF", 0.1), ("VML", "VALID_MASS_LOSS_COEF", 10)):
        of_coefficient = _Scheduled(
            set(source.values(f"{prefix}_SCHEDULE", "constant")),
            source.values(value, 0.0),
            f"{prefix}_END_FRACTION",
            end,
        )
        if of_coefficient.kinds != {"constant"}:
            _scale_end(draft, source, of_coefficient)
            if draft.system is not XLRON_JULY:
                _scale_horizon(draft, source, f"{prefix}_SCHEDULE_MULTIPLIER", by_updates=False)
    if source.values("GAE_LAMBDA", None) == [None]:
        _scale_horizon(draft, source, "LAMBDA_SCHEDULE_MULTIPLIER", by_updates=True)


def _schedule_of_critic(
    draft: ConvertedStudy, source: ImportSource, kinds: set[Any], rates: list[float]
) -> None:
    """Set XLRON's defaults for the critic, which would otherwise use the policy's values."""
    if "VF_SCHEDULE_MULTIPLIER" not in source.names():
        draft.fixed["vf_schedule_multiplier"] = 1.0
    fraction = source.values("VF_LR_END_FRACTION", None)
    if fraction == [None] and "LR_END_FRACTION" not in source.searched:
        source.constants["VF_LR_END_FRACTION"] = source.values("LR_END_FRACTION", 0.1)[0]
    given = [value for value in source.values("VF_LR", None) if value is not None]
    values = given or [rate / 3.0 for rate in rates]
    _scale_end(draft, source, _Scheduled(kinds, values, "VF_LR_END_FRACTION"))


def _scale_end(draft: ConvertedStudy, source: ImportSource, one: _Scheduled) -> None:
    """Convert a cosine's end fraction to the effective one: value x value x fraction."""
    if "cosine" not in one.kinds:
        return
    if len(one.kinds) > 1:
        draft.note(
            f"{one.fraction}: correct only for linear, because XLRON's cosine ends at the squared "
            "initial value times the fraction"
        )
        return
    factor = _log_middle(one.values)
    _scale_values(source, one.fraction, lambda end: rounded(end * factor), one.end)
    text = f"{one.fraction}: multiplied by {factor:.4g}"
    if len(set(one.values)) > 1:
        text += " (the geometric mean of the smallest and largest searched value)"
    draft.note(
        f"{text}, because XLRON's cosine ends at the squared initial value times the fraction"
    )


def _scale_horizon(
    draft: ConvertedStudy, source: ImportSource, name: str, *, by_updates: bool
) -> None:
    epochs, parts = source.values("UPDATE_EPOCHS", 1), source.values("NUM_MINIBATCHES", 1)
    steps = [float(epoch * part) for epoch in epochs for part in parts]
    on_gradient = any(source.values("STEP_ON_GRADIENT", False))
    if by_updates != on_gradient or set(steps) == {1.0}:
        return
    factor, unit, horizon = _log_middle(steps), "updates", "gradient steps"
    if by_updates:
        factor, unit, horizon = 1.0 / factor, horizon, unit
    _scale_values(source, name, lambda one: one * factor, 1.0)
    draft.note(
        f"{name}: multiplied by {factor:.4g}, because XLRON's schedule counts {unit}, but "
        f"its horizon is in {horizon}"
    )


def _scale_values(
    source: ImportSource, name: str, scaled: Callable[[float], float], default: float
) -> None:
    """Scale a constant, listed values or a range; None means the default."""

    def scaled_or_default(value: Any) -> float:
        if value is None:
            value = default
        return scaled(float(value))

    if name not in source.searched:
        source.constants[name] = scaled_or_default(source.find(name))
        return
    fields = source.searched[name]
    for key in {"min", "max"} & fields.keys():
        fields[key] = scaled(fields[key])
    if "values" in fields:
        fields["values"] = [scaled_or_default(one) for one in fields["values"]]


def _log_middle(values: list[float]) -> float:
    """Return the geometric mean of the smallest and largest positive value; 0 if there is none."""
    positive = [float(value) for value in values if value > 0]
    if not positive:
        return 0.0
    return rounded(math.sqrt(min(positive) * max(positive)))
