"""The step limit at which evaluation episodes are truncated if the environment sets none."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..environments.registry import find
from ..environments.table import EnvEntry
from .env_spec import LONGEST, SHORTEST_CUT, EnvSpec
from .spec import Study
from .study_environments import environments_of
from .yaml_io import flow

_FRAMES, _SKIP = "max_num_frames_per_episode", "frameskip"
_LOSSES = ("loss", "error", "cost", "regret", "perplexity")
_LIMITS = ("max_steps_in_episode", "max_episode_steps")
OF_THE_POLICY = ("aggregate_slots", "disjoint_paths", "fits", "histograms", "k", "no_op",
                 "observation", "path_order", "shadow")  # fmt: skip
"""Keys that affect a policy's observations and choices, but not the task and its metric."""


LimitOf = Callable[[EnvSpec], int | None]
"""Returns the env steps after which a custom environment ends an episode; None if unknown."""


def unknown_limit(env: EnvSpec) -> int | None:
    return None


def own_limit(study: Study, env: EnvSpec | None = None) -> int | None:
    """Return the episode limit of an environment in env steps; None if unknown."""
    env = env or study.env
    entry = find(env.id)
    if entry is None:
        return None
    given = {**env.values, **study.evaluation.env}
    for name in _LIMITS:
        if name in entry.keys:
            found = given.get(name, entry.keys[name].default)
            if not found:
                return None
            return int(found)
    return _frames_limit(entry, given)


def _frames_limit(entry: EnvEntry, given: Mapping[str, Any]) -> int | None:
    """Return an Atari game's limit in env steps; ale-py counts emulator frames."""
    if _FRAMES not in entry.keys:
        return None
    frames, skip = (given.get(name, entry.keys[name].default) for name in (_FRAMES, _SKIP))
    if not frames:
        return None
    return -(-int(frames) // int(skip))


def cut_after(study: Study) -> int:
    """Return the number of env steps after which evaluation episodes are truncated.

    Environments in the tables end their episodes themselves. In imported code and in
    Gymnasium environments without a time limit, episodes are truncated after the length of a full
    training run, but not before 20,000 steps. No training episode is longer than a full run.
    """
    if not _environments_without_limit(study):
        return LONGEST
    return min(LONGEST, max(SHORTEST_CUT, study.env_steps))


def _environments_without_limit(study: Study) -> list[EnvSpec]:
    found: list[EnvSpec] = []
    for env in environments_of(study):
        entry = find(env.id)
        gym = entry is not None and entry.source == "gymnasium"
        if entry is None or (gym and own_limit(study, env) is None):
            found.append(env)
    return found


def endless_note(study: Study, limit_of: LimitOf = unknown_limit) -> str:
    """Return a warning if evaluations may truncate an episode before it ends; otherwise "".

    `limit_of` returns the episode limit of a custom environment, or None if it is unknown.
    """
    endless = _environments_without_limit(study)
    if study.evaluation.steps is not None or not endless or not study.algorithm.is_ppo:
        return ""
    cut = cut_after(study)
    for env in endless:
        limit = limit_of(env)
        if limit is not None and limit <= cut:
            continue
        known = "no known episode limit, so"
        if limit is not None:
            known = f"an episode limit of {limit:,} env steps, but"
        text = (
            f"{env.id} has {known} evaluations truncate episodes after {cut:,} env steps; for a "
        )
        return f"{text}fixed number of steps instead, use evaluation: {{steps: 1000}}"
    return ""


def window_note(study: Study, limit_of: LimitOf = unknown_limit) -> str:
    """Return a warning if evaluations count steps although episodes end; otherwise "".

    The rewards of a fixed number of steps are added up across episodes. If a reward is constant,
    every policy has the same value, whatever the lengths of its episodes.
    """
    steps, cut = study.evaluation.steps, cut_after(study)
    if steps is None or not study.algorithm.is_ppo:
        return ""
    for env in environments_of(study):
        limit = own_limit(study, env) or limit_of(env)
        if limit is None or limit > cut:
            continue
        text = f"evaluation.steps is {steps:,}, so each evaluation covers {steps:,} env steps "
        text += f"across episodes, which end after at most {limit:,} in {env.id}; to measure "
        return f"{text}whole episodes, remove evaluation.steps"
    return ""


def may_cut(study: Study) -> bool:
    limits = [own_limit(study, env) or 0 for env in environments_of(study)]
    return study.evaluation.steps is None and bool(
        _environments_without_limit(study) or max(limits) > LONGEST
    )


def cut_words(study: Study, lengths: Sequence[int]) -> str:
    """Return a sentence if the evaluated episodes did not end by themselves, otherwise ""."""
    if window_note(study):
        steps = f"{study.evaluation.steps:,} env steps"
        return f"Each evaluation covered {steps} across episodes, not whole episodes."
    limit = cut_after(study)
    cut = sum(length >= limit for length in lengths)
    if not may_cut(study) or not cut:
        return ""
    text = f"{cut} of {len(lengths)} evaluation episodes were truncated at {limit:,} env steps"
    return f"{text} because they had not ended."


def goal_note(study: Study) -> str:
    """Return a warning if a metric whose name suggests a loss is maximized by default, else ""."""
    losses = [name for name in study.goals_left_out if _is_loss(name)]
    if not losses:
        return ""
    key = "metric.goal"
    if study.objectives:
        key = f"the goal of {losses[0]} in objectives"
    return f"{key} is maximize (the default); for a loss, use goal: minimize"


def _is_loss(name: str) -> bool:
    """Return whether part of a metric's name implies that lower is better.

    >>> _is_loss("eval/valLoss2"), _is_loss("lossless_share")
    (True, False)
    """
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    return any(part.lower() in _LOSSES for part in parts)


def own_evaluation_note(study: Study) -> str:
    """Return a warning if a searched environment key is also used in evaluation, otherwise ""."""
    same = (*study.evaluation.env, *OF_THE_POLICY)
    loose = {
        one.name[4:]: one.default
        for one in study.space.parameters
        if one.name.startswith("env.") and one.name[4:] not in same
    }
    if not loose:
        return ""
    verbs = "are searched"
    if len(loose) == 1:
        verbs = "is searched"
    what = f"{', '.join(f'env.{key}' for key in loose)} {verbs} and also used in evaluation, "
    what += "so trials with an easier "
    if study.more_envs:  # there is no eval_env
        return f"{what}environment rank higher; fix the values in evaluation"
    text = f"{what}environment rank higher; to evaluate all trials in the same one, "
    return f"{text}use eval_env: {flow(loose)}"
