"""Computes a study's verdict for all views, or the reasons why there is none."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...environments.registry import find
from ...errors import StoreError, counted
from ...files.plain_data import freeze
from ...store.against import ConstraintSamples
from ...store.baselines import baselines_of
from ...store.constraint_tests import Limit, Values
from ...store.front_verdict import FrontConclusion, FrontObjective, conclude_front
from ...store.interim_analyses import Look, looks_of
from ...store.journal import Journal
from ...store.leaderboard import Entry, default_of, leaderboard_of, seeds_that_choose
from ...store.rows import (
    REFERENCE_TRIAL,
    BaselineRow,
    EvaluationRow,
    Stream,
    StudyMeta,
    TrialRow,
    TrialState,
)
from ...store.study_verdict import Circumstances, concluded
from ...store.value_bounds import metric_bounds
from ...store.verdict import Conclusion, WithoutCopying
from ...studies.env_spec import has_key
from ...studies.evaluation import OF_THE_POLICY, SHORTEST_CUT, cut_words
from ...studies.load import recorded
from ...studies.search_spec import Constraint
from ...studies.study_keys import COSTS
from ...studies.yaml_io import recorded_data


def evaluated_in(study: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's evaluation environment: id, keys and parameters."""
    greedy = study["evaluation"]["greedy"]
    if isinstance(study["env"], list):
        listed: list[Mapping[str, Any]] = study["env"]
        named = " and ".join(str(one["id"]) for one in listed)
        each = [_environment_settings(one, params, {}) for one in listed]
        numbered = {
            f"{one['env']} ({at + 1}) {key}": value
            for at, one in enumerate(each)
            for key, value in one.items()
            if key != "env"
        }
        return {"env": named, "greedy": greedy, **numbered}
    world = _environment_settings(study["env"], params, study.get("eval_env") or {})
    return {"env": world["env"], "greedy": greedy, **world}


