"""The verification levels that run a bundle's code: playing its policy and retraining seeds.

On the same processor and with the same versions, both reproduce the study bit for bit.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.policy_document import NAME, read_document
from ...environments.registry import files_of
from ...errors import clause, counted
from ...files.atomic_files import read_text
from ...files.plain_data import parse_json
from ...machine.software import versions_of_study
from ...search.analysis.replay import Replay, ReplayedSeeds, play, replay
from ...search.checks import devices_text
from ...store.comparison import compare
from ...store.journal import Journal
from ...store.leaderboard import default_of
from ...store.rows import Stream
from ...store.statistics import mean
from ...store.study_folder import StudyFolder, first_of
from ...studies.study_files import files_of_environment
from ...studies.user_code import import_user_code
from ..formatting import SEED_KINDS, number, seeds_text
from .levels import Level
from .members import IMPORTS, NUMPY, NUMPY_FILES, SOURCE
from .policy_forms import FILE, describe
from .verify import Bundle

_LIKELY_NEW = "the rows were changed, or the training ran on another processor"
_ARE_PROCESSES = "the runs of this study are processes, which hpo cannot repeat bit for bit"
_CLOSE = 1e-5  # relative difference allowed for values computed when a policy is written for NumPy


@dataclass(frozen=True)
class ClaimSeeds:
    """The seeds of one trial that a claim is based on."""

    trial: int
    name: str  # name in sentences: `trial 17`, `the default`
    stream: Stream
    replicates: tuple[int, ...]  # all seeds
    drawn: tuple[int, ...]  # the seeds to retrain

    @property
    def words(self) -> str:
        if len(self.drawn) == len(self.replicates):
            return f"all {seeds_text(len(self.drawn), self.stream)}"
        shown = ", ".join(map(str, self.drawn))
        return f"{len(self.drawn)} of {seeds_text(len(self.replicates), self.stream)} ({shown})"


def sides_of(
    bundle: Bundle, claims: Sequence[Mapping[str, Any]], most: int | None
) -> list[ClaimSeeds]:
    """Return the seeds of the claims; with `most`, a random sample of that size per trial."""
    with Journal(bundle.folder) as journal:
        rows = {row.trial: row for row in journal.trials()}
        evaluated = {(one.trial, one.stream, one.replicate) for one in journal.evaluations()}
    default, order = default_of([*rows.values()]), dict[int, float]()
    chance, found = random.SystemRandom(), list[ClaimSeeds]()
    for trial, kind in dict.fromkeys(
        (int(one["trial"]), str(one["seeds"])) for claim in claims for one in claim["rests_on"]
    ):
        stream = Stream(kind)
        own = {seed for number, of, seed in evaluated if (number, of) == (trial, stream)}
        if stream is Stream.REPORT:
            own |= {*rows[trial].report_diverged}
        for seed in sorted(own):
            order.setdefault(seed, chance.random())
        drawn = sorted(sorted(own, key=lambda seed: order[seed])[:most])
        name = f"trial {trial}"
        if default is not None and default.trial == trial:
            name = "the default"
        found.append(ClaimSeeds(trial, name, stream, tuple(sorted(own)), tuple(drawn)))
    return found


def seconds_of_a_run(bundle: Bundle) -> float:
    """Return the mean duration of the claimed trial's search runs; 0 if unknown."""
    with Journal(bundle.folder) as journal:
        row = journal.trial(bundle.trial)
    if row is None:
        return 0.0
    return row.train_seconds / max(1, len(row.seed_values))


def words_of(sides: Sequence[ClaimSeeds]) -> str:
    """Name seeds and trials: `all 8 test seeds of trial 24 and of the default`."""
    trials: dict[str, list[str]] = {}
    for side in sides:
        trials.setdefault(side.words, []).append(f"of {side.name}")
    return "; ".join(f"{words} {' and '.join(each)}" for words, each in trials.items())


# ---------------------------------------------------------------------- retrained


def why_not_retrained(bundle: Bundle, sides: Sequence[ClaimSeeds]) -> str:
    """Return why nothing can be retrained, or ""; none of the bundle's code runs."""
    if bundle.study.command is not None:
        return _ARE_PROCESSES
    if bundle.outside:
        return f"the bundle lacks {first_of(bundle.outside)}"
    if bundle.study.more_envs:
        return "studies on several environments cannot be retrained"
    if not sides:
        return "no claim names the seeds that it is based on"
    return ""


def _rests_on(claim: Mapping[str, Any], known: Set[tuple[int, str]]) -> bool:
    """Return whether a claim is based only on seeds in `known`, keyed by (trial, stream)."""
    needed = {(one["trial"], one["seeds"]) for one in claim["rests_on"] or ()}
    return bool(needed) and needed <= known


