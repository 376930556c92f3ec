"""Versions of JaxDEM, Lerax and XLRON: told by names, chosen by a flag, and always said."""

import pytest

from helpers.import_command import importer
from hpo.cli import main
from hpo.errors import ConfigError
from hpo.foreign_names.tables import SYSTEMS, system, version_named, version_told

DECAY = "learning_rate_decay_exponent=1.5, learning_rate_decay_min_fraction=0.05"


@pytest.fixture
def imported(tmp_path, capsys):
    return importer(tmp_path, capsys)


def create(arguments, more=""):
    return f"tr = PPOTrainer.Create(env, model, {arguments})\n{more}"


# -------------------------------------------------------------------------------- JaxDEM

SEPTEMBER = {
    "optimiser": "muon",
    "learning_rate": 0.02,
    "max_grad_norm": 0.4,
    "ent_coef": 0.03,
    "rho_clip": 0.5,
    "c_clip": 0.5,
    "priority_alpha": 0.4,
    "priority_beta0": 0.1,
    "num_envs": 2048,
    "rollout_length": 64,
    "hidden_sizes": [32, 32],
    "lr_schedule": "cosine",
    "schedule_on_gradient_steps": True,
    "lr_decay_exponent": 2.0,
    "lr_end_fraction": 0.01,
    "lr_schedule_multiplier": 0.1,
    "value_clip_eps": "same",
    "shared_encoder": True,
    "priority_over": "segments",
    "policy_gain": 1.0,
    "value_gain": 0.01,
    "update_epochs": 1,
    "num_minibatches": 10,
    "minibatch_size": 204 * 64,  # segments that 10 parts of 2048 have
}
"""What `PPOTrainer.Create(env, model)` of September 2025 trains with, but for our defaults."""


@pytest.mark.parametrize("flag", ["2025.09", "2025-9", "v2025.09"])
def test_jaxdem_of_september_2025_has_its_own_defaults(imported, flag):
    data, told = imported("jaxdem", create(""), "--env=navigators", "--version", flag)
    assert "Read as JaxDEM, of September 2025" in told and data["env_steps"] == 1000 * 2048 * 64
    fixed = data["fixed"]
    assert {name: fixed.get(name, "unsaid") for name in SEPTEMBER} == SEPTEMBER
    assert not {"vf_coef", "adam_eps", "gamma"} & set(fixed)  # 0.5, 1e-5 and 0.99 are ours, too


def test_jaxdem_of_october_2025_differs_in_two_defaults(imported):
    data, told = imported("jaxdem", create(""), "--env=navigators", "--version", "2025.10")
    assert "Read as JaxDEM, from 23 October to 4 November 2025" in told
    october = {**SEPTEMBER, "ent_coef": 0.02, "minibatch_size": 256 * 64}  # 256 segments
    assert {name: data["fixed"].get(name, "unsaid") for name in october} == october
    assert data["fixed"]["num_minibatches"] == 10
    few = create("num_envs=64")
    data, told = imported("jaxdem", few, "--env=navigators", "--version=2025.10")
    assert data is None and "minibatch_size is 256 segments; JaxDEM allows 1 to 64" in told


def test_names_only_in_october_select_that_version(imported):
    text = create(f"{DECAY}, stop_at_epoch=900")
    _, told = imported("jaxdem", text, "--env=navigators", "--without", "stop_at_epoch")
    assert "Read as JaxDEM, from 23 October to 4 November 2025" in told
    assert "only this version has learning_rate_decay_exponent, stop_at_epoch" in told
    _, told = imported("jaxdem", create("stop_at_epoch=900"), "--env=navigators")
    assert "stop_at_epoch" in told and "2025.10" not in told


@pytest.mark.parametrize(
    ("text", "because"),
    [
        (create(f"num_envs=64, {DECAY}"), "learning_rate_decay_exponent"),
        (
            create("num_envs=64", "tr, _ = PPOTrainer.train(tr)\n"),
            "a `train` that returns two values",
        ),
        (
            create("num_envs=64, num_steps_epoch=32, minibatch_size=16"),
            "minibatch_size (16) is below",
        ),
    ],
)
def test_names_only_in_september_select_that_version(imported, text, because):
    data, told = imported("jaxdem", text, "--env=navigators")
    assert "Read as JaxDEM, of September 2025" in told and because in told
    assert "version=2025.11 (since 6 November 2025" in told
    assert data["fixed"]["max_grad_norm"] == 0.4