def _environment_settings(
    given: Mapping[str, Any], params: Mapping[str, Any], held_out: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all keys of one environment, with default, given, searched or evaluation values."""
    env = str(given["id"])
    searched = {
        key[4:]: value
        for key, value in params.items()
        if key.startswith("env.") and has_key(env, key)
    }
    own = {**given, **searched, **held_out}
    kept = {key: value for key, value in own.items() if key not in ("id", *OF_THE_POLICY)}
    if (known := find(env)) is None:
        return {"env": env, **kept}
    keys = {name: key.default for name, key in known.keys.items() if name not in OF_THE_POLICY}
    return {"env": env, **keys, **known.params, **kept}


def apart(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Describe the keys that differ between two environments, with both values; "" if none."""
    keys = [key for key in {**a, **b} if freeze(a.get(key)) != freeze(b.get(key))]
    return ", ".join(f"{key}: {a.get(key)} and {b.get(key)}" for key in keys)


FrontValues = Mapping[int, Mapping[int, tuple[float, ...]]]
"""Trial -> replicate -> a value for each objective."""


def front_values(
    journal: Journal, rows: Sequence[TrialRow]
) -> dict[int, dict[int, tuple[float, ...]]]:
    """Return one value per objective, by confirmed trial and selection seed.

    Costs apply to the whole trial, so they are equal on every seed. The result is empty for a
    study with one objective.
    """
    if not journal.meta.objectives:
        return {}
    from ..state.objective import Objective, measure  # numpy is loaded on use

    meta, score = journal.meta, None
    if meta.environments:
        score = Objective.of(recorded(meta.study_text))
    names = meta.objective_names

    def value(place: int, found: EvaluationRow, known: Sequence[float]) -> float:
        if place == 0 and score is not None:
            return score.measure(found)
        if names[place] in COSTS:
            return known[place]
        return measure(names[place], found)

    seeds = seeds_that_choose(rows)
    whole = {
        row.trial: row.choose_objectives
        for row in rows
        if row.choose_objectives and len(row.choose_values) == seeds
    }
    values: dict[int, dict[int, tuple[float, ...]]] = {}
    for row in journal.evaluations(without=Stream.SEARCH):
        here = row.stream is Stream.CHOOSE and row.replicate < seeds
        if not here or row.trial not in whole:
            continue  # other seeds, or a trial without a value on every seed
        of_trial, known = values.setdefault(row.trial, {}), whole[row.trial]
        # Rows are ordered by env steps, so the last one is kept.
        of_trial[row.replicate] = tuple(value(n, row, known) for n in range(len(names)))
    return values


_FREE = frozenset(
    {
        "name", "early_terminate", "population", "executor", "checkpoint", "loggers", "log_every",
        "baselines",
    }
)  # fmt: skip
"""Sections that do not affect the curve of a trial that never copies another."""


def copies(study: Mapping[str, Any]) -> bool:
    early = study["early_terminate"]
    return early is not None and bool(early.get("every"))


def how_to_know(name: str) -> str:
    """Return a sentence naming the study to run in order to measure the effect of copying."""
    return (
        "It is not known whether copying helped; to find out, run the same file with "
        f"early_terminate: null and name: {name}-alone."
    )


def without_copying(
    folder: Path, meta: StudyMeta, params: Mapping[str, Any]
) -> WithoutCopying | None:
    asked = recorded_data(meta.study_text)
    if not copies(asked) or meta.objectives:
        return None
    try:
        with Journal(folder.with_name(f"{folder.name}-alone")) as journal, journal.at_one_commit():
            if journal.head().phase != "finished":
                return None
            other, rows = journal.meta, journal.trials()
    except StoreError:  # missing or damaged; `hpo list` reports it
        return None
    study = recorded_data(other.study_text)
    entries = leaderboard_of(other, rows)
    if study["early_terminate"] is not None or other.files != meta.files or not entries:
        return None
    if (
        _comparable_settings(study) != _comparable_settings(asked)
        or entries[0].value_from != Stream.REPORT
    ):
        return None
    first = next(row for row in rows if row.trial == entries[0].trial)
    if apart(evaluated_in(asked, params), evaluated_in(study, first.params)):
        return None
    return WithoutCopying(other.name, first.trial, first.by_report_seed)


def _comparable_settings(study: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that must be equal in both studies; evaluation times may differ."""
    kept = {key: value for key, value in study.items() if key not in _FREE}
    kept["evaluation"] = {k: v for k, v in study["evaluation"].items() if k != "every"}
    return kept


def conclusion_of(
    journal: Journal,
    rows: Sequence[TrialRow] | None = None,
    entries: Sequence[Entry] | None = None,
) -> Conclusion:
    """Return a study's conclusion as of its last commit, even while it is running."""
    meta = journal.meta
    if rows is None:
        rows = journal.trials()
    if entries is None:
        entries = leaderboard_of(meta, rows)
    ended = journal.head().phase == "finished"
    fresh: FrontValues = {}
    alone = None
    if ended:
        fresh = front_values(journal, rows)
    if ended and entries:
        alone = without_copying(journal.path.parent, meta, entries[0].params)
    cut, looks = cut_of(journal, entries), looks_of(journal.attributes())
    entries = _without_training(journal, rows, entries)
    rules, default = baselines_of(journal), default_of(rows)
    constraints = None
    if entries and not meta.objectives:
        constraints = constraint_samples(journal, rows, entries[0].trial, default)
    if constraints is not None and alone is not None:
        constraints = replace(constraints, alone=_alone_samples(journal.path.parent, alone))
    study = StudyRows(meta, rows, entries, rules, ended)
    return conclusion_from(
        study,
        JournalData(fresh=fresh, alone=alone, cut=cut, looks=looks, constraints=constraints),
    )


def _alone_samples(folder: Path, alone: WithoutCopying) -> Values | None:
    """Return the best trial's constraint results in the study without copying."""
    with Journal(folder.with_name(f"{folder.name}-alone")) as journal, journal.at_one_commit():
        found = constraint_samples(journal, journal.trials(), alone.trial, None)
    if found is None:
        return None
    return found.winner


def _without_training(
    journal: Journal, rows: Sequence[TrialRow], entries: Sequence[Entry]
) -> Sequence[Entry]:
    """Return entries with evaluation-only values if all seeds of the winner have the same value.

    Such a value may be a ceiling. Trials that reach a ceiling differ only in their training
    returns.
    """
    if not entries:
        return entries
    meta, first = journal.meta, entries[0].trial
    reported = {value for row in rows if row.trial == first for value in row.report_values}
    if len(reported) != 1 or not recorded_data(meta.study_text).get("metric", {}).get(
        "training_weight"
    ):
        return entries
    from ..state.objective import measure  # numpy is loaded on use

    evaluated: dict[tuple[int, str], dict[int, float]] = {}
    for row in journal.evaluations():  # ordered by env steps: the last one is kept
        evaluated.setdefault((row.trial, row.stream), {})[row.replicate] = measure(
            meta.metric, row
        )
    values = (evaluated.get((one.trial, one.value_from), {}).values() for one in entries)
    return [replace(one, values=(*own,)) for one, own in zip(entries, values, strict=True)]


def constraint_samples(
    journal: Journal, rows: Sequence[TrialRow], winner: int, default: TrialRow | None
) -> ConstraintSamples | None:
    """Return two trials' constraint results on test seeds; None without constraints."""
    meta = journal.meta
    if not meta.constraints:
        return None
    from ..state.objective import Objectives  # numpy is loaded on use

    limits = Objectives(constraints=tuple(Constraint(**one) for one in meta.constraints))
    best = next((row for row in rows if row.trial == winner), None)
    trials = [row.trial for row in (best, default) if row is not None]
    tested, shown = _measured_limits(journal, limits.measure, trials)
    names = [one.metric for one in limits.constraints]
    ranges = iter([(min(column), max(column)) for column in zip(*shown, strict=True)])
    return ConstraintSamples(
        limits=tuple(map(Limit.of, meta.constraints)),
        winner=_constraint_values(names, best, tested),
        default=_constraint_values(names, default, tested),
        observed_ranges=tuple(None if name in COSTS else next(ranges, None) for name in names),
    )


def _constraint_values(
    names: Sequence[str],
    row: TrialRow | None,
    tested: Mapping[int, Mapping[int, Sequence[float]]],
) -> list[dict[int, float] | float | None]:
    """Return a trial's values for each constraint; a cut run has no cost."""
    if row is None:
        return [None] * len(names)
    costs: dict[str, float] = {}
    if row.value is not None and len(row.constraints) == len(names):
        costs = dict(zip(names, row.constraints, strict=True))
    own, places = tested.get(row.trial, {}), itertools.count()
    found: list[dict[int, float] | float | None] = []
    for name in names:
        if name in COSTS:
            found.append(costs.get(name))
            continue
        place = next(places)
        found.append({seed: measured[place] for seed, measured in own.items()} or None)
    return found


def _measured_limits(
    journal: Journal,
    measure: Callable[[EvaluationRow], list[float]],
    trials: Collection[int],
) -> tuple[dict[int, dict[int, list[float]]], list[list[float]]]:
    """Return the constrained values by trial and test seed, and a list of those on all new seeds.

    Only `trials` are included, because confirming other trials must not change the verdict.
    """
    tested: dict[int, dict[int, list[float]]] = {}
    shown: list[list[float]] = []
    for row in journal.evaluations(without=Stream.SEARCH):  # full runs of confirmed trials
        if row.trial not in trials:
            continue
        measured = measure(row)
        shown.append(measured)
        if row.stream is Stream.REPORT:  # ordered by env steps: the last one is kept
            tested.setdefault(row.trial, {})[row.replicate] = measured
    return tested, shown


def cut_of(journal: Journal, entries: Sequence[Entry]) -> str:
    """Return a sentence if the winner's value is not a return of whole episodes; otherwise ""."""
    if not entries or entries[0].value is None:
        return ""
    lengths = journal.last_lengths(entries[0].trial, entries[0].value_from)
    text = journal.meta.study_text
    steps = recorded_data(text)["evaluation"].get("steps")
    if steps is None and max(lengths, default=0) < SHORTEST_CUT:  # too short to be truncated
        return ""
    return cut_words(recorded(text), lengths)


@dataclass(frozen=True, eq=False)
class StudyRows:
    """A study as of one commit."""

    meta: StudyMeta
    rows: Sequence[TrialRow]
    entries: Sequence[Entry]  # the leaderboard
    baselines: Sequence[BaselineRow] = ()
    ended: bool = True


@dataclass(frozen=True, kw_only=True)
class JournalData:
    """Data on the compared trials that is stored only in the journal."""

    fresh: FrontValues = field(default_factory=dict)  # of the front, on selection seeds
    alone: WithoutCopying | None = None
    cut: str = ""  # a sentence if the winner's episodes were cut
    looks: Sequence[Look] = ()
    constraints: ConstraintSamples | None = None  # on test seeds


def conclusion_from(study: StudyRows, measured: JournalData) -> Conclusion:
    """Return a study's conclusion from rows and measurements that have been read."""
    meta, rows, entries = study.meta, study.rows, study.entries
    given, front = recorded_data(meta.study_text), None
    params = {row.trial: row.params for row in rows}
    worlds = [evaluated_in(given, params[one.trial]) for one in entries if one.confirmed]
    if measured.fresh and not any(apart(worlds[0], world) for world in worlds[1:]):
        front = _default_and_front(meta, rows, entries, measured.fresh)
    is_lone = len(entries) == 1 and entries[0].value_from == Stream.SEARCH
    tells = ""
    if study.ended and copies(given):
        tells = how_to_know(meta.name)
    circumstances = Circumstances(
        ceiling=ceiling_of(given, meta),
        why=_why_nothing(given, study, front),
        why_alone=_why_alone(given, rows, study.ended),
        apart=_environment_note(given, rows, entries),
        front=front,
        alone=measured.alone,
        looks=measured.looks,
        constraints=measured.constraints,
        tells=tells,
        lone=study.ended and is_lone,
    )
    found = concluded(meta, rows, entries, study.baselines, circumstances)
    more = filter(None, (_former_selection(given, study), measured.cut))
    return replace(found, said=(*found.said, *more))


def _former_selection(given: Mapping[str, Any], study: StudyRows) -> str:
    """Return a sentence if `confirm.choose` grew, but no trial has all these seeds, else ""."""
    confirm, known = given.get("confirm"), seeds_that_choose(study.rows)
    if confirm is None or not study.ended or not confirm["top_k"]:
        return ""
    wanted = confirm["choose"]
    if not 0 < known < wanted:
        return ""
    errors = {row.trial: row.error for row in study.rows if row.state is TrialState.FINISHED}
    lacks = (f"; trial {number}: {error}" for number, error in errors.items() if error)
    seeds = counted(known, "selection seed")
    why = f"no trial has a value on all {wanted} of `confirm.choose`{next(lacks, '')}"
    return f"The trials are still compared on {seeds} ({why})."


def _default_and_front(
    meta: StudyMeta, rows: Sequence[TrialRow], entries: Sequence[Entry], values: FrontValues
) -> FrontConclusion | None:
    """Compare the default with the front; None if the default has no values on its seeds."""
    default = default_of(rows)
    kept = {
        e.trial: values[e.trial]
        for e in entries
        if e.trial in values and (e.feasible or not meta.constraints)
    }
    if default is None or default.trial not in kept:
        return None
    others = {trial: shown for trial, shown in kept.items() if trial != default.trial}
    objectives = [
        FrontObjective(
            name=str(metric["name"]),
            goal=str(metric["goal"]),
            bounds=metric_bounds(meta, str(metric["name"])),
            is_cost=metric["name"] in COSTS,
        )
        for metric in meta.objectives
    ]
    return conclude_front(values[default.trial], others, objectives)


def ceiling_of(study: Mapping[str, Any], meta: StudyMeta) -> float | None:
    """Return the metric's best possible value if the environment table lists it, else None."""
    if isinstance(study["env"], list):
        return None  # a score has no ceiling
    known = find(str(study["env"]["id"]))
    if known is None or known.best_return is None or meta.goal != "maximize":
        return None
    if meta.metric != "eval/return_mean" or f"env.{known.best_return}" in study["space"]:
        return None
    value = evaluated_in(study, {}).get(known.best_return)
    return float(value) if isinstance(value, int | float) else None


def _why_nothing(
    given: Mapping[str, Any], study: StudyRows, front: FrontConclusion | None
) -> list[str]:
    """Return sentences that explain why there is no verdict, and how to get one."""
    meta, entries = study.meta, study.entries
    if not entries or entries[0].value is None:
        return _why_unfinished(meta, entries, study.ended)
    if meta.objectives:
        reasons = ["A study with several objectives has a front, not a winner."]
        if front is None:
            reasons += _default_on_front(entries)
        return reasons
    first = entries[0]
    confirm = given.get("confirm")
    if confirm is None:
        return [
            "Undecided: all values are from seeds that were also used for selection.",
            "To run the best trials and the default on test seeds, add `confirm: {}`.",
        ]
    if first.value_from == Stream.CHOOSE and not confirm["report"]:
        return ["Undecided: the study has no test seeds; `confirm: {report: 16}` adds them."]
    if not study.ended:
        return ["No verdict yet: the study has not finished."]
    return _why_untested(confirm, study.rows, first)


def _why_untested(confirm: Mapping[str, Any], rows: Sequence[TrialRow], first: Entry) -> list[str]:
    """Return a sentence saying that the winner has no test-seed value, and why."""
    error = next((row.error for row in rows if row.trial == first.trial), "")
    more = []
    if error:
        more = [f"Trial {first.trial}: {error}."]
    if first.value_from == Stream.CHOOSE or not confirm["top_k"]:  # `hpo confirm` of other trials
        return ["Undecided: the winner has no value on the test seeds.", *more]
    kind = "selection" if confirm["choose"] else "test"
    return [f"Undecided: no trial has a value on every {kind} seed.", *more]


def _why_unfinished(meta: StudyMeta, entries: Sequence[Entry], ended: bool) -> list[str]:
    """Return a sentence saying that no trial finished, and the fix if wall time ran out."""
    if not ended:
        return ["No verdict yet: no trial has finished its run."]
    said = ["Undecided: no trial has finished its run."]
    is_cut = any(entry.state == TrialState.UNFINISHED for entry in entries)
    if is_cut and recorded(meta.study_text).budget.wall_seconds is not None:
        said.append("`budget.wall` ran out; raise it and run the same command again.")
    return said


def _default_on_front(entries: Sequence[Entry]) -> list[str]:
    """Return a sentence on whether the default is on the front, or nothing if unknown."""
    default = next((entry for entry in entries if entry.trial == 0), None)
    if default is None:
        return []
    if default.feasible is False:
        return ["The default violates the constraints, so it is not on the front."]
    if default.front is None:
        return []
    if not default.confirmed and any(entry.confirmed for entry in entries):
        return []
    seeds = "in the search"
    if default.confirmed:
        seeds = f"on {counted(default.seeds, 'selection seed')}"
    if default.front > 1:
        return [f"The default is not on the front ({seeds})."]
    return [_on_the_front(entries, default, seeds)]


def _on_the_front(entries: Sequence[Entry], default: Entry, seeds: str) -> str:
    """Return a sentence saying that the default is on the front, and how many other trials are."""
    beside = [entry for entry in entries if entry.confirmed == default.confirmed]
    ranked = [entry for entry in beside if entry.front is not None]
    if len(ranked) == 1 and any(entry.feasible is False for entry in beside):
        return f"No other trial satisfies the constraints {seeds}, so the default is on the front."
    others = sum(entry.front == 1 for entry in ranked) - 1
    more = f" with {counted(others, 'other trial')}" if others else " alone"
    return f"The default is on the front{more} ({seeds})."


def _why_alone(study: Mapping[str, Any], rows: Sequence[TrialRow], ended: bool) -> str:
    confirm = study.get("confirm")
    if confirm is not None and not confirm.get("default", True):
        return "The study excludes the default (`confirm: {default: false}`)."
    if not ended:
        return "The default is still running on these seeds."
    default = default_of(rows)
    if default is None:
        return _default_absent(REFERENCE_TRIAL)
    if default.state is TrialState.FAILED:
        return f"The default failed in the search: {default.error}"
    asked = confirm is not None and (
        confirm["top_k"] or str(default.trial) in confirm.get("also", ())
    )
    if asked and default.error:
        return f"The default's test did not finish: {default.error}."
    return _default_absent(default.trial)


def _default_absent(number: int) -> str:
    return f"The default did not run on these seeds; also confirm trial {number}."


def _environment_note(
    study: Mapping[str, Any], rows: Sequence[TrialRow], entries: Sequence[Entry]
) -> str:
    """Describe how the winner's environment differs from the default's; "" if they are equal."""
    params, default = {row.trial: row.params for row in rows}, default_of(rows)
    if not entries or default is None:
        return ""
    worlds = [evaluated_in(study, known) for known in (params[entries[0].trial], default.params)]
    keys = apart(*worlds)
    if not keys:
        return ""
    return f"The two trials were evaluated in different environments ({keys})."
