"""What studies of every kind are said to have shown: the same words wherever they are read."""

import dataclasses
import json
from html import unescape
from statistics import fmean

import pytest

import hpo
from helpers import search_samples as samples
from helpers.analytic_lanes import AnalyticPopulation
from helpers.episodes import episodes_in
from helpers.view_samples import ReturningFactory
from hpo.cli import main
from hpo.search.analysis.verdict import (
    JournalData,
    StudyRows,
    conclusion_from,
    conclusion_of,
    front_values,
)
from hpo.search.engine.commits import Committer
from hpo.search.engine.engine import Engine
from hpo.search.run import run
from hpo.search.state.loop_state import Phase
from hpo.search.state.search_state import SearchState
from hpo.spaces import Space
from hpo.store.baselines import baselines_of
from hpo.store.interim_analyses import Look, earlier_looks, looks_of, winners_looks
from hpo.store.journal import Journal
from hpo.store.leaderboard import leaderboard_of
from hpo.store.mean_difference import paired_interval
from hpo.store.rows import BaselineRow, Stream
from hpo.store.study_folder import StudyFolder
from hpo.store.unobserved import Bounds
from hpo.store.verdict import Evidence, conclude
from hpo.studies.env_spec import EnvSpec
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import (
    Constraint,
    EarlyTerminate,
    Evaluation,
    Metric,
    Racing,
    Seeds,
)
from hpo.views.leaderboard_text import front_line
from hpo.views.report.report import write_report

CONFIRM = samples.Confirm(2, 3, 6)
POOR = samples.parameter("learning_rate", 1e-5, min=1e-5, max=1.0, distribution="log_uniform")
SPACE = Space((POOR, samples.REAL.parameters[1]))
PBT = EarlyTerminate("pbt", every=2_000)
# Six seeds that hardly vary allow a verdict if no return of 500 is known to be possible.
OWN, CARTPOLE = EnvSpec("own"), EnvSpec("CartPole-v1")


def study(**changes):
    base = {"env": OWN, "space": SPACE, "confirm": CONFIRM, "name": "s"}
    return samples.study(**{**base, **changes})


def go(folder, factory=None, **changes):
    factory = factory or samples.AnalyticFactory(diverges_above=2.0)
    results = run(study(**changes), folder, factory, (), samples.quick())
    with Journal(folder) as journal:
        assert conclusion_of(journal) == results.conclusion
    if results.conclusion.against.unless is None:  # that sentence may take two lines
        assert all(len(text) < 80 for text in results.conclusion.said[:1])
    return results


