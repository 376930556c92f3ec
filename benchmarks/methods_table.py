"""Search methods compared: regret over env steps, with intervals over repetitions.

Every method searches the same study with the same training env steps, several times with different
seeds; evaluations are not counted. At some shares of the budget, a method's choice is the best
finished trial by its search value, among the trials that had ended when so many env steps had been
spent on ended trials (below the full budget, env steps of running trials are not counted); before
any has finished, it is the default. Every choice is then trained on judge seeds, which no search
used: each repetition has separate ones, equal for all methods. Regret is the judge mean of the
best known configuration minus that of the choice. The best known one has the best judge mean of
all choices and the default, which is optimistic, equally for every method. The table shows the
median over repetitions with its interval by order statistics, which is valid for any distribution;
each interval holds by itself. `no search` is the default configuration. How often a method chooses
better than tpe is computed by `against_the_usual.py`, and only that should be used to compare
methods.

Trials of all methods except `pbt` and `pb2` are stopped as in the study, and nothing is confirmed.
`pbt` and `pb2` choose a schedule instead of one configuration: the population is as large as the
budget allows, without early stopping, and has a choice only at the end. Its confirm stage trains
the schedule on separate seeds, which are not counted in any method's budget; the policy made by
the population does not count.

    python benchmarks/methods_table.py benchmarks/methods/Acrobot-v1.yaml --methods random,tpe,gp
    python benchmarks/methods_table.py benchmarks/methods/*.yaml --small

All runs can be resumed: repeat the command. With more repetitions, only new configurations are
judged.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import against_the_usual
from checkout import make_importable

METHODS = ("random", "sobol", "tpe", "gp", "cmaes", "smac", "pbt", "pb2")
EVOLVING = ("pbt", "pb2")
COPIES = 16
"""How many times a population copies in one run."""
SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)
COMPARED = (0.5, 1.0)
"""The shares of the budget at which methods are compared with the usual one."""
USUAL = "tpe"
"""The method that `hpo init` writes."""


@dataclass(frozen=True)
class Ended:
    """A search trial that has ended.

    Attributes:
        config: the searched values.
        value: value at the end of a full run; None for a stopped trial.
        env_steps: env steps used.
        number: number of the trial.
    """

    config: Mapping[str, Any]
    value: float | None
    env_steps: int
    number: int = 0


@dataclass(frozen=True)
class Row:
    """One method at one share of the budget.

    Attributes:
        study, method: their names.
        env_steps: part of the budget used so far.
        repetitions: number of searches.
        regret: median over repetitions, in units of the metric.
        low, high: its 95 % interval, None with fewer than 6 repetitions.
    """

    study: str
    method: str
    env_steps: int
    repetitions: int
    regret: float
    low: float | None
    high: float | None


def choices(
    trials: Sequence[Ended], budgets: Sequence[float], goal: str
) -> list[Mapping[str, Any] | None]:
    """Return the choice at every budget, None before a trial has finished.

    Args:
        trials: in the order in which they ended.
        budgets: env steps, ascending.
        goal: goal of the metric.
    """
    sign = 1.0 if goal == "maximize" else -1.0
    found, best, chosen, spent, place = [], (-math.inf, 0), None, 0, 0
    for budget in budgets:
        while place < len(trials) and spent + trials[place].env_steps <= budget:
            one = trials[place]
            spent, place = spent + one.env_steps, place + 1
            if one.value is not None and (sign * one.value, -one.number) > best:
                best, chosen = (sign * one.value, -one.number), one.config
        found.append(chosen)
    return found


def rows_of(
    study: str,
    chosen: Mapping[str, Sequence[Sequence[float | None]]],
    budgets: Sequence[float],
    best: float,
    goal: str,
) -> list[Row]:
    """Return the rows of a study.

    Args:
        study: name of the study.
        chosen: method -> repetition -> judge mean of the choice at every budget.
        budgets: env steps.
        best: judge mean of the best known configuration.
        goal: goal of the metric.
    """
    sign, found = (1.0 if goal == "maximize" else -1.0), list[Row]()
    for method, repetitions in chosen.items():
        for at, budget in enumerate(budgets):
            seen = [values[at] for values in repetitions]
            regrets = [sign * (best - value) for value in seen if value is not None]
            if regrets:
                found.append(Row(study, method, round(budget), len(regrets), *middle(regrets)))
    return found


def middle(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Return the median and its 95 % interval by order statistics, for any distribution.

    The ends are None with fewer than 6 values.
    """
    ordered, count, below, rank = sorted(values), len(values), 0.0, 0
    while True:  # how many may be beyond each end: at most 2.5 % by chance
        below += math.comb(count, rank) / 2**count
        if below > 0.025:
            break
        rank += 1
    half = statistics.median(ordered)
    return (half, ordered[rank - 1], ordered[-rank]) if rank else (half, None, None)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    from hpo.views.formatting import number, steps

    head = ("study", "method", "training env steps", "repetitions", "median regret", "95 %")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        around = (
            ""
            if row.low is None or row.high is None
            else (f"[{number(row.low)}, {number(row.high)}]")
        )
        cells = (
            row.study,
            row.method,
            steps(row.env_steps),
            f"{row.repetitions}",
            number(row.regret),
            around,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# ---------------------------------------------------------------------- runs


class Runs:
    """The searches and judge runs of one study, in a folder from which they resume.

    Attributes:
        study: the study in its file.
        budget: env steps of a search.
    """

    def __init__(self, study: Any, out: Path, full_runs: int, judges: int):
        self.study, self._out, self._judges = study, out / study.name, judges
        self.full_runs = full_runs
        self.budget = full_runs * study.env_steps * study.seeds.per_config

    def search(self, method: str, repetition: int) -> list[Ended]:
        """Run one search, and return its trials in the order in which they ended."""
        from hpo.studies.execution_spec import Budget
        from hpo.studies.search_spec import SearchSpec

        rows = self._run(
            replace(
                self._asked(method, repetition),
                search=SearchSpec(method),
                confirm=None,
                budget=Budget(
                    trials=100 * self.budget // self.study.env_steps, env_steps=self.budget
                ),
            )
        )
        rows = [row for row in rows if row.ended_at is not None]
        rows.sort(key=lambda row: (row.ended_at, row.trial))
        return [Ended(row.params, row.value, row.env_steps, row.trial) for row in rows]

    def evolve(self, rule: str, repetition: int) -> float | None:
        """Run one evolving population, and return the judge mean of the schedule that it chose.

        Returns None if it could not choose any.
        """
        from hpo.studies.execution_spec import Budget
        from hpo.studies.search_spec import Confirm, EarlyTerminate, SearchSpec

        rows = self._run(
            replace(
                self._asked(rule, repetition),
                search=SearchSpec("random"),
                early_terminate=EarlyTerminate(rule, every=self.study.env_steps // COPIES),
                confirm=Confirm(top_k=1, choose=1, report=self._judges, default=False),
                budget=Budget(trials=self.full_runs),
                population=replace(self.study.population, lanes=None),  # all side by side
            )
        )
        chosen = [row for row in rows if row.report_values]
        return self._mean(chosen[0].report_values) if chosen else None

    def judge(self, configs: Sequence[Mapping[str, Any]], repetition: int) -> dict[str, float]:
        """Return the means on a repetition's judge seeds, by `key_of`.

        A diverged seed counts as its configuration's worst value. All configurations that were not
        judged before run side by side, in one study.
        """
        from hpo.search.seeds import study_seed
        from hpo.studies.execution_spec import Budget
        from hpo.studies.search_spec import SearchSpec, Seeds

        known = self._judged_before(repetition)
        new = {key_of(one): one for one in configs if key_of(one) not in known}
        if new:
            told = hashlib.sha256("".join(sorted(new)).encode()).hexdigest()[:12]
            asked = replace(
                self._asked("judge", 0),
                name=f"judge-{self._judges}-{repetition:02d}-{told}",
                seed=study_seed(self.study.seed, "methods-table judge", repetition),
                search=SearchSpec("random"),
                early_terminate=None,
                enqueue=tuple(new[key] for key in sorted(new)),
                seeds=Seeds(self._judges, tolerate=self._judges - 1),
                evaluation=replace(self.study.evaluation, every="rungs"),
                confirm=None,
                budget=Budget(trials=1 + len(new)),  # the default comes first
            )
            self._run(asked)
            known = self._judged_before(repetition)
        return known

    def _judged_before(self, repetition: int) -> dict[str, float]:
        from hpo.store.journal import Journal

        known = dict[str, float]()
        for folder in sorted(self._out.glob(f"judge-{self._judges}-{repetition:02d}-*")):
            with Journal(folder) as journal:
                if journal.head().phase == "finished":
                    known |= {
                        key_of(row.params): self._mean(row.seed_values)
                        for row in journal.trials()
                        if row.trial >= 0
                    }
        return known

    def _asked(self, method: str, repetition: int) -> Any:
        from hpo.search.seeds import study_seed
        from hpo.studies.execution_spec import Checkpoint

        return replace(
            self.study,
            name=f"{method}-{repetition:02d}",
            seed=study_seed(self.study.seed, "methods-table", repetition),
            checkpoint=Checkpoint(keep_best=0),
        )

    def _run(self, asked: Any) -> list[Any]:
        """Run a study to its end and return its trials."""
        from hpo.search.api import run
        from hpo.store.journal import Journal

        results = run(asked, self._out)
        if results.state != "finished":
            raise KeyboardInterrupt
        with Journal(results.folder) as journal:
            return [row for row in journal.trials() if row.trial >= 0]

    def _mean(self, values: Sequence[float]) -> float:
        """Return the mean over all judge seeds; missing values count as the worst."""
        if not values:
            return -math.inf if self.study.metric.goal == "maximize" else math.inf
        worst = min(values) if self.study.metric.goal == "maximize" else max(values)
        return math.fsum([*values, *[worst] * (self._judges - len(values))]) / self._judges


def key_of(config: Mapping[str, Any]) -> str:
    """Return a configuration as text."""
    return json.dumps(config, sort_keys=True, default=str)


def shares_its_best(trials: Sequence[Ended], goal: str) -> bool:
    """Return whether trials tie for best, which makes the choice depend on their order."""
    values = [one.value for one in trials if one.value is not None]
    best = max(values, default=0.0) if goal == "maximize" else min(values, default=0.0)
    return values.count(best) > 1


def measure(
    runs: Runs, methods: Sequence[str], repetitions: int
) -> tuple[list[Row], against_the_usual.Choices, list[bool], list[float]]:
    """Run the searches and judge their choices.

    Returns:
        The rows of one study; the choices, larger is better; for each search, whether several
        trials had its best value; and, except for evolving methods, how much better than the
        default its final choice is on the same judge seeds.
    """
    goal = runs.study.metric.goal
    budgets = [share * runs.budget for share in SHARES]
    searched = {
        method: [runs.search(method, at) for at in range(repetitions)]
        for method in methods
        if method not in EVOLVING
    }
    tied = [shares_its_best(trials, goal) for each in searched.values() for trials in each]
    picked = {
        method: [choices(trials, budgets, goal) for trials in each]
        for method, each in searched.items()
    }
    default = runs.study.space.default()
    worth = [
        runs.judge([default, *(one for each in picked.values() for one in each[at] if one)], at)
        for at in range(repetitions)
    ]

    def of(method: str, at: int) -> Iterator[float | None]:
        """Yield the values of a repetition's choices, or the default's where none was made."""
        if method in EVOLVING:
            found = runs.evolve(method, at)
            yield from [None] * (len(SHARES) - 1)
            yield worth[at][key_of(default)] if found is None else found
        else:
            yield from (worth[at][key_of(one or default)] for one in picked[method][at])

    nothing = [[worth[at][key_of(default)]] for at in range(repetitions)]
    judged = {method: [list(of(method, at)) for at in range(repetitions)] for method in methods}
    known = [
        value for each in judged.values() for row in each for value in row if value is not None
    ]
    known += [value for (value,) in nothing]
    best = max(known) if goal == "maximize" else min(known)
    rows = rows_of(runs.study.name, {"no search": nothing}, [0.0], best, goal)
    rows += rows_of(runs.study.name, judged, budgets, best, goal)
    sign = 1.0 if goal == "maximize" else -1.0
    larger = {
        method: [[None if value is None else sign * value for value in row] for row in each]
        for method, each in judged.items()
    }
    gains = [
        larger[method][at][-1] - sign * nothing[at][0]
        for method in searched
        for at in range(repetitions)
    ]
    return rows, larger, tied, gains


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; return 2 for a mistake, 130 if interrupted."""
    parser = argparse.ArgumentParser(description="Put search methods side by side.")
    parser.add_argument("studies", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--methods", default=",".join(METHODS), metavar="NAME,NAME")
    parser.add_argument("--repetitions", type=int, default=10, metavar="N")
    parser.add_argument(
        "--full-runs",
        type=int,
        default=48,
        metavar="N",
        help="budget: so many trials of all seeds to their end",
    )
    parser.add_argument("--judges", type=int, default=16, metavar="N", help="judge seeds")
    parser.add_argument("--small", action="store_true", help="2 methods, 2 repetitions, short")
    parser.add_argument("--out", type=Path, default=Path("results/methods"), metavar="FOLDER")
    args = parser.parse_args(words)
    make_importable()
    from hpo.errors import ConfigError, HpoError
    from hpo.studies.load import load
    from hpo.studies.study_environments import only_one_environment
    from hpo.version import __version__

    methods = ["random", "tpe"] if args.small else args.methods.split(",")
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        print(
            f"--methods: {unknown[0]!r} cannot be judged here; known: {', '.join(METHODS)}",
            file=sys.stderr,
        )
        return 2
    if args.small:
        args.repetitions, args.full_runs, args.judges = 2, 4, 2
        args.out = args.out / "small"
    begun, rows, chosen = time.process_time(), list[Row](), []
    beside_default: list[dict[str, Any]] = []
    try:
        for path in args.studies:
            study = load(path)
            only_one_environment(study, "methods_table.py")
            if study.objectives or study.constraints:
                raise ConfigError(f"{path} has several objectives; regret needs one value")
            runs = Runs(study, args.out, args.full_runs, args.judges)
            found, choices_here, tied, gains = measure(runs, methods, args.repetitions)
            rows, chosen = [*rows, *found], [*chosen, choices_here]
            better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
            beside_default.append(
                {"study": study.name, "searches": len(gains), "better": better, "worse": worse}
            )
            print(
                f"{study.name}: on judge seeds the choice of {len(gains)} searches is better "
                f"than the default in {better}, worse in {worse}"
            )
            if any(tied):
                print(
                    f"{study.name}: in {sum(tied)} of {len(tied)} searches several trials had "
                    "the best value, and the first of them was chosen"
                )
    except HpoError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
    print(table(rows))
    beside = against_the_usual.against(chosen, USUAL, SHARES, COMPARED)
    if beside:
        print(f"\n{against_the_usual.table(beside)}")
    about = {
        "hpo": __version__,
        "python": platform.python_version(),
        "cpu_seconds_of_this_process": time.process_time() - begun,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    data = {
        "about": about,
        "full_runs": args.full_runs,
        "judges": args.judges,
        "rows": [asdict(row) for row in rows],
        "beside_default": beside_default,
        "against": [asdict(one) | {"verdict": one.verdict} for one in beside],
    }
    (args.out / "methods_table.json").write_text(json.dumps(data, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
