"""Imports that were wrong and silent, or refused for no reason: a test for each kind."""

import json
import re
from pathlib import Path

import optuna
import pytest
import yaml

from helpers import imported_files, imported_sweeps, imported_trains
from helpers.import_command import importer
from hpo.cli import main
from hpo.importers.readers import read_flags, read_hyperparameters, read_settings
from hpo.importers.storages import read_storage
from hpo.importers.wandb_sweeps import read_sweep
from hpo.studies.check import check
from hpo.studies.load import loads


@pytest.fixture
def imported(tmp_path, capsys):
    return importer(tmp_path, capsys)


def sweep(parameters, more="", program="train_ppo.py"):
    return (
        f"program: {program}\nmethod: random\nrun_cap: 4\n{more}\n"
        f"parameters:\n  env_id: {{value: CartPole-v1}}\n{parameters}\n"
    )


# ------------------------------------------------------------------------- recognised


@pytest.mark.parametrize("program", ["train_ppo.py", "ppo.py", "my/ppo.py", "not_xlron.py"])
def test_similar_script_name_does_not_select_the_system(imported, program):
    data, text = imported(
        "wandb", sweep("  lr: {values: [0.1, 0.2]}", program=program), name="s.yaml"
    )
    assert "Read as" not in text and "fixed" not in data


def test_script_path_selects_the_system(imported):
    text = sweep("  learning-rate: {values: [0.1, 0.2]}", program="cleanrl/ppo.py")
    data, head = imported("wandb", text, name="s.yaml")
    assert "Read as CleanRL's ppo.py" in head and data["fixed"]["ent_coef"] == 0.01


# --------------------------------------------------------------------------- the goal


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_refused_metric_suggestion_uses_goal_of_suggested_metric(imported, goal):
    more = f"metric: {{name: train/value_loss, goal: {goal}}}"
    text = sweep("  lr: {values: [0.1, 0.2]}", more)
    _, told = imported("wandb", text, name="s.yaml")
    flags = told.split(" (-- ")[1].rstrip(")\n").split()
    assert flags == ["--metric", "eval/return_mean", "--metric.goal", "maximize"]
    for given in (flags, flags[:2]):  # its goal is that of the metric, not of the loss
        data, _ = imported("wandb", text, *given, name="s.yaml")
        assert data["metric"] == {"name": "eval/return_mean", "goal": "maximize"}
    data, _ = imported("wandb", text, *flags[:2], "--metric.goal", "minimize", name="s.yaml")
    assert data["metric"]["goal"] == "minimize"


def test_minimised_return_is_not_imported_as_maximised(imported):
    more = "metric: {name: episode_return, goal: minimize}"
    _, told = imported("wandb", sweep("  lr: {values: [0.1, 0.2]}", more), name="s.yaml")
    assert "--metric eval/return_mean --metric.goal maximize" in told


# ------------------------------------------------------------------------ W&B and YAML


@pytest.mark.parametrize(
    ("iterations", "first"),
    [
        ("min_iter: 10000, max_iter: 90000, s: 2", 10_000),
        ("max_iter: 81000, s: 3", 3000),
        ("min_iter: 20000, max_iter: 81000, s: 4", 1000),
        ("min_iter: 5000", 5000),
    ],
)
def test_hyperband_import_uses_max_iter_and_s(imported, iterations, first):
    more = f"early_terminate: {{type: hyperband, {iterations}}}\n"
    more += "metric: {name: eval/return_mean, goal: maximize}"
    parameters = "  lr: {values: [0.1, 0.2]}\n  total_timesteps: {value: 100000}"
    data, text = imported("wandb", sweep(parameters, more), name="s.yaml")
    assert data["early_terminate"]["min"] == first
    both = "min_iter" in iterations and "max_iter" in iterations
    assert ("early_terminate.min_iter: W&B uses max_iter" in text) == both


@pytest.mark.parametrize("iterations", ["max_iter: 27, s: 2", "max_iter: 100000, s: 2, eta: 3"])
def test_last_hyperband_rung_is_well_before_end_of_run(imported, iterations):
    more = f"early_terminate: {{type: hyperband, {iterations}}}\n"
    more += "metric: {name: eval/return_mean, goal: maximize}"
    parameters = "  lr: {min: 0.1, max: 0.2}\n  total_timesteps: {value: 100000}"
    data, text = imported("wandb", sweep(parameters, more), name="s.yaml")
    assert data["early_terminate"]["min"] == 11_112
    assert not [note for note in check(loads(text)).warnings if "rungs in the same chunk" in note]


def test_yaml_merge_keys_in_sweep_are_resolved(imported):
    text = "shared: &shared {distribution: log_uniform_values, min: 0.0001, max: 0.01}\n" + sweep(
        "  learning_rate: {<<: *shared, max: 0.1}\n  ent_coef:\n    <<: *shared"
    )
    data, _ = imported("wandb", text, name="s.yaml")
    assert (
        data["space"]["learning_rate"]["max"] == 0.1 and data["space"]["ent_coef"]["max"] == 0.01
    )


def test_conflicting_duplicate_yaml_key_reports_both_lines(imported):
    _, told = imported(
        "sb3", "env: CartPole-v1\ngamma: 0.9\nn_steps: 8\ngamma: 0.99\n", name="x.yaml"
    )
    assert "gamma has two values (lines 2 and 4)" in told
    data, _ = imported(
        "sb3", "env: CartPole-v1\ngamma: 0.9\nn_steps: 8\ngamma: 0.9\n", name="x.yaml"
    )
    assert data["fixed"]["gamma"] == 0.9


