"""The generated parts of docs/: text between marks, page by page.

A page contains written text, and between `<!-- generated -->` (or a different name) and `<!-- end
-->` the output of this module, made from the tables that the program itself reads.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpo.cli import make_parser
from hpo.core.envs.optical.topology import make_topology, topology_names
from hpo.environments.table import ENVIRONMENTS, EnvEntry
from hpo.knobs import KNOBS, Knob, allowed
from hpo.search.bench.compare import over_tables
from hpo.store.comparison import WORDS
from hpo.studies.tuned.record import DEFAULT, TunedRecord, read_record, record_files, shipped
from hpo.studies.tuned.study_text import former_default
from hpo.studies.tuned.summary import beside_heuristics, comparisons, summary_in
from hpo.views.formatting import between, number, param, steps

from .foreign_names import names_elsewhere
from .study_keys import methods, reference, rules

PORTFOLIO = Path(__file__).resolve().parents[2] / "benchmarks" / "bench" / "portfolio.json"
PLANS = {
    "default": "the default alone",
    "random 12, best": "random, the best one",
    "random 11, selection": "random, the best 3 on 3 selection seeds",
    "random 24, selection": "the same",
    "random 48, selection": "the same",
    "random 24, protected": "random, the best one against the default on 3 seeds",
    "portfolio 2": "the default and 1 learnt configuration",
    "portfolio 6": "the default and 5",
    "portfolio 6, protected": "the default and 5, the best one against the default on 3 seeds",
    "portfolio 8, protected": "the default and 7, likewise",
    "short study of 12": "the default and 3, the best one against the default on 4 seeds: "
    "`hpo init`",
    "short study of 14": "the default and 5, likewise",
    "24 trials, one seed": "the default and 3, then random ones up to 24 trials, likewise",
    "48 trials, one seed": "the same up to 48 trials",
    "24 trials, selection": "up to 24 trials, the best 3 on 3 selection seeds with the default",
    "48 trials, selection": "the same up to 48 trials",
}
"""Plan of `scripts/portfolio judge` -> its description on the page."""
DOCS = Path(__file__).resolve().parents[2] / "docs"
END = "<!-- end -->"


def generated() -> dict[tuple[str, str], str]:
    """Return (page, mark) -> the text after the mark."""
    pages = {
        ("reference/study-file.md", "generated"): reference(),
        ("reference/knobs.md", "generated"): knobs(),
        ("reference/environments.md", "generated"): environments(),
        ("reference/commands.md", "generated"): commands(),
        ("reference/foreign-names.md", "generated"): names_elsewhere(),
        ("reference/tuned.md", "generated"): tuned(),
        ("optical.md", "topologies"): topologies(),
        ("search.md", "methods"): methods(),
        ("search.md", "rules"): rules(),
        ("reference/search-methods.md", "portfolio"): portfolio(),
    }
    return pages


def updated(docs: Path = DOCS) -> dict[Path, str]:
    """Return the complete text that each page should have."""
    texts: dict[Path, str] = {}
    for (page, mark), text in generated().items():
        path = docs / page
        now = texts.get(path) or path.read_text(encoding="utf-8")
        texts[path] = _with(now, mark, text)
    return texts


def stale(docs: Path = DOCS) -> list[Path]:
    """Return the pages that do not match the tables."""
    return [path for path, text in updated(docs).items() if path.read_text("utf-8") != text]


def write(docs: Path = DOCS) -> None:
    """Update every page."""
    for path, text in updated(docs).items():
        path.write_text(text, encoding="utf-8")


def _with(page: str, mark: str, text: str) -> str:
    start = f"<!-- {mark} -->\n"
    before, found, rest = page.partition(start)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError(f"no {start.strip()} ... {END} in the page")
    blank = "" if mark != "generated" else "\n"
    return f"{before}{start}{blank}{text}{blank}{END}{after}"


# ---------------------------------------------------------------------- the tables


def portfolio() -> str:
    """Return the plans compared by `scripts/portfolio judge`, from its JSON."""
    found = json.loads(PORTFOLIO.read_text(encoding="utf-8"))
    tables = found["tables"]
    scored = [name for name in tables if name not in found["ceilings"]]
    lines = ["| plan | full runs | share beaten | score |", "|---|---|---|---|"]
    for plan, words in PLANS.items():
        share = sum(by_plan[plan]["share"] for by_plan in tables.values()) / len(tables)
        runs = next(iter(tables.values()))[plan]["runs"]
        score = over_tables([tables[name][plan]["score"] for name in scored])
        between = f"[{score.low:.2f}, {score.high:.2f}]"
        lines.append(f"| {words} | {runs:.0f} | {share:.1%} | {score.value:.2f} {between} |")
    return "\n".join(lines) + "\n"


def tuned() -> str:
    """Return each tuned configuration's results next to the default's and published ones."""
    records = [read_record(path) for path in record_files([shipped()]).values()]
    rows = [row for record in records for row in _tuned(record)]
    if not rows:
        return "No record has been committed yet.\n"
    header = ("environment, env steps", "who", "search", "greedy", "P, or difference", "training",
              "area", "reached")  # fmt: skip
    return _table(header, rows) + "\n"


def _tuned(record: TunedRecord) -> list[tuple[str, ...]]:
    beside = {one.who: one for one in comparisons(record)}
    found = list[tuple[str, ...]]()
    for one in record.contenders:
        seen, other = summary_in(record, one), beside.get(one.who)
        length = one.source.get("env_steps")
        name = f"**{one.who}**" if other is None else one.who
        if one.who == DEFAULT and former_default(record):
            name += f" of {record.made.on}"
        if length is not None:
            elsewhere = one.source.get("written_for")
            name += f" ({steps(int(length))}{f', for {elsewhere}' if elsewhere else ''})"
        chances = [""] * 3
        if other is not None:
            low, high = other.greedy[1].low, other.greedy[1].high
            verdict = _verdict(other.verdict)
            chances = [
                f"{verdict}, {number(other.greedy[0])} {between(low, high)}",
                number(other.training[0]) if math.isfinite(other.training[0]) else "",
                number(other.area[0]),
            ]
        value, around = seen.greedy
        where = f"`{record.name}`, {steps(record.env_steps)}" if other is None else ""
        searched = _searched(record) if other is None else ""
        when = "-" if seen.to_threshold is None else f"{steps(int(seen.to_threshold))}"
        reached = f"{seen.reached}/{len(one.greedy)}, {when}"
        greedy = f"{number(value)} {between(around.low, around.high)}".rstrip()
        found.append((where, name, searched, greedy, *chances, reached))
    for rule in beside_heuristics(record):
        verdict = _verdict(rule.verdict)
        (value, around), (less, apart) = rule.greedy, rule.less
        greedy = f"{number(value)} {between(around.low, around.high)}".rstrip()
        told = f"{verdict}, ours less its {number(less)} {between(apart.low, apart.high)}".rstrip()
        found.append(("", f"{rule.who}, a heuristic", "", greedy, told, "", "", ""))
    return found


def _verdict(verdict: str) -> str:
    return f"**{WORDS[verdict]}**" if verdict in ("better", "worse") else WORDS[verdict]


def _searched(record: TunedRecord) -> str:
    """Return the env steps of the study that found a configuration, also in runs of its length."""
    taken = record.origin.env_steps
    return f"{steps(taken)}, {taken / record.env_steps:,.0f} runs"


def knobs() -> str:
    """Return the hyperparameters, batched ones first."""
    parts = []
    for title, traced in (("Batched", True), ("Shape-changing", False)):
        rows = [_knob(knob) for knob in KNOBS.values() if knob.traced is traced]
        parts += [f"## {title}", _table(("hyperparameter", "default", "allowed", "meaning"), rows)]
    return "\n\n".join(parts) + "\n"


def _knob(knob: Knob) -> tuple[str, ...]:
    default = "unset" if knob.default is None else f"`{param(knob.default)}`"
    return f"`{knob.name}`", default, allowed(knob), knob.meaning


def environments() -> str:
    """Return the environments, with one section per library."""
    parts = []
    for source in dict.fromkeys(env.source for env in ENVIRONMENTS.values()):
        rows = [_environment(env) for env in ENVIRONMENTS.values() if env.source == source]
        head = ("environment", "actions", "meaning", "parameters", "keys")
        parts += [f"## {source}", _table(head, rows)]
    return "\n\n".join(parts) + "\n"


def _environment(env: EnvEntry) -> tuple[str, ...]:
    params = ", ".join(f"`{name}` {value:g}" for name, value in env.params.items())
    keys = ", ".join(f"`{name}`" for name in env.keys)
    return f"`{env.id}`", env.actions, env.meaning, params, keys


def topologies() -> str:
    """Return the named optical networks, with their nodes and pairs of fibres."""
    known = [make_topology(name, directed=False) for name in topology_names()]
    sizes = [
        f"`{name}` ({one.num_nodes}, {one.num_links})"
        for name, one in zip(topology_names(), known, strict=True)
    ]
    return _table(("name (nodes, fibre pairs)",), [[", ".join(sizes)]]) + "\n"


def commands() -> str:
    """Return the options of every command."""
    parser, _ = make_parser()
    (verbs,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    texts = {choice.dest: choice.help or "" for choice in verbs._choices_actions}
    parts = []
    for name, verb in verbs.choices.items():
        parts += [f"## hpo {name}", f"{texts[name][0].upper()}{texts[name][1:]}."]
        rows = [_argument(action) for action in verb._actions if action.dest != "help"]
        parts += [_table(("argument", "meaning"), rows)] if rows else []
    return "\n\n".join(parts) + "\n"


def _argument(action: argparse.Action) -> tuple[str, str]:
    names = "`, `".join(action.option_strings)
    value = str(action.metavar or action.dest.upper()) if action.nargs != 0 else ""
    shown = f"{names} {value}".strip() if names else value
    text = (action.help or "").replace("%(choices)s", ", ".join(action.choices or ()))
    return f"`{shown}`" if names or action.nargs != "?" else f"`[{value}]`", text


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("%%", "%")
