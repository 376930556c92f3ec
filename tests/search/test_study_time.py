"""How long a study takes here: expected work against searches that ran, timings kept, words."""

import dataclasses
import json
import math
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers import search_samples as samples
from helpers.analytic_lanes import AnalyticPopulation
from helpers.loading import run_file
from helpers.shared_programs import shared_programs
from hpo.cli import main
from hpo.errors import ConfigError
from hpo.machine.timings import Costs, Timings
from hpo.search.run import run
from hpo.search.study_estimate import preview
from hpo.search.study_time import PopulationShape, expected_work, phases_of, study_time
from hpo.studies.check import check
from hpo.studies.expected_cost import TimeEstimate, span_of_time
from hpo.studies.init_file import init_text
from hpo.studies.load import loads
from hpo.studies.search_spec import Racing, Seeds
from hpo.views.commands.init_check_run import brief

CONFIRM = samples.Confirm(top_k=3, choose=6, report=12)
BUDGET = samples.Budget
STUDIES = {
    "asha": {"confirm": CONFIRM, "budget": BUDGET(trials=64)},
    "hyperband": {"early_terminate": samples.EarlyTerminate("hyperband", 2_000, 3.0)},
    "median": {"early_terminate": samples.EarlyTerminate("median", 2_000, 3.0)},
    "nobody is stopped": {"early_terminate": None, "confirm": CONFIRM},
    "buckets": {"space": samples.WITH_BUCKETS, "confirm": CONFIRM},
    "bounded": {"budget": BUDGET(trials=64, env_steps=1_440_000), "confirm": CONFIRM},
    "env steps alone": {"budget": BUDGET(trials=None, env_steps=900_000), "confirm": CONFIRM},
    "racing": {"seeds": Seeds(8, racing=Racing(2)), "early_terminate": None},
    "pbt": {
        "early_terminate": samples.EarlyTerminate("pbt", every=2_000),
        "budget": BUDGET(trials=16),
    },
}
COSTS = Costs(0.5, 2.0, 20.0, 0.1, 100, 0.0, 1.7e9)


