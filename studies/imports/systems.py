"""The rules of systems whose names hang together, by the words of `elsewhere.SYSTEMS`."""

from __future__ import annotations

from collections.abc import Mapping

from .take import Rules
from .xlron import XlronRules

__all__ = ["RULES"]

RULES: Mapping[str, Rules] = {"xlron": XlronRules()}
