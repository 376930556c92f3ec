"""Where one trial has no training return, evaluations alone rank all trials of a study."""

import dataclasses
import json

import numpy as np
import pytest

from helpers import search_samples as samples
from helpers.loading import run_file
from hpo.cli import main
from hpo.search.run import run
from hpo.search.state.warm_start import warm_start
from hpo.search.what_if import what_if
from hpo.store import Stream, tables_equal
from hpo.store.journal import Journal
from hpo.store.rows import TrialState, counts_evaluations_alone
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import EarlyTerminate, Metric, Racing, Seeds, WarmStart

growing = run_file("tests/search/engine/test_growing_confirm.py")
dies, Died = growing.dies, growing.Died
MIXED = Metric(training_weight=0.5)
ASHA = EarlyTerminate("asha", 2_000, 2.0)


@dataclasses.dataclass(frozen=True)
class SomeShow(samples.AnalyticFactory):
    """Training returns are 60 lower than evaluations; above a rate no training episode ends."""

    silent_above: float = 0.02

    def make(self, resolved, lanes):
        population = super().make(resolved, lanes)
        advance = population.advance

        def shows(refills, busy):
            found = advance(refills, busy)
            rates = np.zeros(population.lanes)
            for lane in busy:
                rates[lane] = population.lane_at(lane).payload["learning_rate"]
            ended = np.where(rates > self.silent_above, 0.0, 5.0)
            returns = np.where(ended > 0.0, 100.0 * found.metrics["skill"] - 60.0, np.nan)
            more = {
                "episodes": ended,
                "episode_return": returns,
                "episode_length": np.where(ended > 0.0, 7.0, np.nan),
            }
            return dataclasses.replace(found, metrics={**found.metrics, **more})

        population.advance = shows
        return population


KINDS = {
    "asha": {"early_terminate": ASHA},
    "asha, learning": {"early_terminate": ASHA, "method": "tpe"},
    "asha with pauses": {"early_terminate": EarlyTerminate("asha", 2_000, 2.0, pause=9)},
    "hyperband": {"early_terminate": EarlyTerminate("hyperband", 2_000, 2.0)},
    "median": {"early_terminate": EarlyTerminate("median", 2_000)},
    "plateau": {"early_terminate": EarlyTerminate("plateau", 1_000, patience=2, tolerance=0.1)},
    "racing": {"early_terminate": None, "seeds": Seeds(4, racing=Racing(2, 0.9))},
    "lost seeds": {"early_terminate": ASHA, "seeds": Seeds(3, tolerate=1)},
    "pb2": {"early_terminate": EarlyTerminate("pb2", every=2_000), "budget": Budget(trials=8)},
}
FACTORY = SomeShow(lanes=4, diverges_above=0.5)


def go(folder, factory=FACTORY, **changes):
    if "budget" in changes:  # all trials run side by side
        factory = dataclasses.replace(factory, lanes=16)
    changes = {"confirm": samples.Confirm(2, 3, 6), "metric": MIXED, **changes}
    return run(samples.study(samples.REAL, **changes), folder, factory, (), samples.quick())


