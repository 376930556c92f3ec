"""Custom trainings: a lane equals the plain loop, whatever runs beside it."""

from __future__ import annotations

from collections import OrderedDict

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.training.train_state import TrainState

from hpo.core.lane_state import lane_key, use_key
from hpo.core.population import INIT
from hpo.core.training import Lane, Training, fixed, traced
from hpo.core.training_check import shapes_of
from hpo.core.training_program import TrainingProgram
from hpo.errors import ConfigError
from hpo.machine.devices import prepare_devices


@pytest.fixture(autouse=True)
def _as_users_have_it():
    with jax.numpy_dtype_promotion("standard"):  # strict in our tests, for our code
        yield


class Toy(Training):
    """A typed key, a bool, an int, a weak float; drawn steps towards zero."""

    steps_per_update = 4
    rate = traced(0.1, low=0.0)
    power = traced(2.0)

    def init(self, key, h):
        return {
            "key": key,
            "x": jax.random.normal(key, (3,)),
            "low": jnp.bool_(False),
            "count": 0,
            "scale": 1.0,
        }

    def update(self, state, h):
        key, draw = jax.random.split(state["key"])
        x = state["x"] * (1 - h.rate) + 0.01 * jax.random.normal(draw, (3,))
        low = jnp.abs(x).min() < 0.1
        x = jax.lax.cond(low, lambda x: x * 1.01, lambda x: x, x)
        after = {
            "key": key,
            "x": x,
            "low": low,
            "count": state["count"] + 1,
            "scale": state["scale"] * 0.5,
        }
        return after, {"size": jnp.sum(jnp.abs(x) ** h.power)}

    def evaluate(self, state, h, key):
        return {"return": -jnp.sum(state["x"] ** 2) + 0.01 * jax.random.normal(key)}


class Net(Training):
    """A flax TrainState, whose optimiser closes over the traced rate."""

    steps_per_update = 32
    rate = traced(1e-2, low=0.0)
    width = fixed(8, low=1)

    def setup(self):
        self.net = nn.Sequential([nn.Dense(self.width), nn.relu, nn.Dense(1)])
        self.x = np.linspace(-1, 1, 32, dtype=np.float32)[:, None]

    def init(self, key, h):
        params = self.net.init(key, self.x)
        return TrainState.create(apply_fn=None, params=params, tx=optax.adam(h.rate))

    def update(self, state, h):
        def loss(params):
            return jnp.mean((self.net.apply(params, self.x) - self.x**2) ** 2)

        value, grads = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=grads), {"loss": value}

    def evaluate(self, state, h, key):
        return {"return": -jnp.mean((self.net.apply(state.params, self.x) - self.x**2) ** 2)}


def values_of(cls, config=()):
    knobs = cls.declared()
    given = {name: knob.default for name, knob in knobs.items()} | dict(config)
    return (
        {name: value for name, value in given.items() if not knobs[name].traced},
        {name: np.float32(value) for name, value in given.items() if knobs[name].traced},
    )


def program_of(cls, lanes, tile=1, updates=5, episodes=3):
    static, _ = values_of(cls)
    training = cls(static, 1000)
    names = tuple(name for name, knob in cls.declared().items() if knob.traced)
    devices = tuple(prepare_devices("cpu", False, None))
    return TrainingProgram(Lane(training, names), lanes, updates, tile, episodes, devices)


def start(program, rows):
    """Return starts of lane -> (replicate, traced values)."""
    fresh = {lane: (0, replicate, values) for lane, (replicate, values) in rows.items()}
    return program.starts([*rows], fresh)


def plain_loop(cls, replicate, values, updates):
    """Train as a user would: `jit(update)` called in a loop."""
    training = cls(values_of(cls)[0], 1000)
    lane = Lane(training, tuple(values))
    key = jax.jit(lane_key)(np.int32(0), np.int32(0), np.int32(replicate))
    values = {name: jnp.float32(value) for name, value in values.items()}
    state = jax.jit(lambda key, values: lane.init(use_key(key, INIT), values))(key, values)
    step = jax.jit(lane.update)
    for _ in range(updates):
        state, metrics = step(state, values)
    return state, metrics


