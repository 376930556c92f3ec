"""Reliability point 3: a study does not depend on the order in which Python iterates over sets.

Strings hash differently in every process unless `PYTHONHASHSEED` is set, so decisions that iterate
over a set would differ. Every method, rule and kind of study runs in processes with several hash
seeds, and all of them must give the same results.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from hpo.studies.search_methods import METHODS
from hpo.studies.stopping_rules import RULES

from .common import ROOT, Outcome

_SEEDS = (0, 1, 2, 3)
_STARTUP = ("tpe", "gp", "smac")
_RULES = tuple(rule.name for rule in RULES.values() if not rule.evolves)
_CHILD = (
    "import sys; sys.path.insert(0, {!r}); from acceptance_points.hash_seeds import tell; tell()"
)


def repeats(small: bool, work: Path) -> Outcome:
    """Run all studies with each hash seed, and compare the results."""
    names = list(names_of_studies())
    seeds = _SEEDS
    if small:
        names, seeds = [name for name in names if name in ("tpe asha", "kind racing")], _SEEDS[:2]
    found = [digests(seed, names) for seed in seeds]
    wrong = [name for name in names if len({one[name] for one in found}) > 1]
    missing = [method for method in METHODS if not _is_there(method)]
    numbers = f"{len(names)} studies under each of {len(seeds)} hash seeds, "
    numbers += "all alike" if not wrong else f"not alike: {', '.join(wrong)}"
    numbers += f"; not installed: {', '.join(missing)}" if missing else ""
    return Outcome(not wrong, numbers)


def names_of_studies() -> list[str]:
    """Name every installed method with a rule, and every kind of study twice."""
    from .crash_cases import KINDS

    methods = [method for method in METHODS if _is_there(method)]
    named = [f"{method} {_RULES[i % len(_RULES)]}" for i, method in enumerate(methods)]
    named += [f"{method} {rule}" for method in ("random", "tpe") for rule in _RULES]
    return [*dict.fromkeys(named), *(f"kind {kind}" for kind in KINDS)]


def digests(seed: int, names: Sequence[str]) -> dict[str, str]:
    """Run studies in a process with a hash seed; return a hash of each one's results."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD.format(str(ROOT / "scripts")), *names],
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"hash seed {seed}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def tell() -> None:
    """Act as such a process: print the hashes of the studies named on the command line."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps({name: _digest(name, Path(folder) / name) for name in sys.argv[1:]}))


def _digest(name: str, folder: Path) -> str:
    from hpo.search.run import RunOptions, run
    from hpo.store.journal import Journal
    from hpo.studies.execution_spec import Budget
    from hpo.studies.search_spec import EarlyTerminate, SearchSpec

    from .crash_cases import draw_case, study_of

    first, second = name.split(" ", 1)
    if first == "kind":
        case = draw_case(second, 7)
    else:
        options = {"n_startup_trials": 4} if first in _STARTUP else {}
        options |= {"population_size": 6} if first == "nsga2" else {}
        options |= {"popsize": 4} if first == "cmaes" else {}
        early = EarlyTerminate(second, 2_000, 3.0, patience=2, tolerance=0.1)
        case = study_of(SearchSpec(first, options=options), early, Budget(trials=16))
    run(case.study, folder, case.factory, (), RunOptions(publish_seconds=1e9, commit_seconds=1e9))
    with Journal(folder) as journal:
        trials = [
            (row.trial, sorted(row.params.items()), str(row.state), row.value, row.seed_values)
            for row in journal.trials()
        ]
        text = repr((trials, journal.decisions(), journal.asks(), journal.attributes()))
    return hashlib.sha256(text.encode()).hexdigest()


def _is_there(method: str) -> bool:
    return find_spec(METHODS[method].package or "sys") is not None
