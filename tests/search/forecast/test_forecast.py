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
from hpo.cli import main
from hpo.search.forecast.expected_work import Lanes, Part, expected_work
from hpo.search.forecast.forecast import _compiling, _estimate, forecast
from hpo.search.forecast.program_timing import Machine, Program
from hpo.search.forecast.timing_cache import VERSION, Costs, Kept, at_a_glance
from hpo.search.run import run
from hpo.search.study_estimate import preview
from hpo.studies.check import check
from hpo.studies.expected_cost import Span, TimeEstimate, span_of_time
from hpo.studies.init_file import init_text
from hpo.studies.load import loads
from hpo.studies.spec import Racing, Seeds
from hpo.views.commands.init_check_run import brief

CONFIRM = samples.Confirm(top_k=3, choose=6, report=12)
BUDGET = samples.Budget
STUDIES = {
    "asha": {"confirm": CONFIRM, "budget": BUDGET(trials=64)},
    "hyperband": {"early_terminate": samples.EarlyTerminate("hyperband", 2_000, 3.0)},
    "median": {"early_terminate": samples.EarlyTerminate("median", 2_000, 3.0)},
    "nobody is stopped": {"early_terminate": None, "confirm": CONFIRM},
    "buckets": {"space": samples.WITH_BUCKETS, "confirm": CONFIRM},
    "bounded": {"budget": BUDGET(trials=64, env_steps=720_000), "confirm": CONFIRM},
    "env steps alone": {"budget": BUDGET(trials=None, env_steps=900_000), "confirm": CONFIRM},
    "racing": {"seeds": Seeds(8, racing=Racing(2)), "early_terminate": None},
    "pbt": {"early_terminate": samples.EarlyTerminate("pbt", every=2_000),
            "budget": BUDGET(trials=16)},
}  # fmt: skip
COSTS = Costs(0.0, 0.5, 0.02, 3, 2.0, 20.0, 0.1, 100, 0.0, 1.7e9)


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
    return expected_work(study, factory, lambda r, asked: Lanes(asked or lanes, 4, 0, 8))


def blocks_and_evaluations(programs):
    counts = [count for program in programs for count in (program.search, program.confirm)]
    return sum(one.blocks for one in counts), sum(one.evaluations for one in counts)


@pytest.mark.parametrize("name", STUDIES)
def test_what_is_expected_is_what_the_search_does(name, tmp_path):
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


def test_a_long_search_takes_longer_and_its_confirm_stage_does_not():
    study = samples.study(budget=BUDGET(trials=20_000), confirm=CONFIRM)
    (long,), (short,) = expected(study), expected(samples.study(confirm=CONFIRM))
    assert long.search.blocks > 400 * short.search.blocks and long.confirm == short.confirm
    bounded = dataclasses.replace(study, budget=BUDGET(trials=20_000, env_steps=10_000_000))
    (less,) = expected(bounded)
    quantum = 2000  # of its bucket
    searched = less.search.blocks * 4 * quantum
    assert searched == pytest.approx(10_000_000 - 42 * 16_000, rel=0.1)


def test_programs_compiled_beside_lanes_that_run_cost_their_share_of_the_cores():
    found = expected(samples.study(budget=BUDGET(trials=48), space=samples.WITH_BUCKETS))
    assert len(found) == 3
    slow = dataclasses.replace(COSTS, trace_seconds=2.0, xla_seconds=18.0)  # 20 s a compile
    blocks = sum(program.search.blocks for program in found)

    def compiling(block_seconds, cores):
        costs = dataclasses.replace(slow, block_seconds=block_seconds)
        programs = [Program(None, work, None, 1, costs) for work in found]
        return _compiling(programs, found[0].bucket, cores)

    assert compiling(1000.0 / blocks, 0).expected == pytest.approx(60.0)
    beside = compiling(1000.0 / blocks, 2)  # the search is long enough for both others
    assert beside.expected == pytest.approx(20.0 + 40.0 / 2)
    assert beside.low == pytest.approx(0.7 * 20.0) and beside.high == pytest.approx(1.3 * 60.0)
    short = compiling(10.0 / blocks, 4)  # only 10 s of it run beside something
    assert short.expected == pytest.approx(20.0 + 30.0 + 10.0 / 4)


