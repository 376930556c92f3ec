"""Metrics of processes: lines, tables and the files of TensorBoard and W&B, as they grow."""

import json
import os
import struct
from pathlib import Path

import pytest

import hpo
from hpo.machine.reported import reader_of


def reader(kind, folder, pattern="", step="step"):
    return reader_of(kind, pattern, folder, step, 0.0)


def test_report_prints_one_json_line(capsys):
    assert hpo.report(4096, eval_return=12.5) is None
    assert json.loads(capsys.readouterr().out) == {"step": 4096, "eval_return": 12.5}


def test_stdout_metrics_are_read_line_by_line(tmp_path):
    path = tmp_path / "stdout.log"
    path.write_text('text\n{"step": 1, "a": 2, "b": {"c": 3.5}, "word": "x", "on": true}\n{"step"')
    lines = reader("stdout", tmp_path)
    assert lines.read() == [(1.0, {"a": 2.0, "b/c": 3.5})]
    assert lines.read() == []
    with path.open("a") as file:
        file.write(': 2, "a": NaN}\n{broken}\n')
    [(step, numbers)] = lines.read()
    assert (step, str(numbers["a"])) == (2.0, "nan")


def test_unterminated_last_line_is_read_after_process_exit(tmp_path):
    (tmp_path / "stdout.log").write_text('{"a": 1}')
    lines = reader("stdout", tmp_path)
    assert lines.read() == []
    assert lines.read(ended=True) == [(None, {"a": 1.0})]


def test_csv_metrics_use_named_columns(tmp_path):
    (tmp_path / "monitor.csv").write_text("#{}\nr,l,global_step\n1.5,,10\nx,2,20\n1,2\n")
    table = reader("csv", tmp_path, step="global_step")
    assert table.read() == [(10.0, {"r": 1.5}), (20.0, {"l": 2.0})]


def test_metric_files_older_than_the_process_are_ignored(tmp_path):
    (tmp_path / "old.jsonl").write_text('{"a": 1}\n')
    os.utime(tmp_path / "old.jsonl", (1000, 1000))
    assert reader_of("jsonl", "", tmp_path, "step", 2000.0).read() == []


def test_growing_tensorboard_event_files_are_read(tmp_path):
    writer = pytest.importorskip("tensorboardX").SummaryWriter(str(tmp_path / "written"))
    steps = [0, 1, 2**40]
    for step in steps:
        writer.add_scalar("charts/return", 1.5 * step, step)
    writer.close()
    [path] = (tmp_path / "written").iterdir()
    data, growing = path.read_bytes(), tmp_path / "runs" / "1" / path.name
    growing.parent.mkdir(parents=True)
    events, found = reader("tensorboard", tmp_path / "runs"), []
    for end in range(0, len(data) + 1, 5):
        growing.write_bytes(data[:end])
        found += events.read(ended=True)
    growing.write_bytes(data)
    found += events.read(ended=True)
    assert found == [(float(step), {"charts/return": 1.5 * step}) for step in steps]


def test_tensorboard_pattern_may_match_a_folder(tmp_path):
    writer = pytest.importorskip("tensorboardX").SummaryWriter(str(tmp_path / "runs" / "t1__0__x"))
    writer.add_scalar("a", 1.0, 5)
    writer.close()
    events = reader("tensorboard", tmp_path / "elsewhere", str(tmp_path / "runs" / "t1__0__*"))
    assert events.read() == [(5.0, {"a": 1.0})]


def field(number, value):
    """Return one field of a protocol buffer with bytes."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value):
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def history(names, value):
    keys = b"".join(field(1 if len(names) == 1 else 2, name.encode()) for name in names)
    return field(1, keys + field(16, json.dumps(value).encode()))


def test_growing_offline_wandb_runs_are_read(tmp_path):
    """Records longer than what is left of a block are cut, and blocks filled with zeros."""
    records = [field(8, b"run"), field(2, history(["a"], 0.5) + history(["_step"], 0))]
    records += [
        field(2, history(["n", "b"], "x" * 70_000) + history(["a"], 2) + history(["n", "c"], 3))
    ]
    data = b":W&B\x00\x00\x00"
    for record in records:
        kind, rest = 0, record
        while rest or kind == 0:
            room = 32768 - len(data) % 32768
            if room < 7:
                data += b"\0" * room
                continue
            part, rest = rest[: room - 7], rest[room - 7 :]
            first = kind == 0
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[
                (first, not rest)
            ]
            data += struct.pack("<IHB", 0, len(part), kind) + part
    path = tmp_path / "wandb" / "offline-run-1-x" / "run-x.wandb"
    path.parent.mkdir(parents=True)
    runs = reader("wandb", tmp_path, step="_step")
    found = []
    for end in (3, 60, 40_000, len(data)):
        path.write_bytes(data[:end])
        runs._files._looked = -1e9
        found += runs.read()
    assert found == [(0.0, {"a": 0.5}), (None, {"a": 2.0, "n.c": 3.0})]
    assert Path(path).stat().st_size == len(data)
