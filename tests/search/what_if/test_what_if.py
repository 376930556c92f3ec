"""A rule judged over a record does what a study with that rule did."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from helpers import search_samples as samples
from helpers.loading import run_file
from hpo.errors import ConfigError
from hpo.search.run import run
from hpo.search.what_if import asked_rules, matches, read_record, replay, what_if
from hpo.search.what_if.compare_rules import _decides_on_records
from hpo.store.journal import Journal
from hpo.studies.search_spec import EarlyTerminate, Evaluation, Metric, Racing, SearchSpec, Seeds
from hpo.views.commands.analyses import what_if_text

study, quick, Budget = samples.study, samples.quick, samples.Budget
EVERY = Evaluation(every=1_000)
ASHA = EarlyTerminate("asha", 1_000, 2.0)
PAUSED = EarlyTerminate("asha", 1_000, 2.0, pause=6)
AUDITED = EarlyTerminate("asha", 1_000, 2.0, audit=0.5)
MEDIAN = EarlyTerminate("median", 2_000, 4.0)
PLATEAU = EarlyTerminate("plateau", 1_000, patience=2, tolerance=0.3)


def quantum(_study, config):
    return {"32": 500}.get("x".join(map(str, config["hidden_sizes"])), 1_000)


def ran(folder, asked, lanes=6, **more):
    quanta = {"32": 500}
    factory = samples.AnalyticFactory(seed=asked.seed, lanes=lanes, quanta=quanta, **more)
    run(asked, folder, factory, settings=quick())
    return folder


def told(decisions):
    return [
        (d.trial, d.rung, d.env_steps, d.action, d.value, d.cutoff, d.rank, d.judged)
        for d in decisions
    ]


def assert_same(record, asked, folder):
    """Hold a replay against the journal of the study that really ran."""
    found = replay(record, asked)
    assert set(found.shown) == {"seen"}
    with Journal(folder) as journal:
        real = [row for row in journal.trials() if row.trial >= 0]
        assert told(found.decisions) == told(journal.decisions())
    assert {
        n: (t.state, t.env_steps, t.value, t.stop_rule)
        for n, t in found.search_state.trials.items()
    } == {row.trial: (row.state, row.env_steps, row.value, row.stop_rule) for row in real}


CASES = {
    "one seed": {"seeds": Seeds(1)},
    "seeds in turns": {"seeds": Seeds(4)},
    "minimised": {"metric": Metric(goal="minimize")},
    "buckets": {"space": samples.WITH_BUCKETS, "seeds": Seeds(1)},
    "a budget": {"budget": Budget(trials=10, env_steps=150_000)},
    "sobol": {"method": "sobol", "seeds": Seeds(1)},
}


RULES = {"asha": ASHA, "median": MEDIAN, "pause": PAUSED}
FEW = ("seeds in turns", "buckets", "a budget")


@pytest.mark.parametrize(
    ("case", "rule"), [(c, r) for c in CASES for r in RULES if r != "pause" or c in FEW]
)
def test_replayed_rule_equals_study_with_that_rule(tmp_path, case, rule):
    changes = {"budget": Budget(trials=10), "seed": 3, "evaluation": EVERY, **CASES[case]}
    whole = study(early_terminate=None, **changes)
    if whole.budget.env_steps:  # of the record it pays for all that the rule asks for
        whole = dataclasses.replace(whole, budget=Budget(trials=10))
    record = read_record(ran(tmp_path / "whole", whole), quantum)
    assert matches(record, replay(record, whole))[1] > 0
    asked = study(early_terminate=RULES[rule], **changes)
    assert_same(record, asked, ran(tmp_path / "real", asked))


def test_replayed_seeds_racing_and_plateau_equal_their_studies(tmp_path):
    changes = {"budget": Budget(trials=8), "seed": 5, "evaluation": EVERY}
    whole = study(early_terminate=None, seeds=Seeds(4), **changes)
    record = read_record(ran(tmp_path / "whole", whole, lanes=4), quantum)
    for at, (seeds, rule) in enumerate(
        [
            (Seeds(4, racing=Racing(2)), None),
            (Seeds(2), PLATEAU),
            (Seeds(2), EarlyTerminate("hyperband", 1_000, 3.0)),
            (Seeds(1), dataclasses.replace(ASHA, audit=0.5)),
        ]
    ):
        asked = study(early_terminate=rule, seeds=seeds, **changes)
        assert_same(record, asked, ran(tmp_path / f"real{at}", asked, lanes=4))


def test_replay_reproduces_diverged_trials(tmp_path):
    whole = study(
        early_terminate=None, seeds=Seeds(3), budget=Budget(trials=14), seed=1, evaluation=EVERY
    )
    folder = ran(tmp_path / "whole", whole, lanes=7, diverges_above=0.01)
    found = what_if(folder, ["none", "asha,eta=2", "median"], quantum=quantum)
    states = [row.state for row in read_record(folder, quantum).trials]
    assert states.count("diverged") >= 2 and found.matched == found.judgements > 5
    none, asha, _ = found.rows
    assert none.exact and none.lost == 0.0 and none.saved == pytest.approx(0.0)
    assert asha.stopped > 0 and asha.saved > 0.3


class Leave(Exception):
    pass


def left(folder, asked, factory, after):
    """Run a study and leave it after so many env steps."""

    class Ends:
        def on_chunk(self, progress):
            if progress.env_steps > after:
                raise Leave

        def __getattr__(self, name):
            return lambda *args, **kwargs: None

    with pytest.raises(Leave):
        run(asked, folder, factory, [Ends()], quick(commit_seconds=0.0))


def test_seeds_without_first_evaluation_are_not_lost(tmp_path):
    """The study was killed in the search: the seeds in the lanes have shown nothing yet."""
    asked = study(
        early_terminate=None,
        seeds=Seeds(4),
        budget=Budget(trials=9),
        seed=2,
        evaluation=Evaluation(every=4_000),
    )
    left(tmp_path, asked, samples.AnalyticFactory(seed=2, lanes=6), 103_000)
    record = read_record(tmp_path, quantum)
    begun = {row.trial for row in record.trials}
    assert begun > {trial for trial, _ in record.results}
    (none,) = what_if(tmp_path, ["none"], quantum=quantum).rows
    assert none.own and none.saved == 0.0 and (none.why, none.lost) == ("unseen", None)
    assert none.env_steps == len(begun) * 4 * 16_000


def test_points_include_only_trials_with_all_seeds(tmp_path):
    """Six lanes: four seeds of one trial and two of the next one."""
    asked = study(
        early_terminate=None, seeds=Seeds(4), budget=Budget(trials=9), seed=2, evaluation=EVERY
    )
    left(tmp_path, asked, samples.AnalyticFactory(seed=2, lanes=6), 20_000)
    record = read_record(tmp_path, quantum)
    assert len(record.results) == 6 and record.shortened is None


def test_resumed_study_can_be_replayed(tmp_path):
    asked = study(early_terminate=ASHA, budget=Budget(trials=9), seed=2)
    folder = tmp_path / "study"
    factory = samples.AnalyticFactory(seed=2, lanes=6)
    left(folder, asked, factory, 60_000)
    run(asked, folder, factory, settings=quick())
    found = what_if(folder, ["asha,eta=2,min=1000"], quantum=quantum)
    assert found.matched == found.judgements and found.rows[0].why == ""
    assert found.rows[0].rule == "asha eta=2 min=1k"
    with pytest.raises(ConfigError, match=r"unknown rule 'ashaa'.*median, none, plateau, racing"):
        what_if(folder, ["ashaa"], quantum=quantum)


def test_unseen_results_are_labelled_and_give_no_loss(tmp_path):
    """A rule that runs on stopped trials is told by its env steps alone."""
    strict = dataclasses.replace(ASHA, eta=4.0, audit=0.4)
    asked = study(
        early_terminate=strict, budget=Budget(trials=16), seeds=Seeds(1), seed=4, evaluation=EVERY
    )
    folder = ran(tmp_path / "study", asked, diverges_above=9.0)
    own, gentle, none = what_if(
        folder, ["asha,eta=4,audit=0.4", "asha,eta=2", "none"], quantum=quantum
    ).rows
    assert own.exact and own.lost is not None and own.kept is not None
    for row in (gentle, none):
        assert (row.why, row.lost, row.kept) == ("unseen", None, None)
    assert none.env_steps == 16 * 16_000 > max(gentle.env_steps, own.env_steps)
    record = read_record(folder, quantum)
    stopped = next(row for row in record.trials if row.state == "stopped")
    last = max(record.results[stopped.trial, 0])
    result, how = record.at(stopped.trial, 0, 16_000)
    assert how == "unseen" and result is record.results[stopped.trial, 0][last]
    assert record.at(stopped.trial, 0, last) == (result, "seen")
    assert record.at(stopped.trial, 0, last - 500)[1] == "between"
    assert record.value(stopped.trial, 16_000) is None


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("ashaa", "did you mean 'asha'"),
        ("asha,eta", "use key=value"),
        ("asha,etta=2", "etta"),
        ("asha,eta=0.5", "eta"),
        ("none,eta=2", "no option"),
        ("pbt", "which cannot be replayed"),
        ("racing", "at least 3 seeds, but these have 2"),
        ("asha,min=500", "first evaluated at 2000; use min=2000 or more"),
        ("asha,min=100k", "no rung is within a run of 16000 env steps"),
    ],
)
def test_invalid_what_if_rule_is_refused_in_one_line(rule, said, record):
    _, found = record
    with pytest.raises(ConfigError) as error:
        asked_rules(found, [rule], None)
    assert said in str(error.value) and "\n" not in str(error.value)
    assert "override" not in str(error.value)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    folder = ran(tmp_path_factory.mktemp("r") / "x", study(budget=Budget(trials=4)))
    return folder, read_record(folder, quantum)


def test_rounded_first_rung_gets_the_usual_rules(tmp_path):
    asked = study(early_terminate=dataclasses.replace(ASHA, min=1_700), budget=Budget(trials=4))
    folder = ran(tmp_path / "study", asked)
    found = read_record(folder, quantum)
    assert found.first_point == 2_000  # the file says 1,700; a chunk has 1,000
    assert len(asked_rules(found, [], None)) == 7


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"early_terminate": PAUSED}, "asha eta=2 min=1k pause=6"),
        ({"early_terminate": AUDITED}, "asha eta=2 min=1k audit=0.5"),
        (
            {"seeds": Seeds(4, racing=Racing(2, 0.9)), "early_terminate": None},
            "racing start=2",
        ),
    ],
)
def test_rule_of_the_study_is_listed_first(tmp_path, changes, words):
    """Also one that nobody can type, and it saves what the study saved."""
    asked = study(**{"evaluation": EVERY, "budget": Budget(trials=8), **changes})
    folder = ran(tmp_path / "study", asked)
    found = what_if(folder, quantum=quantum)
    assert found.rows[0].rule == words and found.matched == found.judgements
    with Journal(folder) as journal:
        spent = sum(row.env_steps for row in journal.trials())
    own = found.rows[0]
    assert own.exact and own.env_steps == spent


@pytest.mark.parametrize("rule", [None, ASHA], ids=["racing alone", "with asha"])
def test_racing_study_is_compared_with_runs_on_all_seeds(tmp_path, rule):
    """Its values are of all seeds of a trial, the winner's as well."""
    asked = study(
        early_terminate=rule,
        seeds=Seeds(6, racing=Racing(2, 0.9)),
        evaluation=EVERY,
        budget=Budget(trials=8),
    )
    found = what_if(ran(tmp_path / "study", asked), quantum=quantum)
    own = found.rows[0]
    assert own.own and own.exact and own.lost == 0.0 and own.kept
    assert own.saved == pytest.approx(1.0 - own.env_steps / (8 * 6 * 16_000))
    assert 0.0 < own.saved < 1.0
    none = next(row for row in found.rows if row.rule == "none")
    assert (found.seeds, found.most_seeds) == (2, 6)
    assert none.saved == pytest.approx(1.0 - none.env_steps / (8 * 6 * 16_000))
    with pytest.raises(ConfigError, match="at least 3 seeds, but these have 2"):
        what_if(tmp_path / "study", ["racing,start=2"], quantum=quantum)
    words = "saved: compared with runs on all 6 seeds; the other rules are replayed on 2."
    assert words in what_if_text(found)