def test_a_search_that_only_time_ends_takes_that_time(monkeypatch):
    study = samples.study(budget=BUDGET(trials=None, wall_seconds=500.0))
    costs = dataclasses.replace(COSTS, trace_seconds=0.0, xla_seconds=0.0)
    programs = [Program(SimpleNamespace(study=study, is_hosted=False), work, Lanes(16, 4, 0, 8), 1,
                        costs, is_timed=True) for work in expected(study)]  # fmt: skip
    found = _estimate(study, study, programs, programs[0].work.bucket, 0)
    assert found.total.expected == pytest.approx(500.0) and found.phases["search"].expected > 400.0


def test_commits_between_chunks_are_part_of_the_time():
    study = samples.study(confirm=CONFIRM)
    (work,) = expected(study)
    program = Program(SimpleNamespace(study=study, is_hosted=False), work, Lanes(16, 4, 0, 8), 1,
                      COSTS, is_timed=True)  # fmt: skip
    phases = _estimate(study, study, [program], work.bucket, 0).phases
    for name, count in (("search", work.search), ("confirm", work.confirm)):
        chunks = COSTS.chunk_seconds(count.chunks, count.blocks)
        assert chunks > 0.0 and 1.02 * chunks < phases[name].expected < 1.2 * chunks


# ---------------------------------------------------------------------- timings kept


def test_timings_are_kept_and_found_again(tmp_path):
    path = tmp_path / "a" / "timings.json"
    kept = Kept.read(path)
    assert kept.costs("x") is None and kept.of_env("CartPole-v1") is None and not kept.note
    kept.keep("x", "CartPole-v1", 1e-5, COSTS)
    kept.keep("y", "CartPole-v1", 2e-5, dataclasses.replace(COSTS, at=COSTS.at + 1))
    again = Kept.read(path)
    assert again.costs("x") == COSTS and again.of_env("CartPole-v1") == (2e-5, COSTS.at + 1)
    assert json.loads(path.read_text())["version"] == VERSION


@pytest.mark.parametrize("text", [
    "", "{", "[]", "null", '{"version": 99, "timings": {}}', '{"version": 1}',
    '{"version": 1, "timings": {"x": {"env": "e", "step_seconds": 1, "costs": {}}}}',
    '{"version": 1, "timings": {"x": {"env": "e", "step_seconds": NaN, "costs": 3}}}', "\x00\xff",
])  # fmt: skip
def test_a_damaged_file_is_said_and_begun_anew(tmp_path, text):
    path = tmp_path / "timings.json"
    path.write_text(text, encoding="latin-1")
    kept = Kept.read(path)
    assert not kept.timings and "it is replaced" in kept.note
    kept.keep("x", "e", 1e-5, COSTS)
    assert Kept.read(path).costs("x") == COSTS


def test_a_folder_that_takes_no_file_costs_nothing_but_a_word(tmp_path):
    (tmp_path / "file").write_text("")
    kept = Kept.read(tmp_path / "file" / "timings.json")
    kept.keep("x", "e", 1e-5, COSTS)
    assert kept.costs("x") == COSTS and "not kept for next time" in kept.note


def test_only_the_latest_timings_are_kept(tmp_path):
    kept = Kept(tmp_path / "t.json", {})
    for number in range(505):
        kept.timings[f"{number}"] = {
            "env": "e", "step_seconds": 1.0, "costs": {**dataclasses.asdict(COSTS), "at": number},
        }  # fmt: skip
    kept.keep("new", "e", 1.0, COSTS)
    assert len(kept.timings) == 500 and "0" not in kept.timings and "new" in kept.timings


# ---------------------------------------------------------------------- words


def estimate(search=120.0, wall=None):
    phases = {
        "start": Span(3, 5, 8),
        "compile": Span(10, 12, 14),
        "search": Span(0.9 * search, search, 1.2 * search),
        "confirm": Span(50, 60, 70),
    }
    return TimeEstimate(phases, 4 * search, wall, "timed now, 3 chunks", ("nothing else runs",))


def test_an_estimate_says_phases_interval_and_what_it_rests_on():
    first, second = estimate().lines()
    assert first == (
        "time       about 3m15s here, 2m50s to 3m55s: start 5s, compile 12s, search 2m00s, "
        "confirm 1m00s; at most 8m00s without early stopping"
    )
    assert second.strip() == "timed now, 3 chunks; taken for granted: nothing else runs"
    data = estimate().as_data()
    assert data["seconds"] == 197.0 and data["phases"]["confirm"] == 60.0
    assert data["low"] < data["seconds"] < data["high"] < data["at_most"]


