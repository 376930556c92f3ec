"""What a training must not do: keep state on itself, draw in Python, return what is no number."""

from __future__ import annotations

import functools
import math
import random
import sys
import threading
import time
import warnings
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from hpo.core import training_check, training_errors
from hpo.core.training import Training, fixed, traced
from hpo.core.training_check import shapes_of
from hpo.errors import ConfigError


@pytest.fixture(autouse=True)
def _as_users_have_it():
    with jax.numpy_dtype_promotion("standard"):
        yield


def line_of(mark: str) -> int:
    """Return the line of this file that ends with a mark."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (found,) = (at for at, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))
    return found


def refusal(cls) -> str:
    with pytest.raises(ConfigError) as caught:
        shapes_of(cls.of({}, 100), ("rate",))
    return str(caught.value)


class Sound(Training):
    steps_per_update = 1
    rate = traced(0.1)

    def init(self, key, h):
        return {"x": jnp.zeros(3), "key": key}

    def update(self, state, h):
        return state, {"loss": h.rate}

    def evaluate(self, state, h, key):
        return {"return": jnp.sum(state["x"])}


class Assigns(Sound):
    def update(self, state, h):
        self.mean = h.rate  # assigns
        return state, {}


class AssignsInEvaluate(Sound):
    def evaluate(self, state, h, key):
        self.seen = 3  # assigns in evaluate
        return {"return": h.rate}


class Counts(Sound):
    def setup(self):
        self.count = 0

    def update(self, state, h):
        self.count += 1  # counts
        return state, {"loss": h.rate}


class Deletes(Sound):
    def setup(self):
        self.x = 1

    def init(self, key, h):
        del self.x  # deletes
        return super().init(key, h)


class Appends(Sound):
    def setup(self):
        self.seen = []

    def update(self, state, h):
        self.seen.append(state["x"])  # appends
        return state, {"loss": h.rate}


class FillsDict(Sound):
    def setup(self):
        self.table = {"n": {"count": 0}}

    def update(self, state, h):
        loss = h.rate
        self.table["n"]["count"] += 1  # fills
        return state, {"loss": loss}


class WritesArray(Sound):
    def setup(self):
        self.buffer = np.zeros(4)

    def init(self, key, h):
        self.buffer[0] += 1.0  # writes
        return super().init(key, h)


class Statistics:
    def __init__(self):
        self.count = 0


class InAnObject(Sound):
    def setup(self):
        self.statistics = Statistics()

    def update(self, state, h):
        self.statistics.count += 1  # in an object
        return state, {"loss": h.rate}


class CachedProperty(Sound):
    @functools.cached_property
    def zeros(self):
        return jnp.zeros(3)

    def init(self, key, h):
        return {"x": self.zeros}  # cached property

    def update(self, state, h):
        return state, {}


@pytest.mark.parametrize(
    ("cls", "where", "mark"),
    [
        (Assigns, "Assigns.update: {}: self.mean is set outside setup", "assigns"),
        (AssignsInEvaluate, ".evaluate: {}: self.seen is set outside", "assigns in evaluate"),
        (Counts, "Counts.update: {}: self.count is set outside setup", "counts"),
        (Deletes, "Deletes.init: {}: self.x is set outside setup", "deletes"),
        (Appends, "Appends.update: {}: self.seen changes outside", "appends"),
        (FillsDict, ".update: {}: self.table['n']['count'] changes outside", "fills"),
        (WritesArray, "WritesArray.init: {}: self.buffer changes outside", "writes"),
        (InAnObject, ".update: {}: self.statistics.count changes outside", "in an object"),
    ],
)
def test_mutating_self_while_tracing_is_refused_with_its_line(cls, where, mark):
    found = refusal(cls)
    assert where.format(f"tests/core/test_training_check.py:{line_of(mark)}") in found
    assert "in the state, which init returns" in found


def test_a_cached_property_with_a_traced_array_is_refused():
    assert "self.zeros changes outside setup" in refusal(CachedProperty)


class CachesInSetup(Sound):
    """What setup keeps may be read anywhere: modules, optimisers, arrays, containers."""

    def setup(self):
        self.net = nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(1)])
        self.x = np.ones((8, 3), np.float32)
        self.tx = optax.adam(1e-3)
        self.by_name = {"a": [1.0, 2.0]}
        self.step = jax.jit(lambda x: x + 1.0)

    @functools.cached_property
    def width(self):
        return int(self.x.shape[1])

    def init(self, key, h):
        params = self.net.init(key, self.x)
        return {"params": params, "opt": self.tx.init(params), "key": key}

    def update(self, state, h):
        def loss(params):
            return jnp.mean(self.net.apply(params, self.x) ** 2) * self.by_name["a"][1]

        value, grads = jax.value_and_grad(loss)(state["params"])
        moves, opt = self.tx.update(grads, state["opt"])
        params = optax.apply_updates(state["params"], moves)
        return {**state, "params": params, "opt": opt}, {"loss": self.step(value * self.width)}

    def evaluate(self, state, h, key):
        return {"return": jnp.mean(self.net.apply(state["params"], self.x))}


def test_attributes_set_in_setup_are_allowed():
    made = CachesInSetup.of({}, 100)
    assert shapes_of(made, ("rate",)).metrics == ("loss",)
    assert shapes_of(made, ("rate",)).values == ("return",)  # and once more


_turns = {"count": 0}


class NumpyRandom(Sound):
    def update(self, state, h):
        order = np.random.permutation(1000)[:3] % 3  # numpy
        return {**state, "x": state["x"][order]}, {"loss": h.rate + float(np.random.random())}


class NumpyInJit(Sound):
    """The second trace must not be taken from jax's cache."""

    @staticmethod
    @jax.jit
    def noisy(x):
        return x + np.random.rand()  # numpy in jit

    def update(self, state, h):
        return state, {"loss": self.noisy(h.rate)}


