"""What XLRON's flags say about models, evaluation and logging: init, checkpoint, loggers."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from ...errors import ConfigError
from .draft import Draft
from .take import Source
from .words import file_name

__all__ = ["read_output"]

_INCREMENT = 100_000
_MOST_NETWORKS = 10


def read_output(draft: Draft, source: Source) -> None:
    """Fill `init`, `checkpoint`, `evaluation` and `loggers`.

    Raises:
        ConfigError: training is to begin from weights that cannot be read here.
    """
    _init(draft, source)
    _checkpoint(draft, source)
    _evaluation(draft, source)
    _loggers(draft, source)
    name = source.find("EXPERIMENT_NAME")
    if name:
        draft.rest.setdefault("name", file_name(str(name), "xlron"))
    source.drop("EXPERIMENT_NAME")


def _init(draft: Draft, source: Source) -> None:
    path, keep = source.find("MODEL_PATH"), source.find("KEEP_VF")
    retrain = source.find("RETRAIN_MODEL")
    source.drop("MODEL_PATH", "KEEP_VF", "RETRAIN_MODEL")
    wanted = "RETRAIN_MODEL" not in draft.without
    if not retrain or not wanted:
        if path is not None:
            draft.leave_out("MODEL_PATH", "policies are saved in the study's own folder")
        return
    if path is None:
        raise ConfigError(f"{draft.source}: RETRAIN_MODEL needs MODEL_PATH, the model")
    if PurePath(str(path)).suffix == ".eqx":
        raise ConfigError(
            f"{draft.source}: RETRAIN_MODEL begins from {path}, whose weights of Equinox cannot "
            "be read here; name the folder of a policy that hpo saved: -- --MODEL_PATH DIR, or "
            "begin fresh: -- --without RETRAIN_MODEL"
        )
    draft.rest["init"] = {"from": str(path), "keep": "critic" if keep else "all"}


def _checkpoint(draft: Draft, source: Source) -> None:
    if source.find("SAVE_MODEL"):
        draft.section("checkpoint")["best_evaluation"] = True
        draft.note("SAVE_MODEL: the policy with the best evaluation is kept")
    source.drop("SAVE_MODEL")


def _evaluation(draft: Draft, source: Source) -> None:
    """Evaluate every so many increments, on as many networks and requests as there."""
    increment = source.find("STEPS_PER_INCREMENT") or _INCREMENT
    every, steps = source.find("EVAL_FREQUENCY") or 1, source.find("EVAL_TIMESTEPS")
    networks = [int(count) for count in source.values("NUM_ENVS", 1)]
    if source.find("EVAL_DURING_TRAINING"):
        section = draft.section("evaluation")
        section["every"] = int(every * increment)
        section["episodes"] = min(max(networks), _MOST_NETWORKS)
        section["steps"] = int(steps or (10_000 if steps is None else increment))
        section["greedy"] = bool(source.find("deterministic"))
        if not section["greedy"]:
            draft.note("evaluation.greedy: false, as XLRON samples unless --deterministic")
    else:
        for name in ("EVAL_FREQUENCY", "EVAL_TIMESTEPS", "deterministic"):
            if name in source.names():
                draft.leave_out(name, "has no effect there without EVAL_DURING_TRAINING")
    source.drop("EVAL_DURING_TRAINING", "EVAL_FREQUENCY", "EVAL_TIMESTEPS", "deterministic")


def _loggers(draft: Draft, source: Source) -> None:
    if source.find("WANDB"):
        logger: dict[str, Any] = {"type": "wandb"}
        if source.find("PROJECT"):
            logger["project"] = str(source.find("PROJECT"))
        points = source.find("DOWNSAMPLE_FACTOR")
        if points and points > 1:
            rollout = max(source.values("ROLLOUT_LENGTH", 150))
            logger["every"] = max(1, round(points / rollout))
            draft.note(
                f"DOWNSAMPLE_FACTOR: means of {points} env steps there, of "
                f"{logger['every']} chunk(s) of updates here"
            )
        draft.rest["loggers"] = [logger]
    elif source.find("PROJECT") or source.find("DOWNSAMPLE_FACTOR"):
        draft.leave_out("PROJECT, DOWNSAMPLE_FACTOR", "nothing is sent without WANDB")
    source.drop("WANDB", "PROJECT", "DOWNSAMPLE_FACTOR")
