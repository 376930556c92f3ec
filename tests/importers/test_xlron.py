import re

import pytest

from hpo.cli import main
from hpo.core.envs.optical.optical_settings import HEURISTIC_NAMES, OpticalSettings
from hpo.errors import ConfigError
from hpo.importers.readers import HEURISTICS, read_flags
from hpo.studies.check import check
from hpo.studies.env_section import read_env_file
from hpo.studies.load import loads
from hpo.studies.yaml_io import plain, read_text
from hpo.views.words import on_command_line

COMMAND = """
# a training run
python train.py --env_type=rmsa --topology_name=nsfnet_deeprmsa_directed --link_resources=100 \\
  --k 5 --load=200 --continuous_operation --ENV_WARMUP_STEPS=1000 --TOTAL_TIMESTEPS=1e5 \\
  --values_bw=25,50 --noWANDB --WEIGHT_DECAY=0.01 --NUM_UNITS=32 --VISIBLE_DEVICES=0
"""


def imported(tmp_path, text, **given):
    path = tmp_path / "flags.txt"
    path.write_text(text)
    draft = read_flags(path, given)
    return draft, loads(draft.text())


def test_a_note_says_how_many_env_steps_xlron_trains(tmp_path):
    """Increments of 100,000, of 62 updates of 16 x 100 env steps."""
    flags = "--env_type=rmsa --NUM_ENVS=16 --ROLLOUT_LENGTH=100 --TOTAL_TIMESTEPS="
    draft, study = imported(tmp_path, f"{flags}1e6")
    assert study.env_steps == 1_000_000
    assert "XLRON trains for 992,000 env steps, in whole updates" in " ".join(draft.notes)
    draft, _ = imported(tmp_path, f"{flags}992e3 --STEPS_PER_INCREMENT=99200")
    assert "XLRON trains" not in " ".join(draft.notes)


def test_xlron_flags_and_defaults_are_imported(tmp_path):
    draft, study = imported(tmp_path, COMMAND)
    assert study.env.id == "rmsa" and study.env_steps == 100_000
    env = study.env.values
    assert env["topology"] == "nsfnet_deeprmsa" and env["directed"] is True
    assert env["bitrates"] == (25.0, 50.0) and env["load"] == 200.0 and env["slots"] == 100
    assert study.fixed["hidden_sizes"] == (32, 32) and study.fixed["optimiser"] == "adamw"
    assert study.fixed["gamma"] == 0.999 and study.fixed["lr_schedule"] == "cosine"
    assert study.fixed["gae_lambda_initial"] == 0.9 and study.fixed["gae_lambda_final"] == 0.98
    assert "GAMMA 0.999" in draft.defaults
    assert {item.split(":")[0] for item in draft.left_out} == {"VISIBLE_DEVICES"}
    assert "loggers" not in draft.rest  # --noWANDB


def test_flags_after_the_dashes_override(tmp_path):
    _, study = imported(tmp_path, COMMAND, LR="2e-4", load="300")
    assert study.fixed["learning_rate"] == 2e-4 and study.env.values["load"] == 300.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("--EVAL_MODEL --env_type=rmsa --MODEL_PATH=m.eqx", "only evaluates"),
        ("--EVAL_HEURISTIC --path_heuristic=kmc_f", "did you mean 'kmc_ff'"),
        ("--RETRAIN_MODEL --MODEL_PATH=m.eqx", "Equinox weights cannot be read"),
        ("--RETRAIN_MODEL --env_type=rmsa", "needs MODEL_PATH"),
        ("--env_type=rmsa_gn_model", "physical layer"),
        ("--env_type=vone", "virtual networks"),
        ("--ACTIVATION=crelu", "doubles the input width"),
        ("--deterministic_requests --k=2", "deterministic_requests .True. cannot be imported"),
        ("--terminate_on_episode_end", "import without it .-- --without"),
        ("--USE_GNN --mlp_latent=64", "mlp_latent needs mlp_layers"),
        ("--NUM_UNITS=abc", "NUM_UNITS is 'abc'"),
        ("--values_bw=100,x", "numbers separated by commas"),
        ("--USE_GNN --use_attention_pooling=true", "seems to select a network"),
        ("--env_type=rmsa --LRR=1e-3", "did you mean LR. XLRON has no such name.* --without LRR"),
        ("--env_type=rmsa --lr=1e-3 --ENT_COEFF=0.1", "did you mean ENT_COEF"),
        ("# nothing", "no flags"),
        ("--env_type=rmsa --k='5", "split into words"),
        ("--env_type=rmsa --topology_name=nowhere", "nowhere"),
        ("--env_type=rmsa --flagfile=other.txt", "other.txt: no such file"),
        ("--flagfile=flags.txt", "in a cycle"),
    ],
)
def test_unsupported_xlron_flags_are_refused_with_reason(tmp_path, text, reason):
    with pytest.raises(ConfigError) as told:
        imported(tmp_path, text)
    assert re.search(reason, on_command_line(told.value))


