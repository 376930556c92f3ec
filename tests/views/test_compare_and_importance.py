"""`hpo compare` and `hpo importance`: which seeds are compared, and what is refused."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from helpers import view_samples as samples
from helpers.recorded_study import write_study
from hpo.cli import main
from hpo.store.comparison import compare as compare_values
from hpo.store.journal import Journal
from hpo.store.rows import Stream, TrialRow, TrialState
from hpo.store.statistics import mean
from hpo.store.study_folder import StudyFolder
from hpo.store.study_store import StudyStore
from hpo.store.unobserved import Bounds
from hpo.studies.env_spec import EnvSpec
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import Constraint, EarlyTerminate, Metric, SearchSpec, Seeds
from hpo.views.commands import compare
from hpo.views.compare.deciding_runs import why_unpaired
from hpo.views.compare.sides import sides_of_trials
from hpo.views.compare.values import ComparedValues
from hpo.views.compare.verdict import compare_values as compared_sides
from hpo.views.compare.verdict import refusal_reason
from hpo.views.formatting import steps
from hpo.views.time_spent import confirm_cost


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Six seeds a trial, of which 1 may diverge; the best 3 on 5 fresh ones, the winner on 6."""
    root = tmp_path_factory.mktemp("results")
    rule = EarlyTerminate("asha", 2_000, 1.5)
    return samples.make_results(root, seeds=Seeds(6, tolerate=1), early_terminate=rule)