def test_more_seeds_than_were_recorded_are_refused(record):
    with pytest.raises(ConfigError, match="allowed: 1 to 2"):
        asked_rules(record[1], ["none"], 3)


def test_replay_of_same_rule_has_same_proposals(tmp_path):
    asked = study(method="tpe", early_terminate=ASHA, budget=Budget(trials=8), evaluation=EVERY)
    folder = ran(tmp_path / "study", asked)
    found = what_if(folder, ["asha,eta=2", "none"], quantum=quantum)
    assert found.matched == found.judgements > 0
    assert [(row.exact, row.why) for row in found.rows] == [(True, ""), (False, "unseen")]
    fewer = what_if(folder, ["asha,eta=2"], seeds=1, quantum=quantum)
    assert fewer.rows[0].why != ""  # other seeds would have told the method other values


class Choosy(samples.AnalyticFactory):
    """Refuses some configurations, whose trials fail before they begin."""

    def resolve(self, config):
        if config["gamma"] > 0.9985:
            raise ConfigError("too patient")
        return super().resolve(config)


class Breaking(samples.AnalyticFactory):
    """One seed of some configurations fails, which ends the other one, too."""

    def make(self, resolved, lanes):
        made = super().make(resolved, lanes)
        advance = made.advance

        def failing(refills, busy):
            result, there = advance(refills, busy), {i: made.lane_at(i) for i in busy}
            firsts = [i for i in busy if there[i].replicate == 0]
            ends = [i for i in firsts if there[i].payload["gamma"] > 0.9985]
            return dataclasses.replace(result, failed=dict.fromkeys(ends, "no"))

        made.advance = failing
        return made


