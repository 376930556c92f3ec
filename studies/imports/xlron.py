"""Training commands of XLRON, an optical-network trainer, as studies of one configuration.

Flags that a command leaves out have XLRON's defaults there, not ours, so those that differ are
written into the study.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...knobs import KNOBS
from .draft import Draft
from .flags import flags_of, words_of

__all__ = ["read_flags"]

_DEFAULTS: Mapping[str, Any] = {
    "TOTAL_TIMESTEPS": 1_000_000,
    "SEED": 42,
    "NUM_ENVS": 1,
    "ROLLOUT_LENGTH": 150,
    "UPDATE_EPOCHS": 1,
    "NUM_MINIBATCHES": 1,
    "LR": 5e-4,
    "LR_SCHEDULE": "cosine",
    "GAMMA": 0.999,
    "topology_name": "4node",
    "link_resources": 5,
    "max_requests": 4,
    "continuous_operation": False,
    "ENV_WARMUP_STEPS": 0,
    "load": 250.0,
}
"""Of the flags whose default there is not ours; without a network or environment of its own."""

_EVALUATION = ("EVAL_HEURISTIC", "EVAL_MODEL")
_NETWORKS = {"USE_GNN": "gnn", "USE_TRANSFORMER": "transformer", "USE_RNN": "lstm"}
_WITHOUT_EFFECT = {
    "symbol_rate": "has no effect there",
    "TEMPERATURE": "has no effect there",
    "temperature": "belongs to a differentiable simulator",
    "ACTION_MASKING": "has no effect there: actions are always masked",
    "STEPS_PER_INCREMENT": "how often metrics are shown; see `hpo show`",
    "relative_arrival_times": "times are relative here as well",
    "warmup_action_type": "warm-up takes the policy's own actions",
    "path_heuristic": "a heuristic is evaluated by `hpo eval --heuristic`",
    "EVAL_DURING_TRAINING": "see `evaluation`",
    "EVAL_TIMESTEPS": "see evaluation.steps",
    "EVAL_FREQUENCY": "see evaluation.every",
    "terminate_on_episode_end": "episodes always end where they end",
    "deterministic": "evaluation is greedy unless evaluation.greedy is false",
    "log_actions": "set env.histograms",
    "log_path_lengths": "set env.histograms",
}
_OBSERVATIONS = {
    "departure": "link_departure",
    "occupancy": "link_occupancy",
    "capacity": "link_capacity",
}


def read_flags(path: Path, given: Mapping[str, Any]) -> Draft:
    """Read a flag file, or a file that holds a command line.

    Args:
        path: of the file.
        given: flags that override those of the file.

    Raises:
        ConfigError: it trains nothing, or a flag has a value that we cannot take.
    """
    try:
        flags = flags_of(words_of(path.read_text(encoding="utf-8")))
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: no text in UTF-8") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    if not flags:
        raise ConfigError(
            f"{path}: no flags; a training command has some, such as --env_type=rmsa"
        )
    return draft_of(str(path), {**_without_no(flags), **given})


def draft_of(source: str, flags: Mapping[str, Any]) -> Draft:
    """Give the draft of a training command's flags."""
    for name in _EVALUATION:
        if _is_on(flags.get(name)):
            raise ConfigError(
                f"{source}: --{name} evaluates and trains nothing; see `hpo eval --help`"
            )
    draft = Draft(source)
    draft.constant("env_type", flags.get("env_type", "rmsa"))
    draft.section("budget")["trials"] = 1
    draft.rest["metric"] = {"name": "eval/service_blocking_probability", "goal": "minimize"}
    draft.rest["evaluation"] = {"episodes": 8, "steps": 5000}
    for name, value in _DEFAULTS.items():
        if name not in flags:
            _flag(draft, name, value, flags)
            draft.note(f"{name}: {value!r}, XLRON's default")
    if "GAE_LAMBDA" not in flags:
        draft.constant("INITIAL_LAMBDA", flags.get("INITIAL_LAMBDA", 0.9))
        draft.constant("FINAL_LAMBDA", flags.get("FINAL_LAMBDA", 0.98))
        draft.note("GAE_LAMBDA: anneals from 0.9 towards 0.98, XLRON's default")
    for name, value in flags.items():
        _flag(draft, name, value, flags)
    _finish(draft, flags)
    return draft


def _flag(draft: Draft, name: str, value: Any, flags: Mapping[str, Any]) -> None:
    if name in ("env_type", *_EVALUATION):
        return
    if name in _NETWORKS:
        if _is_on(value):
            draft.constant("network", _NETWORKS[name])
    elif name in _WITHOUT_EFFECT:
        draft.leave_out(name, _WITHOUT_EFFECT[name])
    elif name in ("INITIAL_LAMBDA", "FINAL_LAMBDA"):
        if "GAE_LAMBDA" in flags:
            draft.leave_out(name, "GAE_LAMBDA is given, so lambda does not anneal")
    elif name == "topology_name":
        _topology(draft, str(value))
    elif name == "values_bw":
        draft.constant(name, [float(part) for part in str(value).split(",") if part.strip()])
    elif name == "random_traffic":
        if _is_on(value):
            draft.constant("traffic_matrix", "random")
    elif name == "transformer_obs_type":
        if _is_on(flags.get("USE_TRANSFORMER")):
            draft.constant("observation", _OBSERVATIONS.get(str(value), value))
    elif name == "DISABLE_NODE_FEATURES":
        draft.constant("gnn_node_features", not _is_on(value))
    elif name in ("NUM_LAYERS", "NUM_UNITS"):
        draft.constant("hidden_sizes", _widths(flags))
    elif name == "RHO_CLIP" or name == "C_CLIP":
        draft.constant(name.lower(), value)
    else:
        draft.constant(name, value)


_RINGS = {"4node": "ring4", "7node": "ring7"}


def _topology(draft: Draft, name: str) -> None:
    """Take `_directed` and `_undirected` off the name, where they are a key here."""
    for ending, directed in (("_undirected", False), ("_directed", True)):
        if name.endswith(ending):
            draft.constant("topology_name", name.removesuffix(ending))
            draft.constant("directed", directed)
            return
    draft.constant("topology_name", _RINGS.get(name, name))


def _widths(flags: Mapping[str, Any]) -> list[int]:
    return [int(flags.get("NUM_UNITS", 64))] * int(flags.get("NUM_LAYERS", 2))


def _finish(draft: Draft, flags: Mapping[str, Any]) -> None:
    """Add what follows from several flags together."""
    if draft.fixed.get("weight_decay"):
        draft.fixed["optimiser"] = "adamw"
    if draft.fixed.get("network") == "gnn" and "observation" not in draft.env:
        draft.constant("observation", "graph")
    if draft.fixed.get("network") == "transformer" and "observation" not in draft.env:
        draft.constant("observation", "link_departure")
    if not draft.env.get("continuous"):
        draft.env["warmup_requests"] = 0
        draft.rest["evaluation"] = {"episodes": 20}
    gain = KNOBS["policy_gain"].default
    draft.note(f"policy head: initial gain {gain}, where XLRON's is sqrt(2)")


def _without_no(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Give `--noflag` as flag: false; flags that begin with no by themselves stay."""
    keep = ("node_", "normalize_", "no_op")
    found: dict[str, Any] = {}
    for name, value in flags.items():
        negated = value is True and name.startswith("no") and not name.startswith(keep)
        found[name.removeprefix("no") if negated else name] = False if negated else value
    return found


def _is_on(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.lower() in ("true", "1"))