class PythonRandom(Sound):
    def evaluate(self, state, h, key):
        return {"return": h.rate * random.random()}  # random


class OwnGenerator(Sound):
    def setup(self):
        self.random = np.random.default_rng(0)

    def update(self, state, h):
        return state, {"loss": h.rate + self.random.normal()}  # generator


class Clock(Sound):
    def init(self, key, h):
        return {"x": jnp.zeros(3), "key": jax.random.key(int(time.time()))}  # clock

    def update(self, state, h):
        return state, {}


class Global(Sound):
    def update(self, state, h):
        _turns["count"] += 1
        return state, {"loss": h.rate / _turns["count"]}  # global


class InScan(Sound):
    def update(self, state, h):
        def step(x, _):
            return x + np.random.normal(), None  # in scan

        x, _ = jax.lax.scan(step, state["x"], None, 5)
        return {**state, "x": x}, {}


class Grows(Sound):
    """Its second program has an equation more."""

    def update(self, state, h):
        _turns["count"] += 1
        x = state["x"]
        for _ in range(_turns["count"]):
            x = x * 2.0
        return {**state, "x": x}, {}


@pytest.mark.parametrize(
    ("cls", "words", "mark"),
    [
        (NumpyRandom, "NumpyRandom.update: {}: numpy.random draws only once", "numpy"),
        (NumpyInJit, "NumpyInJit.update: {}: numpy.random draws only once", "numpy in jit"),
        (PythonRandom, "PythonRandom.evaluate: {}: random draws only once", "random"),
        (OwnGenerator, "{}: this Python code returns a different value", "generator"),
        (Clock, "Clock.init: {}: this Python code returns a different value", "clock"),
        (Global, "Global.update: {}: this Python code returns a different value", "global"),
        (InScan, "InScan.update: {}: numpy.random draws only once", "in scan"),
    ],
)
def test_python_randomness_while_tracing_is_refused(cls, words, mark):
    found = refusal(cls)
    assert words.format(f"tests/core/test_training_check.py:{line_of(mark)}") in found
    assert "jax.random" in found


def test_training_that_traces_differently_each_time_is_refused():
    assert "this Python code returns a different value each time" in refusal(Grows)


