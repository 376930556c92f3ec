"""What follows from several of XLRON's flags together, as its code reads them.

At 1.1.0 (train/train_utils.py, train/ppo.py, make_env.py):
- `warmup_cosine` rises from LR itself to LR x WARMUP_MULTIPLIER, so that by default (1) there is
  no ramp: the start fraction is 1.
- `cosine` hands LR x LR_END_FRACTION to optax as the *fraction* `alpha`, so that it ends at
  LR x LR x LR_END_FRACTION, which is nearly 0; the schedules of the entropy and the valid mass
  likewise. `linear` and `warmup_cosine` end where they say.
- Schedules of the learning rate count gradient steps. Those of the entropy, the valid mass and
  lambda count updates (with STEP_ON_GRADIENT gradient steps), while the horizon of the first two
  is in gradient steps and that of lambda in updates. Its fixes of July 2026 let the entropy and
  the valid mass end with the run.
"""

from __future__ import annotations

import math
from pathlib import PurePath
from typing import Any

from ..errors import ConfigError
from .converted_study import Draft, Source
from .formats import file_name, read_word
from .xlron_table import OLDER, XLRON, XLRON_JULY

_PARTS = ("edge", "node", "global", "attn")
_LAYERS, _UNITS = 2, 64
_INCREMENT = 100_000
_MOST_NETWORKS = 10


class XlronRules:
    """What follows from several of XLRON's flags together."""

    def before(self, draft: Draft, source: Source) -> None:
        """Resolve flags that mean something only next to others."""
        negations(source)
        _renamed(draft, source)
        _check_kinds(draft, source)
        if on(source.find("EVAL_MODEL")):
            raise ConfigError(
                f"{draft.source}: --EVAL_MODEL evaluates and trains nothing, and weights of "
                "Equinox (.eqx) cannot be read here; train a policy, then evaluate it",
                evaluate=True,
            )
        if any(map(on, source.values("EVAL_HEURISTIC", False))):
            raise ConfigError(
                f"{draft.source}: --EVAL_HEURISTIC evaluates and trains nothing; import one such "
                "command alone, which becomes the evaluation of a heuristic"
            )
        _one_environment(draft, source)
        _length(draft, source)
        _blocks(draft, source)
        _traffic(draft, source)
        _lambda(draft, source)
        _clips(draft, source)
        _priorities(draft, source)
        if any(value for value in source.values("MINIBATCH_SIZE", None)):
            draft.leave_out("MINIBATCH_SIZE", "XLRON computes it; NUM_MINIBATCHES counts")
            source.drop("MINIBATCH_SIZE")
        read_networks(draft, source)
        read_output(draft, source)
        read_schedules(draft, source)

    def after(self, draft: Draft, source: Source) -> None:
        """Add what every command of XLRON stands for."""
        decays = [draft.fixed.get(name) or name in draft.space
                  for name in ("weight_decay", "vf_weight_decay")]  # fmt: skip
        if any(decays):
            draft.fixed["optimiser"] = "adamw"
            draft.note("WEIGHT_DECAY: XLRON decays as AdamW does, so the optimiser is adamw")
        draft.rest.setdefault(
            "metric", {"name": "eval/service_blocking_probability", "goal": "minimize"}
        )
        evaluation = draft.section("evaluation")
        if draft.env.get("continuous"):
            evaluation.setdefault("episodes", 8)
            evaluation.setdefault("steps", 5000)
        else:
            draft.env["warmup_requests"] = 0
            evaluation.pop("steps", None)
            evaluation.setdefault("episodes", 20)
        _wavelengths(draft)


def negations(source: Source) -> None:
    """Read `--noFLAG` as the flag, off."""
    for name in list(source.constants):
        flag = name.removeprefix("no")
        negated = source.constants[name] is True and XLRON.find(name) is None
        if negated and flag != name and XLRON.find(flag) is not None:
            del source.constants[name]
            source.constants[flag] = False


def _renamed(draft: Draft, source: Source) -> None:
    """Read flags of earlier versions as those of today."""
    for old, new in OLDER.items():
        for given in (source.constants, source.searched):
            if old in given:
                given[new] = given.pop(old)
                source.used.add(old)
                draft.note(f"{old}: an earlier name of {new}")


def on(value: Any) -> bool:
    """Return whether a switch is on."""
    return read_word(value) in (True, 1)