def same_as_plain(leaf, want):
    """XLA fuses a product in a loop differently: some last bits of a matrix product differ."""
    np.testing.assert_allclose(leaf, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cls", [Toy, Net])
def test_custom_training_lane_matches_a_plain_loop(cls):
    name = "rate"
    rates = [np.float32(0.05 + 0.01 * i) for i in range(16)]
    _, usual = values_of(cls)
    config = [usual | {name: rate} for rate in rates]
    many = program_of(cls, 16)
    lanes = many.empty()
    rows = {lane: (lane, config[lane]) for lane in range(16)}
    lanes, _ = many.advance(0, lanes, start(many, rows))
    again = start(many, {5: (70, config[3])})  # refilled amid the others
    again.busy[:] = True
    lanes, metrics = many.advance(0, lanes, again)
    alone = program_of(cls, 2)
    own = alone.empty()
    own, one = alone.advance(0, own, start(alone, {1: (70, config[3])}))
    expected, last = plain_loop(cls, 70, config[3], 5)
    for leaf, other, want in zip(
        many.lane_state(lanes, 5).leaves, alone.lane_state(own, 1).leaves, expected, strict=True
    ):
        np.testing.assert_array_equal(leaf, other)
        same_as_plain(leaf, np.asarray(want))
    for key, value in last.items():
        assert metrics[key][-1, 5] == one[key][-1, 1]
        same_as_plain(one[key][-1, 1], np.asarray(value))
    kept, _ = plain_loop(cls, 6, config[6], 10)
    for leaf, want in zip(many.lane_state(lanes, 6).leaves, kept, strict=True):
        same_as_plain(leaf, np.asarray(want))
    seen = many.evaluate(lanes, [6, 5])
    np.testing.assert_array_equal(seen["return"][1], alone.evaluate(own, [1])["return"][0])
    assert seen["return"].shape == (2, 3)


def test_lane_change_copies_state_and_applies_new_hyperparameters():
    program = program_of(Net, 4)
    _, usual = values_of(Net)
    lanes, _ = program.advance(
        0, program.empty(), start(program, {lane: (lane, usual) for lane in range(4)})
    )
    before = program.lane_state(lanes, 0)
    lanes = program.change(lanes, program.changes({3: (0, {"rate": 0.0})}))
    for leaf, want in zip(program.lane_state(lanes, 3).leaves, before.leaves, strict=True):
        np.testing.assert_array_equal(leaf, want)
    busy = program.starts(range(program.lanes), {})
    lanes, metrics = program.advance(0, lanes, busy)
    assert np.ptp(metrics["loss"][:, 3]) == 0.0 < np.ptp(metrics["loss"][:, 0])


def test_nan_lane_does_not_affect_neighbours():
    program = program_of(Toy, 4, tile=2)
    _, usual = values_of(Toy)
    good = {lane: (lane, usual) for lane in range(4)}
    bad = good | {1: (1, usual | {"rate": np.float32(np.nan)})}
    (one, _), (other, metrics) = (
        program.advance(0, program.empty(), start(program, rows)) for rows in (good, bad)
    )
    assert not np.isfinite(metrics["size"][-1, 1])
    for lane in (0, 2, 3):
        for leaf, want in zip(
            program.lane_state(other, lane).leaves,
            program.lane_state(one, lane).leaves,
            strict=True,
        ):
            np.testing.assert_array_equal(leaf, want)


def test_restored_custom_training_continues_bitwise_identically(tmp_path):
    program = program_of(Toy, 2)
    _, usual = values_of(Toy)
    lanes, _ = program.advance(0, program.empty(), start(program, {0: (0, usual), 1: (1, usual)}))
    program.save(lanes, tmp_path / "state")
    busy = program.starts(range(program.lanes), {})
    restored = program.restore(program.empty(), tmp_path / "state")
    _, metrics = program.advance(0, lanes, busy)
    _, again = program.advance(0, restored, busy)
    np.testing.assert_array_equal(metrics["size"], again["size"])


def test_reading_a_traced_hyperparameter_from_self_is_refused():
    training = Net(values_of(Net)[0], 1000)
    assert training.width == 8
    with pytest.raises(Exception, match=r"rate is traced: read h\.rate, not self\.rate"):
        _ = training.rate
    assert Net.declared()["width"].type == "int"


class Base(Training):
    steps_per_update = 1
    rate = traced(0.1)

    def init(self, key, h):
        return {"x": jnp.zeros(3), "n": jnp.int32(0)}

    def update(self, state, h):
        return state, {"loss": h.rate}

    def evaluate(self, state, h, key):
        return {"return": 0.0}


class Grows(Base):
    def update(self, state, h):
        return state | {"x": jnp.concatenate([state["x"], jnp.zeros(1)])}, {}


class Casts(Base):
    def update(self, state, h):
        return state | {"n": state["n"] * 1.5}, {}


class Branches(Base):
    def update(self, state, h):
        if h.rate > 1:
            return state, {}
        return state, {}


class Rounds(Base):
    def update(self, state, h):
        return state, {"n": jnp.zeros(int(h.rate)).sum()}


class Many(Base):
    def update(self, state, h):
        return state, {"loss": state["x"]}


class Calls(Base):
    def update(self, state, h):
        jax.debug.callback(print, h.rate)
        return state, {"loss": h.rate}


class CallsLate(Base):
    def evaluate(self, state, h, key):
        jax.debug.print("{}", h.rate)
        return {"return": h.rate}


class Raises(Base):
    def init(self, key, h):
        raise KeyError("buffer")


class Loses(Base):
    def update(self, state, h):
        return {"x": state["x"]}, {}


class Misses(Base):
    def evaluate(self, state, h):
        return {"return": h.rate}


class OnSelf(Base):
    def update(self, state, h):
        return state, {"loss": self.rate}


class Reorders(Base):
    """Its leaves have the same names and shapes; lanes would swap them."""

    def init(self, key, h):
        return OrderedDict(target=jnp.float32(1.0), best=jnp.float32(2.0))

    def update(self, state, h):
        return dict(state), {}


class Stays(Base):
    steps_per_update = 0


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (Grows, r"Grows.update: .*g.py:\d+: state\['x'\] is float32\[4\]; it must be float32\[3"),
        (Casts, r"Casts.update: .*g.py:\d+: state\['n'\] is float32\[\]; it must be int32\[\]"),
        (Branches, r"Branches.update: .*g.py:\d+: a traced value is used as a condition"),
        (
            Rounds,
            r"Rounds.update: .*g.py:\d+: int\(\) does not work on .*; .* declare rate with",
        ),
        (Many, r"Many.update: .*g.py:\d+: loss has shape \(3,\); a metric is one number"),
        (Calls, r"Calls.update: .*g.py:\d+: calls back into Python \(debug_callback\)"),
        (CallsLate, r"CallsLate.evaluate: .*g.py:\d+: calls back into Python \(debug_"),
        (Raises, r"Raises.init: .*g.py:\d+: KeyError: 'buffer'"),
        (Loses, r"Loses.update: .*g.py:\d+: state\['n'\] is missing; it must be int32\[\]"),
        (Misses, r"Misses.evaluate: .*g.py:\d+: TypeError: .* takes 3 positional"),
        (OnSelf, r"OnSelf.update: .*g.py:\d+: TypeError: rate is traced: read h\.rate"),
        (Reorders, r"Reorders.update: .*g.py:\d+: the state is Py.*, but init returned Py"),
        (Stays, r"Stays.steps_per_update is 0; set it in setup"),
    ],
)
def test_invalid_custom_trainings_are_refused(cls, words):
    with pytest.raises(ConfigError, match=words):
        shapes_of(cls.of({}, 100), ("rate",))


def test_shapes_of_reports_metrics_values_and_state_size():
    found = shapes_of(Net.of({"width": 8}, 100), ("rate",))
    assert found.metrics == ("loss",) and found.values == ("return",)
    assert "params/params/layers_0/kernel" in found.state
    assert found.state_bytes == 4 * (2 + 3 * (8 + 8 + 8 + 1))
