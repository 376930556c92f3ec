"""Import rules for ARLBench: Hydra files, AutoRLEnv, and checkpoint contents."""

from __future__ import annotations

import re
from typing import Any

from .converted_study import ConvertedStudy, ImportSource

_PARTS = {"params": "parameters", "opt_state": "optimiser", "loss": "losses",
          "trajectories": "trajectories"}  # fmt: skip
"""Part of an ARLBench checkpoint -> part of ours."""
_TRACKED = {
    "track_metrics": ("losses", "gradients", "advantages"),
    "track_trajectories": ("trajectories",),
}
_AUTORL = {"n_envs": 10, "n_total_timesteps": 100_000}
"""Defaults of AutoRLEnv that differ from those of the training itself."""


def drop_hydra_file(draft: ConvertedStudy, source: ImportSource) -> None:
    """Drop the file that Hydra reads if the environment's name is also given."""
    if "environment.name" in source.constants:
        source.drop("environment")


def steps_of_autorl(draft: ConvertedStudy, source: ImportSource) -> None:
    """Drop AutoRLEnv's step limit, which has the same name as a rollout length."""
    made = "AutoRLEnv" in source.calls
    of_env = [name for name in ("autorl.n_steps",) if name in source.constants]
    of_env += [name for name in ("n_steps",) if made and name in source.constants]
    for name in of_env:
        steps = source.find(name)
        del source.constants[name]
        draft.leave_out(
            name, f"AutoRLEnv allows at most {steps} steps, each of which is a training run"
        )
    if not made:
        return
    draft.add_defaults(source, _AUTORL)


def parts_of_checkpoints(draft: ConvertedStudy, source: ImportSource) -> None:
    """Set the checkpoint parts to save with each policy."""
    parts = dict[str, None]()
    for name in tuple(source.constants):
        leaf, value = name.rsplit(".", 1)[-1], source.find(name)
        if leaf == "checkpoint":
            found = _saved_parts(draft, name, value)
        elif leaf in _TRACKED:
            found = list(_TRACKED[leaf]) if value is True else []
        else:
            continue
        source.drop(name)
        if found:
            draft.taken[name] = ["checkpoint.parts"]
        else:
            draft.idle.append(f"{name} {value}")
        parts |= dict.fromkeys(filter(None, found))
    if parts:
        draft.section("checkpoint")["parts"] = list(parts)
        draft.note("checkpoint.parts: saved with the policies of the best trials")


def _saved_parts(draft: ConvertedStudy, name: str, value: Any) -> list[str]:
    """Return our names for checkpoint parts; "" for a part that is not kept here."""
    words = value
    if not isinstance(value, list):
        words = re.findall(r"\w+", str(value or ""))
    odd = [word for word in words if word not in (*_PARTS, "all", "buffer")]
    if odd:
        text = f"{name} has {odd[0]!r}; known: {', '.join(_PARTS)}, all"
        raise draft.fault(text, flags={"without": name})
    if "all" in words:
        return list(_PARTS.values())
    return [_PARTS.get(one, "") for one in words]


def ids_of_brax(draft: ConvertedStudy, source: ImportSource) -> None:
    """Convert brax environment names to our ids."""
    frameworks = [name for name in source.names() if name.endswith("framework")]
    if "brax" not in map(source.find, frameworks):
        return
    for name in {"environment.name", "autorl.env_name", "env_name"} & source.constants.keys():
        env = str(source.find(name))
        if ":" not in env:
            source.constants[name] = f"brax:{env}"
