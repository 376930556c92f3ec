"""Populations of a study with `command`, and the checks before its first process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ...errors import ConfigError, ignore
from ...machine.processes import ProcessExecutor
from ...store.rows import Stream
from ...studies.spec import Study
from .contract import EvaluationResult, Refill, Resolved
from .process_population import ProcessPopulation
from .process_setup import ProcessSetup


class ProcessFactory:
    """Creates the processes of one study; see `PopulationFactory`."""

    backend, device_count = "processes", 1

    def __init__(
        self,
        study: Study,
        compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
        warn: Callable[[str], None] = ignore,
        *,
        cores: int | None = None,
        environments: int = 1,
        executor: ProcessExecutor | None = None,
    ):
        self.study = study
        self.setup = ProcessSetup(study, executor)
        self._made: list[ProcessPopulation] = []

    def begin(self, folder: Path) -> None:
        """Set the results folder; end or find processes left over from an earlier start."""
        self.setup.begin(folder)

    def close(self) -> None:
        """End all processes."""
        for population in self._made:
            population.close()
        self.setup.executor.close()

    @property
    def at_once(self) -> int:
        return self.setup.executor.at_once

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        return self.setup.resolve(config)

    def check(self, resolved: Resolved) -> None:
        """Reject a command that the executor cannot start, or an invalid number of GPUs."""
        setup = self.setup
        each = setup.settings.gpus
        if each and each > 1 and each != int(each):
            raise ConfigError(f"processes.gpus is {each:g}; allowed: 0.5, 0.25, 1, 2, ...")
        program = ""  # of a shell command line
        if not setup.command.needs_shell:
            values = setup.values(Refill(0, resolved, Stream.SEARCH, 0))
            program = setup.command.argv(values)[0]
        setup.executor.check(program, setup.cwd)

    def notes(self, resolved: Resolved) -> Iterator[str]:
        if "seed" not in self.setup.command.names:
            yield (
                "command has no {seed}: if the script draws the same numbers each time, all "
                "seeds of a trial give the same result; add it, for example --seed {seed}"
            )

    def make(self, resolved: Resolved, lanes: int | None) -> ProcessPopulation:
        made = ProcessPopulation(self.setup, lanes or self.at_once)
        self._made.append(made)
        return made

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        raise ConfigError(f"baseline {name!r}: a command has no heuristics; remove baselines")
