"""What is imported trains with the values that the source trains with, written down by hand."""

import pytest

from helpers import imported_trains as trains
from hpo.core.envs.optical.optical_settings import OpticalSettings
from hpo.importers.readers import read_flags
from hpo.importers.wandb_sweeps import read_sweep
from hpo.knobs import KNOBS, complete, matters
from hpo.studies.load import loads
from hpo.studies.yaml_io import plain, read_text

_BY_NETWORK = ("policy_gain", "value_gain")
"""Of heads, which are built otherwise where the network is no mlp: said in a note."""
_ONLY_WITH = {
    "lr_warmup_start_fraction": ("lr_schedule", "warmup_cosine"),
    "lr_warmup_fraction": ("lr_schedule", "warmup_cosine"),
    "lr_warmup_multiplier": ("lr_schedule", "warmup_cosine"),
    "lr_end_fraction": ("lr_schedule", "linear", "cosine", "warmup_cosine"),
    "ent_end_fraction": ("ent_schedule", "linear", "cosine"),
    "ent_schedule_multiplier": ("ent_schedule", "linear", "cosine"),
    "valid_mass_end_fraction": ("valid_mass_schedule", "linear", "cosine"),
    "valid_mass_schedule_multiplier": ("valid_mass_schedule", "linear", "cosine"),
    "clip_eps_end_fraction": ("clip_eps_schedule", "linear", "cosine"),
    "average_reward_initial": ("reward_centering", True),
    "average_reward_step": ("reward_centering", True),
    "priority_beta0": ("priority_alpha", 0.6),
    "anneal_priority_beta": ("priority_alpha", 0.6),
    "priority_over": ("priority_alpha", 0.6),
    "sgd_momentum": ("optimiser", "sgd"),
    "muon_momentum": ("optimiser", "muon"),
    "observation_clip": ("normalise_observations", True),
    "gae_lambda": ("gae_lambda_initial", None),
    "transformer_dropout": ("transformer_enable_dropout", True),
    "transformer_attention_dropout": ("transformer_enable_dropout", True),
    "recurrent_size": ("network", "lstm", "gru"),
    "log_std_init": ("distribution", "gaussian"),
    "log_std_min": ("distribution", "gaussian"),
    "log_std_max": ("distribution", "gaussian"),
    "minibatch_size": ("num_minibatches", None),
    **{
        name: ("separate_vf_optimiser", True)
        for name in KNOBS
        if name.startswith("vf_") and name not in ("vf_coef", "vf_gae_lambda")
    },
}
_NO_PART_OF_TRAINING = (
    "gradient_accumulation", "matmul_precision", "distribution", "action_low", "action_high",
    "num_layers", "hidden_size", "link_critic_sees", "shadow_weight",
)  # fmt: skip


def decides(config):
    """Yield the knobs that make a difference to a configuration."""
    for name in KNOBS:
        switch = _ONLY_WITH.get(name)
        if name in _NO_PART_OF_TRAINING or not matters(name, config["network"]):
            continue
        if config["network"] != "mlp" and name in (*_BY_NETWORK, "hidden_sizes"):
            continue
        if switch is None or config[switch[0]] in switch[1:]:
            yield name


def differing(expected, config):
    """Return name -> (theirs, ours) of all knobs that count."""
    both = {name: (expected.get(name, "unwritten"), config[name]) for name in decides(config)}
    return {name: pair for name, pair in both.items() if not same(*pair)}


def same(theirs, ours):
    if isinstance(theirs, float) and isinstance(ours, float):
        return theirs == pytest.approx(ours, rel=1e-9)
    return theirs == ours


def environment(study):
    values = {"id": study.env.id, **study.env.values}
    return OpticalSettings.from_mapping(values)


@pytest.mark.parametrize("name", trains.COMMANDS)
def test_imported_command_trains_with_source_values(name, tmp_path):
    text, expected, env, steps = trains.COMMANDS[name]
    (tmp_path / "command.sh").write_text(text)
    study = loads(read_flags(tmp_path / "command.sh", {}).text())
    assert differing(expected, complete(study.fixed)) == {}
    settings = environment(study)
    assert {key: getattr(settings, key) for key in env} == env
    assert study.env_steps == steps and study.seed == 42 and not study.space.parameters


def test_imported_sweep_trains_with_source_values(tmp_path):
    (tmp_path / "sweep.yaml").write_text(trains.SWEEP)
    written = read_sweep(tmp_path / "sweep.yaml", {}).text()
    data, study = plain(read_text(written, "study.yaml")), loads(written)
    assert data["space"] == trains.SWEEP_SPACE
    config = complete({**study.fixed, "weight_decay": 0.01, "rho_clip": 1.0, "c_clip": 1.0})
    searched = set(trains.SWEEP_SPACE)
    found = differing(trains.SWEEP_TRAINS, config)
    assert {name: both for name, both in found.items() if name not in searched} == {}
    settings = environment(study)
    env = {key: value for key, value in trains.SWEEP_ENV.items() if key != "aggregate_slots"}
    assert {key: getattr(settings, key) for key in env} == env
    assert study.env_steps == 60_000_000 and data["search"] == {"method": "tpe"}
    assert data["loggers"] == [{"type": "wandb", "every": 1, "project": "SWEEP"}]
    assert data["metric"]["name"] == "eval/service_blocking_probability"


def test_sweep_without_system_uses_hpo_meaning(tmp_path):
    (tmp_path / "sweep.yaml").write_text(trains.PLAIN_SWEEP)
    written = read_sweep(tmp_path / "sweep.yaml", {}).text()
    data = plain(read_text(written, "study.yaml"))
    assert {key: data[key] for key in trains.PLAIN_STUDY} == trains.PLAIN_STUDY


def test_training_reference_has_ten_files():
    assert len(trains.COMMANDS) + 2 == 10
