"""Where an evaluation ends an episode that its environment does not end.

An environment without a limit of its own would keep an evaluation going for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..environments.registry import find
from .spec import EnvSpec, Study

LONGEST = 100_000
"""Env steps of an episode at most, whatever the environment."""
SHORTEST_CUT = 20_000
"""No episode is cut before so many env steps."""
_LIMITS = ("max_steps_in_episode", "max_episode_steps")


def own_limit(study: Study, env: EnvSpec | None = None) -> int | None:
    """Return the env steps after which an environment ends an episode; None: not known.

    Args:
        study: whose evaluations.
        env: one of its environments; None: the first.
    """
    env = env or study.env
    entry = find(env.id)
    if entry is None:
        return None
    given = {**env.values, **study.evaluation.env}
    for name in _LIMITS:
        if name in entry.keys:
            found = given.get(name, entry.keys[name].default)
            return int(found) if found else None
    return None


def cut_after(study: Study) -> int:
    """Return the env steps after which evaluations cut an episode.

    Environments of the tables end their episodes. Of all others (imported code, Gymnasium's
    without a time limit) nobody knows: theirs are cut after as many steps as the whole training
    run of a seed has, which no episode of it can exceed, but not below 20,000.
    """
    return min(LONGEST, max(SHORTEST_CUT, study.env_steps)) if _endless(study) else LONGEST


def _endless(study: Study) -> list[str]:
    """Return the ids of environments of which no limit is known."""
    return [env.id for env in (study.env, *study.more_envs) if not _ends(study, env)]


def _ends(study: Study, env: EnvSpec) -> bool:
    entry = find(env.id)
    if entry is None:
        return False
    return entry.source != "gymnasium" or own_limit(study, env) is not None


def endless_note(study: Study) -> str:
    """Return a warning where nothing is known to end the episodes of evaluations; else ""."""
    endless = _endless(study)
    if study.evaluation.steps is not None or not endless:
        return ""
    return (
        f"{endless[0]} names no limit of its episodes: an evaluation cuts one after "
        f"{cut_after(study):,} env steps; to count a fixed number of steps instead type "
        "evaluation: {steps: 1000}"
    )


def may_cut(study: Study) -> bool:
    """Whether evaluations of a study can have cut episodes."""
    limits = [own_limit(study, env) or 0 for env in (study.env, *study.more_envs)]
    return study.evaluation.steps is None and bool(_endless(study) or max(limits) > LONGEST)


def cut_words(study: Study, lengths: Sequence[int]) -> str:
    """Return a sentence where an evaluation has cut some of its episodes; else ""."""
    limit = cut_after(study)
    cut = sum(length >= limit for length in lengths)
    if not may_cut(study) or not cut:
        return ""
    return (
        f"{cut} of {len(lengths)} episodes of its evaluation were cut at {limit:,} env steps: the "
        "environment did not end them."
    )


OF_THE_POLICY = (
    "aggregate_slots",
    "disjoint_paths",
    "fits",
    "histograms",
    "k",
    "no_op",
    "observation",
    "path_order",
    "shadow",
)
"""Keys of what a policy observes and may choose; the task and its metric stay the same."""
_PREFIX = "env."


def own_evaluation_note(study: Study) -> str:
    """Return a warning where a searched key of the environment also evaluates; else ""."""
    keys = {
        parameter.name.removeprefix(_PREFIX): parameter.default
        for parameter in study.space.parameters
        if parameter.name.startswith(_PREFIX)
    }
    loose = {
        key: value
        for key, value in keys.items()
        if key not in study.evaluation.env and key not in OF_THE_POLICY
    }
    if not loose:
        return ""
    names = ", ".join(f"env.{key}" for key in loose)
    what = f"{names} is searched, and evaluates" if len(loose) == 1 else (
        f"{names} are searched, and evaluate"
    )  # fmt: skip
    if study.more_envs:  # which have no eval_env
        return f"{what} too: whoever has the easier environment wins; fix what is the same for all"
    typed = ", ".join(f"{key}: {_shown(value)}" for key, value in loose.items())
    return (
        f"{what} too: whoever has the easier environment wins; for one that is the same for all "
        f"type eval_env: {{{typed}}}"
    )


def _shown(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else f"{value}"