def test_replay_of_failed_trials_counts_no_errors_against_the_budget(tmp_path):
    """Both lanes of a failed trial fail in a replay, so it has more errors than the study."""
    asked = study(early_terminate=ASHA, budget=Budget(trials=10), evaluation=EVERY)
    results = run(asked, tmp_path / "study", Breaking(lanes=4), settings=quick())
    failed = [entry.state for entry in results.leaderboard].count("failed")
    assert results.usage.failures == failed > 1
    record = read_record(tmp_path / "study", quantum)
    tight = dataclasses.replace(asked, budget=Budget(trials=10, max_failures=failed + 1))
    states = [trial.state for trial in replay(record, tight).search_state.trials.values()]
    assert states.count("failed") == failed and len(states) == 10
    (none,) = what_if(tmp_path / "study", ["none"], quantum=quantum).rows
    assert none.saved == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("changes", "why", "has_a_best"),
    [
        ({}, "", True),
        ({"method": "tpe"}, "asks", True),
        ({"objectives": (Metric(), Metric("eval/length_mean"))}, "", False),
    ],
    ids=["failed trials", "a method that learns", "two objectives"],
)
def test_what_if_states_why_result_is_uncertain(tmp_path, changes, why, has_a_best):
    asked = study(early_terminate=None, budget=Budget(trials=10), evaluation=EVERY, **changes)
    run(asked, tmp_path / "study", Choosy(lanes=4), settings=quick())
    found = what_if(tmp_path / "study", ["none", "asha,eta=2"], quantum=quantum)
    states = [row.state for row in read_record(tmp_path / "study", quantum).trials]
    assert "failed" in states and found.matched == found.judgements > 0
    assert found.same_asks is (why != "asks")
    for row in found.rows:
        own = row.rule == "none"  # with which the study ran: it asks for what it asked for
        assert (row.why, row.trials) == ("" if own else why, len(states) - states.count("failed"))
        assert (row.lost is not None) is has_a_best
    assert found.rows[1].stopped > 0 and found.rows[1].saved > 0.3
    text = what_if_text(found)
    first, _, rest = text.partition("\n")
    assert first == f"{found.study} ran 10 trials on 2 seeds each, without a stopping rule."
    table = [line for line in rest.splitlines() if line.startswith(("none", "asha", "rule"))]
    split = what_if_text(found, 30)
    assert {word for line in table for word in line.split()} <= set(split.split())
    assert max(map(len, table)) <= 80 and ("several objectives" in text) is not has_a_best
    own = dataclasses.replace(found.rows[1], own=True)
    turned = dataclasses.replace(found, rows=(own,), recorded_rule="asha")
    told = what_if_text(turned).splitlines()[0]
    assert f"ran {own.rule}: saved {own.saved:.0%} of env steps" in told
    other = dataclasses.replace(found, rows=found.rows[1:], recorded_rule="median")
    assert f"{found.study} ran median; the rules are replayed on its" in what_if_text(other)