# ----------------------------------------------------------------------------- Python

PURE = """
def make_train(config):
    config["NUM_UPDATES"] = config["TOTAL_TIMESTEPS"] // config["NUM_STEPS"]
    env, params = gymnax.make(config["ENV_NAME"])
    tx = optax.adam(config["LR"], eps=1e-5)
if __name__ == "__main__":
    config = {
        "LR": %s, "NUM_ENVS": %d, "NUM_STEPS": 128, "TOTAL_TIMESTEPS": %s,
        "UPDATE_EPOCHS": %d, "NUM_MINIBATCHES": %d, "GAMMA": 0.99, "GAE_LAMBDA": 0.95,
        "CLIP_EPS": 0.2, "ENT_COEF": %s, "VF_COEF": 0.5, "MAX_GRAD_NORM": 0.5,
        "ENV_NAME": "%s", "ANNEAL_LR": %s, "DEBUG": True, %s
    }
    train = jax.jit(make_train(config))
"""


@pytest.mark.parametrize(
    ("script", "values", "expected"),
    [
        (
            "ppo",
            ("2.5e-4", 4, "5e5", 4, 4, "0.01", "CartPole-v1", True, '"ACTIVATION": "tanh"'),
            {
                "env": "CartPole-v1",
                "env_steps": 500_000,
                "lr_schedule": "linear",
                "ent_coef": 0.01,
                "num_envs": 4,
                "rollout_length": 128,
                "value_clip_eps": "same",
            },
        ),
        (
            "ppo_continuous_action",
            ("3e-4", 2048, "5e7", 4, 32, "0.0", "hopper", False, '"NORMALIZE_ENV": True'),
            {
                "env": "brax:hopper",
                "env_steps": 50_000_000,
                "hidden_sizes": [256, 256],
                "normalise_rewards": True,
                "reward_clip": None,
                "num_minibatches": 32,
            },
        ),
        (
            "ppo_rnn",
            ("2.5e-4", 4, "5e5", 4, 4, "0.01", "CartPole-v1", True, ""),
            {
                "network": "gru",
                "recurrent_size": 128,
                "hidden_sizes": [128],
                "activation": "relu",
                "shared_encoder": True,
            },
        ),
        (
            "ppo_minigrid",
            ("2.5e-4", 16, "1e6", 1, 8, "0.01", "Navix-DoorKey-5x5-v0", True, ""),
            "Navix environments are not supported",
        ),
        (
            "dpo_continuous_action",
            ("3e-4", 2048, "5e7", 4, 32, "0.0", "hopper", False, '"DPO_ALPHA": 2.0'),
            "uses the objective of DPO",
        ),
        (
            "ppo_s5",
            ("2.5e-4", 4, "5e5", 4, 4, "0.01", "CartPole-v1", True, ""),
            "uses S5 layers",
        ),
    ],
)
def test_purejaxrl_scripts_import_with_their_values(imported, script, values, expected):
    data, told = imported("purejaxrl", PURE % values, name=f"purejaxrl/{script}.py")
    if isinstance(expected, str):
        assert data is None and expected in told
        return
    assert {key: data.get(key, data["fixed"].get(key)) for key in expected} == expected
    assert f"Read as PureJaxRL's {script}.py" in told


def test_given_env_replaces_unsupported_env_of_source(imported):
    values = ("2.5e-4", 16, "1e6", 1, 8, "0.01", "Navix-DoorKey-5x5-v0", True, "")
    data, told = imported(
        "purejaxrl", PURE % values, "--env=CartPole-v1", name="purejaxrl/ppo_minigrid.py"
    )
    assert data["env"] == "CartPole-v1" and data["fixed"]["num_envs"] == 16
    assert "ENV_NAME: a different environment is given" in told


def test_a_second_dictionary_of_a_file_is_read(imported):
    text = (
        "SIZES = {'n_steps': 64, 'n_envs': 2}\nRATES = {'learning_rate': 1e-3, "
        "'clip_range': 0.1}\nmodel = PPO('MlpPolicy', 'CartPole-v1', **SIZES, **RATES)\n"
        "model.learn(total_timesteps=50_000)\n"
    )
    data, told = imported("sb3", text)
    assert data["env_steps"] == 50_000 and "no run length is named" not in told
    fixed = data["fixed"]
    assert (fixed["rollout_length"], fixed["num_envs"], fixed["clip_eps"]) == (64, 2, 0.1)


def test_run_length_is_read_from_train_method_arguments(imported):
    text = (
        'agent = PPO({"learning_rate": 3e-4, "n_steps": 128, "vf_clip_eps": 0.2}, env, '
        "track_metrics=True, deterministic_eval=False)\nstate = agent.init(rng)\n"
        "agent.train(*state, n_total_timesteps=100000, n_eval_steps=10, n_eval_episodes=20)\n"
    )
    data, told = imported("arlbench", text, "--env=CartPole-v1")
    assert data["env_steps"] == 100_000 and "n_total_timesteps 1000000" not in told
    assert data["evaluation"] == {"greedy": False, "every": 10_000, "episodes": 20}
    text = (
        "env = CartPole()\npolicy = MLPActorCriticPolicy(env=env, key=k)\nalgo = PPO()\n"
        "policy = algo.learn(env, policy, total_timesteps=2**16, key=k)\n"
    )
    data, told = imported("lerax", text)
    assert data["env"] == "CartPole-v1" and data["env_steps"] == 65_536
    assert data["fixed"]["rollout_length"] == 2048 and data["fixed"]["update_epochs"] == 10


