"""What an exception in the lanes costs: the trials whose replicates it hit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import disk
from ..errors import ConfigError, HpoError
from ..store.rows import TrialState
from .buckets import Bucket
from .ledger import Ledger, cut
from .trials import Run

__all__ = ["fail_runs"]


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
    ledger.state.usage.failures += 1
    text = f"{type(error).__name__}: {error}".split("\n")[0][:500]
    cut(runs)
    for number in dict.fromkeys(run.trial for run in runs):
        trial = ledger.trials[number]
        if trial.is_live:
            ledger.end(trial, TrialState.FAILED, text)
        else:
            trial.error = text
            ledger.touch(trial)
    bucket.release()