def _check_kinds(draft: Draft, source: Source) -> None:
    """Refuse what is no number where XLRON takes numbers, and mappings and lists among words."""
    for name in source.names():
        row = draft.system.find(name)
        if row is None or (row.fate != "taken" and name != "STEPS_PER_INCREMENT"):
            continue
        number = isinstance(row.default, int | float) and not isinstance(row.default, bool)
        number = number or name == "STEPS_PER_INCREMENT"
        word = isinstance(row.default, str | bool) or name.endswith("_SCHEDULE")
        for value in source.values(name, None):
            counts = isinstance(value, int | float) and not isinstance(value, bool)
            if (number and not counts) or (word and isinstance(value, list | dict)):
                wanted = "a number" if number else "one word"
                raise ConfigError(f"{draft.source}: {name} is {value!r}; allowed: {wanted}")


def _one_environment(draft: Draft, source: Source) -> None:
    if "env_type" not in source.names():
        source.constants["env_type"] = "rmsa"
        draft.defaults.append("env_type rmsa")


def _length(draft: Draft, source: Source) -> None:
    """Set the env steps that XLRON really trains: whole updates in whole increments."""
    names = {"TOTAL_TIMESTEPS": 10**6, "STEPS_PER_INCREMENT": 10**5, "NUM_ENVS": 1,
             "ROLLOUT_LENGTH": 150}  # fmt: skip
    given = [source.values(name, default) for name, default in names.items()]
    if any(len(values) > 1 for values in given):
        return
    total, increment, envs, rollout = (int(values[0]) for values in given)
    if min(envs, rollout) < 1:  # refused where they are put
        return
    increment = max(min(total, increment), rollout * envs)
    updates = max(1, increment // (rollout * envs)) * max(1, total // increment)
    trained = updates * rollout * envs
    if trained != total:
        draft.note(
            f"TOTAL_TIMESTEPS: {total:,} as it says; XLRON trains {trained:,}, whole updates in "
            f"increments of STEPS_PER_INCREMENT"
        )


def _blocks(draft: Draft, source: Source) -> None:
    """Read blocks wider than a link, of which XLRON makes one block a path."""
    name, slots = "aggregate_slots", source.values("link_resources", 5)
    if (
        len(slots) > 1
        or name not in source.names()
        or not any(width > slots[0] for width in source.values(name, 1))
    ):
        return
    draft.note(f"{name}: at most link_resources ({slots[0]}), one block a path")
    if name in source.constants:
        source.constants[name] = slots[0]
    elif "values" in source.searched[name]:
        fields = source.searched[name]
        fields["values"] = sorted({min(read_word(one), slots[0]) for one in fields["values"]})


def _traffic(draft: Draft, source: Source) -> None:
    """Read what decides the traffic: the load, the matrix, lists of requests."""
    if source.values("env_type", "rmsa")[0] in ("rwa", "rwa_lightpath_reuse"):
        draft.silent.add("guardband")
    if on(source.find("continuous_operation")):
        draft.silent.add("max_requests")
    if source.find("traffic_intensity"):
        source.constants["load"] = source.constants.pop("traffic_intensity")
        draft.note("traffic_intensity: it is the load there, whatever --load says")
    if source.find("custom_traffic_matrix_csv_filepath"):
        if any(map(on, source.values("random_traffic", False))):
            draft.leave_out("random_traffic", "a matrix is given, which wins there")
        source.drop("random_traffic")
        draft.silent.add("random_traffic")
    listed = source.find("traffic_requests_csv_filepath")
    if on(source.find("deterministic_requests")) and listed:
        source.drop("deterministic_requests")
        draft.note(
            "traffic_requests_csv_filepath: the columns are source,destination,bitrate,arrival,"
            "holding here, with absolute arrivals; XLRON's are source,bandwidth,destination,"
            "arrival,holding,current time"
        )
    elif listed and not any(map(on, source.values("deterministic_requests", False))):
        draft.leave_out(
            "traffic_requests_csv_filepath", "read there with --deterministic_requests only"
        )
        source.drop("traffic_requests_csv_filepath")


def _wavelengths(draft: Draft) -> None:
    """Take what wavelengths decide by themselves, there and here."""
    if draft.env.get("id") == "rwa":
        draft.env.pop("guardband", None)
        draft.env["bitrates"] = [draft.env.get("slot_width", 12.5)]
        draft.note("values_bw: a wavelength of slot_size, as in rwa of XLRON")
    elif draft.env.get("id") == "rwa_lightpath_reuse":
        draft.env.pop("guardband", None)
        scale = draft.env.get("scale_factor", 1.0)
        if scale != 1.0 and "max_requests" in draft.env:
            draft.env["max_requests"] = int(scale * draft.env["max_requests"])
            draft.note("max_requests: times scale_factor, as in rwa_lightpath_reuse of XLRON")


def _lambda(draft: Draft, source: Source) -> None:
    """Read lambda: given, or annealed from one value to another."""
    if source.values("GAE_LAMBDA", None) != [None]:
        for name in ("INITIAL_LAMBDA", "FINAL_LAMBDA", "LAMBDA_SCHEDULE_MULTIPLIER"):
            if name in source.names():
                draft.leave_out(name, "GAE_LAMBDA is given, so lambda does not anneal")
            source.drop(name)
            draft.silent.add(name)
        return
    source.drop("GAE_LAMBDA")
    draft.note("GAE_LAMBDA: without it lambda anneals, by default from 0.9 towards 0.98")


def _clips(draft: Draft, source: Source) -> None:
    """Read V-trace's clips: both above 0, or none."""
    off = {name: [value is None or value <= 0 for value in source.values(name, -1.0)]
           for name in ("RHO_CLIP", "C_CLIP")}  # fmt: skip
    if all(off["RHO_CLIP"]) or all(off["C_CLIP"]):
        for name in off:
            if name in source.names() and not all(off[name]):
                draft.leave_out(name, "has no effect while the other clip is off")
            source.drop(name)
        return
    draft.note(
        "RHO_CLIP, C_CLIP: value targets follow V-trace here; XLRON keeps those of the rollout, "
        "and its minibatches are parts of a rollout's steps, of all environments"
    )


def _priorities(draft: Draft, source: Source) -> None:
    """Read prioritised sampling, which an importance exponent of 1 switches off there."""
    alpha, beta = source.values("PRIO_ALPHA", 0.0), source.values("PRIO_BETA0", 1.0)
    if any(alpha) and beta == [1.0]:
        draft.leave_out("PRIO_ALPHA", "has no effect there while PRIO_BETA0 is 1 (its default)")
        if "PRIO_ALPHA" in source.searched:
            draft.lost.append("PRIO_ALPHA")
        source.drop("PRIO_ALPHA", "PRIO_BETA0")
    elif any(alpha) and draft.system is XLRON_JULY:
        draft.note(
            "PRIO_ALPHA: weights are (N P)^-beta here, and divided by the largest of them there"
        )
    elif any(alpha):
        draft.note(
            "PRIO_BETA0: it rises to 1 over the run here, and by PRIO_ALPHA of that way there; "
            "weights are (N P)^-beta here and P^-beta there, N^beta times as large"
        )


# ---- networks


def read_networks(draft: Draft, source: Source) -> None:
    """Resolve the flags of networks."""
    kinds = _kinds(draft, source)
    _observations(draft, source, kinds)
    _layers(draft, source, kinds)
    _shared_sizes(draft, source)
    if kinds == {"mlp"}:
        _as_the_mlp(draft, source)
    else:
        draft.note(
            "heads of gnn and transformer begin as ours do (policy_gain, value_gain); XLRON "
            "divides the logits of its gnn by --temperature (5)"
        )


def _kinds(draft: Draft, source: Source) -> set[str]:
    """Return the networks that are trained; the transformer wins over the gnn, as there."""
    transformer = set(source.values("USE_TRANSFORMER", False))
    gnn = set(source.values("USE_GNN", False))
    if len(transformer) > 1 and len(gnn) > 1:
        raise ConfigError(
            f"{draft.source}: USE_TRANSFORMER and USE_GNN are both searched; search one of them "
            "and import the sweep once for each value of the other"
        )
    if any(source.values("USE_RNN", False)) and not (transformer | gnn) - {False}:
        draft.note(
            "USE_RNN: XLRON builds no recurrent network, the flag only changes how samples are "
            "drawn: the mlp is trained; network=lstm: a recurrent one"
        )
    if transformer == {True}:
        source.drop("USE_GNN")
        return {"transformer"}
    if gnn == {True}:
        if len(transformer) > 1:
            source.searched["USE_TRANSFORMER"] = {"values": ["transformer", "gnn"]}
            source.searched["network"] = source.searched.pop("USE_TRANSFORMER")
            source.drop("USE_GNN")
            return {"transformer", "gnn"}
        return {"gnn"}
    if len(transformer) > 1 or len(gnn) > 1:
        name, kind = ("USE_GNN", "gnn") if len(gnn) > 1 else ("USE_TRANSFORMER", "transformer")
        source.drop("USE_TRANSFORMER", "USE_GNN")
        source.searched["network"] = {"values": ["mlp", kind]}
        draft.note(f"{name}: it is searched, so network is")
        return {"mlp", kind}
    source.drop("USE_GNN", "USE_TRANSFORMER")
    return {"mlp"}


def _observations(draft: Draft, source: Source, kinds: set[str]) -> None:
    name = "transformer_obs_type"
    if name in source.names() and "transformer" not in kinds:
        draft.leave_out(name, "no transformer is trained")
        source.drop(name)


def _layers(draft: Draft, source: Source, kinds: set[str]) -> None:
    """Fill in the default of NUM_LAYERS or NUM_UNITS beside the other; only the mlp has them."""
    pair = {"NUM_LAYERS": _LAYERS, "NUM_UNITS": _UNITS}
    named = [name for name in pair if name in source.names()]
    for name in (*named, "ACTIVATION") if "mlp" not in kinds else ():
        if name in source.names():
            draft.leave_out(name, f"the mlp's; {' and '.join(sorted(kinds))} do without")
        source.drop(name)
    if not named or "mlp" not in kinds:
        draft.silent.update({*pair, *(() if "mlp" in kinds else ("ACTIVATION",))})
        return
    for name, default in pair.items():
        if name not in named:
            source.constants[name] = default
            draft.defaults.append(f"{name} {default}")
    if all(name in source.constants for name in pair):
        draft.put("NUM_LAYERS and NUM_UNITS", "hidden_sizes", _widths(draft, source))
        source.drop(*pair)
        draft.silent.update(pair)


def _widths(draft: Draft, source: Source) -> list[int]:
    layers, units = source.find("NUM_LAYERS"), source.find("NUM_UNITS")
    for name, given in (("NUM_LAYERS", layers), ("NUM_UNITS", units)):
        if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 16384:
            raise ConfigError(f"{draft.source}: {name} is {given!r}; allowed: a whole number")
    return [units] * min(layers, 65)


def _shared_sizes(draft: Draft, source: Source) -> None:
    """Spread mlp_layers and mlp_latent over the parts of the gnn; the width switches them on."""
    layers, width = source.values("mlp_layers", None), source.values("mlp_latent", None)
    if width == [None]:
        if layers != [None]:
            draft.leave_out("mlp_layers", "has no effect there without mlp_latent")
    elif len(layers) > 1 or len(width) > 1:
        raise ConfigError(
            f"{draft.source}: mlp_layers and mlp_latent set the sizes of all parts of the gnn at "
            "once, so they cannot be searched; search edge_mlp_latent and its like"
        )
    elif layers == [None]:
        raise ConfigError(f"{draft.source}: mlp_latent needs mlp_layers; XLRON fails without")
    else:
        for part in _PARTS:
            source.put(f"{part}_mlp_latent", width[0])
            if part != "attn" or source.find("attn_mlp_layers") != 0:
                source.put(f"{part}_mlp_layers", layers[0])
        draft.note("mlp_layers, mlp_latent: of all four parts of the gnn")
    source.drop("mlp_layers", "mlp_latent")


def _as_the_mlp(draft: Draft, source: Source) -> None:
    """Begin as XLRON's mlp does, whose last layers have the gain of the others."""
    for head in ("policy_gain", "value_gain"):
        draft.fixed[head] = math.sqrt(2.0)
    draft.note("policy_gain, value_gain: sqrt(2), as in the mlp of XLRON")
    if any(source.values("mlp_layer_norm", False)):
        source.drop("mlp_layer_norm")
        draft.fixed["layer_norm"] = True
        draft.note("mlp_layer_norm: before the non-linearity here, behind it there")


# ---- output


def read_output(draft: Draft, source: Source) -> None:
    """Fill `init`, `checkpoint` and `evaluation`."""
    _init(draft, source)
    _evaluation(draft, source)
    _loggers(draft, source)
    name = source.find("EXPERIMENT_NAME")
    if name:
        draft.rest["name"] = file_name(str(name), "xlron")
    source.drop("EXPERIMENT_NAME")


def _init(draft: Draft, source: Source) -> None:
    path, keep = source.find("MODEL_PATH"), source.find("KEEP_VF")
    retrain = source.find("RETRAIN_MODEL")
    source.drop("MODEL_PATH", "KEEP_VF", "RETRAIN_MODEL")
    wanted = "RETRAIN_MODEL" not in draft.without
    if not retrain or not wanted:
        if path is not None:
            draft.leave_out("MODEL_PATH", "policies are saved in the study's own folder")
        return
    if path is None:
        raise ConfigError(f"{draft.source}: RETRAIN_MODEL needs MODEL_PATH, the model")
    if PurePath(str(path)).suffix == ".eqx":
        raise ConfigError(
            f"{draft.source}: RETRAIN_MODEL begins from {path}, whose weights of Equinox cannot "
            "be read here; name the folder of a policy that hpo saved, or start fresh",
            flags={"MODEL_PATH": "DIR"},
            without={"without": "RETRAIN_MODEL"},
        )
    draft.rest["init"] = {"from": str(path), "keep": "critic" if keep else "all"}


def _evaluation(draft: Draft, source: Source) -> None:
    """Evaluate every so many increments, on as many networks and requests as there.

    SAVE_MODEL keeps what is best at the end of an increment, so that it evaluates as well.
    """
    increment = int(source.find("STEPS_PER_INCREMENT") or _INCREMENT)
    every, steps = source.find("EVAL_FREQUENCY") or 1, source.find("EVAL_TIMESTEPS")
    networks = min(max(int(count) for count in source.values("NUM_ENVS", 1)), _MOST_NETWORKS)
    section = draft.section("evaluation")
    if on(source.find("EVAL_DURING_TRAINING")):
        section.update(every=int(every * increment), episodes=networks,
                       steps=int(steps or (10_000 if steps is None else increment)),
                       greedy=bool(source.find("deterministic")))  # fmt: skip
        if not section["greedy"]:
            draft.note("evaluation.greedy: false, as XLRON samples unless --deterministic")
    else:
        for name in ("EVAL_FREQUENCY", "EVAL_TIMESTEPS", "deterministic"):
            if name in source.names():
                draft.leave_out(name, "has no effect there without EVAL_DURING_TRAINING")
    if on(source.find("SAVE_MODEL")):
        draft.section("checkpoint")["best_evaluation"] = True
        section.setdefault("every", increment)
        draft.note(
            f"SAVE_MODEL: the policy with the best evaluation is kept, of one every "
            f"{section['every']:,} env steps; XLRON judges by training, at every increment"
        )
    source.drop("SAVE_MODEL", "EVAL_DURING_TRAINING", "EVAL_FREQUENCY", "EVAL_TIMESTEPS",
                "deterministic")  # fmt: skip


def _loggers(draft: Draft, source: Source) -> None:
    """Turn the points that are averaged into chunks; the rest is the table's."""
    points = source.find("DOWNSAMPLE_FACTOR")
    if not on(source.find("WANDB")) or not points:
        return
    if points <= 1:
        source.drop("DOWNSAMPLE_FACTOR")
        return
    chunks = max(1, round(points / max(source.values("ROLLOUT_LENGTH", 150))))
    source.constants["DOWNSAMPLE_FACTOR"] = chunks
    draft.note(
        f"DOWNSAMPLE_FACTOR: means of {points} env steps there, of {chunks} chunk(s) of updates "
        "here"
    )


# ---- schedules


def read_schedules(draft: Draft, source: Source) -> None:
    """Resolve the flags of schedules."""
    separate = any(source.values("SEPARATE_VF_OPTIMIZER", False))
    kinds = set(source.values("LR_SCHEDULE", "cosine"))
    own = {kind for kind in source.values("VF_LR_SCHEDULE", None) if kind is not None}
    _warm_up(draft, kinds | (own if separate else set()))
    if separate:
        _critic(draft, source, kinds, own or kinds)
    _end(draft, source, kinds, "LR", "LR_END_FRACTION", 5e-4, 0.1)
    for prefix, value, default in (("ENT", "ENT_COEF", 0.1), ("VML", "VALID_MASS_LOSS_COEF", 10)):
        own = set(source.values(f"{prefix}_SCHEDULE", "constant"))
        if own != {"constant"}:
            _end(draft, source, own, value, f"{prefix}_END_FRACTION", 0.0, default)
            if draft.system is not XLRON_JULY:
                _horizon(draft, source, f"{prefix}_SCHEDULE_MULTIPLIER", by_updates=False)
    if source.values("GAE_LAMBDA", None) == [None]:
        _horizon(draft, source, "LAMBDA_SCHEDULE_MULTIPLIER", by_updates=True)


def _warm_up(draft: Draft, kinds: set[Any]) -> None:
    if "warmup_cosine" in kinds:
        draft.fixed["lr_warmup_start_fraction"] = 1.0
        draft.note(
            "lr_warmup_start_fraction: 1, as XLRON's warm-up begins at LR and rises to "
            "LR x WARMUP_MULTIPLIER (by default 1: no rise); the critic's likewise"
        )


def _critic(draft: Draft, source: Source, kinds: set[Any], own: set[Any]) -> None:
    """Write down what the critic's optimiser has of its own there and takes over here."""
    if "VF_SCHEDULE_MULTIPLIER" not in source.names():
        draft.fixed["vf_schedule_multiplier"] = 1.0
    fraction = source.values("VF_LR_END_FRACTION", None)
    if fraction == [None] and "LR_END_FRACTION" not in source.searched:
        source.constants["VF_LR_END_FRACTION"] = source.values("LR_END_FRACTION", 0.1)[0]
    rates = [value for value in source.values("VF_LR", None) if value is not None]
    if not rates:
        rates = [rate / 3.0 for rate in source.values("LR", 5e-4)]
    _scale_end(draft, source, own, rates, "VF_LR_END_FRACTION", 0.1)


def _end(
    draft: Draft, source: Source, kinds: set[Any], value: str, fraction: str,
    default: float, end: float,
) -> None:  # fmt: skip
    _scale_end(draft, source, kinds, source.values(value, default), fraction, end)


def _scale_end(
    draft: Draft, source: Source, kinds: set[Any], values: list[float], fraction: str, end: float
) -> None:
    """Turn the end fraction of a cosine into what it is there: the value times itself."""
    if "cosine" not in kinds:
        return
    if len(kinds) > 1:
        draft.note(
            f"{fraction}: as it is for linear; cosine ends at nearly 0 in XLRON, which "
            "multiplies by the value twice"
        )
        return
    factor = _middle(values)
    if fraction in source.searched:
        fields = source.searched[fraction]
        for key in ("min", "max"):
            if key in fields:
                fields[key] = _rounded(fields[key] * factor)
        if "values" in fields:
            ends = (end if one is None else float(one) for one in fields["values"])
            fields["values"] = [_rounded(one * factor) for one in ends]
    else:
        given = source.find(fraction)
        source.constants[fraction] = _rounded((end if given is None else given) * factor)
    exactly = "" if len(set(values)) == 1 else ", here the middle of what is searched"
    draft.note(
        f"{fraction}: times {factor:.4g}, as the cosine of XLRON ends at the value times itself "
        f"times the fraction{exactly}"
    )


def _horizon(draft: Draft, source: Source, name: str, *, by_updates: bool) -> None:
    """Stretch a horizon by what the counter there lags behind it, or runs ahead of it."""
    epochs, parts = source.values("UPDATE_EPOCHS", 1), source.values("NUM_MINIBATCHES", 1)
    on_gradient = any(source.values("STEP_ON_GRADIENT", False))
    if by_updates != on_gradient:
        return
    steps = [epoch * part for epoch in epochs for part in parts]
    if set(steps) == {1}:
        return
    factor = _middle([float(step) for step in steps])
    factor = 1.0 / factor if by_updates else factor
    if name in source.searched:
        fields = source.searched[name]
        for key in ("min", "max"):
            if key in fields:
                fields[key] *= factor
        if "values" in fields:
            fields["values"] = [float(one) * factor for one in fields["values"]]
    else:
        source.constants[name] = float(source.find(name) or 1.0) * factor
    counted = ("gradient steps", "updates") if by_updates else ("updates", "gradient steps")
    draft.note(
        f"{name}: times {factor:.4g}, as XLRON counts {counted[0]} over a horizon of {counted[1]}"
    )


def _middle(values: list[float]) -> float:
    """Return the one value, or the middle of a range on a logarithmic scale."""
    positive = [float(value) for value in values if value > 0]
    if not positive:
        return 0.0
    return _rounded(math.sqrt(min(positive) * max(positive)))


def _rounded(value: float) -> float:
    return float(f"{value:.12g}")
