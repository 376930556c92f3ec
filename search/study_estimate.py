"""The report of `hpo check`: checks, and the lanes, memory and time needed on this machine.

Only timed programs are compiled, and user code runs only for timing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, HpoError, MissingExtraError, ignore
from ..machine.slurm import SlurmJobs
from ..machine.timings import Timings
from ..studies.check import CheckReport, ProgramCost, check
from ..studies.env_spec import EnvSpec
from ..studies.execution_spec import Processes
from ..studies.expected_cost import Expected, TimeEstimate
from ..studies.programs import programs_note
from ..studies.spec import Study
from ..studies.user_code import check_registered, run_own_code
from .lanes.contract import Resolved
from .lanes.factories import factory_here
from .lanes.lane_count import check_divides
from .lanes.multi_environment import SeveralFactory, factories_of, notes_of
from .loggers import check_loggers
from .samplers.registry import method_row, missing_package
from .state.warm_start import warm_start

if TYPE_CHECKING:
    from .lanes.process_speed import Tried

_SWITCH = "HPO_NO_TIME"
_TRIED = 30.0  # seconds for which `hpo check` runs a process of a command


def times_here() -> bool:
    return not os.environ.get(_SWITCH)


def preview(
    study: Study,
    timing: bool = False,
    own_code: bool = False,
    notify: Callable[[str], None] = ignore,
) -> tuple[CheckReport, str]:
    """Return the report, and why it has no lane and memory estimates ("" if it has them)."""
    # a training's code ran when the study was loaded
    own_code = own_code or study.algorithm.made is not None
    if own_code and study.imports:
        run_own_code(study)
        check_registered(study)
    check_loggers(study)
    earlier = warm_start(study).words
    report, note = _examine_study(study, own_code)
    report = replace(report, warm_start=earlier)
    if note and timing:
        why = f"lanes and memory depend on {', '.join(study.imports)}, which did not run"
    elif not timing:
        why = "the study was not timed"
    elif report.mistakes:
        why = "fix the mistakes to get an estimate"
    elif study.executor.type != "local" and study.algorithm.is_process:
        why = "timing needs a test process, which runs only with executor: {type: local}"
    elif study.executor.type != "local":
        why = "several workers cannot be timed here; timing needs executor: {type: local}"
    elif study.algorithm.is_process:
        why, report = "", _with_process(study, report, notify)
    elif not study.algorithm.is_ppo:
        why = f"{study.algorithm.label} can be timed only while it runs"
    else:
        why, report = "", _with_time(study, report, notify)
    report = replace(report, time_note=why or report.time_note)
    time, known = report.time, ()
    if time is not None:
        known = (time.phases.get("compile", 0.0), time.seconds())
    advice = programs_note(study, report.bucket_count, report.expected.trials, *known)
    found = filter(None, (advice, *_missing_packages(study)))
    return replace(report, warnings=(*report.warnings, *found)), note


def _missing_packages(study: Study) -> list[str]:
    """Return the packages that a run needs and this machine lacks; it may run elsewhere."""
    lacking, search = [], study.search
    if search.driver != "ray_tune":
        lacking.append(missing_package(method_row(search.method)))
    with_ray = study.executor.type == "ray" or search.driver == "ray_tune"
    if with_ray and find_spec("ray") is None:
        lacking.append(str(MissingExtraError("ray", "ray", "Ray")))
    return lacking


def _with_time(study: Study, report: CheckReport, notify: Callable[[str], None]) -> CheckReport:
    from ..machine.software import enable_compilation_cache
    from .lanes.local import LocalFactory
    from .study_time import study_time

    enable_compilation_cache()
    timings = Timings.read()
    damaged = timings.note
    try:
        factory = factories_of(study, lambda one, of: LocalFactory(one, environments=of))
        found = study_time(factory, timings, notify=notify)
    except HpoError as error:  # the check has reported what it can
        return replace(report, time_note=f"this study cannot be timed here ({error})")
    notes = filter(None, dict.fromkeys((damaged, timings.note)))
    report = replace(report, warnings=(*report.warnings, *notes))
    if isinstance(found, str):
        return replace(report, time_note=found)
    return replace(report, time=found)


def _with_process(study: Study, report: CheckReport, notify: Callable[[str], None]) -> CheckReport:
    """Run one process for a few seconds, and estimate the study's time from it."""
    from .lanes.process_factory import ProcessFactory
    from .lanes.process_speed import try_out

    notify(f"running one process for up to {_TRIED:.0f} s")
    with TemporaryDirectory() as folder, closing(ProcessFactory(study)) as factory:
        tried = try_out(factory.setup, Path(folder), _TRIED)
        at_once = factory.at_once
    report = replace(report, process_text=tried.words)
    if tried.failure:
        text = f"the command failed in a test run: {tried.failure}"
        return replace(report, mistakes=(*report.mistakes, text))
    missing = [name for name in factory.setup.wanted if name not in tried.names]
    if missing and tried.names:
        text = (
            f"the command has reported {', '.join(tried.names[:12])} so far, but no {missing[0]}"
        )
        report = replace(report, warnings=(*report.warnings, text))
    time = process_time(study, report.expected, tried, at_once)
    if time is None:
        return replace(report, time_note="the command has reported no step so far")
    return replace(report, time=time)


