"""The TensorBoard logger: event files in the study's folder, one run for the study, one a trial.

    tensorboard --logdir results/<study>/tensorboard

The one door to tensorboardX. A study that goes on adds event files to the same runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError
from .follow import Follower, Mark, News, TrialNews, is_finished

if TYPE_CHECKING:  # an optional package, loaded on use
    from tensorboardX import SummaryWriter

__all__ = ["TensorBoardSink"]

_FOLDER = "tensorboard"


class TensorBoardSink:
    """Writes scalars and hyperparameters; see `store.sinks.Sink`.

    Args:
        follower: says which trials to show.
        target: the folder to write into; None is the study's.

    Raises:
        MissingExtraError: tensorboardX is not installed.
    """

    name = "tensorboard"

    def __init__(self, follower: Follower, target: Path | None = None):
        try:
            import tensorboardX  # noqa: F401 - here, in the study's thread: see `store.background`
        except ImportError as error:
            name = "the tensorboard logger"
            raise MissingExtraError("tensorboardX", "tensorboard", name) from error
        self._follower, self._target = follower, target
        self._directory: Path | None = None
        self._writers: dict[str, SummaryWriter] = {}
        self._mark = Mark()

    def published(self, directory: Path) -> None:
        """Add what is new."""
        if self._directory is None:
            self._mark = Mark.read(self._target or directory, self.name)
        self._directory = directory
        self._write(directory, final=False)

    def close(self) -> None:
        """Add what only the end decides, and close the files."""
        if self._directory is not None:
            self._write(self._directory, is_finished(self._directory))
            self._directory = None
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def _write(self, directory: Path, final: bool) -> None:
        news = self._follower.news(directory, self._mark, final)
        self._write_study(news)
        for trial in news.trials:
            self._write_trial(trial)
        for writer in self._writers.values():
            writer.flush()
        # Last: after a crash points come twice, and none is missing.
        self._mark.write(self._target or directory, self.name)

    def _write_study(self, news: News) -> None:
        writer = self._writer("study")
        values = {f"trials/{state}": float(count) for state, count in sorted(news.states.items())}
        if news.best is not None:
            values["best"] = news.best
        _add(writer, values, news.env_steps)
        for row in news.ended:
            if row["value"] is not None:
                _add(writer, {"value_of_trial": row["value"]}, row["trial"])

    def _write_trial(self, news: TrialNews) -> None:
        run = f"trial_{news.trial}"
        writer = self._writer(run)
        for point in news.points:
            _add(writer, point.values, point.env_steps)
        if news.ended:
            _add_hyperparameters(writer, news)
            self._writers.pop(run).close()

    def _writer(self, run: str) -> SummaryWriter:
        if run not in self._writers:
            from tensorboardX import SummaryWriter

            target = self._target or self._directory
            if target is None:
                raise RuntimeError("a sink was written before it was told of a study")
            # Names are by the second; two processes within one would write the same file.
            unique = f".{time.time_ns()}"
            folder = str(target / _FOLDER / run)
            self._writers[run] = SummaryWriter(folder, filename_suffix=unique)
        return self._writers[run]


def _add(writer: SummaryWriter, values: Mapping[str, float], step: int) -> None:
    for tag, value in values.items():
        if math.isfinite(value):
            writer.add_scalar(tag, value, step)


def _add_hyperparameters(writer: SummaryWriter, news: TrialNews) -> None:
    """Let the HParams page compare the trials that are followed, by their value."""
    from tensorboardX.summary import hparams

    value = news.row["value"] if news.row["value"] is not None else news.row["rung_value"]
    if value is None or not math.isfinite(value):
        return
    params = {name: _plain(param) for name, param in news.params.items()}
    file = writer.file_writer
    if file is None:
        raise RuntimeError("the event file is closed")
    for summary in hparams(params, {"value": value}):
        file.add_summary(summary)
    writer.add_scalar("value", value, news.row["env_steps"])


def _plain(value: Any) -> bool | float | str:
    """Give a value as the HParams page takes it."""
    if isinstance(value, bool | int | float):
        return value
    return "off" if value is None else str(value)
