"""How long a study may take here, judged by what its environment took before: no jax, no compile.

For `hpo init`, which has just written a file that nobody has looked at yet.
"""

from __future__ import annotations

from datetime import datetime

from ...studies.expected import expected_steps
from ...studies.quanta import quanta_of
from ...studies.spec import Study
from ...studies.time_estimate import LONG_SECONDS, span_of_time
from .kept import Kept

__all__ = ["at_a_glance"]


def at_a_glance(study: Study, kept: Kept | None = None) -> str:
    """Return a warning if a study takes hours here, judged by its env steps; else "".

    Args:
        study: as `hpo init` writes it.
        kept: timings of this machine; None reads them.
    """
    known = (kept or Kept.read()).of_env(study.env.id)
    config = study.default()
    expected = expected_steps(
        study, quanta_of(study, config["num_envs"] * config["rollout_length"])
    )
    if known is None or not expected.total or study.more_envs:
        return ""
    each, at = known
    seconds = expected.total * each
    if seconds < LONG_SECONDS:
        return ""
    share = expected.confirm / expected.total
    return (
        f"warning: this takes about {span_of_time(seconds)} here, {share:.0%} of it confirming, "
        f"judged by a timing of {study.env.id} of {datetime.fromtimestamp(at):%Y-%m-%d}; lower "
        "env_steps, budget.trials or confirm"
    )
