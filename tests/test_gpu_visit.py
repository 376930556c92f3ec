"""The order of a GPU visit with parts that end badly, its comparison with a CPU, its wheels."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
import zipfile
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.analytic_lanes import AnalyticFactory

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
WHOLE = """
import json, sys
json.dump({"done": True, "summary": "all of it", "failures": []}, open(sys.argv[1], "w"))
"""
WRONG = """
import json, sys
json.dump({"done": True, "summary": "", "failures": ["lane 3 differs"]}, open(sys.argv[1], "w"))
"""
HANGS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"])
open(sys.argv[2], "w").write(str(child.pid))
time.sleep(900)
"""
CODES = {"whole": WHOLE, "crashes": "raise ValueError('no lanes')", "hangs": HANGS,
         "wrong": WRONG, "silent": "", "last": WHOLE}  # fmt: skip


@pytest.fixture
def load(monkeypatch):
    """Import a module of scripts/ or benchmarks/."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return import_module


@pytest.fixture
def visit(load, tmp_path):
    """Make a visit of fake parts, each the code of its name."""
    module = load("gpu_visit_parts.visit")

    def make(budget):
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)

        def command(part, path):
            return [sys.executable, "-c", CODES[part.name], str(path), str(tmp_path / "child")]

        return module.Visit(out, budget, command, tmp_path, {"small": True})

    return make


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_failed_gpu_visit_parts_do_not_stop_others(load, visit, tmp_path):
    module = load("gpu_visit_parts.visit")
    parts = [
        module.Part("whole", 300),
        module.Part("crashes", 300),
        module.Part("hangs", 8, decides=True),
        module.Part("silent", 300),
        module.Part("last", 300, decides=True),
    ]
    made = visit(1000)
    made.run(parts)
    assert [r.status for r in made.results] == ["PASS", "FAIL", "CUT", "FAIL", "PASS"]
    words = {r.name: r.words for r in made.results}
    assert words["whole"] == "all of it" and "ValueError: no lanes" in words["crashes"]
    assert words["hangs"].startswith("after 8 s") and "ended with 0" in words["silent"]
    kept = json.loads((made.out / "visit.json").read_text())
    assert [row["status"] for row in kept["parts"]] == [r.status for r in made.results]
    assert kept["small"] and (made.out / "whole.json").is_file()
    assert not made.failed(parts)  # what decides has not failed
    if (tmp_path / "child").exists():  # else it was ended before it had one
        pid = int((tmp_path / "child").read_text())
        until = time.monotonic() + 60
        while is_running(pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not is_running(pid)


def test_failing_required_part_fails_the_gpu_visit(load, visit):
    module = load("gpu_visit_parts.visit")
    for decides in (False, True):
        parts = [module.Part("wrong", 300, decides=decides)]
        made = visit(1000)
        made.run(parts)
        assert made.results[0].status == "FAIL" and made.results[0].words == "lane 3 differs"
        assert made.failed(parts) == decides


def test_gpu_visit_parts_without_time_left_are_not_started(load, visit):
    module = load("gpu_visit_parts.visit")
    made = visit(module.RESERVE_SECONDS + module.LEAST_SECONDS / 2)
    made.run([module.Part("whole", 300), module.Part("last", 300)])
    assert [r.status for r in made.results] == ["CUT", "CUT"]
    assert "not started" in made.results[0].words
    assert not (made.out / "whole.json").exists()
    assert len(json.loads((made.out / "visit.json").read_text())["parts"]) == 2


def test_gpu_visit_part_status_comes_from_its_report(load, tmp_path):
    module = load("gpu_visit_parts.visit")
    report = load("gpu_visit_parts.common").Report(tmp_path / "part.json", {"rows": [1]})
    assert module.judged(report.path, None, "")[0] == "CUT"
    report.write()
    assert module.judged(report.path, None, "") == ("CUT", "part.json has what was seen")
    assert module.judged(report.path, -9, "log\nkilled\n") == ("FAIL", "ended with -9: killed")
    report.fail("one")
    report.write()
    assert module.judged(report.path, None, "") == ("FAIL", "one")  # although it was cut
    report.document["failures"].clear()
    report.finish("two")
    assert module.judged(report.path, None, "") == ("PASS", "two")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part.json"]


def test_gpu_visit_output_fits_file_and_screen_limits(load, visit):
    main, module = load("gpu_visit_parts.main"), load("gpu_visit_parts.visit")
    assert len(main.PARTS) + 1 <= 8  # files; visit.json is the last
    assert {part.name for part in main.PARTS if part.decides} >= {"programs", "lanes", "study"}
    made = visit(1)
    for part in main.PARTS:
        made.results.append(module.Result(part.name, "PASS", 1.0, "many words " * 200))
    lines = made.table().splitlines()
    assert len(lines) <= 22 and max(map(len, lines)) <= 240


# ---------------------------------------------------------------------- the reference


@pytest.fixture
def programs(load):
    module = load("gpu_visit_parts.programs")
    return module, json.loads(module.FILE.read_text())["programs"]


def test_gpu_reference_covers_all_visit_programs(programs):
    module, reference = programs
    assert list(reference) == list(module.cases()) and len(reference) == 6
    assert module.FILE.stat().st_size < 200_000
    for made in reference.values():
        assert len(made["losses"]["loss"]) == module.UPDATES
        judged = module.judged(made, made)
        assert judged["wrong"] == [] and judged["bits_equal"] and judged["first_update"] == 0.0


def changed(made, where, factor):
    """Return the numbers of a program with one of them changed."""
    other = copy.deepcopy(made)
    *path, last = where
    inner = other
    for key in path:
        inner = inner[key]
    inner[last] = inner[last] * factor + (factor - 1.0)
    return other


def test_gpu_check_detects_any_change_in_the_first_update(programs):
    module, reference = programs
    for made in reference.values():
        arrays = made["params"]["1"]["arrays"]
        places = [("losses", name, 0, lane) for name in made["losses"] for lane in (0, 3)]
        for name in arrays:
            at = ("params", "1", "arrays", name)
            places += [(*at, "norm", 2), (*at, "values", 1, len(arrays[name]["values"][1]) - 1)]
        for where in places:
            other = changed(made, where, 1.01)
            assert module.judged(other, made)["wrong"], where
            assert module.judged(made, other)["wrong"], where


def test_gpu_check_allows_one_deviating_lane_after_first_update(programs):
    module, reference = programs
    made = reference["cartpole"]
    one = changed(made, ("losses", "value_loss", 7, 2), 1.5)
    judged = module.judged(one, made)
    assert judged["wrong"] == [] and judged["lanes_that_left"] == [2]
    array = next(iter(made["params"]["8"]["arrays"]))
    two = changed(one, ("params", "8", "arrays", array, "norm", 0), 1.5)
    judged = module.judged(two, made)
    assert judged["lanes_that_left"] == [0, 2] and len(judged["wrong"]) == 2
    assert "of lane 2 after update 8" in judged["wrong"][1]


def test_gpu_check_refuses_nan_and_different_arrays(programs):
    module, reference = programs
    made = reference["pendulum"]
    other = changed(made, ("losses", "loss", 0, 0), float("nan"))
    assert "inf from the CPU's" in module.judged(other, made)["wrong"][0]
    fewer = copy.deepcopy(made)
    fewer["params"]["1"]["arrays"].popitem()
    with pytest.raises(ValueError, match="other parameters"):
        module.judged(fewer, made)


@pytest.mark.usefixtures("quickly")
def test_cpu_training_matches_the_gpu_reference(programs):
    """Else a change of PPO's numbers left the file as it was: `scripts/gpu_visit --reference`.

    One program with masks: after some updates there are steps without a choice.
    """
    import jax

    module, reference = programs
    program = module.make(module.cases()["rmsa_packed"], tuple(jax.devices()))
    judged = module.judged(module.numbers_of(program), reference["rmsa_packed"])
    assert judged["wrong"] == []


# ---------------------------------------------------------------------- wheels


def wheel(folder, name, text="answer = 42\n"):
    """Make a wheel of one module."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", text)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0")
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n")
    return path


