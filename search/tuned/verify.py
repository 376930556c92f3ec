"""A tuned configuration trained again: bit-equal, within the interval, or not.

Two runs: some seeds of the record, whose numbers must come out the same to the last bit where
machine and versions are the record's, and as many fresh seeds as one likes, on which the
configuration must do as well as it did. The verdict follows from both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...knobs import complete
from ...store.agreement import Agreement, agreement
from ...studies.load import loads
from ...studies.tuned.catalogue import file_name
from ...studies.tuned.record import TUNED, Contender, Record
from ...studies.tuned.study_text import knobs_of, train_text
from ...version import __version__
from ..api import run
from ..lanes.versions import versions
from ..streams import study_seed
from .prove import Runner, contender_of, proof_study, run_proof

__all__ = ["FRESH", "RECORDED", "Verification", "judged", "verify"]

RECORDED, FRESH = 8, 32
Verdict = Literal["bit-equal", "within the interval", "not"]


@dataclass(frozen=True)
class Verification:
    """What came out.

    Attributes:
        name: of the record.
        verdict: `not` where the fresh seeds lie outside of the interval; else `bit-equal` where
            every number of the recorded seeds came out the same, or `within the interval`.
        recorded: seeds of the record that were trained again.
        equal: of these, how many have the same bits in every number.
        seeds: fresh ones.
        means: of the recorded and of the fresh seeds.
        agreement: of both.
        versions: that were recorded and are others now, package -> (then, now).
    """

    name: str
    verdict: Verdict
    recorded: int
    equal: int
    seeds: int
    means: tuple[float, float]
    agreement: Agreement
    versions: dict[str, tuple[str, str]]


def verify(
    record: Record,
    out: Path,
    recorded: int = RECORDED,
    seeds: int = FRESH,
    seed: int = 0,
    runner: Runner = run,
) -> Verification | None:
    """Train a tuned configuration again; None: interrupted.

    Args:
        record: what was recorded.
        out: the folder that the runs' own studies go to; a study that is there goes on.
        recorded: how many of its seeds to train again, from the first on.
        seeds: fresh ones, at least 5.
        seed: which fresh ones; another number, other seeds.
        runner: runs a study in a folder of results.

    Raises:
        HpoError: as `search.api.run` does; the configuration is not legal today.
    """
    study = loads(train_text(record), f"tuned:{record.name}")
    config = complete(knobs_of(record))
    stem = file_name(record.name).removesuffix(".yaml")
    root = study_seed(record.seed, "tuned verify", seed)
    parts = {
        "recorded": (min(recorded, len(record.tuned.greedy)), record.seed),
        "fresh": (seeds, root),
    }
    found: dict[str, Contender] = {}
    for part, (count, root_seed) in parts.items():
        name = f"{stem}.verify.{part}-{count}" + (f"-{seed}" if part == "fresh" else "")
        own = proof_study(study, name, config, count, root_seed)
        runs = run_proof(own, out, runner=runner)
        if runs is None:
            return None
        found[part] = contender_of(TUNED, config, runs, record.threshold, record.goal)
    return judged(record, found["recorded"], found["fresh"])


def judged(record: Record, again: Contender, fresh: Contender) -> Verification:
    """Return the verdict on runs of the recorded seeds and of fresh ones.

    A seed that diverged counts as the worst value of all: it may not make up for itself.
    """
    now, then = {**versions([record.env]), "hpo-lanes": __version__}, record.made.versions
    finite = [v for one in (record.tuned, fresh) for v in one.greedy if v is not None]
    worst = min(finite) if record.goal == "maximize" else max(finite)
    sides = [[worst if v is None else v for v in one.greedy] for one in (record.tuned, fresh)]
    found = agreement(sides[0], sides[1])
    equal = sum(_same(record.tuned, again, seed) for seed in range(len(again.greedy)))
    verdict: Verdict = "within the interval"
    if not found.within:
        verdict = "not"
    elif equal == len(again.greedy):
        verdict = "bit-equal"
    return Verification(
        name=record.name,
        verdict=verdict,
        recorded=len(again.greedy),
        equal=equal,
        seeds=len(fresh.greedy),
        means=(math.fsum(sides[0]) / len(sides[0]), math.fsum(sides[1]) / len(sides[1])),
        agreement=found,
        versions={
            name: (then.get(name, "none"), now.get(name, "none"))
            for name in sorted({*then, *now})
            if then.get(name) != now.get(name)
        },
    )


def _same(recorded: Contender, again: Contender, seed: int) -> bool:
    """Return whether the numbers of one seed have the same bits."""
    names = ("greedy", "training", "area", "to_threshold")
    return all(getattr(recorded, name)[seed] == getattr(again, name)[seed] for name in names)