def test_hours_are_said_with_what_would_shorten_them():
    *_, warning = estimate(9000.0).lines()
    assert warning == (
        "warning    this takes 2.5 h here, 99% of it search; lower budget.trials, env_steps or "
        "seeds.per_config"
    )
    assert estimate(9000.0, wall=600.0).total == Span(600.0, 600.0, 600.0)
    assert [span_of_time(s) for s in (0.2, 59.4, 600, 5400, 200_000)] == [
        "1s", "59s", "10 min", "1.5 h", "2.3 days"
    ]  # fmt: skip


@pytest.mark.parametrize(("seconds", "told"), [(60.0, True), (5.0, False)])
def test_a_check_says_what_share_evaluation_takes(seconds, told):
    known = estimate()
    phases = {**known.phases, "evaluation": Span(seconds, seconds, seconds)}
    report = dataclasses.replace(
        check(loads(init_text("CartPole-v1"))), time=dataclasses.replace(known, phases=phases)
    )
    text, share = brief(report, "", "s.yaml"), seconds / (197.0 + seconds)
    line = f"  evaluation takes {share:.0%} of the time, beyond these env steps"
    assert (line in text.split("\n")) is told and ("  evaluation " in text) is told


def test_init_warns_of_hours_where_the_environment_was_timed(tmp_path):
    study = loads(init_text("Acrobot-v1"))
    kept = Kept(tmp_path / "t.json", {})
    assert at_a_glance(study, kept) == ""
    kept.keep("x", "Acrobot-v1", 1e-6, COSTS)
    assert at_a_glance(study, kept) == ""
    kept.keep("x", "Acrobot-v1", 2e-4, COSTS)
    words = at_a_glance(study, kept)
    assert words.startswith("warning: this takes about ") and " h here, " in words
    assert "of it confirming" in words and "Acrobot-v1 of 2023-11-1" in words


# ---------------------------------------------------------------------- a real program

