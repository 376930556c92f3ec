"""What `hpo check` says of lanes, and of what a study writes: rows of curves, policies."""

from __future__ import annotations

from .curve_rows import curve_rows, rows_of_run
from .quanta import Quanta
from .spec import Study

__all__ = ["curve_words", "lane_words", "mebibytes", "policy_words"]

_POLICY_BYTES = 70_000  # of a policy on disk beside its parameters: 12 files in blocks of 4 KiB


def curve_words(study: Study, quanta: Quanta) -> str:
    """Return how often curves have a row, where the study says so."""
    if study.log_every is None:
        return ""
    each, updates = quanta.steps_per_update, quanta.updates_per_chunk
    rows = curve_rows(study.log_every, each, updates)
    apart = rows.chunks * updates if rows.per_chunk == 1 else -(-updates // rows.per_chunk)
    count = rows_of_run(rows, quanta.chunks, quanta.rung_chunks)
    return f"; a row of curves every {apart * each:,} env steps, {count:,} a run"


def lane_words(study: Study, lanes: int | None, several: bool) -> str:
    """Return how many lanes a program has, if known.

    Args:
        study: what is asked.
        lanes: that are expected.
        several: programs; each then keeps as many as it has replicates for.
    """
    if lanes is None:
        return ""
    about = "about " if several and study.population.lanes is None else ""
    workers = study.executor.workers
    over = f" over {workers} workers" if workers > 1 else ""
    return f"; {about}{lanes:,} lane{'s' * (lanes != 1)}{over}"


def policy_words(study: Study, chunks: int, parameters: int | None) -> list[str]:
    """Return how many policies are kept on the way, and what they take, in lines.

    Args:
        study: what is asked.
        chunks: of a full run.
        parameters: trainable ones of a lane, if known.
    """
    wanted, lines = study.checkpoint, list[str]()
    more = f", and each its {', '.join(wanted.parts)}" if wanted.parts else ""
    if wanted.policies_every is not None:
        each = min(study.env_steps // wanted.policies_every, chunks)
        most = each * wanted.keep_best * study.seeds.per_config
        lines.append(
            f"policies   every {wanted.policies_every:,} env steps, {each:,} a run: {most:,} of "
            f"the {wanted.keep_best} best trials, and {each:,} a lane while trials run"
            f"{_size(most, parameters)}{more}"
        )
    if wanted.best_of_each:
        count = study.budget.trials
        some = "one" if count is None else f"{count:,}, one"
        size = "" if count is None else _size(count, parameters)
        lines.append(f"policies   {some} a trial at its best evaluation{size}{more}")
    return lines


def _size(policies: int, parameters: int | None) -> str:
    """Return what so many policies take on disk."""
    if parameters is None:
        return ""
    return f"; about {mebibytes(policies * (4 * parameters + _POLICY_BYTES))}"


def mebibytes(size: int) -> str:
    """Format a size in MiB; a small one to two digits, so that it is never 0.

    >>> mebibytes(700_000_000), mebibytes(9_400), mebibytes(3_250_000)
    ('668 MiB', '0.009 MiB', '3.1 MiB')
    """
    found = size / 2**20
    return f"{found:,.0f} MiB" if found >= 10 else f"{found:.2g} MiB"
