"""`hpo tune-lanes`: numbers of lanes tried, timed, and the one to write down."""

import json

import pytest

from hpo.cli import main
from hpo.search import tune_lanes
from hpo.search.lanes import local
from hpo.search.tune_lanes import Measured, best_lanes, candidates

pytestmark = pytest.mark.usefixtures("quickly_compiled")

STUDY = """\
env: CartPole-v1
env_steps: 2048
fixed: {num_envs: 4, rollout_length: 16, num_minibatches: 2, hidden_sizes: [8],
        normalise_observations: true}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
budget: {trials: 12}
"""


def measured(lanes, speed):
    return Measured(lanes, 4, speed, 0.1, 0.2, 0.3, 1.0, 2**20)


def test_the_fewest_lanes_that_are_nearly_the_fastest_win():
    entries = [measured(8, 50.0), measured(16, 94.9), measured(32, 95.1), measured(64, 100.0)]
    assert best_lanes(entries).lanes == 32
    assert best_lanes(entries[:2]).lanes == 16


@pytest.mark.parametrize(("block", "ruled", "replicates"), [(8, 64, 1000), (4, 4, 3), (2, 64, 70)])
def test_candidates_fit_the_devices_and_hold_the_rules_own(block, ruled, replicates):
    found = candidates(block, ruled, replicates)
    assert found == sorted(set(found)) and ruled in found
    assert all(lanes % block == 0 for lanes in found)


def test_the_table_fits_a_terminal(capsys, tmp_path, monkeypatch):
    """Numbers as long as they get: thousands of lanes, millions of steps, a hundred GiB."""
    path = tmp_path / "tiny.yaml"
    path.write_text(STUDY)
    entry = Measured(16384, 8192, 123_456_789.0, 754.0, 123.456, 123.456, 754.0, 2**37)
    monkeypatch.setattr("hpo.views.commands.train.measure_lanes", lambda *given: iter([entry]))
    assert main(["tune-lanes", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    header, _, row, _, words, last = lines
    assert header.split() == ["lanes", "tile", "env", "steps/s", "rollouts", "updates", "refill",
                              "compile", "memory"]  # fmt: skip
    assert row.split()[3:] == ["123.456s", "123.456s", "12m34s", "12m34s", "131,072", "MiB"]
    assert words.startswith("rollouts, updates: of one chunk; refill:")
    assert last.startswith("population: {lanes: 16384}")
    assert max(map(len, lines)) <= 80


def test_it_prints_a_line_for_the_file(tmp_path, capsys):
    path = tmp_path / "tiny.yaml"
    path.write_text(STUDY)
    assert main(["tune-lanes", str(path), "--lanes", "8", "--seconds", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert data["lanes"] == 8 and "timing 8 lanes" in err
    (entry,) = data["measured"]
    assert entry["env_steps_per_second"] > 100 and entry["refill_seconds"] >= 0.0
    assert entry["rollout_seconds"] > 0.0 and entry["update_seconds"] >= 0.0
    chunk = entry["rollout_seconds"] + entry["update_seconds"]
    env_steps = chunk * entry["env_steps_per_second"] / (8 * 4 * 16)  # whole updates of all lanes
    assert env_steps >= 1.0 and env_steps == pytest.approx(round(env_steps))
    assert main(["tune-lanes", str(path), "--lanes", "7", "--seconds", "1"]) == 2
    assert "7 lanes do not divide" in capsys.readouterr().err


def test_a_gpu_tries_lanes_from_64_to_what_its_memory_holds_in_tiles_as_wide(
    tmp_path, capsys, monkeypatch
):
    """A GPU that is not there: 100 MB, and as fast with 256 lanes as with more."""
    path = tmp_path / "wide.yaml"
    path.write_text(STUDY.replace("trials: 12", "trials: 100000"))
    made = local.LocalFactory.__init__

    def on_a_gpu(factory, *given):
        made(factory, *given)
        factory.backend, factory.devices = "gpu", factory.devices[:1]

    def timed(factory, default, lanes, seconds):
        program = factory.program_of(default, lanes)
        speed = 1e6 * min(256, program.tile)
        needed = program.memory_bytes()
        return Measured(lanes, program.tile, speed, 0.1, 0.2, 0.3, 1.0, needed)

    monkeypatch.setattr(local.LocalFactory, "__init__", on_a_gpu)
    monkeypatch.setattr(local, "device_memory", lambda devices: 10**8)
    monkeypatch.setattr(tune_lanes, "_measure", timed)
    assert main(["tune-lanes", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    words = [line.split()[:2] for line in lines]
    tried = {int(lanes): int(tile) for lanes, tile in words[2 : words.index([])]}
    assert min(tried) == 64 and {tried[lanes] for lanes in (64, 128, 256)} == {64, 128, 256}
    assert lines[-1].startswith("population: {lanes: 256}")
