"""A saved policy for `forward.py`: its arrays as plain bytes, and actions to compare with."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from ...core.policy_document import NAME, PolicyDocument, read_document
from ...errors import HpoError, StoreError
from ...files.atomic_files import new_folder, write_bytes, write_text
from ...studies.user_code import import_user_code
from . import forward

_OBSERVATIONS, _CLOSE = 16, 1e-3


def export(policy: Path, to: Path) -> str:
    """Write a policy for NumPy into a new folder; return why it has no such form, else ""."""
    if not (policy / NAME).is_file():
        return "it is the state of a custom training, or of several environments"
    try:
        document = read_document(policy / NAME)
    except StoreError as error:
        return str(error)
    network, dtype = document.config.get("network"), document.config.get("dtype")
    if network != "mlp" or dtype != "float32":
        return f"it has a {network} in {dtype}; NumPy plays an mlp in float32"
    try:
        return _export(policy, document, to)
    except HpoError as error:  # an environment that is not installed here
        return str(error)


def _export(policy: Path, document: PolicyDocument, to: Path) -> str:
    import_user_code(document.imports, policy / "imports")  # as training it did
    from ...core import actions
    from ...core.envs import registry
    from ...core.pytree import named_leaves
    from ...core.saved_policy import load_policy
    from ...machine.devices import prepare_devices

    prepare_devices()
    saved = load_policy(policy)
    plan, env = saved.plan, registry.make(saved.plan.env)
    kind, seen = actions.distribution_kind(plan, env), env.observation_struct
    if kind not in forward.KINDS or not hasattr(seen, "shape"):
        return f"it has the distribution {kind}, or observations that are no array"
    ranged = kind in ("tanh_gaussian", "beta")
    ranged |= plan.action_low is not None or plan.action_high is not None
    low, high = (), ()
    if ranged and kind not in ("categorical", "multi_discrete"):
        low, high = (end.tolist() for end in actions.action_range(plan, env.action_space))
    normalises = saved.config["normalise_observations"] and saved.statistics.mean.ndim
    leaves = {
        name: leaf for name, leaf in named_leaves(saved.params).items() if "critic" not in name
    }
    if normalises:
        leaves |= {f"statistics/{name}": getattr(saved.statistics, name) for name in ("mean",)}
        leaves["statistics/std"] = saved.statistics.std()
    arrays = {name: np.asarray(leaf, "<f4") for name, leaf in leaves.items()}
    rng = np.random.default_rng(0)
    observations: Any = rng.standard_normal((_OBSERVATIONS, *seen.shape))
    if normalises:
        observations = arrays["statistics/mean"] + arrays["statistics/std"] * observations
    observations = np.asarray(observations).astype(seen.dtype)
    expected = np.asarray(saved.act(observations, None, None, None)[0])
    about = {
        "observation": list(seen.shape),
        "observation_clip": clip
        if math.isfinite(clip := saved.config["observation_clip"])
        else None,
        "layers": len(plan.hidden_sizes),
        "layer_norm": plan.layer_norm,
        "activation": plan.activation,
        "tower": "encoder" if plan.shared_encoder else "actor",
        "distribution": kind,
        "sizes": list(actions.component_sizes(env) or [sum(arrays["actor_head/bias"].shape)]),
        "low": list(low) or None,
        "high": list(high) or None,
        "action": list(getattr(env.action_space, "shape", ())),
        "arrays": {name: list(array.shape) for name, array in arrays.items()},
        "check": {"observations": observations.tolist(), "actions": expected.tolist()},
    }
    new_folder(to)
    write_text(to / NAME, json.dumps(about, allow_nan=False))
    write_bytes(to / "parameters.f32", b"".join(array.tobytes() for array in arrays.values()))
    shutil.copyfile(forward.__file__, to / "forward.py")
    if words := difference(to):
        shutil.rmtree(to)
        return words
    return ""


def difference(folder: Path) -> str:
    """Return how NumPy's actions differ from the recorded ones, else ""."""
    try:
        played = forward.Policy(folder)
        check = played.about["check"]
        now = played.act(check["observations"])
        worst = float(np.max(np.abs(np.asarray(check["actions"], np.float64) - now)))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        return f"its arrays do not fit: {error}"
    if not worst <= _CLOSE:
        return f"NumPy's actions differ by {worst:.3g} from the recorded ones"
    return ""
