"""Finished studies of any size, written by the store's own code without any training.

Curves, evaluations and values are formulas of the trial's number, so equal sizes give equal
studies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_AT_ONCE = 65_536
_QUANTUM = 2_048
_EPISODES = 4
_METRICS = ("loss/policy", "loss/value", "entropy", "approx_kl", "clip_fraction", "grad_norm",
            "explained_variance", "episode_length", "episode_return_100", "learning_rate",
            "ratio_max", "elapsed_seconds", "env_steps_per_second")  # fmt: skip


@dataclass(frozen=True)
class Size:
    """The size of a study.

    Attributes:
        trials: number; every fourth ran to its end, the others were stopped at a rung.
        seeds: replicates per trial.
        rows: curve rows per replicate, also for stopped trials.
        evaluations: number of evaluations per replicate.
    """

    trials: int
    seeds: int
    rows: int
    evaluations: int

    @property
    def curve_rows(self) -> int:
        """Rows of `curves.parquet`."""
        return self.trials * self.seeds * self.rows


def write_study(folder: Path, size: Size) -> Path:
    """Write a finished study of this size, and return its folder."""
    from hpo.machine.software import versions_of_study
    from hpo.search.state.loop_state import LoopState, Phase
    from hpo.search.state.usage import Usage
    from hpo.store import Sinks, StudyFolder, StudyStore
    from hpo.studies.resolved import resolved_yaml
    from hpo.studies.study_meta import study_meta

    study = _study(folder.name, size)
    usage = Usage(search_env_steps=size.curve_rows * _QUANTUM, chunks=size.rows, run_seconds=600.0)
    state = LoopState(phase=Phase.DONE, proposed=size.trials, usage=usage).to_text()
    target = StudyFolder(folder)
    with StudyStore(
        target, study_meta(study, versions_of_study(study), "cpu", 2), sinks=Sinks([])
    ) as store:
        target.write_study(f"name: {folder.name}\n", resolved_yaml(study))
        for trials, rows in _blocks(size):
            store.curves.add_chunk(**_curves(size, trials, rows))
        for begin in range(0, size.trials, 500):
            some = range(begin, min(begin + 500, size.trials))
            last = some.stop == size.trials
            store.commit(
                loop_state=state,
                checkpoint=None,
                phase="finished" if last else "running",
                trials=[_trial(n, size) for n in some],
                evaluations=[row for n in some for row in _evaluations(n, size)],
                decisions=[row for n in some for row in _decisions(n, size)],
            )
        store.publish(force=True)
    return folder


def _study(name: str, size: Size) -> Any:
    from hpo.spaces import Parameter, Space, make_distribution
    from hpo.studies.env_spec import EnvSpec
    from hpo.studies.execution_spec import Budget
    from hpo.studies.search_spec import EarlyTerminate, SearchSpec, Seeds
    from hpo.studies.spec import Study

    spreads: dict[str, dict[str, Any]] = {
        "learning_rate": {"min": 1e-5, "max": 1e-1, "distribution": "log_uniform"},
        "gamma": {"min": 0.8, "max": 0.9999, "distribution": "one_minus_log"},
        "gae_lambda": {"min": 0.8, "max": 1.0},
        "clip_eps": {"min": 0.05, "max": 0.4},
        "ent_coef": {"min": 1e-5, "max": 1e-1, "distribution": "log_uniform"},
        "update_epochs": {"min": 1, "max": 10, "distribution": "int_uniform"},
    }
    parameters = []
    for knob, fields in spreads.items():
        distribution = make_distribution(fields)
        parameters.append(Parameter(knob, distribution, distribution.middle()))
    return Study(
        name=name,
        env=EnvSpec("CartPole-v1"),
        env_steps=size.rows * _QUANTUM,
        space=Space(tuple(parameters)),
        search=SearchSpec("random"),
        early_terminate=EarlyTerminate("asha", _rungs(size)[0], 4.0),
        seeds=Seeds(size.seeds),
        budget=Budget(trials=size.trials),
    )


# ---------------------------------------------------------------------- rows


def _blocks(size: Size) -> Iterator[tuple[range, range]]:
    """Yield (trials, rows) in turn: trials side by side as lanes, with their rows in order."""
    lanes = 64
    at_once = max(1, _AT_ONCE // (lanes * size.seeds))
    for begin in range(0, size.trials, lanes):
        trials = range(begin, min(begin + lanes, size.trials))
        for row in range(0, size.rows, at_once):
            yield trials, range(row, min(row + at_once, size.rows))


def _curves(size: Size, trials: range, rows: range) -> dict[str, Any]:
    from hpo.store import Stream

    at, trial, replicate = (
        grid.ravel() for grid in np.meshgrid(rows, trials, range(size.seeds), indexing="ij")
    )
    done = (at + 1) / size.rows
    wave = np.sin(at * 0.37 + trial * 1.7 + replicate)
    metrics = {name: done * (1 + place) + 0.1 * wave for place, name in enumerate(_METRICS)}
    metrics["episode_return"] = 500.0 * _skill(trial) * done**0.5 + 10.0 * wave
    return {
        "trials": trial,
        "streams": [Stream.SEARCH] * len(at),
        "replicates": replicate,
        "env_steps": (at + 1) * _QUANTUM,
        "metrics": metrics,
    }


def _skill(trial: Any) -> Any:
    """Return how good a trial is, 0 to 1; all values differ."""
    return (np.asarray(trial) * 0.618034 + 0.3) % 1.0


def _rungs(size: Size) -> list[int]:
    """Return the env steps at which replicates are evaluated."""
    return [
        (index + 1) * size.rows // size.evaluations * _QUANTUM for index in range(size.evaluations)
    ]


def _ends(trial: int) -> bool:
    return trial % 4 == 0


def _value(trial: int, seed: int, done: float) -> float:
    return float(500.0 * _skill(trial) * done**0.5 + np.sin(trial * 1.1 + seed * 2.3))


def _params(trial: int) -> dict[str, Any]:
    share = [
        float((trial * step + 0.5) % 1.0)
        for step in (0.754878, 0.569840, 0.819173, 0.671044, 0.549700)
    ]
    return {
        "learning_rate": 1e-5 * 1e4 ** share[0],
        "gamma": 0.8 + 0.19 * share[1],
        "gae_lambda": 0.8 + 0.2 * share[2],
        "clip_eps": 0.05 + 0.35 * share[3],
        "ent_coef": 1e-5 * 1e4 ** share[4],
        "update_epochs": 1 + trial % 10,
    }


def _trial(trial: int, size: Size) -> Any:
    from hpo.store import TrialRow, TrialState

    ended = _ends(trial)
    values = tuple(_value(trial, seed, 1.0) for seed in range(size.seeds))
    rung = [_value(trial, seed, 1 / size.evaluations) for seed in range(size.seeds)]
    return TrialRow(
        trial,
        TrialState.FINISHED if ended else TrialState.STOPPED,
        "default" if trial == 0 else "random",
        trial // 64,
        "b0",
        _params(trial),
        value=float(np.mean(values)) if ended else None,
        seed_values=values if ended else tuple(rung),
        rung=0,
        rung_value=float(np.mean(rung)),
        stop_rule="" if ended else "asha",
        env_steps=size.rows * size.seeds * _QUANTUM,
        started_at=1.0 * trial,
        ended_at=1.0 * trial + 60.0,
    )


def _evaluations(trial: int, size: Size) -> Iterator[Any]:
    from hpo.store import EvaluationRow, Stream

    rungs = _rungs(size)
    for seed in range(size.seeds):
        for index, at in enumerate(rungs if _ends(trial) else rungs[:1]):
            value = _value(trial, seed, (index + 1) / len(rungs))
            yield EvaluationRow(
                value + np.arange(_EPISODES) - (_EPISODES - 1) / 2,
                np.full(_EPISODES, 500),
                {},
                trial=trial,
                stream=Stream.SEARCH,
                replicate=seed,
                env_steps=at,
            )


def _decisions(trial: int, size: Size) -> Iterator[Any]:
    from hpo.store import DecisionRow

    value = float(np.mean([_value(trial, s, 1 / size.evaluations) for s in range(size.seeds)]))
    action = "continue" if _ends(trial) else "stop"
    yield DecisionRow(trial, 0, _rungs(size)[0], value, action, "asha", None, 1, 2)