def compared(capsys, results, a, b):
    words = ["compare", str(a), str(b), "--study", str(results.folder)]
    assert main([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert main(words) == 0
    return data, capsys.readouterr().out


def test_compare_uses_seeds_shared_by_winner_and_rival(capsys, results):
    winner, other = results.leaderboard[:2]
    assert len(winner.values) == 6 and winner.value_from == "report" and other.confirmed
    with Journal(results.folder) as journal:
        ours, theirs = (journal.trial(e.trial).choose_values for e in (winner, other))
    apart = [x - y for x, y in zip(ours, theirs, strict=True)]
    data, text = compared(capsys, results, winner.trial, other.trial)
    assert data["paired"] and data["seeds"] == [5, 5]
    assert data["difference"] == pytest.approx(mean(apart))
    assert data["decision"] is None  # three trials ran on these seeds, which picked the winner
    assert data["difference_interval"]["low"] is None and data["more_seeds"] is None
    assert data["probability"] is None
    assert text.startswith("No verdict: trial ") and "5 shared selection seeds, but" in text
    pair = f"{winner.trial} {other.trial}"
    words = " ".join(text.split())
    assert re.search(
        r"To decide, train both on test seeds \(\d+ runs, \d+k env steps, about \d+s\): "
        f"hpo confirm {pair} --seeds 8",
        words,
    )
    lines = [line.split() for line in text.splitlines() if line.startswith("  trial ")]
    assert [float(line[2]) for line in lines] == pytest.approx(data["means"], rel=1e-3)


def test_compare_names_trials_violating_constraints(capsys, tmp_path):
    limit = Constraint("eval/return_max", max=47.0)
    results = samples.make_results(tmp_path, constraints=(limit,))
    two = [entry for entry in results.leaderboard if entry.confirmed][:2]
    unfit = [f"trial {entry.trial}" for entry in two if entry.feasible is False]
    data, text = compared(capsys, results, *(entry.trial for entry in two))
    verb = "violates" if len(unfit) == 1 else "violate"
    where = f"{' and '.join(unfit)} {verb} constraints on the seeds used for ranking"
    said = f"Only values are compared, although {where}."
    assert unfit and data["caution"].endswith(said) and said in " ".join(text.split())


def test_the_objective_that_is_compared_is_named(capsys, tmp_path):
    two = (Metric(), Metric("eval/return_min", "minimize"))
    results = samples.make_results(tmp_path, objectives=two)
    some = [entry.trial for entry in results.leaderboard if entry.confirmed][:2]
    data, text = compared(capsys, results, *some)
    said = "Of 2 objectives, only eval/return_mean is compared."
    assert data["caution"].endswith(said) and said in " ".join(text.split())


def test_compare_gives_no_verdict_on_selection_seeds(capsys, results):
    _, second, third = results.leaderboard[:3]
    data, text = compared(capsys, results, second.trial, third.trial)
    assert data["paired"] and data["seeds"] == [5, 5] and data["caution"] == ""
    assert "probability" not in text and "P(win" not in text
    assert data["decision"] is None and text.startswith("No verdict: ")
    wins, ties, losses = map(int, re.findall(r"(?:wins|ties|loses) (\d+)", text))
    assert wins + ties + losses == 5


def test_stopped_trial_is_compared_at_the_last_common_env_steps(capsys, results):
    stopped = next(e for e in results.leaderboard if e.state == "stopped" and not e.is_default)
    ran = next(e for e in results.leaderboard if e.value_from == "search")
    data, text = compared(capsys, results, ran.trial, stopped.trial)
    assert data["at"] == stopped.rung_env_steps
    assert data["means"][1] == pytest.approx(stopped.rung_value)
    with Journal(results.folder) as journal:
        known = {d.env_steps: d.value for d in journal.decisions(ran.trial)}
    assert data["means"][0] == pytest.approx(known[data["at"]])
    words = " ".join(text.split())
    assert f"at {steps(data['at'])} env steps, the last point both reached" in words
    assert data["caution"] == ""


def test_unpaired_sides_at_a_common_point_list_their_seeds(results):
    """They have no values on test seeds."""
    stopped = next(e for e in results.leaderboard if e.state == "stopped" and not e.is_default)
    ran = next(e for e in results.leaderboard if e.value_from == "search")
    folder = StudyFolder(Path(results.folder))
    _, sides = sides_of_trials(folder, [ran.trial, stopped.trial])
    assert [set(side.values) for side in sides] == [{Stream.SEARCH}] * 2
    text = why_unpaired(*sides)
    assert text.startswith(f"trial {ran.trial} has ")
    assert text.endswith(" search seeds; not all of these are shared.")


@pytest.fixture
def grown(tmp_path):
    """Give studies of 6 and then 40 trials, of which another one wins in the second."""
    won = []
    for trials in (6, 40):
        results = samples.make_results(
            tmp_path, early_terminate=None, budget=Budget(trials=trials), seed=1
        )
        won.append(results.best.trial)
    assert won[0] != won[1]
    return results, won


def test_earlier_winner_is_compared_on_test_seeds(capsys, grown):
    results, won = grown
    data, _ = compared(capsys, results, won[1], won[0])
    assert data["paired"] and data["seeds"] == [6, 6] and data["caution"] == ""
    with Journal(results.folder) as journal:
        ours, theirs = (journal.trial(trial).report_values for trial in reversed(won))
    assert data["difference"] == pytest.approx(mean(ours) - mean(theirs))


def test_compare_uses_runs_of_an_unfinished_confirm_stage(capsys, grown, tmp_path):
    """The rows of trials do not have their values, the evaluations do."""
    (results, won), folder = grown, tmp_path / "cut"
    shutil.copytree(results.folder, folder)
    with StudyStore(StudyFolder(folder), Journal(folder).meta) as store:
        rows = store.journal.trials()
        cut = [replace(row, report_values=()) for row in rows if row.trial in won]
        store.commit(loop_state=store.head.loop_state, checkpoint=None, trials=cut)
    cut = SimpleNamespace(folder=folder)
    data, _ = compared(capsys, cut, *won)
    assert data["paired"] and data["seeds"] == [6, 6]
    whole, _ = compared(capsys, results, *won)
    assert data["difference"] == whole["difference"]


def test_search_values_are_paired_unless_a_replicate_diverged(capsys, results, tmp_path):
    finished = [e for e in results.leaderboard if e.value_from == "search"][:2]
    numbers = [entry.trial for entry in finished]
    data, _ = compared(capsys, results, *numbers)
    assert data["paired"] and data["seeds"] == [6, 6]
    with Journal(results.folder) as journal:
        rows = [journal.trial(number) for number in numbers]
        meta, head = journal.meta, journal.head()
    # Seed 0 of the one and seed 5 of the other: five values each, of on different seeds.
    lost = [
        replace(rows[0], seed_values=rows[0].seed_values[1:]),
        replace(rows[1], seed_values=rows[1].seed_values[:-1]),
    ]
    with StudyStore(StudyFolder(tmp_path / "lost"), meta) as store:
        store.commit(loop_state=head.loop_state, checkpoint=None, trials=lost, phase="finished")
    data, text = compared(capsys, SimpleNamespace(folder=tmp_path / "lost"), *numbers)
    assert not data["paired"] and data["seeds"] == [5, 5]
    a, b = (f"trial {number}" for number in numbers)
    told = f"{a} has 5 search seeds, {b} 5 search seeds; not all of these are shared."
    assert told in " ".join(text.split())


@pytest.mark.parametrize("form", ["csv", "tensorboard"])
def test_export_reports_a_damaged_table(capsys, tmp_path, form):
    folder = samples.make_results(tmp_path).folder
    (folder / "curves.parquet").write_bytes(b"")
    assert main(["export", form, "--study", str(folder), "--to", str(tmp_path / "to")]) == 2
    assert "curves.parquet cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["export", "optuna", "--to", "x.log", "--set", "name"], "allowed: name=NAME"),
        (["compare", "a", "b", "--study", "small"], "with --study small, give two trial numbers"),
        (["importance", "--at", "1k", "--over-progress"], "remove --at"),
        (["importance", "--at", "1x"], "'1x' is not a number of env steps such as 1k"),
        (["importance", "--at", "2.5k"], "no evaluation at 2500 env steps; known: 2000, "),
        (["plot", "history", "--at", "2k"], "works only with hpo plot importance"),
        (["plot", "importance", "--at", "2.5k"], "no evaluation at 2500 env steps"),
        (["eval", "--seeds", "3"], "--seeds is for optical networks only"),
        (["eval", "--plot", "x.png"], "--plot is for optical networks only"),
        (["eval", "missing", "--steps", "200"], "missing is not a policy folder"),
        (
            ["eval", "--heuristic", "ksp_ff", "--episodes", "3"],
            "--episodes does not apply to optical networks",
        ),
    ],
)
def test_options_that_would_do_nothing_are_refused(capsys, results, words, told):
    out = [] if words[0] == "eval" else ["--out", str(results.folder.parent)]
    assert main([*words, *out]) == 2
    printed = capsys.readouterr()
    assert told in printed.err and "Traceback" not in printed.err and printed.out == ""