def test_conflicting_values_report_both_lines_unless_overridden(imported):
    text = "args = dict(gamma=0.9)\nmodel = PPO('MlpPolicy', 'CartPole-v1',\n  gamma=0.99)\n"
    _, told = imported("sb3", text)
    assert "gamma is 0.9 (line 1) and 0.99 (line 3)" in told
    data, _ = imported("sb3", text, "--gamma", "0.95")
    assert data["fixed"]["gamma"] == 0.95


def test_unsupported_schedule_suggests_value_or_without(imported):
    text = "algo = PPO(num_envs=2,\n  learning_rate=optax.exponential_decay(1e-3, 100, 0.9))\n"
    _, told = imported("lerax", text, "--env=CartPole-v1")
    assert "train.py:2: learning_rate is optax.exponential_decay(0.001, 100, 0.9)" in told
    assert "exponential_decay has no counterpart" in told
    assert "-- --learning_rate VALUE" in told and "-- --without learning_rate" in told
    given = ("--learning_rate", "1e-3", "--lr_schedule", "linear")
    data, _ = imported("lerax", text, "--env=CartPole-v1", *given)
    assert data["fixed"]["learning_rate"] == 1e-3 and data["fixed"]["lr_schedule"] == "linear"
    data, told = imported("lerax", text, "--env=CartPole-v1", "--without", "learning_rate")
    assert data["fixed"]["learning_rate"] == 3e-4 and "learning_rate: as requested" in told


@pytest.mark.parametrize(
    "made",
    [
        "gym.make('Acrobot-v1', max_episode_steps=50)",
        "make_vec_env('Acrobot-v1', env_kwargs=dict(max_episode_steps=50))",
    ],
)
def test_time_limit_of_gymnasium_becomes_that_of_the_environment(made, imported):
    text = f"PPO('MlpPolicy', {made}, n_steps=64)\n"
    data, _ = imported("sb3", text)
    assert data["env"] == {"id": "Acrobot-v1", "max_steps_in_episode": 50}
    data, _ = imported("sb3", text, "--env=gym:Acrobot-v1")
    assert data["env"] == {"id": "gym:Acrobot-v1", "max_episode_steps": 50}


@pytest.mark.parametrize("key", ["sutton_barto_reward=True", "is_slippery=False"])
def test_key_that_changes_a_compiled_environment_is_refused(key, imported):
    """The compiled environment would train on different rewards or dynamics."""
    text = f"PPO('MlpPolicy', gym.make('CartPole-v1', render_mode='human', {key}), n_steps=64)\n"
    data, told = imported("sb3", text)
    assert data is None and "hpo's CartPole-v1 has no such key" in told
    name = key.partition("=")[0]
    data, told = imported("sb3", text, "--without", f"env.{name}")
    assert data["env"] == "CartPole-v1" and f"env.{name}" in told and "env.render_mode" in told
    data, told = imported("sb3", text, "--env=gym:CartPole-v1")
    if name == "sutton_barto_reward":
        assert data["env"] == {"id": "gym:CartPole-v1", "sutton_barto_reward": True}
        assert "env.render_mode: no counterpart" in told
    else:
        assert data is None and "gym:CartPole-v1 has no key 'is_slippery'" in told


def test_environment_wrappers_are_read_or_refused(imported):
    text = (
        "env = VecNormalize(make_vec_env('CartPole-v1', n_envs=4), norm_reward=False)\n"
        "model = PPO('MlpPolicy', VecFrameStack(env, 3), verbose=0)\n"
    )
    data, _ = imported("sb3", text)
    assert data["fixed"]["normalise_observations"] and data["fixed"]["history"] == 3
    assert data["fixed"]["normalise_rewards"] is False and data["fixed"]["num_envs"] == 4
    frames = "gym.wrappers.FrameStackObservation(gym.make('Acrobot-v1'), 4)"
    for head, made in (
        ("", frames),
        (
            "from gymnasium.wrappers import TimeLimit as Limit\n",
            "Limit(gym.make('Acrobot-v1'), 9)",
        ),
        ("class Mine(gym.RewardWrapper): ...\n", "Mine(gym.make('Acrobot-v1'))"),
    ):
        data, told = imported("sb3", f"{head}env = {made}\nPPO('MlpPolicy', env, n_steps=64)\n")
        assert data is None and "wrappers change the environment" in told, made
    plain = frames.replace("FrameStackObservation", "RecordVideo")
    data, _ = imported("sb3", f"PPO('MlpPolicy', {plain}, n_steps=64)\n")
    assert data["env"] == "Acrobot-v1"
    _, told = imported("sb3", text.replace("norm_reward=False", "clip_obs=clip(1)"))
    assert "clip(1) cannot be read" in told
    _, told = imported(
        "lerax", "algo = PPO(num_envs=4)\nc = ScheduledCurriculum(where=lambda e: e.m)\n"
    )
    assert "a curriculum changes the environment" in told


