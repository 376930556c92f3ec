"""Optimisers, schedules and other objects in Python files: read, listed or refused, never lost."""

import math
import re

import pytest
import yaml

from helpers.import_command import importer
from hpo.cli import main
from hpo.foreign_names.name_mapping import NoCounterpart
from hpo.foreign_names.optax_calls import OptaxSchedule, optimiser_settings, schedule_of
from hpo.foreign_names.plain_values import Called, Unread
from hpo.foreign_names.tables import system
from hpo.importers.plain_python import OBJECTS


@pytest.fixture
def imported(tmp_path, capsys):
    return importer(tmp_path, capsys)


def unread(name, *args, **words):
    value = Unread(name)
    value.call = Called(name, args or None, words)
    return value


# ----------------------------------------------------------------------------- optimisers


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("optax.adam", {"optimiser": "adam"}),
        ("optax.contrib.muon", {"optimiser": "muon"}),
        ("optax.adamw", {"optimiser": "adamw", "weight_decay": 1e-4}),
        ("optax.sgd", {"optimiser": "sgd", "sgd_momentum": 0.0}),
        (
            "partial(optax.adam, b1=0.8, b2=0.95)",
            {"optimiser": "adam", "adam_beta1": 0.8, "adam_beta2": 0.95},
        ),
        (
            "functools.partial(optax.adamw, weight_decay=0.02)",
            {"optimiser": "adamw", "weight_decay": 0.02},
        ),
        (
            "partial(optax.contrib.muon, beta=0.9, nesterov=True)",
            {"optimiser": "muon", "muon_momentum": 0.9},
        ),
        ("partial(optax.sgd, momentum=0.7)", {"optimiser": "sgd", "sgd_momentum": 0.7}),
        ("chosen", {"optimiser": "adam", "adam_beta1": 0.85}),
    ],
)
def test_an_optimiser_object_is_read(imported, written, expected):
    text = (
        "chosen = partial(optax.adam, b1=0.85)\n"
        f"tr = PPOTrainer.Create(env, model, num_envs=64, optimizer={written})\n"
    )
    data, told = imported("jaxdem", text, "--env=navigators")
    fixed = data["fixed"]
    ours = {"optimiser": "adam", "adam_beta1": 0.9, "adam_beta2": 0.999, "weight_decay": 0.0}
    assert {name: fixed.get(name, ours.get(name)) for name in expected} == expected
    assert "optimizer" in told.split("# Defaults of JaxDEM")[0]


@pytest.mark.parametrize(
    ("written", "because"),
    [
        ("optax.lion", "unknown optimiser lion; known: adam, adamw, muon, sgd"),
        ("optax.chain(optax.clip(1.0), optax.adam(1e-3))", "unknown optimiser chain"),
        ("partial(optax.sgd, nesterov=True)", "nesterov=True of sgd has no counterpart"),
        ("partial(optax.adam, b1=rate())", "b1='rate()' of adam has no counterpart"),
        ("lambda lr, eps: optax.adam(lr)", "unknown optimiser"),
        ("make_optimizer", "unknown optimiser make_optimizer"),
    ],
)
def test_an_optimiser_that_cannot_be_read_is_refused_with_its_line(imported, written, because):
    text = f"tr = PPOTrainer.Create(env, model,\n  num_envs=64, optimizer={written})\n"
    data, told = imported("jaxdem", text, "--env=navigators")
    assert data is None and "train.py:2: optimizer is " in told and because in told
    assert "--without optimizer" in told
    data, told = imported("jaxdem", text, "--env=navigators", "--without", "optimizer")
    assert data["fixed"]["optimiser"] == "muon"
    data, _ = imported("jaxdem", text, "--env=navigators", "--optimizer", "adam")
    assert data["fixed"].get("optimiser", "adam") == "adam"


def test_positional_optimiser_arguments_after_rate_are_refused():
    assert optimiser_settings(unread("adam", 1e-3)) == {"optimiser": "adam"}
    with pytest.raises(NoCounterpart, match="pass all arguments of adam"):
        optimiser_settings(unread("adam", 1e-3, 0.8))


# -------------------------------------------------------------------------- other objects

CALLS = {
    "rejax": "PPO.create(num_envs=8, %s)",
    "lerax": "PPO(num_envs=8, %s)",
    "jaxdem": "PPOTrainer.Create(num_envs=8, %s)",
    "arlbench": "PPO({'clip_eps': 0.1}, n_envs=8, %s)",
    "purejaxrl": "make_train({'LR': 1e-3}, %s)",
    "torch_ppo": "PPOAgent(cfg, %s)\ncfg = PPOConfig(num_envs=8)",
    "sb3": "PPO('MlpPolicy', n_steps=32, %s)",
}