def retrained(
    bundle: Bundle, claims: Sequence[Mapping[str, Any]], sides: Sequence[ClaimSeeds]
) -> Level:
    """Retrain the seeds of the claims, and compare every number with the recorded one."""
    study = bundle.study
    if why := why_not_retrained(bundle, sides):
        return Level("retrained", None, why)
    start: list[str] = []
    if study.init is not None:
        start.append(study.init.folder)
    bundle.check_inside([*study.imports, *start, *files_of_environment(study)])
    folder, source = StudyFolder(bundle.folder), bundle.folder / SOURCE
    found = [
        replay(folder, side.trial, source, seeds=ReplayedSeeds(side.stream, side.drawn))
        for side in sides
    ]
    known = {(side.trial, str(side.stream)) for side in sides}
    unread = "search seeds, and the other trials"
    if any(side.stream is Stream.SEARCH for side in sides):
        unread = "the other trials"
    holds, words, wrong = _retraining_result(bundle, sides, found)
    if not holds:
        return Level("retrained", holds, words, wrong, unread)
    own = [claim["about"] for claim in claims if _rests_on(claim, known)]
    covers = _retrained_head(sides, words.startswith("bit-equal"))
    return Level("retrained", holds, words, wrong, unread, own, covers)


def _retrained_head(sides: Sequence[ClaimSeeds], exact: bool) -> str:
    """Return the heading for sentences that are based on these seeds."""
    whole = all(side.drawn == side.replicates for side in sides)
    bits = "bit-equal"
    if not exact:
        bits = "not bit-equal"
    if whole:
        return f"Retrained on {words_of(sides)}, {bits}"
    return f"Claimed, but only {words_of(sides)} were retrained ({bits})"


def _retraining_result(
    bundle: Bundle, sides: Sequence[ClaimSeeds], found: Sequence[Replay]
) -> tuple[bool | None, str, list[str]]:
    trained, apart = sum(len(side.drawn) for side in sides), sum(len(one.apart) for one in found)
    if not apart:
        evaluations = counted(sum(len(one.points) for one in found), "evaluation")
        rows = sum(one.curve_rows for one in found)
        words = f"bit-equal on {words_of(sides)}: {evaluations}, {counted(rows, 'curve row')}"
        return True, words, []
    if apart < trained:  # this processor reproduces the study's bits
        wrong = [line for pair in zip(sides, found, strict=True) for line in _seeds_apart(*pair)]
        equal = f"{trained - apart} of {counted(trained, 'run')} bit-equal, {apart} not"
        return False, equal, wrong
    answers = [_means_agree(*pair) for pair in zip(sides, found, strict=True)]
    each = "; ".join(words for _, words in answers)
    words = f"not bit-equal on {words_of(sides)} ({_changed_since(bundle)}): {each}"
    if any(holds is False for holds, _ in answers):
        return False, words, []
    if any(holds is None for holds, _ in answers):
        return None, words, []
    return True, words, []


def _seeds_apart(side: ClaimSeeds, found: Replay) -> list[str]:
    """Return a line for each seed whose result differs, with both values."""
    lines, ends = list[str](), dict[int, str]()
    for point in found.points:
        now, was = number(mean(point.replayed)), number(mean(point.recorded))
        ends[point.replicate] = f"retrained value {now}, recorded value {was}"
        if now == was:
            ends[point.replicate] = "the curve or the episodes differ from the recorded ones"
    for seed in found.apart:
        outcome = ends.get(seed, "diverged")
        if (seed in found.diverged) != (seed in found.diverged_now):
            outcome = (
                "diverged only in the study" if seed in found.diverged else "diverged only here"
            )
        lines.append(f"{side.name}, {SEED_KINDS[side.stream]} seed {seed}: {outcome}")
    return lines


def _means_agree(side: ClaimSeeds, found: Replay) -> tuple[bool | None, str]:
    """Compare the values seed by seed; diverged seeds have no values."""
    ends = {point.replicate: point for point in found.points}  # the last one is kept
    before = [mean(point.recorded) for point in ends.values()]
    now = [mean(point.replayed) for point in ends.values()]
    holds, words = agree(before, now, "seed")
    return holds, f"{side.name}: {words}"


