"""Drivers of studies on Ray, each a separate process that is watched and killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["commits", "driving", "log_of", "processes_below", "run_to_its_end", "wait_for"]

_PATIENCE_SECONDS = 900.0  # without a commit; a busy machine may be slow
_POLL_SECONDS = 0.2
_CODE = """\
import sys
from pathlib import Path
from hpo.search.cluster.executors import factory_of
from hpo.search.run import RunOptions, run
from hpo.studies.load import load
study = load(sys.argv[1])
say = lambda text: print(text, file=sys.stderr, flush=True)
with factory_of(study, warn=say) as factory:
    run(study, Path(sys.argv[2]), factory, (), RunOptions(1.0, 1e9))
"""


@contextmanager
def driving(
    file: Path, out: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the driver of a study that commits every second; kill it on exit."""
    words = [sys.executable, "-c", _CODE, str(file), str(out)]
    with log_of(out).open("a") as log:
        child = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **(env or {})})
    try:
        yield child
    finally:
        child.kill()  # processes that Ray started for it notice, and exit
        child.wait()


def run_to_its_end(file: Path, out: Path) -> None:
    """Run a study to its end, or resume it.

    Raises:
        RuntimeError: the study failed.
    """
    with driving(file, out) as child:
        wait_for(child, out, lambda: False)


def wait_for(child: subprocess.Popen[bytes], out: Path, happened: Callable[[], bool]) -> bool:
    """Wait until a condition is true; return False if the study ends first.

    Raises:
        RuntimeError: the study failed, or no longer commits anything.
    """
    last, at = commits(out), time.monotonic()
    while not happened():
        if child.poll() is not None:
            if child.returncode:
                raise RuntimeError(f"{out.name} ended with {child.returncode}: {_tail(out)}")
            return False
        if (now := commits(out)) != last:
            last, at = now, time.monotonic()
        if time.monotonic() - at > _PATIENCE_SECONDS:
            told = f"{out.name} has committed nothing for {_PATIENCE_SECONDS:.0f} s"
            raise RuntimeError(f"{told}, {last} times before: {_tail(out)}")
        time.sleep(_POLL_SECONDS)
    return True


def log_of(out: Path) -> Path:
    """Return the file for the output of a study's drivers."""
    return out.with_name(f"{out.name}.log")


def _tail(out: Path) -> str:
    return " / ".join(log_of(out).read_text().strip().splitlines()[-3:])[-600:]


def commits(out: Path) -> int:
    """Return the number of a study's last commit, 0 before the first."""
    from hpo.errors import StoreError
    from hpo.store.journal import Journal

    if not Journal.exists(out):
        return 0
    try:
        with Journal(out) as journal:
            return journal.head().number
    except StoreError:  # being created
        return 0


def processes_below(ancestor: int, name: str = "") -> list[int]:
    """Return the descendants of a process whose command line starts with a name."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text()
            names[int(folder.name)] = (folder / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(status.rpartition(")")[2].split()[1])

    def below(process: int) -> bool:
        while process > 1 and process != ancestor:
            process = parents.get(process, 0)
        return process == ancestor

    found = [process for process, words in names.items() if words.startswith(name)]
    return sorted(process for process in found if process != ancestor and below(process))
