"""Compiled functions for all equal programs of a test file, whose factories make their own."""

import contextlib
import dataclasses
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pytest

from hpo.core.host.host_program import HostProgram
from hpo.core.program import LaneProgram, Program

_NAMES = ("_advance", "_evaluate", "_gather", "_look", "_pick", "_change")
_LOWERED = {"_lowered": "_advance", "_evaluation_lowered": "_evaluate"}
_OWN = ("workers", "warn", "_phases", "_broken_off", "initial")


def _key(program: Program, name: str) -> Any:
    fields = {field.name for field in dataclasses.fields(program)}.difference(_OWN)
    return type(program), name, *(f"{each}={getattr(program, each)}" for each in sorted(fields))


@contextlib.contextmanager
def compiled_once() -> Iterator[None]:
    """Let programs whose fields are equal share what they compile, until the end."""
    known: dict[Any, Any] = {}

    def shared(name: str, make: cached_property[Any]) -> cached_property[Any]:
        def get(self: Program) -> Any:
            if self.initial is not None:
                return make.func(self)
            of_compiled = _key(self, _LOWERED.get(name, name))
            if of_compiled in known:
                return known[of_compiled]
            made = make.func(self)
            return made if name in _LOWERED else known.setdefault(of_compiled, made)

        found = cached_property(get)
        found.__set_name__(Program, name)
        return found

    with pytest.MonkeyPatch.context() as patch:
        for kind in (LaneProgram, Program, HostProgram):
            for name in (*_NAMES, *_LOWERED):
                if isinstance(made := vars(kind).get(name), cached_property):
                    patch.setattr(kind, name, shared(name, made))
        yield
