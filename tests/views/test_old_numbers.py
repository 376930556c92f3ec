"""Every number that screens printed before they were shortened is still within reach.

`NUMBERS` is the list: which screen printed it, what it was, and where it is now, each checked on
one study. `old` takes the number from the journal as the old screen did.
"""

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import pyarrow.parquet
import pytest
from rich.console import Console

from helpers import view_samples as samples
from helpers.episodes import episodes_of
from hpo.cli import main
from hpo.search.analysis.checkpoint_values import point_at, read_points
from hpo.search.analysis.knob_significance import answer_at
from hpo.search.analysis.verdict import conclusion_of
from hpo.store.audits import audit_of
from hpo.store.baselines import attribute_of, baseline_entries, baselines_of
from hpo.store.comparison import compare as comparison
from hpo.store.journal import Journal
from hpo.store.leaderboard import default_of, leaderboard_of
from hpo.store.rows import BaselineRow, Commit, Stream
from hpo.store.statistics import interval, iqm, mean
from hpo.studies.search_spec import EarlyTerminate, Metric
from hpo.studies.stopping_rules import finishing_rules
from hpo.views.commands.watched_run import StudyWords, print_results, results_data
from hpo.views.formatting import duration, number, steps
from hpo.views.time_spent import usage_at


class Studied:
    """One finished study: what its journal holds, and what each command prints."""

    def __init__(self, root):
        self.results = samples.make_audited(root, confirm=samples.search.Confirm(3, 5, 12))
        self.folder = self.results.folder
        fronted = samples.make_results(
            root,
            "fronted",
            early_terminate=EarlyTerminate("asha", 4_000, 2.0),
            objectives=(Metric(), Metric("eval/thrift", "minimize")),
        )
        self.fronted = fronted
        self.other = samples.make_results(root, "other", seed=5)
        with Journal(self.folder, writable=True) as journal:
            rule = BaselineRow("rule", {"report": (40.0, 41.0, 43.0) * 4})
            head, default = journal.head(), default_of(journal.trials())
            apart = [at % 3 + at % 5 for at in range(12)]  # else all differences are equal
            self.ran = default.report_values
            values = tuple(v - d for v, d in zip(default.report_values, apart, strict=True))
            journal.commit(
                Commit(
                    head.number + 1,
                    head.loop_state,
                    None,
                    head.at,
                    phase=head.phase,
                    attributes=[attribute_of(rule)],
                    trials=[replace(default, report_values=values)],
                )
            )
        with Journal(self.folder) as journal:
            self.meta, rows, head = journal.meta, journal.trials(), journal.head()
            self.decisions = journal.decisions()
            self.entries = leaderboard_of(self.meta, rows)
            self.baselines = baseline_entries(baselines_of(journal), self.entries, "maximize")
            self.conclusion = conclusion_of(journal)
            self.evaluations = [
                episodes_of(one) for one in journal.evaluations(self.entries[0].trial)
            ]
        self.rows = {row.trial: row for row in rows}
        self.audit = audit_of(self.meta, rows, self.decisions, finishing_rules())
        self.usage = usage_at(head)
        self.points = read_points(self.folder)
        self.answer = answer_at(self.points, point_at(self.points))
        self.winner, self.second = self.entries[:2]
        self.default = next(e for e in self.entries if e.is_default)
        self.stopped = next(e for e in self.entries if e.state == "stopped")
        self.mine = self.rows[self.winner.trial]
        self.judged = [one for one in self.decisions if one.trial == self.winner.trial]
        self._said = {}

    def say(self, command):
        """Return what a command prints, `{winner}` and others in it being trials."""
        if command not in self._said:
            self._said[command] = self._run(command)
        return self._said[command]

    def _run(self, command):
        if command == "run --json":  # `hpo run` would train; this is what it prints at its end
            return json.dumps(results_data(self.results))
        if command == "run -v":
            told = io.StringIO()
            console = Console(file=told, width=300, highlight=False)
            print_results(console, self.results, StudyWords(self.meta.metric), verbose=True)
            return told.getvalue()
        trials = {
            name: str(getattr(self, name).trial)
            for name in ("winner", "second", "default", "stopped")
        }
        folder = self.fronted.folder if command.startswith("fronted ") else self.folder
        words = command.removeprefix("fronted ").format(**trials).split(" ", 1)
        rest = [words[1]] if words[0] == "query" else words[1].split()
        rest += ["--json"] if words[0] == "query" else []
        rest += ["--out", str(folder.parent)] if "other" in rest else ["--study", str(folder)]
        told = io.StringIO()
        with redirect_stdout(told):
            assert main([words[0], *rest]) == 0
        return told.getvalue()

    def now(self, command, path):
        """Return the value at a path, keys and places with dots between, of what is printed."""
        found = json.loads(self.say(command))
        for key in path.split("/"):
            found = found[int(key)] if isinstance(found, list) else found[key]
        return found

    def rung(self, number=0):
        return self.judged[number]

    def line(self, stream):
        """Return what was printed of the winner's last evaluations on one kind of seeds."""
        here = [one for one in self.evaluations if one[0].stream == stream]
        last = max(one[0].env_steps for one in here)
        episodes = [one for group in here for one in group if one.env_steps == last]
        seeds = len({one.replicate for one in episodes})
        returns = [one.episode_return for one in episodes]
        cells = (
            mean(returns),
            min(returns),
            max(returns),
            mean([one.episode_length for one in episodes]),
        )
        return " ".join([steps(last), str(seeds), str(len(episodes)), *map(number, cells)])

    def curve(self, place):
        """Return the training return at one point of the winner's runs in the search."""
        table = pyarrow.parquet.read_table(self.folder / "curves.parquet").to_pylist()
        found = {}
        for row in table:
            if row["trial"] == self.winner.trial and row["stream"] == "search":
                found.setdefault(row["env_steps"], []).append(row["episode_return"])
        return mean(found[sorted(found)[place]])

    def pairs(self):
        """Return the values of the winner and the default as they ran, seed by seed."""
        return list(zip(self.mine.report_values, self.ran, strict=True))

    def beside_other(self):
        """Return the comparison of the winners of two studies with different seeds."""
        theirs = self.other.leaderboard[0].values
        return comparison(list(self.mine.report_values), list(theirs), "maximize", False)

    def knob(self, name):
        return next(knob for knob in self.answer.decided.knobs if knob.name == name)


