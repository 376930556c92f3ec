"""Files and commands of other programs, in the shapes that their documentation shows.

Written for the tests: the same names and values, nothing else of theirs.
"""

from __future__ import annotations

# ---------------------------------------------------------------------- rl-zoo3

ZOO = """
# Default hyperparameters
default:
  n_timesteps: !!float 1e6
  policy: 'MlpPolicy'

atari:
  env_wrapper:
    - stable_baselines3.common.atari_wrappers.AtariWrapper
  frame_stack: 4
  policy: 'CnnPolicy'
  n_envs: 8
  n_steps: 128
  n_epochs: 4
  batch_size: 256
  n_timesteps: !!float 1e7
  learning_rate: lin_2.5e-4
  clip_range: lin_0.1
  vf_coef: 0.5
  ent_coef: 0.01

# Tuned
CartPole-v1:
  n_envs: 8
  n_timesteps: !!float 1e5
  policy: 'MlpPolicy'
  n_steps: 32
  batch_size: 256
  gae_lambda: 0.8
  gamma: 0.98
  n_epochs: 20
  ent_coef: 0.0
  learning_rate: lin_0.001
  clip_range: lin_0.2

Pendulum-v1:
  n_envs: 4
  n_timesteps: !!float 1e5
  policy: 'MlpPolicy'
  n_steps: 1024
  gae_lambda: 0.95
  gamma: 0.9
  n_epochs: 10
  ent_coef: 0.0
  learning_rate: !!float 1e-3
  clip_range: 0.2
  use_sde: True
  sde_sample_freq: 4

MountainCar-v0:
  normalize: true
  n_envs: 16
  n_timesteps: !!float 1e6
  policy: 'MlpPolicy'
  n_steps: 16
  gae_lambda: 0.98
  gamma: 0.99
  n_epochs: 4
  ent_coef: 0.0

MountainCarContinuous-v0:
  normalize: true
  n_envs: 1
  n_timesteps: !!float 20000
  policy: 'MlpPolicy'
  batch_size: 256
  n_steps: 8
  gamma: 0.9999
  learning_rate: !!float 7.77e-05
  use_sde: True
  policy_kwargs: "dict(log_std_init=-3.29, ortho_init=False)"

LunarLander-v3:
  n_envs: 16
  n_timesteps: !!float 1e6
  policy: 'MlpPolicy'
  n_steps: 1024
  batch_size: 64
  gae_lambda: 0.98
  gamma: 0.999
  n_epochs: 4
  ent_coef: 0.01

# === Mujoco Envs ===
Ant-v4: &mujoco-defaults
  normalize: true
  n_timesteps: !!float 1e6
  policy: 'MlpPolicy'

Swimmer-v4:
  <<: *mujoco-defaults
  gamma: 0.9999
  n_envs: 4
  n_steps: 1024
  batch_size: 256
  learning_rate: !!float 6e-4
  gae_lambda: 0.98

HalfCheetah-v4:
  normalize: true
  n_envs: 1
  policy: 'MlpPolicy'
  n_timesteps: !!float 1e6
  batch_size: 64
  n_steps: 512
  gamma: 0.98
  learning_rate: 2.0633e-05
  ent_coef: 0.000401762
  clip_range: 0.1
  n_epochs: 20
  gae_lambda: 0.92
  max_grad_norm: 0.8
  vf_coef: 0.58096
  policy_kwargs: "dict(
                    log_std_init=-2,
                    ortho_init=False,
                    activation_fn=nn.ReLU,
                    net_arch=dict(pi=[256, 256], vf=[256, 256])
                  )"

CarRacing-v3:
  env_wrapper:
    - gymnasium.wrappers.GrayscaleObservation:
        keep_dim: true
  normalize: "{'norm_obs': False, 'norm_reward': True}"
  policy: 'CnnPolicy'
  n_timesteps: !!float 4e6
"""

ZOO_LSTM = """
CartPoleNoVel-v1:
  normalize: True
  n_envs: 8
  n_timesteps: !!float 1e5
  policy: 'MlpLstmPolicy'

Acrobot-v1:
  normalize: true
  n_envs: 16
  n_timesteps: !!float 1e6
  policy: 'MlpLstmPolicy'
  n_steps: 256
  gae_lambda: 0.94
  gamma: 0.99
  n_epochs: 4
  ent_coef: 0.0

CartPole-v1:
  n_envs: 8
  n_timesteps: !!float 1e5
  policy: 'MlpLstmPolicy'
  n_steps: 32
  batch_size: 256
  policy_kwargs: "dict(
                    activation_fn=nn.ReLU,
                    lstm_hidden_size=64,
                    enable_critic_lstm=True,
                    net_arch=dict(pi=[64], vf=[64])
                  )"

Pendulum-v1:
  policy: 'MlpLstmPolicy'
  n_timesteps: !!float 1e5
  policy_kwargs: "dict(enable_critic_lstm=False, lstm_hidden_size=128)"
"""