def _changed_since(bundle: Bundle) -> str:
    """Return the devices and versions that differ from the ones that the study ran with."""
    from ...machine.devices import prepare_devices  # here: checking a bundle needs no jax

    with Journal(bundle.folder) as journal:
        meta = journal.meta
    devices = prepare_devices(bundle.study.population.device)
    ran_on = devices_text(meta.backend, meta.devices)
    here_are = devices_text(devices[0].platform, len(devices))
    was, here = meta.versions, versions_of_study(bundle.study)
    moved = [f"{one} {was[one]}, here {here.get(one)}" for one in was if was[one] != here.get(one)]
    if ran_on != here_are:
        moved.insert(0, f"{ran_on}, here {here_are}")
    if not moved:
        return f"with the same versions: {_LIKELY_NEW}"
    return first_of(moved)


# ---------------------------------------------------------------------- playable


def why_not_playable(bundle: Bundle) -> str:
    """Return why no policy can be played, or ""; none of the bundle's code runs."""
    if bundle.study.command is not None:
        return _ARE_PROCESSES
    if not bundle.about_policy():
        return "the bundle does not contain exactly one policy"
    return clause("the bundle lacks {}", first_of(bundle.outside))


def playable(bundle: Bundle, episodes: int) -> Level:
    """Evaluate the policy on its recorded episodes, and on new ones."""
    if why := why_not_playable(bundle):
        return Level("playable", None, why)
    about = bundle.about_policy()
    is_ppo = (bundle.policy / NAME).is_file()
    if is_ppo:
        _check_document(bundle)
    point = play(StudyFolder(bundle.folder), bundle.policy, about, bundle.folder / SOURCE)
    which = f"{SEED_KINDS[about['stream']]} seed {point.replicate}"
    wrong, new, also = list[str](), list[float](), ""
    unread = "the other seeds (--retrain)"
    recorded = f"{counted(len(point.recorded), 'recorded episode')} of {which}"
    if is_ppo:
        wrong, new = _numpy_apart(bundle), _new_episodes(bundle, episodes)
    if new:
        also = f"; {number(mean(new))} on {counted(len(new), 'new episode')}"
    if point.same:
        words = f"bit-equal on the {recorded}: {number(mean(point.recorded))}{also}"
        return Level("playable", not wrong, words, wrong, unread)
    holds, words = agree(point.recorded, new or point.replayed, "episode")
    words = f"not bit-equal on the {recorded} ({_changed_since(bundle)}): {words}"
    if wrong:
        holds = False
    return Level("playable", holds, words, wrong, unread)


def _check_document(bundle: Bundle) -> None:
    document = read_document(bundle.policy / NAME)
    for env in (document.env, document.eval_env):
        bundle.check_inside(files_of(env.id, dict(env.keys)).values())
    bundle.check_inside(document.imports)
    import_user_code(document.imports, bundle.policy / IMPORTS)


def _new_episodes(bundle: Bundle, episodes: int) -> list[float]:
    from ...core.saved_policy import load_policy

    how = bundle.study.evaluation
    if how.steps is not None:
        return []
    return load_policy(bundle.policy).evaluate(episodes, greedy=how.greedy).returns[0].tolist()


def _numpy_apart(bundle: Bundle) -> list[str]:
    """Return how the NumPy form of the policy differs from the original policy."""
    if NUMPY_FILES[1] not in bundle.members:
        return []
    about = describe(bundle.policy, "NumPy needs an mlp", ("mlp",))
    given = parse_json(read_text(bundle.folder / NUMPY / FILE))
    if isinstance(about, str):
        return [f"{NUMPY}/{FILE}: {about}"]
    wrong = [
        name for name in {**about, **given} if not _is_close(about.get(name), given.get(name))
    ]
    return [f"{NUMPY}/{FILE}: its {name} differs from the policy's" for name in wrong]


def _is_close(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        a, b = np.asarray(one), np.asarray(other)
        numeric = a.dtype.kind in "fi" and b.dtype.kind in "fi" and a.shape == b.shape
        if numeric:
            return bool(np.allclose(a, b, _CLOSE, _CLOSE))
    return one == other


def agree(before: Sequence[float], now: Sequence[float], of: str) -> tuple[bool | None, str]:
    """Return whether the difference's interval includes 0 (None without one), and a sentence."""
    if not before or not now or not all(map(math.isfinite, [*before, *now])):
        return None, "no values to compare"
    found = compare(now, before)
    mean_now, mean_before = map(number, found.means)
    words = f"{mean_now} on {counted(len(now), of)}, recorded {mean_before} on {len(before)}"
    around = found.difference_interval
    if around.low is None or around.high is None:
        return None, f"{words}; an interval needs 5 {of}s per side"
    holds = around.low <= 0.0 <= around.high
    ends = f"[{number(around.low)}, {number(around.high)}]"
    return (
        holds,
        f"{words}; 0 is {'within' if holds else 'outside'} the interval of the difference, {ends}",
    )