class CountingPopulation(AnalyticPopulation):
    def advance(self, refills, busy):
        self._factory.seen["blocks"] += len({lane // self.block for lane in busy})
        return super().advance(refills, busy)

    def evaluate(self, lanes):
        self._factory.seen["evaluations"] += len(lanes)
        return super().evaluate(lanes)


@dataclasses.dataclass(frozen=True)
class CountingFactory(samples.AnalyticFactory):
    seen: dict = dataclasses.field(default_factory=lambda: {"blocks": 0, "evaluations": 0})

    def make(self, resolved, lanes):
        return CountingPopulation(self, resolved.steps_per_chunk, lanes or self.lanes)


def expected(study, lanes=16):
    factory = samples.AnalyticFactory(quanta={"16": 500, "32": 1000, "64x64": 2000})
    factory = SimpleNamespace(
        study=study, backend="cpu", make=factory.make, resolve=factory.resolve, device_count=1
    )
    return expected_work(
        study,
        factory,
        lambda _factory, _resolved, asked: [PopulationShape(asked, asked or lanes, 4, 0, 8)],
    )


def blocks_and_evaluations(programs):
    evaluations = sum(one.search.evaluations + one.confirm.evaluations for one in programs)
    return sum(one.blocks for one in programs), evaluations


@pytest.mark.parametrize("name", STUDIES)
def test_expected_work_equals_work_of_the_search(name, tmp_path):
    """Blocks and evaluations of a search that ran: within a third, or half if seeds race."""
    study = samples.study(**{"budget": BUDGET(trials=48), **STUDIES[name]})
    lanes = 32 if name == "pbt" else 16
    factory = CountingFactory(lanes=lanes, block=4, quanta={"16": 500, "32": 1000, "64x64": 2000})
    results = run(study, tmp_path / "s", factory, (), samples.quick())
    assert results.state == "finished"
    found = expected(study, lanes)
    blocks, evaluations = blocks_and_evaluations(found)
    near = 0.5 if name == "racing" else 0.33
    best = results.best
    won = best is not None and best.is_default and best.value_from == "report"
    spared = study.confirm.report if won else 0  # the default did not run again beside itself
    chunks = study.env_steps // 1000
    assert blocks == pytest.approx(factory.seen["blocks"] + spared * chunks / 4, rel=near)
    assert evaluations == pytest.approx(factory.seen["evaluations"] + spared, rel=near)
    confirms = sum(program.confirm.evaluations for program in found)
    assert (confirms > 0) == (results.usage.confirm_env_steps > 0)


def test_longer_search_does_not_change_confirm_estimate():
    study = samples.study(budget=BUDGET(trials=20_000), confirm=CONFIRM)
    (long,), (short,) = expected(study), expected(samples.study(confirm=CONFIRM))
    assert long.search.block_steps > 400 * short.search.block_steps
    assert long.confirm == short.confirm
    bounded = dataclasses.replace(study, budget=BUDGET(trials=20_000, env_steps=10_000_000))
    (less,) = expected(bounded)
    searched = less.search.block_steps * 4
    assert searched == pytest.approx(10_000_000 - 42 * 16_000, rel=0.1)


def timed(programs, **changes):
    return dict.fromkeys(range(len(programs)), dataclasses.replace(COSTS, **changes))


def test_untimed_program_is_estimated_from_its_size(monkeypatch):
    text = TINY.replace(", hidden_sizes: [8]", "")
    study = loads(text.replace("space:", "space:\n  hidden_sizes: {values: [[8], [9]]}"))
    from hpo.search.lanes.local import LocalFactory

    found = expected_work(study, LocalFactory(study))
    assert len(found) == 2
    both, one = (phases_of(study, found, costs) for costs in (timed(found), {0: COSTS}))
    assert one["search"] == pytest.approx(both["search"], rel=0.3)
    assert one["compile"] > both["compile"], "the other compile is in no cache"


def test_wall_time_budget_is_the_estimated_time(monkeypatch):
    study = samples.study(budget=BUDGET(trials=None, wall_seconds=500.0))
    found = expected(study)
    costs = timed(found, trace=0.0, xla=0.0)
    for name, one in (("expected_work", found), ("_time_programs", costs)):
        monkeypatch.setattr(f"hpo.search.study_time.{name}", lambda *_, one=one: one)
    whole = study_time(found[0].factory, Timings(Path("none"), {}))
    assert whole.seconds() == pytest.approx(500.0) and whole.phases["search"] > 400.0


def test_estimated_time_includes_commits():
    study = samples.study(confirm=CONFIRM)
    (work,) = expected(study)
    phases = phases_of(study, [work], timed([work]))
    for name, count in (("search", work.search), ("confirm", work.confirm)):
        chunks = COSTS.block * count.block_steps / work.schedule.quantum
        assert chunks > 0.0 and 1.02 * chunks < phases[name] < 1.2 * chunks


# ---------------------------------------------------------------------- timings kept


def test_timings_are_kept_and_found_again(tmp_path):
    path = tmp_path / "a" / "timings.json"
    kept = Timings.read(path)
    assert not kept.known and not kept.note
    later = dataclasses.replace(COSTS, at=COSTS.at + 1)
    kept.keep("x", COSTS)
    kept.keep("y", later)
    assert Timings.read(path).known == {"x": COSTS, "y": later}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"x": {"block": 1}}',
        '{"x": 3}',
        json.dumps({"x": {**dataclasses.asdict(COSTS), "block": "much"}}),
        json.dumps({"x": {**dataclasses.asdict(COSTS), "block": math.nan}}),
        "\x00\xff",
    ],
)
def test_damaged_timings_file_is_reported_and_replaced(tmp_path, text):
    path = tmp_path / "timings.json"
    path.write_text(text, encoding="latin-1")
    kept = Timings.read(path)
    assert not kept.known and "it will be replaced" in kept.note
    kept.keep("x", COSTS)
    assert Timings.read(path).known == {"x": COSTS}