@pytest.mark.parametrize("name", sorted(OBJECTS))
@pytest.mark.parametrize("kind", CALLS)
def test_unread_objects_never_fall_back_to_defaults_silently(imported, kind, name):
    """Its value is read, it is in a list of the head, or the import is refused because of it."""
    text = CALLS[kind] % f"{name}=made_elsewhere()" + "\n"
    data, told = imported(kind, text, "--env=CartPole-v1")
    if data is None:
        assert re.search(rf"train.py:1: {name} |{name} \(", told)
    elif name != "env":  # which the flag names
        head = told.split("# Defaults of")[0]
        assert re.search(rf"^#   {name}: ", head, re.MULTILINE)


@pytest.mark.parametrize("kind", CALLS)
def test_environment_made_elsewhere_must_be_named(imported, kind):
    name = "env_factory" if kind == "torch_ppo" else "env"
    data, told = imported(kind, CALLS[kind] % f"{name}=made_elsewhere()" + "\n")
    if kind == "purejaxrl":  # whose make_train has no such argument
        assert "#   env: " in told or data is None
        return
    assert data is None and ("name the environment" in told or "no environment is named" in told)
    assert "(-- --env" in told or "(--env" in told
    data, _ = imported(kind, CALLS[kind] % f"{name}=made_elsewhere()" + "\n", "--env=Acrobot-v1")
    assert data["env"] == "Acrobot-v1"


def test_environment_made_in_file_is_read(imported):
    text = (
        "env, env_params = gymnax.make('Acrobot-v1')\n"
        "algo = PPO.create(env=env, env_params=env_params, num_envs=8)\n"
    )
    data, told = imported("rejax", text)
    assert data["env"] == "Acrobot-v1"
    assert "env_params: an object; give its keys one by one" in told


# ------------------------------------------------------------------------------ schedules

LERAX = "algo = PPO(num_envs=8, num_steps=256, num_epochs=4, num_batches=16, learning_rate=%s)\n"
STEPS = 4096  # of the optimiser in 2^17 env steps: 64 updates x 4 epochs x 16 batches


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            "optax.linear_schedule(1e-3, 0.0, 10_000)",
            {
                "learning_rate": 1e-3,
                "lr_schedule": "linear",
                "lr_end_fraction": 0.0,
                "lr_schedule_multiplier": 10_000 / STEPS,
            },
        ),
        (
            "optax.schedules.linear_schedule(init_value=2e-3, end_value=5e-4, transition_steps=N)",
            {
                "learning_rate": 2e-3,
                "lr_schedule": "linear",
                "lr_end_fraction": 0.25,
                "lr_schedule_multiplier": 0.5,
            },
        ),
        (
            "optax.polynomial_schedule(1e-3, 1e-4, 1, 4 * N)",
            {
                "learning_rate": 1e-3,
                "lr_schedule": "linear",
                "lr_end_fraction": 0.1,
                "lr_schedule_multiplier": 2.0,
            },
        ),
        (
            "optax.cosine_decay_schedule(1e-3, N, alpha=0.05, exponent=2.0)",
            {
                "learning_rate": 1e-3,
                "lr_schedule": "cosine",
                "lr_end_fraction": 0.05,
                "lr_decay_exponent": 2.0,
                "lr_schedule_multiplier": 0.5,
            },
        ),
        (
            "optax.warmup_cosine_decay_schedule(0.0, 3e-3, 100, 2000, 1e-4)",
            {
                "learning_rate": 3e-3,
                "lr_schedule": "warmup_cosine",
                "lr_end_fraction": 1 / 30,
                "lr_warmup_fraction": 0.05,
                "lr_warmup_start_fraction": 0.0,
                "lr_schedule_multiplier": 2000 / STEPS,
            },
        ),
        (
            "optax.linear_schedule(1e-4, 1e-3, 1024)",
            {
                "learning_rate": 1e-3,
                "lr_schedule": "warmup_cosine",
                "lr_end_fraction": 1.0,
                "lr_warmup_fraction": 0.25,
                "lr_warmup_start_fraction": 0.1,
            },
        ),
        ("optax.constant_schedule(5e-4)", {"learning_rate": 5e-4, "lr_schedule": "constant"}),
    ],
)
@pytest.mark.parametrize("through", ["directly", "by a variable"])
def test_optax_schedule_becomes_schedule_settings(imported, written, expected, through):
    lines = "N = 2048\n" + (f"lr = {written}\n" if through == "by a variable" else "")
    call = LERAX % ("lr" if through == "by a variable" else written)
    learn = "algo.learn(env, policy, total_timesteps=2**17, key=k)\n"
    data, told = imported("lerax", lines + call + learn, "--env=CartPole-v1")
    ours = {"lr_schedule": "constant", "lr_schedule_multiplier": 1.0}
    fixed = data["fixed"]
    for name, value in expected.items():
        found = fixed.get(name, ours.get(name))
        same = found == value if isinstance(value, str) else math.isclose(found, value)
        assert same, (name, found, value)
    assert fixed.get("schedule_on_gradient_steps", False) == ("constant" not in expected.values())
    assert "(lr_schedule constant)" not in told


