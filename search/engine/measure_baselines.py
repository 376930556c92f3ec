"""Measures a study's baselines, once, on the streams that its trials are evaluated on.

They run in the evaluation environment of the default configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...store.baselines import attribute_of
from ...store.rows import BaselineRow, Stream
from ...studies.spec import Study
from ..book.ledger import Ledger
from ..lanes.contract import EvaluationResult, PopulationFactory

__all__ = ["measure_baselines", "replicates_of"]


def replicates_of(study: Study) -> dict[Stream, int]:
    """Return how many replicates of each stream a study can evaluate."""
    counts = {Stream.SEARCH: study.seeds.per_config}
    if study.confirm is not None:
        choose = study.confirm.choose if study.confirm.top_k else 0
        report = max(study.confirm.report, *(seeds for _, seeds in study.confirm.also), 0)
        counts |= {Stream.CHOOSE: choose, Stream.REPORT: report}
    return {stream: count for stream, count in counts.items() if count > 0}


def measure_baselines(
    ledger: Ledger,
    factory: PopulationFactory,
    known: Sequence[BaselineRow],
    told: Callable[[str, float], None],
) -> None:
    """Measure what is not known yet; the rows go with the next commit.

    Args:
        ledger: of the study.
        factory: measures.
        known: what earlier starts of the study have measured.
        told: called with each new baseline's name and its metric over the search's replicates.
    """
    study = ledger.study
    wanted = replicates_of(study)
    there = {row.baseline: {key: len(values) for key, values in row.values.items()}
             for row in known}  # fmt: skip
    resolved = ledger.resolved(study.space.default())
    for name in study.baselines:
        if there.get(name) == {str(stream): count for stream, count in wanted.items()}:
            continue
        seeds = [(stream, i) for stream, count in wanted.items() for i in range(count)]
        with ledger.state.usage.spending("evaluate"):
            seen = factory.baseline(name, resolved, seeds)
        values: dict[str, tuple[float, ...]] = {}
        metrics: dict[str, dict[str, tuple[float, ...]]] = {}
        for stream in wanted:
            mine = [result for result, (its, _) in zip(seen, seeds, strict=True) if its is stream]
            values[str(stream)] = tuple(ledger.objective.measure(result) for result in mine)
            metrics[str(stream)] = _means(mine)
        ledger.unwritten.add(attribute_of(BaselineRow(name, values, metrics)))
        told(name, ledger.objective.aggregate(values[str(Stream.SEARCH)]))


def _means(results: Sequence[EvaluationResult]) -> dict[str, tuple[float, ...]]:
    names = results[0].metrics if results else {}
    return {name: tuple(float(r.metrics[name].mean()) for r in results) for name in names}