def test_lost_seeds_make_replay_inexact(tmp_path):
    """A seed that a finished trial lost keeps its last value."""
    asked = study(
        early_terminate=None,
        seeds=Seeds(3, tolerate=1),
        budget=Budget(trials=12),
        evaluation=EVERY,
    )
    factory = samples.LosingFactory(lanes=4, diverges_above=9.0)
    run(asked, tmp_path, factory, settings=quick())
    with Journal(tmp_path) as journal:
        values = {row.trial: row.value for row in journal.trials()}
    found = what_if(tmp_path, ["asha,eta=2,min=4000"], quantum=quantum)
    assert found.best is not None and values[found.best] == max(values.values())
    assert (found.rows[0].exact, found.rows[0].why, found.rows[0].lost) == (False, "unseen", None)


def test_seeds_lost_out_of_step_are_reported(tmp_path):
    """Two lanes for three seeds: what a trial had trained when one was lost depends on order."""
    asked = study(early_terminate=None, seeds=Seeds(3), budget=Budget(trials=6), evaluation=EVERY)
    among = {"among": lambda config: config["gamma"] > 0.99}
    factory = samples.LosingFactory(lanes=2, block=1, diverges_above=9.0, **among)
    run(asked, tmp_path, factory, settings=quick())
    own, asha = what_if(tmp_path, ["none", "asha,eta=2,min=2000"], quantum=quantum).rows
    assert own.exact and asha.why == "lost"


