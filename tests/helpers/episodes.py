"""Evaluations of a journal episode by episode, and back."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from hpo.store.journal import Journal
from hpo.store.rows import EvaluationRow, Stream


class Episode(NamedTuple):
    trial: int
    stream: Stream
    replicate: int
    env_steps: int
    episode: int
    episode_return: float
    episode_length: int
    metrics: Mapping[str, float]


def episodes_of(row: EvaluationRow) -> list[Episode]:
    return [
        Episode(
            row.trial,
            row.stream,
            row.replicate,
            row.env_steps,
            at,
            shown,
            length,
            {name: float(values[at]) for name, values in row.metrics.items()},
        )
        for at, (shown, length) in enumerate(
            zip(row.returns.tolist(), row.lengths.tolist(), strict=True)
        )
    ]


def episodes_in(journal: Journal, trial: int | None = None) -> Iterator[Episode]:
    for row in journal.evaluations(trial):
        yield from episodes_of(row)


def evaluation(
    trial: int,
    replicate: int,
    env_steps: int,
    returns: list[float],
    lengths: list[int] | int,
    stream: Stream = Stream.SEARCH,
    **metrics: list[float] | float,
) -> EvaluationRow:
    """An evaluation; one number stands for every episode."""
    shown = np.array(returns, np.float64)
    return EvaluationRow(
        shown,
        np.full(shown.shape, lengths, np.int64),
        {name: np.full(shown.shape, values, np.float64) for name, values in metrics.items()},
        trial=trial,
        stream=stream,
        replicate=replicate,
        env_steps=env_steps,
    )
