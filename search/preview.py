"""What `hpo check` says: the study's own checks, with lanes and memory of this machine.

jax starts, but nothing is compiled and no user code runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import ConfigError
from ..studies.check import CheckReport, Cost, check
from ..studies.spec import Study
from .book.warm_start import warm_start
from .lanes.contract import Resolved

__all__ = ["preview"]


def preview(study: Study) -> tuple[CheckReport, str]:
    """Examine a study on this machine.

    Returns:
        The report, and why it says nothing about lanes and memory, or "".
    """
    earlier = warm_start(study).words
    if study.imports:
        return _told(
            check(study), earlier
        ), "lanes and memory depend on the study's imports, which run with it"
    from ..core.memory import parameter_count
    from .lanes.local import LocalFactory

    notes: list[str] = []
    workers = study.executor.workers
    try:
        factory = LocalFactory(study, warn=notes.append, cores=_cores(study))
    except ConfigError as error:  # the study is for another machine
        return _told(check(study), earlier), f"lanes and memory are not known here: {error}"

    if workers > 1:
        try:
            factory.check_divides(factory.resolve(study.default()), workers)
        except ConfigError as error:
            if study.executor.address is None:
                raise
            notes.append(f"if nodes have as many devices as this machine: {error}")

    firsts: dict[str, Resolved] = {}

    def bucket_key(config: Mapping[str, Any]) -> str:
        resolved = factory.resolve(config)
        firsts.setdefault(resolved.bucket, resolved)
        return resolved.bucket

    def cost_of(bucket: str) -> Cost:
        first = firsts[bucket]
        if workers == 1:
            program = factory.program_of(first)
            lanes = program.lanes
        else:
            division = factory.divide(first, None, workers, workers)
            program = factory.make_share(first, division).program
            lanes = division.total
        memory = workers * program.memory_bytes()
        parameters = parameter_count(program.plan, program.example)
        return Cost(lanes, memory, parameters, program.plan.gradient_accumulation)

    report = check(study, bucket_key, cost_of)
    report = replace(report, warnings=(*report.warnings, *dict.fromkeys(notes)))
    return _told(report, earlier), ""


def _cores(study: Study) -> int | None:
    """Return the cores of one worker, where several of them are taken to share this machine."""
    workers = study.executor.workers
    if workers == 1:
        return None
    return study.executor.cpus or max(1, (os.cpu_count() or 1) // workers)


def _told(report: CheckReport, earlier: str) -> CheckReport:
    """Add what a warm start takes over."""
    return replace(report, warm_start=earlier) if earlier else report