@pytest.mark.parametrize(
    ("kind", "text", "settings"),
    [
        (
            "purejaxrl",
            "make_train({'LR': %s, 'NUM_ENVS': 4, 'NUM_STEPS': 128})\n",
            {"lr_schedule": "linear", "lr_end_fraction": 0.5},
        ),
        ("rejax", "PPO.create(learning_rate=%s, num_envs=8)\n", {"lr_schedule": "linear"}),
        ("arlbench", "PPO({'learning_rate': %s}, n_envs=8)\n", {"lr_schedule": "linear"}),
    ],
)
def test_optax_schedule_is_read_for_every_jax_trainer(imported, kind, text, settings):
    written = text % "optax.linear_schedule(1e-3, 5e-4, 2000)"
    data, told = imported(kind, written, "--env=CartPole-v1")
    fixed = data["fixed"]
    assert fixed["learning_rate"] == 1e-3 or "learning_rate" not in fixed  # it is our default
    assert {name: fixed[name] for name in settings} == settings
    assert "lr_schedule: linear, counted in optimiser steps" in told


@pytest.mark.parametrize(
    ("written", "because"),
    [
        ("optax.exponential_decay(1e-3, 100, 0.9)", "exponential_decay has no counterpart"),
        ("optax.join_schedules([a, b], [100])", "join_schedules has no counterpart"),
        ("optax.linear_schedule(1e-3, 0.0, steps())", "its transition_steps is steps()"),
        ("optax.linear_schedule(1e-3, 0.0, 100, 50)", "linear_schedule starts after 50 steps"),
        ("optax.polynomial_schedule(1e-3, 0.0, 2, 100)", "a polynomial of power 2"),
        ("optax.linear_schedule(1e-3)", "linear_schedule takes init_value, end_value"),
        ("optax.warmup_cosine_decay_schedule(0.0, 1e-3, 100, 100)", "its warmup_steps are 100"),
        ("my_schedule(3)", "cannot be read without running it"),
    ],
)
def test_unsupported_optax_schedule_suggests_alternatives(imported, written, because):
    data, told = imported("lerax", LERAX % written, "--env=CartPole-v1")
    assert data is None and "train.py:1: learning_rate is " in told and because in told
    assert "-- --learning_rate VALUE or -- --without learning_rate" in told
    data, _ = imported("lerax", LERAX % written, "--env=CartPole-v1", "--learning_rate", "1e-3")
    assert data is not None


def test_schedules_in_a_program_of_torch_are_refused(imported):
    text = "cfg = PPOConfig(lr_actor=optax.linear_schedule(1e-3, 0.0, 100))\n"
    _, told = imported("torch_ppo", text)
    assert "lr_actor is optax.linear_schedule" in told and "cannot be read" in told


def test_given_lr_schedule_overrides_optax_schedule(imported):
    text = LERAX % "optax.linear_schedule(1e-3, 0.0, 100)"
    data, told = imported("lerax", text, "--env=CartPole-v1", "--lr_schedule", "cosine")
    assert data["fixed"]["lr_schedule"] == "cosine" and data["fixed"]["learning_rate"] == 1e-3
    assert "because another name sets the schedule" in told


def test_space_flag_keeps_schedule_of_the_default(tmp_path, capsys):
    path = tmp_path / "train.py"
    path.write_text(LERAX % "optax.linear_schedule(1e-3, 0.0, 10_000)")
    words = ["--env=CartPole-v1", "--space", "--", f"--env_steps={2**17}"]
    assert main(["import", "lerax", str(path), *words]) == 0
    out, err = capsys.readouterr()
    assert "a run has 4,096 steps with the default update_epochs" in " ".join(err.split())
    data = yaml.safe_load(out)
    assert data["fixed"]["lr_schedule_multiplier"] == pytest.approx(10_000 / STEPS)
    assert data["space"]["learning_rate"]["default"] == 1e-3


def test_a_warm_up_longer_than_the_run_keeps_its_slope():
    found = OptaxSchedule(1e-3, "warmup_cosine", 0.0, 1.0, 1980.0).settings(1000)
    assert found["lr_schedule_multiplier"] == 2.0 and found["lr_warmup_fraction"] == 0.99


def test_plain_values_are_not_schedules():
    assert schedule_of(1e-3) is None and schedule_of(unread("linear_schedule")) is None
    assert system("lerax").family == "lerax"
