"""What other systems log of episodes: name -> the metric of an evaluation here.

Theirs are mostly of episodes seen in training; ours are of greedy episodes on seeds of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["METRICS_ELSEWHERE"]

METRICS_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "rollout/ep_rew_mean",  # Stable-Baselines3
            "eval/mean_reward",
            "charts/episodic_return",  # CleanRL
            "charts/mean_reward",  # the single-file PyTorch PPO
            "eval/episodic_return",
            "eval/episode_reward",  # brax
            "returned_episode_returns",  # PureJaxRL
            "reward_mean",  # ARLBench
            "eval_rewards",
        ),
        "eval/return_mean",
    ),
    **dict.fromkeys(
        (
            "rollout/ep_len_mean",
            "eval/mean_ep_length",
            "charts/episodic_length",
            "charts/mean_ep_length",
            "eval/mean_length",
            "returned_episode_lengths",
        ),
        "eval/length_mean",
    ),
    "eval/std_reward": "eval/return_std",
    "eval/min_reward": "eval/return_min",
    "eval/max_reward": "eval/return_max",
}
"""Lower case."""
