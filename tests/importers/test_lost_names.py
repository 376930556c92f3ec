"""A searched name is never lost at exit code 0, and a file of another system is asked about."""

import re

import optuna
import pytest
import yaml
from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    EqualsCondition,
    Float,
    Integer,
    OrdinalHyperparameter,
)

from hpo.cli import main
from hpo.importers.storages import read_storage
from hpo.studies.check import check
from hpo.studies.load import loads


@pytest.fixture
def imported(tmp_path, capsys):
    """Return what runs `hpo import`: the study's data and text, or None and what it says."""

    def run(kind, text, *flags, name="train.py"):
        source = tmp_path / name
        if text is not None:
            source.write_text(text)
        code = main(["import", kind, str(source), "--", *flags])
        out, err = capsys.readouterr()
        assert "Traceback" not in err and (code == 0 or (code == 2 and not out))
        return (yaml.safe_load(out), out) if code == 0 else (None, err)

    return run


def sweep(parameters):
    return (
        f"program: train.py\nmethod: random\nrun_cap: 4\n"
        f"metric: {{name: episode_return, goal: maximize}}\nparameters:\n{parameters}\n"
    )


def flags_of(told):
    return re.findall(r"[( ]-- (--.*)\)$", told.strip())[-1].split()


def configspace(tmp_path, *parameters, conditions=()):
    theirs = ConfigurationSpace()
    theirs.add(*parameters)
    for condition in conditions:
        theirs.add(condition)
    theirs.to_json(tmp_path / "space.json")


def storage(tmp_path, ranges, values=None, trials=6):
    study = optuna.create_study(
        storage=f"sqlite:///{tmp_path / 'trials.db'}", study_name="one", direction="maximize"
    )
    for number in range(trials):
        params = {name: (values or {}).get(name, lambda _: None)(number) for name in ranges}
        trial = optuna.trial.create_trial(params=params, distributions=ranges, value=float(number))
        study.add_trial(trial)
    return "trials.db"


RATE = optuna.distributions.FloatDistribution(1e-5, 1e-2, log=True)


# ------------------------------------------------------------------- searched names


@pytest.mark.parametrize(
    ("parameters", "told", "without"),
    [
        (
            "  warp: {values: [1, 2]}",
            "warp is searched, but hpo has no counterpart",
            "warp",
        ),
        ("  device: {values: [cpu, cuda]}", "device is searched, but lanes use all", "device"),
        (
            "  warp: {values: [1, 2]}\n  bend: {min: 0.0, max: 1.0}",
            "warp and bend are searched, but hpo has no counterparts",
            "warp,bend",
        ),
    ],
)
def test_sweep_with_unknown_searched_name_needs_without(imported, parameters, told, without):
    text = sweep(
        f"  env_id: {{value: CartPole-v1}}\n  gamma: {{values: [0.9]}}\n"
        f"  lr: {{values: [0.1, 0.2]}}\n{parameters}\n"
    )
    data, said = imported("wandb", text, name="sweep.yaml")
    assert data is None and told in said and len(said.strip().splitlines()) == 1
    assert flags_of(said) == ["--without", without]
    data, said = imported("wandb", text, *flags_of(said), name="sweep.yaml")
    assert list(data["space"]) == ["learning_rate"]
    for name in without.split(","):
        assert f"#   {name}: " in said


def test_configspace_with_unknown_searched_name_needs_without(imported, tmp_path):
    configspace(
        tmp_path,
        Float("learning_rate", (1e-5, 1e-2), log=True),
        Categorical("batch_and_steps", ["512_64", "1024_128"]),
    )
    data, said = imported("configspace", None, "--env=CartPole-v1", name="space.json")
    assert data is None and "batch_and_steps is searched, but hpo has no counterpart" in said
    data, _ = imported(
        "configspace", None, "--env=CartPole-v1", *flags_of(said), name="space.json"
    )
    assert list(data["space"]) == ["learning_rate"]


def test_optuna_storage_with_unknown_searched_name_needs_without(imported, tmp_path):
    name = storage(
        tmp_path,
        {
            "clip_param": optuna.distributions.FloatDistribution(0.1, 0.3),
            "learning_rate": optuna.distributions.CategoricalDistribution([1e-4, 1e-3]),
        },
        {"clip_param": lambda n: 0.1 + 0.02 * n, "learning_rate": lambda n: [1e-4, 1e-3][n % 2]},
    )
    given = ("--env=CartPole-v1", "--env_steps=50k")
    data, said = imported("optuna", None, *given, name=name)
    assert data is None and "clip_param is searched, but hpo has no counterpart" in said
    data, said = imported("optuna", None, *given, *flags_of(said), name=name)
    assert data["enqueue"] == [{"learning_rate": 1e-3}, {"learning_rate": 1e-4}]
    assert "the best finished trials (2 of 6); skips 4 duplicate trials" in said
    assert "as env is given" not in said


