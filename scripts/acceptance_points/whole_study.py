"""Points 2 and 4: compiles and occupancy, over a whole run of studies/cartpole.yaml."""

from __future__ import annotations

import functools
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .common import ROOT, Outcome

if TYPE_CHECKING:  # jax is imported when a study runs
    from hpo.studies.spec import Study

OCCUPANCY = 0.95
_COMPILED = "/jax/core/compile/backend_compile_duration"


@dataclass(frozen=True)
class Seen:
    """The counts of one whole study.

    Attributes:
        training_compiles: compiles of the training program.
        compiles: all compiles, by jax's name.
        occupancy: as counted by the study.
        lane_chunks: number while work remained.
        chunks: number in the whole study.
        rows: number of curve rows, one per busy lane and chunk.
        trials: number of trials.
        confirmed: number of confirmed trials.
    """

    training_compiles: int
    compiles: Counter[str]
    occupancy: float
    lane_chunks: int
    chunks: int
    rows: int
    trials: int
    confirmed: int


def compiles(small: bool, work: Path) -> Outcome:
    """Count the compiles of the training program and of everything else."""
    seen = whole_study(small)
    others = ", ".join(f"{name} {count}" for name, count in seen.compiles.most_common())
    numbers = f"{seen.training_compiles} compile of the training program for {seen.trials} trials "
    numbers += f"and {seen.confirmed} confirmed; XLA compiles by name: {others}"
    return Outcome(seen.training_compiles == 1 and seen.confirmed > 0, numbers)


def occupancy(small: bool, work: Path) -> Outcome:
    """Check the share of busy lane-chunks while work remained, also against the curves."""
    seen = whole_study(small)
    numbers = f"{seen.occupancy:.1%} of {seen.lane_chunks:,} lane-chunks while work remained; "
    numbers += f"with all ends {seen.rows / seen.chunks:.1f} busy lanes a chunk"
    borne_out = seen.occupancy * seen.lane_chunks <= seen.rows
    return Outcome(seen.occupancy >= OCCUPANCY and borne_out, numbers)


def study_of(small: bool) -> Study:
    """Return the CartPole study, or a similar one that takes seconds."""
    from hpo.studies.load import load

    study = load(ROOT / "studies" / "cartpole.yaml")
    if not small:
        return study
    assert study.early_terminate is not None
    return replace(
        study,
        env_steps=4_096,
        fixed={"num_envs": 4, "rollout_length": 16, "num_minibatches": 2, "hidden_sizes": (8,)},
        budget=replace(study.budget, trials=12),
        early_terminate=replace(study.early_terminate, min=512),
        population=replace(study.population, lanes=8),
    )


@functools.lru_cache
def whole_study(small: bool) -> Seen:
    """Run the study once for all points that use it."""
    with tempfile.TemporaryDirectory() as folder:
        return watch(study_of(small), Path(folder) / "study")


def watch(study: Study, folder: Path) -> Seen:
    """Run a study in this process and count every compile."""
    from hpo.search.lanes.local import LocalFactory
    from hpo.search.run import run

    with _Compiles() as counted:
        results = run(study, folder, LocalFactory(study))
    import pyarrow.parquet as pq

    return Seen(
        training_compiles=counted.training,
        compiles=counted.by_name,
        occupancy=results.usage.occupancy,
        lane_chunks=results.usage.lane_chunks,
        chunks=results.usage.chunks,
        rows=pq.read_metadata(folder / "curves.parquet").num_rows,
        trials=len(results.leaderboard),
        confirmed=sum(entry.confirmed for entry in results.leaderboard),
    )


class _Compiles:
    """Counts compiles: by jax's events, and for the training program where it is created."""

    def __init__(self):
        self.training, self.by_name = 0, Counter[str]()

    def __enter__(self) -> _Compiles:
        import jax

        from hpo.core import population

        jax.monitoring.register_event_duration_secs_listener(self._heard)
        self._original = population.advance_function
        population.advance_function = self._counting
        return self

    def __exit__(self, *_: object) -> None:
        import jax

        from hpo.core import population

        population.advance_function = self._original
        jax.monitoring.unregister_event_duration_listener(self._heard)

    def _heard(self, event: str, duration_secs: float, **about: str | int) -> None:
        if event == _COMPILED:
            self.by_name[str(about.get("fun_name", "?"))] += 1

    def _counting(self, *args: Any) -> Any:
        made = self._original(*args)
        outer = self

        class Lowered:
            def __init__(self, lowered: Any):
                self._lowered = lowered

            def compile(self, **options: Any) -> Any:
                outer.training += 1
                return self._lowered.compile(**options)

        class Jitted:
            def lower(self, *shapes: Any) -> Lowered:
                return Lowered(made.lower(*shapes))

        return Jitted()
