"""Stable-Baselines3's PPO under Optuna in one process: the other side of `sweep_vs_loop.py`.

It reads one JSON task from standard input and prints one JSON line per configuration. It needs
stable-baselines3, gymnasium and optuna, and nothing from this project.
"""

from __future__ import annotations

import json
import sys
import time

import gymnasium
import optuna
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

ENV = "CartPole-v1"
EVALUATION_SEED = 1_000_000


def make_model(config: dict, fixed: dict, seed: int) -> PPO:
    """Return a learner in which every hyperparameter has our meaning.

    Our value loss is half the squared error, and theirs is the whole, hence half their weight.
    Adam's epsilon, orthogonal initialisation with our gains, separate networks for actor and
    critic, and normalised advantages are defaults on both sides.
    """
    samples = fixed["num_envs"] * fixed["rollout_length"]
    return PPO(
        "MlpPolicy",
        make_vec_env(ENV, n_envs=fixed["num_envs"], seed=seed),
        n_steps=fixed["rollout_length"],
        batch_size=samples // fixed["num_minibatches"],
        n_epochs=config["update_epochs"],
        learning_rate=config["learning_rate"],
        gamma=config["gamma"],
        gae_lambda=config["gae_lambda"],
        clip_range=config["clip_eps"],
        ent_coef=config["ent_coef"],
        vf_coef=0.5 * config["vf_coef"],
        max_grad_norm=config["max_grad_norm"],
        policy_kwargs={
            "net_arch": {"pi": fixed["hidden_sizes"], "vf": fixed["hidden_sizes"]},
            "activation_fn": torch.nn.Tanh,
        },
        seed=seed,
        device="cpu",
    )


def run(task: dict, config: dict, seed: int) -> dict:
    """Train one configuration; return its seconds, and its final return on request."""
    started = time.perf_counter()
    model = make_model(config, task["fixed"], seed)
    model.learn(task["env_steps"])
    row = {
        "config": config,
        "seed": seed,
        "env_steps": model.num_timesteps,
        "seconds": time.perf_counter() - started,
    }
    if task["episodes"]:
        env = Monitor(gymnasium.make(ENV))
        env.reset(seed=EVALUATION_SEED + seed)
        returns, _ = evaluate_policy(
            model,
            env,
            n_eval_episodes=task["episodes"],
            deterministic=True,
            return_episode_rewards=True,
        )
        row["return"] = sum(returns) / len(returns)
    return row


def main() -> None:
    """Run the task, each configuration as an Optuna trial."""
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    task = json.loads(sys.stdin.readline())
    run({**task, "env_steps": 1, "episodes": 0}, task["configs"][0], 0)  # warm up
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()  # all processes start together
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0)
    )
    waiting = iter([(config, seed) for config in task["configs"] for seed in task["seeds"]])

    def objective(trial: optuna.Trial) -> float:
        config, seed = next(waiting)
        row = run(task, config, seed)
        print(json.dumps(row), flush=True)
        return row.get("return", 0.0)

    study.optimize(objective, n_trials=len(task["configs"]) * len(task["seeds"]))


if __name__ == "__main__":
    main()
