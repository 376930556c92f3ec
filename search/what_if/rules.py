"""Converts stopping rules as users type them (`asha,eta=2,min=2k`) to studies to replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import ConfigError, StudyError, UnknownNameError
from ...studies.chunk_sizes import rungs
from ...studies.load import recorded
from ...studies.overrides import SET
from ...studies.search_methods import METHODS
from ...studies.search_spec import EarlyTerminate, Racing, Seeds
from ...studies.spec import Study
from ...studies.stopping_rules import RULES, rule_row
from ...studies.user_code import run_own_code
from .record import RecordedSearch, checked_source

# seeds per trial from which racing is among the usual rules: it starts with three
_RACING_FROM = 4
_FEWEST_RACED = 3  # racing starts with at least two


@dataclass(frozen=True)
class ReplayedRule:
    words: str  # as shown in a table
    study: Study  # the recorded study with this rule
    own: bool  # whether it is the rule with which the study ran


def asked_rules(
    record: RecordedSearch, rules: Sequence[str], seeds: int | None = None
) -> list[ReplayedRule]:
    """Return rules such as `asha,eta=2,min=2k` as studies; by default, common rules."""
    study, most = record.study, record.seeds
    if seeds is not None and not 1 <= seeds <= most:
        raise ConfigError(
            f"seeds is {seeds}, but the trials of {study.name} have {most}; allowed: 1 to {most}"
        )
    count = seeds or most
    usual = [
        "none",
        "asha,eta=2",
        "asha,eta=3",
        "asha,eta=4",
        "hyperband,eta=3",
        "median",
        "plateau",
        *["racing"] * (count >= _RACING_FROM),
    ]
    asked = [_parse_rule(record, rule, count) for rule in (rules or usual)]
    if rules or seeds is not None or any(one.own for one in asked):
        return asked
    return [ReplayedRule(_rule_label(study.early_terminate, study.seeds), study, True), *asked]


def _known_rules() -> tuple[str, ...]:
    return ("none", "racing", *RULES)


def _parse_rule(record: RecordedSearch, rule: str, seeds: int) -> ReplayedRule:
    name, *options = [part.strip() for part in rule.split(",")]
    study = record.study
    if study.imports and (study.search.method not in METHODS or name not in _known_rules()):
        source = checked_source(record.folder, record.source)
        run_own_code(replace(study, source=str(source)))
    _check_name(rule, name)
    for option in options:
        _check_option(rule, name, option)
    given = [option.replace("=", ": ", 1) for option in options]
    early, own = None, Seeds(seeds, tolerate=study.seeds.tolerate)
    if name == "racing":
        own = replace(own, racing=_racing_of_rule(record, rule, given, seeds))
    elif name != "none":
        early = _early_terminate_of_rule(record, rule, name, given)
    changed = replace(study, early_terminate=early, seeds=own)
    _check_rungs(record, rule, changed)
    same = (early, own) == (study.early_terminate, study.seeds)
    return ReplayedRule(_rule_label(early, own), changed, same)


def _check_name(rule: str, name: str) -> None:
    if name not in _known_rules():
        stopping = [row.name for row in RULES.values() if not row.evolves]
        raise UnknownNameError("rule", name, ["none", "racing", *stopping])
    if name in RULES and rule_row(name).evolves:
        raise ConfigError(
            f"rule {rule!r}: {name} changes configurations during training, which cannot "
            "be replayed; name a rule that stops trials"
        )


def _check_option(rule: str, name: str, option: str) -> None:
    if name == "none":
        raise ConfigError(
            f"rule {rule!r}: {option!r} is not an option; the rule none has no options"
        )
    if not all(option.partition("=")):
        what = "use key=value, such as eta=2"
        raise ConfigError(f"rule {rule!r}: {option!r} is not an option; {what}")


def _racing_of_rule(record: RecordedSearch, rule: str, given: Sequence[str], seeds: int) -> Racing:
    if seeds < _FEWEST_RACED:
        some = f"racing needs trials with at least {_FEWEST_RACED} seeds, but these have {seeds}"
        raise ConfigError(f"rule {rule!r}: {some}")
    inside = f"seeds={{per_config: {seeds}, racing: {{{', '.join(given)}}}}}"
    racing = _override_study(record, rule, inside, "early_terminate=null").seeds.racing
    if racing is None or racing.start >= seeds:
        some = f"trials have {seeds} seeds, so start must be from 2 to {seeds - 1}"
        raise ConfigError(f"rule {rule!r}: {some}")
    return racing


def _early_terminate_of_rule(
    record: RecordedSearch, rule: str, name: str, given: Sequence[str]
) -> EarlyTerminate | None:
    """Return a rule that stops trials; by default, its first rung is the study's first rung."""
    ran, least = record.study.early_terminate, record.first_point
    if ran is not None:
        least = ran.min  # None: the rule's default is later
    own = [f"type: {name}", *given]
    if least is not None and not any(option.startswith("min: ") for option in given):
        own.append(f"min: {least}")
    return _override_study(record, rule, f"early_terminate={{{', '.join(own)}}}").early_terminate


def _override_study(record: RecordedSearch, rule: str, override: str, *more: str) -> Study:
    try:
        return recorded(record.text, overrides=[*more, override])
    except StudyError as error:
        said = error.mistakes[0].text.replace(f"{SET}{override}: ", "")
        raise ConfigError(f"rule {rule!r}: {said}") from None


def _check_rungs(record: RecordedSearch, rule: str, study: Study) -> None:
    """Reject a rule that judges trials before their first evaluation, or never."""
    if study.early_terminate is None:
        return
    found = [rungs(study, record.quantum(study, config)) for config in record.configs]
    first = min((steps[0] for steps in found if steps), default=None)
    if first is None or first < record.first_point:
        run = f"a run of {study.env_steps} {study.algorithm.unit}"
        why = f"no rung is within {run}"
        way = f"use a smaller min, but at least {record.first_point}"
        if first is not None:
            why = f"the first rung is at {first} in {run}, but {study.name} was first "
            why += f"evaluated at {record.first_point}"
            way = f"use min={record.first_point} or more"
        if record.first_point >= study.env_steps:
            way = "run a study with evaluation: {every: ...}"
        raise ConfigError(f"rule {rule!r}: {why}; {way}")


def _rule_label(early: EarlyTerminate | None, seeds: Seeds) -> str:
    """Return a rule in the form used in tables: `asha eta=2 min=1k`."""
    racing = []
    if seeds.racing is not None:
        racing = [f"racing start={seeds.racing.start}"]
    if early is None:
        return ", ".join(racing) or "none"
    shown: dict[str, Any] = {}
    if early.type in ("asha", "hyperband"):
        shown["eta"] = f"{early.eta:g}"
    whole, rest = divmod(early.min or 0, 1000)
    shown["min"] = f"{whole}k"
    if rest or not whole:
        shown["min"] = f"{early.min}"
    for entry in rule_row(early.type).fields:
        value = early.options.get(entry.key, getattr(early, entry.key, entry.default))
        if value != entry.default:
            shown.setdefault(entry.key, f"{value:g}" if isinstance(value, int | float) else value)
    return ", ".join([" ".join([early.type, *(f"{k}={v}" for k, v in shown.items())]), *racing])
