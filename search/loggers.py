"""A study's loggers as sinks of its store, each running in a separate thread.

A missing package is an error before the study starts; later failures are warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import UnknownNameError
from ..store.follow import Follower
from ..store.sinks import Background, CsvSink, Sink, Sinks
from ..store.tables import TABLES
from ..studies.execution_spec import Logger
from ..studies.resolved import resolved
from ..studies.spec import Study
from ..studies.study_keys import LOGGERS

VIEWS = ("console",)  # loggers that are views of the command line instead of sinks


def sinks_of(study: Study, warn: Callable[[str], None]) -> Sinks | None:
    """Create a study's sinks; None if it needs none. Raises the errors of `make_sink`."""
    wanted = [logger for logger in study.loggers if logger.type not in VIEWS]
    data = resolved(study)
    sinks = [Background(make_sink(logger, data), warn) for logger in wanted]
    if not sinks:
        return None
    return Sinks(sinks, warn)


def check_loggers(study: Study) -> None:
    """Raise if a logger could not start here, because a package or a login is missing."""
    data = resolved(study)
    for logger in study.loggers:
        if logger.type not in VIEWS:
            make_sink(logger, data)


def make_sink(logger: Logger, study: Mapping[str, Any], target: Path | None = None) -> Sink:
    """Create one logger's sink for the tables of a study, given as plain data.

    The sink writes to `target`, by default the study's folder. Raises MissingExtraError if the
    logger's package is missing.
    """
    options = dict(logger.options)
    if logger.type == "csv" and target is None:
        return CsvSink(target, ("trials", "curves"))
    if logger.type == "csv":
        return CsvSink(target, TABLES)
    follower = Follower(
        top_k=options.pop("top_k", 10),
        every=options.pop("every", 1),
        seeds=study["seeds"]["per_config"],
        planned=study["budget"]["trials"],
    )
    if logger.type == "tensorboard":
        from ..store.tensorboard_sink import TensorBoardSink

        return TensorBoardSink(follower, target)
    options["name"] = options.get("name") or study["name"]
    options |= {"study": study, "fixed": study["fixed"]}
    if logger.type == "wandb":
        from ..store.wandb_sink import WandbSettings, WandbSink

        return WandbSink(follower, WandbSettings(**options), target)
    if logger.type == "mlflow":
        from ..store.mlflow_sink import MlflowSettings, MlflowSink

        return MlflowSink(follower, MlflowSettings(**options), target)
    raise UnknownNameError("logger", logger.type, LOGGERS)