@pytest.mark.parametrize(
    ("system", "text", "expected"),
    [
        (
            "sb3",
            "vec_env = make_vec_env('Acrobot-v1', n_envs=16)\nm = PPO('MlpPolicy', vec_env)",
            {"num_envs": 16},
        ),
        (
            "sb3",
            "v: VecEnv = make_vec_env('Acrobot-v1', 16, 3)\nm = PPO('MlpPolicy', v)\n"
            "eval_env = make_vec_env('Acrobot-v1', 2)\nm.learn(2**16)",
            {"num_envs": 16, "seed": 3, "env_steps": 65_536},
        ),
        (
            "sb3",
            "m = PPO('MlpPolicy', 'Acrobot-v1', 1e-3, 512, 32, 4, 0.98)",
            {
                "learning_rate": 1e-3,
                "rollout_length": 512,
                "minibatch_size": 32,
                "update_epochs": 4,
                "gamma": 0.98,
            },
        ),
        (
            "sb3",
            "name = 'Acrobot-v1'\nn = 6\nvec_env = VecNormalize(SubprocVecEnv([make_env(name,"
            " i) for i in range(n)]), True, False)\nm = PPO('MlpPolicy', vec_env)\n"
            "env_id = 'Acrobot-v1'\ngym.make(env_id)",
            {"num_envs": 6, "normalise_observations": False, "normalise_rewards": True},
        ),
        (
            "sb3",
            "env = DummyVecEnv([f] * 3)\nm = PPO('MlpPolicy', gym.make('Acrobot-v1'))",
            {"num_envs": 3},
        ),
        (
            "lerax",
            "env = Acrobot()\nx = PPO().learn(env, policy, 65_536, key=k)",
            {"env_steps": 65_536},
        ),
        (
            "arlbench",
            "a = PPO({'n_steps': 64, 'clip_eps': 0.1}, make_env('gymnax', 'Acrobot-v1'))"
            "\na.train(*state, 65_536)",
            {"rollout_length": 64, "env_steps": 65_536},
        ),
    ],
)
def test_positional_arguments_and_aliased_calls_are_read(imported, system, text, expected):
    data, _ = imported(system, text)
    assert data["env"] == "Acrobot-v1"
    assert {name: (data | data["fixed"])[name] for name in expected} == expected


def test_environment_keywords_are_read_from_make_call(imported):
    text = "env = gym.make('Pendulum-v1', g=%s, render_mode='human')\nm = PPO('MlpPolicy', env)"
    data, told = imported("sb3", text % 9.5)
    assert data["env"] == {"id": "Pendulum-v1", "g": 9.5} and "env.render_mode" in told
    data, told = imported("sb3", text % "gravity()")
    assert data is None and "train.py:1: env.g is gravity()" in told


@pytest.mark.parametrize(
    ("system", "text", "words"),
    [
        (
            "sb3",
            "PPO('MlpPolicy', 'Acrobot-v1', *rest)",
            r"PPO \(line 1\) has 3 positional arguments",
        ),
        ("sb3", "\nm.learn(1000, None, 1, 'x', True, False)", r"line 2\) has 6 .* of which 5 can"),
        ("sb3", "PPO('MlpPolicy', 'Acrobot-v1')\nm.learn(n())", r"train.py:2: total_timesteps is"),
        ("sb3", "PPO('MlpPolicy', DummyVecEnv(fs))", r"train.py:1: n_envs is fs"),
        ("sb3", "make_vec_env('Acrobot-v1', wrapper_class=W)", r"wrapper_class .* cannot"),
        (
            "torch_ppo",
            "PPOConfig('Acrobot-v1', 4)",
            r"PPOConfig \(line 1\) has 2 positional arguments",
        ),
        ("rejax", "PPO.create('Acrobot-v1')", r"create \(line 1\) has 1 positional argument,"),
        (
            "jaxdem",
            "PPOTrainer.Create(env, model, 3)",
            r"Create \(line 1\) has 3 positional arguments",
        ),
    ],
)
def test_arguments_that_cannot_be_read_are_refused_with_their_line(imported, system, text, words):
    data, told = imported(system, text)
    assert data is None and re.search(words, told)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("train_discrete(env_id='CartPole-v1', total_timesteps=200_000, rollout_steps=512)", 512),
        ("train_continuous(env_id='Pendulum-v1', total_timesteps=100_000, num_envs=4)", 2048),
        (
            "train_with_transformer_backbone(env_id='CartPole-v1', num_envs=4)",
            "without=backbone_cls network=transformer history=8",
        ),
    ],
)
def test_torch_ppo_helper_calls_are_read(imported, call, expected):
    data, told = imported("torch_ppo", f"agent = {call}\n")
    if isinstance(expected, str):
        assert data is None and expected in told
        flags = expected.split()
        data, _ = imported("torch_ppo", f"agent = {call}\n", *flags)
        assert data["fixed"]["network"] == "transformer" and data["fixed"]["history"] == 8
    else:
        assert data["fixed"]["rollout_length"] == expected and "taken from PPOConfig" in told


# ----------------------------------------------------------------------- mistyped names