def test_runs_of_different_lengths_can_replace_unseen_results(tmp_path):
    """Whole chunks end a run of 15,500 env steps at 15,500, 16,000 or 16,000."""
    quanta = {"16": 1_000, "32": 500, "64x64": 2_000}
    for seed in range(4):
        asked = study(
            samples.WITH_BUCKETS,
            early_terminate=EarlyTerminate("asha", 2_000, 4.0),
            seeds=Seeds(1),
            budget=Budget(trials=16),
            seed=seed,
            env_steps=15_500,
            evaluation=Evaluation(every=2_000),
        )
        factory = samples.AnalyticFactory(seed=seed, lanes=4, quanta=quanta, diverges_above=9.0)
        run(asked, tmp_path / str(seed), factory, settings=quick())
        found = what_if(
            tmp_path / str(seed),
            ["none"],
            quantum=lambda _, config: quanta["x".join(map(str, config["hidden_sizes"]))],
        )
        assert found.rows[0].why == "unseen"


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_replay_counts_training_returns_like_the_study(tmp_path, method):
    interim = run_file("tests/search/engine/test_interim.py")
    asked = study(
        metric=Metric(training_weight=0.5),
        search=SearchSpec(method),
        early_terminate=ASHA,
        budget=Budget(trials=12),
        evaluation=EVERY,
    )
    run(asked, tmp_path, interim.Shows(quanta={"32": 500}, lanes=6), settings=quick())
    found = what_if(tmp_path, ["asha,eta=2,min=1000"], quantum=quantum)
    assert found.matched == found.judgements > 0
    assert (found.rows[0].own, found.rows[0].exact, found.rows[0].lost) == (True, True, 0.0)


def test_pausing_rule_can_be_replayed(tmp_path):
    asked = study(early_terminate=None, budget=Budget(trials=12), evaluation=EVERY)
    rules = ["asha,eta=2,min=2000,pause=6", "asha,eta=2,min=2000"]
    paused, plain = what_if(ran(tmp_path, asked), rules, quantum=quantum).rows
    assert paused.lost is not None and paused.own is plain.own is False


