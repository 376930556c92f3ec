"""The Weights & Biases logger: a group of runs, one for the study and one per followed trial.

Run ids are stored in the study's folder, so that a resumed study continues the same runs. Offline
runs are also written there, for `wandb sync`. Only this module imports wandb.
"""

from __future__ import annotations

import inspect
import io
import os
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ConfigError
from ..files.atomic_files import files_below
from .follow import FINAL, Follower, FollowingSink, LoggedPoint, News, RunSettings, TrialNews

if TYPE_CHECKING:  # an optional package, loaded on use
    import wandb
    from wandb.sdk.wandb_run import Run

_COLUMNS = ("rank", "trial", "state", "value", "ci_low", "ci_high", "value_from", "seeds",
            "env_steps", "params")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class WandbSettings(RunSettings):
    """The location of runs; trial runs are named `<name>/trial-<n>`."""

    mode: Literal["online", "offline"] = "online"
    project: str = "hpo"
    entity: str | None = None  # user or team; None: the account's default
    group: str | None = None  # None: the same as `name`


class WandbSink(FollowingSink["Run"]):
    name = package = "wandb"

    def __init__(self, follower: Follower, settings: WandbSettings, target: Path | None = None):
        super().__init__(follower, target)
        if settings.mode == "online" and not _logged_in():
            text = "the wandb logger is online, but you are not logged in; run: wandb login, "
            if target is not None:  # of an export, without a study file
                raise ConfigError(f"{text}or use mode: offline", setting="mode=offline")
            raise ConfigError(f"{text}or set mode: offline in `loggers`")
        self._settings = settings

    def _open_run(self, directory: Path, key: str, trial: TrialNews | None) -> Run:
        import wandb

        settings = self._settings
        resume = "allow"
        if settings.mode == "offline":
            resume = None
        if trial is None:
            name, kind, config = settings.name, "study", dict(settings.study)
        else:
            name, kind = f"{settings.name}/{key}", "trial"
            config = settings.of_trial(trial)
        run = wandb.init(
            project=settings.project,
            entity=settings.entity,
            group=settings.group or settings.name,
            name=name,
            job_type=kind,
            id=self._run_id(directory, key),
            resume=resume,
            mode=settings.mode,
            dir=str(self._log_folder(directory)),
            config=config,
            reinit="create_new",
            settings=_quiet_settings(wandb),
        )
        for metric, step in (("*", "env_steps"), ("value_of_trial", "trial")):
            run.define_metric(metric, step_metric=step)
        return run

    def _log_points(self, run: Run, axis: str, points: Sequence[LoggedPoint]) -> None:
        for point in points:
            run.log({axis: point.env_steps, **point.values})

    def _log_end(self, run: Run, trial: TrialNews) -> None:
        _update_summary(run, {key: trial.row[key] for key in FINAL if trial.row[key] is not None})

    def _close_run(self, run: Run, state: str) -> None:
        run.finish()

    def _write_end(self, directory: Path, news: News) -> None:
        import wandb

        study = self._runs["study"]
        columns = [news.table[name] for name in _COLUMNS]
        rows: list[Any] = [list(row) for row in zip(*columns, strict=True)]
        study.log({"leaderboard": wandb.Table(columns=list(_COLUMNS), data=rows)})
        if news.best is None:
            return
        winner = news.table["trial"][0]
        _update_summary(study, {"best": news.best, "best_trial": winner})
        policy = self._settings.policy_folder(directory, news)
        if policy is not None:
            about = {"trial": winner, "value": news.best, "params": news.table["params"][0]}
            artifact = wandb.Artifact(f"{directory.name}-policy", "policy", metadata=about)
            for file in files_below(policy):
                artifact.add_file(str(file), name=file.relative_to(policy).as_posix())
            study.log_artifact(artifact)


def _update_summary(run: Run, values: dict[str, Any]) -> None:
    run.summary.update(values)  # pyright: ignore[reportUnknownMemberType] # a bare dict there


def _quiet_settings(wandb: Any) -> wandb.Settings:
    """Return settings that disable wandb's output, system metrics and code uploads."""
    return wandb.Settings(
        silent=True,
        console="off",
        x_disable_stats=True,
        disable_code=True,
        disable_git=True,
        save_code=False,
    )


def _logged_in() -> bool:
    """Return whether wandb is logged in to an account here, without prompting."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    import wandb

    login: Any = wandb.login
    with redirect_stderr(io.StringIO()):  # wandb prints what it finds to stderr
        if "prompt" in inspect.signature(login).parameters:
            return bool(login(prompt=False, verify=False))
        return bool(wandb.api.api_key)  # before version 0.31