def test_tracing_restores_the_system_clock():
    before = time.time()
    shapes_of(Sound.of({}, 100), ("rate",))
    assert 0 <= time.time() - before < 3600


class Seeded(Sound):
    """The same numbers in each trace: a fixed pattern, which may be meant."""

    def update(self, state, h):
        order = np.random.default_rng(0).permutation(3)
        return {**state, "x": state["x"][order]}, {"loss": h.rate}


def test_seeded_random_constant_is_allowed():
    assert shapes_of(Seeded.of({}, 100), ("rate",)).metrics == ("loss",)


def returning(metrics=None, values=None):
    class Returns(Sound):
        def update(self, state, h):
            return (state, metrics) if metrics is not None else super().update(state, h)

        def evaluate(self, state, h, key):
            return values() if values is not None else super().evaluate(state, h, key)

    return Returns


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        (
            {"train": {"a": 1.0}},
            'train is a dict; return its entries separately, such as "train_a"',
        ),
        ({"loss": None}, "loss is None; a metric is one number"),
        ({"loss": [1.0]}, "loss is a list; a metric is one number"),
        ({"loss": "high"}, "loss is a str; a metric is one number"),
        ({"loss": np.zeros(3)}, r"loss has shape (3,); a metric is one number"),
        ({"loss": np.complex64(1)}, "loss is of complex64; a metric is one number"),
        ({3: 1.0}, "a metric is named 3; names must be strings"),
        ([1.0], 'returns a list instead of a dict of metrics; return (state, {"loss": loss})'),
    ],
)
def test_non_numeric_metrics_are_refused(metrics, words):
    assert words in refusal(returning(metrics=metrics))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, 'returns None instead of a dict of values; return {"return": total}'),
        (1.0, "returns a float instead of a dict of values"),
        ({"by_class": {"a": 1.0}}, "by_class is a dict; return its entries separately"),
        ({}, "returns nothing; return a value"),
    ],
)
def test_non_numeric_values_are_refused(value, words):
    assert words in refusal(returning(values=lambda: value))


def test_python_and_numpy_scalars_are_valid_metrics():
    cls = returning(metrics={"a": 1, "b": True, "c": 0.5, "d": np.float64(2), "e": jnp.int32(1)})
    assert shapes_of(cls.of({}, 100), ("rate",)).metrics == ("a", "b", "c", "d", "e")


class Converts(Sound):
    """One mistake for each way to ask a traced value for its number."""

    def update(self, state, h):
        return state, {"loss": self.convert(state["x"][0], h)}


def converting(function):
    return type("Converts", (Converts,), {"convert": staticmethod(function), "rate": traced(0.1)})


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, h: float(x), "float() does not work on a traced value; remove it"),
        (lambda x, h: math.sqrt(x), "float() does not work on a traced value"),
        (lambda x, h: int(x), "to truncate it, use .astype(jnp.int32)"),
        (lambda x, h: jnp.zeros(int(h.rate)).sum(), "declare rate with hpo.fixed and read self."),
        (lambda x, h: x.item(), ".item() does not work on a traced value; remove it"),
        (lambda x, h: x.tolist(), ".tolist() does not work on a traced value"),
        (lambda x, h: 1.0 if x > 0 else 2.0, "use jnp.where or jax.lax.cond"),
        (lambda x, h: max(x, 0.0), "jnp.maximum instead of max"),
        (lambda x, h: sum(range(x.astype(int))), "use jax.lax.fori_loop"),
        (lambda x, h: [1.0, 2.0][x.astype(int)], "jnp.stack(list)[i]"),
        (lambda x, h: np.sqrt(x), "use jax.numpy (jnp) here"),
        (lambda x, h: jnp.zeros(h.rate).sum(), "a shape cannot be a traced value; declare rate"),
        (lambda x, h: jnp.ones(3)[jnp.ones(3) > x].sum(), "use jnp.where(mask, x, 0)"),
        (lambda x, h: jnp.nonzero(jnp.ones(3) > x)[0].sum(), "pass size= and fill_value="),
        (lambda x, h: jnp.arange(x).sum(), "cannot be a traced value"),
        (lambda x, h: jnp.ones(3)[: x.astype(int)].sum(), "use jax.lax.dynamic_slice"),
        (lambda x, h: {1.0: 2.0}[x], "is a dict key"),
        (lambda x, h: f"{x:.2f}", "cannot be formatted, because it is not known yet"),
    ],
)
def test_traced_value_misuse_has_a_specific_error(function, words):
    found = refusal(converting(function))
    assert words in found
    assert "test_training_check.py:" in found