def test_assumed_version_is_reported_when_names_do_not_decide(imported, tmp_path, capsys):
    data, told = imported("jaxdem", create("num_envs=64"), "--env=navigators")
    assert "version: JaxDEM since 6 November 2025" in told and "version=2025.09" in told
    assert data["fixed"]["max_grad_norm"] == 1.5
    main(["import", "jaxdem", str(tmp_path / "train.py"), "--env=navigators"])
    screen = capsys.readouterr().err
    assert "version: JaxDEM since 6 November 2025" in screen
    assert "for another version add: -- --version 2025.09" in screen
    data, told = imported("jaxdem", create("num_envs=64, drip_decay=0.0"), "--env=navigators")
    assert (
        "version: JaxDEM since 6 November 2025, as of June 2026, because only this version has "
        "drip_" in told
    )


def test_september_sweep_is_read_with_its_version(imported):
    text = (
        "program: train.py\nmethod: random\nparameters:\n  ppo_clip_eps: {values: [0.1, 0.2]}\n"
        "  learning_rate_decay_exponent: {min: 1.0, max: 3.0}\n"
        "  num_envs: {value: 64}\n  importance_sampling_alpha: {min: 0.0, max: 1.0}\n"
    )
    data, told = imported("wandb", text, "--env=navigators", name="s.yaml")
    assert "Read as JaxDEM, of September 2025" in told
    assert data["space"]["lr_decay_exponent"] == {
        "min": 1.0,
        "max": 3.0,
        "distribution": "uniform",
        "default": 2.0,
    }
    assert data["fixed"]["ent_coef"] == 0.03 and data["fixed"]["minibatch_size"] == 6 * 64
    data, told = imported("wandb", text, "--env=navigators", "--version=2025.11", name="s.yaml")
    assert "Read as JaxDEM, since 6 November 2025" in told and data["fixed"]["ent_coef"] == 0.001


def test_system_flag_leaves_version_detection_to_file_names(imported):
    text = (
        "parameters:\n  learning_rate_decay_exponent: {min: 1.0, max: 3.0}\n"
        "  gamma: {value: 0.9}\n"
    )
    flags = ("--env=navigators", "--system=jaxdem")
    _, told = imported("wandb", text, *flags, name="s.yaml")
    assert "Read as JaxDEM, of September 2025" in told and "version=2025.11 (since" in told
    _, told = imported("wandb", text, *flags, "--version=2025.11", name="s.yaml")
    assert "Read as JaxDEM, since 6 November 2025" in told
    text = text.replace("learning_rate_decay_exponent", "ppo_clip_eps")
    _, told = imported("wandb", text, *flags, name="s.yaml")
    assert "version: JaxDEM since 6 November 2025" in told and "version=2025.09" in told


def test_jaxdem_september_minibatch_size_counts_segments(imported):
    """A size of 512 was a quarter of 2048 environments, not 512 of their 131,072 env steps."""
    text = create(f"{DECAY}, num_envs=2048, num_minibatches=10, minibatch_size=512")
    data, told = imported("jaxdem", text, "--env=navigators")
    fixed = data["fixed"]
    assert (fixed["num_minibatches"], fixed["minibatch_size"]) == (10, 512 * 64)
    assert "minibatch_size: 512 segments of 64 env steps" in told
    text = create(
        "num_envs=64, num_steps_epoch=32, num_minibatches=8, minibatch_size=16, "
        "importance_sampling_alpha=0.0"
    )
    data, told = imported("jaxdem", text, "--env=navigators")
    assert "8 minibatches of 16 segments are 2 passes over the rollout of 64 segments" in told
    assert "with 4 minibatches per pass. JaxDEM draws" in told
    assert data["fixed"]["num_minibatches"] == 4 and data["fixed"]["update_epochs"] == 2
    text = text.replace("size=16", "size=12")
    _, told = imported("jaxdem", text, "--env=navigators")
    assert "8 minibatches of 12 segments are 1.5 passes over the rollout of 64 segments" in told
    flags = told.split("equal minibatches (-- ")[1].rstrip(")\n").split()
    data, _ = imported("jaxdem", text, "--env=navigators", *flags)
    assert data["fixed"]["num_minibatches"] == 5 and data["fixed"]["update_epochs"] == 2


