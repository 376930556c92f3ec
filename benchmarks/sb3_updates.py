"""Stable-Baselines3's PPO, one update a line of standard input: a side of `host_vs_sb3.py`.

The first line is a JSON task, answered by the versions of packages. Each later line asks for one
update, answered by its seconds and those of its threads, or with `profile` by the functions that
took most of them. Needs stable-baselines3, ale-py and opencv-python-headless, and nothing of this
project.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import metadata

import torch
from rates import profiled
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack

PACKAGES = ("stable-baselines3", "torch", "gymnasium", "numpy")


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
    print(json.dumps({name: metadata.version(name) for name in PACKAGES}), flush=True)
    for line in sys.stdin:
        if line.strip() == "profile":
            found = profiled(lambda: model.learn(samples, reset_num_timesteps=False))
            print(json.dumps(found), flush=True)
            continue
        started, used = time.perf_counter(), time.process_time()
        model.learn(samples, reset_num_timesteps=False)
        seconds = {"whole": time.perf_counter() - started, "cpu": time.process_time() - used}
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