def test_oversized_wheel_folder_is_refused(load, tmp_path):
    wheels = load("gpu_visit_parts.wheels")
    wheel(tmp_path, "visit_small")
    large = tmp_path / "visit_large-1.0-py3-none-any.whl"
    with large.open("wb") as file:
        file.truncate(wheels.MOST_BYTES)
    with pytest.raises(wheels.WheelError, match=r"at most 45; the largest is visit_large"):
        wheels.write_list(tmp_path)
    assert not (tmp_path / wheels.LIST).exists()
    large.unlink()
    assert [row["name"] for row in wheels.write_list(tmp_path)] == [
        "visit_small-1.0-py3-none-any.whl"
    ]


def test_missing_wheels_are_installed_and_damaged_ones_refused(load, tmp_path, capsys):
    wheels, main = load("gpu_visit_parts.wheels"), load("gpu_visit_parts.main")
    folder, target = tmp_path / "wheels", tmp_path / "site"
    folder.mkdir()
    made = wheel(folder, "visit_brought")
    wheel(folder, "numpy")  # which is there
    with pytest.raises(wheels.WheelError, match="--collect"):
        wheels.install(folder, target)
    wheels.write_list(folder)
    assert wheels.install(folder, target) == [made.name]
    assert (target / "visit_brought.py").is_file() and not (target / "numpy.py").exists()
    made.write_bytes(made.read_bytes()[:-1])
    with pytest.raises(wheels.WheelError, match="missing or damaged"):
        wheels.install(folder, target)
    words = ["--small", "--out", str(tmp_path / "out"), "--wheels", str(folder)]
    assert main.main(words) == 2 and "damaged" in capsys.readouterr().err


