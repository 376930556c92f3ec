"""One tuned configuration with its proof, as data: what a file under `results/tuned` holds.

A record stands alone: it has the whole configuration of everybody who ran, one value a seed, and
what it takes to train each of them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["DEFAULT", "SEEDS", "TUNED", "Contender", "Cost", "Curve", "Made", "Origin", "Record"]

TUNED, DEFAULT = "tuned", "default"
SEEDS = 32
"""Fresh seeds that a proof rests on."""


@dataclass(frozen=True)
class Curve:
    """What a configuration's runs looked like on the way, over all seeds.

    Attributes:
        env_steps: of each point, ascending.
        greedy: IQM over seeds of the metric in evaluation.
        low, high: its 95 % interval.
        training: mean over seeds of the return of training episodes, the last 100 of each seed;
            None before the first one ended.
    """

    env_steps: tuple[int, ...]
    greedy: tuple[float, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    training: tuple[float | None, ...]


@dataclass(frozen=True)
class Cost:
    """What all seeds of one configuration took together.

    Attributes:
        env_steps: trained.
        eval_env_steps: of evaluations.
        cpu_seconds: of the process, compiling included; None where that is not known.
    """

    env_steps: int
    eval_env_steps: int
    cpu_seconds: float | None = None


@dataclass(frozen=True)
class Contender:
    """One configuration with what it got on the seeds of the proof.

    A seed that diverged has None.

    Attributes:
        who: `tuned`, `default`, or who publishes it.
        config: the whole configuration, every knob.
        greedy: the metric in the last evaluation, one value a seed.
        training: the return of the last 100 training episodes, one value a seed.
        area: the mean height of the seed's evaluations over env steps.
        to_threshold: env steps of the first evaluation that reaches the threshold; None: never.
        curve: on the way.
        cost: of all seeds.
        source: where it was published: `by`, `repository`, `commit`, `file`, `env_steps`, and
            `without`, what could not be taken over; of others nothing.
    """

    who: str
    config: Mapping[str, Any]
    greedy: tuple[float | None, ...]
    training: tuple[float | None, ...]
    area: tuple[float | None, ...]
    to_threshold: tuple[int | None, ...]
    curve: Curve
    cost: Cost
    source: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Origin:
    """The study that found the configuration.

    Attributes:
        file: the study file, relative to the folder that holds `results/tuned`.
        sha256: of its bytes.
        trial: the winner's number.
        trials: how many the study had.
        verdict: of its own conclusion.
        said: that conclusion in words.
        env_steps: trained by the study, its confirm stage included.
        seeds: of the search, of those that chose, of those that chose nothing; a trial's each.
    """

    file: str
    sha256: str
    trial: int
    trials: int
    verdict: str
    said: str
    env_steps: int
    seeds: Mapping[str, int]


@dataclass(frozen=True)
class Made:
    """What ran the proof.

    Attributes:
        on: the day, as 2026-11-22.
        commit: of the checkout, with `+` where it had changes; "" of an installed package.
        versions: package -> version.
        backend: `cpu` or `gpu`.
        devices: how many.
    """

    on: str
    commit: str
    versions: Mapping[str, str]
    backend: str
    devices: int


@dataclass(frozen=True)
class Record:
    """Everything about one environment.

    Attributes:
        name: of the file and in commands.
        env: its id.
        env_values: the keys given beside the id.
        env_steps: of one run.
        metric: what was optimised and is compared.
        goal: `maximize` or `minimize`.
        evaluation: how runs were evaluated: episodes (of a network without end, how many
            networks), env steps of each where they do not end, and whether greedy.
        seed: the root of the seeds of the proof, which no study used.
        threshold: the value whose first reaching is timed.
        made: what ran it.
        origin: the study.
        contenders: the tuned configuration first, then the default, then what others publish.
        heuristics: of an optical network, name -> the metric on the requests of each seed's last
            evaluation, one value a seed.
    """

    name: str
    env: str
    env_values: Mapping[str, Any]
    env_steps: int
    metric: str
    goal: Literal["maximize", "minimize"]
    evaluation: Mapping[str, Any]
    seed: int
    threshold: float
    made: Made
    origin: Origin
    contenders: Sequence[Contender]
    heuristics: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, Any])

    @property
    def tuned(self) -> Contender:
        """Ours."""
        return self.contenders[0]

    @property
    def estimator(self) -> Literal["mean", "iqm"]:
        """What the values of all seeds are summarised by, the same for everybody compared.

        The mean where heuristics serve the same requests: blocking is a rate, so that of all
        requests together is the mean, and a difference paired by seed is one of means.
        """
        return "mean" if self.heuristics else "iqm"

    def contender(self, who: str) -> Contender | None:
        """Return one of them by name."""
        return next((one for one in self.contenders if one.who == who), None)