@pytest.mark.parametrize("flag", ["--env", "--env.id"])
def test_environment_key_is_searched_with_any_env_flag(imported, tmp_path, flag):
    configspace(
        tmp_path,
        Float("learning_rate", (1e-5, 1e-2), log=True),
        OrdinalHyperparameter("aggregate_slots", [1, 5, 10, 20], default_value=10),
    )
    data, said = imported("configspace", None, flag, "rmsa", name="space.json")
    assert data["env"] == "rmsa", said
    assert data["space"]["env.aggregate_slots"]["values"] == [1, 5, 10, 20]
    name = storage(
        tmp_path,
        {"learning_rate": RATE, "aggregate_slots": optuna.distributions.IntDistribution(1, 4)},
        {"learning_rate": lambda n: 1e-4 * (n + 1), "aggregate_slots": lambda n: 1},
    )
    data, _ = imported("optuna", None, flag, "rmsa", name=name)
    assert data["space"]["env.aggregate_slots"] == {"values": [1, 2, 3, 4]}


@pytest.mark.parametrize("flag", ["--total_timesteps", "--env_steps"])
def test_searched_run_length_must_be_given(imported, tmp_path, flag):
    choices = optuna.distributions.CategoricalDistribution([50_000, 100_000])
    name = storage(
        tmp_path,
        {"learning_rate": RATE, "total_timesteps": choices},
        {
            "learning_rate": lambda n: 1e-4 * (n + 1),
            "total_timesteps": lambda n: [50_000, 100_000][n % 2],
        },
    )
    data, said = imported("optuna", None, "--env=CartPole-v1", name=name)
    assert data is None and "(-- --total_timesteps VALUE)" in said
    data, _ = imported("optuna", None, "--env=CartPole-v1", flag, "50000", name=name)
    assert data["env_steps"] == 50_000 and list(data["space"]) == ["learning_rate"]
    assert len(data["enqueue"]) == 6


def test_configspace_switch_becomes_a_none_value(imported, tmp_path):
    switch = Categorical("use_kl", [True, False], default=False)
    limit = Float("target_kl", (0.005, 0.05), log=True, default=0.01)
    configspace(
        tmp_path,
        switch,
        limit,
        Float("learning_rate", (1e-5, 1e-2), log=True),
        conditions=[EqualsCondition(limit, switch, True)],
    )
    data, said = imported("configspace", None, "--env=CartPole-v1", name="space.json")
    values = data["space"]["target_kl"]["values"]
    assert values[0] is None and data["space"]["target_kl"]["default"] is None
    assert values[1:] == sorted(values[1:]) and {0.005, 0.01, 0.05} <= set(values[1:])
    assert "use_kl was replaced: target_kl is null when use_kl is off; the range of" in said
    assert "converted to 9 listed values" in said
    study = loads(said)
    assert study.space.default()["target_kl"] is None and not check(study).mistakes


def test_configspace_switch_of_two_parameters_is_refused(imported, tmp_path):
    switch = Categorical("use_limits", [True, False])
    one, two = Float("target_kl", (0.005, 0.05)), Float("max_grad_norm", (0.1, 1.0))
    configspace(
        tmp_path,
        switch,
        one,
        two,
        conditions=[EqualsCondition(one, switch, True), EqualsCondition(two, switch, True)],
    )
    data, said = imported("configspace", None, "--env=CartPole-v1", name="space.json")
    assert data is None and "use_limits is searched, but hpo has no counterpart" in said


# ------------------------------------------------------------------------- values


def test_float_steps_of_pow_names_become_powers_of_two(imported, tmp_path):
    power = optuna.distributions.FloatDistribution(5, 8, step=1)
    name = storage(
        tmp_path,
        {"learning_rate": RATE, "batch_size_pow": power},
        {"learning_rate": lambda n: 1e-4 * (n + 1), "batch_size_pow": lambda n: 5.0 + n % 4},
    )
    data, _ = imported("optuna", None, "--env=CartPole-v1", name=name)
    assert data["space"]["minibatch_size"] == {"values": [32, 64, 128, 256]}
    assert data["enqueue"][0]["minibatch_size"] == 64


