"""The TensorBoard logger: event files in the study's folder, for the study and per trial.

    tensorboard --logdir results/<study>/tensorboard

A resumed study adds event files to the same runs. Only this module imports tensorboardX.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import atomic_files
from .follow import FollowingSink, LoggedPoint, News, TrialNews
from .study_folder import TENSORBOARD_NAME

if TYPE_CHECKING:  # an optional package, loaded on use
    from tensorboardX import SummaryWriter


class TensorBoardSink(FollowingSink["SummaryWriter"]):
    name, package = "tensorboard", "tensorboardX"

    def _log_news(self, directory: Path, news: News) -> None:
        super()._log_news(directory, news)
        for writer in self._runs.values():
            writer.flush()

    def _open_run(self, directory: Path, key: str, trial: TrialNews | None) -> SummaryWriter:
        from tensorboardX import SummaryWriter

        folder = self._run_folder(directory, key)
        # File names contain seconds, so two processes could write the same file.
        return SummaryWriter(str(folder), filename_suffix=f".{time.time_ns()}")

    def _run_folder(self, directory: Path, key: str) -> Path:
        return self._log_folder(directory) / TENSORBOARD_NAME / key.replace("-", "_")

    def _start_over(self, directory: Path, key: str) -> None:
        atomic_files.delete_folder(self._run_folder(directory, key))

    def _log_points(self, run: SummaryWriter, axis: str, points: Sequence[LoggedPoint]) -> None:
        for point in points:
            for tag, value in point.values.items():
                run.add_scalar(tag, value, point.env_steps)

    def _log_end(self, run: SummaryWriter, trial: TrialNews) -> None:
        """Add the trial to the HParams page."""
        from tensorboardX.summary import hparams

        row = trial.row
        value = row["value"] if row["value"] is not None else row["rung_value"]
        if value is None or not math.isfinite(value):
            return
        if run.file_writer is None:
            raise RuntimeError("the event file is closed")
        params = {name: _hparam_value(param) for name, param in trial.params.items()}
        for summary in hparams(params, {"value": value}):
            run.file_writer.add_summary(summary)
        run.add_scalar("value", value, row["env_steps"])

    def _close_run(self, run: SummaryWriter, state: str) -> None:
        run.close()


def _hparam_value(value: Any) -> bool | float | str:
    if isinstance(value, bool | int | float):
        return value
    return "off" if value is None else str(value)
