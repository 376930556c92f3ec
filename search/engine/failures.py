"""What an error in the lanes costs: the trials whose replicates it hit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ... import disk
from ...errors import ConfigError, HpoError
from ...faults import told_if_own
from ..book.buckets import Bucket
from ..book.ledger import Ledger
from ..book.runs import Run, cut

__all__ = ["fail_replicates", "fail_runs"]

_LONGEST = 500


def fail_runs(ledger: Ledger, bucket: Bucket, runs: Sequence[Run], error: Exception) -> None:
    """Count an error, and fail the trials whose replicates it hit.

    Raises:
        HpoError: one that is no single configuration's fault.
    """
    if isinstance(error, HpoError) and not isinstance(error, ConfigError):
        raise error
    if disk.has_refused(error):
        with disk.telling(Path("the files of lanes")):
            raise error
    ledger.state.usage.count_failure()
    text = told_if_own(error)[:_LONGEST]
    cut(runs)
    for number in dict.fromkeys(run.trial for run in runs):
        ledger.fail(number, text)
    bucket.release()


def fail_replicates(ledger: Ledger, failed: Iterable[tuple[Run, str]]) -> None:
    """Fail the trials of some replicates, each with its own reason and counted by itself.

    Their lanes are freed at the next boundary.
    """
    for run, why in failed:
        ledger.state.usage.count_failure()
        run.diverge()  # not cut: those beside it are still compared
        ledger.fail(run.trial, why[:_LONGEST])
