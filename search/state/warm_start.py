"""Warm start: samplers receive the trials of an earlier study before this study's first trial.

These trials do not count towards the budget and are not in the tables. They are copied once to the
study's folder, so that resuming does not need the earlier study.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import ConfigError, counted, not_as_written
from ...files.atomic_files import check_readable, is_plain_file, write_text
from ...files.atomic_files import read_text as read_file
from ...spaces.space import Parameter
from ...store.journal import JOURNAL_NAME, Journal
from ...store.rows import StudyMeta, TrialRow, TrialState, counts_evaluations_alone
from ...store.study_folder import WARM_START_NAME
from ...studies.resolved import as_recorded
from ...studies.spec import Study
from ..samplers.registry import PriorTrial
from .objective import Objective, Objectives


@dataclass(frozen=True)
class WarmStartTrials:
    """Trials taken from an earlier study."""

    history: tuple[PriorTrial, ...] = ()  # in order, with negative numbers
    words: str = ""  # one line: how many, and why others were omitted


def warm_start(study: Study, folder: Path | None = None) -> WarmStartTrials:
    """Return the trials that `search.warm_start` provides; none if it is not set."""
    given = study.search.warm_start
    if given is None:
        return WarmStartTrials()
    if folder is not None and is_plain_file(folder / WARM_START_NAME):
        found, words = _read_copy(folder / WARM_START_NAME)
    else:
        found, words = _read_earlier_trials(study, Path(study.source) / given.study)
    numbered = (replace(past, trial=at - len(found)) for at, past in enumerate(found))
    return WarmStartTrials(tuple(numbered), words)


def write_warm_start(found: WarmStartTrials, folder: Path) -> None:
    """Copy the history to the study's folder, unless it is already there."""
    path = folder / WARM_START_NAME
    if not found.history or path.is_file():
        return
    rows = [
        {
            "params": past.params,
            "state": past.state,
            "losses": past.losses or (),
            "violations": past.violations,
        }
        for past in found.history
    ]
    data = {"words": found.words, "trials": rows}
    write_text(path, json.dumps({**data, "sum": _checksum_of(data)}))


def _read_copy(path: Path) -> tuple[list[PriorTrial], str]:
    """Read the copy in the study's folder; older copies have no checksum."""
    check_readable(path)
    try:
        data = json.loads(read_file(path))
        found, words = [_prior_trial(**row) for row in data["trials"]], str(data["words"])
        if data.pop("sum", None) not in (None, _checksum_of(data)):
            raise ValueError("its checksum differs")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise not_as_written(f"{path} is damaged ({error})") from error
    return found, words


def _checksum_of(data: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(data).encode(), digest_size=16).hexdigest()


def _prior_trial(
    params: dict[str, Any], state: str, losses: Sequence[float], violations: Sequence[float]
) -> PriorTrial:
    loss = next(iter(losses), None)
    return PriorTrial(
        0,
        params,
        state=TrialState(state),
        loss=loss,
        more=tuple(losses[1:]),
        violations=tuple(violations),
        proposed_by="warm_start",
    )


def _read_earlier_trials(study: Study, path: Path) -> tuple[list[PriorTrial], str]:
    rows, meta, alone = _rows_of(path)
    rows = [row for row in rows if row.state is not TrialState.REFERENCE]
    other: dict[str, Any] = {}
    if meta is not None:
        _check_same_metrics(study, meta, path)
        other = as_recorded(meta.study_text, str(path))
        if alone:  # its values do not include training returns
            other = {**other, "metric": {**other.get("metric", {}), "training_weight": 0.0}}
    found: list[PriorTrial] = []
    left_out: Counter[str] = Counter()
    for row in rows:
        reason = _why_unusable(study, row)
        params: dict[str, Any] = {}
        if not reason:
            params, reason = _as_ours(study, row.params, other)
        if reason:
            left_out[reason] += 1
            continue
        found.append(_past_of_row(study, params, row))
    if not found:
        why = _counts_text(left_out) or "it has no trials"
        raise ConfigError(f"search.warm_start: no trial in {path} fits this study: {why}")
    words = f"reusing {len(found)} of {counted(len(rows), 'trial')} from {path}"
    if left_out:
        words += f"; left out: {_counts_text(left_out)}"
    return found, words + _changes_text(study, other)


def _rows_of(path: Path) -> tuple[list[TrialRow], StudyMeta | None, bool]:
    """Read a study's folder or a table; a journal next to the table is preferred.

    Returns the rows, the metadata, and whether only evaluations counted.
    """
    folder = path
    if path.name == "trials.parquet":
        folder = path.parent
    if (folder / JOURNAL_NAME).is_file():
        with Journal(folder) as journal:
            alone = counts_evaluations_alone(journal.attributes())
            return list(journal.trials()), journal.meta, alone
    if path.is_file():
        return _rows_of_table(path), None, False
    raise ConfigError(
        f"search.warm_start: {path} contains no study; give a study's folder, or a trials.parquet"
    )


def _state_in_search(state: TrialState) -> TrialState:
    """Return a trial's state at the end of the search; a confirmed trial had finished by then."""
    if state is TrialState.CONFIRMED:
        return TrialState.FINISHED
    return state