TINY = """\
name: tiny
env: CartPole-v1
env_steps: 4096
fixed: {num_envs: 4, rollout_length: 16, num_minibatches: 2, hidden_sizes: [8]}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
early_terminate: {type: asha, min: 512, eta: 4}
confirm: {top_k: 2, choose: 2, report: 4}
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
def test_check_times_once_and_remembers(own_caches, capsys, monkeypatch):
    out, err = said(["check", "-v", str(own_caches)], capsys)
    told = " ".join(out.split())
    assert "time       about " in out and "timed now, " in told
    assert "asha stops as many as" in told
    assert "kept for the run (skip it with --no-time)" in err

    def compiled(*args):
        raise AssertionError("it was timed before")

    monkeypatch.setattr("hpo.core.program.Program.compile", compiled)
    out, err = said(["check", str(own_caches), "--json"], capsys)
    data = json.loads(out)["time"]
    assert data["basis"].startswith("timed on ") and err == ""
    assert {"start", "compile", "search", "confirm", "evaluation"} == set(data["phases"])
    assert 0 < data["low"] < data["seconds"] < data["high"] and math.isfinite(data["at_most"])


@pytest.mark.usefixtures("quickly")
def test_what_is_timed_is_the_program_that_runs(own_caches, tmp_path, monkeypatch):
    """The lanes, and with them every byte of the program: its compile is found again."""
    from hpo.search.lanes.local import LocalFactory

    made = []
    original = LocalFactory.program_of

    def program_of(self, resolved, lanes=None):
        program = original(self, resolved, lanes)
        made.append((program.plan, program.lanes, program.tile, program.updates))
        return program

    study = loads(TINY)
    kept = Kept.read(tmp_path / "t.json")
    found = forecast(Machine(LocalFactory(study)), kept, told=lambda text: None)
    assert isinstance(found, TimeEstimate)
    monkeypatch.setattr(LocalFactory, "program_of", program_of)
    machine = Machine(LocalFactory(study))
    forecast(machine, kept, timing=False)
    timed = set(made)
    made.clear()
    run(study, tmp_path / "s", LocalFactory(study), (), samples.quick())
    assert timed == set(made) and len(timed) == 1


def test_no_time_compiles_nothing(own_caches, capsys, monkeypatch):
    def compiled(*args):
        raise AssertionError("nothing is compiled")

    monkeypatch.setattr("hpo.core.program.Program.compile", compiled)
    out, _ = said(["check", "-v", str(own_caches), "--no-time"], capsys)
    assert "time       not known: timing was not asked for" in out
    monkeypatch.setenv("HPO_NO_TIME", "1")
    data = json.loads(said(["check", str(own_caches), "--json"], capsys)[0])
    assert data["time"] is None and "not asked for" in data["time_note"]
    assert not (Path(os.environ["XDG_CACHE_HOME"]) / "hpo" / "timings").exists()


def test_user_code_runs_only_where_time_is_asked_for(own_caches, capsys):
    folder = own_caches.parent
    (folder / "mine.py").write_text("raise RuntimeError('ran')\n")
    study = dataclasses.replace(loads(TINY), imports=("mine.py",), source=str(folder))
    report, _ = preview(study, timing=True)
    assert report.time is None and "runs the study's imports" in report.time_note
    own_caches.write_text(f"{TINY}imports: [mine.py]\n")
    out, _ = said(["check", "-v", str(own_caches)], capsys)
    assert "which was not asked for (--time)" in " ".join(out.split())
    with pytest.raises(Exception, match="ran"):
        preview(study, timing=True, own_code=True)


def test_several_workers_are_not_guessed():
    report, _ = preview(loads(TINY + "executor: {type: ray, workers: 2}\n"), timing=True)
    assert report.time is None and "several workers" in report.time_note


# ---------------------------------------------------------------------- several environments

SEVERAL = run_file("tests/search/engine/test_several_environments.py")


def test_several_environments_are_counted_each_by_its_own_program(tmp_path):
    """Programs of unlike blocks and evaluation widths, against a search that ran."""
    asked = SEVERAL.several(confirm=CONFIRM, budget=BUDGET(trials=48))
    factories = [CountingFactory(lanes=16, block=block) for block in (4, 8, 16)]
    own = SEVERAL.factory(asked, factories)
    run(asked, tmp_path / "s", own, (), samples.quick())
    parts = tuple(Part(16, Lanes(16, block, 0, block)) for block in (4, 8, 16))
    found = expected_work(asked, own, lambda r, n: Lanes(16, 16, 0, 4, parts))
    assert [program.environment for program in found] == [0, 1, 2]
    for program, factory in zip(found, factories, strict=True):
        blocks, evaluations = blocks_and_evaluations([program])
        assert blocks == pytest.approx(factory.seen["blocks"], rel=0.33)
        assert evaluations == pytest.approx(factory.seen["evaluations"], rel=0.33)
    # a chunk of the study is one of each
    assert len({program.search.chunks for program in found}) == 1
    assert len({program.confirm.chunks for program in found}) == 1


@pytest.mark.usefixtures("quickly")
def test_what_several_environments_take_is_the_sum_of_their_programs(tmp_path, monkeypatch):
    from hpo.search.lanes.local import LocalFactory
    from hpo.search.lanes.multi_environment import factories_of

    study = loads(TINY.replace("env: CartPole-v1", "env: [CartPole-v1, Catch-bsuite]"))
    timed = []

    def of_environment(one, environments):
        return LocalFactory(one, environments=environments)

    def time_program(factory, resolved, lanes, baseline):
        timed.append(factory.study.env.id)
        seconds = 0.25 if factory.study.env.id == "CartPole-v1" else 1.0
        return dataclasses.replace(COSTS, block_seconds=seconds, evaluate_seconds=0.0)

    monkeypatch.setattr("hpo.search.forecast.forecast.time_program", time_program)
    kept = Kept.read(tmp_path / "t.json")
    machine = Machine(factories_of(study, of_environment))
    both = forecast(machine, kept, told=lambda text: None)
    assert (
        sorted(timed)
        == ["CartPole-v1", "Catch-bsuite"]
        == sorted(entry["env"] for entry in kept.timings.values())
    )
    for entry in kept.timings.values():
        entry["costs"]["block_seconds"] = 0.25
    alike = forecast(machine, kept, timing=False)
    ratio = both.phases["search"].expected / alike.phases["search"].expected
    assert ratio == pytest.approx((0.25 + 1.0) / 0.5, rel=1e-6)
    compile_alone = 2.0 + 0.05 * 20.0  # traced, and read from the cache: of each program
    assert both.phases["compile"].expected == pytest.approx(2 * compile_alone)
    again = Machine(factories_of(study, of_environment))  # timings of before are found by name
    assert forecast(again, kept, timing=False).phases == alike.phases
