"""How much longer evaluations take once policies have learnt, which nobody knows before."""

from __future__ import annotations

from collections.abc import Sequence

from ...studies.episode_end import own_limit
from ...studies.time_estimate import Span
from .machine import Program

__all__ = ["episodes_words", "longer_episodes"]

_NOTABLE = 1.2
_AS_NOW = Span(1.0, 1.0, 1.0)


def longer_episodes(timed: Sequence[Program]) -> dict[str, Span]:
    """Return environment -> how many times as long its evaluation takes, by its first program.

    Nobody knows whether learning makes episodes longer or shorter. A compiled evaluation runs
    until the longest of many episodes has ended, which is taken to be the environment's limit;
    where the host steps, all episodes count, between what they were now and that limit.

    Args:
        timed: programs, the first of each environment first.
    """
    found: dict[str, Span] = {}
    for program in timed:
        found.setdefault(str(program.study.env), _longer(program))
    return found


def _longer(program: Program) -> Span:
    study, about = program.study, program.about
    if study.evaluation.steps is not None or program.costs is None:
        return _AS_NOW
    limit, steps = own_limit(study), program.costs.evaluate_steps
    if limit is None:
        return Span(0.5, 1.0, 4.0)
    if not program.is_hosted:
        most = max(1.0, limit / steps)
        return Span(1.0, most, most)
    whole = limit * study.evaluation.episodes * min(about.width, about.lanes)
    most = max(1.0, whole / steps)
    return Span(1.0, most**0.5, most)


def episodes_words(timed: Sequence[Program], longer: dict[str, Span]) -> list[str]:
    """Return what is taken for granted of evaluation episodes; nothing where it hardly matters."""
    found: list[str] = []
    for name, span in longer.items():
        program = next(one for one in timed if str(one.study.env) == name)
        if span.high <= _NOTABLE:
            continue
        limit, words = own_limit(program.study), "as long as now"
        if limit is not None:
            most = f"between now and their limit of {limit:,}"
            words = most if program.is_hosted else f"of {limit:,} env steps"
        on = f" on {program.study.env.id}" if len(longer) > 1 else ""
        found.append(f"evaluation episodes{on} {words}")
    return found
