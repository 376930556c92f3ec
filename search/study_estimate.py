"""What `hpo check` says: the study's own checks, with lanes, memory and time of this machine.

Only programs that are timed are compiled, and user code runs only for a timing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import ConfigError, HpoError
from ..machine.timings import Timings
from ..studies.check import CheckReport, Cost, check
from ..studies.programs import programs_note
from ..studies.spec import Study
from ..studies.user_code import check_registered, run_own_code
from .lanes.contract import Division, PopulationFactory, Resolved, check_divides
from .lanes.multi_environment import SeveralFactory, factories_of
from .state.warm_start import warm_start

_SWITCH = "HPO_NO_TIME"


def times_here() -> bool:
    return not os.environ.get(_SWITCH)


def preview(
    study: Study,
    timing: bool = False,
    own_code: bool = False,
    told: Callable[[str], None] = lambda text: None,
) -> tuple[CheckReport, str]:
    """Return the report, and why it says nothing about lanes and memory, or ""."""
    own_code = own_code or study.algorithm.made is not None  # which ran as the study was loaded
    if own_code and study.imports:
        run_own_code(study)
        check_registered(study)
    earlier = warm_start(study).words
    report, note = _examined(study, own_code)
    report = replace(report, warm_start=earlier)
    if note or not timing:
        report = _with_advice(report)
        why = note and "timing it runs the study's imports, which was not asked for"
        return replace(report, time_note=why or "timing was not asked for"), note
    if report.mistakes:
        return replace(report, time_note="minutes are known once the mistakes are mended"), note
    return _with_advice(_with_time(study, report, told)), note


def _with_advice(report: CheckReport) -> CheckReport:
    """Return the report with a warning where programs are many and trials few."""
    study, time = report.study, report.time
    known = () if time is None else (time.phases.get("compile", 0.0), time.seconds())
    advice = programs_note(study, report.bucket_count, study.budget.trials, *known)
    return replace(report, warnings=(*report.warnings, *([advice] if advice else [])))


def _with_time(study: Study, report: CheckReport, told: Callable[[str], None]) -> CheckReport:
    if study.executor.type != "local":
        why = "how long several workers take is not timed here; executor: {type: local} is"
        return replace(report, time_note=why)
    if not study.algorithm.is_ppo:
        why = f"how long {study.algorithm.label} takes is known once it runs"
        return replace(report, time_note=why)
    from ..machine.software import enable_compilation_cache
    from .lanes.local import LocalFactory
    from .study_time import study_time

    enable_compilation_cache()
    timings = Timings.read()
    damaged = timings.note
    try:
        factory = factories_of(study, lambda one, of: LocalFactory(one, environments=of))
        found = study_time(factory, timings, told=told)
    except HpoError as error:  # the check has said what it could
        return replace(report, time_note=f"it cannot be timed here: {error}")
    notes = [text for text in dict.fromkeys((damaged, timings.note)) if text]
    report = replace(report, warnings=(*report.warnings, *notes))
    is_note = isinstance(found, str)
    return replace(report, time_note=found) if is_note else replace(report, time=found)


def _examined(study: Study, own_code: bool) -> tuple[CheckReport, str]:
    if study.imports and not own_code:
        note = "lanes and memory depend on the study's imports, which run with it"
        return check(study), note
    if not study.algorithm.is_ppo:
        return _own_examined(study)
    from ..core.memory import parameter_count
    from .lanes.local import LocalFactory

    notes: list[str] = []
    workers, cores = study.executor.workers, None
    if workers > 1:  # which share this machine
        cores = study.executor.cpus or max(1, (os.cpu_count() or 1) // workers)
    try:
        factory = factories_of(
            study,
            lambda one, of: LocalFactory(one, warn=notes.append, cores=cores, environments=of),
        )
    except ConfigError as error:  # the study is for another machine
        return check(study), f"lanes and memory are not known here: {error}"

    if workers > 1 and isinstance(factory, LocalFactory):
        try:
            check_divides(factory, factory.resolve(study.default()), workers)
        except ConfigError as error:
            if study.executor.address is None:
                raise
            notes.append(f"if nodes have as many devices as this machine: {error}")

    firsts, bucket_key = _first_of_each(factory)

    def cost_of(bucket: str) -> Cost:
        first = firsts[bucket]
        division: Division | None = None
        if isinstance(factory, SeveralFactory):
            programs = _together(factory, first, len(firsts))
        elif workers == 1:
            programs = [factory.expected_program(first, len(firsts))]
            notes.extend(filter(None, [factory.narrow_note(first)]))
        else:
            division = factory.divide(first, None, workers, workers)
            programs = [factory.make_share(first, division).program]
        return Cost(
            programs[0].lanes if division is None else division.total,
            workers * sum(program.memory_bytes() for program in programs),
            max(parameter_count(program.plan, program.example) for program in programs),
            max(program.plan.gradient_accumulation for program in programs),
        )

    report = check(study, bucket_key, cost_of)
    return replace(report, warnings=(*report.warnings, *dict.fromkeys(notes))), ""


def _first_of_each(
    factory: PopulationFactory,
) -> tuple[dict[str, Resolved], Callable[[Mapping[str, Any]], str]]:
    """Return bucket -> its first configuration, and the function that names and collects them."""
    firsts: dict[str, Resolved] = {}

    def bucket_key(config: Mapping[str, Any]) -> str:
        resolved = factory.resolve(config)
        firsts.setdefault(resolved.bucket, resolved)
        return resolved.bucket

    return firsts, bucket_key


def _own_examined(study: Study) -> tuple[CheckReport, str]:
    """Check a custom training: shapes alone are traced, nothing is compiled."""
    from .lanes.custom_training import TrainingFactory

    try:
        factory = TrainingFactory(study)
    except ConfigError as error:  # the study is for another machine
        return check(study), f"lanes and memory are not known here: {error}"
    firsts, bucket_key = _first_of_each(factory)

    def cost_of(bucket: str) -> Cost:
        factory.check(firsts[bucket])
        shapes, workers = factory.shapes(firsts[bucket]), study.executor.workers
        if workers > 1 and study.executor.address is None:
            check_divides(factory, firsts[bucket], workers)
        lanes = factory.divide(firsts[bucket], None, workers, workers).total
        numbers = sum(math.prod(leaf.shape) for leaf in shapes.state.values())
        return Cost(lanes, lanes * shapes.state_bytes, numbers, 1)

    return check(study, bucket_key, cost_of), ""


def _together(factory: SeveralFactory, first: Resolved, buckets: int) -> list[Any]:
    """Return the programs of one bucket on all environments."""
    factories: Any = factory.factories
    pairs = zip(factories, first.payload, strict=True)
    lanes = min(own.expected_program(one, buckets).lanes for own, one in pairs)
    populations: Any = factory.make(first, lanes).populations
    return [population.program for population in populations]