def test_xlron_episodic_env_has_no_warmup(tmp_path):
    _, study = imported(tmp_path, "--env_type=deeprmsa --link_resources=100 --max_requests=1e3")
    assert study.env.values["continuous"] is False and study.env.values["warmup_requests"] == 0
    assert study.env.values["max_requests"] == 1000


def test_xlron_command_line_is_read_directly(tmp_path):
    draft = read_flags("uv run python -m xlron.train.train --env_type rmsa --k 3 --LR=1e-4", {})
    study = loads(draft.text())
    assert study.env.values["k"] == 3 and study.fixed["learning_rate"] == 1e-4
    with pytest.raises(ConfigError, match="neither a file nor a command line"):
        read_flags("nowhere.txt", {})
    with pytest.raises(ConfigError, match="neither a file"):
        read_flags("x" * 5000, {})


def test_flagfile_inside_command_is_read_in_order(tmp_path):
    (tmp_path / "base.txt").write_text(
        "--env_type=rmsa\n# traffic\n--load=100\n--LR=1e-3\n--k=7\n"
    )
    text = "python -m xlron.train.train --LR=5e-3 --flagfile=base.txt --k=4"
    _, study = imported(tmp_path, text)
    assert study.fixed["learning_rate"] == 1e-3  # the file stands behind --LR and before --k
    assert study.env.values["load"] == 100.0 and study.env.values["k"] == 4


@pytest.mark.parametrize("keep", [False, True])
def test_retrain_model_becomes_init_from_policy(tmp_path, monkeypatch, keep):
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "policy.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    text = "--env_type=rmsa --RETRAIN_MODEL --MODEL_PATH=policy" + (" --KEEP_VF" if keep else "")
    draft, _ = imported(tmp_path, text)
    assert draft.rest["init"] == {"from": "policy", "keep": "critic" if keep else "all"}
    draft, _ = imported(tmp_path, text.replace("policy", "m.eqx"), without="RETRAIN_MODEL")
    assert "init" not in draft.rest


def test_xlron_model_evaluation_and_logging_flags_are_imported(tmp_path):
    draft, study = imported(
        tmp_path,
        "--env_type=rmsa --continuous_operation --SAVE_MODEL --MODEL_PATH=a.eqx "
        "--EVAL_DURING_TRAINING --EVAL_FREQUENCY=5 --STEPS_PER_INCREMENT=200000 --NUM_ENVS=64 "
        "--ROLLOUT_LENGTH=100 --WANDB --PROJECT=mine --EXPERIMENT_NAME='a run/1' "
        "--DOWNSAMPLE_FACTOR=400 --LOG_LOSS_INFO --DETERMINISTIC_OPS",
    )
    assert draft.rest["checkpoint"] == {"best_evaluation": True}
    assert draft.rest["evaluation"] == {
        "every": 1_000_000,
        "episodes": 10,
        "steps": 10_000,
        "greedy": False,
    }
    assert draft.rest["loggers"] == [{"type": "wandb", "project": "mine", "every": 4}]
    assert study.log_every == 200_000
    assert study.name == "a-run-1" and study.population.deterministic
    assert any(item.startswith("MODEL_PATH") for item in draft.left_out)


