"""Lines of files as their makers have them, on GitHub, that once became something else here."""

import json

import optuna
import pytest

from hpo.cli import main
from hpo.studies.check import check
from hpo.studies.load import loads
from hpo.studies.yaml_io import plain, read_text


@pytest.fixture
def imported(tmp_path, capsys):
    """Return what runs `hpo import`: the code, what it says, and the study's data and text."""

    def run(kind, text, *flags, name="train.py"):
        source = text
        if name:
            source = str(tmp_path / name)
            (tmp_path / name).write_text(text)
        code = main(["import", kind, source, "--", *flags])
        out, err = capsys.readouterr()
        assert "Traceback" not in err and (code == 0 or (code == 2 and not out))
        if code:
            return None, err
        assert not check(loads(out)).mistakes
        return plain(read_text(out, "study.yaml")), out

    return run


# keraJLi/rejax examples/custom_network.py, evo_hyperopt.py; HighwayEnv scripts/sb3_highway_dqn.py;
# optuna-examples rl/sb3_simple.py
REJAX_DQN = """
algo = DQN.create(env="Freeway-MinAtar", total_timesteps=1_000_000, eval_freq=50_000, num_epochs=1,
                  learning_rate=0.00025, max_grad_norm=10, batch_size=32, num_envs=50,
                  buffer_size=100_000, ddqn=True)
"""
REJAX_SAC = """
algo_cls = get_algo("sac")
static_params = {"env": "Pendulum-v1", "total_timesteps": 10_000, "num_envs": 1, "num_epochs": 1}
algo = algo_cls.create(**static_params)
"""
SB3_DQN = """
model = DQN("MlpPolicy", env, policy_kwargs=dict(net_arch=[256, 256]), learning_rate=5e-4,
            buffer_size=15000, learning_starts=200, batch_size=32, gamma=0.8, train_freq=1)
model.learn(total_timesteps=int(2e4))
"""
SB3_A2C = """
DEFAULT_HYPERPARAMS = {"policy": "MlpPolicy", "env": "CartPole-v1"}
kwargs = DEFAULT_HYPERPARAMS.copy()
model = A2C(**kwargs)
model.learn(20_000, callback=eval_callback)
"""


@pytest.mark.parametrize(
    ("kind", "text", "algorithm"),
    [
        ("rejax", REJAX_DQN, "DQN"),
        ("rejax", REJAX_SAC, "sac"),
        ("sb3", SB3_DQN, "DQN"),
        ("sb3", SB3_A2C, "A2C"),
    ],
)
def test_a_script_of_another_algorithm_is_refused(kind, text, algorithm, imported):
    found, says = imported(kind, text, "--env=CartPole-v1")
    assert found is None
    assert f"uses {algorithm}" in says and "only PPO" in says


def test_values_of_another_algorithm_do_not_reach_ppo(imported):
    text = (
        'model = PPO("MlpPolicy", "CartPole-v1", n_steps=64)\nmodel.learn(10_000)\n'
        'other = SAC("MlpPolicy", "Pendulum-v1", learning_rate=7e-4, batch_size=256)\n'
    )
    found, _ = imported("sb3", text)
    assert found["env"] == "CartPole-v1" and found["fixed"]["learning_rate"] == 3e-4
    assert found["fixed"]["minibatch_size"] == 64


def test_seed_none_is_listed_as_without_effect(imported):
    """Craftax_Baselines ppo.py: `parser.add_argument("--seed", type=int)`."""
    text = (
        'parser.add_argument("--env_name", type=str, default="CartPole-v1")\n'
        'parser.add_argument("--num_steps", type=int, default=64)\n'
        'parser.add_argument("--seed", type=int)\n'
    )
    found, says = imported("purejaxrl", text)
    assert "seed" not in found and "Without effect: seed None" in says
    found, says = imported("sb3", "env: CartPole-v1\nn_steps: 64\nseed: null\n", name="c.yaml")
    assert "seed" not in found and "Without effect: seed None" in says


def test_file_without_settings_is_refused(imported):
    """popjaxrl algorithms/ppo_gru.py only computes with the values of another file."""
    text = """
config["NUM_UPDATES"] = config["TOTAL_TIMESTEPS"] // config["NUM_STEPS"] // config["NUM_ENVS"]
config["MINIBATCH_SIZE"] = config["NUM_ENVS"] * config["NUM_STEPS"] // config["NUM_MINIBATCHES"]
"""
    found, says = imported("purejaxrl", text)
    assert found is None and "has no settings for PureJaxRL" in says