@pytest.mark.parametrize(
    ("kind", "name", "text", "told"),
    [
        (
            "rlzoo",
            "ppo.yml",
            "CartPole-v1:\n  # n_step\n  n_steps: 32\n  batch_sise: 256\n",
            "ppo.yml:4: batch_sise .* did you mean batch_size",
        ),
        (
            "rlzoo",
            "ppo.yml",
            "CartPole-v1:\n  n_epochs: 2\n  normalize_advantag: false\n",
            "ppo.yml:3: normalize_advantag .* did you mean normalize_advantage",
        ),
        (
            "purejaxrl",
            "ppo.py",
            "c = {'LR': 1e-3, 'NUM_STEPS': 8,\n 'CLIP_EP': 0.1}\n",
            "ppo.py:2: CLIP_EP .* did you mean CLIP_EPS",
        ),
        (
            "cleanrl",
            "run.sh",
            "python cleanrl/ppo.py --env-id=CartPole-v1 \\\n --learning-rte=1",
            "run.sh:2: learning_rte .* did you mean learning_rate",
        ),
        (
            "wandb",
            "s.yaml",
            sweep(
                "  gamma: {values: [0.9, 0.99]}\n  clip-coeff: {value: 1}",
                program="cleanrl/ppo.py",
            ),
            "s.yaml:8: clip-coeff .* did you mean clip_coef",
        ),
    ],
)
def test_misspelled_name_of_the_system_is_refused(imported, kind, name, text, told):
    env = () if kind in ("wandb", "cleanrl") else ("--env=CartPole-v1",)
    data, said = imported(kind, text, *env, name=name)
    assert data is None and re.search(told, said) and "-- --without" in said
    wrong = re.search("--without ([a-zA-Z_-]+)", said)[1]
    data, said = imported(kind, text, *env, "--without", wrong, name=name)
    assert data is not None


@pytest.mark.parametrize("name", ["my_note", "vec_env_typ", "eval_env_kwargs"])
def test_unrelated_unknown_names_are_left_out(imported, name):
    text = f"CartPole-v1:\n  n_steps: 32\n  {name}: x\n"
    data, said = imported("rlzoo", text, "--env=CartPole-v1", name="ppo.yml")
    assert data["fixed"]["rollout_length"] == 32 and f"{name}: no counterpart" in said


_DISCRETE = {"env": "CartPole-v1", "env_steps": 500_000}


@pytest.mark.parametrize(
    ("call", "expected", "widths"),
    [
        ("train_discrete()", _DISCRETE, [64, 64]),
        ("train_discrete('Acrobot-v1')", {**_DISCRETE, "env": "Acrobot-v1"}, [64, 64]),
        (
            "train_discrete(env_id='Acrobot-v1', total_timesteps=7e4)",
            {"env": "Acrobot-v1", "env_steps": 70_000},
            [64, 64],
        ),
        (
            "train_continuous('Pendulum-v1', 40_960, gamma=0.95)",
            {"env": "Pendulum-v1", "env_steps": 40_960},
            [256, 256],
        ),
        (
            "train_continuous(env_id='Pendulum-v1')",
            {"env": "Pendulum-v1", "env_steps": 1_000_000},
            [256, 256],
        ),
    ],
)
def test_helpers_of_the_single_file_ppo_have_their_own_defaults(imported, call, expected, widths):
    data, _ = imported("torch_ppo", f"agent = {call}\n")
    assert {name: data[name] for name in expected} == expected
    assert data["fixed"].get("hidden_sizes", [64, 64]) == widths


def test_torch_ppo_helper_without_length_uses_its_default_env(imported):
    _, told = imported("torch_ppo", "train_continuous(gamma=0.9)\n")
    assert "HalfCheetah-v4" in told
    data, _ = imported("torch_ppo", "train_continuous(gamma=0.9)\n", "--env=Pendulum-v1")
    assert data["env"] == "Pendulum-v1" and data["fixed"]["hidden_sizes"] == [256, 256]
    _, told = imported("torch_ppo", "train_discrete()\ntrain_continuous()\n")
    assert "train_discrete and train_continuous, which train with different defaults" in told
    _, told = imported("torch_ppo", "train_with_transformer_backbone('CartPole-v1')\n")
    assert "network=transformer history=8 transformer_layers=2" in told
    flags = ["--without=backbone_cls", "--network=transformer", "--history=8"]
    data, _ = imported("torch_ppo", "train_with_transformer_backbone('CartPole-v1')\n", *flags)
    assert data["env_steps"] == 500_000


@pytest.mark.parametrize(
    ("arguments", "low", "high"),
    [
        ("squash_actions=True", -1.0, 1.0),
        ("continuous_dist='beta'", 0.0, 1.0),
        ("continuous_dist='gaussian'", None, None),
    ],
)
def test_torch_ppo_bounded_actions_are_not_rescaled(imported, arguments, low, high):
    data, told = imported("torch_ppo", f"PPOConfig(env_id='Pendulum-v1', {arguments})\n")
    fixed = data["fixed"]
    assert (fixed.get("action_low"), fixed.get("action_high")) == (low, high)
    assert ("does not scale" in told) == (low is not None)


def test_differences_of_torch_ppo_are_listed(imported):
    _, told = imported("torch_ppo", "PPOConfig(env_id='Pendulum-v1', squash_actions=True)\n")
    assert "its GAE uses each done flag one step late" in told
    assert "divides by n - 1, hpo's by n" in told
    assert "its evaluate() samples actions" in told


# -------------------------------------------------------------------------- versions