def _rows_of_table(path: Path) -> list[TrialRow]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        columns = pq.ParquetFile(path).read(["state", "search_value", "params"]).to_pydict()
        rows = zip(columns["state"], columns["search_value"], columns["params"], strict=True)
        return [
            TrialRow(
                number,
                _state_in_search(TrialState(state)),
                proposed_by="",
                batch=0,
                bucket="",
                params=dict(json.loads(params)),
                value=value,
            )
            for number, (state, value, params) in enumerate(rows)
        ]
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
        text = " ".join(str(error).split())[:200]
        raise ConfigError(f"search.warm_start: {path} is not a table of trials: {text}") from error


def _check_same_metrics(study: Study, meta: StudyMeta, path: Path) -> None:
    objectives = [(metric.name, metric.goal) for metric in study.objectives or (study.metric,)]
    earlier = [(str(o["name"]), str(o["goal"])) for o in meta.objectives]
    earlier = earlier or [(meta.metric, meta.goal)]
    if objectives != earlier:
        raise ConfigError(
            f"search.warm_start: {path} has different objectives: {_metrics_text(earlier)}; "
            f"here: {_metrics_text(objectives)}"
        )
    limited = [(limit.metric, limit.aggregate) for limit in study.constraints]
    before = [(str(one["metric"]), str(one["aggregate"])) for one in meta.constraints]
    if before and limited != before:
        raise ConfigError(
            f"search.warm_start: {path} has constraints on different metrics: "
            f"{_limits_text(before)}; here: {_limits_text(limited)}"
        )


def _limits_text(pairs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{how} of {name}" for name, how in pairs) or "none"


def _metrics_text(pairs: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{goal} {name}" for name, goal in pairs)


def _objective_values(row: TrialRow) -> tuple[float, ...]:
    if row.objectives or row.value is None:
        return row.objectives
    return (row.value,)


def _why_unusable(study: Study, row: TrialRow) -> str:
    if row.state is TrialState.DIVERGED:
        return ""
    if row.state is not TrialState.FINISHED:
        return "not finished"
    values = _objective_values(row)
    if len(values) != max(1, len(study.objectives)) or not all(map(math.isfinite, values)):
        return "without a value for every objective"
    if len(row.constraints) != len(study.constraints):
        return "without a value for every constraint"
    return ""


def _as_ours(
    study: Study, earlier_params: Mapping[str, Any], other: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    known = {**_fixed_values(other), **earlier_params}
    missing: list[str] = []

    def choose(_: str, parameter: Parameter) -> Any:
        name = parameter.name
        if name not in known and other and name in study.algorithm.knobs:
            return study.algorithm.knobs[name].default  # default in the earlier study
        if name not in known:
            missing.append(f"without a value for {name}")
            return parameter.default
        if parameter.distribution.why_not(known[name]) is not None:
            missing.append(f"with {name} outside its range")
            return parameter.default
        return parameter.distribution.canonical(known[name])

    params = study.space.resolve(choose)
    for name, value in earlier_params.items():
        if name not in study.space.names and _our_value(study, name) != value:
            missing.append(f"with a different {name}")
    if not missing and study.space.forbidden(params) is not None:
        missing.append("forbidden here")
    return params, next(iter(missing), "")


def _fixed_values(other: Mapping[str, Any]) -> dict[str, Any]:
    env = other.get("env", {})
    values = {f"env.{key}": value for key, value in env.items() if key != "id"}
    return {**other.get("fixed", {}), **values}


def _our_value(study: Study, name: str) -> Any:
    if name.startswith("env."):
        return study.env.values.get(name.removeprefix("env."))
    knobs = study.algorithm.knobs
    value = study.fixed.get(name)
    if name in knobs and name not in study.fixed:
        value = knobs[name].default
    if isinstance(value, tuple):
        return list(value)
    return value


def _past_of_row(study: Study, params: dict[str, Any], row: TrialRow) -> PriorTrial:
    if row.state is TrialState.DIVERGED:
        return _prior_trial(params, row.state, (), ())
    metrics = study.objectives or (study.metric,)
    losses = [Objective(m).loss(v) for m, v in zip(metrics, _objective_values(row), strict=True)]
    return _prior_trial(
        params, row.state, losses, Objectives.of(study).violations(row.constraints)
    )


def _counts_text(left_out: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())


def _changes_text(study: Study, other: Mapping[str, Any]) -> str:
    if not other:
        return ""
    pairs = {
        "env": (other["env"].get("id"), study.env.id),
        "env_steps": (other["env_steps"], study.env_steps),
        "metric.training_weight": (
            other.get("metric", {}).get("training_weight", 0.0),
            study.metric.training_weight,
        ),
    }
    for name, value in other.get("fixed", {}).items():
        if name not in study.space.names:
            pairs[name] = (value, _our_value(study, name))
    changed = [f"{name} {old} -> {new}" for name, (old, new) in pairs.items() if old != new]
    if not changed:
        return ""
    return f"; changed since: {', '.join(changed)}"
