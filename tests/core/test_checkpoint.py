import errno
import hashlib
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import jax
import numpy as np
import pytest

from hpo.core.checkpoint import restore_tree, save_tree
from hpo.errors import StoreError

OTHERS = {"normalise_observations": True, "normalise_rewards": True, "update_epochs": 2}


def same(left, right):
    """Bitwise equality of two trees, dtypes and NaNs included."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.tobytes() == b.tobytes()


def small():
    return {
        "weights": np.array([[1.0, -0.0], [np.nan, np.inf]], np.float32),
        "count": np.int32(3) * np.ones((), np.int32),
        "words": np.array([2**32 - 1, 0], np.uint32),
        "flags": np.array([True, False]),
        "nested": ({"tiny": np.array([1e-45], np.float32)}, np.arange(6, dtype=np.uint8)),
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoint") / "small"
    save_tree(directory, small())
    return directory


def test_checkpoint_round_trips_every_dtype_bitwise(saved):
    back = restore_tree(saved, small())
    same(back, small())
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(back))


def test_restored_lanes_continue_bitwise_identically(tiny, tmp_path):
    program = tiny.program()
    rows = tiny.start(program, {0: ({}, 0), 3: (OTHERS, 1), 5: ({"target_kl": 0.01}, 2)})
    lanes, _ = program.advance(tiny.seed, program.empty(), rows)
    kept = jax.device_get(lanes)
    save_tree(tmp_path / "lanes", lanes)
    restored = restore_tree(tmp_path / "lanes", kept)
    same(restored, kept)
    on, metrics = program.advance(tiny.seed, lanes, program.no_refills())
    again, metrics_again = program.advance(
        tiny.seed, program.place(restored), program.no_refills()
    )
    same(jax.device_get(again), jax.device_get(on))
    same(jax.device_get(metrics_again), jax.device_get(metrics))
    assert not np.array_equal(jax.device_get(on).state.updates, kept.state.updates)


def test_a_missing_checkpoint_is_named(tmp_path):
    with pytest.raises(StoreError, match="no checkpoint at"):
        restore_tree(tmp_path / "nothing", small())


def test_empty_checkpoint_folder_is_refused(tmp_path):
    with pytest.raises(StoreError, match="damaged or incomplete"):
        restore_tree(tmp_path, small())


def test_checkpoint_with_different_structure_is_refused(saved):
    other = small()
    other["more"] = other.pop("words")
    with pytest.raises(StoreError, match="cannot be read"):
        restore_tree(saved, other)


def test_checkpoint_with_different_shapes_is_refused(saved):
    other = {**small(), "weights": np.zeros((3, 2), np.float32)}
    with pytest.raises(StoreError, match="wrong shapes"):
        restore_tree(saved, other)


@pytest.mark.parametrize("kind", ["halved", "emptied", "removed", "a bit flipped"])
def test_damage_to_any_file_is_found(saved, tmp_path, kind):
    files = sorted(p.relative_to(saved) for p in saved.rglob("*") if p.is_file())
    assert len(files) > 3
    for i, name in enumerate(files):
        copy = shutil.copytree(saved, tmp_path / str(i))
        content = bytearray((copy / name).read_bytes())
        if kind == "removed" or not content:
            (copy / name).unlink()
        elif kind == "a bit flipped":
            content[len(content) // 2] ^= 1
            (copy / name).write_bytes(content)
        else:
            (copy / name).write_bytes(content[: len(content) // 2 if kind == "halved" else 0])
        with pytest.raises(StoreError, match="damaged"):
            restore_tree(copy, small())


def test_checkpoint_sha256sums_match_the_files(saved):
    for line in (saved / "SHA256SUMS").read_text().splitlines():
        known, name = line.split("  ")
        assert hashlib.sha256((saved / name).read_bytes()).hexdigest() == known


def test_existing_checkpoint_is_not_overwritten(saved):
    with pytest.raises(ValueError, match="exist"):
        save_tree(saved, small())
    same(restore_tree(saved, small()), small())


def test_failed_checkpoint_save_silences_background_threads(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    save_tree(tmp_path / "state", {"x": np.zeros(3)})
    assert sys.excepthook is sys.__excepthook__
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr("orbax.checkpoint.StandardCheckpointer.save", Mock(side_effect=full))
    with pytest.raises(StoreError):
        save_tree(tmp_path / "other", {"x": np.zeros(3)})
    for text in ("Event loop is closed", "another error"):
        error = RuntimeError(text)
        sys.excepthook(RuntimeError, error, None)  # as C++ prints what a callback raised
    assert capsys.readouterr().err == "RuntimeError: another error\n"


def test_threads_save_and_restore_at_the_same_time(tmp_path):
    def save_and_restore(number):
        tree = {"a": np.full(4, number, np.float32)}
        for count in range(3):
            save_tree(tmp_path / f"{number}-{count}", tree)
        return restore_tree(tmp_path / f"{number}-2", tree)["a"].tolist()

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(save_and_restore, range(6)))
    assert found == [[float(number)] * 4 for number in range(6)]
