"""The MLflow logger: one run for the study, with a child run per followed trial.

    mlflow ui --backend-store-uri sqlite:///results/<study>/mlflow.db

A resumed study finds its runs by the tag `hpo.run`, and adds only missing points. Only this module
imports mlflow.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .follow import FINAL, Follower, FollowingSink, LoggedPoint, News, RunSettings, TrialNews


@dataclass(frozen=True, kw_only=True)
class MlflowSettings(RunSettings):
    """The location of runs; trial runs are named `trial-<n>`."""

    experiment: str = "hpo"
    uri: str | None = None  # None: MLFLOW_TRACKING_URI, or else a database in the study's folder


@dataclass(frozen=True)
class _Run:
    id: str
    known: set[tuple[str, int, float]]  # points already in it: metric, step, value


class MlflowSink(FollowingSink[_Run]):
    name = package = "mlflow"

    def __init__(self, follower: Follower, settings: MlflowSettings, target: Path | None = None):
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        super().__init__(follower, target)
        self._settings, self._experiment = settings, ""
        self._client: Any = None  # untyped, because type checking runs without mlflow
        self._entities: Any = importlib.import_module("mlflow.entities")

    def _connect_to_experiment(self, directory: Path) -> None:
        mlflow: Any = importlib.import_module("mlflow")
        uri, artifacts, place = self._settings.uri, None, self._log_folder(directory).resolve()
        if uri is None and not mlflow.is_tracking_uri_set():
            uri, artifacts = f"sqlite:///{place}/mlflow.db", (place / "mlflow").as_uri()
        self._client, name = mlflow.MlflowClient(uri), self._settings.experiment
        found = self._client.get_experiment_by_name(name)
        if found:
            self._experiment = str(found.experiment_id)
        else:
            self._experiment = self._client.create_experiment(name, artifacts)

    def _open_run(self, directory: Path, key: str, trial: TrialNews | None) -> _Run:
        if not self._experiment:
            self._connect_to_experiment(directory)
        client, tags = self._client, {"hpo.run": self._run_id(directory, key)}
        query = f"tags.`hpo.run` = '{tags['hpo.run']}'"
        run = next(iter(client.search_runs([self._experiment], query)), None)
        if run is None:
            name = self._settings.name
            if trial is not None:
                name, tags["mlflow.parentRunId"] = key, self._runs["study"].id
            run = client.create_run(self._experiment, tags=tags, run_name=name)
        own = run.info.run_id
        client.update_run(own, "RUNNING")
        if trial is None:
            client.log_dict(own, dict(self._settings.study), "study.json")
        else:
            config = self._settings.of_trial(trial).items()
            new = [(name, x) for name, x in config if name not in run.data.params]
            texts = ((name, x if isinstance(x, str) else json.dumps(x)) for name, x in new)
            client.log_batch(own, params=[self._entities.Param(*text) for text in texts])
        logged = (one for name in run.data.metrics for one in client.get_metric_history(own, name))
        return _Run(own, {(one.key, one.step, one.value) for one in logged})

    def _log_points(self, run: _Run, axis: str, points: Sequence[LoggedPoint]) -> None:
        now = int(1000 * time.time())
        every = [(n, point.env_steps, x) for point in points for n, x in point.values.items()]
        new = [one for one in every if one not in run.known]
        run.known.update(new)
        metrics = [self._entities.Metric(name, value, now, step) for name, step, value in new]
        self._client.log_batch(run.id, metrics=metrics)

    def _log_end(self, run: _Run, trial: TrialNews) -> None:
        values = {name: trial.row[name] for name in FINAL if trial.row[name] not in (None, "")}
        words = {name: str(value) for name, value in values.items() if isinstance(value, str)}
        self._client.log_batch(run.id, tags=[self._entities.RunTag(*one) for one in words.items()])
        numbers = {n: x for n, x in values.items() if n not in words and math.isfinite(x)}
        self._log_points(run, "env_steps", [LoggedPoint(trial.row["env_steps"], numbers)])

    def _write_end(self, directory: Path, news: News) -> None:
        study, policy = self._runs["study"].id, self._settings.policy_folder(directory, news)
        self._client.set_tag(study, "best_trial", news.table["trial"][0])
        if policy is not None:
            self._client.log_artifacts(study, str(policy), "policy")

    def _close_run(self, run: _Run, state: str) -> None:
        status = {"failed": "FAILED", "interrupted": "KILLED"}.get(state, "FINISHED")
        self._client.set_terminated(run.id, status)