def test_unwritable_timings_folder_only_adds_a_note(tmp_path):
    (tmp_path / "file").write_text("")
    kept = Timings.read(tmp_path / "file" / "timings.json")
    kept.keep("x", COSTS)
    assert kept.known == {"x": COSTS} and "timings were not saved" in kept.note


def test_only_the_latest_timings_are_kept(tmp_path):
    kept = Timings(tmp_path / "t.json", {})
    for number in range(505):
        kept.known[f"{number}"] = dataclasses.replace(COSTS, at=number)
    kept.keep("new", COSTS)
    assert len(kept.known) == 500 and "0" not in kept.known and "new" in kept.known


# ---------------------------------------------------------------------- words


def estimate(search=120.0, wall=None):
    phases = {"start": 5.0, "compile": 12.0, "search": search, "confirm": 60.0}
    return TimeEstimate(phases, 4 * search, wall, "timed now", ("nothing else runs",))


def test_estimate_shows_phases_interval_and_assumptions():
    first, second = estimate().lines()
    assert first == (
        "time       about 3m15s here, 2m10s to 4m55s: start 5s, compile 12s, search 2m00s, "
        "confirm 1m00s; at most 8m00s without early stopping"
    )
    assert second.strip() == "timed now; assumes nothing else runs"
    data = estimate().as_data()
    assert data["seconds"] == 197.0 and data["phases"]["confirm"] == 60.0
    assert data["low"] < data["seconds"] < data["high"] < data["at_most"]


def test_time_spans_are_rounded_for_display():
    assert {estimate(9000.0, wall=600.0).seconds(factor) for factor in (0.5, 1, 2)} == {600.0}
    assert [span_of_time(s) for s in (0.2, 59.4, 600, 5400, 200_000)] == [
        "1s",
        "59s",
        "10 min",
        "1.5 h",
        "2.3 days",
    ]


@pytest.mark.parametrize(("seconds", "told"), [(60.0, True), (5.0, False)])
def test_check_shows_share_of_evaluation_time(seconds, told):
    known = estimate()
    phases = {**known.phases, "evaluation": seconds}
    report = dataclasses.replace(
        check(loads(init_text("CartPole-v1"))), time=dataclasses.replace(known, phases=phases)
    )
    text, share = brief(report, "", "s.yaml"), seconds / (197.0 + seconds)
    line = f"  evaluation takes {share:.0%} of the time; its env steps are not counted here"
    assert (line in text.split("\n")) is told and ("  evaluation " in text) is told


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        (
            "budget: {trials: 16, env_steps: 200k}\nconfirm: {top_k: 2, choose: 1, report: 1}",
            [
                "  confirm   best 2 on 1 new seed; then winner and default on 1 more",
                "  training  200k env steps (search 36.2k, confirm 164k), 1 compile",
            ],
        ),
        (
            "confirm: {top_k: 2, choose: 1, report: 1, also: {1: 3}}\nbudget: {trials: 2}",
            ["  training  369k env steps (search 81.9k, confirm 287k), 1 compile"],
        ),
        (
            "seeds: {per_config: 12, racing: {start: 3}}\nsearch: {method: random}",
            ["  search    random over gamma; 3 to 12 seeds per trial"],
        ),
        (
            "search: {driver: ray_tune, scheduler: asha}\nevaluation: {every: 10k}",
            [
                "  search    Ray Tune (random) over gamma; 1 seed per trial",
                "  stopping  Ray Tune's asha compares trials at 10.2k, 20.5k and 30.7k of 41k "
                "env steps",
            ],
        ),
        (
            "objectives: [{name: eval/return_mean}, {name: env_steps, goal: minimize}]\n"
            "confirm: {top_k: 3, choose: 8, report: 16}\nbudget: {trials: 4}",
            [
                "  confirm   best 3 and default on 8 new seeds",
                "  training  1.47M env steps (search 164k, confirm 1.31M), 1 compile",
            ],
        ),
    ],
)
def test_check_summary_lists_runs_with_consistent_totals(keys, lines):
    text = "name: it\nenv: CartPole-v1\nenv_steps: 40k\nspace: {gamma: {min: 0.9, max: 0.99}}\n"
    told = brief(check(loads(f"{text}{keys}\n")), "", "s.yaml").split("\n")
    assert [line for line in lines if line not in told] == []