def test_xlron_heuristic_prints_the_eval_command(tmp_path, capsys):
    command = (
        "python -m xlron.train.train --env_type=rmsa --EVAL_HEURISTIC --path_heuristic=kmc_ff "
        "--topology_name=nsfnet_deeprmsa_undirected --link_resources=80 --k=50 --load=250 "
        "--continuous_operation --ENV_WARMUP_STEPS=2000 --TOTAL_TIMESTEPS=20000000 "
        "--NUM_ENVS=2000 --min_load=100 --max_load=300 --step_load=50"
    )
    file = tmp_path / "net.yaml"
    assert main(["import", "xlron", command, "--to", str(file)]) == 0
    how = "--heuristic kmc_ff --seeds 2000 --steps 10000 --loads 100:300:50"
    assert f"wrote {file}; next: hpo eval --env {file} {how}\n" in capsys.readouterr().err
    assert "# Evaluated with heuristic kmc_ff, seeds 2000, steps 10000" in file.read_text()
    spec = read_env_file(file).spec
    settings = OpticalSettings.from_mapping({"id": spec.id, **spec.values})
    assert (settings.slots, settings.k, settings.directed) == (80, 50, False)
    assert settings.continuous and settings.warmup_requests == 2000


def test_xlron_and_hpo_heuristics_have_the_same_names():
    assert set(HEURISTICS) == set(HEURISTIC_NAMES)


@pytest.mark.parametrize("table", ["modulations_deeprmsa", "modulations", "modulations_gn_model"])
def test_xlron_modulation_files_are_mapped_by_name(tmp_path, table):
    path = f"--modulations_csv_filepath=./xlron/data/modulations/{table}.csv --env_type=rmsa"
    draft, _ = imported(tmp_path, path)
    assert draft.env["modulation"] == {"modulations": "full"}.get(
        table, table.removeprefix("modulations_")
    )


def test_aggregate_slots_are_capped_at_link_width(tmp_path):
    draft, study = imported(tmp_path, "--env_type=rmsa --link_resources=40 --aggregate_slots=100")
    assert study.env.values["aggregate_slots"] == 40
    assert any(note.startswith("aggregate_slots") for note in draft.notes)


@pytest.mark.parametrize(
    ("flags", "clips"),
    [
        ("--RHO_CLIP=0 --C_CLIP=1", (None, None)),
        ("--RHO_CLIP=-1 --C_CLIP=-1", (None, None)),
        ("--RHO_CLIP=1.5 --C_CLIP=1", (1.5, 1.0)),
        ("--RHO_CLIP=1.5", (None, None)),
    ],
)
def test_clips_are_off_at_0_and_below(tmp_path, flags, clips):
    _, study = imported(tmp_path, f"--env_type=rmsa {flags}")
    assert (study.fixed.get("rho_clip"), study.fixed.get("c_clip")) == clips


def test_use_rnn_flag_trains_mlp_with_a_note(tmp_path):
    draft, study = imported(tmp_path, "--env_type=rmsa --USE_RNN")
    assert "network" not in study.fixed and any("USE_RNN" in note for note in draft.notes)
    _, study = imported(tmp_path, "--env_type=rmsa --USE_RNN", network="lstm")
    assert study.fixed["network"] == "lstm"


def test_misspelled_xlron_flag_needs_without_unknown_flag_does_not(tmp_path):
    draft, study = imported(tmp_path, f"{COMMAND.strip()} --LRR=1e-3 --ZZTOP=2", without="LRR")
    assert {"LRR", "ZZTOP"} <= {item.split(":")[0] for item in draft.left_out}
    assert study.fixed["learning_rate"] == 5e-4


