"""`hpo train`: one configuration on all its seeds, watched, drawn and exported."""

from __future__ import annotations

import importlib.util
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...search.engine.growth import single_as_begun
from ...search.run import Results
from ...store.by_environment import ENVIRONMENT
from ...store.query import query
from ...store.study_folder import StudyFolder, one_policy
from ...studies.several import env_words, metric_words
from ...studies.single import single
from ...studies.spec import Study
from ...studies.tuned.given import load_given
from ..documents import print_answer
from ..formatting import between, counted, number, param, sparkline, steps
from ..terminal.console import in_columns, knows_blocks
from ..trial_text import trial_data
from ..visible import echo
from .read_study import check_export, export_policy
from .watched_run import INTERRUPTED, watch

__all__ = ["do_train"]

_PICTURE = "training.png"
_DIVERGED = 1


def do_train(args: Namespace) -> int:
    """Train one configuration, show its results, and return the exit code.

    Raises:
        HpoError: see `search.api.run`.
    """
    given, text = load_given(args.file, args.set, args.name)
    study = single(given)
    if not args.new:
        study = single_as_begun(given, Path(args.out) / given.name)
    if args.export is not None:
        check_export(Path(args.export))
    if given.space.parameters and not args.quiet:
        own = ", ".join(f"{name} {param(value)}" for name, value in given.space.default().items())
        words = f"training one configuration, the space's default: {own}"
        echo(in_columns(words, sys.stderr), file=sys.stderr)
    results = watch(study, text, args)
    if results.state == "interrupted":
        return INTERRUPTED
    data = _data(study, results)
    if data["value"] is not None:
        data["picture"] = _picture(study, results)
    if args.export is not None and data["policy"] is not None:
        target = export_policy(StudyFolder(results.folder), 0, Path(args.export))
        data |= {"policy": str(target), "seed_policies": _folders(target / "seeds")}
    print_answer(args.json, data, _text(study, data))
    return 0 if data["value"] is not None else _DIVERGED


def _data(study: Study, results: Results) -> dict[str, Any]:
    folder = StudyFolder(results.folder)
    trial = trial_data(folder, 0)
    policy = folder.policies / "trial_0"
    names = ("state", "error", "value", "ci_low", "ci_high", "seeds", "seed_values",
             "env_steps", "evaluations", "curve")  # fmt: skip
    return {
        "name": study.name,
        "env": env_words(study),
        "metric": metric_words(study),
        "folder": str(results.folder),
        **{name: trial[name] for name in names},
        "policy": str(policy) if policy.is_dir() else None,
        "seed_policies": _folders(policy.with_name(f"{policy.name}_seeds")),
        "picture": None,
        **{name: trial[name] for name in ("over_environments",) if name in trial},
    }


def _folders(parent: Path) -> list[str]:
    """Return the policies of the seeds in a folder, in their order."""
    return [str(path) for path in sorted(parent.glob("*"), key=lambda path: int(path.name))]


def _picture(study: Study, results: Results) -> str | None:
    """Draw the curve of every seed, if matplotlib is installed."""
    if study.more_envs:
        text = f"no picture: returns on {env_words(study)} have unlike scales; see hpo report"
        echo(text, file=sys.stderr)
        return None
    if importlib.util.find_spec("matplotlib") is None:
        echo("no picture: matplotlib is missing; pip install 'hpo-lanes[plot]'", file=sys.stderr)
        return None
    from ..pictures import draw_training

    path = results.folder / _PICTURE
    title = f"{study.name}: {env_words(study)}"
    draw_training(path, _seeds(results.folder), _evaluations(results.folder), title)
    return str(path)


def _seeds(folder: Path) -> Sequence[Sequence[tuple[int, float]]]:
    """Return the training return of each seed, (env steps, return)."""
    _, rows = query(
        folder,
        "SELECT replicate, env_steps, episode_return FROM curves "
        "WHERE trial = 0 AND isfinite(episode_return) ORDER BY replicate, env_steps",
    )
    return _by_seed(rows)


def _evaluations(folder: Path) -> Sequence[Sequence[tuple[int, float]]]:
    """Return the mean return of each seed's evaluations, (env steps, return)."""
    _, rows = query(
        folder,
        "SELECT replicate, env_steps, avg(episode_return) FROM evaluations WHERE trial = 0 "
        "GROUP BY replicate, env_steps ORDER BY replicate, env_steps",
    )
    return _by_seed(rows)


def _by_seed(rows: Sequence[tuple[Any, ...]]) -> Sequence[Sequence[tuple[int, float]]]:
    seeds: dict[int, list[tuple[int, float]]] = {}
    for replicate, at, value in rows:
        seeds.setdefault(replicate, []).append((at, value))
    return list(seeds.values())


def _text(study: Study, data: Mapping[str, Any]) -> str:
    each = steps(max((point["env_steps"] for point in data["curve"]), default=study.env_steps))
    seeds = counted(study.seeds.per_config, "seed")
    on = " on each" if study.more_envs else ""
    lines = [f"{data['name']}: {data['env']}, {seeds} of {each} env steps{on}"]
    if data["value"] is None:
        words = f": {data['error']}" if data["error"] else ""
        lines.append(f"state    {data['state']}{words}; see hpo show 0")
    else:
        around = between(data["ci_low"], data["ci_high"])
        how = f"{study.metric.aggregate} of {counted(data['seeds'], 'seed')}"
        lines.append(f"value    {number(data['value'])} {around}".rstrip())
        lines.append(f"         {data['metric']}, {how}, from evaluation episodes")
        lines.append(f"seeds    {' '.join(number(value) for value in data['seed_values'])}")
        lost = study.seeds.per_config - data["seeds"]
        if lost:
            lines.append(f"lost     {counted(lost, 'seed')} diverged: no value, no policy")
    if "over_environments" in data:
        each_environment = data["over_environments"]["environments"]
        told = [f"{one['environment']} {number(one['score'])}" for one in each_environment]
        lines.append(f"scores   {', '.join(told)}")
    for name in dict.fromkeys(point.get(ENVIRONMENT) for point in data["curve"]):
        points = [
            point["episode_return"] for point in data["curve"] if point.get(ENVIRONMENT) == name
        ]
        finite = [point for point in points if point is not None]
        if finite:
            line = sparkline(points, 50, plain=not knows_blocks(sys.stdout))
            on = "" if name is None else f" on {name}"
            lines.append(f"return   {number(finite[0])} {line} {number(finite[-1])}{on}")
    if data["picture"] is not None:
        lines.append(f"picture  {data['picture']}")
    if data["policy"] is not None:
        policy = one_policy(Path(data["policy"]))
        lines.append(f"policy   {data['policy']}/; try: hpo eval {policy}")
        if len(data["seed_policies"]) > 1:
            every = Path(data["seed_policies"][0]).parent
            lines.append(f"         of the first seed; those of all seeds: {every}/")
    return "\n".join(lines)
