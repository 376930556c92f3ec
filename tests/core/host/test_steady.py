"""Environments come back when their process ends: what is seen is what would have been seen."""

import os
import re
import signal
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from hpo.core.host.batch import Opening, code_of
from hpo.core.host.restartable_batch import Steady
from hpo.core.host.vector_batch import make_batch
from hpo.environments.via_gymnasium import make
from hpo.errors import Leave, SearchError
from hpo.machine.workers import Workers

pytestmark = pytest.mark.slow

REPLICATES, EACH, STEPS = 3, 2, 30
COUNT = REPLICATES * EACH
ID = "gym:hpo-test/Troubled-v0"
LIMIT = 3.0  # seconds; only what hangs may take as long


@pytest.fixture(autouse=True, scope="module")
def _registered():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent)
        import_module("hpo_test_troubled")
        yield


@pytest.fixture(scope="module")
def workers():
    """Of all tests; those that a test has ended start again in the next one."""
    made = Workers(2, "hpo_test_troubled:serve", limit=LIMIT)
    yield made
    made.close()


def steady(workers, warnings=None):
    batch = make_batch(ID, code_of(ID, make(ID, {})), COUNT, workers)
    return Steady(batch, EACH, ([] if warnings is None else warnings).append)


def opened(made, values=None):
    """Open all slots; `values` are those of some of them."""
    made.open(
        [Opening(slot, (values or {}).get(slot, {}), f"words/{slot}") for slot in range(COUNT)]
    )
    return made


def played(made, steps=STEPS, before=lambda step: None, restart=True, seed=0):
    """Take random actions that depend on slot and step alone; give all that was seen."""
    arrays, seen = made.batch.arrays, []
    draws = [np.random.default_rng([seed, slot]) for slot in range(COUNT)]
    running = np.ones(COUNT, bool)
    for step in range(steps):
        before(step)
        arrays.action[:] = [draw.integers(2) for draw in draws]
        arrays.active[:] = running
        anew = made.step(restart)
        ended = arrays.terminated | arrays.truncated
        final = np.where(ended[:, None], arrays.final, 0.0)
        row = [
            arrays.observation,
            final,
            arrays.reward[:, None],
            arrays.terminated[:, None],
            arrays.truncated[:, None],
            arrays.active[:, None],
            anew[:, None],
        ]
        seen.append(np.concatenate(row, axis=1))
        if not restart:
            running &= ~(ended & arrays.active)
    return np.stack(seen)