def test_jaxdem_minibatches_become_epochs_or_are_refused(imported):
    text = (
        "tr = PPOTrainer.Create(env, model, num_envs=16, num_minibatches=%d, "
        "minibatch_size=%d, importance_sampling_alpha=0.0)\n"
    )
    drawn = text.replace("alpha=0.0", "alpha=0.5") % (10, 256)
    data, _ = imported("jaxdem", drawn, "--env=navigators")  # rows that are drawn, in any number
    assert (data["fixed"]["num_minibatches"], data["fixed"]["minibatch_size"]) == (10, 256)
    data, _ = imported("jaxdem", text % (8, 256), "--env=navigators")  # env steps, of 16 x 64
    assert data["fixed"]["num_minibatches"] == 4 and data["fixed"]["update_epochs"] == 2
    _, told = imported("jaxdem", text % (10, 256), "--env=navigators")
    words = "10 minibatches of 256 env steps are 2.5 passes over the rollout of 1024 env steps"
    assert words in told
    flags = told.split("equal minibatches (-- ")[1].rstrip(")\n").split()
    data, _ = imported("jaxdem", text % (10, 256), "--env=navigators", *flags)
    assert data["fixed"]["num_minibatches"] == 4


def test_system_name_in_folder_does_not_select_version(imported):
    data, told = imported("lerax", "algo = PPO()\n", "--env=CartPole-v1", name="lerax/ppo.py")
    assert "Read as Lerax, 0.0.6" in told and data["fixed"]["rollout_length"] == 2048
    data, told = imported(
        "jaxdem",
        'key = jax.random.key(1)\nmodel = Model.create("M", action_space=Space.create("max"))\n'
        'tr = Trainer.create("PPO", env=env, model=model, key=key, num_envs=32)\n',
        "--env=navigators",
        name="JaxDEM/intro.py",
    )
    assert "key: a random key; see seed" in told and "action_space: actions are within" in told
    assert "Read as JaxDEM, since 6 November 2025" in told
    assert data["fixed"]["learning_rate"] == 0.01 and data["fixed"]["hidden_sizes"] == [42] * 3


FLAGS = (
    "--env_type=rmsa --link_resources=40 --continuous_operation --UPDATE_EPOCHS=4 "
    "--NUM_MINIBATCHES=2 --ENT_COEF=0.02 --ENT_SCHEDULE=linear "
)


def test_xlron_july_2026_reads_schedules_and_priorities_differently():
    flags = FLAGS + "--PRIO_ALPHA=0.6 --PRIO_BETA0=0.4"
    before = read_flags(flags, {})
    after = read_flags(flags, {"system": "xlron_july_2026"})
    assert before.fixed["ent_schedule_multiplier"] == 8.0
    assert "ent_schedule_multiplier" not in after.fixed
    assert "N^beta" in " ".join(before.notes) and "largest" in " ".join(after.notes)
    assert "Read as XLRON, 1.1.0" in before.text() and "11 July 2026" in after.text()
    assert "system=xlron_july_2026" in before.text()


# ---------------------------------------------------------------- translated, or said


def test_jaxdem_accumulated_steps_scale_the_learning_rate(imported):
    """optax.apply_every adds k updates and counts each: see `apply_every` of optax."""
    text = (
        "tr = PPOTrainer.Create(env, model, num_envs=64, num_minibatches=4, "
        "accumulate_n_gradients=2, learning_rate=0.01)\n"
    )
    data, told = imported("jaxdem", text, "--env=navigators")
    assert data["fixed"]["learning_rate"] == 0.02 and data["fixed"]["accumulate_minibatches"] == 2
    assert (
        data["fixed"]["lr_schedule_multiplier"] == 0.25
        and "JaxDEM adds the steps of 2 minibatches" in told
    )


def test_import_lists_semantic_differences_to_the_source(imported):
    cfg = "cfg = PPOConfig(env_id='Pendulum-v1', rollout_steps=256, lr_actor=1e-3, %s)\n"
    _, told = imported("torch_ppo", cfg % "optimizer='sgd', weight_decay=0.1")
    assert "PyTorch's SGD adds it before the momentum" in told
    _, told = imported("torch_ppo", cfg % "squash_actions=True")
    assert "hpo's entropy bonus uses the squashed distribution" in told
    head = read_flags("--env_type=rmsa --NUM_ENVS=4 --RHO_CLIP=1 --C_CLIP=1", {}).text()
    assert "hpo's value targets follow V-trace" in head
    assert "in XLRON, the value loss also includes rows without a valid action" in head


def test_log_and_save_intervals_and_loggers_are_imported(imported):
    cfg = (
        "cfg = PPOConfig(env_id='CartPole-v1', rollout_steps=512, num_envs=4, log_interval=5, "
        "save_interval=20, use_wandb=True, wandb_project='p')\n"
    )
    data, _ = imported("torch_ppo", cfg)
    assert data["log_every"] == 5 * 2048 and data["checkpoint"] == {"policies_every": 20 * 2048}
    assert data["loggers"] == [{"type": "wandb", "project": "p"}]
    data, told = imported("torch_ppo", cfg.replace("use_wandb=True", "use_wandb=False"))
    assert "loggers" not in data and "add loggers: [{type: wandb, project: p}]" in told
    text = (
        "m = PPO('MlpPolicy', 'CartPole-v1', n_envs=2, tensorboard_log='x')\n"
        "c = CheckpointCallback(save_freq=1000)\n"
    )
    data, _ = imported("sb3", text)
    assert data["loggers"] == [{"type": "tensorboard"}]
    assert data["checkpoint"] == {"policies_every": 2000}  # calls of two environments