def test_gymnax_imports_without_matplotlib(load, tmp_path, monkeypatch):
    wheels = load("gpu_visit_parts.wheels")
    wheels.stand_in(tmp_path / "none")
    assert not (tmp_path / "none").exists()  # it is there
    monkeypatch.setattr(wheels, "_is_there", lambda name: False)
    wheels.stand_in(tmp_path / "pictures")
    code = (
        "import sys; from hpo.core.envs.from_gymnax import import_gymnax; import_gymnax(); "
        "print(sys.modules['matplotlib'].__file__)"
    )
    paths = [str(tmp_path / "pictures"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.stdout.strip() == str(tmp_path / "pictures" / "matplotlib" / "__init__.py"), (
        done.stderr
    )


# ---------------------------------------------------------------------- study and kernels


def test_gpu_visit_study_has_512_lanes(load, tmp_path):
    from hpo.studies.load import load as load_study

    text = load("gpu_visit_parts.study").study_text
    for small, lanes in ((False, 512), (True, 16)):
        file = tmp_path / f"visit_{lanes}.yaml"
        file.write_text(text(small))
        study = load_study(file)
        assert study.population.lanes == lanes and study.name == "visit"
        assert study.budget.trials > lanes  # so that lanes are refilled


FORMULAS = """
import sys
from hpo.cli import main
from hpo.search.lanes import local
from helpers.analytic_lanes import AnalyticFactory

class Formulas(AnalyticFactory):
    def check(self, config):
        pass

local.LocalFactory = lambda *words, **named: Formulas()
sys.exit(main(sys.argv[1:]))
"""


COPY = """
import shutil, sys
shutil.rmtree(sys.argv[2], ignore_errors=True)
shutil.copytree(sys.argv[1], sys.argv[2])
"""
OTHER = ["--set", "seed=5"]


@pytest.fixture
def formulas(load, tmp_path, monkeypatch):
    """Run the study over formulas in this process; give its folder of results."""
    from hpo.cli import main
    from hpo.search.lanes import local

    file = tmp_path / "apart" / "visit.yaml"
    file.parent.mkdir()
    file.write_text(load("gpu_visit_parts.study").study_text(True))

    class Formulas(AnalyticFactory):
        def check(self, config):
            pass

    def make(*changes):
        out = file.parent / f"results-{len(changes)}"
        with monkeypatch.context() as patch:
            patch.setattr(local, "LocalFactory", lambda *words, **named: Formulas())
            assert main(["run", str(file), "--out", str(out), "--quiet", *changes]) == 0
        return out

    return make


@pytest.mark.parametrize("differs", [False, True])
def test_gpu_visit_compares_whole_and_interrupted_studies(
    load, formulas, tmp_path, monkeypatch, differs
):
    """What is killed, and what goes on from there, are processes; the rest was run before."""
    study, common = load("gpu_visit_parts.study"), load("gpu_visit_parts.common")
    ran, made = [], {"whole": formulas()}
    if differs:
        made["broken"] = formulas(*OTHER)

    def command(file, out):
        ran.append(out.name)
        if out.name == "whole" or (differs and "broken" in ran[:-1]):
            return [sys.executable, "-c", COPY, str(made[out.name]), str(out)]
        words = ["run", str(file), "--out", str(out), "--quiet", *(OTHER if differs else [])]
        return [sys.executable, "-c", FORMULAS, *words]

    monkeypatch.setattr(study, "_command", command)
    monkeypatch.setattr(study.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    report = common.Report(tmp_path / "study.json")
    study.run(report, small=True)
    kept = json.loads(report.path.read_text())
    assert ran == ["whole", "broken", "broken"] and kept["done"] and kept["trials"] == 48
    # Formulas may end before they can be killed.
    failures = [text for text in kept["failures"] if "before it could be killed" not in text]
    assert bool(kept["differences"]) == bool(failures) == differs


def test_gpu_kernels_are_counted_per_loop(load):
    text = """HloModule jit_local

%fused (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  ROOT %inner = f32[8]{0} negate(%a)
}

%step (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %learn = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused
}

%epoch (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %shuffle = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused
  %while.3 = (s32[], f32[8]) while(%t), condition=%c, body=%step, metadata={op_name="a/while"}, backend_config={"known_trip_count":{"n":"4"}}
}

%play (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %act = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused
}

%update (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %while.1 = (s32[], f32[8]) while(%t), condition=%c, body=%play, metadata={op_name="a/scan/while"}, backend_config={"known_trip_count":{"n":"128"}}
  %while.2 = (s32[], f32[8]) while(%t), condition=%c, body=%epoch, metadata={op_name="a/while"}
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %while.0 = (s32[], f32[8]) while(%t), condition=%c, body=%update, metadata={op_name="a/while"}, backend_config={"known_trip_count":{"n":"3"}}
}
"""  # noqa: E501
    roles = load("gpu_cost").roles_of(text)
    assert roles["act"] == "env step" and roles["learn"] == "gradient step"
    assert roles["shuffle"] == "epoch" and roles["while.1"] == "update" and "inner" not in roles
    kernels = load("gpu_visit_parts.kernels")
    found = kernels._summed(iter([("act", 1.0), ("learn", 2.0), ("act", 3.0)]))
    assert found == {"act": (2, 4.0), "learn": (1, 2.0)}


def test_gpu_kernels_are_read_from_streams_only(load):
    kernels = load("gpu_visit_parts.kernels")

    def event(name, **stats):
        return SimpleNamespace(name=name, duration_ns=2000.0, stats=list(stats.items()))

    ours = event("kernel_3", hlo_op="fusion.3", hlo_module="jit_local")
    other = event("kernel_4", hlo_op="fusion.3", hlo_module="jit_pick")
    lines = [
        SimpleNamespace(name="Stream #7(Compute)", events=[ours, ours, other, event("memcpy")]),
        SimpleNamespace(name="XLA Ops", events=[ours]),
    ]
    host = SimpleNamespace(name="/host:CPU", lines=[SimpleNamespace(name="x", events=[ours])])
    gpu = SimpleNamespace(name="/device:GPU:0", lines=lines)
    both, one = (SimpleNamespace(planes=planes) for planes in ([host, gpu], [host]))
    assert list(kernels._events(both)) == [("fusion.3", 2.0)] * 2
    assert list(kernels._events(one)) == [("fusion.3", 2.0)]


def test_uncompilable_program_is_reported_and_others_are_timed(load, monkeypatch):
    speed, common = load("gpu_visit_parts.speed"), load("gpu_visit_parts.common")

    class Program:
        def __init__(self, case):
            self.case = case

        def compile(self):
            if self.case == 2:
                raise RuntimeError("RESOURCE_EXHAUSTED")

        def memory_bytes(self):
            return -self.case

    class Kept(common.Report):
        def write(self):
            pass

    monkeypatch.setattr(speed, "_program", lambda case, *rest: Program(case))
    monkeypatch.setattr(speed, "_row", lambda timed, program, *rest: {"name": timed.name})
    report = Kept(Path("speed.json"), {"rows": []})
    wave = [speed.Timed(f"program {number}", number) for number in (1, 2, 3)]
    speed._wave(report, wave, (SimpleNamespace(device_kind="cpu"),), True)
    assert report.document["failures"] == ["program 2: RuntimeError: RESOURCE_EXHAUSTED"]
    # Those that need least memory first.
    assert [row["name"] for row in report.document["rows"]] == ["program 3", "program 1"]


def test_seeds_with_bitwise_differences_are_reported(load):
    lanes = load("gpu_visit_parts.lanes")
    ones = {0: lanes.Seen("a", np.array([3.0, 4.0])), 5: lanes.Seen("b", np.array([0.0, 1.0]))}
    assert lanes._compared("same", ones, dict(ones), True)["equal"]
    others = {**ones, 5: lanes.Seen("c", np.array([0.0, 1.5]))}
    row = lanes._compared("other", ones, others, True)
    assert not row["equal"] and row["differing"] == [5] and row["distance"] == 0.1