def test_a_check_counts_a_program_for_each_environment():
    text = "name: it\nenv: [CartPole-v1, Acrobot-v1]\nenv_steps: 40k\nbudget: {trials: 4}\n"
    told = brief(check(loads(f"{text}space: {{gamma: {{min: 0.9, max: 0.99}}}}\n")), "", "s.yaml")
    assert "(search 328k), 2 compiles\n" in told


# ---------------------------------------------------------------------- a real program

TINY = """\
name: tiny
env: CartPole-v1
env_steps: 1024
fixed: {num_envs: 4, rollout_length: 16, num_minibatches: 2, hidden_sizes: [8]}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
early_terminate: {type: asha, min: 128, eta: 4}
confirm: {top_k: 2, choose: 2, report: 4}
evaluation: {episodes: 4}
budget: {trials: 12}
"""


@pytest.fixture
def own_caches(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.delenv("HPO_NO_TIME", raising=False)
    (tmp_path / "tiny.yaml").write_text(TINY)
    return tmp_path / "tiny.yaml"


def said(words, capsys):
    assert main(words) == 0
    return capsys.readouterr()


@pytest.mark.usefixtures("quickly")
def test_check_measures_time_once_and_reuses_timings(own_caches, capsys, monkeypatch):
    out, err = said(["check", "-v", str(own_caches)], capsys)
    told = " ".join(out.split())
    assert "time       about " in out and "timed now; " in told
    assert "asha stops as many trials as" in told
    assert "the run uses the compiled program (skip it with --no-time)" in err

    def compiled(*args):
        raise AssertionError("it was timed before")

    monkeypatch.setattr("hpo.core.program.Program.compile", compiled)
    out, err = said(["check", str(own_caches), "--json"], capsys)
    data = json.loads(out)["time"]
    assert data["basis"].startswith("timed on ") and err == ""
    assert {"start", "compile", "search", "confirm", "evaluation"} == set(data["phases"])
    assert 0 < data["low"] < data["seconds"] < data["high"] and math.isfinite(data["at_most"])


@pytest.mark.usefixtures("quickly")
def test_timed_program_is_the_program_that_runs(own_caches, tmp_path, monkeypatch):
    """The lanes, and with them every byte of the program: its compile is found again."""
    from hpo.search.lanes.local import LocalFactory

    made = []
    original = LocalFactory.program_of

    def program_of(self, resolved, lanes=None):
        program = original(self, resolved, lanes)
        made.append((program.plan, program.lanes, program.tile, program.updates))
        return program

    study = loads(TINY)
    kept = Timings.read(tmp_path / "t.json")
    with shared_programs():
        found = study_time(LocalFactory(study), kept, notify=lambda text: None)
        assert isinstance(found, TimeEstimate)
        monkeypatch.setattr(LocalFactory, "program_of", program_of)
        study_time(LocalFactory(study), kept, timing=False)
        timed = set(made)
        made.clear()
        run(study, tmp_path / "s", LocalFactory(study), (), samples.quick())
    assert timed == set(made) and len(timed) == 1


@pytest.mark.parametrize(("steps", "said"), [("null", True), ("50", False)])
def test_estimate_states_episode_length_assumption_if_relevant(tmp_path, monkeypatch, steps, said):
    from hpo.search.lanes.local import LocalFactory

    study = loads(TINY, overrides=[f"evaluation.steps={steps}"])
    monkeypatch.setattr("hpo.search.study_time.time_program", lambda *_: COSTS)
    kept = Timings.read(tmp_path / "t.json")
    found = study_time(LocalFactory(study), kept, notify=lambda text: None)
    words = "evaluation episodes as long as the environment allows"
    assert isinstance(found, TimeEstimate) and (words in found.assumes) is said


def test_no_time_flag_compiles_nothing(own_caches, capsys, monkeypatch):
    def compiled(*args):
        raise AssertionError("nothing is compiled")

    monkeypatch.setattr("hpo.core.program.Program.compile", compiled)
    out, _ = said(["check", "-v", str(own_caches), "--no-time"], capsys)
    assert "time       not known: the study was not timed" in out
    monkeypatch.setenv("HPO_NO_TIME", "1")
    data = json.loads(said(["check", str(own_caches), "--json"], capsys)[0])
    assert data["time"] is None and "not timed" in data["time_note"]
    assert not (Path(os.environ["XDG_CACHE_HOME"]) / "hpo" / "timings").exists()


def test_check_runs_user_code_only_with_time_flag(own_caches, capsys):
    folder = own_caches.parent
    (folder / "mine.py").write_text("raise RuntimeError('ran')\n")
    study = dataclasses.replace(loads(TINY), imports=("mine.py",), source=str(folder))
    report, _ = preview(study, timing=True)
    assert report.time is None and "which did not run" in report.time_note
    own_caches.write_text(f"{TINY}imports: [mine.py]\n")
    out, _ = said(["check", "-v", str(own_caches)], capsys)
    assert "which did not run (--time)" in " ".join(out.split())
    with pytest.raises(ConfigError, match=r"mine\.py:1: RuntimeError: ran"):
        preview(study, timing=True, own_code=True)


def test_time_with_several_workers_is_not_estimated():
    report, _ = preview(loads(TINY + "executor: {type: ray, workers: 2}\n"), timing=True)
    assert report.time is None and "several workers" in report.time_note


# ---------------------------------------------------------------------- several environments

SEVERAL = run_file("tests/search/engine/test_several_environments.py")


def test_each_environment_is_counted_by_its_program(tmp_path):
    """Programs of unlike blocks and evaluation widths, against a search that ran."""
    asked = SEVERAL.several(confirm=CONFIRM, budget=BUDGET(trials=48))
    factories = [CountingFactory(lanes=16, block=block) for block in (4, 8, 16)]
    own = SEVERAL.factory(asked, factories)
    run(asked, tmp_path / "s", own, (), samples.quick())
    parts = [PopulationShape(16, 16, block, 0, block) for block in (4, 8, 16)]
    found = expected_work(asked, own, lambda _factory, _resolved, _lanes: parts)
    assert [program.factory for program in found] == factories
    for program, factory in zip(found, factories, strict=True):
        blocks, evaluations = blocks_and_evaluations([program])
        assert blocks == pytest.approx(factory.seen["blocks"], rel=0.33)
        assert evaluations == pytest.approx(factory.seen["evaluations"], rel=0.33)


@pytest.mark.usefixtures("quickly")
def test_time_of_several_environments_is_the_sum(tmp_path, monkeypatch):
    from hpo.search.lanes.local import LocalFactory
    from hpo.search.lanes.multi_environment import factories_of

    study = loads(TINY.replace("env: CartPole-v1", "env: [CartPole-v1, Catch-bsuite]"))
    timed = []

    def of_environment(one, environments):
        return LocalFactory(one, environments=environments)

    def time_program(program, baseline):
        env = program.factory.study.env.id
        timed.append(env)
        seconds = 0.25 if env == "CartPole-v1" else 1.0
        return dataclasses.replace(COSTS, block=seconds, evaluation=0.0)

    monkeypatch.setattr("hpo.search.study_time.time_program", time_program)
    kept = Timings.read(tmp_path / "t.json")
    factory = factories_of(study, of_environment)
    both = study_time(factory, kept, notify=lambda text: None)
    assert sorted(timed) == ["CartPole-v1", "Catch-bsuite"] and len(kept.known) == 2
    kept.known = {key: dataclasses.replace(one, block=0.25) for key, one in kept.known.items()}
    alike = study_time(factory, kept, timing=False)
    ratio = both.phases["search"] / alike.phases["search"]
    assert ratio == pytest.approx((0.25 + 1.0) / 0.5, rel=1e-6)
    assert both.phases["compile"] == pytest.approx(2 * 2.0)  # traced, and read from the cache
    again = factories_of(study, of_environment)  # timings of before are found by name
    assert study_time(again, kept, timing=False).phases == alike.phases
