"""A saved policy as one JSON file for `forward.py`, with actions to compare with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import HpoError
from ...files.atomic_files import new_folder, write_text
from ...store.codec import finite_json
from ...studies.user_code import import_user_code
from . import forward

FILE = "policy.json"
_OBSERVATIONS, _CLOSE = 16, 1e-3


def export(policy: Path, to: Path) -> str:
    """Write a policy for NumPy into a new folder; return why it has no such form, else ""."""
    about = describe(policy, "NumPy plays an mlp", ("mlp",))
    if isinstance(about, str):
        return about
    new_folder(to)
    shutil.copyfile(forward.__file__, to / "forward.py")
    write_text(to / FILE, json.dumps(about, allow_nan=False))
    return difference(to / FILE)


def describe(policy: Path, allowed: str, networks: Sequence[str]) -> dict[str, Any] | str:
    """Return a policy of these networks as plain data, else why it has no such form."""
    if not (policy / FILE).is_file():
        return "it is of a custom training, or of several environments"
    from ...core.policy_document import read_document

    try:
        document = read_document(policy / FILE)
        network, dtype = document.config.get("network"), document.config.get("dtype")
        if network not in networks or dtype != "float32":
            return f"it is a {network} in {dtype}; {allowed} in float32"
        about = _about(policy, document.imports)
    except HpoError as error:  # damaged, or its environment is not installed here
        return str(error).replace(f"{policy}/", "")
    return about or "its distribution is a custom one, or its observations are no array"


def _about(policy: Path, imports: Sequence[str]) -> dict[str, Any] | None:
    import_user_code(imports, policy / "imports")  # as its training did
    from ...core.envs import registry
    from ...core.policy import action_range, component_sizes, distribution_kind
    from ...core.pytree import named_leaves
    from ...core.saved_policy import load_policy
    from ...machine.devices import prepare_devices

    prepare_devices()
    saved = load_policy(policy)
    plan, env = saved.plan, registry.make(saved.plan.env)
    kind, seen = distribution_kind(plan, env), env.observation_struct
    if kind not in forward.KINDS or not hasattr(seen, "shape"):
        return None
    arrays = {n: np.asarray(x) for n, x in named_leaves(saved.params).items() if "critic" not in n}
    given: Any = np.random.default_rng(0).standard_normal((_OBSERVATIONS, *seen.shape))
    if saved.config["normalise_observations"]:
        arrays["mean"], arrays["std"] = map(
            np.asarray, (saved.statistics.mean, saved.statistics.std())
        )
        given = arrays["mean"] + arrays["std"] * given
    given = np.asarray(given).astype(seen.dtype)
    ranged = kind in ("tanh_gaussian", "beta")
    ranged |= kind == "gaussian" and (plan.action_low, plan.action_high) != (None, None)
    space: Any = env.action_space
    ends = action_range(plan, space) if ranged else ()
    return {
        "observation": list(seen.shape),
        "config": finite_json(dict(saved.config)),
        "distribution": kind,
        "sizes": list(component_sizes(env) or arrays["actor_head/bias"].shape),
        "range": [end.tolist() for end in ends],
        "action": list(getattr(space, "shape", ())),
        "arrays": {name: array.astype(np.float64).tolist() for name, array in arrays.items()},
        "observations": given.tolist(),
        "actions": np.asarray(saved.act(given, None, None, None)[0]).tolist(),
    }


def difference(path: Path) -> str:
    """Return how NumPy's actions differ from the recorded ones, else ""."""
    try:
        played = forward.Policy(path)
        now, then = played.act(played.about["observations"]), np.array(played.about["actions"])
        worst = float(np.max(np.abs(then.astype(np.float64) - now)))
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
            ValueError) as error:  # fmt: skip
        return f"{FILE} is not as hpo writes it: {error}"
    return "" if worst <= _CLOSE else f"NumPy's actions differ by {worst:.3g} from those recorded"
