"""Brax's PPO and MuJoCo Playground's configurations: what trains, from lines as they have them."""

import pytest

from hpo.cli import main
from hpo.foreign_names.plain_values import NotPlain, Unread
from hpo.importers.brax_config import read_brax
from hpo.studies.check import check
from hpo.studies.load import loads
from hpo.studies.yaml_io import plain, read_text


@pytest.fixture
def imported(tmp_path, capsys):
    def run(kind, text, *flags):
        (tmp_path / "train.py").write_text(text)
        code = main(["import", kind, str(tmp_path / "train.py"), "--", *flags])
        out, err = capsys.readouterr()
        assert "Traceback" not in err and (code == 0 or (code == 2 and not out))
        if code:
            return None, err
        assert not check(loads(out)).mistakes
        return plain(read_text(out, "study.yaml")), out

    return run


PLAYGROUND = """
def brax_vision_ppo_config(env_name, impl=None):
  return config_dict.create(num_timesteps=1_000, unroll_length=99, episode_length=250)

def brax_ppo_config(env_name: str, impl: Optional[str] = None):
  env_config = dm_control_suite.get_default_config(env_name)
  rl_config = config_dict.create(
      num_timesteps=60_000_000, num_evals=10, reward_scaling=10.0,
      episode_length=env_config.episode_length, normalize_observations=True, action_repeat=1,
      unroll_length=30, num_minibatches=32, num_updates_per_batch=16, discounting=0.995,
      learning_rate=1e-3, entropy_cost=1e-2, num_envs=2048, batch_size=1024,
      num_resets_per_eval=10, network_factory=config_dict.create(
          policy_hidden_layer_sizes=(64,) * 2, value_hidden_layer_sizes=(64, 64)))
  if env_name.startswith("AcrobotSwingup"):
    rl_config.num_timesteps = 100_000_000
  if env_name in ("BallInCup", "FingerSpin") and not impl:
    rl_config.discounting = 0.95
  elif env_name == "PendulumSwingup":
    rl_config.num_updates_per_batch = 4
    rl_config.network_factory.value_hidden_layer_sizes = (256, 256)
  elif env_name == "Nowhere":
    raise ValueError(env_name)
  return rl_config
"""


def test_playground_config_imports_one_environment(imported):
    data, said = imported("brax", PLAYGROUND, "--env", "BallInCup")
    assert data["env"] == "playground:BallInCup" and data["env_steps"] == 60_000_000
    fixed = {
        name: data["fixed"].get(name)
        for name in (
            "rollout_length",
            "num_minibatches",
            "update_epochs",
            "num_envs",
            "gamma",
            "learning_rate",
            "ent_coef",
            "reward_scale",
            "clip_eps",
            "hidden_sizes",
            "activation",
            "distribution",
            "normalise_observations",
        )
    }
    assert fixed == {
        "rollout_length": 30 * 1024 * 32 // 2048,
        "num_minibatches": 32,
        "update_epochs": 16,
        "num_envs": 2048,
        "gamma": 0.95,
        "learning_rate": 1e-3,
        "ent_coef": 1e-2,
        "reward_scale": 10.0,
        "clip_eps": 0.3,
        "hidden_sizes": [64, 64],
        "activation": "silu",
        "distribution": "tanh_gaussian",
        "normalise_observations": True,
    }
    assert data["evaluation"] == {"every": 6_666_666, "episodes": 128, "greedy": False}
    assert "batch_size: 1024 x 32 unrolls of 30 env steps make an update" in said
    assert "episode_length: env_config.episode_length" in said
    data, _ = imported("brax", PLAYGROUND, "--env", "playground:AcrobotSwingup")
    assert data["env_steps"] == 100_000_000 and data["fixed"]["gamma"] == 0.995


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ("", "settings depend on the environment; name one"),
        ("Nowhere", "no settings for Nowhere"),
        ("PendulumSwingup", r"policy layers [64, 64] and value layers [256, 256] differ"),
    ],
)
def test_unusable_playground_config_is_refused_in_one_line(imported, env, told):
    data, said = imported("brax", PLAYGROUND, *(["--env", env] if env else []))
    assert data is None and told in said and len(said.strip().splitlines()) == 1


def test_a_branch_on_something_unknown_is_refused():
    text = PLAYGROUND.replace("not impl", "jax.device_count() > 1")
    with pytest.raises(NotPlain, match=r"the condition .*device_count.* cannot be read"):
        read_brax(text, "BallInCup")
    assert read_brax(text, "WalkerRun").named["discounting"] == 0.995