_kept = []


class Leaks(Sound):
    def update(self, state, h):
        _kept[:] = [h.rate]
        return state, {}

    def evaluate(self, state, h, key):
        return {"return": _kept[0] * 2}  # leaks


def test_leaked_tracer_error_names_its_line():
    place = f"Leaks.evaluate: tests/core/test_training_check.py:{line_of('leaks')}: "
    assert f"{place}an array from an earlier trace was kept in a global" in refusal(Leaks)


@pytest.mark.parametrize("method", ["setup", "init", "update", "evaluate"])
@pytest.mark.parametrize(("code", "shown"), [(0, "sys.exit(0)"), ("text", "sys.exit(text)")])
def test_sys_exit_is_an_error_with_its_line(method, code, shown):
    def leave(self, *given):
        sys.exit(code)

    found = refusal(type("Leaves", (Sound,), {method: leave}))
    assert f"Leaves.{method}: tests/core/test_training_check.py:" in found
    assert f"calls {shown}; raise an error instead" in found


def test_base_exception_in_a_training_is_reported():
    def leave(self):
        raise BaseException("odd")

    assert "BaseException: odd" in refusal(type("Leaves", (Sound,), {"setup": leave}))


def test_training_cannot_replace_stdout():
    def close(self):
        sys.stdout = None

    kept = sys.stdout
    shapes_of(type("Closes", (Sound,), {"setup": close}).of({}, 100), ("rate",))
    assert sys.stdout is kept


def test_slow_training_method_is_named_in_a_warning(monkeypatch):
    said, heard = [], threading.Event()
    monkeypatch.setattr(training_errors, "_LONG", 0.01)

    def show(message, *rest):
        said.append(str(message))
        heard.set()

    monkeypatch.setattr(warnings, "showwarning", show)

    def wait(self, state, h):
        assert heard.wait(60)
        return state, {"loss": h.rate}

    shapes_of(type("Waits", (Sound,), {"update": wait}).of({}, 100), ("rate",))
    assert any("Waits.update: tests/core/test_training_check.py:" in text for text in said)
    assert all(text.endswith("no program is compiled yet; press Ctrl-C to stop") for text in said)


@pytest.mark.parametrize("steps", [10**30, 10**12 + 1])
def test_invalid_steps_per_update_is_refused(steps):
    cls = type("Huge", (Sound,), {"steps_per_update": steps})
    assert f"steps_per_update is {steps}; set it in setup()" in refusal(cls)
    assert "an integer from 1 to 1,000,000,000,000" in refusal(cls)


class Captures(Sound):
    def setup(self):
        self.table = np.ones((1000, 1000), np.float32)

    def update(self, state, h):
        return state, {"loss": jnp.asarray(self.table)[0, state["x"][0].astype(int)]}


class Shares(Captures):
    def shared(self):
        return {"table": self.table}

    def update(self, state, h):
        return state, {"loss": h.shared["table"][0, state["x"][0].astype(int)]}


def test_large_compiled_constants_get_a_note(monkeypatch):
    assert shapes_of(Captures.of({}, 100), ("rate",)).note == ""  # 4 MB
    monkeypatch.setattr(training_check, "_LARGE", 2**20)
    note = shapes_of(Captures.of({}, 100), ("rate",)).note
    assert note.startswith("Captures compiles 4 MB of data into its programs (self.table)")
    assert "return it from a shared() method and read h.shared" in note
    assert shapes_of(Shares.of({}, 100), ("rate",)).note == ""


def test_hyperparameter_named_shared_is_refused():
    with pytest.raises(ConfigError, match="shared cannot be a hyperparameter"):
        type("Named", (Sound,), {"shared": fixed(1)})
