"""`hpo train` and `hpo confirm`: training of given configurations."""

from __future__ import annotations

import importlib.util
import sys
from argparse import Namespace
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import ConfigError, clause, counted, install_command
from ...search.api import ask, confirm
from ...search.engine.extend_run import single_as_begun
from ...search.run import RunResults
from ...store.mean_difference import FEWEST_PAIRS
from ...store.study_folder import StudyFolder, find_study
from ...studies.spec import Study
from ...studies.study_environments import env_words, metric_words, value_words
from ...studies.train_study import single
from ...studies.tuned.study_text import load_given
from ..arguments import path_or_none
from ..formatting import number, params_text, steps, with_interval
from ..output import finite_or_none, note, print_answer
from ..terminal.console import in_columns, knows_blocks
from ..time_spent import confirm_cost
from ..trial_page import TrialPage, trial_page
from ..trial_text import curve_line
from .compare import do_compare, number_in
from .read_study import check_export, do_top, eval_command, export_policy
from .watched_run import (
    INTERRUPTED,
    before_code_of,
    resume_command,
    watch,
    watch_run,
    write_report_of,
)


def do_confirm(args: Namespace) -> int:
    study, trials = _study_and_trials(args)
    source = path_or_none(args.source)
    folder = find_study(study, Path(args.out))
    asked = ask(folder, trials, args.seeds, source, args.accept_changed_files)
    if asked.seeds < FEWEST_PAIRS and not args.quiet:
        words = f"{asked.seeds} test seeds cannot decide a comparison, which needs at least "
        note(f"{words}{FEWEST_PAIRS}; use --seeds {FEWEST_PAIRS}")
    if not args.quiet:
        cost = confirm_cost(asked.folder.path, asked.trials, asked.seeds)
        note(f"{counted(len(asked.trials), 'trial')} on {asked.seeds} test seeds: {cost}")
    command = resume_command(args.argv, None)
    run = partial(confirm, asked)
    results = watch_run(run, args, command, asked.folder.path, write_report_of)
    if results.state == "interrupted":
        return INTERRUPTED
    shown = Namespace(study=str(results.folder), out=args.out, json=args.json)
    if len(asked.trials) != 2:
        return do_top(Namespace(**vars(shown), n=None, explain=False, latex=False, markdown=False))
    a, b = map(str, asked.trials)
    return do_compare(Namespace(**vars(shown), a=a, b=b))


def _study_and_trials(args: Namespace) -> tuple[str | None, list[int]]:
    words, study = list(args.words), args.study
    if number_in(words[0]) is None:
        if study is not None:
            raise ConfigError(f"the study is given twice, as {words[0]} and as {study}; keep one")
        study = words.pop(0)
    odd = next((word for word in words if number_in(word) is None), None)
    if odd is not None:
        raise ConfigError(f"{odd!r} is not a trial number; `hpo top` lists them")
    if not words:
        raise ConfigError(f"give the trials to confirm, such as: hpo confirm {study} 9 6")
    return study, [int(word) for word in words]


def do_train(args: Namespace) -> int:
    given, text = load_given(args.file, args.set, args.name, before_code_of(args))
    study = single(given)
    if not args.new:
        study = single_as_begun(given, Path(args.out) / given.name)
    if args.export is not None:
        check_export(Path(args.export))
    if given.space.parameters and not args.quiet:
        own = params_text(given.space.default())
        words = f"training only the default configuration of the space: {own}"
        note(in_columns(words, sys.stderr))
    results = watch(study, text, args)
    if results.state == "interrupted":
        return INTERRUPTED
    found = _read_trained(study, results)
    if found.value is not None:
        found = replace(found, picture=_draw_curves(results))
    if args.export is not None and found.policy is not None:
        target = Path(args.export)
        export_policy(StudyFolder(results.folder), 0, target)
        found = replace(found, policy=target, seed_policies=_policy_folders(target / "seeds"))
    print_answer(args.json, found.as_json(), found.text())
    return 0 if found.value is not None else 1


def _policy_folders(parent: Path) -> list[str]:
    return [str(path) for path in sorted(parent.glob("*"), key=lambda path: int(path.name))]