def test_equal_values_under_two_names_are_accepted(imported):
    text = """
N_ENVS = 48  # parallel environments
PPO_KWARGS = dict(learning_rate=3e-4, n_steps=256, batch_size=2048, n_epochs=10)
venv = make_vec_env("CartPole-v1", n_envs=N_ENVS, seed=0)
model = PPO('MlpPolicy', venv, **PPO_KWARGS)
model.learn(100_000)
"""
    found, says = imported("sb3", text)
    assert found, says
    assert found["fixed"]["num_envs"] == 48
    found, says = imported(
        "sb3", text.replace("N_ENVS = 48", "N_ENVS = 8").replace("n_envs=N_ENVS", "n_envs=4")
    )
    assert found is None and "both set num_envs" in says


NORMALISED = """
vec_env = make_vec_env("Pendulum-v1", n_envs=1)
vec_env = VecNormalize(vec_env, norm_obs=True, norm_reward=True, clip_obs=10.0{})
model = PPO("MlpPolicy", vec_env, gamma={})
model.learn(total_timesteps=2000)
"""


@pytest.mark.parametrize(
    ("there", "gamma", "differs"),
    [
        ("", 0.99, False),
        (", gamma=0.99", 0.99, False),
        ("", 0.9, True),
        (", gamma=0.95", 0.9, True),
        (", gamma=0.9", 0.9, False),
    ],
)
def test_differing_gamma_of_vecnormalize_is_reported(there, gamma, differs, imported):
    """Stable-Baselines3 docs/guide/examples.md; VecNormalize has a gamma of its own, 0.99."""
    found, says = imported("sb3", NORMALISED.format(there, gamma))
    assert found, says
    assert found["fixed"]["normalise_rewards"] is True
    assert ("rewards are normalised with the study's gamma" in says) == differs


def test_suggested_linear_schedule_ends_at_zero_as_in_sb3(imported):
    """Stable-Baselines3 docs/guide/examples.md: `progress_remaining * initial_value`."""
    text = (
        'model = PPO("MlpPolicy", "CartPole-v1", learning_rate=linear_schedule(0.001))\n'
        "model.learn(total_timesteps=20_000)\n"
    )
    found, says = imported("sb3", text)
    assert found is None and "lr_schedule=linear" in says
    found, _ = imported("sb3", text, "--learning_rate", "0.001", "--lr_schedule=linear")
    assert found["fixed"]["lr_end_fraction"] == 0.0


def test_zoo_command_needs_its_hyperparameter_file(imported):
    """rl-baselines3-zoo README.md: its settings are in hyperparams/ppo.yml."""
    for text in (
        "python train.py --algo ppo --env CartPole-v1 --tensorboard-log /tmp/stable-baselines/",
        "python -m rl_zoo3.train --algo ppo --env CartPole-v1 --eval-freq 10000 --save-freq 50000",
    ):
        found, says = imported("sb3", text, name="")
        assert found is None and "import ppo.yml as rlzoo (--env CartPole-v1)" in says


@pytest.mark.parametrize("kind", ["sb3", "cleanrl"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "ppo.yml",
            "atari: {policy: CnnPolicy, n_timesteps: 1e7}\n%s: {n_timesteps: 1e5, policy: a}",
        ),
        ("ppo.py", 'hyperparams = {"%s": dict(policy="MlpPolicy", n_timesteps=1e5, n_steps=32)}'),
    ],
)
def test_zoo_hyperparameter_file_names_its_reader(imported, kind, name, text):
    found, says = imported(kind, text % "CartPole-v1", name=name)
    assert found is None and "is an rl-zoo3 hyperparameter file" in says
    assert f"{name} --env CartPole-v1)" in says and "(hpo import rlzoo " in says


