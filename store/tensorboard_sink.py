"""The TensorBoard logger: event files in the study's folder, a run for the study and per trial.

    tensorboard --logdir results/<study>/tensorboard

A resumed study adds event files to the same runs. Only this module imports tensorboardX.
"""

from __future__ import annotations

import importlib
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError
from .follow import Follower, FollowingSink, News, Point, TrialNews

if TYPE_CHECKING:  # an optional package, loaded on use
    from tensorboardX import SummaryWriter

_FOLDER = "tensorboard"


class TensorBoardSink(FollowingSink):
    name = "tensorboard"

    def __init__(self, follower: Follower, target: Path | None = None):
        try:
            importlib.import_module("tensorboardX")  # in the study's thread: `store.sinks`
        except ImportError as error:
            name = "the tensorboard logger"
            raise MissingExtraError("tensorboardX", "tensorboard", name) from error
        super().__init__(follower, target)
        self._writers: dict[str, SummaryWriter] = {}

    def _write(self, directory: Path, news: News) -> None:
        folder = self._place(directory) / _FOLDER
        study = self._writer(folder, "study")
        _add(study, news.point)
        for row in news.ended:
            if row["value"] is not None:
                _add(study, Point(row["trial"], {"value_of_trial": row["value"]}))
        for trial in news.trials:
            run = f"trial_{trial.trial}"
            writer = self._writer(folder, run)
            for point in trial.points:
                _add(writer, point)
            if trial.ended:
                _add_hyperparameters(writer, trial)
                self._writers.pop(run).close()
        for writer in self._writers.values():
            writer.flush()

    def _close_all(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def _writer(self, folder: Path, run: str) -> SummaryWriter:
        if run not in self._writers:
            from tensorboardX import SummaryWriter

            # File names have seconds: two processes could write the same file.
            unique = f".{time.time_ns()}"
            self._writers[run] = SummaryWriter(str(folder / run), filename_suffix=unique)
        return self._writers[run]


def _add(writer: SummaryWriter, point: Point) -> None:
    for tag, value in point.values.items():
        if math.isfinite(value):
            writer.add_scalar(tag, value, point.env_steps)


def _add_hyperparameters(writer: SummaryWriter, news: TrialNews) -> None:
    """Add a followed trial to the HParams page."""
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
    if isinstance(value, bool | int | float):
        return value
    return "off" if value is None else str(value)