@pytest.fixture
def in_a_study():
    """Signals are handled as while a study runs: `KeyboardInterrupt` alone is not one of them."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def undisturbed():
    seen = played(opened(steady(None)))
    assert seen[:, :, 5].sum() > COUNT and seen[:, :, 6].sum() > COUNT, "episodes end"
    return seen


def test_killed_worker_does_not_change_results(workers, undisturbed):
    """Killed between two steps, in the midst of episodes, and both of them in the end."""
    warnings = []
    made = opened(steady(workers, warnings))

    def kill(step):
        for at in {7: (0,), 8: (0,), 20: (0, 1)}.get(step, ()):
            os.kill(workers.process_ids[at], signal.SIGKILL)

    np.testing.assert_array_equal(played(made, before=kill), undisturbed)
    assert len(warnings) == 4 and all(
        "SIGKILL (perhaps out of memory" in line for line in warnings
    )
    assert not made.take_reasons()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("kill", "was ended by SIGKILL"),
        ("exit", "ended with exit code 3"),
        ("hang", r"did not answer for 3 s \(population.step_timeout\)"),
    ],
)
def test_env_that_crashes_its_worker_once_is_recovered(workers, undisturbed, tmp_path, how, words):
    warnings = []
    made = opened(steady(workers, warnings), {3: {"how": how, "once": str(tmp_path / "once")}})
    np.testing.assert_array_equal(played(made, steps=12), undisturbed[:12])
    assert len(warnings) == 1 and re.search(words, warnings[0])
    assert not made.take_reasons()


def test_slow_env_call_warns_before_its_worker_is_killed(undisturbed, monkeypatch):
    monkeypatch.setattr("hpo.machine.workers.TOLD_SECONDS", 1.0)
    told = []
    own = Workers(2, "hpo_test_troubled:serve", limit=LIMIT, opening_limit=60.0, warn=told.append)
    made = opened(steady(own), {3: {"how": "hang"}})
    played(made, steps=5)
    assert made.take_reasons()
    assert len(told) == 2  # once a hang
    assert re.fullmatch(
        r"an environment has not answered for \d s; its worker process will be ended after 3 s "
        r"\(population\.step_timeout\)",
        told[0],
    )
    own.close()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (
            "kill",
            "the worker process that stepped its environment was ended by SIGKILL (perhaps out "
            "of memory), twice at the same step",
        ),
        (
            "hang",
            "the worker process that stepped its environment did not answer for 3 s "
            "(population.step_timeout), twice at the same step",
        ),
    ],
)
def test_env_that_crashes_repeatedly_is_dropped_without_its_neighbours(
    workers, undisturbed, how, words
):
    made = opened(steady(workers), {3: {"how": how}})
    seen = played(made, steps=12)
    others = [0, 1, 4, 5]
    np.testing.assert_array_equal(seen[:, others], undisturbed[:12, others])
    assert made.take_reasons() == {1: words} and made.take_reasons() == {}
    assert seen[3, [2, 3], 7].all() and not seen[4:, [2, 3], 7].any(), "its slots rest"
    assert made.out.tolist() == [False, False, True, True, False, False]
    opened(made)
    np.testing.assert_array_equal(played(made, steps=12), undisturbed[:12])


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raise", "ValueError: a broken joint"),
        ("interrupt", "KeyboardInterrupt"),
        ("leave", "SystemExit: 3"),
    ],
)
def test_env_that_raises_is_dropped_with_its_source_line(
    workers, undisturbed, in_a_study, how, words, local
):
    warnings = []
    made = opened(steady(None if local else workers, warnings), {3: {"how": how}})
    seen = played(made, steps=12)
    others = [0, 1, 4, 5]
    np.testing.assert_array_equal(seen[:, others], undisturbed[:12, others])
    (reason,) = made.take_reasons().values()
    place, _, said = reason.partition(": ")
    path, line = place.rsplit(":", 1)
    assert said == words and not warnings
    text = Path(path).read_text().splitlines()[int(line) - 1]
    assert text.strip().startswith("raise ")


def test_interrupt_raised_in_an_env_is_propagated(monkeypatch):
    made = opened(steady(None))
    slots = made.batch.slots

    def step(action):
        raise Leave

    monkeypatch.setattr(slots._envs[2].unwrapped, "step", step)
    with pytest.raises(Leave):
        played(made, steps=1)


def test_irreproducible_env_is_truncated_into_a_new_episode(workers, tmp_path):
    warnings = []
    values = {3: {"wayward": True}, 5: {"how": "kill", "once": str(tmp_path / "once")}}
    made = opened(steady(workers, warnings), values)
    before = []

    def note(step):
        before.append(made.batch.arrays.observation[3].copy())

    seen = played(made, steps=12, before=note)
    assert "1 non-reproducible environment could not" in warnings[1] and len(warnings) == 2
    observation, final, reward, terminated, truncated = (
        seen[4, 3, :2],
        seen[4, 3, 2:4],
        *seen[4, 3, 4:7],
    )
    assert (reward, terminated, truncated) == (0.0, 0.0, 1.0)
    np.testing.assert_array_equal(final, before[4])
    assert observation[0] == 0.0 and seen[4, 3, 8] == 1.0 and seen[:, :, 8].sum() == 1.0
    assert made.log.episodes[3] >= 1


def test_irreproducible_env_restarts_its_evaluation_episode(workers, tmp_path):
    values = {3: {"wayward": True}, 5: {"how": "kill", "once": str(tmp_path / "once")}}
    made = opened(steady(workers), values)
    seen = played(made, steps=9, restart=False)
    assert seen[4, 3].tolist()[4:] == [0.0, 0.0, 0.0, 1.0, 1.0] and seen[4, 3, 0] == 0.0
    assert seen[5, 3, 0] == 1.0, "its time runs from there"


def test_worker_death_restores_all_batches_of_the_worker(workers, undisturbed):
    one, other = opened(steady(workers)), opened(steady(workers))
    first = played(one, steps=6)
    os.kill(workers.process_ids[0], signal.SIGKILL)
    np.testing.assert_array_equal(played(other, steps=6), undisturbed[:6])
    np.testing.assert_array_equal(first, undisturbed[:6])
    np.testing.assert_array_equal(played(one, steps=6, seed=1), played(other, steps=6, seed=1))


def test_replay_from_log_survives_a_worker_death(workers, tmp_path):
    """As when a study goes on: openings, the log, and what was shown last."""
    once = str(tmp_path / "once")
    source = opened(steady(workers))
    played(source, steps=8)
    values = {3: {"how": "kill", "once": once, "at": int(source.log.steps_since_seed[3])}}
    assert values[3]["at"] > 1
    made = steady(workers)
    made.log = source.log
    openings = [
        Opening(slot, values.get(slot, {}), f"words/{slot}", int(source.log.episodes[slot]))
        for slot in range(COUNT)
    ]
    gone = made.bring_back(openings, source.batch.arrays.observation.copy())
    assert Path(once).exists() and not len(gone) and not made.out.any()


def test_workers_that_die_at_startup_raise():
    broken = Workers(2, entry="os:abort")
    with pytest.raises(SearchError, match=r"3 worker processes in a row ended"):
        opened(steady(broken))
    broken.close()


def test_env_that_cannot_be_recreated_is_dropped(workers, undisturbed, tmp_path):
    values = {3: {"how": "refuse", "once": str(tmp_path / "once")}}
    made = opened(steady(workers), values)
    played(made, steps=3)
    (tmp_path / "once").touch()
    os.kill(workers.process_ids[1], signal.SIGKILL)
    played(made, steps=1)
    assert list(made.take_reasons()) == [1] and made.out.tolist().count(True) == EACH