# ------------------------------------------------------- what differs, and what must not


def test_bitrate_reward_selects_bitrate_blocking_metric(tmp_path):
    draft, _ = imported(tmp_path, "--env_type=rmsa --reward_type=bitrate")
    metric = {"name": "eval/bitrate_blocking_probability", "goal": "minimize"}
    assert draft.rest["metric"] == metric and draft.env["reward"] == "bitrate"
    draft, _ = imported(tmp_path, "--env_type=rmsa --reward_type=service")
    assert draft.rest["metric"]["name"] == "eval/service_blocking_probability"


@pytest.mark.parametrize(
    ("flags", "initial"),
    [
        ("--REWARD_CENTERING --INITIAL_AVERAGE_REWARD=0.0", 0.0),
        ("--REWARD_CENTERING", 0.0),
        ("--REWARD_CENTERING --INITIAL_AVERAGE_REWARD=-0.2", -0.2),
        ("", None),  # nothing is centred
    ],
)
def test_average_reward_initial_value_is_imported(tmp_path, flags, initial):
    _, study = imported(tmp_path, f"--env_type=rmsa {flags}")
    assert study.default()["average_reward_initial"] == initial


@pytest.mark.parametrize(
    ("flags", "every"),
    [
        ("--SAVE_MODEL --TOTAL_TIMESTEPS=20480 --NUM_ENVS=8 --ROLLOUT_LENGTH=32", 20_480),
        ("--SAVE_MODEL --TOTAL_TIMESTEPS=99999", 99_999),
        ("--SAVE_MODEL --TOTAL_TIMESTEPS=300000", 100_000),
        ("--EVAL_DURING_TRAINING --TOTAL_TIMESTEPS=50000", 50_000),
        ("--EVAL_DURING_TRAINING --EVAL_FREQUENCY=2 --TOTAL_TIMESTEPS=250000", 200_000),
        ("--EVAL_DURING_TRAINING --EVAL_FREQUENCY=4 --SAVE_MODEL --TOTAL_TIMESTEPS=50000", None),
        ("--SAVE_MODEL --TOTAL_TIMESTEPS=4000 --NUM_ENVS=100 --ROLLOUT_LENGTH=100", None),
    ],
)
def test_eval_interval_is_at_most_the_whole_run(tmp_path, flags, every):
    draft, study = imported(tmp_path, f"--env_type=rmsa {flags}")
    assert draft.rest["evaluation"].get("every") == every
    assert ("checkpoint" in draft.rest) == ("SAVE_MODEL" in flags)
    assert not check(study).mistakes


def test_notes_list_rows_on_which_losses_differ(tmp_path):
    draft, _ = imported(tmp_path, "--env_type=rmsa --VALID_MASS_LOSS_COEF=0.02")
    notes = "\n".join(draft.notes)
    assert "VALID_MASS_LOSS_COEF: hpo averages over rows with a valid action" in notes
    assert "uses the policy of a minibatch's first row for all rows" in notes
    draft, _ = imported(tmp_path, "--env_type=rmsa", system="xlron_july_2026")
    assert "first row for all rows" in "\n".join(draft.notes)
    assert "VALID_MASS_LOSS_COEF" not in "\n".join(draft.notes)


def test_space_leaves_out_an_annealed_lambda(tmp_path, capsys):
    command = (
        "python -m xlron.train.train --env_type=rmsa --topology_name=nsfnet_deeprmsa_directed"
    )
    assert main(["import", "xlron", command, "--space"]) == 0
    out, _ = capsys.readouterr()
    space = plain(read_text(out, "study.yaml"))["space"]
    assert "gae_lambda" not in space and "gamma" in space
    assert main(["import", "xlron", f"{command} --GAE_LAMBDA=0.9", "--space"]) == 0
    out, _ = capsys.readouterr()
    assert plain(read_text(out, "study.yaml"))["space"]["gae_lambda"]["default"] == 0.9