def test_save_model_sets_best_evaluation_and_eval_interval():
    draft = read_flags("--env_type=rmsa --SAVE_MODEL --STEPS_PER_INCREMENT=50000", {})
    assert draft.rest["checkpoint"] == {"best_evaluation": True}
    assert draft.rest["evaluation"]["every"] == 50_000
    draft.text()


def test_experiment_name_becomes_study_name():
    draft = read_flags("--env_type=rmsa --EXPERIMENT_NAME=mine --k=3", {})
    assert draft.rest["name"] == "mine"


def test_import_refuses_values_that_check_would_refuse(capsys):
    words = "--env_type=rmsa --NUM_ENVS=2 --NUM_MINIBATCHES=4 --RHO_CLIP=1 --C_CLIP=1"
    assert main(["import", "xlron", words]) == 2
    out, err = capsys.readouterr()
    assert not out and "num_envs" in err and "num_minibatches" in err


@pytest.mark.parametrize("value", ["false", "null"])
def test_harmless_values_are_listed_as_without_effect(imported, value):
    text = (
        f"env: CartPole-v1\nn_steps: 64\nuse_sde: {value}\nprogress_bar: {value}\nmine: {value}\n"
    )
    _, told = imported("sb3", text, name="x.yaml")
    head = told.split("\nname:")[0]
    assert "# Without effect: " in head and "Left out" not in head
    assert all(name in head for name in ("use_sde", "progress_bar", "mine"))


# --------------------------------------------------------------------------- Hydra

INCUMBENT = """# @package _global_
defaults:
  - override /environment: %s
  - override /algorithm: ppo
hp_config: {gamma: 0.99876, vf_clip_eps: 0.211}
"""


def test_hydra_environment_config_is_read_or_reported_missing(imported, tmp_path):
    _, told = imported("arlbench", INCUMBENT % "cc_acrobot", name="configs/incumbent/x.yaml")
    assert (
        "its environment 'cc_acrobot' is set in the missing file environment/cc_acrobot.yaml"
        in told
    )
    folder = tmp_path / "configs"
    (folder / "environment").mkdir()
    (folder / "algorithm").mkdir()
    (folder / "environment" / "cc_acrobot.yaml").write_text(
        'name: "Acrobot-v1"\nframework: gymnax\nn_total_timesteps: 1e5\nkwargs: {}\nn_envs: 4\n'
        "eval_kwargs: {reward_clip: false}\n"
    )
    (folder / "algorithm" / "ppo.yaml").write_text(
        "# @package _global_\nalgorithm: ppo\nhp_config: {gamma: 0.99, n_steps: 64}\n"
    )
    data, _ = imported("arlbench", INCUMBENT % "cc_acrobot", name="configs/incumbent/x.yaml")
    assert data["env"] == "Acrobot-v1" and data["env_steps"] == 100_000
    assert data["fixed"]["gamma"] == 0.99876 and data["fixed"]["rollout_length"] == 64
    assert data["fixed"]["num_envs"] == 4
    (folder / "environment" / "ant.yaml").write_text("name: ant\nframework: brax\n")
    data, _ = imported("arlbench", INCUMBENT % "ant", name="configs/incumbent/x.yaml")
    assert data["env"] == "brax:ant"
    text = (INCUMBENT % "cc_acrobot").replace("algorithm: ppo", "algorithm: dqn")
    _, told = imported("arlbench", text, name="configs/incumbent/x.yaml")
    assert "a study trains only PPO" in told


def test_hydra_override_command_is_read():
    words = "python run_arlbench.py algorithm=ppo environment.name=CartPole-v1 hp_config.gamma=0.9"
    draft = read_settings(words, "arlbench", {})
    assert draft.env["id"] == "CartPole-v1" and draft.fixed["gamma"] == 0.9


# --------------------------------------------------------------------------- Optuna


@pytest.fixture
def storage(tmp_path):
    """Return a storage whose range changed once, with an infinite value among its trials."""
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    study = optuna.create_study(study_name="one", storage=url, direction="maximize")
    for high, values in ((1e-2, (1.0, float("inf"), 2.0)), (1e-3, (3.0, 4.0))):
        for value in values:
            trial = study.ask()
            trial.suggest_float("learning_rate", 1e-5, high, log=True)
            trial.suggest_float("gamma", 0.9, 0.99)
            study.tell(trial, value)
    wide = optuna.distributions.FloatDistribution(1e-5, 1e-2, log=True)
    gammas = optuna.distributions.FloatDistribution(0.9, 0.99)
    first = optuna.trial.create_trial(
        params={"learning_rate": 9e-3, "gamma": 0.95},
        value=9.0,
        distributions={"learning_rate": wide, "gamma": gammas},
    )
    study.add_trial(first)
    last = study.ask()
    last.suggest_float("learning_rate", 1e-5, 1e-3, log=True)
    last.suggest_float("gamma", 0.9, 0.99)
    study.tell(last, 5.0)
    return url, study


def test_last_range_is_used_if_optuna_range_changed(storage):
    url, _ = storage
    draft = read_storage(url, None, {"env": "CartPole-v1"})
    assert draft.space["learning_rate"]["max"] == 1e-3
    assert any("learning_rate: its range changed" in note for note in draft.notes)
    study = loads(draft.text())
    assert study.enqueue
    assert all(one["learning_rate"] <= 1e-3 for one in study.enqueue)  # 9e-3 is best, and outside