KINDS = {
    "better": ({}, "Trial {} is better than the default: by "),
    "unless": (
        {"env": CARTPOLE},
        "Trial {} is better than the default unless 1 in 16 seeds gives a new result.",
    ),
    "default": (
        {"space": samples.REAL, "confirm": samples.Confirm(3, 3, 6)},
        "Keep the default: none of 2 other trials was better on new seeds.",
    ),
    "default alone": (
        {"space": samples.REAL, "confirm": samples.Confirm(1, 3, 6)},
        "There is nothing to compare trial 0 with.",
    ),
    "all others paused": (
        {
            "early_terminate": EarlyTerminate("asha", 2_000, 2.0, pause=9),
            "budget": Budget(trials=3),
        },
        "There is nothing to compare trial 0 with.",
    ),
    "pbt": (
        {"early_terminate": PBT, "budget": Budget(trials=8)},
        "Trial {} is better than the default: by ",
    ),
    "racing": (
        {"seeds": Seeds(4, racing=Racing(2, 0.9)), "early_terminate": None},
        "Trial {} is better than the default: by ",
    ),
    "few": (
        {"confirm": samples.Confirm(2, 3, 3)},
        "Undecided: trial {} leads the default by ",
    ),
    "left out": (
        {"confirm": dataclasses.replace(CONFIRM, default=False)},
        "There is nothing to compare trial {} with.",
    ),
    "violating": (
        {"constraints": (Constraint("eval/skill", min=0.999),)},
        "Trial {} and the default both violate the constraints.",
    ),
    "constrained": (
        {
            "constraints": (Constraint("eval/skill", min=0.4),),
            "early_terminate": None,
            "confirm": samples.Confirm(2, 3, 16),
        },
        "Trial {} satisfies the constraints, which the default violates.",
    ),
    "no confirm": (
        {"confirm": None},
        "Undecided: all values are from seeds that were also used for selection.",
    ),
    "alone": (
        {"confirm": None, "budget": Budget(trials=1)},
        "There is nothing to compare trial {} with.",
    ),
    "no report": (
        {"confirm": samples.Confirm(2, 3, 0)},
        "Undecided: the study has no test seeds",
    ),
    "objectives": (
        {"objectives": (Metric(), Metric("eval/thrift", "maximize"))},
        "Undecided: 3 new seeds are too few to compare the default with the front.",
    ),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_conclusion_starts_with_verdict_of_each_study_kind(tmp_path, kind):
    changes, words = KINDS[kind]
    results = go(tmp_path, **changes)
    assert results.conclusion.said[0].startswith(words.format(results.best.trial))
    if kind in ("better", "unless", "pbt", "racing"):
        against = results.conclusion.against
        assert against.seeds == 6 and against.difference > 0
        assert against.verdict == ("undecided" if kind == "unless" else "better")
        paired = means_by_hand(tmp_path, results)
        assert against.means == pytest.approx(paired)
    if kind == "unless":  # the default could reach 500 on a seed that was not run
        low = against.unless.interval.low
        assert 500 - against.means[0] > 14 * low and 500 - against.means[0] <= 15 * low
        assert results.conclusion.said[1].startswith("The difference is 30.91 [")


@pytest.mark.parametrize("seeds", [6, 5])
def test_single_trial_is_compared_with_baselines_on_its_seeds(tmp_path, seeds):
    """Its seeds chose nothing; where one is missing nobody knows which, and nothing is paired."""
    go(tmp_path, confirm=None, budget=Budget(trials=1), seeds=Seeds(6), early_terminate=None)
    with Journal(tmp_path) as journal:
        meta, rows = journal.meta, journal.trials()
    entries, values = leaderboard_of(meta, rows), rows[0].seed_values
    rule = tuple(value - (15 + seed) for seed, value in enumerate(values))[:seeds]
    found = conclusion_from(
        StudyRows(meta, rows, entries, [BaselineRow("rule", {"search": rule})]), JournalData()
    )
    if seeds < 6:
        assert found.said[0] == "There is nothing to compare trial 0 with."
        return
    [against] = found.baselines
    assert len(values) == 6 and against.verdict == "better" and against.seeds == 6
    assert against.difference == pytest.approx(17.5)
    assert against.interval == paired_interval(values, rule)
    assert found.said[0].startswith("Trial 0 is better than rule: by 17.5 [")
    assert found.said[0].endswith("on 6 seeds.")
    assert found.said[-1] == "Only one trial ran, so there is no selection bias."
    still = conclusion_from(StudyRows(meta, rows, entries, ended=False), JournalData())
    assert still.said[0].startswith("Undecided")


def test_single_trial_comparison_uses_bounds_of_the_metric(tmp_path):
    """A rule could reach 500 on a seed that was not run."""
    alone = {"confirm": None, "budget": Budget(trials=1), "seeds": Seeds(6)}
    go(tmp_path, env=CARTPOLE, early_terminate=None, **alone)
    with Journal(tmp_path) as journal:
        meta, rows = journal.meta, journal.trials()
    values = rows[0].seed_values
    rule = tuple(value / 3 for value in values)
    rules = [BaselineRow("rule", {"search": rule})]
    found = conclusion_from(
        StudyRows(meta, rows, leaderboard_of(meta, rows), rules), JournalData()
    )
    [against] = found.baselines
    around = paired_interval(values, rule, bounds=Bounds(0.0, 500.0))
    assert against.verdict == "undecided" and against.interval == around
    words = "Trial 0 is better than rule unless 1 in 39 seeds gives a new result."
    assert found.said[0] == words


def means_by_hand(folder, results):
    """Return the means of winner and default over the report seeds, from their episodes alone."""
    episodes = {}
    with Journal(folder) as journal:
        trials = {row.trial: row for row in journal.trials()}
        for row in episodes_in(journal):
            if row.stream == Stream.REPORT:
                here = episodes.setdefault(row.trial, {})
                here.setdefault((row.replicate, row.env_steps), []).append(row.episode_return)
    default = 0 if not trials[0].schedule else -1
    assert set(episodes) == {results.best.trial, default}

    def mean(trial):
        ends = {replicate: at for replicate, at in sorted(episodes[trial])}
        found = [episodes[trial][seed, at] for seed, at in ends.items()]
        return sum(sum(values) / len(values) for values in found) / len(found)

    return mean(results.best.trial), mean(default)


def test_pareto_front_and_default_are_compared_per_objective(tmp_path, capsys):
    """Against values taken from the journal's episodes alone; and the same words everywhere."""
    objectives = (Metric(), Metric("eval/return_min"))
    results = go(tmp_path / "s", objectives=objectives, confirm=samples.Confirm(2, 8, 0))
    found = results.conclusion.front
    assert results.conclusion.verdict == found.verdict == "behind" and found.seeds == 8
    ends = {}
    with Journal(tmp_path / "s") as journal:
        for row in episodes_in(journal):
            if row.stream == Stream.CHOOSE:
                ends.setdefault((row.trial, row.replicate, row.env_steps), []).append(row)
    last = max(at for _, _, at in ends)

    def of(trial, measured):
        return [
            measured([row.episode_return for row in ends[trial, seed, last]]) for seed in range(8)
        ]

    for told, measured in zip(found.objectives, (fmean, min), strict=True):
        ours, theirs = of(found.trial, measured), of(0, measured)
        assert told.means == pytest.approx((sum(ours) / 8, sum(theirs) / 8))
        around = paired_interval(ours, theirs, level=0.05 / 2)  # two trials, two objectives
        assert (told.low, told.high) == (around.low, around.high) and around.kind == "unseen"
        # The same difference on every seed: the end away from 0 is there.
        assert told.difference == pytest.approx((sum(ours) - sum(theirs)) / 8)
        assert told.difference == pytest.approx(told.high)
        assert 0.0 < told.low < 0.5 * told.high
    where = ["--study", str(tmp_path / "s")]
    page = unescape(write_report(StudyFolder(tmp_path / "s")).read_text())
    texts = [page, str(hpo.open(tmp_path / "s").conclusion)]
    for words in (["top"], ["best"], ["show", "0", "-v"], ["show", str(found.trial), "-v"]):
        assert main([*words, *where]) == 0
        texts.append(" ".join(capsys.readouterr().out.split()))
    assert results.conclusion.said
    assert all(told in text for told in results.conclusion.said for text in texts)
    assert main(["top", "--json", *where]) == 0
    told = json.loads(capsys.readouterr().out)["conclusion"]
    assert told["verdict"] == "behind" and told["front"]["trial"] == found.trial


def test_infeasible_trials_do_not_put_default_behind_the_front(tmp_path, capsys):
    objectives = (Metric(), Metric("eval/return_min"))
    limit = (Constraint("eval/return_max", min=-1e9),)
    asked = {"objectives": objectives, "confirm": samples.Confirm(2, 8, 0)}
    results = go(tmp_path / "s", constraints=limit, **asked)
    assert results.conclusion.verdict == "behind"
    with Journal(tmp_path / "s") as journal:
        meta, rows = journal.meta, journal.trials()
        fresh, entries = front_values(journal, rows), leaderboard_of(meta, rows)

    def told(*violating):
        changed = [
            dataclasses.replace(e, feasible=False, front=None) if e.trial in violating else e
            for e in entries
        ]
        return conclusion_from(StudyRows(meta, rows, changed), JournalData(fresh=fresh))

    ahead = [entry.trial for entry in entries if entry.trial in fresh and entry.trial != 0]
    first, *others = ahead
    assert told().front.trial == results.conclusion.front.trial
    assert told(first).front.compared == len(others)
    assert first not in {one.trial for one in told(first).front.objectives}
    alone = told(*ahead)
    assert alone.front is None and "behind" not in str(alone)
    assert "The default violates the constraints, so it is not on the front." in str(told(0))
    assert told(0).front is None
    hard = (Constraint("eval/return_max", min=1e9),)
    nobody = go(tmp_path / "nobody", constraints=hard, early_terminate=None, **asked)
    words = "Every trial violates a constraint, so the Pareto front is empty; trial "
    words += f"{nobody.best.trial} has the smallest violation."
    assert front_line(nobody.leaderboard, None) == words
    where = ["--study", str(tmp_path / "nobody")]
    for command in ("top", "best"):
        assert main([command, *where]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert words in said and "crowding" not in said and "has finished" not in said
    page = unescape(write_report(StudyFolder(tmp_path / "nobody")).read_text())
    assert words in page and "0 of 0" not in page


def test_only_feasible_default_is_reported(tmp_path, capsys):
    objectives = (Metric(), Metric("eval/return_min"))
    limit = (Constraint("eval/return_mean", min=51.4),)
    found = go(
        tmp_path,
        space=samples.REAL,
        objectives=objectives,
        constraints=limit,
        confirm=samples.Confirm(3, 6, 0),
    )
    words = (
        "No other trial satisfies the constraints on 6 selection seeds, "
        "so the default is on the front."
    )
    assert found.conclusion.said[-1] == words
    assert main(["best", "--study", str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert words in said and "crowding" not in said


def test_front_of_one_trial_shows_no_crowding(tmp_path, capsys):
    """The trials of the search have a front of their own, which is not that of the confirmed."""
    objectives = (Metric(), Metric("eval/return_min"))
    found = go(
        tmp_path,
        space=samples.REAL,
        objectives=objectives,
        constraints=(Constraint("eval/return_mean", min=51.4),),
        confirm=samples.Confirm(1, 6, 0),
    )
    first = [entry.confirmed for entry in found.leaderboard if entry.front == 1]
    assert sorted(first) == [False, True]
    assert main(["best", "--study", str(tmp_path)]) == 0
    assert "crowding" not in capsys.readouterr().out


def test_minimised_metric_counts_smaller_as_better(tmp_path):
    results = go(tmp_path, metric=Metric("eval/return_mean", "minimize"))
    against = results.conclusion.against
    assert results.conclusion.verdict == "better" and against.difference > 0
    assert against.difference == pytest.approx(against.means[1] - against.means[0])


class Died(BaseException):
    """A process that is gone; nothing of ours catches it."""


@pytest.mark.parametrize("phase", [Phase.SEARCH, Phase.CHOOSE, Phase.REPORT])
def test_unfinished_study_has_no_verdict(tmp_path, monkeypatch, phase):
    def commit_if_due(self):
        trials = self._search_state.trials.values()
        if self._search_state.state.phase is phase and any(t.value is not None for t in trials):
            self.commit()
            raise Died

    monkeypatch.setattr(Committer, "commit_if_due", commit_if_due)
    with pytest.raises(Died):
        go(tmp_path / "s")
    said = str(hpo.open(tmp_path / "s").conclusion)
    assert said == "No verdict yet: the study has not finished."
    page = write_report(StudyFolder(tmp_path / "s")).read_text()
    assert said in unescape(page) and "uses fresh ones" not in page
    monkeypatch.undo()
    assert go(tmp_path / "s").conclusion.verdict == "better"


@pytest.mark.parametrize(
    ("least", "said"),
    [
        (
            0.2,
            "Trial 6 is better than the default unless 1 in 48 seeds gives a new result. "
            "The difference is 9.098 [9.098, 9.098] on 8 test seeds.",
        ),
        (0.75, "Trial 6 satisfies the constraints, which the default violates."),
    ],
)
def test_stopped_default_is_feasible_by_test_seeds(tmp_path, least, said):
    """Its skill is 0.08 at the rung where it was stopped, and 0.71 on test seeds."""
    rate = samples.parameter("learning_rate", 2e-4, min=1e-4, max=1.0, distribution="log_uniform")
    asked = samples.study(
        samples.Space((rate, samples.REAL.parameters[1])),
        env_steps=32_000,
        constraints=(Constraint("eval/skill", min=least),),
        confirm=samples.Confirm(2, 3, 8),
    )
    results = run(asked, tmp_path, samples.AnalyticFactory(), (), samples.quick())
    default = next(entry for entry in results.leaderboard if entry.is_default)
    assert default.state == "stopped" and default.feasible is False
    assert " ".join(results.conclusion.said).startswith(said)


def test_budget_end_before_default_is_measured_is_reported(tmp_path, monkeypatch):
    def is_out_of_time(self):
        state = self.search_state.state
        if state.phase is not Phase.REPORT:
            return False
        return not any(run.is_live for run in self.search_state.trials[state.winner].runs)

    monkeypatch.setattr(Engine, "is_out_of_time", is_out_of_time)
    results = go(tmp_path, samples.AnalyticFactory(lanes=4))
    said = results.conclusion.said
    assert said[0] == f"There is nothing to compare trial {results.best.trial} with."
    assert said[1].startswith("The default's test did not finish: ")


def test_budget_end_before_confirm_stage_is_reported(tmp_path, monkeypatch):
    def is_out_of_time(self):
        return self.search_state.state.phase is Phase.CHOOSE

    monkeypatch.setattr(Engine, "is_out_of_time", is_out_of_time)
    said = go(tmp_path, budget=Budget(trials=24, wall_seconds=1e6)).conclusion.said
    assert said[0] == "Undecided: no trial has a value on every selection seed."
    assert said[1].endswith(": 3 of 3 selection seeds returned no value: budget.wall ran out.")


@pytest.mark.parametrize("pause", [0, 50])
def test_small_env_steps_budget_still_finishes_a_trial(tmp_path, pause):
    """A trial is 2 seeds of 16,000 env steps; paused ones would use up what finishes one."""
    pausing = EarlyTerminate("asha", 2_000, 4.0, pause=pause) if pause else None
    confirm, kept = (None, 0) if pause else (CONFIRM, CONFIRM.runs(1) * 16_000)
    results = go(
        tmp_path, budget=Budget(env_steps=kept + 48_000), early_terminate=pausing, confirm=confirm
    )
    states = [entry.state for entry in results.leaderboard]
    assert "unfinished" not in states and {"finished", "confirmed"} & set(states)
    assert results.best.value is not None


def test_budget_end_before_any_run_suggests_budget_wall(tmp_path):
    budget = Budget(trials=None, wall_seconds=1e-9)
    said = go(tmp_path, budget=budget, early_terminate=None, confirm=None).conclusion.said
    assert said[0] == "Undecided: no trial has finished its run."
    assert said[1] == "`budget.wall` ran out; raise it and run the same command again."


def test_truncated_episodes_of_winner_are_reported(tmp_path, monkeypatch, capsys):
    class Long(samples.AnalyticFactory):
        def make(self, resolved, lanes):
            made = super().make(resolved, lanes)
            short = made.evaluate
            made.evaluate = lambda which: [
                dataclasses.replace(result, lengths=result.lengths * 0 + 20_000)
                for result in short(which)
            ]
            return made

    def cut(results):
        return [text for text in results.conclusion.said if "were truncated at" in text]

    factory = Long(diverges_above=2.0)
    assert cut(go(tmp_path / "ends", factory, env=CARTPOLE)) == []
    monkeypatch.setattr(
        "hpo.studies.evaluation._environments_without_limit", lambda study: ["own"]
    )
    (told,) = cut(go(tmp_path / "s", factory, env=CARTPOLE))
    assert told.endswith("were truncated at 20,000 env steps because they had not ended.")
    with Journal(tmp_path / "s") as journal:
        rows = [row for row in episodes_in(journal) if row.stream is Stream.REPORT]
    per_trial = len(rows) // len({row.trial for row in rows})
    assert told.startswith(f"{per_trial} of {per_trial} evaluation episodes")
    for words in (["top"], ["best"]):
        assert main([*words, "s", "--out", str(tmp_path)]) == 0
        assert (
            " ".join(capsys.readouterr().out.split()).count("were truncated at 20,000 env steps")
            == 1
        )
    report = write_report(StudyFolder(tmp_path / "s")).read_text(encoding="utf-8")
    assert "were truncated at 20,000 env steps" in report


@pytest.mark.parametrize(("rate", "verdict"), [(1e-5, "better"), (None, "diverged")])
def test_divergence_on_test_seeds_is_reported(tmp_path, monkeypatch, rate, verdict):
    """Of the default (1e-5), or of whoever else is on the report seeds, the winner."""
    step = AnalyticPopulation.train_chunk

    def fragile(self, lane):
        its = lane.payload["learning_rate"]
        hit = its == rate if rate is not None else its != 1e-5
        return step(self, lane) or (hit and lane.stream is Stream.REPORT and lane.replicate == 2)

    monkeypatch.setattr(AnalyticPopulation, "train_chunk", fragile)
    results = go(tmp_path, confirm=samples.Confirm(2, 3, 7))
    found = results.conclusion
    assert found.verdict == verdict and found.against.seeds == 7
    lost = (found.against.own_diverged, found.against.diverged)
    assert lost == ((0, 1) if rate is not None else (1, 0))
    words = "The default" if rate is not None else f"Trial {results.best.trial}"
    told = (f"{words} diverged on 1 of", "The means exclude 1 seed, on which")
    assert any(text.startswith(told) for text in found.said)
    # The other six seeds are paired with themselves.
    with Journal(tmp_path) as journal:
        ours, theirs = (journal.trial(t).by_report_seed for t in (results.best.trial, 0))
    apart = [ours[seed] - theirs[seed] for seed in (0, 1, 3, 4, 5)]
    assert found.against.difference == pytest.approx(sum(apart) / 5)


def test_failed_default_is_not_compared_with_winner(tmp_path, monkeypatch):
    advance = AnalyticPopulation.advance

    def step(self, refills, busy):
        if any(refill.resolved.config["learning_rate"] == 1e-5 for refill in refills):
            raise RuntimeError("out of memory")
        return advance(self, refills, busy)

    monkeypatch.setattr(AnalyticPopulation, "advance", step)
    results = go(tmp_path)
    assert results.conclusion.verdict == "nothing"
    assert results.conclusion.said[1].startswith("The default failed in the search: ")
    assert "out of memory" in results.conclusion.said[1]


def test_trials_on_different_environments_are_not_compared(tmp_path):
    length = samples.parameter("env.length", 0.5, min=0.1, max=2.0)
    results = go(tmp_path, space=Space((*SPACE.parameters, length)))
    assert results.best.trial != 0
    said = results.conclusion.said
    assert results.conclusion.verdict == "nothing" and "different environments" in said[1]
    fixed = dataclasses.replace(study().evaluation, env={"length": 0.5})
    again = go(tmp_path / "fixed", space=Space((*SPACE.parameters, length)), evaluation=fixed)
    assert again.conclusion.verdict == "better"


def test_baselines_are_paired_on_test_seeds(tmp_path):
    results = go(tmp_path, baselines=("ksp_ff",))
    with Journal(tmp_path) as journal:
        (row,) = baselines_of(journal)
        winner = journal.trial(results.best.trial)
    (against,) = results.conclusion.baselines
    theirs = row.values["report"]
    assert len(theirs) == against.seeds == 6 and against.rival == "ksp_ff"
    apart = [ours - his for ours, his in zip(winner.report_values, theirs, strict=True)]
    assert against.difference == pytest.approx(sum(apart) / 6)
    (shown,) = results.baselines
    assert shown.difference == pytest.approx(against.difference)
    assert shown.difference_around == against.interval
    assert any("ksp_ff" in text for text in results.conclusion.said[1:])


def test_known_maximum_gives_ceiling_verdict(tmp_path, monkeypatch):
    """CartPole gives at most as many points as an episode has steps."""
    result_of = AnalyticPopulation.result_of

    def at_the_top(self, lane):
        found = result_of(self, lane)
        if lane is None or lane.stream is not Stream.REPORT:
            return found
        return dataclasses.replace(found, returns=found.returns * 0 + 500.0)

    monkeypatch.setattr(AnalyticPopulation, "result_of", at_the_top)
    results = go(tmp_path / "500", env=CARTPOLE)
    trial = results.best.trial
    assert results.conclusion.verdict == "ceiling"
    assert results.conclusion.said[0] == (
        f"Trial {trial} and the default both reach the ceiling: 500 on 6 test seeds."
    )
    known = dataclasses.replace(CARTPOLE, values={"max_steps_in_episode": 600})
    below = go(tmp_path / "600", env=known)
    assert below.conclusion.ceiling is None and below.conclusion.verdict == "no_difference"


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_trials_at_ceiling_are_counted_without_training_returns(tmp_path, monkeypatch, weight):
    result_of = AnalyticPopulation.result_of

    def at_the_top(self, lane):
        found = result_of(self, lane)
        return dataclasses.replace(found, returns=found.returns * 0 + 500.0)

    monkeypatch.setattr(AnalyticPopulation, "result_of", at_the_top)
    how = {"env": CARTPOLE, "metric": Metric(training_weight=weight), "early_terminate": None}
    results = go(tmp_path, ReturningFactory(diverges_above=2.0), budget=Budget(trials=6), **how)
    assert (results.leaderboard[-1].search_value == 500.0) == (weight == 0.0)
    others = 5 - (results.best.trial != 0)
    hint = f"{others} other trials also have the value 500: fewer env_steps may separate them."
    assert hint in results.conclusion.said


def test_common_floor_is_not_reported_as_ceiling(tmp_path, monkeypatch):
    """MountainCar gives -200 to whoever never reaches the top."""
    result_of = AnalyticPopulation.result_of

    def at_the_floor(self, lane):
        found = result_of(self, lane)
        return dataclasses.replace(found, returns=found.returns * 0 - 200.0)

    monkeypatch.setattr(AnalyticPopulation, "result_of", at_the_floor)
    steps = {"env": EnvSpec("MountainCar-v0"), "env_steps": 16_000}
    found = go(tmp_path / "s", confirm=samples.Confirm(2, 3, 6), **steps)
    assert found.conclusion.verdict == "default" and found.conclusion.ceiling is None
    assert "have the value -200: a different run length, or a different task, may" in str(
        found.conclusion
    )


# ---------------------------------------------------------------------- wherever it is read


@pytest.mark.parametrize("kind", ["better", "unless", "default", "pbt", "no confirm", "few"])
def test_all_views_show_the_same_conclusion(tmp_path, capsys, kind):
    results = go(tmp_path / "s", **KINDS[kind][0])
    said, where = list(results.conclusion.said), ["--study", str(tmp_path / "s")]

    def told(*words):
        assert main([*words, *where]) == 0
        return " ".join(capsys.readouterr().out.split())

    top, best = told("top"), told("best")
    shown = told("show", str(results.best.trial))
    verbose = told("show", str(results.best.trial), "-v")
    data = json.loads(told("best", "--json"))
    assert data["conclusion"]["sentences"] == said
    assert json.loads(told("top", "--json"))["conclusion"] == data["conclusion"]
    one = json.loads(told("show", str(results.best.trial), "--json"))["conclusion"]
    assert (one is None) == (results.conclusion.winner is None)
    page = unescape(write_report(StudyFolder(tmp_path / "s")).read_text())
    opened = hpo.open(tmp_path / "s")
    for text in said:
        assert text in top and text in best and text in page and text in str(opened.conclusion)
        assert one is None or text in verbose
    assert one is None or said[0] in shown
    assert top.index(said[0]) < top.index("# trial")
    assert page.index(said[0]) < page.index("lanes busy")


def test_all_views_show_the_same_trial_states(tmp_path, capsys):
    go(tmp_path / "s", early_terminate=PBT, budget=Budget(trials=8))
    where = ["--study", str(tmp_path / "s")]

    def data(*words):
        assert main([*words, *where, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    top = {entry["trial"]: entry["state"] for entry in data("top", "-n", "99")["leaderboard"]}
    rows = data("query", "SELECT trial, state FROM trials")
    table = {row["trial"]: row["state"] for row in rows}
    assert top == table
    assert set(table.values()) == {"confirmed", "finished", "reference"}
    assert {trial: data("show", str(trial))["state"] for trial in (0, -1)} == {
        0: table[0],
        -1: "reference",
    }
    shown = data("query", "SELECT count(*) AS n FROM evaluations WHERE trial = -1")
    assert shown[0]["n"] == 6 * 2  # six seeds, two episodes


def test_extended_study_accounts_for_earlier_looks(tmp_path):
    """More test seeds, or more trials and so another winner: the next look must be surer."""
    steps = {"early_terminate": None}
    first = go(tmp_path, confirm=samples.Confirm(2, 3, 7), **steps)
    winner = first.best.trial
    with Journal(tmp_path) as journal:
        assert looks_of(journal.attributes()) == (Look(0, 7), Look(winner, 7, True))
    go(tmp_path, confirm=samples.Confirm(2, 3, 7), **steps)  # nothing is new, and no look
    more = go(tmp_path, confirm=samples.Confirm(2, 3, 12), **steps)
    assert more.best.trial == winner
    with Journal(tmp_path) as journal:
        looks = looks_of(journal.attributes())
        rows = {row.trial: row.by_report_seed for row in journal.trials()}
    assert looks[2:] == (Look(0, 12), Look(winner, 12, True))
    assert winners_looks(looks, winner, 0, 12) == earlier_looks(looks, winner, 0, 12) == (7,)
    expected = conclude(Evidence(rows[winner], rows[0], earlier=(7,))).against
    found = conclusion_of(Journal(tmp_path)).against
    assert (found.verdict, found.interval) == (expected.verdict, expected.interval)


def test_study_without_recorded_looks_counts_current_look(tmp_path, monkeypatch):
    steps = {"early_terminate": None, "space": samples.REAL}
    with monkeypatch.context() as before:
        before.setattr(SearchState, "note_looks", lambda search_state, winner, interim=False: None)
        go(tmp_path, confirm=samples.Confirm(2, 3, 7), **steps)
    with Journal(tmp_path) as journal:
        assert looks_of(journal.attributes()) == ()
        assert conclusion_of(journal).verdict != "nothing"
    go(tmp_path, confirm=samples.Confirm(2, 3, 12), **steps)
    with Journal(tmp_path) as journal:
        assert {look.seeds for look in looks_of(journal.attributes())} == {7, 12}


def test_evaluations_of_steps_across_episodes_are_named(tmp_path):
    changes = {"env": CARTPOLE, "evaluation": Evaluation(steps=300)}
    results = run(study(**changes), tmp_path, samples.AnalyticFactory(), (), samples.quick())
    said = "Each evaluation covered 300 env steps across episodes, not whole episodes."
    assert said in results.conclusion.said
