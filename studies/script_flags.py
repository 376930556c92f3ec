"""Writes a first study for a training script, from the flags that its file declares.

The file is parsed, never run. Its flags are declared with argparse, click or dataclasses, or are
the keys of a Hydra configuration.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..files.plain_data import is_mapping, is_sequence
from .study_values import amount_of
from .yaml_io import plain, read_text, text_of, to_yaml

_SEEDS = ("seed", "random_seed")
_LENGTHS = ("env_steps", "total_timesteps", "total_steps", "timesteps", "max_steps", "steps",
            "epochs", "num_epochs", "max_epochs")  # fmt: skip
_FOLDERS = ("out", "output", "out_dir", "output_dir", "log_dir", "logdir", "save_dir", "log")
_TUNED = ("lr", "rate", "gamma", "lambda", "clip", "coef", "dropout", "decay", "momentum", "tau",
          "hidden", "width", "layers", "depth", "batch", "steps", "trees", "epochs", "eps",
          "alpha", "temperature")  # fmt: skip
"""Words in the names of flags that are worth searching."""
_MOST, _NEAR_ONE, _LENGTH = 6, 0.8, 100_000


@dataclass(frozen=True)
class ScriptFlag:
    """One flag of a script, as typed on its command line, with its default."""

    flag: str
    default: Any

    @property
    def name(self) -> str:
        return self.flag.lstrip("-").replace("-", "_").replace(".", "_")

    @property
    def last(self) -> str:
        """The flag's name without the groups that Hydra puts before it."""
        return self.flag.lstrip("-").replace("-", "_").rpartition(".")[2]

    def typed(self, value: str) -> str:
        """Return the command-line words that set the flag.

        >>> ScriptFlag("--lr", 0.1).typed("{lr}"), ScriptFlag("optimizer.lr", 0.1).typed("{lr}")
        ('--lr {lr}', 'optimizer.lr={lr}')
        """
        if self.flag.startswith("-"):
            return f"{self.flag} {value}"
        return f"{self.flag}={value}"

    @property
    def is_tuned(self) -> bool:
        is_number = isinstance(self.default, int | float) and not isinstance(self.default, bool)
        parts = self.last.lower().split("_")
        return is_number and self.default > 0 and any(part in _TUNED for part in parts)

    def distribution(self) -> dict[str, Any]:
        """Return a range around the default.

        >>> ScriptFlag("--lr", 3e-4).distribution()
        {'min': 3e-05, 'max': 0.003, 'distribution': 'log_uniform'}
        >>> ScriptFlag("--gamma", 0.99).distribution()
        {'min': 0.9, 'max': 0.999, 'distribution': 'one_minus_log'}
        >>> ScriptFlag("--hidden", 64).distribution(), ScriptFlag("--layers", 3).distribution()
        ({'values': [32, 64, 128]}, {'min': 1, 'max': 6})
        """
        value = self.default
        if isinstance(value, int) and value >= 8 and value & (value - 1) == 0:
            return {"values": [value // 2, value, 2 * value]}
        if isinstance(value, int):
            return {"min": max(1, value // 2), "max": 2 * value}
        if _NEAR_ONE <= value < 1:
            low, high = 1 - 10 * (1 - value), 1 - (1 - value) / 10
            found = {
                "min": max(0.5, _round_to_four_digits(low)),
                "max": _round_to_four_digits(high),
            }
            return {**found, "distribution": "one_minus_log"}
        high = 10 * value
        if value < 1:
            high = min(1.0, high)
        return {
            "min": _round_to_four_digits(value / 10),
            "max": _round_to_four_digits(high),
            "distribution": "log_uniform",
        }


def _round_to_four_digits(number: float) -> float:
    return float(f"{number:.4g}")


def flags_of_script(text: str, folder: Path = Path(".")) -> list[ScriptFlag]:
    """Return the flags that a file declares with argparse, click or a command-line dataclass.

    For a script with `hydra.main`, they are the keys of its configuration, read from `folder`.

    >>> flags_of_script("parser.add_argument('-l', '--lr', type=float, default=1e-3)")
    [ScriptFlag(flag='--lr', default=0.001)]
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(f"line {error.lineno}: {error.msg}") from error
    found: dict[str, ScriptFlag] = {}
    for node in ast.walk(tree):
        for flag in _flags_of_node(node):
            found.setdefault(flag.name, flag)
    hydra = next(filter(None, map(_hydra_main, ast.walk(tree))), None)
    if hydra is None:
        return list(found.values())
    path = folder / str(hydra.get("config_path") or ".")
    read = list(_flags_of_config(path, str(hydra.get("config_name") or "config"), ""))
    if not read:  # a structured configuration: read the fields of dataclasses
        read = [ScriptFlag(flag.name, flag.default) for flag in found.values()]
    return list({flag.flag: flag for flag in read}.values())


def _hydra_main(node: ast.AST) -> dict[str, Any] | None:
    """Return the keywords of `hydra.main` if a node is a function with that decorator."""
    if not isinstance(node, ast.FunctionDef):
        return None
    for mark in node.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) in ("hydra.main", "main"):
            return {word.arg: _literal_value(word.value) for word in mark.keywords if word.arg}
    return None


def _flags_of_config(
    folder: Path, name: str, package: str, above: tuple[Path, ...] = ()
) -> Iterator[ScriptFlag]:
    """Yield the keys of one file in a Hydra configuration, after those of its defaults."""
    if not name.endswith((".yaml", ".yml")):
        name = f"{name}.yaml"
    path = folder / name
    if not path.is_file() or path in above:  # in another package, or declared in Python
        return
    text = text_of(path)
    if "@package _global_" in text.partition("\n")[0]:
        package = ""
    given = {key: plain(node) for key, node in read_text(text, str(path)).mapping.items()}
    for group, option in _defaults_of(given.pop("defaults", ())):
        inner = ".".join(filter(None, [package, group.replace("/", ".")]))
        yield from _flags_of_config(path.parent / group, option, inner, (*above, path))
    yield from _flags_of_keys(given, package)


def _defaults_of(given: Any) -> Iterator[tuple[str, str]]:
    """Yield (group, option) from a defaults list, except for Hydra's built-in groups."""
    if not is_sequence(given):
        return
    for entry in given:
        pairs: Iterable[tuple[Any, ...]] = [str(entry).rpartition("/")[::2]]
        if is_mapping(entry):
            pairs = entry.items()
        for group, option in pairs:
            name = str(group).removeprefix("override ").removeprefix("optional ").lstrip("/")
            if isinstance(option, str) and option != "_self_" and not name.startswith("hydra"):
                yield name, option


def _flags_of_keys(given: Mapping[str, Any], package: str) -> Iterator[ScriptFlag]:
    for key, value in given.items():
        name = ".".join(filter(None, [package, key]))
        if is_mapping(value):
            if name != "hydra":
                yield from _flags_of_keys(value, name)
            continue
        yield ScriptFlag(name, amount_of(value))


def _flags_of_node(node: ast.AST) -> Iterator[ScriptFlag]:
    """Yield the flags declared by one node, in the style of argparse, click or tyro."""
    if isinstance(node, ast.Call):
        yield from _flag_of_call(node)
    if isinstance(node, ast.ClassDef) and any(
        "dataclass" in ast.unparse(d) for d in _decorators(node)
    ):
        yield from _flags_of_fields(node)


def _flag_of_call(node: ast.Call) -> Iterator[ScriptFlag]:
    if not isinstance(node.func, ast.Attribute):
        return
    if node.func.attr not in ("add_argument", "option"):
        return
    texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
    words = [text for text in texts if isinstance(text, str) and text.startswith("--")]
    defaults = (word.value for word in node.keywords if word.arg == "default")
    if words:
        yield ScriptFlag(words[0].partition("/")[0], _literal_value(next(defaults, None)))


def _flags_of_fields(node: ast.ClassDef) -> Iterator[ScriptFlag]:
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            flag = f"--{line.target.id.replace('_', '-')}"
            yield ScriptFlag(flag, _literal_value(line.value))


def _decorators(node: ast.ClassDef) -> list[ast.expr]:
    return node.decorator_list


def _literal_value(node: ast.expr | None) -> Any:
    if node is None:
        return None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):  # an expression whose value is unknown here
        return None


def command_init_text(command: str, folder: Path = Path(".")) -> str:
    """Return the text of a study for a command whose script has flags.

    Raises:
        ConfigError: the script is missing, or has no numeric flag.
    """
    path = _script_of(command, folder)
    flags = _open_flags(path, command)
    tuned = [flag for flag in flags if flag.is_tuned and flag.last not in _LENGTHS][:_MOST]
    if not tuned:
        shown = ", ".join(flag.flag for flag in flags[:20]) or "none"
        raise ConfigError(f"{path.name} has no numeric flag to search; its flags: {shown}")
    length = _length_flag(flags)
    line = _filled_in(command, tuned, flags, length)
    amount, unit = _length_of(length)
    default = {flag.name: flag.default for flag in tuned}
    lines = [
        f"# flags of {path.name}; not searched: {_untuned_flags_text(flags, tuned, line)}",
        to_yaml({"name": path.stem, "command": line}).rstrip(),
        f"length: {amount} {unit}",
        to_yaml({"space": {flag.name: flag.distribution() for flag in tuned}}).rstrip(),
        "metric: {name: eval_return, goal: maximize}   # change to a metric of the script",
        "# metrics: {type: tensorboard}                # or jsonl, csv; default: printed lines",
        f"early_terminate: {{type: asha, min: {max(1, amount // 8)}, eta: 4}}",
        to_yaml({"confirm": {"default": default, "top_k": 3, "choose": 3, "report": 16}}).rstrip(),
        "budget: {trials: 32}",
        "processes: {at_once: auto}                    # gpus: 0.5 runs two per GPU",
    ]
    return "\n".join(lines) + "\n"


def _open_flags(path: Path, command: str) -> list[ScriptFlag]:
    """Return those flags of a script that the given command does not set."""
    given = {word.partition("=")[0] for word in shlex.split(command)}
    read = flags_of_script(path.read_text(encoding="utf-8"), path.parent)
    return [flag for flag in read if flag.flag not in given]


def _length_flag(flags: Sequence[ScriptFlag]) -> ScriptFlag | None:
    by_name = {flag.last: flag for flag in reversed(flags)}
    return next((by_name[name] for name in _LENGTHS if name in by_name), None)


def _untuned_flags_text(
    flags: Sequence[ScriptFlag], tuned: Sequence[ScriptFlag], line: str
) -> str:
    rest = [flag for flag in flags if flag not in tuned and flag.typed("{") not in line]
    return ", ".join(flag.typed(str(flag.default)) for flag in rest[:12]) or "none"


def _script_of(command: str, folder: Path) -> Path:
    """Return the Python file that a command runs."""
    script = next((word for word in shlex.split(command) if word.endswith(".py")), "")
    if not script:
        raise _no_script(command)
    path = folder / script
    if path.is_file():
        return path
    there = [one.name for one in path.parent.glob("*.py")]
    if near := get_close_matches(path.name, there, 1):
        meant = Path(script).with_name(near[0])
        raise ConfigError(f"{script} does not exist; did you mean {meant}?")
    raise _no_script(command)


def _no_script(command: str) -> ConfigError:
    return ConfigError(f"{command!r} names no Python file here; write the study by hand")


def _filled_in(
    command: str,
    tuned: Sequence[ScriptFlag],
    flags: Sequence[ScriptFlag],
    length: ScriptFlag | None,
) -> str:
    """Return the command with placeholders for searched flags, seed, folder and length."""
    line = [command, *(flag.typed(f"{{{flag.name}}}") for flag in tuned)]
    for names, filled in ((_SEEDS, "{seed}"), (_FOLDERS, "{folder}")):
        known = [flag for flag in flags if flag.last in names]
        if known:
            line.append(known[0].typed(filled))
    if length is not None:
        line.append(length.typed("{length}"))
    if not tuned[0].flag.startswith("-"):
        line.append("hydra.run.dir={folder}")
    return " ".join(line)


def _length_of(flag: ScriptFlag | None) -> tuple[int, str]:
    """Return a run's length and its unit."""
    if flag is None:
        return _LENGTH, "env steps"
    amount, unit = flag.default, "env steps"
    if not isinstance(amount, int):
        amount = _LENGTH
    if "epochs" in flag.last:
        unit = "epochs"
    return amount, unit
