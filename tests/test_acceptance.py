"""Small forms of the acceptance points, and the code that judges and records them.

One tiny study of real lanes serves them all; its programs are compiled once and then cached.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from helpers.compiled_once import compiled_once
from hpo.search.state.progress import Observer
from hpo.store import tables_equal

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS, BENCHMARKS = ROOT / "scripts", ROOT / "benchmarks"
AGAIN = """
import sys
from pathlib import Path
from acceptance_points.whole_study import study_of
from hpo.search.lanes.local import LocalFactory
from hpo.search.run import RunOptions, run
study = study_of(small=True)
run(study, Path(sys.argv[1]), LocalFactory(study), (), RunOptions(0.0, 0.2))
"""


@pytest.fixture(scope="module", autouse=True)
def _compiled_once(quickly_compiled):
    with compiled_once():
        yield


@pytest.fixture(scope="module")
def load():
    """Import a module of scripts/ or benchmarks/."""
    folders = [str(SCRIPTS), str(BENCHMARKS)]
    sys.path[:0] = folders
    yield import_module
    for folder in folders:
        sys.path.remove(folder)


@pytest.fixture(scope="module")
def unbroken(load, tmp_path_factory, quickly_compiled):
    """Run the tiny study in this process; give its folder and what was seen."""
    whole_study = load("acceptance_points.whole_study")
    folder = tmp_path_factory.mktemp("unbroken") / "study"
    return folder, whole_study.watch(whole_study.study_of(small=True), folder)


def test_one_compile_serves_search_refills_and_confirm(unbroken):
    _, seen = unbroken
    assert seen.training_compiles == 1
    assert seen.compiles["jit(local)"] <= 2  # training and evaluation; a cache may hold them
    assert seen.trials == 12 and 0 < seen.confirmed <= 3


def test_lane_occupancy_is_at_least_95_percent(unbroken):
    _, seen = unbroken
    assert seen.occupancy >= 0.95
    assert seen.rows >= seen.occupancy * seen.lane_chunks > 0


class CutAt(Observer):
    """Cuts a study off in some chunk as a kill does: nothing is committed, published or said."""

    def __init__(self, chunk, cut):
        self.left, self.cut = chunk, cut

    def on_chunk(self, progress):
        self.left -= 1
        if self.left == 0:
            raise self.cut


def test_killed_study_resumes_to_identical_tables(load, unbroken, tmp_path):
    """Killed in a process of its own, cut off again in this one, and ended from there."""
    from hpo.search.lanes.local import LocalFactory
    from hpo.search.run import RunOptions, run

    study = load("acceptance_points.whole_study").study_of(small=True)
    cut = load("acceptance_points.reliability").Cut
    folder, broken = unbroken[0], tmp_path / "study"
    rng = random.Random(3)
    with start(broken) as child:
        wait_for_commits(child, broken, rng.randint(1, 4))
        time.sleep(rng.uniform(0.0, 0.02))
        assert child.poll() is None, "killed while it runs"
        child.kill()
    with pytest.raises(cut):
        observers = [CutAt(rng.randint(2, 5), cut)]
        run(study, broken, LocalFactory(study), observers, RunOptions(0.0, 0.2))
    assert run(study, broken, LocalFactory(study)).state == "finished"
    assert tables_equal(folder, broken) == []


def test_damaged_journals_come_back_equal_or_are_refused(load, tmp_path):
    outcome = load("acceptance_points.reliability").damaged_journals(True, tmp_path)
    assert outcome.passed, outcome.numbers
    assert "refused" in outcome.numbers


def test_studies_of_a_command_survive_kills(load, tmp_path):
    outcome = load("acceptance_points.command_kills").kills(True, tmp_path)
    assert outcome.passed, outcome.numbers
    assert outcome.numbers.startswith("4 kills over 4 kinds of studies: ")


def test_interrupted_kills_resume_in_their_folder(load, tmp_path, monkeypatch):
    kills, killed = load("acceptance_points.command_kills"), []

    def killed_study(folder, kind, most, rng):
        killed.append(kind)
        if len(killed) == 3:
            raise KeyboardInterrupt
        return kills.Seen(kind, Counter({"-9 of hpo": most}))

    monkeypatch.setattr(kills, "_killed_study", killed_study)
    with pytest.raises(KeyboardInterrupt):
        kills.kills(True, tmp_path)
    outcome = kills.kills(True, tmp_path)
    assert killed == ["plain", "rungs", "paused", "paused", "files and children"]
    assert outcome.passed
    assert outcome.numbers.startswith("4 kills over 4 kinds of studies: -9 of hpo 4; nothing")


def wait_for_commits(child: subprocess.Popen[bytes], folder: Path, count: int) -> None:
    """Wait until the child has written that many checkpoints, or has ended."""
    checkpoints, end = folder / "checkpoints", time.monotonic() + 600

    def names() -> set[str]:
        return {path.name for path in checkpoints.iterdir()} if checkpoints.is_dir() else set()

    before, written = names(), set[str]()
    while len(written) < count and child.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.002)
        written |= names() - before


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Start the tiny study, which commits after each chunk."""
    paths = [str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", AGAIN, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def test_the_base_configuration_learns_on_every_seed():
    """Far less than its 200k env steps are enough to double what a random policy gets."""
    from hpo.search.lanes.contract import Refill
    from hpo.search.lanes.local import LocalFactory
    from hpo.store import Stream
    from hpo.studies.load import load as load_study

    study = load_study(ROOT / "studies" / "base_cartpole.yaml", ["env_steps=61440"])
    factory = LocalFactory(study)
    resolved = factory.resolve(study.default())
    population = factory.make(resolved, lanes=4)
    refills = [Refill(lane, resolved, Stream.SEARCH, lane) for lane in range(3)]
    chunks = -(-30_000 // population.steps_per_chunk)
    for chunk in range(chunks):
        result = population.advance([] if chunk else refills, range(3))
    assert np.all(result.metrics["episode_return"][:3] >= 50)


@pytest.mark.parametrize(
    ("name", "most"), [("base_cartpole", 200_000), ("base_pendulum", 500_000)]
)
def test_base_studies_stay_within_their_env_steps(name, most):
    from hpo.search.lanes.local import LocalFactory
    from hpo.studies.load import load as load_study

    study = load_study(ROOT / "studies" / f"{name}.yaml")
    factory = LocalFactory(study)
    plan = factory.split.parts(study.default()).plan
    assert factory.split.chunk_sizes(plan).env_steps == study.env_steps <= most
    assert study.seeds.per_config == 10 and study.evaluation.episodes == 100


def test_acceptance_row_replaces_the_previous_one(load):
    record = load("acceptance_points.record")
    page = record._HEAD + "\nMore words.\n"
    for number, passed, numbers in ((10, True, "1 s"), (2, False, "2 | 3"), (10, False, "9 s")):
        row = record.Row("engine", number, "soon", passed, numbers, 1.4)
        page = record.updated(page, row, "2030-01-02", "abc1234+")
    lines = page.splitlines()
    rows = [line for line in lines if line.startswith("| engine ")]
    assert rows == [
        "| engine | 2 | soon | **FAIL** | 2 / 3 | 1 | 2030-01-02 | abc1234+ |",
        "| engine | 10 | soon | **FAIL** | 9 s | 1 | 2030-01-02 | abc1234+ |",
    ]
    assert lines[lines.index(rows[0]) - 1].startswith("|---") and lines[-1] == "More words."


def test_acceptance_points_have_functions(load):
    points = load("acceptance_points.main").POINTS
    assert sorted(points["engine"]) == list(range(1, 12))
    assert sorted(points["optical"]) == list(range(1, 9))
    for area in points.values():
        for point in area.values():
            module = load(f"acceptance_points.{point.module}")
            assert callable(getattr(module, point.function))


def test_optical_speed_is_compared_with_rejax(load):
    optical = load("acceptance_points.optical")
    heuristics = [
        {"what": name, "env_steps_per_second": 3.0 * rate}
        for name, rate in optical.HEURISTIC.items()
    ]
    ppo = []
    for kind, (rate, times, seconds) in optical.PPO.items():
        ppo.append(
            {
                "what": f"PPO {kind}, 1 lane",
                "lanes": 1,
                "env_steps_per_second": 1.0,
                "first_call_seconds": seconds / 3.0,
            }
        )
        ppo.append(
            {
                "what": f"PPO {kind}, 4 lanes",
                "lanes": 4,
                "first_call_seconds": 99.0,
                "env_steps_per_second": times * rate,
            }
        )
        ppo.append({"what": f"PPO {kind}: share of that ceiling", "share": 0.5})
    document = {"heuristics": heuristics, "ppo": ppo}
    assert optical.judged(document).passed
    elsewhere = {"rejax": {"rejax": {"env_steps_per_wall_second": optical.REJAX_ELSEWHERE * 1.1}}}
    assert not optical.judged({**document, **elsewhere}).passed  # a faster machine must do more
    ppo[0]["first_call_seconds"] *= 1.1
    assert not optical.judged(document).passed


def test_ppo_feature_table_matches_knobs_and_code(load, tmp_path):
    ppo = load("acceptance_points.ppo")
    outcome = ppo.table(True, tmp_path)
    assert outcome.passed, outcome.numbers
    assert not ppo.defines(ROOT / "core" / "losses.py", "no_such_loss")
    assert not ppo.defines(ROOT / "core" / "no_such_file.py", "ppo_loss")


def test_killed_multi_env_study_resumes_to_equal_tables(load, tmp_path):
    outcome = load("acceptance_points.several").killed(small=True, work=tmp_path)
    assert outcome.passed, outcome.numbers


def test_killed_custom_training_resumes_to_equal_tables(load, tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.setenv("JAX_NUMPY_DTYPE_PROMOTION", "standard")  # as users have it
    outcome = load("acceptance_points.custom_training").kills(small=True, work=tmp_path)
    assert outcome.passed, outcome.numbers


def test_bundle_policy_can_be_played_and_retrained(load, tmp_path):
    outcome = load("acceptance_points.bundles").travels(small=True, work=tmp_path)
    assert outcome.passed, outcome.numbers


def test_bundle_page_in_chromium_verifies_and_refuses(load, tmp_path):
    if not any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")):
        pytest.skip("needs Chromium")
    outcome = load("acceptance_points.bundle_page").in_browser(small=True, work=tmp_path)
    assert outcome.passed, outcome.numbers


def test_large_study_rows_are_streamed(load, tmp_path):
    outcome = load("acceptance_points.answers").streaming(small=True, work=tmp_path)
    assert outcome.passed, outcome.numbers


def test_studies_finish_with_every_method_and_stopping_rule(load, tmp_path):
    points = load("acceptance_points.search_methods")
    assert points.everything(small=True, work=tmp_path).passed


def test_methods_are_compared_over_recorded_runs(load, tmp_path):
    outcome = load("acceptance_points.search_bench").bench(small=True, work=tmp_path)
    assert outcome.passed, outcome.numbers


def test_simulated_studies_get_correct_verdicts(load, tmp_path):
    outcome = load("acceptance_points.conclusions_verdicts").verdicts(True, tmp_path)
    assert outcome.passed, outcome.numbers


def test_verdict_error_rate_for_equal_trials_is_bounded(load, tmp_path, monkeypatch):
    """Two kinds of returns at two numbers of seeds; all of them: scripts/acceptance."""
    rates = load("acceptance_points.error_rates")
    kinds = {name: rates.KINDS[name] for name in ("normal", "ceiling")}
    monkeypatch.setattr(rates, "KINDS", kinds)
    monkeypatch.setattr(rates, "_SEEDS", (6, 8))
    outcome = rates.error_rates(True, tmp_path)
    assert outcome.passed, outcome.numbers


@pytest.mark.parametrize("history", ["random", "tpe", "asha, first rung"])
def test_simulated_search_names_the_significant_knob(load, history):
    simulated = load("acceptance_points.conclusions_importance")
    knob, effect = simulated.EFFECTS["rising"]
    found = simulated.search(history, 64, effect, seed=1)
    assert len(found.values) == 64 and knob in simulated.decided(found)
    assert any("under" not in params for params in found.params)


def test_regret_is_near_zero_at_the_optimum(load):
    regret = load("acceptance_points.regret")
    space = regret.space()
    best = {
        p.name: p.distribution.outward(p.distribution.axis.at(regret._BEST[p.name]))
        for p in space.parameters
        if p.name in regret._BEST
    }
    near = min(regret.height({**best, "update_epochs": epochs}) for epochs in (5, 6))
    assert near < 0.01 < 0.3 < regret.height(space.default())
    ratio, low, high = regret.ratio_interval([2.0, 2.0, 2.0], [1.0, 1.0, 1.0], 200)
    assert ratio == low == high == 2.0


def test_two_sample_test_detects_shift_and_spread_only(load):
    compare = load("two_sample").compare
    rng = np.random.default_rng(5)
    levels = [(level, rng.normal(level, 5, (2, 8))) for level in (50, 200, 400)]
    same = compare([tuple(values) for _, values in levels], 500)
    assert min(same["mean_p"], same["distance_p"]) > 0.05
    shifted = compare([(values[0], values[1] + 10) for _, values in levels], 500)
    assert shifted["mean_p"] < 0.01 and shifted["mean_difference"] < -5
    wider = compare(
        [(values[0], level + 6 * (values[1] - level)) for level, values in levels], 500
    )
    assert wider["distance_p"] < 0.05


def test_gpu_benchmark_uses_study_tile_sizes(load):
    import jax

    from hpo.core.memory import gpu_tile
    from hpo.search.lanes.lane_count import tile_of

    gpu = load("gpu")
    assert gpu.default_tile("cpu", 64) == tile_of("cpu", 9_155)
    made = gpu.make_program("CartPole-v1", 64, 64, 1, tuple(jax.devices()[:1]))
    for lanes in (64, 512, 4096):
        assert gpu.default_tile("gpu", lanes) == gpu_tile(
            made.plan, made.example, lanes, 80 * 10**9
        )


def test_gpu_benchmark_adds_gpu_only_comparisons(load):
    gpu = load("gpu")

    def kinds(scale, backend):
        common = {"platform": "auto", "tile": None, "envs": ["CartPole-v1"]}
        return gpu.tasks(gpu.SCALES[scale], backend, common)

    small = kinds("small", "cpu")
    assert [task["kind"] for task in small] == ["single", "lanes", "tiles", "precision"]
    tasks = kinds("gpu", "gpu")
    assert {"concurrent", "deterministic"} <= {task["kind"] for task in tasks}
    assert [task["precision"] for task in tasks if task["kind"] == "precision"] == [
        "tf32",
        "bfloat16",
    ]
    ladder = {shape for task in tasks for shape in task.get("shapes", []) if shape[0] == 4096}
    assert {tile for _, tile in ladder} == {64, 256, 1024, 4096}
    row = {"env": "e", "lanes": 2, "tile": 2, "precision": "float32", "env_steps_per_second": 4.0}
    rows = [
        {**row, "kind": "single", "lanes": 1, "env_steps_per_second": 1.0},
        {**row, "kind": "lanes"},
        {**row, "kind": "concurrent", "env_steps_per_second": 5.0},
        {**row, "kind": "precision", "precision": "tf32", "env_steps_per_second": 6.0},
    ]
    assert gpu.summary(rows) == {"lanes_gain_e": 4.0, "concurrent_gain": 1.25, "tf32_gain": 1.5}


def test_gpu_benchmark_depends_only_on_the_core():
    code = (
        "import sys\n"
        "names = 'optuna pyarrow duckdb ConfigSpace jraph networkx hpo.search hpo.store'\n"
        "sys.modules.update(dict.fromkeys(names.split()))  # importing them is an error\n"
        "import hpo.core.program, hpo.core.envs.registry as registry\n"
        "from hpo.core.plan import EnvPlan\n"
        "registry.make(EnvPlan('Pendulum-v1'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