def test_different_policy_and_value_towers_suggest_replacement(imported):
    """GreenLight-Gym2 gl_gym/configs/agents/ppo.yml."""
    text = """
Pendulum-v1:
  n_envs: 8
  n_steps: 2048
  policy_kwargs: {net_arch: {pi: [256, 256, 256], vf: [512, 512, 512]}, activation_fn: silu}
"""
    found, says = imported("rlzoo", text, name="ppo.yml")
    assert found is None and "(-- --policy_kwargs VALUE)" in says
    words = ("--policy_kwargs", "dict(net_arch=[256, 256], activation_fn=nn.SiLU)")
    found, _ = imported("rlzoo", text, *words, name="ppo.yml")
    assert found["fixed"]["hidden_sizes"] == [256, 256] and found["fixed"]["activation"] == "silu"
    words = ("--without", "policy_kwargs", "--hidden_sizes", "[256, 256]")
    found, says = imported("rlzoo", text, *words, name="ppo.yml")
    assert found, says
    assert found["fixed"]["hidden_sizes"] == [256, 256]


CONTINUOUS = """
@dataclass
class Args:
    env_id: str = "Pendulum-v1"
    learning_rate: float = 3e-4
    num_envs: int = 1
    num_steps: int = 2048
    clip_coef: float = 0.2
    update_epochs: int = 10

env = gym.wrappers.NormalizeObservation(env)
env = gym.wrappers.TransformObservation(env, lambda obs: np.clip(obs, -10, 10))
env = gym.wrappers.NormalizeReward(env, gamma=gamma)
"""


def test_normalising_cleanrl_copy_is_recognised_under_any_name(imported):
    """rejax benchmark/cleanRL, ppo-implementation-details: copies of ppo_continuous_action.py."""
    for name in ("my_agent.py", "ppo_continuous_action_tuned.py", "ppo_continuous_action.py"):
        found, says = imported("cleanrl", CONTINUOUS, name=name)
        assert found["fixed"]["normalise_observations"] is True, name
        assert found["fixed"].get("normalise_rewards", True) is True
        assert "Read as CleanRL's ppo_continuous_action.py" in says
    found, says = imported("cleanrl", CONTINUOUS.split("env = gym")[0], name="my_agent.py")
    assert "Read as CleanRL's ppo.py" in says


HOPPER = """
name: "ppo"
defaults:
  - env_wrappers:
      - vec_normalize
  - base
algorithm:
  _target_: stable_baselines3.PPO
  policy: "MlpPolicy"
  learning_rate: 9.80828e-5
  batch_size: 32
"""


def test_hydra_defaults_and_targets_are_read_or_listed(tmp_path, imported):
    """pg_subspaces' configurations of Stable-Baselines3, in the notation of Hydra."""
    (tmp_path / "base.yaml").write_text("algorithm: {n_steps: 512, gamma: 0.999}\n")
    found, says = imported("sb3", HOPPER, "--env=Pendulum-v1", name="hopper.yaml")
    assert found, says
    assert found["fixed"]["rollout_length"] == 512 and found["fixed"]["gamma"] == 0.999
    assert "defaults/env_wrappers: no counterpart; its value is ['vec_normalize']" in says
    assert "_target_: no counterpart" in says
    schedule = "{_target_: pg_subspaces.training.schedules.LinearSchedule, start: 0.001, end: 0.0}"
    text = HOPPER.replace("9.80828e-5", schedule)
    found, says = imported("sb3", text, "--env=Pendulum-v1", name="hopper.yaml")
    assert found is None and "is not a schedule such as lin_0.001" in says
    assert "(-- --algorithm.learning_rate VALUE)" in says
    flags = ("--env=Pendulum-v1", "--algorithm.learning_rate", "lin_0.001")
    found, says = imported("sb3", text, *flags, name="hopper.yaml")
    assert found, says
    assert found["fixed"]["lr_schedule"] == "linear"
    text = HOPPER.replace("stable_baselines3.PPO", "stable_baselines3.SAC")
    found, says = imported("sb3", text, "--env=Pendulum-v1", name="hopper.yaml")
    assert found is None and "uses stable_baselines3.SAC" in says


# ------------------------------------------------------------------------ spaces and studies


def storage(tmp_path, **choices):
    study = optuna.create_study(
        storage=f"sqlite:///{tmp_path / 'optuna.db'}", study_name="ppo_hover", direction="maximize"
    )
    for number in range(3):
        trial = study.ask()
        trial.suggest_float("learning_rate", 1e-5, 1e-3, log=True)
        trial.suggest_float("clip_range", 0.1, 0.3)
        trial.suggest_categorical("n_steps", [256, 512, 800, 1024, 2048])
        for name, values in choices.items():
            trial.suggest_categorical(name, values)
        study.tell(trial, float(number))
    return str(tmp_path / "optuna.db")


