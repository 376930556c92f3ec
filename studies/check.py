"""`hpo check`: examines a study before it is compiled, and reports the results as data or text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..environments.hosted import is_hosted
from ..environments.registry import find
from ..errors import ConfigError, counted
from ..files.plain_data import as_lists
from ..spaces.space import Parameter
from ..store.interim_analyses import FEWEST_SEEDS
from .chunk_sizes import budget_fault, rung_steps
from .evaluation import (
    LimitOf,
    endless_note,
    goal_note,
    own_evaluation_note,
    unknown_limit,
    window_note,
)
from .expected_cost import Expected, TimeEstimate, confirm_words, expected_steps
from .portfolio import given_configurations, placement_words, trial_count, tries_only_given
from .programs import ProgramShape, ProgramShapes, buckets_of
from .search_methods import METHODS, method_row
from .search_spec import Confirm, Constraint, EarlyTerminate, SearchSpec
from .spec import Study
from .stopping_rules import rule_row
from .study_environments import env_words, environments_of, metric_words, searched_settings
from .unused_knobs import idle_knobs

_DRAWS = 2000
_LISTED = 12
_MANY = 12
Config = Mapping[str, Any]


@dataclass(frozen=True)
class ProgramCost:
    """The resources that a bucket's program needs; None if unknown."""

    lanes: int | None = None
    memory_bytes: int | None = None  # estimated for all lanes
    parameters: int | None = None  # trainable parameters of one lane
    parts: int | None = None  # parts in which a minibatch's gradient is computed


@dataclass(frozen=True)
class CheckReport:
    study: Study
    buckets: tuple[tuple[ProgramShape, ProgramCost], ...]  # the first few
    bucket_count: int
    bucket_count_exact: bool  # False: the number is a lower bound
    expected: Expected
    rejected_share: float  # share of draws that `forbid` rejects
    warnings: tuple[str, ...]  # legal, but probably unintended
    mistakes: tuple[str, ...]  # combinations in the space that cannot run
    warm_start: str = ""
    time: TimeEstimate | None = None
    time_note: str = ""  # why `time` is None
    process_text: str = ""  # observations from a trial run of a command's process, as text
    not_run: tuple[str, ...] = ()  # files in `imports` whose contents were not checked

    def as_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {
            "name": self.study.name,
            "env": env_words(self.study),
            "searched": list(self.study.space.names),
            "buckets": self.bucket_count,
            "buckets_exact": self.bucket_count_exact,
            "training_compiles": self.bucket_count,
            "programs": [_program_data(bucket, cost) for bucket, cost in self.buckets],
            "expected": {**asdict(self.expected), "total": self.expected.total},
            "rejected_share": self.rejected_share,
            "warnings": list(self.warnings),
            "mistakes": list(self.mistakes),
            "warm_start": self.warm_start or None,
            "time": None if self.time is None else self.time.as_data(),
            "time_note": self.time_note or None,
            "imports_not_run": list(self.not_run),
        }
        if self.process_text:
            data["process"] = self.process_text
        return data

    def text(self) -> str:
        lines = [*_head_lines(self.study), *_program_lines(self), _env_steps_line(self)]
        if self.time is not None:
            lines += self.time.lines()
        elif self.time_note:
            lines.append(f"time       not known: {self.time_note}")
        if self.process_text:
            lines.append(f"process    {self.process_text}")
        if self.warm_start:
            lines.append(f"warm start {self.warm_start}")
        if self.study.space.forbid:
            lines.append(f"forbid     rejects {self.rejected_share:.1%} of draws")
        lines += [f"warning    {text}" for text in self.warnings]
        return "\n".join([*lines, *(f"mistake    {text}" for text in self.mistakes)])


def unknown_cost(bucket: str) -> ProgramCost:
    return ProgramCost()


