"""Results point 2: a bundle of the first study, verified in a different checkout and damaged.

In the short form the study is small, and is run, bundled and verified in this checkout.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from .common import ROOT, Outcome, call, call_here, hpo_command, said_here
from .fresh import fresh_clone, fresh_python

DAMAGED = 200
_SMALL = ("env_steps=1024", "early_terminate=null", "budget.trials=3", "seeds.per_config=1",
          "confirm={report: 6, choose: 0}", "population.lanes=4", "evaluation.episodes=5",
          "fixed.num_envs=4", "fixed.rollout_length=32", "fixed.num_minibatches=2",
          "fixed.hidden_sizes=[8]")  # fmt: skip


def first_bundle(small: bool, work: Path) -> Path:
    """Run the README's first study, or a small one in this process; return its bundle."""
    fewer = [word for key in _SMALL for word in ("--set", key)] if small else []
    path = work / "first.zip"
    for words in (
        ["run", ROOT / "studies" / "first.yaml", "--quiet", *fewer],
        ["bundle", work / "results" / "first", "-o", path],
    ):
        if small:
            call_here(words, work)
        else:
            call([*hpo_command(), *words], work)
    return path


def travels(small: bool, work: Path) -> Outcome:
    """Run the study, bundle it, verify every level elsewhere, then change bytes and a claim."""
    path = first_bundle(small, work)
    python, elsewhere = Path(sys.executable), work / "elsewhere"
    elsewhere.mkdir()
    if not small:
        clone, python = fresh_clone(work), fresh_python(work)
        call([python, "-m", "pip", "install", "-q", "."], clone)
    words = [*hpo_command(python), "verify", path, "--play", "--retrain", "--json"]
    found = json.loads(call(words, elsewhere).stdout)
    levels = {one["name"]: one for one in found["levels"]}
    damaged = DAMAGED // 5 if small else DAMAGED
    refused = sum(map(_refused, _damaged(path, work / "damaged.zip", damaged)))
    answer, words = _verified(_flattered(path, work / "flattered"))
    passed = found["holds"] and all(one["holds"] is not False for one in levels.values())
    passed &= levels["playable"]["words"].startswith("bit-equal")
    passed &= levels["retrained"]["words"].startswith("bit-equal on all")
    passed &= refused == damaged and answer == 1 and "claimed" in words
    refuted = next((line.strip() for line in words.splitlines() if "claimed" in line), "nothing")
    forged, caught = _forged(work / "results" / "first", work)
    passed &= forged == 1
    each = "; ".join(f"{name}: {one['words']}" for name, one in levels.items())
    said = found["claims"][1]["sentences"][0]
    numbers = f"{path.stat().st_size:,} bytes; {said} {each}; {refused} of {damaged} with changed "
    made_up = f"one test seed of the winner made up: {caught}"
    return Outcome(passed, f"{numbers}bytes refused in a sentence; by hand: {refuted}; {made_up}")


def _forged(folder: Path, work: Path) -> tuple[int, str]:
    """Invent one test seed and all numbers that follow from it; return the output of --retrain."""
    import numpy as np

    from hpo.store.journal import JOURNAL_NAME, Journal, sum_of, write_sum

    own, path = work / "forged", work / "forged.zip"
    shutil.copytree(folder, own)
    with Journal(own) as journal:
        winner = [row for row in journal.trials() if row.report_values][-1]
        of_seed = [one for one in journal.evaluations(winner.trial) if one.stream == "report"][-1]
    with closing(sqlite3.connect(own / JOURNAL_NAME)) as connection:
        key = (winner.trial, of_seed.replicate)
        better = float(of_seed.returns.max()) + 1.0
        connection.execute(
            "UPDATE evaluations SET returns = ? "
            "WHERE trial = ? AND stream = 'report' AND replicate = ?",
            (np.full(len(of_seed.returns), better).tobytes(), *key),
        )
        [(text,)] = connection.execute("SELECT row FROM trials WHERE trial = ?", key[:1])
        row = json.loads(text)
        row["report_values"][-1] = better
        changed = (json.dumps(row), winner.trial)
        connection.execute("UPDATE trials SET row = ? WHERE trial = ?", changed)
        for table in ("evaluations", "trials"):
            write_sum(connection, table, sum_of(connection, table))
        connection.commit()
    said_here(["bundle", own, "-o", path])
    code, words = said_here(["verify", path, "--retrain"])
    caught = [line.strip() for line in words.splitlines() if "retrained it has" in line]
    return code, "; ".join(caught) or "nothing"


def _damaged(path: Path, to: Path, count: int) -> list[Path]:
    rng, content = random.Random(1), path.read_bytes()
    found = list[Path]()
    for number in range(count):
        changed = bytearray(content)
        changed[rng.randrange(len(changed))] ^= rng.randint(1, 255)
        found.append(to.with_name(f"{number}-{to.name}"))
        found[-1].write_bytes(changed)
    return found


def _refused(path: Path) -> bool:
    code, words = _verified(path)
    return code == 2 and len(words.strip().splitlines()) == 1


def _verified(path: Path) -> tuple[int, str]:
    return said_here(["verify", path])


def _flattered(path: Path, folder: Path) -> Path:
    """Improve the value in the first claim, and correct the hashes."""
    from hpo.views.bundle.container import pack, unpack
    from hpo.views.bundle.write import CLAIMS, MANIFEST, as_text, sha256

    names = unpack(path, folder)
    claims = json.loads((folder / CLAIMS).read_text())
    claims["claims"][0]["numbers"]["value"] += 10.0
    (folder / CLAIMS).write_text(as_text(claims))
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["members"][CLAIMS] = sha256(folder / CLAIMS)
    (folder / MANIFEST).write_text(as_text(manifest))
    made = folder.with_suffix(".zip")
    pack({name: folder / name for name in names}, made)
    return made
