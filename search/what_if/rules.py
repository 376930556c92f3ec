"""Rules as they are typed, `asha,eta=2,min=2k`: each is the recorded study with another one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import ConfigError, StudyError, UnknownNameError
from ...store.journal import Journal
from ...studies.chunk_sizes import rung_steps, rungs
from ...studies.load import recorded
from ...studies.overrides import SET
from ...studies.search_methods import METHODS
from ...studies.spec import EarlyTerminate, Racing, Study
from ...studies.stopping_rules import RULES, rule_row
from ...studies.user_code import run_own_code
from .recorded_curves import Record

_RACING_FROM = 4
"""Racing is among the usual rules from this many seeds per trial: it starts with three."""


@dataclass(frozen=True)
class Asked:
    words: str  # as a table shows it
    study: Study  # the recorded one with this rule


def usual_rules(seeds: int) -> list[str]:
    racing = ["racing"] if seeds >= _RACING_FROM else []
    return ["none", "asha,eta=2", "asha,eta=3", "asha,eta=4", "hyperband,eta=3", "median",
            "plateau", *racing]  # fmt: skip


def asked_rules(folder: Path, record: Record, rules: list[str], seeds: int | None) -> list[Asked]:
    most = record.replicates
    if seeds is not None and not 1 <= seeds <= most:
        raise ConfigError(
            f"seeds is {seeds}, but the trials of {record.study.name} have {most}; allowed: "
            f"1 to {most}"
        )
    count = most if seeds is None else seeds
    with Journal(folder) as journal:
        text = journal.meta.study_text
    asked = [_asked(record, text, rule, count) for rule in (rules or usual_rules(count))]
    if rules or seeds is not None or any(is_own(record, one) for one in asked):
        return asked
    own = _own(record)
    return asked if own is None else [own, *asked]


def is_own(record: Record, asked: Asked) -> bool:
    """Return whether this is the rule, and are these the seeds, that the study ran with."""
    own = record.study
    return (asked.study.early_terminate, asked.study.seeds) == (own.early_terminate, own.seeds)


def _own(record: Record) -> Asked | None:
    """Return the rule that the study ran with; None where it copied, which no curve can show."""
    early, racing = record.study.early_terminate, record.study.seeds.racing
    words = [] if racing is None else [_words("racing", None, racing, {})]
    if early is not None:
        row = rule_row(early.type)
        if row.evolves:
            return None
        given = dict[str, str]()
        for field in row.fields:
            value = early.options.get(field.key, getattr(early, field.key, field.default))
            if value != field.default:
                given[field.key] = f"{value:g}" if isinstance(value, int | float) else str(value)
        words.insert(0, _words(early.type, early, None, given))
    return Asked(", ".join(words) or "none", record.study)


def _asked(record: Record, text: str, rule: str, seeds: int) -> Asked:
    name, *options = [part.strip() for part in rule.split(",")]
    given = dict[str, str]()
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key.strip():
            what = f"{option!r} is not an option; type key=value, such as eta=2"
            raise ConfigError(f"rule {rule!r}: {what}")
        given[key.strip()] = value.strip()
    study, racing = record.study, None
    known_names = study.search.method in METHODS and name in ("none", "racing", *RULES)
    if study.imports and not known_names:
        run_own_code(study)
    if name in ("none", "racing"):
        known = () if name == "none" else ("start", "confidence")
        if unknown := [key for key in given if key not in known]:
            allowed = ", ".join(known) or "no option"
            what = f"{unknown[0]} is not an option of {name}"
            raise ConfigError(f"rule {rule!r}: {what}; allowed: {allowed}")
        if name == "racing":
            racing = _racing(rule, given, seeds)
        early = None
    else:
        early = _early(record, text, rule, name, given)
    changed = replace(
        study, early_terminate=early, seeds=replace(study.seeds, per_config=seeds, racing=racing)
    )
    _check_rungs(record, rule, changed)
    return Asked(_words(name, early, racing, given), changed)


def _racing(rule: str, given: dict[str, str], seeds: int) -> Racing:
    usual = Racing()
    try:
        start = int(given.get("start", usual.start))
        confidence = float(given.get("confidence", usual.confidence))
    except ValueError:
        start, confidence = 0, 0.0
    if not (1 <= start < seeds and 0.5 <= confidence < 1.0):
        raise ConfigError(
            f"rule {rule!r}: trials have {seeds} seeds; allowed: start from 1 to "
            f"{seeds - 1}, confidence from 0.5 to below 1"
        )
    return Racing(start, confidence)


def _early(
    record: Record, text: str, rule: str, name: str, given: dict[str, str]
) -> EarlyTerminate:
    if name not in RULES:
        stopping = [row.name for row in RULES.values() if not row.evolves]
        raise UnknownNameError("rule", name, ["none", "racing", *stopping])
    row = rule_row(name)
    known = [field.key for field in row.fields]
    for key in given:
        if key not in known:
            raise UnknownNameError(f"option of {name}", key, known)
    if row.evolves:
        raise ConfigError(
            f"rule {rule!r}: {name} changes configurations on the way, which no "
            "recorded curve can show; name a rule that stops trials"
        )
    inside = ", ".join(f"{key}: {value}" for key, value in {"type": name, **given}.items())
    own = record.study.early_terminate
    least = record.first_point if own is None else own.min  # None: the rule's default is later
    if "min" not in given and least is not None:
        inside += f", min: {least}"
    override = f"early_terminate={{{inside}}}"
    try:
        early = recorded(text, overrides=[override]).early_terminate
    except StudyError as error:
        said = error.mistakes[0].text.replace(f"{SET}{override}: ", "")
        raise ConfigError(f"rule {rule!r}: {said}") from None
    if early is None:
        raise ConfigError(f"rule {rule!r}: no rule; type none")
    return early


def _check_rungs(record: Record, rule: str, study: Study) -> None:
    early = study.early_terminate
    if early is not None and not rung_steps(study):
        if record.first_point < record.study.env_steps:
            raise ConfigError(
                f"rule {rule!r}: its first rung, at {early.min} env steps, is not "
                f"before the end of a run of {record.study.env_steps}; type "
                f"min={record.first_point}"
            )
        raise ConfigError(
            f"rule {rule!r}: {record.study.name} was first evaluated at "
            f"{record.first_point} env steps, the end of a run, so there is nothing to judge by; "
            "run a study with evaluation: {every: ...}"
        )
    # Rounded up to whole chunks: `min: 10k` is 10,240 with chunks of 2,048.
    pairs = zip(record.trials, record.configs, strict=True)
    configs = {row.bucket: config for row, config in pairs}.values()
    found = [rungs(study, record.quantum(study, config)) for config in configs]
    first = min((steps[0] for steps in found if steps), default=None)
    if first is not None and first < record.first_point:
        raise ConfigError(
            f"rule {rule!r}: the first rung is at {first} env steps, but "
            f"{record.study.name} was first evaluated at {record.first_point}; type "
            f"min={record.first_point} or more"
        )


def _words(
    name: str, early: EarlyTerminate | None, racing: Racing | None, given: dict[str, str]
) -> str:
    if racing is not None:
        return f"racing start={racing.start}"
    if early is None:
        return "none"
    whole, rest = divmod(early.min or 0, 1000)
    shown = {"min": f"{early.min}" if rest or not whole else f"{whole}k"}
    if name in ("asha", "hyperband"):
        shown = {"eta": f"{early.eta:g}", **shown}
    shown |= {key: value for key, value in given.items() if key not in shown}
    return " ".join([name, *(f"{key}={value}" for key, value in shown.items())])