@pytest.mark.parametrize(("size", "parts"), [(64, 4), (96, 4), (1056, 4)])
def test_suggested_minibatch_flags_are_accepted(imported, size, parts):
    """Whole segments are at most as many as environments, however small a minibatch is."""
    text = create(
        f"num_envs=32, num_steps_epoch=32, num_minibatches={parts}, "
        f"minibatch_size={size}, importance_sampling_alpha=0.0, drip_decay=0.0"
    )
    data, told = imported("jaxdem", text, "--env=navigators")
    if data is None:
        flags = told.split("(-- ")[1].rstrip(")\n").split()
        data, told = imported("jaxdem", text, "--env=navigators", *flags)
    assert data is not None and data["fixed"].get("num_minibatches", 4) <= 32


def test_unsupported_jaxdem_minibatch_size_suggests_without(imported):
    text = create("num_envs=64, num_steps_epoch=32, num_minibatches=4, minibatch_size=16")
    _, told = imported("jaxdem", text, "--env=navigators", "--version=2025.11")
    assert "minibatch_size is 16 env steps; JaxDEM allows 32 to 2048" in told
    data, _ = imported(
        "jaxdem", text, "--env=navigators", "--version=2025.11", "--without", "minibatch_size"
    )
    assert data["fixed"]["num_minibatches"] == 4 and "minibatch_size" not in data["fixed"]


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [
        ("clip_actions=True, clip_range=(-0.5, 0.75)", -0.5, 0.75),
        ("clip_actions=True", -0.2, 0.2),
        ("clip_actions=False, clip_range=(-1, 1)", None, None),
    ],
)
def test_jaxdem_clipped_actions_become_action_bounds(imported, given, low, high):
    data, told = imported("jaxdem", create(f"num_envs=64, {given}"), "--env=navigators")
    assert (data["fixed"].get("action_low"), data["fixed"].get("action_high")) == (low, high)
    if low is not None:
        assert f"clip_range {low:g} to {high:g} becomes action_low and action_high" in told


def test_unreadable_clip_range_suggests_action_bounds(imported):
    text = create("num_envs=64, clip_actions=True, clip_range=bounds()")
    _, told = imported("jaxdem", text, "--env=navigators")
    assert "--without clip_actions --action_low LOW --action_high HIGH" in told
    flags = ("--without", "clip_actions", "--action_low=-1", "--action_high=1")
    data, _ = imported("jaxdem", text, "--env=navigators", *flags)
    assert data["fixed"]["action_low"] == -1.0 and data["fixed"]["action_high"] == 1.0


LSTM = (
    'model = rl.Model.create("LSTMActorCritic", key=nnx.Rngs(k), observation_space_size=6,\n'
    "  action_space_size=2, lstm_features=96%s)\n"
)


@pytest.mark.parametrize(
    ("version", "widths", "initialisation"),
    [("2025.09", [64, 64], "lecun"), ("2025.11", [64], None)],
)
def test_jaxdem_models_are_read_with_sizes_of_the_version(
    imported, version, widths, initialisation
):
    flags = ("--env=navigators", "--version", version)
    data, _ = imported("jaxdem", LSTM % "" + create("num_envs=64"), *flags)
    fixed = data["fixed"]
    assert (fixed["network"], fixed["recurrent_size"]) == ("lstm", 96)
    assert fixed.get("hidden_sizes", [64, 64]) == widths
    assert fixed.get("initialisation") == initialisation
    data, _ = imported("jaxdem", LSTM % ", activation=nnx.relu" + create("num_envs=64"), *flags)
    assert data["fixed"]["activation"] == "relu"
    text = (
        'm = rl.Model.create("ActorCritic", actor_architecture=[16],\n'
        "  critic_architecture=[16])\n" + create("num_envs=64")
    )
    data, _ = imported("jaxdem", text, *flags)
    assert data["fixed"]["hidden_sizes"] == [16] and not data["fixed"].get("shared_encoder")
    _, told = imported("jaxdem", text.replace(",\n  critic_architecture=[16]", ""), *flags)
    assert "actor_architecture is [16] and the other tower is" in told
    _, told = imported("jaxdem", 'm = Model.create("MinGRUActorCritic")\n' + create(""), *flags)
    assert "minGRU layers are not available" in told