def test_unknown_net_arch_words_are_refused(tmp_path, imported):
    """uav_reinforcement_learning_control optimize.py: small is [128, 128] there."""
    path = storage(tmp_path, net_arch=["small", "medium", "large"])
    found, says = imported("optuna", path, "--env=Pendulum-v1", "--env_steps=50k", name="")
    assert found is None and "'large' is not one list" in says
    assert "-- --without net_arch" in says
    found, says = imported(
        "optuna", path, "--env=Pendulum-v1", "--env_steps=50k", "--without=net_arch", name=""
    )
    assert found, says
    assert "net_arch: as requested" in says and len(found["enqueue"]) == 3
    assert "hidden_sizes" not in found["space"]


def test_net_arch_words_are_listed_with_their_widths(tmp_path, imported):
    path = storage(tmp_path, net_arch=["small", "medium"])
    found, says = imported("optuna", path, "--env=Pendulum-v1", "--env_steps=50k", name="")
    assert found, says
    assert found["space"]["hidden_sizes"]["values"] == [[64, 64], [256, 256]]
    assert "small is [64, 64]" in says


def test_numbers_in_scientific_notation_without_point_are_numbers(imported):
    """Mighty mighty/configs/search_space/dqn_gym_classic.yaml; plain YAML reads 1e-6 as text."""
    text = """
hyperparameters:
  algorithm_kwargs.learning_rate:
    type: uniform_float
    lower: 1e-6
    upper: 1e-2
    log: true
    default_value: 5e-3
  algorithm_kwargs.batch_size: {type: categorical, choices: [32, 64, 128, 256], default_value: 32}
"""
    found, says = imported("configspace", text, "--env=CartPole-v1", name="space.yaml")
    assert found, says
    assert found["space"]["learning_rate"] == {
        "min": 1e-6,
        "max": 1e-2,
        "distribution": "log_uniform",
        "default": 5e-3,
    }


def test_without_flag_drops_configspace_hyperparameter(imported):
    fields = [
        {
            "type": "uniform_float",
            "name": "learning_rate",
            "lower": 1e-5,
            "upper": 1e-2,
            "log": True,
        },
        {"type": "categorical", "name": "net_arch", "choices": ["small", "large"]},
    ]
    text = json.dumps({"hyperparameters": fields, "conditions": [], "forbiddens": [],
                       "python_module_version": "1.2.0", "format_version": 0.4})  # fmt: skip
    flags = ("--env=CartPole-v1", "--system=sb3")
    found, _ = imported("configspace", text, *flags, name="space.json")
    assert found is None
    found, says = imported("configspace", text, *flags, "--without=net_arch", name="space.json")
    assert found, says
    assert list(found["space"]) == ["learning_rate"] and "net_arch: as requested" in says


def test_refusal_reports_line_of_the_chosen_environment(imported):
    """rl-baselines3-zoo hyperparams/ppo.yml: use_sde is in many of its environments."""
    text = """
Pendulum-v1: &usual
  n_envs: 4
  use_sde: True

MountainCarContinuous-v0:
  use_sde: True

Acrobot-v1:
  <<: *usual
"""
    for env in ("MountainCarContinuous-v0", "Acrobot-v1"):
        found, says = imported("rlzoo", text, f"--env={env}", name="ppo.yml")
        assert found is None and f"ppo.yml: {env}: use_sde" in says


# Stable-Baselines3 docs/guide/examples.rst, "Atari Games"
SB3_ATARI = """
vec_env = make_atari_env("PongNoFrameskip-v4", n_envs=4, seed=0%s)
vec_env = VecFrameStack(vec_env, n_stack=%d)
model = PPO("CnnPolicy", vec_env, verbose=1)
model.learn(total_timesteps=25_000)
"""
ZOO_ATARI = """
PongNoFrameskip-v0:
  env_wrapper:
    - stable_baselines3.common.atari_wrappers.AtariWrapper:
        terminal_on_life_loss: false
        screen_size: 64
        %s
  policy: CnnPolicy
  n_timesteps: !!float 1e6
"""


