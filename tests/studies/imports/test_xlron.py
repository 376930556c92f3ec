import pytest

from hpo.errors import ConfigError
from hpo.studies.imports.xlron import read_flags
from hpo.studies.load import loads

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


def test_flags_and_their_defaults_there(tmp_path):
    draft, study = imported(tmp_path, COMMAND)
    assert study.env.id == "rmsa" and study.env_steps == 100_000
    env = study.env.values
    assert env["topology"] == "nsfnet_deeprmsa" and env["directed"] is True
    assert env["bitrates"] == (25.0, 50.0) and env["load"] == 200.0 and env["slots"] == 100
    assert study.fixed["hidden_sizes"] == (32, 32) and study.fixed["optimiser"] == "adamw"
    assert study.fixed["gamma"] == 0.999 and study.fixed["lr_schedule"] == "cosine"
    assert study.fixed["gae_lambda_initial"] == 0.9 and study.fixed["gae_lambda_final"] == 0.98
    assert any(note.startswith("GAMMA") for note in draft.notes)
    assert {item.split(":")[0] for item in draft.left_out} == {"WANDB", "VISIBLE_DEVICES"}


def test_flags_after_the_dashes_override(tmp_path):
    _, study = imported(tmp_path, COMMAND, LR="2e-4", load="300")
    assert study.fixed["learning_rate"] == 2e-4 and study.env.values["load"] == 300.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("--EVAL_HEURISTIC --env_type=rmsa", "evaluates and trains nothing"),
        ("# nothing", "no flags"),
        ("--env_type=rmsa --k='5", "split into words"),
        ("--env_type=rmsa --topology_name=nowhere", "nowhere"),
        ("--env_type=rmsa --flagfile=other.txt", "another file"),
    ],
)
def test_what_cannot_be_taken_is_refused_with_a_reason(tmp_path, text, reason):
    with pytest.raises(ConfigError, match=reason):
        imported(tmp_path, text)


def test_episodes_have_no_warm_up(tmp_path):
    _, study = imported(tmp_path, "--env_type=deeprmsa --link_resources=100 --max_requests=1e3")
    assert study.env.values["continuous"] is False and study.env.values["warmup_requests"] == 0
    assert study.env.values["max_requests"] == 1000
