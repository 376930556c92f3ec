"""An evaluation of a heuristic by XLRON's flags: the environment's file, and our command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...elsewhere import XLRON
from ...errors import ConfigError, suggestion
from ..writer import to_yaml
from .draft import Draft
from .take import Source, settle
from .words import read_word

__all__ = ["NetworkFile", "heuristic_file"]

_TRAINING = tuple(row.name for row in XLRON.rows if not row.target.startswith("env."))
_HEURISTICS = ("ksp_ff", "ksp_lf", "ff_ksp", "ksp_bf", "bf_ksp", "ksp_mu", "mu_ksp", "kca_ff",
               "kmc_ff", "kmf_ff", "kme_ff")  # fmt: skip
"""Those that both systems have; a test compares them with ours."""


@dataclass
class NetworkFile(Draft):
    """The environment of an evaluation; its file is no study.

    Attributes:
        flags: of `hpo eval`, beside the file.
    """

    flags: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the file of the environment's keys."""
        keys = {"id": self.env["id"], **{k: v for k, v in self.env.items() if k != "id"}}
        return self.head() + f"# {self.command('FILE')}\n" + to_yaml(keys)

    def command(self, file: str) -> str:
        """Return the command that evaluates."""
        return f"hpo eval --env {shlex.quote(file)} {' '.join(self.flags)}"


def heuristic_file(shown: str, source: Source, given: Mapping[str, Any]) -> NetworkFile:
    """Read a command that evaluates a heuristic.

    Raises:
        ConfigError: a heuristic that we do not have, or an environment.
    """
    flags = {**source.constants, **given}
    draft = NetworkFile(shown, system=XLRON)
    name = str(flags.get("path_heuristic", "ksp_ff"))
    if name not in _HEURISTICS:
        raise ConfigError(
            f"{shown}: path_heuristic is {name!r};{suggestion(name, _HEURISTICS)} "
            f"Known: {', '.join(_HEURISTICS)}"
        )
    draft.constant("env_type", flags.get("env_type", "rmsa"))
    for row in XLRON.rows:
        if row.target.startswith("env.") and row.fate == "taken" and row.name in flags:
            draft.constant(row.name, flags[row.name])
    draft.silent.update({"max_requests", "guardband"} if draft.env.get("continuous") else ())
    settle(draft, Source({**flags, **dict.fromkeys(_TRAINING)}))
    if not draft.env.get("continuous"):
        draft.env["warmup_requests"] = 0
    if draft.env["id"] in ("rwa", "rwa_lightpath_reuse"):
        draft.env.pop("guardband", None)
    networks = int(read_word(flags.get("NUM_ENVS", 1)))
    total = int(read_word(flags.get("TOTAL_TIMESTEPS", 1_000_000)))
    loads = [read_word(flags.get(key)) for key in ("min_load", "max_load", "step_load")]
    draft.flags = (
        f"--heuristic {name}", f"--seeds {networks}", f"--steps {max(1, total // networks)}",
        *([f"--loads {loads[0]:g}:{loads[1]:g}:{loads[2]:g}"] if None not in loads else []),
    )  # fmt: skip
    return draft