def test_pow_and_one_minus_names_are_transformed(imported):
    text = sweep(
        "  env_id: {value: CartPole-v1}\n  one_minus_gae_lambda: {values: [0.05, 0.1]}\n"
        "  n_steps_pow: {value: 7}"
    )
    data, _ = imported("wandb", text, name="sweep.yaml")
    assert data["space"]["gae_lambda"] == {"values": [0.95, 0.9]}
    assert data["fixed"]["rollout_length"] == 128


@pytest.mark.parametrize(
    ("given", "remedy"),
    [("hidden_size", ["--num_layers", "2"]), ("num_layers", ["--hidden_size", "64"])],
)
def test_layers_without_size_asks_for_the_missing_half(imported, given, remedy):
    text = sweep(f"  {given}: {{values: [2, 3]}}\n  env_id: {{value: CartPole-v1}}")
    data, said = imported("wandb", text, name="sweep.yaml")
    assert data is None and flags_of(said) == remedy
    data, _ = imported("wandb", text, *remedy, name="sweep.yaml")
    assert data["fixed"] == {remedy[0].removeprefix("--"): int(remedy[1])}


def test_enqueued_trials_use_nearest_values_of_thinned_range(tmp_path):
    name = storage(
        tmp_path,
        {"n_steps": optuna.distributions.IntDistribution(100, 2000)},
        {"n_steps": lambda n: 100 + 190 * n},
        trials=11,
    )
    draft = read_storage(str(tmp_path / name), None, {"env": "CartPole-v1"})
    found = [one["rollout_length"] for one in draft.rest["enqueue"]]
    assert found == [1024, 512, 256, 128]  # 2000 to 100, the nearest on a log scale, each once
    assert any("rollout_length was moved to the nearest" in one for one in draft.notes)


def test_critic_learning_rate_enables_separate_optimiser(imported):
    text = sweep(
        "  actor_lr: {values: [0.001, 0.002]}\n  critic_lr: {value: 0.003}\n"
        "  decay_learning_rates: {value: true}\n  env_id: {value: CartPole-v1}"
    )
    data, said = imported("wandb", text, name="sweep.yaml")
    assert data["space"] == {"learning_rate": {"values": [0.001, 0.002]}}
    assert data["fixed"]["vf_learning_rate"] == 0.003
    assert data["fixed"]["separate_vf_optimiser"] is True
    assert data["fixed"]["lr_schedule"] == "linear"
    assert "critic_lr: the critic has a separate optimiser" in said


# ---------------------------------------------------------- files of another system

BRAX = """
def brax_ppo_config(env_name):
  return config_dict.create(num_timesteps=6_000_000, num_evals=10, reward_scaling=10.0,
      episode_length=env_config.episode_length, normalize_observations=True, action_repeat=1,
      unroll_length=30, num_minibatches=32, num_updates_per_batch=16, discounting=0.995,
      learning_rate=1e-3, entropy_cost=1e-2, num_envs=2048, batch_size=1024)
"""


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("rejax", "Rejax has only 4 of the 14 names"),
        ("sb3", "zoo3 has only 2 of the 14 names"),
    ],
)
def test_file_of_another_system_suggests_its_importer(imported, kind, known):
    data, said = imported(kind, BRAX, "--env=CartPole-v1")
    assert data is None and known in said and "hpo import brax" in said
    assert flags_of(said) == ["--system", kind]
    data, said = imported(
        kind, BRAX, "--env=CartPole-v1", "--system", "rejax", "--without", "batch_size"
    )
    for name in ("discounting", "entropy_cost", "episode_length", "unroll_length"):
        assert name in said.partition("\nname:")[0]


def test_sweep_of_unknown_system_asks_for_confirmation(imported):
    text = sweep(
        "  lr: {values: [0.1, 0.2]}\n"
        + "\n".join(
            f"  {name}: {{value: 3}}" for name in ("kl_coeff", "train_batch_size", "vf_clip_param")
        )
    )
    data, said = imported("wandb", text, "--env=CartPole-v1", name="sweep.yaml")
    assert data is None and "hpo has only 1 of the 4 names" in said
    data, said = imported("wandb", text, "--env=CartPole-v1", *flags_of(said), name="sweep.yaml")
    assert "learning_rate" in data["space"] and "#   kl_coeff: no counterpart" in said


