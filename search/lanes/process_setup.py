"""How a study's command runs: the command line, seed, variables and folder of each process."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...machine.processes import Launch, LocalProcesses, ProcessExecutor
from ...machine.software import code_version
from ...store.rows import REFERENCE_TRIAL, Stream
from ...studies.chunk_sizes import ChunkSizes, chunk_sizes_of
from ...studies.command import Template, resumed
from ...studies.execution_spec import MetricFiles, Processes
from ...studies.spec import Study
from ...studies.study_keys import COSTS
from .contract import Refill, Resolved

FOLDER = "processes"
"""The folder in a study's folder that contains the folders of its processes."""
_SAME_CODE = 5.0  # seconds between two checks of the state of the code
_SEEDS = 10_000  # seeds per study; no two replicates of a study share a seed
_STREAMS = {Stream.SEARCH: 0, Stream.CHOOSE: 1000, Stream.REPORT: 2000}


def seed_of(study: Study, stream: Stream, replicate: int) -> int:
    """Return a `{seed}`: from 0 in the search, from 1000 for selection, from 2000 for tests.

    If the study's `seed` increases by 1, all these seeds increase by 10,000.
    """
    return (study.seed * _SEEDS + _STREAMS[stream] + replicate) % 2**31


class ProcessSetup:
    """The settings that all processes of a study share."""

    def __init__(self, study: Study, executor: ProcessExecutor | None = None):
        self.study = study
        self.settings = study.processes or Processes()
        self.executor = executor or LocalProcesses(self.settings)
        self.metrics = study.metrics or MetricFiles()
        self.command = Template(study.command or "")
        self.resume: Template | None = None
        if study.resume is not None:
            self.resume = resumed(self.command.text, study.resume)
        self.chunk_sizes: ChunkSizes = chunk_sizes_of(study, study.steps_per_update({}))
        self.cwd = Path(study.source).absolute()
        self.folder = self.cwd / FOLDER
        self._code: dict[str, str] = {}
        self._code_read_at = -math.inf

    def begin(self, folder: Path) -> None:
        """Set the results folder; end or find processes left over from an earlier start."""
        self.folder = folder.absolute() / FOLDER
        self.executor.begin(self.folder)

    def code(self) -> dict[str, str]:
        """Return the code version in the working folder, refreshed every few seconds."""
        if time.monotonic() - self._code_read_at > _SAME_CODE:
            self._code, self._code_read_at = code_version(self.cwd), time.monotonic()
        return self._code

    @property
    def wanted(self) -> tuple[str, ...]:
        """The metrics that the study needs."""
        study = self.study
        names = study.objective_names or [study.metric.name]
        names += [one.metric for one in study.constraints]
        return tuple(dict.fromkeys(name for name in names if name not in COSTS))

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        return Resolved(config, FOLDER, self.chunk_sizes.steps_per_chunk, dict(config))

    def values(self, refill: Refill) -> dict[str, Any]:
        """Return the values of all placeholders for a run."""
        length = self.study.horizon
        return {
            **refill.resolved.payload,
            "seed": seed_of(self.study, refill.stream, refill.replicate),
            "folder": str(self.folder_of(refill)),
            "env_steps": length,
            "length": length,
            "trial": refill.trial,
        }

    def metrics_pattern(self, refill: Refill) -> str:
        """Return the pattern of the files with a run's metrics; "" if it prints them."""
        given = self.metrics.file
        if given is None:
            return ""
        values = self.values(refill)
        path = given
        for name in Template(given).names:
            if name not in values:
                text = f"metrics.file has the unknown placeholder {{{name}}}"
                raise ConfigError(f"{text}; known: {', '.join(values)}")
            path = path.replace(f"{{{name}}}", str(values[name]))
        return str(self.cwd / path)

    def folder_of(self, refill: Refill) -> Path:
        trial = f"trial_{refill.trial}"
        if refill.trial == REFERENCE_TRIAL:
            trial = "default"
        return self.folder / trial / f"{refill.stream}_{refill.replicate}"

    def launch(self, refill: Refill, command: Template) -> Launch:
        values = self.values(refill)
        variables = {
            "HPO_FOLDER": str(values["folder"]),
            "HPO_SEED": str(values["seed"]),
            "HPO_ENV_STEPS": str(values["env_steps"]),
            "HPO_TRIAL": str(refill.trial),
        }
        settings = {**variables, **command.settings(values)}
        return Launch(command.argv(values), settings, self.cwd, Path(values["folder"]))