@dataclass(frozen=True)
class Number:
    """A number that a screen printed.

    Attributes:
        screen: that printed it.
        what: it was.
        command: that has it now.
        path: in its JSON; "" where `old` is a text that it prints.
        old: the number.
    """

    screen: str
    what: str
    command: str
    path: str
    old: Callable[[Studied], Any]

    def __str__(self):
        return f"{self.screen}-{self.what}".replace(" ", "_")


def top(what, path, old):
    return Number("top", what, "top --json", path, old)


def show(what, path, old):
    return Number("show", what, "show {winner} --json", path, old)


def compare(what, path, old):
    return Number("compare", what, "compare {winner} {default} --json", path, old)


def importance(what, path, old):
    return Number("importance", what, "importance --json", f"0/{path}", old)


def ended(what, path, old):
    return Number("run", what, "run --json", path, old)


NUMBERS = (
    # ------------------------------------------------- the leaderboard, in run, top and report
    top("place", "leaderboard/1/rank", lambda s: 2),
    top("trial", "leaderboard/0/trial", lambda s: s.winner.trial),
    top("value", "leaderboard/0/value", lambda s: mean(s.mine.report_values)),
    top("interval low", "leaderboard/0/ci_low", lambda s: interval(s.mine.report_values).low),
    top("interval high", "leaderboard/0/ci_high", lambda s: interval(s.mine.report_values).high),
    top("seeds", "leaderboard/0/seeds", lambda s: len(s.mine.report_values)),
    top("steps", "leaderboard/0/env_steps", lambda s: s.mine.env_steps),
    Number(
        "top",
        "rung of a stop",
        "show {stopped} --json",
        "rung",
        lambda s: s.rows[s.stopped.trial].rung,
    ),
    Number(
        "top",
        "value at a rung",
        "show {stopped} --json",
        "rung_value",
        lambda s: s.rows[s.stopped.trial].rung_value,
    ),
    top(
        "hyperparameter",
        "leaderboard/0/params/learning_rate",
        lambda s: s.mine.params["learning_rate"],
    ),
    top(
        "values that select",
        "leaderboard/1/choose_value",
        lambda s: mean(s.rows[s.second.trial].choose_values),
    ),
    top("trials", "leaderboard", lambda s: len(s.rows)),
    Number(
        "top",
        "value by SQL",
        "query SELECT value FROM trials ORDER BY rank",
        "0/value",
        lambda s: s.winner.value,
    ),
    Number(
        "top",
        "interval by SQL",
        "query SELECT ci_high FROM trials ORDER BY rank",
        "0/ci_high",
        lambda s: s.winner.ci_high,
    ),
    Number(
        "top",
        "steps by SQL",
        "query SELECT env_steps FROM trials ORDER BY rank",
        "0/env_steps",
        lambda s: s.mine.env_steps,
    ),
    # ------------------------------------------------- below it: the audit, baselines, a front
    top("audit: wrong", "audit/whole/wrong", lambda s: s.audit.whole.wrong),
    top("audit: audited", "audit/whole/audited", lambda s: s.audit.whole.audited),
    top("audit: share", "audit/whole/share", lambda s: s.audit.whole.share),
    top("audit: share low", "audit/whole/low", lambda s: s.audit.whole.low),
    top("audit: share high", "audit/whole/high", lambda s: s.audit.whole.high),
    top("audit: survivors", "audit/survivors", lambda s: s.audit.survivors),
    top("audit: median", "audit/bar", lambda s: s.audit.bar),
    top("audit: tied", "audit/whole/level", lambda s: s.audit.whole.level),
    top("audit: better than all", "audit/whole/winners", lambda s: s.audit.whole.winners),
    top("baseline value", "baselines/0/value", lambda s: fmean((40.0, 41.0, 43.0))),
    top("baseline interval", "baselines/0/ci_low", lambda s: s.baselines[0].around.low),
    top("baseline seeds", "baselines/0/values", lambda s: 12),
    top(
        "best minus a baseline",
        "baselines/0/best_less_baseline",
        lambda s: s.baselines[0].difference,
    ),
    top(
        "its interval",
        "baselines/0/difference_ci_high",
        lambda s: s.baselines[0].difference_around.high,
    ),
    Number("top", "front", "fronted top --json", "leaderboard/0/front", lambda s: 1),
    Number(
        "top",
        "second objective",
        "fronted top --json",
        "leaderboard/0/objectives/1",
        lambda s: s.fronted.leaderboard[0].objectives[1],
    ),
    Number(
        "top",
        "hypervolume",
        "fronted top --json",
        "leaderboard/0/hypervolume",
        lambda s: s.fronted.hypervolume,
    ),
    # ------------------------------------------------- the verdict, in run, top, best and show
    top("difference", "conclusion/against/difference", lambda s: s.conclusion.against.difference),
    top(
        "difference low",
        "conclusion/against/interval/low",
        lambda s: s.conclusion.against.interval.low,
    ),
    top("test seeds", "conclusion/against/seeds", lambda s: 12),
    top("mean of the winner", "conclusion/against/means/0", lambda s: s.winner.report_value),
    top("mean of the default", "conclusion/against/means/1", lambda s: s.default.report_value),
    top(
        "probability", "conclusion/against/probability", lambda s: s.conclusion.against.probability
    ),
    top(
        "probability low",
        "conclusion/against/probability_interval/low",
        lambda s: s.conclusion.against.probability_interval.low,
    ),
    top(
        "seeds of the default that diverged",
        "conclusion/against/diverged",
        lambda s: s.conclusion.against.diverged,
    ),
    top(
        "seeds of the winner that diverged",
        "conclusion/against/own_diverged",
        lambda s: s.conclusion.against.own_diverged,
    ),
    top("trials with the same value", "conclusion/sharing", lambda s: s.conclusion.sharing),
    top("trials that were not better", "conclusion/beaten", lambda s: s.conclusion.beaten),
    Number(
        "show",
        "probability",
        "show {winner} -v",
        "",
        lambda s: f"with probability {s.conclusion.against.probability:.2f} [",
    ),
    # ------------------------------------------------- the end of a run
    ended("trials", "leaderboard", lambda s: len(s.rows)),
    ended("env steps", "usage/env_steps", lambda s: s.usage.env_steps),
    ended("seconds", "usage/run_seconds", lambda s: s.results.usage.run_seconds),
    ended("lanes busy", "usage/occupancy", lambda s: s.usage.occupancy),
    ended(
        "time training",
        "usage/seconds_by_part/train",
        lambda s: s.results.usage.seconds_by_part["train"],
    ),
    ended(
        "time compiling",
        "usage/seconds_by_part/compile",
        lambda s: s.results.usage.seconds_by_part["compile"],
    ),
    Number(
        "run",
        "speed",
        "run -v",
        "",
        lambda s: f"{steps(round(s.results.usage.env_steps_per_second))} env steps per second",
    ),
    Number("run", "lanes", "run -v", "", lambda s: f"lanes busy {s.usage.occupancy:.0%}"),
    Number(
        "run",
        "time split",
        "run -v",
        "",
        lambda s: "training " + duration(s.results.usage.seconds_by_part["train"]),
    ),
    # ------------------------------------------------- one trial
    show("rank", "rank", lambda s: 1),
    show("of trials", "trials", lambda s: len(s.rows)),
    show("value", "value", lambda s: mean(s.mine.report_values)),
    show("interval low", "ci_low", lambda s: interval(s.mine.report_values).low),
    show("interval high", "ci_high", lambda s: interval(s.mine.report_values).high),
    show("every search seed", "seed_values", lambda s: list(s.mine.seed_values)),
    show("every selection seed", "choose_values", lambda s: list(s.mine.choose_values)),
    show("every test seed", "report_values", lambda s: list(s.mine.report_values)),
    show("batch", "batch", lambda s: s.mine.batch),
    show("program", "bucket", lambda s: s.mine.bucket),
    show("env steps", "env_steps", lambda s: s.mine.env_steps),
    show("evaluation env steps", "eval_env_steps", lambda s: s.mine.eval_env_steps),
    show("warm-up env steps", "warmup_env_steps", lambda s: s.mine.warmup_env_steps),
    show("start", "started_at", lambda s: s.mine.started_at),
    show("end", "ended_at", lambda s: s.mine.ended_at),
    show(
        "time of the study",
        "study_seconds_by_part/store",
        lambda s: s.usage.seconds_by_part["store"],
    ),
    show("hyperparameter", "params/gamma", lambda s: s.mine.params["gamma"]),
    show("rung", "decisions/1/rung", lambda s: s.rung(1).rung),
    show("rung env steps", "decisions/1/env_steps", lambda s: s.rung(1).env_steps),
    show("rung value", "decisions/1/value", lambda s: s.rung(1).value),
    show("rung rank", "decisions/1/rank", lambda s: s.rung(1).rank),
    show("rung judged", "decisions/1/judged", lambda s: s.rung(1).judged),
    show("rung cut-off", "decisions/1/cutoff", lambda s: s.rung(1).cutoff),
    show("training return, first", "curve/1/episode_return", lambda s: s.curve(1)),
    show("training return, last", "curve/-1/episode_return", lambda s: s.curve(-1)),
    Number("show", "cut-off", "show {winner} -v", "", lambda s: f"cut-off {s.rung().cutoff:.4g}"),
    Number("show", "rank at a rung", "show {winner}", "", lambda s: f"1st of {s.rung().judged}"),
    Number(
        "show",
        "audit: wrong",
        "show {stopped} --json",
        "audit/whole/wrong",
        lambda s: s.audit.whole.wrong,
    ),
    Number("show", "audit: median", "show {stopped} --json", "audit/bar", lambda s: s.audit.bar),
    # ------------------------------------------------- its evaluations, a line each in show -v
    *(
        Number(
            "show",
            f"on {word} seeds: seeds, episodes, return, min, max, length",
            "show {winner} -v",
            "",
            lambda s, at=stream, word=word: f"{word} {s.line(at)}",
        )
        for stream, word in (
            (Stream.SEARCH, "search"),
            (Stream.CHOOSE, "select"),
            (Stream.REPORT, "test"),
        )
    ),
    # ------------------------------------------------- two trials
    compare("mean of A", "means/0", lambda s: s.winner.report_value),
    compare("mean of B", "means/1", lambda s: mean(s.ran)),
    compare("IQM of A", "iqms/0", lambda s: iqm(s.mine.report_values)),
    compare("seeds of A", "seeds/0", lambda s: 12),
    compare("difference", "difference", lambda s: mean([a - b for a, b in s.pairs()])),
    Number(
        "compare",
        "interval low",
        "compare audited other --json",
        "difference_interval/low",
        lambda s: s.beside_other().difference_interval.low,
    ),
    Number(
        "compare",
        "interval high",
        "compare audited other --json",
        "difference_interval/high",
        lambda s: s.beside_other().difference_interval.high,
    ),
    compare(
        "probability",
        "probability",
        lambda s: mean([(a > b) + (a == b) / 2 for a, b in s.pairs()]),
    ),
    compare(
        "probability low",
        "probability_interval/low",
        lambda s: s.conclusion.against.probability_interval.low,
    ),
    # ------------------------------------------------- hyperparameters
    importance("point", "at", lambda s: s.answer.at),
    importance("trials", "answer/trials", lambda s: s.answer.decided.trials),
    importance("explains", "answer/knobs/gamma/share", lambda s: s.knob("gamma").share),
    importance("interval low", "answer/knobs/gamma/low", lambda s: s.knob("gamma").low),
    importance("interval high", "answer/knobs/gamma/high", lambda s: s.knob("gamma").high),
    importance("chance", "answer/knobs/gamma/floor", lambda s: s.knob("gamma").floor),
)


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    return Studied(tmp_path_factory.mktemp("old"))


@pytest.mark.parametrize("one", NUMBERS, ids=str)
def test_old_screen_numbers_are_still_available(one, studied):
    old = one.old(studied)
    if not one.path:
        text = studied.say(one.command)
        assert " ".join(old.split()) in " ".join(text.split())
        return
    now = studied.now(one.command, one.path)
    now = len(now) if isinstance(now, list) and isinstance(old, int) else now
    assert now == (pytest.approx(old) if isinstance(old, float) else old)


def test_sample_study_has_all_old_screen_numbers(studied):
    """A number that is none everywhere would be found anywhere."""
    missing = [str(n) for n in NUMBERS if n.old(studied) is None]
    assert missing == []
