"""Stable-Baselines3's PPO, one update per line of standard input: a side of `host_vs_sb3.py`.

The first line is a JSON task; each later line requests one update, and the reply has its seconds
and those of its threads. It needs stable-baselines3, ale-py and opencv-python-headless, and
nothing from this project.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack


def make_model(task: dict) -> PPO:
    torch.set_num_threads(task["threads"])
    samples = task["num_envs"] * task["rollout_length"]
    if task["atari"]:
        import ale_py  # noqa: F401  (registers the games)

        env = VecFrameStack(make_atari_env(task["env"], n_envs=task["num_envs"], seed=0), 4)
        policy, more = "CnnPolicy", {}
    else:
        env = make_vec_env(task["env"], n_envs=task["num_envs"], seed=0)
        sizes = task["hidden_sizes"]
        policy, more = "MlpPolicy", {"net_arch": {"pi": sizes, "vf": sizes}}
    return PPO(
        policy,
        env,
        n_steps=task["rollout_length"],
        batch_size=samples // task["num_minibatches"],
        n_epochs=task["update_epochs"],
        policy_kwargs=more,
        device="cpu",
    )


def main() -> None:
    task = json.loads(sys.stdin.readline())
    model = make_model(task)
    samples = task["num_envs"] * task["rollout_length"]
    print("ready", flush=True)
    for _ in sys.stdin:
        started, used = time.perf_counter(), time.process_time()
        model.learn(samples, reset_num_timesteps=False)
        seconds = {"whole": time.perf_counter() - started, "cpu": time.process_time() - used}
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
