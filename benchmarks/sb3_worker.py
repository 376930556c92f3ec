"""Stable-Baselines3 PPO under Optuna in one process: the other side of `sweep_vs_loop.py`.

`host_vs_sb3.py --returns` uses it, too.

Reads one JSON task from standard input and prints one JSON line a configuration. Needs
stable-baselines3, gymnasium and optuna, and nothing of this project.
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

EVALUATION_SEED = 1_000_000


def make_model(env: str, config: dict, fixed: dict, seed: int) -> PPO:
    """Return a learner with our meaning of every knob.

    Our value loss is half the squared error, theirs the whole, hence half their weight. Adam's
    epsilon, orthogonal initialisation with our gains, separate networks for actor and critic and
    normalised advantages are their defaults and ours.
    """
    samples = fixed["num_envs"] * fixed["rollout_length"]
    return PPO(
        "MlpPolicy",
        make_vec_env(env, n_envs=fixed["num_envs"], seed=seed),
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
    """Train one configuration and give its seconds; its returns at some points if it asks."""
    started = time.perf_counter()
    model = make_model(task["env"], config, task["fixed"], seed)
    seconds = time.perf_counter() - started
    points, returns = [], []
    for _ in range(task["points"]):
        started = time.perf_counter()
        model.learn(task["env_steps"] // task["points"], reset_num_timesteps=False)
        seconds += time.perf_counter() - started
        points.append(model.num_timesteps)
        if task["episodes"]:
            returns.append(evaluate(task, model, seed))
    row = {"config": config, "seed": seed, "env_steps": model.num_timesteps, "seconds": seconds}
    if returns:
        row |= {"return": returns[-1], "points": points, "returns": returns}
    return row


def evaluate(task: dict, model: PPO, seed: int) -> float:
    """Return the mean return of some episodes, with the mode of the policy."""
    env = Monitor(gymnasium.make(task["env"]))
    env.reset(seed=EVALUATION_SEED + seed)
    returns, _ = evaluate_policy(
        model,
        env,
        n_eval_episodes=task["episodes"],
        deterministic=True,
        return_episode_rewards=True,
    )
    return sum(returns) / len(returns)


def main() -> None:
    """Run what the task asks, each configuration as an Optuna trial."""
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    task = json.loads(sys.stdin.readline())
    run({**task, "env_steps": 1, "episodes": 0, "points": 1}, task["configs"][0], 0)  # warm up
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()  # all processes begin together
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
