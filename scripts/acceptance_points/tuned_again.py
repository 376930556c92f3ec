"""Results point 1: tuned configurations, retrained from a fresh clone."""

from __future__ import annotations

import json
from pathlib import Path

from .common import Outcome, call, hpo_command
from .fresh import fresh_clone, fresh_python

ENVS = ("CartPole-v1", "Acrobot-v1", "Pendulum-v1", "FourRooms-misc", "deeprmsa-nsfnet-250")
SMALL = ("--recorded", "2", "--seeds", "5")


def verified(small: bool, work: Path) -> Outcome:
    """Clone, install, and retrain records by `hpo tuned verify`, on recorded and new seeds."""
    clone, python = fresh_clone(work), fresh_python(work)
    call([python, "-m", "pip", "install", "-q", "."], clone)
    passed, words = True, list[str]()
    for env in ENVS[: 1 if small else None]:
        asked = [*hpo_command(python), "tuned", "verify", env, "--json", *(SMALL if small else ())]
        found = json.loads(call(asked, clone).stdout)
        again, fresh = found["recorded"], found["fresh"]
        passed &= found["within"]
        words.append(
            f"{env} {found['verdict']}: {again['bit_equal']} of {again['seeds']} recorded seeds "
            f"equal, {fresh['seeds']} fresh {fresh['mean']:.4g} where {again['mean']:.4g} "
            f"is recorded, {found['difference']:+.3g} within [{found['low']:.3g}, "
            f"{found['high']:.3g}]"
        )
    return Outcome(passed, "; ".join(words))