ZOO_PYTHON = '''
"""This file just serves as an example."""

import torch

hyperparams = {
    "MountainCarContinuous-v0": dict(
        env_wrapper=[{"gymnasium.wrappers.TimeLimit": {"max_episode_steps": 100}}],
        normalize=True,
        n_envs=1,
        n_timesteps=20000.0,
        policy="MlpPolicy",
        batch_size=8,
        n_steps=8,
        policy_kwargs=dict(
            log_std_init=-3.29,
            ortho_init=False,
            activation_fn=torch.nn.ReLU,
        ),
    )
}
'''

ZOO_SAVED = """
!!python/object/apply:collections.OrderedDict
- - - batch_size
    - 256
  - - clip_range
    - lin_0.2
  - - learning_rate
    - lin_0.001
  - - n_envs
    - 8
  - - n_steps
    - 32
  - - n_timesteps
    - 100000.0
  - - policy
    - MlpPolicy
"""

# ---------------------------------------------------------------------- Weights & Biases


def sweep(parameters: str, rest: str = "", program: str = "train.py") -> str:
    """Return a sweep over a program, with the parameters one a line."""
    inner = "\n".join(f"  {line}" for line in parameters.strip().splitlines())
    return f"program: {program}\nmethod: random\nrun_cap: 20\n{rest}\nparameters:\n{inner}\n"


CLEANRL_SWEEP = sweep(
    """
learning-rate: {distribution: log_uniform_values, min: 0.0003, max: 0.003}
num-minibatches: {values: [1, 2, 4]}
update-epochs: {values: [1, 2, 4, 8]}
num-steps: {values: [16, 32, 64, 128]}
clip-coef: {min: 0.1, max: 0.3}
norm-adv: {values: [true, false]}
vf-coef: {min: 0.0, max: 5.0}
total-timesteps: {value: 100000}
num-envs: {value: 16}
""",
    "metric: {name: charts/episodic_return, goal: maximize}",
    "cleanrl/ppo.py",
)
SB3_SWEEP = sweep(
    """
learning_rate: {distribution: log_uniform_values, min: 1.0e-5, max: 1.0e-3}
n_steps: {values: [512, 1024, 2048]}
batch_size: {values: [64, 128]}
n_epochs: {values: [5, 10, 20]}
clip_range: {values: [0.1, 0.2, 0.3]}
vf_coef: {min: 0.3, max: 1.0}
ent_coef: {distribution: log_uniform_values, min: 1.0e-8, max: 0.1}
activation_fn: {values: [tanh, relu]}
net_arch: {values: [small, medium]}
env_id: {value: Acrobot-v1}
total_timesteps: {value: 200000}
""",
    "metric: {name: rollout/ep_rew_mean, goal: maximize}",
    "train_sb3.py",
)

# ---------------------------------------------------------------------- others