def check(
    study: Study,
    bucket_key: Callable[[Config], str] | None = None,
    cost_of: Callable[[str], ProgramCost] = unknown_cost,
    not_run: tuple[str, ...] = (),
    limit_of: LimitOf = unknown_limit,
) -> CheckReport:
    """Examine a study; raise if no configuration can run.

    `bucket_key` maps a complete configuration to the name of its bucket, and `cost_of` maps that
    name to the cost of its program. `not_run` lists imported files that were not run, so some
    names may be unknown. `limit_of` returns the episode limit of a custom environment, and may run
    its code.
    """
    import numpy as np

    buckets = _tried_buckets(study, buckets_of(study, bucket_key), bucket_key)
    if not buckets.found:
        raise ConfigError(f"no configuration can run: {buckets.refused[0]}")
    rng = np.random.default_rng(study.seed)
    draws = [study.space.draw(rng) for _ in range(_DRAWS)]
    allowed = [params for params in draws if study.space.forbidden(params) is None]
    costs = tuple((bucket, cost_of(bucket.key)) for bucket in buckets.found[:_LISTED])
    run = buckets.found[0].chunk_sizes.env_steps * study.spread
    wrong = [*buckets.refused, *_draw_errors(study, allowed)]
    if fault := budget_fault(study, run, study.seeds.first):
        wrong.append(f"budget.env_steps {fault}")
    limit_note = ""
    if not not_run:
        limit_note = endless_note(study, limit_of) or window_note(study, limit_of)
    return CheckReport(
        study,
        costs,
        len(buckets.found),
        not (buckets.more or _unknown_env_arguments(study)),
        expected_steps(study, buckets.found[0].chunk_sizes, costs[0][1].lanes),
        (_DRAWS - len(allowed)) / _DRAWS,
        tuple(_study_warnings(study, draws, buckets, costs[0][1].lanes, limit_note)),
        tuple(dict.fromkeys(wrong)),
        not_run=not_run,
    )


def _tried_buckets(
    study: Study, buckets: ProgramShapes, bucket_key: Callable[[Config], str] | None
) -> ProgramShapes:
    """Leave out the buckets of configurations that no trial has, if all trials are known."""
    if bucket_key is None or not tries_only_given(study):
        return buckets
    first = given_configurations(study)[: study.budget.trials]
    try:
        keys = {bucket_key(study.complete(params, bool(study.imports))) for params in first}
    except ConfigError:
        return buckets
    found = tuple(bucket for bucket in buckets.found if bucket.key in keys)
    if len(found) < len(keys):
        return buckets
    return replace(buckets, found=found, more=False)


def _unknown_env_arguments(study: Study) -> list[str]:
    """Return the searched arguments of an environment that is unknown until `imports` have run.

    Each of their values may need a separate program.
    """
    is_known = all(find(one.id) is not None for one in environments_of(study))
    if is_known or not is_hosted(study.env.id):
        return []
    return searched_settings(study)


def _draw_errors(study: Study, draws: list[dict[str, Any]]) -> list[str]:
    """Return the hyperparameter errors in random draws, each with the share of affected draws."""
    times = Counter(map(repr, draws))
    distinct = {repr(params): params for params in draws}
    counts = Counter[str]()
    for words, params in distinct.items():
        try:
            study.complete(params, own_words=bool(study.imports))
        except ConfigError as error:
            counts[str(error)] += times[words]
    return [f"{text} ({count / _DRAWS:.1%} of draws)" for text, count in counts.items()]


def _study_warnings(
    study: Study,
    draws: list[dict[str, Any]],
    buckets: ProgramShapes,
    lanes: int | None,
    limit_note: str,
) -> Iterator[str]:
    yield from _of_forbid(study, draws)
    yield from _of_programs(study, buckets)
    yield from _of_chunks(study, buckets)
    yield from _of_audit(study)
    yield from _of_models(study)
    yield from _of_policies(study)
    yield from buckets.notes
    if study.algorithm.is_ppo:
        yield from idle_knobs(study)
    notes = [unlearnt_note(study, draws), goal_note(study), own_evaluation_note(study)]
    yield from filter(None, [*notes, limit_note, spread_note(study)])
    moved = study.search.random_share != SearchSpec().random_share
    method = study.search.method
    if study.search.driver == "lanes" and not method_row(method).learns_from_results and moved:
        yield f"search.random_share has no effect: {method} does not learn from results"
    if not study.space.parameters:
        yield "nothing is searched: the study trains the default configuration"
        return
    yield from _of_seeds(study)
    if lanes is not None and len(buckets.found) == 1:
        yield from _blind_warning(study, lanes)


def _of_forbid(study: Study, draws: list[dict[str, Any]]) -> Iterator[str]:
    for rule in study.space.forbid:
        held = sum(rule.holds({**study.space.constants, **params}) for params in draws)
        if held == _DRAWS:
            yield f"forbid {rule} rejected all {_DRAWS} draws; no configuration is left"
        elif held == 0:
            yield f"forbid {rule} rejected none of {_DRAWS} draws; is the rule needed?"


def _of_programs(study: Study, buckets: ProgramShapes) -> Iterator[str]:
    for name in buckets.endless:
        yield f"{name} is static and searched over real numbers, so every trial compiles a program"
    if names := _unknown_env_arguments(study):
        text = f"{', '.join(names)}: whether each value needs a separate program is known only "
        yield f"{text}after the imports run. A float constructor argument needs only one program"
    for parameter in study.space.parameters:
        yield from _whole_note(study, parameter)