def test_infinite_trial_is_not_enqueued_first(storage):
    url, theirs = storage
    draft = read_storage(url, None, {"env": "CartPole-v1"})
    infinite = next(trial for trial in theirs.trials if trial.value == float("inf"))
    assert infinite.params["gamma"] not in [one["gamma"] for one in draft.rest["enqueue"]]
    assert draft.rest["enqueue"][0]["gamma"] == theirs.trials[-1].params["gamma"]
    assert any("infinite value" in note for note in draft.notes)


# ---------------------------------------------------------------- every name is listed


def _names_of_yaml(data, outer=""):
    """Yield the names of nested data, whole and their last parts."""
    for name, value in data.items() if isinstance(data, dict) else ():
        yield f"{outer}{name}"
        yield from _names_of_yaml(value, f"{outer}{name}.")


def _is_listed(name, head):
    """Whether a name stands in one of the lists, by itself or as part of a dotted one."""
    words = set(re.split(r"[\s:;,()#]+", head))
    return any(
        word == name or word.startswith(f"{name}.") or word.endswith(f".{name}") for word in words
    )


@pytest.mark.parametrize(
    "name", [n for n, f in imported_files.FILES.items() if not isinstance(f.expected, str)]
)
def test_every_name_in_file_is_listed_in_import_notes(name, tmp_path, monkeypatch):
    file = imported_files.FILES[name]
    draft = _draft(file, tmp_path)
    if draft is None:
        pytest.skip("its environment's package is not installed")
    assert draft.unlisted() == []


@pytest.mark.parametrize(
    "name", [n for n, (_, e) in imported_sweeps.SWEEPS.items() if not isinstance(e, str)]
)
def test_every_sweep_parameter_is_listed_in_import_notes(name, tmp_path):
    text, _ = imported_sweeps.SWEEPS[name]
    (tmp_path / "sweep.yaml").write_text(text)
    draft = read_sweep(tmp_path / "sweep.yaml", {})
    head = draft.text().split("\n\n")[0]
    parameters = yaml.safe_load(text)["parameters"]
    assert draft.unlisted() == []
    for one in parameters:
        assert _is_listed(one.replace("-", "_"), head.replace("-", "_")), one


@pytest.mark.parametrize("name", imported_trains.COMMANDS)
def test_every_command_flag_is_listed_in_import_notes(name, tmp_path):
    text, *_ = imported_trains.COMMANDS[name]
    draft = read_flags(text, {})
    head = draft.text()
    for flag in re.findall(r"--(?:no)?(\w+)", text):
        assert _is_listed(flag, head) or _is_listed(f"no{flag}", head), flag
    assert draft.unlisted() == []


def _draft(file, tmp_path):
    source = file.text
    if file.name:
        source = str(tmp_path / file.name)
        Path(source).write_text(file.text, encoding="utf-8")
    if file.kind == "wandb":
        return read_sweep(Path(source), file.given)
    if file.kind == "rlzoo":
        return read_hyperparameters(Path(source), file.given)
    if file.kind == "configspace":
        return _space(Path(source), file.given)
    return read_settings(source, file.kind, file.given)


def _space(path, given):
    from hpo.importers.storages import read_space

    return read_space(path, given)


def test_json_is_read_as_yaml_is(imported):
    text = json.dumps({"env": "CartPole-v1", "n_steps": 64, "gamma": 0.9})
    data, _ = imported("sb3", text, name="x.json")
    assert data["fixed"]["rollout_length"] == 64 and data["fixed"]["gamma"] == 0.9


# ----------------------------------------------------------- flags that rules read, too


@pytest.mark.parametrize(
    ("kind", "text", "flags", "expected"),
    [
        (
            "jaxdem",
            "PPOTrainer.Create(env, model, num_envs=64, num_steps_epoch=32)\n",
            ("--env=navigators", "--num_epochs", "50"),
            {"env_steps": 50 * 64 * 32},
        ),
        (
            "torch_ppo",
            "PPOConfig(num_envs=2, rollout_steps=128)\n",
            ("--log_interval", "3"),
            {"log_every": 3 * 2 * 128},
        ),
        (
            "jaxdem",
            "PPOTrainer.Create(env, model, num_envs=64)\n",
            ("--env=navigators", "--lr_schedule_multiplier", "1"),
            {"lr_schedule_multiplier": 1.0},
        ),
        (
            "xlron",
            "--env_type=rmsa --LR=1e-3\n",
            ("--LR_END_FRACTION", "0.2"),
            {"lr_end_fraction": 0.2 * 1e-3},
        ),
        (
            "xlron",
            "--env_type=rmsa --EVAL_DURING_TRAINING\n",
            ("--EVAL_FREQUENCY", "2"),
            {"every": 200_000},
        ),
    ],
)
def test_flag_after_dashes_has_the_meaning_of_the_source_system(
    imported, kind, text, flags, expected
):
    """Flags after `--` went round the rules of their system: 50 updates became 50 env steps."""
    data, _ = imported(kind, text, *flags, name="flags.txt" if kind == "xlron" else "train.py")
    found = {**data, **data["fixed"], **data.get("evaluation", {})}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