CLEANRL_FILE = '''
import os
from dataclasses import dataclass

import tyro


@dataclass
class Args:
    exp_name: str = os.path.basename(__file__)[: -len(".py")]
    """the name of this experiment"""
    seed: int = 7
    track: bool = False
    wandb_entity: str = None
    env_id: str = "Acrobot-v1"
    total_timesteps: int = 300000
    learning_rate: float = 2.5e-4
    num_envs: int = 8
    num_steps: int = 2 ** 7
    anneal_lr: bool = True
    clip_vloss: bool = False
    target_kl: float = 0.015
    batch_size: int = 0
'''
SB3_SCRIPT = """
import gymnasium as gym
from stable_baselines3 import PPO

env = gym.make("CartPole-v1")
model = PPO("MlpPolicy", env, n_steps=2 ** 9, batch_size=128, vf_coef=0.25, clip_range_vf=0.2,
            policy_kwargs=dict(net_arch=[128, 128], activation_fn=th.nn.ReLU), verbose=1)
model.learn(total_timesteps=50_000)
"""
ARLBENCH = """
# @package _global_
algorithm: ppo
hp_config:
  clip_eps: 0.2
  ent_coef: 0.0
  gae_lambda: 0.95
  gamma: 0.99
  learning_rate: 0.0003
  max_grad_norm: 0.5
  minibatch_size: 64
  n_steps: 128
  normalize_advantage: true
  normalize_observations: false
  update_epochs: 10
  vf_clip_eps: 0.2
  vf_coef: 0.5
nas_config:
  activation: tanh
  hidden_size: 64
"""
ARLBENCH_INCUMBENT = """
# @package _global_
defaults:
  - override /environment: box2d_lunar_lander
  - override /algorithm: ppo

hpo_method: my_optimizer

hp_config:
  clip_eps: 0.177
  gamma: 0.99876
  learning_rate: 0.000322
  minibatch_size: 64
  normalize_observations: false
  vf_clip_eps: 0.211
"""
ARLBENCH_SPACE = """
seed: 0
hyperparameters:
  hp_config.learning_rate:
    type: uniform_float
    upper: 0.1
    lower: 1.0e-06
    log: true
  hp_config.ent_coef:
    type: uniform_float
    upper: 0.5
    lower: 0.0
    log: false
  hp_config.minibatch_size:
    type: categorical
    choices: [128, 256, 512]
  hp_config.clip_eps:
    type: uniform_float
    upper: 0.5
    lower: 0.0
    log: false
  hp_config.vf_clip_eps:
    type: uniform_float
    upper: 0.5
    lower: 0.0
  hp_config.normalize_advantage:
    type: categorical
    choices: [True, False]
  hp_config.vf_coef:
    type: uniform_float
    upper: 1.0
    lower: 0.0
    default: 0.5
    log: false
  hp_config.max_grad_norm:
    type: uniform_float
    upper: 1.0
    lower: 0.0
"""
ARLBENCH_WHOLE_SPACE = """
{"name": "PPO", "format_version": 0.4, "conditions": [], "forbiddens": [],
 "hyperparameters": [
  {"type": "uniform_int", "name": "minibatch_size", "lower": 16, "upper": 2048, "log": false,
   "default_value": 64, "meta": null},
  {"type": "uniform_int", "name": "n_steps", "lower": 5, "upper": 512, "log": false,
   "default_value": 128, "meta": null},
  {"type": "uniform_int", "name": "hidden_size", "lower": 1, "upper": 2048, "log": false,
   "default_value": 64, "meta": null},
  {"type": "uniform_float", "name": "vf_clip_eps", "lower": 0.0, "upper": 0.5, "log": false,
   "default_value": 0.2, "meta": null}]}
"""
REJAX = """
ppo:
  env: CartPole-v1
  agent_kwargs:
    activation: tanh
  num_envs: 5
  num_steps: 100
  num_epochs: 5
  num_minibatches: 5
  learning_rate: 0.00075
  max_grad_norm: 0.5
  total_timesteps: 100_000
  eval_freq: 1000
  gamma: 0.99
  gae_lambda: 0.95
  clip_eps: 0.2
  ent_coef: 0.01
  vf_coef: 0.5

dqn:
  env: CartPole-v1
  agent: DuelingQNetwork
  batch_size: 100
"""
PUREJAXRL = """
config = {
    "LR": 2.5e-4,
    "NUM_ENVS": 4,
    "NUM_STEPS": 128,
    "TOTAL_TIMESTEPS": 5e5,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ENV_NAME": "CartPole-v1",
    "ANNEAL_LR": True,
    "DEBUG": True,
}
"""
LERAX = """
from lerax.algorithm import PPO

algo = PPO(num_envs=8, num_steps=256, num_batches=16, clip_value_loss=True,
           entropy_loss_coefficient=0.01, value_loss_coefficient=0.7, learning_rate=1e-3)
"""
JAXDEM = """
import jaxdem as jd

tr = jd.rl.Trainer.create(
    "PPO", env=env, model=model, key=key, num_epochs=400, num_envs=256, num_steps_epoch=64,
    num_minibatches=8, learning_rate=5e-2, ppo_value_coeff=0.7, importance_sampling_alpha=0.4,
    importance_sampling_beta=0.1, anneal_learning_rate=True,
)
"""
TORCH_PPO = """
from PPO import PPOConfig, PPOAgent

cfg = PPOConfig(env_id="CartPole-v1", total_timesteps=500_000, rollout_steps=512,
                clip_epsilon_schedule="linear", shared_backbone=True, use_amp=True,
                lr_actor=1e-3, lr_critic=3e-3, lr_schedule="cosine", target_kl=None)
"""
