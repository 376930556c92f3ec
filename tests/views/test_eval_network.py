"""`hpo eval --env`: heuristics and policies of optical networks."""

import csv
import json

import numpy as np
import pytest

from hpo.cli import main
from hpo.core.envs.optical.heuristic_evaluation import HeuristicSums
from hpo.errors import ConfigError
from hpo.views.charts.model import Band, Line
from hpo.views.commands.eval_network import blocking_picture, draw_curves, parse_loads

pytestmark = pytest.mark.usefixtures("quickly_compiled")

NETWORK = """\
id: rmsa
topology: ring4
directed: true
k: 2
slots: 10
load: 30
warmup_requests: 20
"""
FEW = ["--seeds", "6", "--steps", "200"]


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "ring.yaml"
    path.write_text(NETWORK)
    return str(path)


def answer(capsys, *argv):
    code = main(["eval", *argv, "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return json.loads(printed.out)


def refusal(capsys, *argv):
    code = main(list(argv))
    printed = capsys.readouterr()
    assert code == 2
    assert "Traceback" not in printed.err
    return printed.err


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """An untrained policy, exported."""
    import jax

    from hpo.core import policy as policies
    from hpo.core.lane_state import RunningStatistics
    from hpo.core.plan import EnvPlan, make_plan
    from hpo.core.saved_policy import SavedPolicy, save_policy
    from hpo.knobs import complete

    folder = tmp_path_factory.mktemp("study")
    nodes = [{"id": n} for n in range(4)]
    links = [{"source": n, "target": (n + 1) % 4, "length": 4 - n} for n in range(4)]
    (folder / "net.json").write_text(json.dumps({"nodes": nodes, "links": links}))
    keys = {"topology": "net.json", "k": 2, "slots": 10, "warmup_requests": 20}
    env = EnvPlan("rmsa", tuple(sorted(keys.items())), str(folder))
    config = complete(
        {"hidden_sizes": [8], "num_envs": 2, "rollout_length": 8, "normalise_rewards": False}
    )
    plan = make_plan(config, env, env, ())
    params = {"load": 30.0}
    saved = SavedPolicy(plan, config, params, params, {}, RunningStatistics.empty(()))
    weights = policies.init_params(plan, saved.hypers(), jax.random.key(0))
    saved = SavedPolicy(plan, config, params, params, weights, RunningStatistics.empty(()))
    save_policy(folder / "policy", saved)
    (folder / "net.json").unlink()  # the policy has a copy of its own
    return str(folder / "policy")


def test_a_policy_and_heuristics_serve_the_same_requests(capsys, policy):
    data = answer(capsys, policy, "--heuristic", "ksp_ff,ff_ksp", *FEW)
    means = {row["rule"]: row["service_blocking_probability"]["mean"] for row in data["results"]}
    assert set(means) == {"ksp_ff", "ff_ksp", policy}
    assert all(0.0 < mean < 1.0 for mean in means.values())
    assert [row["heuristic"] for row in data["differences"]] == ["ksp_ff", "ff_ksp"]
    for row in data["differences"]:
        assert row["mean"] == pytest.approx(means[policy] - means[row["heuristic"]])
        assert row["ci_low"] < row["mean"] < row["ci_high"]


def test_policy_identical_to_ksp_ff_has_identical_blocking():
    from hpo.core.envs.optical.heuristic_evaluation import PolicyRule, evaluate_heuristic
    from hpo.core.envs.optical.optical_environment import make_from_keys

    env = make_from_keys(id="rmsa", topology="ring4", k=2, slots=10, load=30, warmup_requests=20)

    class Lowest:
        history = 1

        def begin(self):
            return ()

        def act(self, observation, mask, memory, key):
            return mask.argmax(), memory  # path by path, slot by slot: this is ksp_ff

    ours, theirs = (
        evaluate_heuristic(env, rule, seeds=3, steps=200)
        for rule in (PolicyRule(env, Lowest()), "ksp_ff")
    )
    np.testing.assert_array_equal(ours.blocked, theirs.blocked)
    np.testing.assert_array_equal(ours.bitrate_blocked, theirs.bitrate_blocked)
    assert ours.blocked.any()


def test_eval_loads_gives_one_blocking_curve(capsys, network, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "curve.png"
    given = ("--env", network, "--heuristic", "ksp_ff", "--loads", "0.5:40.5:20")
    data = answer(capsys, *given, "--plot", str(picture), *FEW)
    rows = [row["service_blocking_probability"] for row in data["results"]]
    assert [row["load"] for row in data["results"]] == [0.5, 20.5, 40.5]
    assert rows[0]["nothing_blocked"]
    assert rows[0]["ci_high"] == pytest.approx(3 / 1200)
    assert rows[1]["mean"] < rows[2]["mean"]
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_zero_blocking_is_printed_as_an_upper_bound(capsys, network):
    assert (
        main(["eval", "--env", network, "--heuristic", "ksp_ff", "--set", "load=0.1", *FEW]) == 0
    )
    assert "below 0.0025 (3/n)" in capsys.readouterr().out


def test_find_load_reports_the_load_with_interval(capsys, network):
    data = answer(capsys, "--env", network, "--heuristic", "ksp_ff", "--find-load", "0.1", *FEW)
    [row] = data["supported_loads"]
    assert row["ci_low"] < row["load"] < row["ci_high"]
    assert 1.0 < row["load"] < 60.0


def test_find_load_compares_policy_with_each_heuristic(capsys, policy):
    given = [policy, "--heuristic", "ksp_ff,ff_ksp", "--find-load", "0.2", *FEW, "--seeds", "6"]
    data = answer(capsys, *given)
    loads = {row["rule"]: row["load"] for row in data["supported_loads"]}
    assert [row["heuristic"] for row in data["more_load"]] == ["ksp_ff", "ff_ksp"]
    for row in data["more_load"]:
        ratio = loads[row["policy"]] / loads[row["heuristic"]]
        assert row["more"] == pytest.approx(ratio - 1.0)
        assert row["ci_low"] < row["more"] < row["ci_high"]
    assert main(["eval", *given]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4].split() == ["policy", "minus", "load", "95%"]
    assert lines[-2].startswith(f"ksp_ff        {data['more_load'][0]['more']:+.2%}  [")
    assert max(map(len, lines[-4:])) <= 80


def test_network_trace_has_one_row_per_request(capsys, network, tmp_path):
    requests = [(0, 1, 50, 0.0, 9), (3, 1, 100, 1.0, 9), (2, 0, 25, 1.5, 9)]
    lines = ["source,destination,bitrate,arrival,holding"]
    lines += [",".join(map(str, row)) for row in requests]
    (tmp_path / "list.csv").write_text("\n".join(lines))
    trace = tmp_path / "trace.csv"
    changes = ["--set", "requests=list.csv", "--set", "warmup_requests=0"]
    data = answer(
        capsys, "--env", network, "--heuristic", "ksp_ff", "--trace", str(trace), *changes
    )
    assert (data["requests"], data["accepted"]) == (3, 3)
    rows = list(csv.DictReader(trace.read_text().splitlines()))
    assert [(int(r["source"]), int(r["destination"])) for r in rows] == [(0, 1), (3, 1), (2, 0)]
    assert rows[0] == {
        "step": "0",
        "episode": "0",
        "source": "0",
        "destination": "1",
        "bitrate": "50",
        "action": "0",
        "path": "0",
        "path_km": rows[0]["path_km"],
        "hops": "1",
        "slot": "0",
        "slots_needed": rows[0]["slots_needed"],
        "accepted": "1",
        "arrival": "0",
        "departure": "9",
        "valid_actions": rows[0]["valid_actions"],
    }


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--heuristic", "ksp_f"], "did you mean 'ksp_ff'?"),
        (["--heuristic", "ksp_ff", "--loads", "9:1:1"], "--loads is '9:1:1'; allowed:"),
        (["--heuristic", "ksp_ff", "--loads", "0,5"], "each above 0 Erlang"),
        (["--heuristic", "ksp_ff", "--find-load", "2"], "must be between 0 and 1"),
        (["--heuristic", "ksp_ff,ff_ksp", "--trace", "x.csv"], "name only one"),
        (["--heuristic", "ksp_ff", "--set", "load=-5"], "env.load is -5; allowed:"),
        (["--heuristic", "ksp_ff", "--set", "lod=5"], "did you mean 'load'?"),
        (["--heuristic", "ksp_ff", "--set", "id=CartPole-v1"], "has no key"),
        ([], "nothing to evaluate"),
    ],
)
def test_eval_network_mistakes_get_one_line_errors(capsys, network, argv, words):
    assert words in refusal(capsys, "eval", "--env", network, *argv)


def test_a_policy_for_another_network_is_refused(capsys, network, policy):
    text = refusal(capsys, "eval", "--env", network, "--policy", policy, "--set", "slots=12")
    assert "the actions in the policy's training" in text


@pytest.mark.parametrize("more", [[], ["--trace", "x.csv"]])
def test_eval_set_without_env_file_is_refused(capsys, policy, more):
    text = refusal(capsys, "eval", policy, "--heuristic", "ksp_ff", "--set", "load=150", *more)
    assert "--set changes a key of --env FILE; give that file too" in text


def test_eval_env_refuses_non_optical_environments(capsys, tmp_path):
    path = tmp_path / "pole.yaml"
    path.write_text("env: CartPole-v1\n")
    text = refusal(capsys, "eval", "--env", str(path), "--heuristic", "ksp_ff")
    assert "not an optical network" in text


def test_missing_candidate_paths_give_a_one_line_warning(capsys, network):
    given = ["--env", network, "--heuristic", "ksp_ff", "--set", "k=7", *FEW]
    assert main(["eval", *given]) == 0
    lines = capsys.readouterr().err.splitlines()
    [line] = [line for line in lines if "fewer than k=7" in line]
    assert line.startswith("warning: ring4: 12 of 12 node pairs")


def test_missing_matplotlib_names_the_extra(capsys, network, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "[plot]'" in refusal(
        capsys, "eval", "--env", network, "--heuristic", "ksp_ff", "--plot", "x.png"
    )


def test_load_ranges_are_parsed():
    assert parse_loads("100:130:10") == [100.0, 110.0, 120.0, 130.0]
    for text in ("", "1:2", "1:2:0", "1:2:nan", "inf:1:1", "1:1e9:1e-9", "-1:2:1"):
        with pytest.raises(ConfigError):
            parse_loads(text)


def evaluation(blocking):
    """Blocking probabilities [loads, seeds] as an evaluation of 1,000 requests a seed."""
    table = np.asarray(blocking, np.float64)
    loads = np.array([100.0 + 50 * at for at in range(len(table))])
    none = np.zeros_like(table)
    return HeuristicSums(loads, 1_000, 1_000 * table, np.ones_like(table), none, none)


def test_blocking_plot_shows_paired_differences_and_line_labels(tmp_path):
    """Two rules whose own intervals overlap differ on every seed."""
    rng = np.random.default_rng(0)
    shared = rng.uniform(0.02, 0.08, (3, 10))
    rules = {"ksp_ff": evaluation(shared), "/a/long/way/to/policy/": evaluation(shared - 0.004)}
    blocking, apart = blocking_picture(rules, "a network").panels
    assert [label.text for label in blocking.labels] == ["ksp_ff", "policy"]
    assert [label.text for label in apart.labels] == ["policy"]
    bands = [mark for mark in blocking.marks if isinstance(mark, Band)]
    (first, second) = (band.points[0] for band in bands)
    assert first[1] < second[2]  # they overlap
    (line,) = [m for m in apart.marks if isinstance(m, Line) and not m.dashed]
    assert [value for _, value in line.points] == pytest.approx([-0.004] * 3)
    draw_curves(tmp_path / "x.png", rules, "a network")
    assert (tmp_path / "x.png").stat().st_size > 5_000


def test_blocking_plot_works_for_one_rule_or_zero_blocking(tmp_path):
    for name, values in (("one", [[0.1] * 5, [0.2] * 5]), ("nothing", [[0.0] * 5, [0.0] * 5])):
        picture = blocking_picture({"ksp_ff": evaluation(values)}, "a network")
        assert len(picture.panels) == 1
        draw_curves(tmp_path / f"{name}.svg", {"ksp_ff": evaluation(values)}, "a network")
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()


def test_one_seed_has_no_deviation(capsys, network):
    one = ["--env", network, "--heuristic", "ksp_ff", "--seeds", "1", "--steps", "200"]
    assert main(["eval", *one]) == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row[:2] == ["ksp_ff", "30"] and row[3] == "-"
    found = answer(capsys, *one)["results"][0]["service_blocking_probability"]
    assert found["std"] is None and found["mean"] > 0.0