def test_unknown_names_next_to_known_ones_are_listed(imported):
    text = (
        "env = CartPole()\nalgo = PPO(num_envs=2, num_steps=64, gamma=0.9)\n"
        "config = dict(gae_lambda=0.9, num_epochs=3, warp_factor=9, bend=thing.x)\n"
        "tx = optax.adam(learning_rate=1e-3, eps=1e-5)\n"
    )
    data, said = imported("lerax", text)
    assert data["fixed"]["gae_lambda"] == 0.9 and data["fixed"]["update_epochs"] == 3
    for name in ("warp_factor", "bend", "eps"):
        assert f"#   {name}: no counterpart" in said


# ------------------------------------------------------------------ the study itself


def test_imported_search_has_confirm_stage_and_rounds_env_steps(imported):
    text = sweep(
        "  lr: {values: [0.1, 0.2]}\n  env_id: {value: CartPole-v1}\n"
        "  total_timesteps: {value: 50000}"
    )
    data, said = imported("wandb", text, name="sweep.yaml")
    assert data["confirm"]["report"] == 16 and "confirm: the best trials" in said
    assert "env_steps: 50,000 in the source, but a run has 51,200 env steps" in said
    assert not [one for one in check(loads(said)).warnings if "confirm" in one]
    few = text.replace("run_cap: 4", "run_cap: 2")
    data, _ = imported("wandb", few, name="sweep.yaml")
    assert data["confirm"] == {"top_k": 2, "choose": 3, "report": 16, "interim": 8}
    data, _ = imported("wandb", few, "--confirm.report=6", name="sweep.yaml")
    assert data["confirm"] == {"top_k": 2, "choose": 3, "report": 6}


def test_source_defaults_are_listed_with_hpo_values(imported):
    data, said = imported("sb3", "PPO('MlpPolicy', 'CartPole-v1', n_steps=64)\n")
    assert "vf_coef 0.5 (here 1.0)" in " ".join(said.replace("#", " ").split())
    assert data["fixed"]["vf_coef"] == 1.0


ZOO = "Tank-v1: {n_timesteps: 1e5, policy: MlpPolicy}\n"


def test_custom_gym_environment_import_suggests_imports_file(imported):
    data, said = imported("rlzoo", ZOO, "--env=Tank-v1", name="ppo.yml")
    assert data is None
    assert flags_of(said) == ["--env", "gym:Tank-v1", "--imports", "my_envs.py"]
    data, said = imported("rlzoo", ZOO, *flags_of(said), name="ppo.yml")
    assert data["env"] == "gym:Tank-v1" and data["imports"] == ["my_envs.py"]


def test_third_party_environment_import_suggests_imports_file(imported):
    env, module = "MiniGrid-Empty-5x5-v0", "minigrid"
    text = f"gym.make('{env}')\nPPO('MlpPolicy', env, n_steps=64)\n"
    data, said = imported("sb3", text)
    assert data is None and f"gym:{env} is registered by the module {module!r}" in said
    assert flags_of(said) == ["--env", f"gym:{env}", "--imports", "my_envs.py"]
    data, said = imported("sb3", text, *flags_of(said))
    assert data["env"] == f"gym:{env}" and data["imports"] == ["my_envs.py"]


def test_missing_simulator_does_not_block_import(imported, monkeypatch):
    from hpo.environments import via_gymnasium
    from hpo.errors import MissingExtraError
    from hpo.importers import converted_study

    def absent(id_, *values):
        raise MissingExtraError("Box2D", "gym-all", f"env {id_}")

    monkeypatch.setattr(via_gymnasium, "make", absent)
    assert via_gymnasium.lacking_package("CartPole-v1") == ""
    lacking = via_gymnasium.lacking_package("gym:LunarLander-v3")
    assert lacking == "gym:LunarLander-v3 needs the package 'Box2D', which is not installed"
    monkeypatch.setattr(converted_study, "lacking_package", lambda _: lacking)
    text = "LunarLander-v3: {n_timesteps: 1e5, policy: MlpPolicy, vf_coef: 0.6}\n"
    data, said = imported("rlzoo", text, "--env=LunarLander-v3", name="ppo.yml")
    assert data["env"] == "gym:LunarLander-v3" and data["fixed"]["vf_coef"] == 1.2
    assert "needs the package 'Box2D'" in said and "are not checked yet" in said


def test_integers_keep_their_step(imported, tmp_path):
    configspace(tmp_path, Integer("update_epochs", (1, 4)))
    data, _ = imported("configspace", None, "--env=CartPole-v1", name="space.json")
    assert data["space"]["update_epochs"]["max"] == 4
