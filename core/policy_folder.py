"""A trained policy on disk: write it down, read it back.

A policy folder holds `policy.json` (environment, every knob) and Orbax arrays (parameters and
normaliser); it needs nothing of the study it came from.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..disk import make_folder, new_folder, telling, write_text
from ..environments import files_of
from ..errors import ConfigError, StoreError
from .checkpoint import restore_tree, save_tree
from .normalise import RunningStatistics
from .plan import EnvPlan, make_plan
from .policy_document import FORMAT, NAME, EnvDocument, PolicyDocument, read_document
from .population import lane_shapes
from .reward_state import RewardState
from .saved_policy import SavedPolicy

__all__ = ["IMPORTS", "load_policy", "save_policy"]

_SHOWN = 5
_FILES = "files"
IMPORTS = "imports"
"""Folder within a policy's: the code that registers what it is made with."""


def save_policy(directory: Path, saved: SavedPolicy, code: Mapping[str, Path] = {}) -> None:
    """Write a policy into a new directory.

    Args:
        directory: where.
        saved: the policy.
        code: the files that `saved.imports` are made of, copied beside it: path within the
            folder that they lie in -> where they are now.

    Raises:
        FileExistsError: it is there already.
    """
    if directory.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(directory))
    new_folder(directory)
    document = {
        "format": FORMAT,
        "env": _take_along(saved.plan.env, "env", directory),
        "eval_env": _take_along(saved.plan.eval_env, "eval_env", directory),
        "features": list(saved.plan.features),
        "config": dict(saved.config),
        "env_params": dict(saved.env_params),
        "eval_params": dict(saved.eval_params),
        "about": dict(saved.about),
    }
    if saved.imports:
        document["imports"] = list(saved.imports)
    for path, file in code.items():
        copied = directory / IMPORTS / path
        make_folder(copied.parent)
        with telling(copied):
            shutil.copyfile(file, copied)
    if saved.rewards is not None:
        document["reward_state"] = saved.rewards.as_data()
    text = json.dumps(document, indent=2, sort_keys=True)
    save_tree(directory / "arrays", {"params": saved.params, "statistics": saved.statistics})
    write_text(directory / NAME, text + "\n")


def _policies_inside(directory: Path) -> list[str]:
    """Return up to five policy folders below one of a trial, of all trials, or of a study."""
    for levels in ("*", "*/*", "*/*/*"):
        if found := sorted(directory.glob(f"{levels}/policy.json")):
            return [str(one.parent) for one in found[:_SHOWN]] + ["..."] * (len(found) > _SHOWN)
    return []


def load_policy(directory: str | Path) -> SavedPolicy:
    """Read a policy that `save_policy` wrote; the code beside it is not run.

    Raises:
        StoreError: it is not a policy folder, or damaged.
        ConfigError: what it was made with is not known here; names the files that bring it.
    """
    directory = Path(directory)
    path = directory / NAME
    if not path.is_file():
        inside = _policies_inside(directory)
        each = f"; inside it are {', '.join(inside)}" if inside else ""
        raise StoreError(f"{directory} is not a policy folder: it has no policy.json{each}")
    document = read_document(path)
    env, eval_env = (_env_plan(one, directory) for one in (document.env, document.eval_env))
    with _naming(document.imports, directory):
        plan = make_plan(document.config, env, eval_env, document.features)
        empty = SavedPolicy(
            plan, document.config, document.env_params, document.eval_params, {},
            RunningStatistics.empty(()), document.about, _rewards(document), document.imports,
        )  # fmt: skip
        shapes = lane_shapes(plan, empty.hypers())
    like = {"params": shapes.params, "statistics": shapes.observation_statistics}
    arrays = restore_tree(directory / "arrays", like)
    return dataclasses.replace(empty, params=arrays["params"], statistics=arrays["statistics"])


@contextmanager
def _naming(imports: Sequence[str], directory: Path) -> Generator[None, None, None]:
    """Say of what does not fit which file it stands in, and of an unknown name who brings it."""
    try:
        yield
    except (ConfigError, KeyError) as error:
        if not imports:
            remedies = error.remedies if isinstance(error, ConfigError) else {}
            raise ConfigError(f"{directory / NAME}: {error}", **remedies) from error
        files = [str(directory / IMPORTS / name) for name in imports]
        raise ConfigError(
            f"{error}; this policy needs the code of {', '.join(imports)} in {directory}, which "
            "runs only if asked for; read it, then allow it",
            policy_imports=(directory, files),
        ) from error


def _rewards(document: PolicyDocument) -> RewardState | None:
    if not document.has_rewards:
        return None
    return RewardState.from_data(document.returns, document.centring)


def _take_along(env: EnvPlan, name: str, directory: Path) -> dict[str, Any]:
    """Return an environment as JSON data; the files that it is made of are copied beside it."""
    keys = dict(env.keys)
    for key, file in files_of(env.id, keys).items():
        copied = Path(_FILES) / f"{name}_{key}{Path(file).suffix}"
        make_folder(directory / _FILES)
        with telling(directory / copied):
            shutil.copyfile(Path(env.folder) / file, directory / copied)
        keys[key] = copied.as_posix()
    return {"id": env.id, "keys": keys}


def _env_plan(document: EnvDocument, directory: Path) -> EnvPlan:
    folder = str(directory) if files_of(document.id, document.keys) else ""
    return EnvPlan(document.id, tuple(sorted(document.keys.items())), folder)