# --------------------------------------------------------------------------------- Lerax


@pytest.mark.parametrize(
    ("text", "flags", "version", "steps", "epochs", "parts"),
    [
        ("algo = PPO(gamma=0.9)\n", (), "0.0.6", 2048, 10, 32),
        ("algo = PPO(gamma=0.9)\n", ("--version=0.0.5",), "up to 0.0.5", 512, 16, 32),
        ("algo = PPO(gamma=0.9)\n", ("--version=0.0.4",), "up to 0.0.5", 512, 16, 32),
        ("algo = PPO(gamma=0.9)\n", ("--system=lerax_0_0_5",), "up to 0.0.5", 512, 16, 32),
        ("algo = PPO(num_envs=2, num_batches=8)\n", ("--version=0.0.2",), "0.0.2", 512, 16, 16),
        ("algo = PPO(state_magnitude_coefficient=0.0)\n", (), "up to 0.0.5", 512, 16, 32),
        (
            "from lerax.algorithm import PPO, OnPolicyState\nalgo = PPO()\n",
            (),
            "up to 0.0.5",
            512,
            16,
            32,
        ),
        ("from lerax.callback import LoggingCallback\nalgo = PPO()\n", (), "0.0.6", 2048, 10, 32),
    ],
)
def test_lerax_version_is_selected_by_flag_or_names(
    imported, text, flags, version, steps, epochs, parts
):
    data, told = imported("lerax", text, "--env=CartPole-v1", *flags)
    assert f"Read as Lerax, {version}" in told
    fixed = data["fixed"]
    assert (fixed["rollout_length"], fixed["update_epochs"]) == (steps, epochs)
    assert fixed["num_minibatches"] == parts
    assert fixed.get("hidden_sizes", [64, 64]) == [64, 64] and fixed["activation"] == "relu"
    assert ("version: " in told) == (not flags)


def test_a_neural_ode_is_refused(imported):
    text = "policy = NCDEActorCriticPolicy(env=env, key=k)\nalgo = PPO()\n"
    _, told = imported("lerax", text, "--env=CartPole-v1")
    assert "neural differential equation" in told


# ---------------------------------------------------------------------------- the tables


def test_every_version_has_a_flag_and_distinct_names():
    tagged = [one for one in SYSTEMS.values() if one.tag]
    assert {one.family for one in tagged} == {"jaxdem", "lerax", "xlron"}
    for one in tagged:
        for tag in one.tag.split():
            assert version_named(system(one.family), tag) is one
    names = [name for one in tagged for name in one.only]
    assert len(names) == len(set(names))
    for one in tagged:
        for name in one.only:
            assert version_told(system(one.family), [name]) == (one, (name,))


def test_unknown_versions_name_the_known_ones():
    with pytest.raises(ConfigError, match=r"allowed for JaxDEM: 2025\.09 \(of Sept.*2025\.11"):
        version_named(system("jaxdem"), "1.0")
    with pytest.raises(ConfigError, match="no versions; remove it"):
        version_named(system("sb3"), "1.0")


def test_version_flag_selects_xlron_version(imported):
    text = "--env_type=rmsa --topology_name=nsfnet_deeprmsa_directed --TOTAL_TIMESTEPS=1e6\n"
    _, told = imported("xlron", text, name="flags.txt")
    assert "XLRON, 1.1.0" in told and "version=2026.07" in told
    _, told = imported("xlron", text, "--version", "2026.07", name="flags.txt")
    assert "Read as XLRON after 1.1.0, with its fixes of 11 July 2026" in told
