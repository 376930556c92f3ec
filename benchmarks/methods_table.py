"""Search methods side by side: regret over env steps, with intervals over repetitions.

Every method searches the same study for the same env steps, several times with other seeds. At
some shares of the budget its choice is the best finished trial by its own search values, of the
trials that had ended when so many env steps were spent on ended trials. Every choice is then
trained on judge seeds, which no search used. Regret is the judge mean of the best known
configuration less that of the choice. The best known one has the best judge mean of all choices
and the default, which flatters it, by the same for every method. Intervals: Student's over 5 to 10
repetitions, bootstrap over more.

    python benchmarks/methods_table.py studies/tuned/CartPole-v1.yaml --methods random,tpe,gp
    python benchmarks/methods_table.py studies/tuned/Catch-bsuite.yaml --small

Everything resumes: run the same command again. `pbt` and `pb2` choose a schedule and not one
configuration, which judge seeds cannot train here; they are refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from checkout import make_importable

METHODS = ("random", "sobol", "tpe", "gp", "cmaes", "smac")
SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Ended:
    """A trial of a search that has ended.

    Attributes:
        config: what it searched.
        value: at the end of a full run; None of one that was stopped.
        env_steps: it took.
    """

    config: Mapping[str, Any]
    value: float | None
    env_steps: int


@dataclass(frozen=True)
class Row:
    """One method at one share of the budget.

    Attributes:
        study, method: whose.
        env_steps: of the budget so far.
        repetitions: that had a choice there.
        regret: mean over repetitions, in units of the metric.
        low, high: its 95 % interval, None with fewer than 5 repetitions.
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
        budgets: env steps, rising.
        goal: of the metric.
    """
    sign = 1.0 if goal == "maximize" else -1.0
    found, best, chosen, spent, place = [], -math.inf, None, 0, 0
    for budget in budgets:
        while place < len(trials) and spent + trials[place].env_steps <= budget:
            one = trials[place]
            spent, place = spent + one.env_steps, place + 1
            if one.value is not None and sign * one.value > best:
                best, chosen = sign * one.value, one.config
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
        study: its name.
        chosen: method -> repetition -> judge mean of the choice at every budget.
        budgets: env steps.
        best: judge mean of the best known configuration.
        goal: of the metric.
    """
    from hpo.store.statistics import interval, mean

    sign, found = (1.0 if goal == "maximize" else -1.0), list[Row]()
    for method, repetitions in chosen.items():
        for at, budget in enumerate(budgets):
            seen = [values[at] for values in repetitions]
            regrets = [sign * (best - value) for value in seen if value is not None]
            if regrets:
                around = interval(regrets)
                found.append(Row(study, method, round(budget), len(regrets), mean(regrets),
                                 around.low, around.high))  # fmt: skip
    return found


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table of Markdown."""
    from hpo.views.formatting import number, steps

    head = ("study", "method", "env steps", "repetitions", "regret", "95 %")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        around = "" if row.low is None or row.high is None else (
            f"[{number(row.low)}, {number(row.high)}]"
        )  # fmt: skip
        cells = (row.study, row.method, steps(row.env_steps), f"{row.repetitions}",
                 number(row.regret), around)  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# ---------------------------------------------------------------------- runs


class Runs:
    """The searches and judge runs of one study, in a folder where they resume.

    Attributes:
        study: as its file says.
        budget: env steps of a search.
    """

    def __init__(self, study: Any, out: Path, full_runs: int, judges: int):
        self.study, self._out, self._judges = study, out / study.name, judges
        self.budget = full_runs * study.env_steps * study.seeds.per_config
        self._judged: dict[str, float] = {}

    def search(self, method: str, repetition: int) -> list[Ended]:
        """Search once, and return the trials in the order in which they ended."""
        from hpo.search.api import run
        from hpo.search.streams import study_seed
        from hpo.store.journal import Journal
        from hpo.studies.spec import Budget, Checkpoint, SearchSpec

        asked = replace(
            self.study,
            name=f"{method}-{repetition:02d}",
            seed=study_seed(self.study.seed, "methods-table", repetition),
            search=SearchSpec(method),
            confirm=None,
            budget=Budget(trials=100 * self.budget // self.study.env_steps,
                          env_steps=self.budget),
            checkpoint=Checkpoint(keep_best=0),
        )  # fmt: skip
        results = run(asked, self._out)
        if results.state != "finished":
            raise KeyboardInterrupt
        with Journal(results.folder) as journal:
            rows = [row for row in journal.trials() if row.trial >= 0 and row.ended_at is not None]
        rows.sort(key=lambda row: (row.ended_at, row.trial))
        return [Ended(row.params, row.value, row.env_steps) for row in rows]

    def judge(self, config: Mapping[str, Any]) -> float:
        """Return the mean on the judge seeds; one that diverged counts as the worst."""
        from hpo.search.streams import study_seed
        from hpo.search.tuned.prove import proof_study, run_proof

        key = json.dumps(config, sort_keys=True, default=str)
        if key not in self._judged:
            whole = self.study.complete(config)
            name = f"judge-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
            seed = study_seed(self.study.seed, "methods-table judge")
            runs = run_proof(proof_study(self.study, name, whole, self._judges, seed), self._out)
            if runs is None:
                raise KeyboardInterrupt
            last = [values[-1] for values in runs.values.values()]
            worst = min(last) if self.study.metric.goal == "maximize" else max(last)
            last += [worst] * (self._judges - len(last))
            self._judged[key] = math.fsum(last) / len(last)
        return self._judged[key]


def measure(runs: Runs, methods: Sequence[str], repetitions: int) -> list[Row]:
    """Search, judge, and return the rows of one study."""
    goal = runs.study.metric.goal
    budgets = [share * runs.budget for share in SHARES]
    picked = {
        method: [choices(runs.search(method, at), budgets, goal) for at in range(repetitions)]
        for method in methods
    }
    judged = {
        method: [[None if one is None else runs.judge(one) for one in several] for several in each]
        for method, each in picked.items()
    }
    known = [
        value for each in judged.values() for row in each for value in row if value is not None
    ]
    known.append(runs.judge(runs.study.space.default()))
    best = max(known) if goal == "maximize" else min(known)
    return rows_of(runs.study.name, judged, budgets, best, goal)


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; 2 for a mistake, 130 where it was interrupted."""
    parser = argparse.ArgumentParser(description="Put search methods side by side.")
    parser.add_argument("studies", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--methods", default=",".join(METHODS), metavar="NAME,NAME")
    parser.add_argument("--repetitions", type=int, default=10, metavar="N")
    parser.add_argument("--full-runs", type=int, default=48, metavar="N",
                        help="budget: so many trials of all seeds to their end")  # fmt: skip
    parser.add_argument("--judges", type=int, default=16, metavar="N", help="judge seeds")
    parser.add_argument("--small", action="store_true", help="2 methods, 2 repetitions, short")
    parser.add_argument("--out", type=Path, default=Path("results/methods"), metavar="FOLDER")
    args = parser.parse_args(words)
    make_importable()
    from hpo.errors import ConfigError, HpoError
    from hpo.studies.load import load
    from hpo.studies.several import only_one_environment
    from hpo.version import __version__

    methods = ["random", "tpe"] if args.small else args.methods.split(",")
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        print(f"--methods: {unknown[0]!r} cannot be judged here; known: {', '.join(METHODS)}",
              file=sys.stderr)  # fmt: skip
        return 2
    if args.small:
        args.repetitions, args.full_runs, args.judges = 2, 4, 2
        args.out = args.out / "small"
    begun, rows = time.process_time(), list[Row]()
    try:
        for path in args.studies:
            study = load(path)
            only_one_environment(study, "methods_table.py")
            if study.objectives or study.constraints:
                raise ConfigError(f"{path} has several objectives; regret needs one value")
            runs = Runs(study, args.out, args.full_runs, args.judges)
            rows += measure(runs, methods, args.repetitions)
    except HpoError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
    print(table(rows))
    about = {"hpo": __version__, "python": platform.python_version(),
             "cpu_seconds_of_this_process": time.process_time() - begun}  # fmt: skip
    args.out.mkdir(parents=True, exist_ok=True)
    data = {"about": about, "rows": [asdict(row) for row in rows]}
    (args.out / "methods_table.json").write_text(json.dumps(data, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
