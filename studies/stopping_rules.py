"""The table of `early_terminate` rules; files in `imports` can add rows.

A rule stops trials at rungs, or runs them as an evolving population. All trials of a population
run at the same time, and can continue from copies of each other's states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..errors import ConfigError, UnknownNameError
from .field import REQUIRED, Field, count
from .search_methods import check_options

FIRST_RUNG = 0.3
"""Share of a run before asha's first rung if `min` is omitted (`benchmarks/bench/rungs.py`)."""
_STOPPING = (
    count(
        "min",
        None,
        (
            "env steps of the first rung; omitted: 30 % of env_steps for asha, env_steps / "
            "eta^2 for others"
        ),
        1,
    ),
    Field(
        "eta",
        "number",
        4.0,
        "rungs are min x eta^i (plateau: min x i); one trial in eta passes each",
        low=1.5,
        high=100.0,
    ),
    Field(
        "audit",
        "number",
        0.0,
        "share of the trials to be stopped that run to completion instead",
        low=0,
        high=1,
    ),
)
_EVOLVING = (
    count("every", None, "env steps between copies; omitted: env_steps / 16", 1),
    Field(
        "quantile",
        "number",
        0.25,
        "share of trials at the bottom of the ranking that copy the same share at the top",
        low=0,
        low_open=True,
        high=0.5,
    ),
)
_PERTURB = (
    Field(
        "resample",
        "number",
        0.25,
        "probability that a copied hyperparameter is redrawn",
        low=0,
        high=1,
    ),
    Field(
        "perturb",
        "factors",
        (0.8, 1.25),
        "factors by which a copied hyperparameter is perturbed",
        low=0,
        low_open=True,
        high=100,
    ),
)


@dataclass(frozen=True)
class StoppingRule:
    name: str  # value of `early_terminate.type`
    # (EarlyTerminate, study) -> rule; for a built-in one, `module:function` below `search/rules/`
    build: str | Callable[..., Any]
    options: tuple[Field, ...] = ()  # keys in addition to those of its kind
    evolves: bool = False  # whether its trials evolve as a population instead of being stopped
    uses_gains: bool = False  # whether the population uses the gains of hyperparameters so far
    even: bool = False  # whether rungs are multiples of `min` instead of min x eta^i
    finishes: bool = False  # whether stopped trials count as finished
    # expected share past a rung: one in eta, the same per bracket, half, or unknown (count all)
    passing: Literal["halving", "brackets", "half", "all"] = "all"
    shown: str = ""  # format of its keys in `hpo check`

    @property
    def registered(self) -> bool:
        """Whether a file in `imports` added the rule, with keys in `EarlyTerminate.options`."""
        return not isinstance(self.build, str)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The keys of `early_terminate` for this rule, without `type`."""
        if self.evolves:
            return (*_EVOLVING, *self.options)
        return (*_STOPPING, *self.options)


RULES: dict[str, StoppingRule] = {
    row.name: row
    for row in (
        StoppingRule(
            "asha",
            "stopping:build_asha",
            (
                count(
                    "pause",
                    0,
                    (
                        "largest number of paused trials, which resume if they rank high enough "
                        "later; 0: stop them instead"
                    ),
                    high=100_000,
                ),
            ),
            passing="halving",
            shown="with eta {eta:g}",
        ),
        StoppingRule(
            "hyperband", "stopping:build_hyperband", passing="brackets", shown="with eta {eta:g}"
        ),
        StoppingRule("median", "stopping:build_median", passing="half", shown="with eta {eta:g}"),
        StoppingRule(
            "plateau",
            "stopping:build_plateau",
            (
                count(
                    "patience",
                    4,
                    "number of rungs without enough improvement after which a trial stops",
                    1,
                    high=1000,
                ),
                Field(
                    "tolerance",
                    "number",
                    0.02,
                    "smallest share of the total gain so far that counts as enough improvement",
                    low=0,
                    high=0.99,
                ),
            ),
            even=True,
            finishes=True,
            shown="with patience {patience}",
        ),
        StoppingRule(
            "pbt", "pbt_perturb:build", _PERTURB, evolves=True, shown="every {every:,} {unit}"
        ),
        StoppingRule(
            "pb2",
            "pb2:build",
            _PERTURB,
            evolves=True,
            uses_gains=True,
            shown="every {every:,} {unit}",
        ),
    )
}
"""Name -> rule, including registered ones."""


def add_rule(row: StoppingRule) -> None:
    if row.name in RULES:
        raise ConfigError(f"a rule named {row.name!r} is already registered; choose another name")
    taken = ["type", *(field.key for field in (*_STOPPING, *_EVOLVING))]
    check_options(f"rule {row.name!r}", row.options, taken)
    RULES[row.name] = row


def rule_row(name: str) -> StoppingRule:
    if name not in RULES:
        raise UnknownNameError("early_terminate type", name, RULES)
    return RULES[name]


def finishing_rules() -> frozenset[str]:
    """Return the names of rules whose stopped trials count as finished with their current value.

    >>> sorted(finishing_rules())
    ['plateau']
    """
    return frozenset(rule.name for rule in RULES.values() if rule.finishes)


def foreign_keys(name: str) -> tuple[str, ...]:
    """Return the keys of `early_terminate` that only other built-in rules have.

    >>> foreign_keys("plateau")
    ('pause', 'every', 'quantile', 'resample', 'perturb')
    """
    others = _rules_by_key()
    if name in RULES:
        for field in RULES[name].fields:
            others.pop(field.key, None)
    return tuple(others)


def rule_fields() -> tuple[Field, ...]:
    """Return the section `early_terminate` with the keys of all built-in rules."""
    ours = tuple(rule.name for rule in RULES.values() if not rule.registered)
    stopping = [rule.name for rule in RULES.values() if not (rule.registered or rule.evolves)]
    found = [Field("type", "word", REQUIRED, "the rule", words=ours)]
    for field, names in _rules_by_key().values():
        meaning = field.meaning
        if names != stopping:
            meaning = f"{', '.join(names)}: {meaning}"
        found.append(replace(field, meaning=meaning))
    return tuple(found)


def _rules_by_key() -> dict[str, tuple[Field, list[str]]]:
    """Return, for each key, its field and the built-in rules that have it."""
    found: dict[str, tuple[Field, list[str]]] = {}
    for rule in RULES.values():
        if rule.registered:
            continue
        for field in rule.fields:
            found.setdefault(field.key, (field, []))[1].append(rule.name)
    return found