def _of_chunks(study: Study, buckets: ProgramShapes) -> Iterator[str]:
    early, first = study.early_terminate, buckets.found[0].chunk_sizes
    if len(first.rung_chunks) < len(rung_steps(study)):
        key = "min"
        if early is not None and early.evolves:
            key = "every"
        text = "rungs in the same chunk, or at the end of a run, are merged"
        yield f"{text}; raise early_terminate.{key}"
    if first.updates_per_chunk == 1 and first.chunks < 8:
        text = f"a run has only {counted(first.chunks, 'update')} of {first.steps_per_update} "
        yield f"{text}{study.algorithm.unit}, so rungs and run lengths are coarse"


def _of_audit(study: Study) -> Iterator[str]:
    early, unfit = study.early_terminate, ""
    if early is None or not early.audit:
        return
    if len(study.objectives) > 1:
        unfit = "several objectives"
    if study.constraints:
        unfit = "constraints"
    if rule_row(early.type).finishes:
        unfit = early.type
    if unfit:
        yield f"early_terminate.audit has no benefit with {unfit}; remove audit"


def _of_models(study: Study) -> Iterator[str]:
    if unmodelled := _unmodelled_knobs(study):
        able = [
            row.name for row in METHODS.values() if row.conditional == row.choices == "modelled"
        ]
        text = f"{study.search.method} cannot model {', '.join(unmodelled)} (sampled at random); "
        yield f"{text}{' and '.join(able)} can"


def _of_policies(study: Study) -> Iterator[str]:
    checkpoint = study.checkpoint
    if checkpoint.policies_every is not None and checkpoint.keep_best == 0:
        text = "checkpoint.policies_every keeps only policies of the best trials"
        yield f"{text}, but checkpoint.keep_best is 0, so none are kept"


def _of_seeds(study: Study) -> Iterator[str]:
    confirm = study.confirm
    if study.budget.trials == 1:
        return
    if confirm is None and study.seeds.per_config == 1:
        text = "one seed per trial and no confirm: the winner is mostly luck and never tested"
        yield f"{text}; add confirm: {{}}"
    if confirm is None or not confirm.top_k or len(study.objectives) > 1:
        return
    if 0 < confirm.report < FEWEST_SEEDS:
        text = f"confirm.report is {confirm.report}: a verdict about the winner needs at least "
        yield f"{text}{FEWEST_SEEDS} test seeds"
    if _picks_by_luck(study, confirm):
        text = f"{trial_count(study)} trials on one seed each and no selection: the winner "
        yield f"{text}is mostly luck; set confirm.top_k and confirm.choose to 3"


def _picks_by_luck(study: Study, confirm: Confirm) -> bool:
    """Return whether the best of many trials is picked on a single seed.

    In replays of recorded tables, searches with 12 to 48 trials on one seed find worse
    configurations than searches with 4 trials. With selection seeds, the longer searches find
    better configurations (decision 91).
    """
    if study.seeds.per_config > 1 or confirm.choose:
        return False
    trials = trial_count(study)
    return trials is None or trials >= _MANY


