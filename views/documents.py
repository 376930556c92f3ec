"""JSON on stdout: one document a command."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["print_json"]


def print_json(data: Any) -> None:
    """Print one JSON document; `data` holds no number that is not finite."""
    print(json.dumps(data, indent=2, allow_nan=False))