@pytest.mark.parametrize(
    ("kind", "text", "name", "keys"),
    [
        (
            "sb3",
            SB3_ATARI % ("", 4),
            "a.py",
            {"episodic_life": True, "repeat_action_probability": 0.0},
        ),
        (
            "sb3",
            SB3_ATARI % (", wrapper_kwargs=dict(clip_reward=False, noop_max=10)", 2),
            "a.py",
            {
                "episodic_life": True,
                "repeat_action_probability": 0.0,
                "reward_clipping": False,
                "noop_max": 10,
                "stack_num": 2,
            },
        ),
        (
            "rlzoo",
            ZOO_ATARI % "frame_skip: 3",
            "ppo.yml",
            {
                "episodic_life": False,
                "repeat_action_probability": 0.25,
                "img_height": 64,
                "img_width": 64,
                "frameskip": 3,
                "stack_num": 1,
            },
        ),
    ],
)
def test_the_wrapper_of_atari_games_is_keys_of_the_game(kind, text, name, keys, imported):
    found, says = imported(kind, text, name=name)
    assert found["env"] == {"id": "gym:ALE/Pong-v5", **keys}, says
    assert found["fixed"]["network"] == "cnn" and "history" not in found["fixed"]


def test_an_argument_that_the_wrapper_lacks_and_a_second_wrapper_are_refused(imported):
    found, says = imported("rlzoo", ZOO_ATARI % "colour: true", name="ppo.yml")
    assert found is None and "AtariWrapper has no argument colour" in says
    more = "noop_max: 5\n    - gymnasium.wrappers.FlattenObservation"
    found, says = imported("rlzoo", ZOO_ATARI % more, name="ppo.yml")
    assert found is None and "wrappers change the environment" in says


def test_a_setting_that_a_trial_did_not_set_has_the_default_of_the_source(tmp_path, imported):
    path = tmp_path / "optuna.db"
    study = optuna.create_study(storage=f"sqlite:///{path}", direction="maximize")
    for number in range(4):
        trial = study.ask()
        trial.suggest_float("learning_rate", 1e-5, 1e-3, log=True)
        trial.suggest_int("n_epochs", 2, 12)
        trial.suggest_int("batch_size", 32, 64, step=32)
        if number < 2:
            trial.suggest_float("vf_coef", 0.1, 1.0)
            trial.suggest_categorical("n_steps", [128, 2048])
        study.tell(trial, float(number))
    found, says = imported("optuna", str(path), "--env=CartPole-v1", "--env_steps=50k", name="")
    assert found, says
    for enqueued in found["enqueue"][:2]:  # 0.5 and 2048 in Stable-Baselines3
        assert enqueued["vf_coef"] == 1.0 and enqueued["rollout_length"] == 2048


CONFIG = """
import jax
from ppo import make_train
config = {"LR": 2.5e-4, "NUM_ENVS": 4, "NUM_STEPS": 128, "TOTAL_TIMESTEPS": 5e5,
          "NUM_MINIBATCHES": 4, "ENV_NAME": "CartPole-v1", "ANNEAL_LR": True}
rng = jax.random.PRNGKey(42)
"""
AGENT = """
import jax
from rejax import PPO
algo = PPO.create(env="CartPole-v1", learning_rate=0.001, num_envs=8)
N = 16
"""


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("purejaxrl", CONFIG + "jax.vmap(make_train(config))(jax.random.split(rng, 16))\n"),
        (
            "purejaxrl",
            f"{CONFIG}train = make_train(config)\nkeys = jax.random.split(rng, num=16)\n"
            "train_all = jax.jit(jax.vmap(train))\nout = train_all(keys)\n",
        ),
        (
            "rejax",
            f"{AGENT}keys = jax.random.split(jax.random.PRNGKey(0), N)\n"
            "train = jax.jit(jax.vmap(PPO.train, in_axes=(None, 0)))\ntrain(algo, keys)\n",
        ),
    ],
)
def test_vmapped_training_has_as_many_seeds_as_keys(imported, kind, text):
    data, _ = imported(kind, text)
    assert data["seeds"] == {"per_config": 16}


def test_unreadable_number_of_keys_is_reported(imported):
    text = CONFIG + "jax.vmap(make_train(config))(jax.random.split(rng, count()))\n"
    data, said = imported("purejaxrl", text)
    assert "seeds" not in data and "vmap: the number of its keys cannot be read" in said
    plain = CONFIG + "jax.vmap(env.reset)(jax.random.split(rng, 16))\nmake_train(config)(rng)\n"
    data, said = imported("purejaxrl", plain)
    assert "seeds" not in data and "vmap" not in said