@pytest.mark.parametrize(
    "condition",
    [
        "env_name in NAMES",
        "env_name not in NAMES",
        "env_name == NAME",
        "env_name != NAME",
        "env_name in 5",
        "env_name.startswith(NAME)",
    ],
)
def test_comparisons_with_unknown_values_are_refused(condition):
    """They must not count as text: `ant` is in the word `NAMES_with_ant`."""
    text = PLAYGROUND.replace('env_name in ("BallInCup", "FingerSpin") and not impl', condition)
    assert condition in text
    with pytest.raises(NotPlain, match="cannot be read"):
        read_brax(text.replace("NAMES", "NAMES_with_WalkerRun"), "WalkerRun")


@pytest.mark.parametrize(
    "condition",
    ["env_name in NAMES", "env_name == NAMES[0]", "env_name.startswith(('Ball', 'x'))"],
)
def test_comparisons_with_constants_of_the_module_are_followed(condition):
    plain = read_brax(PLAYGROUND, "BallInCup").named
    text = PLAYGROUND.replace('env_name in ("BallInCup", "FingerSpin") and not impl', condition)
    if "[0]" in condition:
        with pytest.raises(NotPlain, match="cannot be read"):
            read_brax(text, "BallInCup")
        return
    assert read_brax(f"NAMES = ('BallInCup', 'x')\n{text}", "BallInCup").named == plain


NOTEBOOK = """
env_name = 'ant'
env = envs.get_environment(env_name=env_name, backend='spring')
make_networks = functools.partial(ppo_networks.make_ppo_networks,
                                  policy_hidden_layer_sizes=(32, 32))
train_fn = {
  'ant': functools.partial(ppo.train, num_timesteps=50_000_000, num_evals=11, reward_scaling=10,
      episode_length=1000, normalize_observations=True, action_repeat=1, unroll_length=5,
      num_minibatches=32, num_updates_per_batch=4, discounting=0.97, learning_rate=3e-4,
      entropy_cost=1e-2, num_envs=2048, batch_size=2048, seed=1),
  'reacher': functools.partial(ppo.train, num_timesteps=50_000_000, action_repeat=4,
      unroll_length=50, num_minibatches=32, num_envs=2048, batch_size=256),
}[env_name]
params = train_fn(environment=env, progress_fn=progress)
"""


def test_brax_train_call_is_selected_by_environment(imported):
    data, said = imported("brax", NOTEBOOK)
    assert data is None and "4 x 32 for the policy, 5 x 256 for the value" in said
    assert "(-- --hidden_sizes [256,256])" in said
    data, _ = imported("brax", NOTEBOOK, "--hidden_sizes", "[256,256]")
    assert data["env"] == {"id": "brax:ant", "max_steps_in_episode": 1000} and data["seed"] == 1
    assert data["fixed"]["rollout_length"] == 5 * 32 and data["fixed"]["num_minibatches"] == 32
    assert data["fixed"]["hidden_sizes"] == [256, 256]
    assert data["evaluation"]["every"] == 5_000_000
    data, said = imported("brax", NOTEBOOK, "--env", "reacher", "--hidden_sizes", "[8,8]")
    assert data is None and "action_repeat (4) cannot be imported" in said


def test_brax_batch_not_multiple_of_num_envs_is_refused(imported):
    text = NOTEBOOK.replace("num_envs=2048, batch_size=2048", "num_envs=2000, batch_size=1")
    data, said = imported("brax", text, "--hidden_sizes", "[8,8]")
    assert data is None and "32 unrolls; brax needs a multiple of num_envs (2000)" in said
    assert "(-- --num_envs 32)" in said


def test_several_train_calls_need_env_and_unread_values_are_kept():
    text = "ppo.train(num_envs=2, seed=1, gae_lambda=f(x))\n"
    value = read_brax(text, None).named["gae_lambda"]
    assert isinstance(value, Unread) and value == "f(x)" and value.line == 1
    with pytest.raises(NotPlain, match=r"2 calls to train \(lines 1, 2\)"):
        read_brax(text * 2, None)
    with pytest.raises(NotPlain, match="settings for ant, reacher; name one"):
        read_brax(NOTEBOOK, "hopper")


# -------------------------------------------------------------------------- ARLBench

ARLBENCH = """
agent = PPO(config, make_env("gymnax", "CartPole-v1", n_envs=10), track_metrics=True)
state = agent.init(rng)
for step in range(4):
    state, result = agent.train(*state, n_total_timesteps=10_000, n_eval_steps=5)
"""