@pytest.mark.parametrize("stopped_at", [None, 100_000])
def test_replay_uses_initial_lane_counts_of_programs(tmp_path, stopped_at):
    """The first batch is as large as the lanes there were room for, also after a resume."""
    for seed in range(4):
        asked = study(
            samples.WITH_BUCKETS,
            early_terminate=None,
            seeds=Seeds(1),
            seed=seed,
            budget=Budget(trials=20),
            evaluation=Evaluation(every=2_000),
        )
        if stopped_at:
            factory = samples.AnalyticFactory(seed=seed, lanes=16, quanta={"32": 500})
            left(tmp_path / str(seed), asked, factory, stopped_at)
            with Journal(tmp_path / str(seed)) as journal:
                state = json.loads(journal.head().loop_state)
            assert any(bucket["settled"] for bucket in state["buckets"])
        record = read_record(ran(tmp_path / str(seed), asked, lanes=16), quantum)
        buckets = record.state.buckets
        assert max(one.lanes for one in buckets) < 16
        assert {one.offered for one in buckets} == {16}
        same, count = matches(record, replay(record, asked))
        assert same == count > 0


def test_plateau_replay_is_exact_with_staggered_seeds(tmp_path):
    """Three lanes for two seeds a trial: one seed is often ahead of the other."""
    rule = dataclasses.replace(PLATEAU, tolerance=0.1)
    asked = study(early_terminate=rule, budget=Budget(trials=16), evaluation=EVERY, seed=2)
    folder = ran(tmp_path, asked, lanes=3, diverges_above=9.0)
    with Journal(folder) as journal:
        ended = {d.trial: d.env_steps for d in journal.decisions() if d.action == "finish"}
    found = read_record(folder, quantum)
    ahead = [key for key, seen in found.results.items() if max(seen) > ended.get(key[0], 1e9)]
    assert ahead
    verdict = what_if(folder, ["plateau,patience=2,tolerance=0.1,min=1000"], quantum=quantum)
    assert verdict.matched == verdict.judgements > 0 and verdict.rows[0].exact


def test_a_program_whose_run_is_one_chunk_has_no_rung(tmp_path):
    quanta = {"16": 1_000, "32": 500, "64x64": 40_000}
    asked = study(
        samples.WITH_BUCKETS,
        early_terminate=ASHA,
        seeds=Seeds(1),
        budget=Budget(trials=12),
        evaluation=EVERY,
    )
    factory = samples.AnalyticFactory(lanes=4, quanta=quanta, diverges_above=9.0)
    run(asked, tmp_path, factory, settings=quick())
    found = what_if(
        tmp_path,
        ["asha,eta=2", "none"],
        quantum=lambda _, config: quanta["x".join(map(str, config["hidden_sizes"]))],
    )
    assert found.matched == found.judgements > 0


class Passed(dict):
    """A dictionary that counts the keys that loops over it pass."""

    count = 0

    def __iter__(self):
        for key in super().__iter__():
            self.count += 1
            yield key

    def items(self):
        return [(key, self[key]) for key in self]


def test_reading_a_trial_does_not_scan_all_evaluations(tmp_path):
    asked = study(early_terminate=ASHA, seeds=Seeds(2), budget=Budget(trials=24))
    record = read_record(ran(tmp_path / "study", asked))
    record = dataclasses.replace(record, results=(results := Passed(record.results)))
    for row in record.trials:
        record.value(row.trial, row.env_steps)
        record.is_staggered(row)
        record.at(row.trial, 9, 1_000)  # a seed without any evaluation
    assert results.count <= len(results)


def test_each_replay_is_reported_before_it_begins(tmp_path):
    folder = ran(tmp_path / "study", study(early_terminate=ASHA, budget=Budget(trials=8)))
    said = list[tuple[int, int, str]]()
    what_if(folder, ["none", "median,min=2000"], report=lambda *about: said.append(about))
    assert [about[:2] for about in said] == [(1, 3), (2, 3), (3, 3)]
    assert [rule for _, _, rule in said] == ["the study's own rule", "none", "median min=2k"]


def test_pauses_at_recorded_points_count_as_decisions():
    """Only stops counted, so `stopped` and `saved` of `asha` with `pause` were unknown."""
    rows = [SimpleNamespace(trial=trial, env_steps=9, action="pause") for trial in (0, 1)]
    record = SimpleNamespace(value=lambda trial, env_steps: [1.0, None][trial])
    assert _decides_on_records(record, SimpleNamespace(decisions=rows))