def process_time(
    study: Study, expected: Expected, tried: Tried, at_once: int
) -> TimeEstimate | None:
    """Return a study's time if all processes are as fast as the tested one; None if unknown."""
    speed, start, steps = tried.steps_per_second, tried.start_seconds, expected.total
    if steps is None or (not speed and tried.run_seconds is None):
        return None
    count = process_count(study, expected)
    together = max(1.0, min(at_once, count))
    phases = {"process starts": count * start / together}
    basis = f"one process: {start:.2g} s"
    if speed:
        phases["training"] = steps / (speed * together)
        basis = f"one process: starts in {start:.2g} s, then {speed:,.0f} "
        basis += f"{study.algorithm.unit} per second"
    assumes = (f"all processes are as fast as the tested one, with {at_once} at once",)
    return TimeEstimate(phases, None, study.budget.wall_seconds, basis, assumes)


def process_count(study: Study, expected: Expected) -> float:
    """Return a study's expected number of processes, within its step budget."""
    length, total = study.env_steps, expected.total or 0
    if expected.trials is None or expected.search is None:
        return total / length
    confirm = (expected.confirm + expected.asked) / length
    count = expected.trials * study.seeds.first * study.spread + confirm
    asked = expected.search + expected.confirm + expected.asked
    return count * min(1.0, total / asked)


def _examine_study(study: Study, own_code: bool) -> tuple[CheckReport, str]:
    if study.imports and not own_code:
        why = "lanes and memory depend on the study's imports, which run only with the study"
        return check(study, not_run=study.imports), why
    notes: list[str] = []
    workers, cores = study.executor.workers, None
    if workers > 1:  # they share this machine
        cores = study.executor.cpus or max(1, (os.cpu_count() or 1) // workers)

    def factory_of(one: Study, environments: int) -> Any:
        return factory_here(one, warn=notes.append, cores=cores, environments=environments)

    try:
        factory = factories_of(study, factory_of)
    except ConfigError as error:  # the study is meant for a different machine
        return check(study), f"lanes and memory are unknown here: {error}"
    if workers > 1 and not isinstance(factory, SeveralFactory):
        try:
            check_divides(factory, factory.resolve(study.default()), workers)
        except ConfigError as error:
            if study.executor.address is None:
                raise
            notes.append(f"if nodes have as many devices as this machine: {error}")
    firsts: dict[str, Resolved] = {}

    def bucket_key(config: Mapping[str, Any]) -> str:
        resolved = factory.resolve(config)
        firsts.setdefault(resolved.bucket, resolved)
        return resolved.bucket

    def cost_of(bucket: str) -> ProgramCost:
        if study.algorithm.is_process:
            processes: Any = factory
            notes.extend(processes.notes(firsts[bucket]))
            return ProgramCost(_processes_at_once(study, processes, firsts[bucket], notes))
        if not study.algorithm.is_ppo:
            cost = _own_cost(factory, firsts[bucket], workers)
            notes.extend(notes_of(factory, firsts[bucket]))
            return cost
        factory.check_environments(firsts[bucket])
        if workers == 1:
            notes.extend(notes_of(factory, firsts[bucket]))
        return _program_cost(factory, firsts[bucket], len(firsts), workers)

    def limit_of(env: EnvSpec) -> int | None:
        from ..core.envs.registry import episode_limit

        values = {**env.values, **study.evaluation.env}
        return episode_limit(env.id, values, study.source)

    report = check(study, bucket_key, cost_of, limit_of=limit_of)
    return replace(report, warnings=(*report.warnings, *dict.fromkeys(notes))), ""


def _processes_at_once(
    study: Study, factory: Any, first: Resolved, notes: list[str]
) -> int | None:
    """Return how many processes run at the same time; None if that depends on a cluster."""
    settings = study.processes or Processes()
    if study.executor.type == "local":
        factory.check(first)
        return factory.at_once
    if study.executor.type == "slurm":
        try:
            SlurmJobs(study.executor, settings, study.resume is not None).check("", Path())
        except ConfigError as error:  # the study is meant for a different machine
            notes.append(str(error))
    return settings.at_once


def _program_cost(factory: Any, first: Resolved, buckets: int, workers: int) -> ProgramCost:
    from ..core.memory import parameter_count
    from .study_time import programs_of

    total = None
    if isinstance(factory, SeveralFactory):
        pairs: Any = zip(factory.factories, first.payload, strict=True)
        lanes = min(own.expected_program(one, buckets).lanes for own, one in pairs)
        programs = programs_of(factory, first, lanes)
    elif workers == 1:
        programs = [factory.expected_program(first, buckets)]
    else:
        division = factory.divide(first, None, workers, workers)
        total, programs = division.total, [factory.make_share(first, division).program]
    return ProgramCost(
        total or programs[0].lanes,
        workers * sum(program.memory_bytes() for program in programs),
        max(parameter_count(program.plan, program.example) for program in programs),
        max(program.plan.gradient_accumulation for program in programs),
    )


def _own_cost(factory: Any, first: Resolved, workers: int) -> ProgramCost:
    """Estimate the memory of a custom training class from array shapes, without compiling."""
    factory.check(first)
    shapes = factory.shapes(first)
    lanes = factory.divide(first, None, workers, workers).total
    numbers = sum(math.prod(leaf.shape) for leaf in shapes.state.values())
    return ProgramCost(lanes, lanes * shapes.state_bytes, numbers, 1)