def test_train_call_in_loop_multiplies_env_steps(imported):
    data, said = imported("arlbench", ARLBENCH)
    assert data["env_steps"] == 40_000 and "10,000, repeated 4 times" in said
    assert data["evaluation"]["every"] == 2000
    assert data["checkpoint"] == {"parts": ["losses", "gradients", "advantages"]}
    data, _ = imported("arlbench", ARLBENCH, "--env_steps", "70k")
    assert data["env_steps"] == 70_000
    data, said = imported("arlbench", ARLBENCH.replace("range(4)", "schedule"))
    assert data is None and "train is called in a loop" in said
    assert "(-- --env_steps 100000)" in said


def test_agent_created_inside_loop_trains_once(imported):
    text = "".join(f"    {line}\n" for line in ARLBENCH.splitlines() if "for" not in line)
    data, _ = imported("arlbench", f"for seed in range(4):\n{text.replace('        ', '    ')}")
    assert data["env_steps"] == 10_000


def test_autorl_n_steps_is_not_rollout_length(imported):
    text = (
        'env = AutoRLEnv({"env_name": "CartPole-v1", "env_framework": "gymnax", '
        '"n_steps": 3, "checkpoint": ["all"], "n_eval_steps": 10})\n'
        "for _ in range(3):\n    obs, objectives, _, _, _ = env.step(action)\n"
    )
    data, said = imported("arlbench", text)
    assert data["fixed"].get("rollout_length", 128) == 128 and data["fixed"]["num_envs"] == 10
    assert data["env_steps"] == 300_000 and data["evaluation"]["every"] == 10_000
    assert data["checkpoint"]["parts"] == ["parameters", "optimiser", "losses", "trajectories"]
    assert "n_steps: AutoRLEnv allows at most 3 steps" in said


@pytest.mark.parametrize(
    "change",
    [
        "rl_config.num_timesteps *= 2",
        "rl_config.update(entropy_cost=5e-3)",
        "for _ in range(2): rl_config.unroll_length = 10",
        "rl_config = scaled(rl_config)",
    ],
)
def test_playground_statement_that_is_not_followed_is_refused(imported, change):
    text = PLAYGROUND.replace("  return rl_config", f"  {change}\n  return rl_config")
    data, said = imported("brax", text, "--env", "BallInCup")
    assert data is None and "may change settings and cannot be read" in said


def test_playground_subscript_and_unlocked_block_are_followed(imported):
    text = "  rl_config['entropy_cost'] = 5e-3\n  with rl_config.unlocked():\n"
    text += "    rl_config.discounting = 0.9\n    seen = rl_config.num_envs\n  return rl_config"
    text = PLAYGROUND.replace("  return rl_config", text)
    data, _ = imported("brax", text, "--env", "BallInCup")
    assert data["fixed"]["ent_coef"] == 5e-3 and data["fixed"]["gamma"] == 0.9


def test_rate_of_a_parameter_that_a_call_overrides_is_refused(imported):
    text = """
def main(rate=3e-4):
    ppo.train(environment=env, num_timesteps=1e6, unroll_length=5, num_minibatches=8, num_envs=64,
              batch_size=8, learning_rate=rate, hidden_sizes=[64])
main(1e-3)
"""
    data, said = imported("brax", text, "--env", "brax:ant", "--hidden_sizes", "[64]")
    assert data is None and "learning_rate is rate, which cannot be read" in said


@pytest.mark.parametrize(
    ("calls", "steps"),
    [
        ("model.learn(10_000)\nmodel.learn(10_000)\n", 20_000),
        ("model.learn(10_000)\nmodel = PPO('MlpPolicy', env)\nmodel.learn(10_000)\n", 10_000),
        ("if x:\n    model.learn(10_000)\nelse:\n    model.learn(10_000)\n", 10_000),
    ],
)
def test_repeated_calls_of_learn_are_added_up(imported, calls, steps):
    text = "env = make_vec_env('CartPole-v1', n_envs=4)\nmodel = PPO('MlpPolicy', env)\n"
    data, _ = imported("sb3", text + calls)
    assert data["env_steps"] == steps


def test_a_given_number_of_minibatches_replaces_the_size(imported):
    text = "PPO('MlpPolicy', 'CartPole-v1', n_steps=256{size}).learn(10_000)\n"
    for size in ("", ", batch_size=64"):
        data, _ = imported("sb3", text.format(size=size), "--num_minibatches", "7")
        assert data["fixed"]["num_minibatches"] == 7 and "minibatch_size" not in data["fixed"]
    text = "PPO.create(env='CartPole-v1', num_minibatches=8)\n"
    data, _ = imported("rejax", text, "--minibatch_size", "32")
    assert data["fixed"]["minibatch_size"] == 32 and "num_minibatches" not in data["fixed"]
