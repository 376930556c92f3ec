"""Taken, left out or refused, by one rule; seen by the command and its exit code."""

import pytest

from hpo.cli import main
from hpo.studies.yaml_io import plain, read_text

XLRON = """
program: xlron/train/train.py
metric: {name: service_blocking_probability_mean, goal: minimize}
method: random
run_cap: 4
command: [python, -m, xlron.train.train, --env_type, rmsa, --topology_name,
          nsfnet_deeprmsa_directed, --link_resources, 40, --k, 3, "${args}"]
parameters:
"""
PLAIN = """
program: train.py
metric: {name: episode_return, goal: maximize}
method: random
parameters:
  env_id: {value: CartPole-v1}
"""


@pytest.fixture
def imported(tmp_path, capsys):
    def run(text, *flags):
        path, out = tmp_path / "sweep.yaml", tmp_path / "study.yaml"
        path.write_text(text)
        out.unlink(missing_ok=True)
        more = ["--", *flags] if flags else []
        code = main(["import", "wandb", str(path), "--to", str(out), *more])
        told = capsys.readouterr().err
        data = plain(read_text(out.read_text(), "study.yaml")) if code == 0 else None
        assert out.exists() == (code == 0) and "Traceback" not in told
        return code, told, data

    return run


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ("  warp: {values: [1, 2]}", "because hpo has no counterpart for warp"),
        (
            "  device: {values: [cpu, cuda]}\n  warp: {min: 0.0, max: 1.0}",
            "nothing would be searched, because hpo has no counterpart for device and warp",
        ),
        ("  network: {value: vit}", "network is 'vit'; allowed: one of mlp"),
        ("  policy: {values: [MlpPolicy, MultiInputPolicy]}", "MultiInputPolicy"),
        (
            "  use_attention: {value: true}\n  lr: {values: [0.1, 0.2]}",
            "seems to select a network",
        ),
        ("  model.encoder: {values: [resnet, vit]}", "seems to select a network"),
        ("  algo: {value: sac}", "algo ('sac') cannot be imported: a study trains only PPO"),
        ("  algo: {values: [ppo, sac]}", "algo (searched) cannot be imported"),
    ],
)
def test_values_that_would_change_the_search_are_refused(imported, parameters, reason):
    code, told, _ = imported(PLAIN + parameters)
    assert code == 2 and reason in told and len(told.strip().splitlines()) == 1


def test_names_without_effect_are_left_out_and_listed(imported, tmp_path):
    code, told, data = imported(
        PLAIN + "  lr: {values: [0.001, 0.01]}\n  warp: {value: 3}\n  device: {value: cuda}"
        "\n  use_lstm: {value: false}\n  algo: {value: ppo}"
    )
    assert code == 0 and set(data["space"]) == {"learning_rate"}
    for name in ("warp", "device"):
        assert f"left out: {name}" in told
    assert "use_lstm" not in told and "algo" not in told  # off there as here: nothing is lost
    text = (tmp_path / "study.yaml").read_text()
    assert "# Without effect: use_lstm False; algo ppo." in text
    code, _, data = imported(
        PLAIN + "  use_lstm: {value: true}\n  algo: {value: sac}\n  lr: {values: [0.001, 0.01]}",
        "--without=use_lstm,algo",
    )
    assert code == 0 and set(data["space"]) == {"learning_rate"}


def test_sweep_over_seeds_only_is_imported(imported):
    text = PLAIN + "  seed: {values: [1, 2, 3]}\n  warp: {values: [1, 2]}"
    assert imported(text)[0] == 2
    code, _, data = imported(text, "--without=warp")
    assert code == 0 and data["seeds"] == {"per_config": 3}


def test_system_flag_selects_or_disables_the_system(imported):
    text = PLAIN.replace("env_id: {value: CartPole-v1}", "env_type: {value: rmsa}") + (
        "  topology_name: {value: nsfnet_deeprmsa}\n  LR: {values: [0.001, 0.01]}"
    )
    text = text.replace("episode_return, goal: maximize", "blocking, goal: minimize")
    code, told, data = imported(text)
    assert code == 0 and "read as XLRON, because it sets env_type, topology_name" in told
    assert data["fixed"]["gamma"] == 0.999 and data["env"]["slots"] == 5
    code, told, data = imported(text, "--system=none")
    assert code == 0 and "XLRON" not in told and "gamma" not in data.get("fixed", {})
    code, told, _ = imported(text, "--system=xlorn")
    assert code == 2 and "unknown system 'xlorn'; did you mean 'xlron'?" in told


