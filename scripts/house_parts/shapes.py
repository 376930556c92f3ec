"""Shapes of code that formatting cannot hide: tokens, decisions, nesting, positional parameters.

`shapes_of` counts them in one file. `known.json` lists the counts from when counting started; a
test lets each number only decrease. `scripts/house --write` rewrites the list.

Complexity is one more than the number of decisions in a function, including those in expressions:
a conditional expression, each loop and condition of a comprehension, each `and` and `or`. Tools
that count only statements miss them.
"""

from __future__ import annotations

import ast
import io
import json
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType

KNOWN = Path(__file__).with_name("known.json")
COMPLEX, POSITIONAL = 15, 5
"""The limits for functions that are not listed."""
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Function = ast.FunctionDef | ast.AsyncFunctionDef
_BRANCHES = (
    ast.If | ast.For | ast.AsyncFor | ast.While | ast.IfExp | ast.ExceptHandler | ast.Assert
)
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Shapes:
    """The shapes of one file."""

    tokens: int  # in code, without comments and docstrings
    complex: Mapping[str, int]  # functions above COMPLEX, by name
    positional: Mapping[str, int]  # functions with more than POSITIONAL positional parameters
    conditionals: int  # number of conditional expressions
    nested_conditionals: int
    nested_comprehensions: int


def shapes_of(text: str) -> Shapes:
    """Count the shapes of a file."""
    tree = ast.parse(text)
    functions = dict(_functions(tree))
    nodes = list(ast.walk(tree))
    conditionals = [node for node in nodes if isinstance(node, ast.IfExp)]
    comprehensions = [node for node in nodes if isinstance(node, Comprehension)]
    parents: dict[ast.AST, ast.AST] = {}
    if conditionals or comprehensions:
        parents = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
    counted = {name: complexity(node) for name, node in functions.items()}
    given = {name: positional(node) for name, node in functions.items()}
    return Shapes(
        tokens=tokens_of(text, nodes),
        complex={name: count for name, count in counted.items() if count > COMPLEX},
        positional={name: count for name, count in given.items() if count > POSITIONAL},
        conditionals=len(conditionals),
        nested_conditionals=sum(_is_inside(node, ast.IfExp, parents) for node in conditionals),
        nested_comprehensions=sum(
            _is_inside(node, Comprehension, parents) for node in comprehensions
        ),
    )


def complexity(function: Function) -> int:
    """Return one more than the number of decisions in a function and its nested functions."""
    count = 1
    for node in ast.walk(function):
        if isinstance(node, _BRANCHES):
            count += 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.match_case):
            count += 1
    return count


def positional(function: Function) -> int:
    """Return the number of parameters that can be given by position, without `self` and `cls`."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    return sum(name not in ("self", "cls") for name in names)


def tokens_of(text: str, nodes: Iterable[ast.AST]) -> int:
    """Return the tokens of code, without comments, docstrings and line ends."""
    strings = set[int]()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type not in _LAYOUT and token.start[0] not in strings for token in found)


def _functions(tree: ast.AST, before: str = "") -> Iterator[tuple[str, Function]]:
    """Yield the functions and methods by dotted name, without nested functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield f"{before}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{before}{node.name}.")
        else:
            yield from _functions(node, before)


def _is_inside(node: ast.AST, kind: type | UnionType, parents: Mapping[ast.AST, ast.AST]) -> bool:
    """Return whether a node is inside a node of some kind, within one statement."""
    above = parents.get(node)
    while above is not None and not isinstance(above, (ast.stmt, ast.Lambda)):
        if isinstance(above, kind):
            return True
        above = parents.get(above)
    return False


def summary(files: Mapping[str, str], code_lines: int) -> dict[str, object]:
    """Return the shapes of the package; `files` is text by module name."""
    found = {name: shapes_of(text) for name, text in files.items()}
    conditionals = sum(one.conditionals for one in found.values())
    return {
        "tokens": sum(one.tokens for one in found.values()),
        "conditionals_per_1000_lines": round(1000 * conditionals / code_lines, 1),
        "nested_conditionals": _by_module(found, "nested_conditionals"),
        "nested_comprehensions": _by_module(found, "nested_comprehensions"),
        "complex": _by_function(found, "complex"),
        "positional": _by_function(found, "positional"),
    }


def _by_module(found: Mapping[str, Shapes], name: str) -> dict[str, int]:
    counts = {module: getattr(one, name) for module, one in sorted(found.items())}
    return {module: count for module, count in counts.items() if count}


def _by_function(found: Mapping[str, Shapes], name: str) -> dict[str, int]:
    return {
        f"{module}:{function}": count
        for module, one in sorted(found.items())
        for function, count in getattr(one, name).items()
    }


def read_known() -> dict[str, object]:
    return json.loads(KNOWN.read_text(encoding="utf-8"))


def write_known(found: Mapping[str, object]) -> None:
    KNOWN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