def _draw_curves(results: RunResults) -> str | None:
    if importlib.util.find_spec("matplotlib") is None:
        note(f"no plot: matplotlib is not installed; run: {install_command('plot')}")
        return None
    from ..charts.matplotlib_files import draw_picture
    from ..charts.search_charts import curves
    from ..charts.snapshot import read_snapshot

    path = results.folder / "training.png"
    snapshot = read_snapshot(StudyFolder(results.folder))
    draw_picture(path, curves(snapshot), results.folder.name)
    return str(path)


@dataclass(frozen=True)
class Trained:
    """A configuration that was trained, and the files made from it."""

    study: Study
    folder: Path
    page: TrialPage
    policy: Path | None  # of the first seed
    seed_policies: list[str]
    picture: str | None = None

    @property
    def value(self) -> float | None:
        """The configuration's value, or None if no seed has one."""
        return finite_or_none(self.page.entry.value)

    def as_json(self) -> dict[str, Any]:
        trial = self.page.as_json()
        policy = None
        if self.policy is not None:
            policy = str(self.policy)
        return {
            "name": self.study.name,
            "env": env_words(self.study),
            "metric": metric_words(self.study),
            "folder": str(self.folder),
            **{name: trial[name] for name in _OF_TRIAL},
            "policy": policy,
            "seed_policies": self.seed_policies,
            "picture": self.picture,
            **{name: found for name, found in trial.items() if name == "over_environments"},
        }

    def text(self) -> str:
        lines = [self._head_line(), *self._value_lines()]
        if self.page.scores is not None:
            each = self.page.scores["environments"]
            scores = [f"{one['environment']} {number(one['score'])}" for one in each]
            lines.append(f"scores   {', '.join(scores)}")
        lines += self._curve_lines()
        if self.picture is not None:
            lines.append(f"picture  {self.picture}")
        return "\n".join([*lines, *self._policy_lines()])

    def _head_line(self) -> str:
        study = self.study
        trained = max((point.env_steps for point in self.page.curve), default=study.env_steps)
        seeds = counted(study.seeds.per_config, "seed")
        length = f"{seeds} of {steps(trained)} {study.algorithm.unit}"
        if study.more_envs:
            length += " on each"
        return f"{study.name}: {env_words(study)}, {length}"

    def _value_lines(self) -> list[str]:
        study, row, entry = self.study, self.page.row, self.page.entry
        if self.value is None:
            return [f"state    {entry.state}{clause(': {}', row.error)}; see hpo show 0"]
        how = f"{study.metric.aggregate} of {counted(entry.seeds, 'seed')}"
        low, high = finite_or_none(entry.ci_low), finite_or_none(entry.ci_high)
        alone = not self.page.training_weight
        if alone:
            how += ", from evaluation episodes"
        lines = [
            f"value    {with_interval(self.value, low, high)}",
            f"         {value_words(study, alone)}, {how}",
            f"seeds    {' '.join(map(number, row.seed_values))}",
        ]
        if lost := study.seeds.per_config - entry.seeds:
            lines.append(f"lost     {counted(lost, 'seed')} diverged and left no value or policy")
        return lines

    def _curve_lines(self) -> list[str]:
        lines: list[str] = []
        for name in dict.fromkeys(point.environment for point in self.page.curve):
            points = [point for point in self.page.curve if point.environment == name]
            if line := curve_line(points, 50, knows_blocks(sys.stdout)):
                lines.append(f"return   {line}{clause(' on {}', name)}")
        return lines

    def _policy_lines(self) -> list[str]:
        if self.study.algorithm.is_process:
            return [f"output   {self.folder}/processes/trial_0/"]
        if self.policy is None:
            return []
        way = eval_command(self.policy, self.study.imports)
        lines = [f"policy   {self.policy}/; try: {way}"]
        if len(self.seed_policies) > 1:
            every = Path(self.seed_policies[0]).parent
            lines.append(f"         (the first seed; all seeds: {every}/)")
        return lines


_OF_TRIAL = (
    "state", "error", "value", "ci_low", "ci_high", "seeds", "seed_values", "env_steps",
    "evaluations", "curve", "training_weight",
)  # fmt: skip


def _read_trained(study: Study, results: RunResults) -> Trained:
    folder = StudyFolder(results.folder)
    policy = folder.policies / "trial_0"
    seed_policies = _policy_folders(folder.policies / "trial_0_seeds")
    if not policy.is_dir():
        policy = None
    return Trained(
        study,
        results.folder,
        trial_page(folder, 0),
        policy=policy,
        seed_policies=seed_policies,
    )