def evaluated(journal):
    """Return (trial, stream, seed) -> env steps -> mean return of its episodes."""
    found = {}
    for row in journal.evaluations():
        own = found.setdefault((row.trial, row.stream, row.replicate), {})
        own[row.env_steps] = float(np.mean(row.returns))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_all_values_use_only_evaluations_if_one_trial_has_no_return(tmp_path, kind):
    go(tmp_path / "s", **KINDS[kind])
    with Journal(tmp_path / "s") as journal:
        assert counts_evaluations_alone(journal.attributes())
        rows, shown = journal.trials(), evaluated(journal)
        steps = {row.trial: [d.env_steps for d in journal.decisions(row.trial)] for row in rows}
    checked = {"value": 0, "rung": 0, "choose": 0}
    first = 2 if kind == "racing" else KINDS[kind].get("seeds", Seeds(2)).per_config
    for row in rows:
        if kind != "pb2" and row.rung >= 0:
            at = steps[row.trial][row.rung]
            seeds = [
                shown[row.trial, Stream.SEARCH, n].get(at)
                for n in range(first)
                if (row.trial, Stream.SEARCH, n) in shown
            ]
            assert row.rung_value == pytest.approx(np.mean([v for v in seeds if v is not None]))
            checked["rung"] += 1
        whole = kind not in ("plateau", "pb2") and (kind != "racing" or len(row.seed_values) == 4)
        if row.state is TrialState.FINISHED and whole:
            ends = [
                points
                for (t, s, _), points in shown.items()
                if (t, s) == (row.trial, Stream.SEARCH)
            ]
            last = max(max(points) for points in ends)
            seeds = [points[last] for points in ends if last in points]
            assert row.seed_values == pytest.approx(seeds)
            assert row.value == pytest.approx(np.mean(seeds))
            checked["value"] += 1
        if row.choose_values:
            seeds = [
                [*shown[row.trial, Stream.CHOOSE, n].values()][-1]
                for n in range(len(row.choose_values))
            ]
            assert row.choose_values == pytest.approx(seeds)
            checked["choose"] += 1
    assert checked["choose"] and (checked["value"] or checked["rung"] or kind == "pb2")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_only_study_killed_at_any_boundary_equals_uninterrupted(
    tmp_path, kind, dies, monkeypatch
):
    changes = KINDS[kind]
    passed = dies(0)
    go(tmp_path / "whole", **changes)
    count = len(passed)
    for number, at in enumerate(sorted({2, 4, 7, count // 3, count // 2, count - 3})):
        if not 0 < at < count:
            continue
        folder = tmp_path / f"broken{number}"
        monkeypatch.undo()
        dies(at)
        with pytest.raises(Died):
            go(folder, **changes)
        monkeypatch.undo()
        go(folder, **changes)
        assert tables_equal(tmp_path / "whole", folder) == []
        with Journal(tmp_path / "whole") as one, Journal(folder) as other:
            assert one.decisions() == other.decisions()
            assert one.asks() == other.asks()


def test_missing_training_returns_give_no_advantage(tmp_path):
    """The best rate is 1e-3; the silent ones are far above it and 60 ahead of a mixture."""
    quiet = dict(early_terminate=None, confirm=None)
    found = go(tmp_path / "s", SomeShow(lanes=4, diverges_above=2.0), **quiet)
    plain = go(
        tmp_path / "t", SomeShow(lanes=4, diverges_above=2.0), **{**quiet, "metric": Metric()}
    )
    assert [e.trial for e in found.leaderboard] == [e.trial for e in plain.leaderboard]
    assert found.best.params["learning_rate"] < 0.02


def test_training_returns_count_if_all_trials_have_them(tmp_path):
    found = go(tmp_path / "s", SomeShow(lanes=4, silent_above=9.0), confirm=None)
    with Journal(tmp_path / "s") as journal:
        assert not counts_evaluations_alone(journal.attributes())
        [last] = [
            p for (t, s, n), p in evaluated(journal).items() if (t, n) == (found.best.trial, 0)
        ]
    assert found.best.values[0] < last[max(last)] - 20.0


def test_metric_label_mentions_training_returns_only_if_counted(tmp_path, capsys):
    for name, above in (("some", 0.02), ("all", 9.0)):
        go(tmp_path / name, SomeShow(lanes=4, silent_above=above), confirm=None)
        where = ["--study", str(tmp_path / name)]
        words = ""
        for command in (["top"], ["show", "0"]):
            assert main([*command, *where]) == 0
            words += capsys.readouterr().out
        assert ("with training returns" in " ".join(words.split())) == (name == "all")


@pytest.mark.parametrize("kind", ["asha", "asha with pauses", "plateau"])
def test_what_if_uses_same_measure_as_study(tmp_path, kind):
    go(tmp_path / "s", confirm=None, **KINDS[kind])

    found = what_if(tmp_path / "s", quantum=lambda study, config: 1_000)
    own = next(row for row in found.rows if row.own)
    assert own.why == "" and own.exact


def test_warm_start_reports_missing_training_returns(tmp_path):
    for name, above in (("some", 0.02), ("all", 9.0)):
        go(tmp_path / name, SomeShow(lanes=4, silent_above=above), confirm=None)
        asked = samples.study(samples.REAL, "tpe", metric=MIXED)
        search = dataclasses.replace(asked.search, warm_start=WarmStart(str(tmp_path / name)))
        words = warm_start(dataclasses.replace(asked, search=search)).words
        assert ("metric.training_weight 0.0 -> 0.5" in words) == (name == "some")


def test_label_of_a_policy_of_a_test_seed_has_no_training_returns(tmp_path):
    go(tmp_path, SomeShow(lanes=4, silent_above=9.0))
    kept = [json.loads(path.read_text())["about"] for path in tmp_path.glob("policies/*/*.json")]
    labels = {one["stream"]: one["metric"] for one in kept}
    assert labels["report"] == "eval/return_mean"
    assert labels.get("search", "with training returns").endswith("with training returns")
