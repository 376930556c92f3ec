"""Two hundred study files that must each be refused with a message, at a line, within a second.

`hostile_files` writes them; `fault_of_load` judges one in process, `fault_of_command` through the
command line. `tests/studies/test_hostile.py` and `scripts/acceptance engine 8` both use them, so
this module imports nothing from the tests.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

SECONDS = 1.0
"""How long a refusal may take."""

_BASE = """\
env: CartPole-v1
env_steps: 200k
space:
  learning_rate: {min: 1e-5, max: 1e-2, distribution: log_uniform}
  gamma: {min: 0.9, max: 0.999, distribution: one_minus_log}
"""

_TOP_KEYS = ("envs", "spaces", "env_stepss", "Seed", "trials", "metrics", "__class__", "<<", "")
_SECTION_KEYS = {
    "metric": ("nam", "aggregation", "__init__"),
    "evaluation": ("evry", "episode", "seed"),
    "search": ("sampler", "randomshare", "option"),
    "early_terminate": ("minimum", "grace", "max"),
    "seeds": ("per_trial", "n", "tolerance"),
    "confirm": ("topk", "k", "seeds"),
    "budget": ("trial", "time", "gpu_hours"),
    "checkpoint": ("keep", "every", "path"),
}
_WRONG_VALUES = (
    "seed: one",
    "seed: -1",
    "seed: 1.5",
    "seed: 99999999999999999999",
    "seed: [1]",
    "seed: null",
    "name: 3",
    "name: [a]",
    "name: ''",
    "fixed: 7",
    "fixed: [num_envs]",
    "fixed: {num_envs: eight}",
    "fixed: {num_envs: 0}",
    "fixed: {num_envs: 1e99}",
    "fixed: {hidden_sizes: 64}",
    "fixed: {hidden_sizes: [64, -1]}",
    "fixed: {hidden_sizes: [[64]]}",
    "fixed: {activation: Tanh}",
    "fixed: {normalise_observations: yes}",
    "fixed: {optimiser: {adam: 1}}",
    "fixed: {vf_coef: -0.5}",
    "fixed: {vf_coef: .nan}",
    "fixed: {vf_coef: -.inf}",
    "fixed: {learning_rate: 1e-3}",
    "fixed: {n_steps: 128}",
    "fixed: {env.length: 0.5}",
    "forbid: gamma",
    "forbid: [3]",
    "forbid: [[]]",
    "forbid: [{}]",
    "enqueue: {learning_rate: 1e-3}",
    "enqueue: [learning_rate]",
    "enqueue: [{learning_rate: 7}]",
    "enqueue: [{learning_rate: fast}]",
    "enqueue: [{batch: 7}]",
    "metric: reward",
    "metric: {goal: up}",
    "metric: {name: return}",
    "metric: {aggregate: iqm}",
    "evaluation: {every: never}",
    "evaluation: {every: 0}",
    "evaluation: {every: 300k}",
    "evaluation: {episodes: -3}",
    "evaluation: {greedy: maybe}",
    "search: tpe",
    "search: {method: tpee}",
    "search: {method: [tpe]}",
    "search: {random_share: 2}",
    "search: {method: grid, options: {points: 0}}",
    "search: {method: tpe, options: {startup: 3}}",
    "early_terminate: asha",
    "early_terminate: {type: asha, min: 300k}",
    "early_terminate: {type: asha, eta: 1}",
    "early_terminate: {type: asha, min: 10 apples}",
    "seeds: {per_config: 0}",
    "seeds: {per_config: 2, tolerate: 2}",
    "confirm: {top_k: 100}",
    "population: {lanes: many}",
    "population: {device: tpuv5}",
    "budget: {trials: null}",
    "budget: {env_steps: 1k}",
    "budget: {wall: 2 fortnights}",
    "budget: {trials: true}",
    "executor: {type: slurm}",
    "loggers: csv",
    "loggers: [excel]",
    "loggers: [{kind: csv}]",
    "imports: my_envs.py",
    "imports: [missing.py]",
)
_DISTRIBUTIONS = (
    # not numbers
    "{min: .nan, max: 1.0}",
    "{min: 0.1, max: .NaN}",
    "{min: -.inf, max: 1.0}",
    "{min: 0.1, max: .inf}",
    "{mu: .nan, sigma: 1.0}",
    "{mu: 0.0, sigma: .inf}",
    "{min: 0.1, max: 1.0, q: .nan}",
    "{min: 0.1, max: 1.0, zero: .nan}",
    "{values: [0.1, .nan]}",
    "{min: 1e999, max: 2e999}",
    # the wrong way round, or empty
    "{min: 2.0, max: 1.0}",
    "{min: 3, max: 2}",
    "{min: 1e-2, max: 1e-5, distribution: log_uniform}",
    "{min: 64, max: 8, distribution: pow2}",
    "{min: 0.99, max: 0.9, distribution: one_minus_log}",
    "{min: 0.1, max: 0.2, q: 5}",
    "{values: []}",
    "{}",
    "null",
    "0.5",
    "[]",
    # outside of what the kind or the knob allows
    "{min: 0.0, max: 1.0, distribution: log_uniform}",
    "{min: -2.0, max: -1.0}",
    "{min: 0.5, max: 1.0, zero: 1.5}",
    "{min: 0.5, max: 1.0, distribution: beta}",
    "{min: 0.5, max: 1.0, distribution: [uniform]}",
    "{min: 0.5, max: 1.0, default: 3.0}",
    "{min: half, max: 1.0, distribution: uniform}",
    "{min: {a: 1}, max: 1.0, distribution: uniform}",
    "{min: 0.5, max: 1.0, when: 3}",
    "{min: 0.5, max: 1.0, when: {}}",
    "{min: 0.5, max: 1.0, when: {network: lstmm}}",
)
_CODE = (
    "__import__('os').system('touch pwned')",
    "open('pwned', 'w') == 1",
    "exec('import os')",
    "gamma.__class__.__mro__ == 1",
    "(lambda: gamma)() < 1",
    "[gamma for gamma in range(9)] == 1",
    "gamma ** 9 ** 9 ** 9 < 1",
    "gamma if gamma else 1",
    "f'{gamma}' == '1'",
    "gamma; gamma",
    "gamma := 3",
    "gamma < (yield)",
    "gamma[0] < 1",
    "1 < 2",
    "gamma <",
    "gama < 1",
)
_TAGS = (
    "!!python/object/apply:os.system ['touch pwned']",
    "!!python/name:os.system ''",
    "!!python/object/new:type {}",
    "!!binary aGk=",
    "!!set {a}",
    "!!str 3",
    "!mine 3",
    "! 3",
)
_PATHS = (
    "name: ../../escape",
    "name: /etc/cron.d/hpo",
    "name: ..",
    "name: a/b",
    'name: "a\\0b"',
    "name: .hidden",
    "name: 'con|out'",
    "imports: [../outside.py]",
    "imports: [/etc/passwd.py]",
    "imports: ['a\\..\\b.py']",
)
_SPACE_PATHS = ("../../etc/passwd", "/etc/passwd", "spaces/../../x.yaml", "spaces/pppo.yaml", "")


def _mapped(key: str, value: str) -> bytes:
    return f"{_BASE}  {key}: {value}\n".encode()


def _bombs() -> Iterator[str]:
    letters = "abcdefghij"
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for before, here in itertools.pairwise(letters):
        lines.append(f"{here}: &{here} [{', '.join([f'*{before}'] * 9)}]")
    yield "\n".join(lines)
    yield "\n".join(["a: &a {x: 1, y: 2}"] + [f"k{i}: *a" for i in range(9000)])
    yield "a: &a [*a]"
    yield "a: &a {b: {c: *a}}"
    yield "a: *nowhere"
    deep = [f"a0: &a0 {'[' * 20}x{']' * 20}"]
    deep += [f"a{i}: &a{i} {'[' * 20}*a{i - 1}{']' * 20}" for i in range(1, 200)]
    yield "\n".join(deep)


def _deep() -> Iterator[str]:
    yield "space: " + "[" * 3000 + "]" * 3000
    yield "space: " + "{a: " * 3000 + "1" + "}" * 3000
    yield "space:\n" + "".join(" " * level + "a:\n" for level in range(1, 3001))
    yield "- " * 3000 + "x"
    yield "? " * 3000 + "x"
    yield "forbid: ['" + "(" * 3000 + "gamma < 1" + ")" * 3000 + "']\n" + _BASE
    yield "forbid: ['" + "not " * 3000 + "gamma < 1']\n" + _BASE


def _duplicates() -> Iterator[str]:
    yield _BASE + "env: Pendulum-v1\n"
    yield _BASE + "  gamma: {min: 0.5, max: 0.6}\n"
    yield _BASE + "seeds: {per_config: 2, per_config: 3}\n"
    yield _BASE + "fixed: {optimiser: adam, optimizer: adamw}\n"
    yield _BASE + "fixed: {num_envs: 4, 'num_envs': 8}\n"
    yield _BASE + "enqueue: [{gamma: 0.95, gamma: 0.95}]\n"


def _large() -> Iterator[bytes]:
    yield b"# " + b"x" * 10_000_000
    yield _BASE.encode() + b"name: " + b"x" * 10_000_000
    yield b"a: 1\n" * 2_000_000
    yield b"[" * 10_000_000
    yield b"\x00" * 10_000_000


def _bytes() -> Iterator[bytes]:
    base = _BASE.encode()
    yield base + b"name: caf\xe9\n"
    yield b"\xff\xfe" + _BASE.encode("utf-16-le")
    yield base + b"name: \xc3\x28\n"
    yield base + b"name: \xed\xa0\x80\n"
    yield base + b"name: a\x00b\n"
    yield base + b"name: a\x1b[2Jb\n"
    yield b""
    yield b"# nothing\n"
    yield b"\x7fELF\x02\x01\x01"
    yield base + b"name: [unclosed\n"
    yield base + b"\tname: tab\n"
    yield base + b"---\n" + base
    yield b"just words\n"
    yield b"- a list\n"
    yield b"3\n"


def _circles() -> Iterator[str]:
    def knob(name: str, parent: str, value: object) -> str:
        return f"  {name}: {{min: 0.1, max: 0.9, when: {{{parent}: {value}}}}}\n"

    yield _BASE + knob("vf_coef", "vf_coef", 0.5)
    yield _BASE + knob("vf_coef", "clip_eps", 0.5) + knob("clip_eps", "vf_coef", 0.5)
    yield (
        _BASE
        + knob("vf_coef", "clip_eps", 0.5)
        + knob("clip_eps", "gae_lambda", 0.5)
        + knob("gae_lambda", "vf_coef", 0.5)
    )
    yield _BASE + knob("vf_coef", "nothing", 1)
    yield _BASE + knob("vf_coef", "activation", "relu")


def _all_cases() -> Iterator[tuple[str, bytes]]:
    for key in _TOP_KEYS:
        yield "unknown_key", f"{_BASE}{key or repr(key)}: 1\n".encode()
    for section, keys in _SECTION_KEYS.items():
        for key in keys:
            extra = "type: asha, " if section == "early_terminate" else ""
            yield "unknown_key", f"{_BASE}{section}: {{{extra}{key}: 1}}\n".encode()
    for line in _WRONG_VALUES:
        yield "wrong_value", f"{_BASE}{line}\n".encode()
    for value in _DISTRIBUTIONS:
        yield "distribution", _mapped("clip_eps", value)
    for code in _CODE:
        yield "code", _BASE.encode() + b"forbid: [" + _quoted(code) + b"]\n"
    for tag in _TAGS:
        yield "tag", f"{_BASE}name: {tag}\n".encode()
    for line in _PATHS:
        yield "path", f"{_BASE}{line}\n".encode()
    for path in _SPACE_PATHS:
        text = f"env: CartPole-v1\nenv_steps: 1k\nspace: {{file: '{path}'}}\n"
        yield "path", text.encode()
    texts = {"bomb": _bombs, "deep": _deep, "duplicate": _duplicates, "circle": _circles}
    for name, make in texts.items():
        for text in make():
            yield name, text.encode()
    for data in _large():
        yield "large", data
    for data in _bytes():
        yield "bytes", data


def _quoted(text: str) -> bytes:
    return b"'" + text.replace("'", "''").encode() + b"'"


def hostile_files(directory: Path, count: int = 200) -> list[Path]:
    """Write `count` hostile files into a directory, every category among them.

    Raises:
        ValueError: there are not that many different ones.
    """
    cases = list(_all_cases())
    if len(cases) < count:
        raise ValueError(f"{len(cases)} cases, {count} wanted")
    # The categories with many members give way, so that all others are complete.
    wanted = _thinned([name for name, _ in cases], len(cases) - count)
    paths: list[Path] = []
    for index in wanted:
        name, data = cases[index]
        path = directory / f"{index:03d}_{name}.yaml"
        path.write_bytes(data)
        paths.append(path)
    return paths


def _thinned(names: Sequence[str], surplus: int) -> list[int]:
    kept = list(range(len(names)))
    for _ in range(surplus):
        largest = max(
            set(names[i] for i in kept),
            key=lambda name: (sum(names[i] == name for i in kept), name),
        )
        members = [i for i in kept if names[i] == largest]
        kept.remove(members[len(members) // 2])
    return kept


def fault_of_load(path: Path) -> str | None:
    """Load one file in this process; give what is wrong with the refusal, or None."""
    from hpo.errors import StudyError
    from hpo.studies.load import load

    start = time.process_time()
    try:
        load(path)
    except StudyError as error:
        seconds = time.process_time() - start
        if seconds > SECONDS:
            return f"took {seconds:.2f} s"
        lined = [mistake for mistake in error.mistakes if mistake.line is not None]
        if not lined:
            return f"no line: {error}"
        first = str(error).splitlines()[0]
        if not first.startswith(f"{path}:{lined[0].line}: "):
            return f"no file and line at the start: {first[:200]}"
        longest = max(map(len, str(error).splitlines()))
        return f"a line of {longest} characters" if longest > 2000 else None
    return "was accepted"


def fault_of_command(path: Path, command: Sequence[str] = ("hpo", "run")) -> str | None:
    """Run the command on one file in an empty folder; give what is wrong, or None.

    Nothing may be written, neither there nor beside the file; the exit code must be 2.
    """
    beside = sorted(path.parent.iterdir())
    with tempfile.TemporaryDirectory() as empty:
        start = time.perf_counter()
        done = subprocess.run(
            [*command, str(path)], cwd=empty, capture_output=True, timeout=60, check=False
        )
        seconds = time.perf_counter() - start
        written = sorted(entry.name for entry in Path(empty).iterdir())
    stderr = done.stderr.decode(errors="replace")
    if done.returncode != 2:
        return f"exit code {done.returncode}: {stderr[-500:]}"
    if "Traceback" in stderr or b"Traceback" in done.stdout:
        return f"a traceback: {stderr[-500:]}"
    if not re.search(re.escape(str(path)) + r":\d+: \S", stderr):
        return f"no file and line: {stderr[:300]}"
    if written or sorted(path.parent.iterdir()) != beside:
        return f"something was written: {written}"
    return f"took {seconds:.2f} s" if seconds > SECONDS else None