@pytest.mark.parametrize(
    ("parameter", "space"),
    [
        ("USE_GNN: {values: [true, false]}", {"network": {"values": ["mlp", "gnn"]}}),
        (
            "random_traffic: {values: [true, false]}",
            {"env.traffic_matrix": {"values": ["random", "uniform"]}},
        ),
        (
            "topology_name: {values: [nsfnet_deeprmsa_directed, nsfnet_deeprmsa_undirected]}",
            {"env.directed": {"values": [True, False]}},
        ),
        (
            "topology_name: {values: [nsfnet_deeprmsa_directed, 4node_directed]}",
            {"env.topology": {"values": ["nsfnet_deeprmsa", "ring4"], "default": "ring4"}},
        ),
        ("NUM_LAYERS: {values: [2, 3]}", {"num_layers": {"values": [2, 3], "default": 2}}),
        (
            "values_bw: {values: ['100', '100,400']}",
            {"env.bitrates": {"values": [[100.0], [100.0, 400.0]]}},
        ),
        (
            "IAM_DAMPING: {values: ['True', 'False']}",
            {"masking_damping": {"values": [True, False]}},
        ),
        (
            "modulations_csv_filepath: {values: [./xlron/data/modulations/modulations.csv, "
            "./xlron/data/modulations/modulations_deeprmsa.csv]}",
            {"env.modulation": {"values": ["full", "deeprmsa"]}},
        ),
        (
            "LR_END_FRACTION: {values: [null, 1.0]}",  # null is the default, 0.1
            {"lr_end_fraction": {"values": [5e-5, 5e-4]}},
        ),
        (
            "load: {min: 100, max: 300}",
            {"env.load": {"min": 100, "max": 300, "distribution": "int_uniform"}},
        ),
        (
            "INITIAL_LAMBDA: {min: 0.8, max: 0.9}",
            {
                "gae_lambda_initial": {
                    "min": 0.8,
                    "max": 0.9,
                    "distribution": "uniform",
                    "default": 0.9,
                }
            },
        ),
        (
            "RHO_CLIP: {min: 0.0, max: 2.0}\n  C_CLIP: {value: 1.0}",
            {"rho_clip": {"min": 1e-6, "max": 2.0, "distribution": "uniform"}},
        ),
        (
            "PRIO_ALPHA: {values: [0.3, 0.6]}\n  PRIO_BETA0: {value: 0.4}",
            {"priority_alpha": {"values": [0.3, 0.6]}},
        ),
    ],
)
def test_xlron_sweep_parameters_become_search_space(imported, parameter, space):
    code, told, data = imported(XLRON + "  " + parameter)
    assert code == 0, told
    assert data["space"] == space
    if "NUM_LAYERS" in parameter:
        assert data["fixed"]["hidden_size"] == 64


@pytest.mark.parametrize(
    ("parameter", "reason"),
    [
        (
            "topology_name: {values: [nsfnet_deeprmsa_directed, 4node_undirected]}",
            "change env.topology and env.directed together",
        ),
        ("PRIO_ALPHA: {values: [0.3, 0.6]}", "PRIO_ALPHA is searched, but has no effect in XLRON"),
        ("mlp_latent: {values: [64, 128]}\n  USE_GNN: {value: true}", "all parts of the gnn"),
        ("RHO_CLIP: {min: -1.0, max: 2.0}\n  C_CLIP: {value: 1.0}", "start the range above"),
        ("deterministic_requests: {values: [true, false]}", "cannot be imported"),
        ("LR_SCHEDULE: {values: [cosine, step]}", "step"),
        ("env_type: {values: [rmsa, rsa]}", "import the sweep once per value"),
        ("EVAL_HEURISTIC: {value: true}", "only evaluates"),
    ],
)
def test_unsupported_xlron_sweep_parameters_are_refused(imported, parameter, reason):
    code, told, _ = imported(XLRON + "  " + parameter)
    assert code == 2 and reason in told


@pytest.mark.parametrize("value", ["null", "abc", "[1, 2]", "true", "{a: 1}"])
@pytest.mark.parametrize("name", ["n_steps_pow", "one_minus_gamma"])
def test_non_numeric_value_is_refused_in_one_line(imported, name, value):
    for fields in (f"{{value: {value}}}", f"{{values: [{value}, 1]}}"):
        code, told, _ = imported(f"{PLAIN}  {name}: {fields}\n", "--system", "sb3")
        assert code == 2 and "is not a number" in told and name in told


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("ROLLOUT_LENGTH: {value: abc}", "ROLLOUT_LENGTH is 'abc'; allowed: a number"),
        ("NUM_ENVS: {value: null}", "NUM_ENVS is"),
        ("NUM_ENVS: {value: 0}", "num_envs"),
        ("STEPS_PER_INCREMENT: {value: often}", "STEPS_PER_INCREMENT is 'often'"),
        ("RHO_CLIP: {values: [off, 1.0]}", "RHO_CLIP is"),
        ("link_resources: {value: [40]}", "link_resources is [40]"),
        ("LR_SCHEDULE: {value: [cosine]}", "LR_SCHEDULE is ['cosine']; allowed: one word"),
        ("VF_LR_SCHEDULE: {value: {a: 1}}", "VF_LR_SCHEDULE is"),
        ("USE_GNN: {value: [1]}", "USE_GNN is [1]; allowed: one word"),
    ],
)
def test_value_of_wrong_type_is_refused_in_one_line(imported, flag, words):
    code, told, _ = imported(f"{XLRON}  {flag}\n")
    assert code == 2 and words in told
