"""The metrics that one process reports, and their values at the chunks of its run."""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import cached_property

import numpy as np

from ...machine.reported import Reader, Row, reader_of
from .contract import Refill
from .process_setup import ProcessSetup

_MOST_NAMED = 12  # metrics listed in an error
_MOST_ROWS = 5000  # counted rows that are kept per process


class ReportedMetrics:
    """The rows that a process has reported so far."""

    def __init__(self, setup: ProcessSetup):
        self._setup = setup
        self._reader: Reader | None = None
        self._rows: list[Row] = []
        self.last_step = 0.0
        self.has_steps = False
        self.diverged_at: float | None = None  # step of the first metric that is not finite

    def open(self, refill: Refill, since: float) -> None:
        """Read the run's metrics from files that changed after a given time."""
        metrics, folder = self._setup.metrics, self._setup.folder_of(refill)
        pattern = self._setup.metrics_pattern(refill)
        self._reader = reader_of(metrics.type, pattern, folder, metrics.step, since)

    def clear(self) -> None:
        """Discard all rows, because the process starts again."""
        self._rows, self.last_step, self.has_steps = [], 0.0, False

    def read(self, ended: bool) -> bool:
        """Read new rows, and return whether there are any."""
        assert self._reader is not None
        has_new = False
        for step, numbers in self._reader.read(ended):
            if numbers or step is not None:
                has_new = True
            if step is not None:
                self.last_step, self.has_steps = max(self.last_step, step), True
            self._rows.append((step, numbers))
            for name in self._setup.wanted:
                if not math.isfinite(numbers.get(name, 0.0)):
                    self._note_divergence(step)
        return has_new

    def _note_divergence(self, step: float | None) -> None:
        """Record the first divergence; without any steps, it is at the end of the run."""
        if self.diverged:
            return
        if step is not None:
            self.diverged_at = step
        elif self.has_steps:
            self.diverged_at = self.last_step
        else:
            self.diverged_at = math.inf

    @property
    def diverged(self) -> bool:
        return self.diverged_at is not None

    def ends_by(self, chunks: int) -> bool:
        """Return whether a run that failed or diverged did so within these chunks.

        A process may have reported many chunks more than are counted. One that fails does so in
        the first chunk whose steps it has not reported.
        """
        chunk_sizes = self._setup.chunk_sizes
        if chunks >= chunk_sizes.chunks or not self._has_due_metrics(chunks):
            return True
        mark = chunks * chunk_sizes.steps_per_chunk
        if self.diverged_at is not None:
            return mark >= self.diverged_at
        return mark > self.last_step

    @property
    def names(self) -> Collection[str]:
        if self._reader is None:
            return ()
        return self._reader.names

    @property
    def missing(self) -> list[str]:
        """The metrics that the study needs but that were not reported."""
        return [name for name in self._setup.wanted if name not in self.names]

    @property
    def names_text(self) -> str:
        """The reported names, for an error about a missing one."""
        if not self.names:
            return "it reported no metric; print JSON lines, or name the files under metrics"
        named = [*self.names][:_MOST_NAMED]
        if len(self.names) > _MOST_NAMED:
            named.append("...")
        return f"it reported {', '.join(named)}; name one under metric"

    def has_reached(self, chunks: int) -> bool:
        """Return whether this many chunks are reported, with the metrics due at their end."""
        mark = chunks * self._setup.chunk_sizes.steps_per_chunk
        if self.last_step < mark:
            return False
        return self._has_due_metrics(chunks)

    def _has_due_metrics(self, chunks: int) -> bool:
        """Return whether the metrics that are due after this many chunks are reported."""
        mark = chunks * self._setup.chunk_sizes.steps_per_chunk
        return chunks not in self._evaluation_marks or all(
            self._first_row_after(name, mark) is not None for name in self._setup.wanted
        )

    @cached_property
    def _evaluation_marks(self) -> frozenset[int]:
        """The numbers of chunks after which the metric is measured."""
        study, chunk_sizes = self._setup.study, self._setup.chunk_sizes
        every, length = study.evaluation.every, study.env_steps
        marks = set(chunk_sizes.rung_chunks)
        if isinstance(every, int):
            marks |= {-(-at // chunk_sizes.steps_per_chunk) for at in range(every, length, every)}
        return frozenset(marks)

    def _first_row_after(self, name: str, mark: float) -> int | None:
        """Return the index of the first row at or after step `mark` that has this metric."""
        rows = enumerate(self._rows)
        return next(
            (at for at, (step, own) in rows if step is not None and step >= mark and name in own),
            None,
        )

    def measured(self, chunks: int) -> dict[str, float]:
        """Return the metrics after `chunks` chunks: the first ones reported there or later."""
        mark = chunks * self._setup.chunk_sizes.steps_per_chunk
        is_last = chunks >= self._setup.chunk_sizes.chunks
        found: dict[str, float] = {}
        for name in self.names:
            ends = [at for at, (_, own) in enumerate(self._rows) if name in own]
            first = None
            if not is_last:
                first = self._first_row_after(name, mark)
            if first is not None:
                ends = [at for at in ends if at <= first]
            if ends:
                count = 1
                if name in self._setup.wanted:
                    count = self._setup.metrics.mean_of
                found[name] = float(np.mean([self._rows[at][1][name] for at in ends[-count:]]))
        return found

    def last_in_chunk(self, chunk: int) -> dict[str, float]:
        """Return each metric's last value in a chunk, and drop rows that are no longer needed."""
        chunk_sizes = self._setup.chunk_sizes
        start = chunk * chunk_sizes.steps_per_chunk
        end = start + chunk_sizes.steps_per_chunk
        is_last = chunk + 1 >= chunk_sizes.chunks
        found: dict[str, float] = {}
        for step, numbers in self._rows:
            inside = step is not None and step > start and (step <= end or is_last)
            if inside or (step is None and is_last):
                found |= numbers
        self._drop_old_rows(start)
        return found

    def _drop_old_rows(self, mark: float) -> None:
        """Drop rows before step `mark`, except the last ones, which a mean may still need."""
        if len(self._rows) > 2 * _MOST_ROWS + self._setup.metrics.mean_of:
            keep = len(self._rows) - _MOST_ROWS - self._setup.metrics.mean_of
            cut = [at for at, (step, _) in enumerate(self._rows) if (step or mark) < mark]
            del self._rows[: min(keep, len(cut))]
