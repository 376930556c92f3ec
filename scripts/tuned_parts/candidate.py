"""A tuned record from a finished study: its winner, the default and published configurations.

All of them run on the same test seeds.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import hpo
from hpo.environments.registry import Reference, reference_of
from hpo.errors import ConfigError, StudyError
from hpo.files import atomic_files
from hpo.knobs import complete
from hpo.machine.software import versions
from hpo.search.analysis.verdict import conclusion_of
from hpo.search.api import run
from hpo.search.seeds import study_seed
from hpo.search.tuned_runs import (
    MEANS,
    Runner,
    Runs,
    contender_of,
    curve_of,
    proof_study,
    run_proof,
)
from hpo.store.baselines import baselines_of
from hpo.store.journal import Journal
from hpo.store.leaderboard import leaderboard_of
from hpo.store.rows import Stream, StudyMeta
from hpo.store.study_folder import StudyFolder
from hpo.studies.load import loads, recorded
from hpo.studies.resolved import diff, resolved
from hpo.studies.spec import Study, only_ppo
from hpo.studies.study_environments import only_one_environment
from hpo.studies.study_keys import METRICS
from hpo.studies.tuned.record import (
    DEFAULT,
    TUNED,
    Curve,
    Origin,
    Provenance,
    TunedRecord,
    file_name,
)
from hpo.studies.yaml_io import plain, read_text
from hpo.version import __version__

from .record_file import SEEDS, published

_MADE = (
    "results/tuned",
    "results/atlas",
    "docs/reference/tuned.md",
    "docs/reference/atlas.md",
    "docs/figures",
    "mkdocs.yml",
)
TAKEN = ("better", "no_difference", "undecided", "ceiling")
"""Verdicts of a study after which its winner is tested again."""


@dataclass(frozen=True)
class Candidate:
    study: Study  # as it ran
    text: str  # original text of its file
    config: Mapping[str, Any]  # complete configuration of the winner
    origin: Origin  # the record's section about the study; `file` is still empty


def candidate_of(folder: StudyFolder, anyway: bool = False) -> Candidate:
    with Journal(folder.path) as journal, journal.at_one_commit():
        meta, rows, phase = journal.meta, journal.trials(), journal.head().phase
        conclusion = conclusion_of(journal)
    study = recorded(meta.study_text)
    entries = leaderboard_of(meta, rows)
    first = entries[0] if entries else None
    if phase != "finished" or first is None or first.value is None:
        raise ConfigError(f"study {folder.name!r} is not finished; resume it first", run="FILE")
    _check_holds(folder, study, meta)
    row = next(row for row in rows if row.trial == first.trial)
    if row.schedule:
        raise ConfigError(
            f"trial {first.trial} of {folder.name!r} changed its hyperparameters during the run "
            "(a population that copies); one configuration is needed: search with another rule"
        )
    verdict = "infeasible" if conclusion.violates else conclusion.against.verdict
    if verdict not in TAKEN and not anyway:
        raise ConfigError(
            f"study {folder.name!r} has not shown that its winner is as good as the default "
            f"({verdict}): {' '.join(conclusion.said) or 'it concludes nothing'} "
            "It can be recorded all the same (--anyway)"
        )
    fresh = {
        Stream.SEARCH: study.seeds.per_config,
        Stream.CHOOSE: study.confirm.choose if study.confirm else 0,
        Stream.REPORT: study.confirm.report if study.confirm else 0,
    }
    text = _given_text(folder, study)
    return Candidate(
        study=study,
        text=text,
        config=complete({**study.fixed, **first.params}),
        origin=Origin(
            file="",
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            trial=first.trial,
            trials=sum(row.trial >= 0 for row in rows),
            verdict=verdict,
            said=" ".join(conclusion.said),
            env_steps=sum(row.env_steps for row in rows) + _confirm_steps(folder),
            seeds={stream.value: count for stream, count in fresh.items()},
        ),
    )


def _check_holds(folder: StudyFolder, study: Study, meta: StudyMeta) -> None:
    """Raise ConfigError for a study whose runs a record does not determine."""
    read = [*meta.files, *_own_space(folder)]
    judged_by, searched = study.metric.name, study.space.names
    faults = (
        (
            study.objectives or study.constraints,
            "has several objectives or constraints; a tuned configuration is compared by one "
            "value",
        ),
        (
            study.imports or study.init is not None or study.evaluation.env,
            "has imports, init or eval_env, which a record cannot hold",
        ),
        (read, f"reads {', '.join(read)}, which a record cannot hold: it must train by itself"),
        (
            study.schedule_env_steps is not None,
            "has schedule_env_steps, which a record cannot hold: schedules of a record end with "
            "its runs; leave it out and start a new study",
        ),
        (
            judged_by in METRICS and judged_by not in MEANS,
            f"is judged by {judged_by}; runs of a record are compared by a mean over episodes: "
            f"{', '.join(MEANS)} or the environment's own",
        ),
        (
            any(name.startswith("env.") for name in searched),
            "searches parameters of its environment, so its winner is for another task; write "
            "them under env",
        ),
    )
    for is_wrong, text in faults:
        if is_wrong:
            raise ConfigError(f"study {folder.name!r} {text}")


def _own_space(folder: StudyFolder) -> list[str]:
    if not folder.study_file.is_file():
        raise ConfigError(
            f"{folder.study_file} is gone, and a record holds it: put the study's file there"
        )
    given = plain(read_text(folder.study_file.read_text(encoding="utf-8"), str(folder.study_file)))
    space = given.get("space") if isinstance(given, Mapping) else None
    name = str(space["file"]) if isinstance(space, Mapping) and "file" in space else ""
    return [name] if name and not (Path(hpo.__file__).parent / name).is_file() else []


def _confirm_steps(folder: StudyFolder) -> int:
    """Return the env steps trained on new seeds, from the curves."""
    from hpo.store.query import query

    _, rows = query(
        folder.path,
        "SELECT coalesce(sum(most), 0) FROM (SELECT max(env_steps) AS most FROM curves "
        "WHERE stream <> 'search' GROUP BY trial, stream, replicate)",
    )
    return int(rows[0][0])


def _given_text(folder: StudyFolder, study: Study) -> str:
    text = folder.study_file.read_text(encoding="utf-8")
    try:
        given = loads(text, str(folder.study_file))
    except StudyError as error:
        raise ConfigError(f"{folder.study_file} is not a study: {error}") from None
    changes = [one for one in diff(resolved(given), resolved(study)) if one.key != "name"]
    if changes:
        raise ConfigError(
            f"study {folder.name!r} ran with other settings than its file says: "
            f"{'; '.join(map(str, changes))}. Write them into the file and start another study",
            new=True,
        )
    return text


def contribute(
    candidate: Candidate,
    out: Path,
    seeds: int = SEEDS,
    runner: Runner = run,
    name: str | None = None,
) -> TunedRecord | None:
    """Run the winner, the default and published configurations; None if interrupted."""
    only_ppo(candidate.study, "a tuned configuration")
    only_one_environment(candidate.study, "a tuned configuration")
    study, others = candidate.study, published(candidate.study.env.id)
    own_keys = study.env.values
    name = name or (study.name.removeprefix("tuned-") if own_keys else study.env.id)
    stem = file_name(name).removesuffix(".yaml")
    root = study_seed(study.seed, f"tuned proof of {name}")
    configs: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
        TUNED: (candidate.config, {}),
        DEFAULT: (complete({}), {}),
        **{other.by: (complete(other.knobs), other.source) for other in others},
    }
    commit, runs = commit_of_checkout(), dict[str, Runs]()
    # The default first: without it, an environment cannot have a record.
    for who in (DEFAULT, *(who for who in configs if who != DEFAULT)):
        config, _ = configs[who]
        rules = study.baselines if who == TUNED else ()
        own = proof_study(study, f"{stem}.proof.{who}", config, seeds, root, baselines=rules)
        with _counted(out, own.name, commit) as spent:
            found = run_proof(own, out, runner)
        if found is None:
            return None
        runs[who] = replace(found, cost=replace(found.cost, cpu_seconds=spent()))
    with Journal(out / f"{stem}.proof.{TUNED}") as journal:
        meta, heuristics = journal.meta, baselines_of(journal)
    goal = study.metric.goal
    scale = None if own_keys else reference_of(study.env.id, study.metric.name)
    threshold = threshold_of([curve_of(one) for one in runs.values()], goal, scale)
    how = study.evaluation
    return TunedRecord(
        name=name,
        env=study.env.id,
        env_values=study.env.values,
        env_steps=study.env_steps,
        metric=study.metric.name,
        goal=goal,
        evaluation={
            "episodes": how.episodes,
            **({} if how.steps is None else {"steps": how.steps}),
            "greedy": how.greedy,
        },
        seed=root,
        threshold=threshold,
        made=Provenance(
            on=datetime.datetime.fromtimestamp(meta.created_at, datetime.UTC).date().isoformat(),
            commit=commit,
            versions={**versions([study.env.id]), "hpo-lanes": __version__},
            backend=meta.backend,
            devices=meta.devices,
        ),
        origin=candidate.origin,
        contenders=tuple(
            contender_of(who, config, runs[who], threshold, goal, source=source)
            for who, (config, source) in configs.items()
        ),
        heuristics={row.baseline: row.values[Stream.SEARCH] for row in heuristics},
    )


@contextmanager
def _counted(out: Path, name: str, commit: str) -> Generator[Callable[[], float | None]]:
    """Count the CPU seconds of a run in a file, over all its processes.

    The cost of a run that is older than the file, or that was killed, is unknown: None.
    """
    path = out / f"{name}.made.json"
    known = {"seconds": 0.0, "running": (out / name).exists(), "commit": commit}
    if path.is_file():
        known = json.loads(path.read_text(encoding="utf-8"))
    if known["commit"] != commit:
        raise ConfigError(
            f"{out / name} was started by commit {known['commit'] or 'unknown'}, and this is "
            f"{commit or 'unknown'}; remove {out / name} and {path}, or check that commit out"
        )
    lost, total, begun = bool(known["running"]), float(known["seconds"]), time.process_time()

    def write(running: bool) -> None:
        text = json.dumps({"seconds": total, "running": running, "commit": commit})
        atomic_files.write_text(path, text)

    path.parent.mkdir(parents=True, exist_ok=True)
    write(running=True)
    try:
        yield lambda: None if lost else total
    finally:
        total += time.process_time() - begun
        write(running=lost)


_WAY = 0.9


def threshold_of(
    curves: Sequence[Curve], goal: str = "maximize", scale: Reference | None = None
) -> float:
    """Return the value whose first attainment is timed, to six digits.

    If random actions and a reference score were measured, it is 90 % of the way from the former to
    the latter. Otherwise it is 90 % of the way from the worst first evaluation to the best last
    one, so that at least one contender reaches it and none starts there.
    """
    best, worst = (max, min) if goal == "maximize" else (min, max)
    if scale is None:
        start = worst(curve.greedy[0] for curve in curves)
        end = best(curve.greedy[-1] for curve in curves)
    else:
        start, end = scale.random, scale.reference
    return float(f"{start + _WAY * (end - start):.6g}")


def commit_of_checkout() -> str:
    """Return the commit of the current checkout, with `+` if it was changed; else ""."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""

    def said(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # Files that records and the atlas themselves change.
        ours = (".", *(f":!{path}" for path in _MADE))
        changed = said("status", "--porcelain", "--untracked-files=no", "--", *ours)
        return said("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):  # no git here, or no history
        return ""
