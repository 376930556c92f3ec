"""Programs that are alike are traced and compiled once, for all studies of a test file.

For tests of what lanes are told to do: a study that runs twice, that goes on, or is trained again.
Every factory still says what its program is; only one that is equal in all is taken in its place.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json

import jax
import numpy as np
import pytest

from hpo.core.program import Program
from hpo.core.training_program import TrainingProgram
from hpo.search.lanes.custom_training import TrainingFactory
from hpo.search.lanes.local import LocalFactory


@contextlib.contextmanager
def shared_programs():
    known = {}
    with pytest.MonkeyPatch.context() as patch:
        for factory in (LocalFactory, TrainingFactory):
            patch.setattr(factory, "_make_population", _sharing(factory._make_population, known))
        yield


def _sharing(make, known):
    def population(self, compiled, resolved):
        key = _KEYS.get(type(compiled), lambda _: None)(compiled)
        return make(self, compiled if key is None else known.setdefault(key, compiled), resolved)

    return population


def _fields(program, name):
    found = {one.name: getattr(program, one.name) for one in dataclasses.fields(program)}
    return found.pop(name), tuple(found.items())


def _of_ppo(program):
    example, fields = _fields(program, "example")  # for its shapes alone
    if program.initial is not None:
        return None
    leaves, tree = jax.tree.flatten(example)
    return (*fields, tree, *((np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves))


def _of_training(program):
    lane, fields = _fields(program, "lane")
    training = lane.training
    if training.given is not None:
        return None
    fixed = json.dumps(training.fixed_values, sort_keys=True, default=list)
    return (*fields, type(training), fixed, training.length, lane.names)


_KEYS = {Program: _of_ppo, TrainingProgram: _of_training}
