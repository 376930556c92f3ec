"""All kinds of distributions by the names that study files use."""

from __future__ import annotations

from collections.abc import Mapping

from .base import Distribution, Random
from .lists import Categorical, Ordinal
from .ranges import (
    IntUniform,
    LogIntUniform,
    Logit,
    LogUniform,
    Normal,
    OneMinusLog,
    Pow2,
    Uniform,
)
from .values import freeze, same

__all__ = [
    "KINDS",
    "Categorical",
    "Distribution",
    "IntUniform",
    "LogIntUniform",
    "LogUniform",
    "Logit",
    "Normal",
    "OneMinusLog",
    "Ordinal",
    "Pow2",
    "Random",
    "Uniform",
    "freeze",
    "same",
]


KINDS: Mapping[str, type[Distribution]] = {
    cls.kind: cls
    for cls in (
        Uniform,
        LogUniform,
        IntUniform,
        LogIntUniform,
        Pow2,
        OneMinusLog,
        Logit,
        Normal,
        Categorical,
        Ordinal,
    )
}
