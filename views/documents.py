"""JSON on stdout: one document a command, numbers that are not finite as null or text."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ..search.run import Results

__all__ = ["print_json", "results_data"]


def print_json(data: Any) -> None:
    """Print one JSON document; `data` holds no number that is not finite."""
    print(json.dumps(data, indent=2, allow_nan=False))


def results_data(results: Results) -> dict[str, Any]:
    """Give what a run has found as JSON data."""
    best = results.best
    usage = asdict(results.usage)
    return {
        "state": results.state,
        "folder": str(results.folder),
        "best": None if best is None else best.as_json(),
        "leaderboard": [entry.as_json() for entry in results.leaderboard],
        "usage": {
            **usage,
            "env_steps": results.usage.env_steps,
            "occupancy": results.usage.occupancy,
            "rejected_share": results.rejected_share,
        },
    }