def _blind_warning(study: Study, lanes: int) -> Iterator[str]:
    """Warn if every trial starts before the method's model has any results."""
    method, trials, early = study.search.method, study.budget.trials, study.early_terminate
    seeds, evolves = study.seeds.first, early is not None and early.evolves
    informed = evolves or study.search.warm_start is not None
    if informed or study.search.driver != "lanes" or not method_row(method).learns_from_results:
        return
    given, options = study.search.options, method_row(method).options
    startup = next(
        (
            int(given.get(one.key, one.default))
            for one in options
            if one.key in ("n_startup_trials", "population_size")
        ),
        1,
    )
    if tries_only_given(study) or trial_count(study) != trials:
        return  # the method proposes no configurations, or all that the space has
    blind = startup + lanes // seeds
    if trials is not None and 2 <= trials <= blind:
        few = max(8, seeds)
        enough = 3 * (startup + min(few, lanes) // seeds)
        ways: list[str] = []
        if lanes > few:
            ways.append(f"population.lanes to {few}")
        if trials < enough:
            ways.append(f"budget.trials to {enough} or more")
        text = f"{method} acts as random search: {blind} trials start before its model has "
        yield f"{text}results, and the budget is {trials} trials; set {' and '.join(ways)}"


_NUMBERS_BETWEEN = {
    "int_uniform": ("whole numbers", "uniform"),
    "log_int_uniform": ("whole numbers", "log_uniform"),
    "pow2": ("powers of two", "log_uniform"),
}
"""Integer distribution -> its values in words, and the distribution over real numbers."""


def _whole_note(study: Study, parameter: Parameter) -> Iterator[str]:
    name, distribution = parameter.name, parameter.distribution
    is_real = name.startswith("env.") or study.algorithm.knobs[name].type == "float"
    stepped = getattr(distribution, "q", None) is not None
    if is_real and not stepped and distribution.kind in _NUMBERS_BETWEEN:
        few, between = _NUMBERS_BETWEEN[distribution.kind]
        yield (f"{name} takes only {few}; for real numbers, use distribution: {between}")


def unlearnt_note(study: Study, draws: list[dict[str, Any]]) -> str:
    """Return a note if some configurations would finish before the first gradient step, or ""."""
    name = getattr(study.algorithm.made, "learns_after", "")
    if not name:
        return ""
    unit, length = study.algorithm.unit, study.env_steps
    usual = study.fixed.get(name, study.algorithm.knobs[name].default)
    waits = [params.get(name, usual) for params in draws]
    late = sum(wait >= length for wait in waits)
    if not late:
        return ""
    way = f"no update is made; lower {name} or raise env_steps"
    if name in study.space.names:
        share = f"{late / len(waits):.1%} of draws"
        return f"in {share}, {name} is at least the run length of {length:,} {unit}, so {way}"
    return f"{name} is {usual:,.10g}, but a run has {length:,} {unit}, so {way}"


def spread_note(study: Study) -> str:
    """Return a note if the number of lanes depends on a cluster's workers; otherwise ""."""
    workers = study.executor.workers
    if workers == 1 or study.population.lanes is not None:
        return ""
    text = f"population.lanes is auto: {workers} workers have up to {workers} times the lanes of "
    return f"{text}one process, which changes the search; to prevent this, set population.lanes"


def _unmodelled_knobs(study: Study) -> list[str]:
    method = method_row(study.search.method)
    when, choices = (dealt == "at random" for dealt in (method.conditional, method.choices))
    names = [
        one.name
        for one in study.space.parameters
        if (one.when and when) or (choices and one.distribution.axis.kind == "choice")
    ]
    return list(dict.fromkeys(names))


def _program_data(bucket: ProgramShape, cost: ProgramCost) -> dict[str, Any]:
    chunk_sizes = bucket.chunk_sizes
    return {
        "static": as_lists(bucket.static),
        "updates_per_chunk": chunk_sizes.updates_per_chunk,
        "steps_per_chunk": chunk_sizes.steps_per_chunk,
        "chunks": chunk_sizes.chunks,
        "rungs": list(chunk_sizes.rungs),
        "env_steps": chunk_sizes.env_steps,
        "lanes": cost.lanes,
        "memory_bytes": cost.memory_bytes,
        "parameters": cost.parameters,
        "gradient_parts": cost.parts,
    }


def _rule_words(early: EarlyTerminate, unit: str) -> str:
    rule = rule_row(early.type)
    shown = rule.shown.format(**asdict(early), unit=unit)
    if early.pause:
        shown += f", up to {counted(early.pause, 'trial')} paused"
    if rule.registered and early.options:
        shown = "with " + ", ".join(f"{k} {as_lists(v)}" for k, v in early.options.items())
    return f"{early.type} {shown}".strip()


def _head_lines(study: Study) -> list[str]:
    rule, method = "no early stopping", study.search.method
    if study.early_terminate is not None:
        rule = _rule_words(study.early_terminate, study.algorithm.unit)
    if study.search.driver == "ray_tune":
        method = f"Ray Tune ({study.search.searcher})"
        every = f"{study.evaluation.every:,} {study.algorithm.unit}"
        rule = f"with scheduler {study.search.scheduler} every {every}"
    seeds = f"{study.seeds.per_config} per trial"
    if study.seeds.racing is not None:
        seeds = (
            f"{study.seeds.first} per trial, up to {study.seeds.per_config} for possible winners"
        )
    first, *more = study.objectives or (study.metric,)
    names = [(first, metric_words(study)), *((one, one.name) for one in more)]
    wanted = [f"{metric.aggregate} of {name} ({metric.goal})" for metric, name in names]
    if study.search.portfolio:
        method += f" after {placement_words(study)}"
    knobs = counted(len(study.space.names), "knob")
    lines = [f"study      {study.name}: {env_words(study)}, {knobs} searched by {method}, {rule}"]
    if study.more_envs:
        each = f"{study.spread}: {study.env_steps:,} {study.algorithm.unit} each"
        lines += [f"a trial    trains on all {each}; {study.over_environments} of the scores"]
    lines.append(f"seeds      {seeds}, {', '.join(wanted)}")
    if study.constraints:
        lines.append(f"limits     {', '.join(map(_constraint_words, study.constraints))}")
    return lines


def _constraint_words(limit: Constraint) -> str:
    text = limit.metric
    if limit.min is not None:
        text = f"{limit.min:g} <= {text}"
    if limit.max is not None:
        text = f"{text} <= {limit.max:g}"
    return text


def _program_lines(report: CheckReport) -> list[str]:
    study = report.study
    if study.algorithm.is_process:
        return [_of_processes(report)]
    count, each = counted(report.bucket_count, "bucket"), "one training program"
    if not report.bucket_count_exact:
        count = f"at least {count}"
    if study.more_envs:
        each = f"{study.spread} training programs"
    lines = [f"programs   {count}, {each} each"]
    lines += [_program_text(report, bucket, cost) for bucket, cost in report.buckets]
    if report.bucket_count > len(report.buckets):
        lines.append(f"  and {report.bucket_count - len(report.buckets)} more")
    return lines


def _program_text(report: CheckReport, bucket: ProgramShape, cost: ProgramCost) -> str:
    chunk_sizes, unit = bucket.chunk_sizes, report.study.algorithm.unit
    names = ", ".join(f"{name}={as_lists(value)}" for name, value in bucket.static.items())
    chunk = f"{counted(chunk_sizes.updates_per_chunk, 'update')} = {chunk_sizes.steps_per_chunk:,}"
    parts = [
        f"  {names or 'all'}: chunk {chunk} {unit}",
        f"rungs {_rungs_text(chunk_sizes.rungs)}",
        f"run {chunk_sizes.env_steps:,} {unit} in {counted(chunk_sizes.chunks, 'chunk')}",
    ]
    if cost.lanes is not None:
        parts.append(_lanes_text(report, cost.lanes))
    if cost.memory_bytes is not None:
        parts += [mebibytes(cost.memory_bytes), f"{cost.parameters:,} parameters per lane"]
    if cost.parts not in (None, 1):
        parts.append(f"gradients in {cost.parts} parts")
    return "; ".join(parts)


def _rungs_text(rungs: Sequence[int]) -> str:
    return ", ".join(f"{steps:,}" for steps in rungs) or "none"


def _lanes_text(report: CheckReport, lanes: int) -> str:
    """Return a program's number of lanes as text; an estimate if there are several programs."""
    study = report.study
    several = report.bucket_count > 1 or not report.bucket_count_exact
    text, workers = counted(lanes, "lane"), study.executor.workers
    if several and study.population.lanes is None:
        text = f"about {text}"
    if workers > 1:
        text = f"{text} over {workers} workers"
    return text


def _of_processes(report: CheckReport) -> str:
    bucket, cost = report.buckets[0]
    chunk_sizes, unit = bucket.chunk_sizes, report.study.algorithm.unit
    rungs = _rungs_text(chunk_sizes.rungs)
    text = f"rungs {rungs}; run {chunk_sizes.env_steps:,} {unit}"
    if cost.lanes is not None:
        text = f"{cost.lanes} at once; {text}"
    return f"processes  {text}"


def _env_steps_line(report: CheckReport) -> str:
    expected = report.expected
    if expected.trials is None or expected.search is None or expected.full is None:
        search = "search until the budget is spent"
    else:
        share = expected.search / expected.full if expected.full else 1.0
        full = f"{share:.0%} of {expected.full:,} for {counted(expected.trials, 'full trial')}"
        seeds, each = report.study.seeds, ""
        if seeds.racing is not None:
            each = f" with {counted(seeds.first, 'seed')} per trial"
        search = f"search {expected.search:,} expected{each} ({full})"
    parts = [search, f"confirm {confirm_words(report.study, expected)}"]
    if expected.budget is None:
        parts.append("no limit")
    else:
        parts.append(f"limit {expected.budget:,}")
    if expected.total is not None:
        raced = report.study.seeds.racing is not None and expected.total != expected.limit
        parts.append(f"total {'at least ' * raced}{expected.total:,}")
    return f"{report.study.algorithm.unit}  {'; '.join(parts)}"


def mebibytes(size: int) -> str:
    """Format a size in MiB; small sizes have two digits, so that none is shown as 0.

    >>> mebibytes(700_000_000), mebibytes(9_400), mebibytes(3_250_000)
    ('668 MiB', '0.009 MiB', '3.1 MiB')
    """
    found = size / 2**20
    if found >= 10:
        return f"{found:,.0f} MiB"
    return f"{found:.2g} MiB"