def test_piped_compare_and_importance_fit_80_columns(capsys, results):
    winner = results.leaderboard[0]
    other = next(e for e in results.leaderboard if e.value_from == "search")
    for words in (["importance"], ["compare", str(winner.trial), str(other.trial)]):
        assert main([*words, "--study", str(results.folder)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) > 3 and max(map(len, lines)) <= 80


def test_importance_plot_accepts_the_command_options(capsys, results, tmp_path):
    where = ["--study", str(results.folder)]
    target = tmp_path / "picture.svg"
    for given in (["--at", "2.01k"], []):  # as it may be printed: to three digits
        assert main(["plot", "importance", *given, *where, "--to", str(target), "--json"]) == 0
        caption = json.loads(capsys.readouterr().out)["caption"]
        assert main(["importance", *given, *where, "--json"]) == 0
        [words] = json.loads(capsys.readouterr().out)
        assert caption.startswith(words["answer"]["sentences"][0])


def compared_studies(capsys, root, a, b):
    words = ["compare", a, b, "--out", str(root)]
    code = main([*words, "--json"])
    printed = capsys.readouterr()
    return json.loads(printed.out) if code == 0 else printed.err


def test_unconfirmed_trial_is_compared_on_search_seeds(capsys, results):
    winner = results.leaderboard[0]
    other = next(e for e in results.leaderboard if e.value_from == "search")
    with Journal(results.folder) as journal:
        ours, theirs = (journal.trial(e.trial).seed_values for e in (winner, other))
    data, _ = compared(capsys, results, winner.trial, other.trial)
    assert data["paired"] and data["means"] == [mean(ours), mean(theirs)]
    assert data["verdict"].endswith(
        "6 shared search seeds, but these seeds were also used to rank the trials"
    )


def test_winners_of_two_studies_are_compared_on_test_seeds(capsys, tmp_path):
    one = samples.make_results(tmp_path, "one")
    samples.make_results(tmp_path, "two", seed=5, confirm=None)
    assert one.best.value_from == "report"
    data = compared_studies(capsys, tmp_path, "one", "two")
    assert data["seeds"][0] == 6 and data["means"][0] == mean(one.best.values)
    assert data["decision"] is None and data["verdict"].endswith(
        ", but some of these seeds were also used to pick the trials"
    )
    assert main(["compare", "one", "two", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "To decide, run both on test seeds:" in text
    assert text.count("hpo confirm") == 1 and str(tmp_path / "two") in text


POOR = samples.search.parameter(
    "learning_rate", 1e-5, min=1e-5, max=1.0, distribution="log_uniform"
)  # a default that a search beats


@pytest.mark.parametrize("loses", ["winner", "default"])
def test_side_that_diverged_on_more_test_seeds_is_not_called_better(capsys, tmp_path, loses):
    def among(config):
        return (config["learning_rate"] == 1e-5) == (loses == "default")

    found = samples.make_results(
        tmp_path,
        factory=samples.search.LosingFactory(replicate=8, chunk=16, among=among),
        seeds=Seeds(1),
        space=samples.search.Space((POOR, samples.search.REAL.parameters[1])),
        confirm=samples.search.Confirm(3, 3, 9),
    )
    winner = found.best.trial
    assert (found.conclusion.against.verdict == "diverged") == (loses == "winner")
    for pair in ((winner, 0), (0, winner)):
        data, text = compared(capsys, found, *pair)
        words = " ".join(text.split())
        assert (data["seeds"] == [8, 8] and "leads" in words) or "is better" in words
        if loses == "winner":
            assert data["decision"] is None and data["probability"] is None
            assert "1 of 9" in data["verdict"] and "none of 9" in data["verdict"]
            assert "is better" not in words and "hpo confirm" not in words
        else:
            assert f"rial {winner} is better than trial 0" in words
            assert "1 of 9" in data["caution"] and "none of 9" in data["caution"]
    runs = [confirm_cost(found.folder, [trial], 9) for trial in (winner, 0)]
    assert runs == ["no more runs needed"] * 2  # a diverged seed does not run again


def test_unpaired_values_after_an_earlier_look_give_no_verdict(results):
    """Divergence left few pairs; a second test at the whole level would err in up to 10 %."""
    _, sides = sides_of_trials(StudyFolder(results.folder), (1, 0))
    values = [[10.0, 10.1, 10.2, 10.3, 10.4], [0.0, 0.1, 0.2, 0.3, 0.4]]
    streams = (Stream.REPORT, Stream.REPORT)
    for earlier in ((), (6,)):
        chosen = ComparedValues(values, False, streams, earlier=earlier)
        result = compared_sides(chosen)
        refused = refusal_reason(result, sides, chosen)
        assert result.verdict == ("undecided" if earlier else "better")
        assert bool(refused) == bool(earlier)
    assert "fewer than 6 seeds have values of both" in refused.why


def test_stopped_default_is_compared_where_others_have_no_test_seeds(capsys, tmp_path):
    """It was stopped, but has test seeds; the other trial has search seeds of full runs."""
    space = samples.search.Space((POOR, samples.search.REAL.parameters[1]))
    found = samples.make_results(tmp_path, space=space)
    default = next(entry for entry in found.leaderboard if entry.is_default)
    other = next(entry for entry in found.leaderboard if entry.value_from == "search")
    assert default.state == "stopped" and default.report_seeds
    data, text = compared(capsys, found, default.trial, other.trial)
    assert data["at"] == default.rung_env_steps and data["decision"] is None
    assert f"hpo confirm {default.trial} {other.trial} --seeds" in " ".join(text.split())


def test_lead_with_a_condition_names_it_and_suggests_no_run(capsys, results, monkeypatch):
    """A small lead on each of ten seeds: no affordable number of seeds excludes a new outcome."""
    trials = compare.sides_of_trials

    def with_small_lead(*given):
        meta, sides = trials(*given)
        values = [
            {("report", n): 100.0 + 8 * (n % 3) + lead for n in range(10)} for lead in (1, 0)
        ]
        return meta, [
            replace(side, values={Stream.REPORT: own}, lost=frozenset())
            for side, own in zip(sides, values, strict=True)
        ]

    monkeypatch.setattr(compare, "sides_of_trials", with_small_lead)
    one, other = (entry.trial for entry in results.leaderboard[:2])
    data, text = compared(capsys, results, one, other)
    assert data["decision"] == "undecided" and data["more_seeds"] is None
    rare = data["unless"]["one_in"]
    said = f"Trial {one} is better than trial {other} unless 1 in {rare} seeds gives a new result"
    assert " ".join(text.split()).startswith(f"{said}: by 1 ")
    assert "hpo confirm" not in text


def test_studies_with_equal_seed_are_compared_pairwise(capsys, tmp_path):
    one = samples.make_results(tmp_path, "one")
    two = samples.make_results(tmp_path, "two", search=SearchSpec("sobol"))
    samples.make_results(tmp_path, "apart", seed=5)
    data = compared_studies(capsys, tmp_path, "one", "two")
    assert data["paired"] and data["seeds"] == [6, 6] and data["caution"] == ""
    apart = [x - y for x, y in zip(one.best.values, two.best.values, strict=True)]
    assert data["difference"] == pytest.approx(mean(apart))
    assert not compared_studies(capsys, tmp_path, "one", "apart")["paired"]
    assert main(["compare", "one", "apart", "--out", str(tmp_path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "6 and 6 test seeds, not paired" in text
    assert "one ran with `seed: 0`, apart with `seed: 5`" in text
    assert "run apart's file with --set seed=0 --name apart-seed0" in text


def test_different_training_weights_give_no_verdict(capsys, tmp_path):
    mixed = Metric(training_weight=0.5)
    samples.make_results(tmp_path, "plain", confirm=None)
    shows = samples.ReturningFactory(lanes=12, block=4, diverges_above=0.3)
    samples.make_results(tmp_path, "mixed", shows, confirm=None, metric=mixed)
    samples.make_results(tmp_path, "like", shows, confirm=None, metric=mixed)
    samples.make_results(tmp_path, "tested")
    samples.make_results(tmp_path, "also", metric=mixed)

    def verdict(*names):
        return compared_studies(capsys, tmp_path, *names)["verdict"]

    refused = "no verdict: training returns have weight {} and weight {}"
    half, none = "0.5 in the values of mixed", "0 in the values of "
    assert verdict("plain", "mixed") == refused.format(f"{none}plain", half)
    for name in ("tested", "also"):  # their values are of test seeds
        assert verdict(name, "mixed") == refused.format(none + name, half)
    for pair in (("mixed", "like"), ("tested", "plain"), ("also", "plain")):
        assert "these seeds were also used to pick the trials" in verdict(*pair)
    assert "no verdict" not in verdict("tested", "also")
    assert main(["compare", "plain", "mixed", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("No verdict: training returns") and "better" not in said


def test_compare_lists_seed_counts_if_none_are_shared(capsys, tmp_path):
    samples.make_results(tmp_path, "one")
    bare = samples.make_results(tmp_path, "bare", confirm=None)
    data = compared_studies(capsys, tmp_path, "one", "bare")
    assert data["unpaired"].startswith("one has ") and "2 search seeds" in data["unpaired"]
    assert "6 test seeds, bare 2 search seeds. To pair them on test seeds:" in data["unpaired"]
    command = f"hpo confirm {bare.best.trial} --seeds 6 --study {bare.folder}"
    assert data["unpaired"].endswith(f":\n  {command}")  # also for a study of `hpo train`
    poor = samples.search.parameter(
        "learning_rate", 1e-5, min=1e-5, max=1.0, distribution="log_uniform"
    )  # a default that copies another one
    found = samples.make_results(
        tmp_path,
        "pbt",
        early_terminate=EarlyTerminate("pbt", every=2_000),
        budget=samples.search.Budget(trials=6),
        space=samples.search.Space((poor, samples.search.REAL.parameters[1])),
    )
    other = next(e.trial for e in found.leaderboard if e.value_from == "search")
    words = ["compare", str(other), "-1", "--study", str(found.folder)]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert f"trial {other} and trial -1 have no seeds in common: trial {other} has 2" in told
    assert "trial -1 6 test seeds" in told and f"hpo confirm {other} -1" in told


def test_compare_at_the_ceiling_suggests_no_more_seeds(capsys, tmp_path, monkeypatch):
    samples.make_results(tmp_path, "one")
    samples.make_results(tmp_path, "alone", confirm=None, budget=samples.search.Budget(trials=1))
    studies = compare.sides_of_studies

    def at_the_ceiling(*names):
        meta, sides = studies(*names)
        values = [
            {kind: dict.fromkeys(known, 500.0) for kind, known in side.values.items()}
            for side in sides
        ]
        return meta, [replace(side, values=own) for side, own in zip(sides, values, strict=True)]

    assert compared_studies(capsys, tmp_path, "one", "alone")["caution"] == ""
    monkeypatch.setattr(compare, "sides_of_studies", at_the_ceiling)
    assert main(["compare", "one", "alone", "--out", str(tmp_path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "have the same mean on 6 and 2 seeds, not paired" in text
    assert text.endswith("Both reach 500, the environment's limit; other seeds may differ.")


def test_ceiling_on_few_seeds_gives_no_verdict(capsys, results, monkeypatch):
    _, sides = compare.sides_of_trials(StudyFolder(results.folder), (0, 1))
    alike = replace(compare.compared_values(*sides), values=[[500.0]] * 2, paired=True)
    monkeypatch.setattr(compare, "compared_values", lambda *_: alike)
    text = " ".join(compared(capsys, results, 0, 1)[1].split())
    limit = (
        "Both reach 500, the environment's limit; other seeds may differ. To decide, train both"
    )
    assert f"{limit} on test seeds" in text and "hpo confirm 0 1 --seeds 8" in text


def test_compare_writes_numbers_as_the_leaderboard_does(capsys, results, monkeypatch):
    """Whole from 1,000 on, and signed from the leader's side where the second trial is ahead."""
    _, sides = compare.sides_of_trials(StudyFolder(results.folder), (0, 1))
    behind = [465.1, 272.4, 470.1, 234.2, 259.4, 495.6]
    found = compare.compared_values(*sides)
    chosen = replace(found, values=[behind, [500.0] * 6], paired=True, ranked=False)
    monkeypatch.setattr(compare, "compared_values", lambda *_: chosen)
    assert "trial 1 leads trial 0 by 133.9 [-3.436, 272.1]" in " ".join(
        compared(capsys, results, 0, 1)[1].split()
    )
    chosen = replace(chosen, values=[[12_345.6 + n for n in range(6)], [100.0] * 6])
    monkeypatch.setattr(compare, "value_bounds", lambda _: Bounds())
    _, text = compared(capsys, results, 0, 1)
    assert "by 12248 [" in text and "e+0" not in text


def test_identical_values_give_no_significant_difference(capsys, tmp_path):
    samples.make_results(tmp_path, "one")
    samples.make_results(tmp_path, "two")
    assert main(["compare", "one", "two", "--out", str(tmp_path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    same = "one and two have the same value on each of 6 shared test seeds."
    assert text.startswith(f"No significant difference: {same}")
    assert "better" not in text and "wins 0, ties 6, loses 0" in text


def test_compare_uses_the_known_return_ceiling(capsys, results, monkeypatch):
    """As `hpo top` knows it: CartPole returns at most 500; without that more seeds are needed."""
    values = [[500.0] * 8, [250.0 + 10.0 * seed for seed in range(8)]]
    _, sides = compare.sides_of_trials(StudyFolder(results.folder), (0, 1))
    found = compare.compared_values(*sides)
    chosen = replace(found, values=values, paired=True, ranked=False)
    monkeypatch.setattr(compare, "compared_values", lambda *_: chosen)
    data, text = compared(capsys, results, 0, 1)
    assert data["decision"] == "better" and text.startswith("Trial 0 is better")


def test_compare_names_the_leader_with_a_positive_difference(capsys, results):
    _, second, third = results.leaderboard[:3]
    for pair in ((second.trial, third.trial), (third.trial, second.trial)):
        data, text = compared(capsys, results, *pair)
        ahead, behind = pair if data["difference"] > 0 else reversed(pair)
        lead = f"{abs(data['difference']):.4g}"
        said = f"trial {ahead} leads trial {behind} by {lead} on 5 shared"
        assert said in " ".join(text.split())


def test_different_environments_give_no_verdict(capsys, tmp_path):
    hard = EnvSpec("CartPole-v1", {"gravity": 20.0})
    samples.make_results(tmp_path, "plain")
    samples.make_results(tmp_path, "same", env=EnvSpec("CartPole-v1", {"gravity": 9.8}))
    samples.make_results(tmp_path, "hard", env=hard)
    samples.make_results(tmp_path, "other", env=EnvSpec("Acrobot-v1"))
    assert "no verdict" not in compared_studies(capsys, tmp_path, "plain", "same")["verdict"]
    told = compared_studies(capsys, tmp_path, "plain", "hard")["verdict"]
    world = "gravity: 9.8 and 20.0"
    assert told == f"no verdict: they were evaluated in different environments ({world})"
    assert "only values from the same environment" in compared_studies(
        capsys, tmp_path, "plain", "other"
    )


def test_selection_seeds_never_call_equal_configurations_better(capsys, tmp_path):
    """All 8 trials are equal; by a test on the seeds that sorted them many pairs differ."""
    rng = np.random.default_rng(8)
    decisions = []
    for study in range(12):
        values = rng.normal(100.0, 8.0, (8, 6))
        rows = [
            TrialRow(
                trial,
                TrialState.FINISHED,
                "random" if trial else "default",
                0,
                "b",
                {"learning_rate": 1e-3},
                value=float(np.mean(values[trial])),
                seed_values=tuple(values[trial].tolist()),
            )
            for trial in range(8)
        ]
        folder = write_study(tmp_path / str(study), more="confirm: null", trials=rows)
        order = [int(at) for at in np.argsort(-values.mean(axis=1))]
        for pair in ((order[0], order[-1]), (order[1], order[-1])):
            ours, theirs = (values[at].tolist() for at in pair)
            plain = compare_values(ours, theirs, "maximize", True)
            decisions.append(plain.verdict == "better" or plain.unless is not None)
            data, text = compared(capsys, SimpleNamespace(folder=folder), *pair)
            assert data["decision"] is None and "better" not in text
            assert f"hpo confirm {pair[0]} {pair[1]} --seeds 8" in " ".join(text.split())
    assert sum(decisions) > 0.1 * len(decisions)  # what it would have said


def test_compare_and_run_suggest_the_same_confirm_command(capsys, tmp_path):
    """Also where few test seeds are known, where a first look would propose 8."""
    for name, confirm in (
        ("few", "confirm: {top_k: 2, choose: 4, report: 3}"),
        ("none", "confirm: null"),
    ):
        folder = write_study(tmp_path / name, more=confirm, level=1.0)
        where = ["--study", str(folder)]
        assert main(["top", *where]) == 0
        said = " ".join(capsys.readouterr().out.split())
        [named] = re.findall(r"hpo confirm (\d+ \d+ --seeds \d+)", said)
        first, default = named.split()[:2]
        assert main(["compare", default, first, *where]) == 0
        again = " ".join(capsys.readouterr().out.split())
        assert re.findall(r"hpo confirm (\d+ \d+ --seeds \d+)", again) == [named]
