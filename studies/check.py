"""What `hpo check` says of a study before anything is compiled: data, and the same as text.

Everything but lanes and memory follows from the file; those two the caller may supply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ConfigError, counted
from ..files.plain_data import as_lists
from ..knobs import KNOBS
from ..spaces.make import WHOLE_KINDS
from ..spaces.space import Parameter
from ..store.interim_analyses import fewest_pairs, level_of
from .chunk_sizes import Quanta, curve_rows, rows_of_run, rung_steps
from .evaluation import endless_note, own_evaluation_note
from .expected_cost import Expected, TimeEstimate, confirm_words, expected_steps, time_lines
from .programs import Buckets, buckets_of
from .search_methods import METHODS, Method, method_row
from .several_environments import env_words, metric_words, programs_words, several_lines
from .spec import Constraint, EarlyTerminate, SearchSpec, Study
from .stopping_rules import rule_row
from .unused_knobs import idle_knobs

_POLICY_BYTES = 70_000  # of a policy on disk beside its parameters: 12 files in blocks of 4 KiB


def curve_words(study: Study, quanta: Quanta) -> str:
    """Return how often curves have a row, where the study says so."""
    if study.log_every is None:
        return ""
    each, updates = quanta.steps_per_update, quanta.updates_per_chunk
    rows = curve_rows(study.log_every, each, updates)
    apart = rows.chunks * updates if rows.per_chunk == 1 else -(-updates // rows.per_chunk)
    count = rows_of_run(rows, quanta.chunks, quanta.rung_chunks)
    return f"; a row of curves every {apart * each:,} env steps, {count:,} a run"


def lane_words(study: Study, lanes: int | None, several: bool) -> str:
    """Return how many lanes a program has, if known.

    Args:
        study: what is asked.
        lanes: that are expected.
        several: programs; each then keeps as many as it has replicates for.
    """
    if lanes is None:
        return ""
    about = "about " if several and study.population.lanes is None else ""
    workers = study.executor.workers
    over = f" over {workers} workers" if workers > 1 else ""
    return f"; {about}{lanes:,} lane{'s' * (lanes != 1)}{over}"


def policy_words(study: Study, chunks: int, parameters: int | None) -> list[str]:
    """Return how many policies are kept on the way, and what they take, in lines.

    Args:
        study: what is asked.
        chunks: of a full run.
        parameters: trainable ones of a lane, if known.
    """
    wanted, lines = study.checkpoint, list[str]()
    more = f", and each its {', '.join(wanted.parts)}" if wanted.parts else ""
    if wanted.policies_every is not None:
        each = min(study.env_steps // wanted.policies_every, chunks)
        most = each * wanted.keep_best * study.seeds.per_config
        lines.append(
            f"policies   every {wanted.policies_every:,} env steps, {each:,} a run: {most:,} of "
            f"the {wanted.keep_best} best trials, and {each:,} a lane while trials run"
            f"{_size(most, parameters)}{more}"
        )
    if wanted.best_of_each:
        count = study.budget.trials
        some = "one" if count is None else f"{count:,}, one"
        size = "" if count is None else _size(count, parameters)
        lines.append(f"policies   {some} a trial at its best evaluation{size}{more}")
    return lines


def _size(policies: int, parameters: int | None) -> str:
    """Return what so many policies take on disk."""
    if parameters is None:
        return ""
    return f"; about {mebibytes(policies * (4 * parameters + _POLICY_BYTES))}"


def mebibytes(size: int) -> str:
    """Format a size in MiB; a small one to two digits, so that it is never 0.

    >>> mebibytes(700_000_000), mebibytes(9_400), mebibytes(3_250_000)
    ('668 MiB', '0.009 MiB', '3.1 MiB')
    """
    found = size / 2**20
    return f"{found:,.0f} MiB" if found >= 10 else f"{found:.2g} MiB"


_DRAWS = 2000
_LISTED = 12
Config = Mapping[str, Any]


@dataclass(frozen=True)
class Cost:
    """What the program of a bucket takes of a machine.

    Attributes:
        lanes: that it has.
        memory_bytes: estimate for all of them.
        parameters: trainable ones of one lane.
        parts: that a minibatch's gradient is summed from.
    """

    lanes: int
    memory_bytes: int
    parameters: int
    parts: int


@dataclass(frozen=True)
class BucketReport:
    """One bucket, for people.

    Attributes:
        static: the static knobs that differ between buckets.
        quanta: how its runs are cut.
        lanes: of its program, if known.
        memory_bytes: estimate for all lanes, if known.
        parameters: trainable ones of one lane, if known.
        parts: that a minibatch's gradient is summed from, if known.
    """

    static: Mapping[str, Any]
    quanta: Quanta
    lanes: int | None = None
    memory_bytes: int | None = None
    parameters: int | None = None
    parts: int | None = None


@dataclass(frozen=True)
class CheckReport:
    """All that can be said of a study without running it.

    Attributes:
        study: the study.
        buckets: of the study, the first few.
        bucket_count: how many there are.
        bucket_count_exact: False if there are more than were counted.
        training_compiles: programs to compile, at least.
        expected: env steps.
        rejected_share: share of draws that `forbid` refuses.
        warnings: what is legal but probably not meant.
        mistakes: combinations in the space that cannot run.
        warm_start: what an earlier study brings, in words.
        time: how long it takes on this machine, None if that is not known.
        time_note: why it is not.
    """

    study: Study
    buckets: tuple[BucketReport, ...]
    bucket_count: int
    bucket_count_exact: bool
    training_compiles: int
    expected: Expected
    rejected_share: float
    warnings: tuple[str, ...]
    mistakes: tuple[str, ...]
    warm_start: str = ""
    time: TimeEstimate | None = None
    time_note: str = ""

    def as_data(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {
            "name": self.study.name,
            "env": env_words(self.study),
            "searched": list(self.study.space.names),
            "buckets": self.bucket_count,
            "buckets_exact": self.bucket_count_exact,
            "training_compiles": self.training_compiles,
            "programs": [_program_data(bucket) for bucket in self.buckets],
            "expected": {**asdict(self.expected), "total": self.expected.total},
            "rejected_share": self.rejected_share,
            "warnings": list(self.warnings),
            "mistakes": list(self.mistakes),
            "warm_start": self.warm_start or None,
            "time": None if self.time is None else self.time.as_data(),
            "time_note": self.time_note or None,
        }

    def text(self) -> str:
        """Return the report as lines for a terminal."""
        time = time_lines(self.time, self.time_note)
        lines = [*_head(self), *_programs(self), *_steps(self), *time, *self._policies()]
        return "\n".join([*lines, *_judgement(self)])

    def _policies(self) -> list[str]:
        known = [bucket.parameters for bucket in self.buckets if bucket.parameters is not None]
        chunks = max((bucket.quanta.chunks for bucket in self.buckets), default=0)
        return policy_words(self.study, chunks, max(known, default=None))


def check(
    study: Study,
    bucket_key: Callable[[Config], str] | None = None,
    cost_of: Callable[[str], Cost] | None = None,
) -> CheckReport:
    """Examine a study.

    Args:
        study: loaded, so free of mistakes that a file can show by itself.
        bucket_key: names the bucket of a complete configuration.
        cost_of: what the program of a bucket, by that name, takes of the machine.

    Raises:
        ConfigError: no configuration of it can run.
    """
    import numpy as np

    buckets = buckets_of(study, bucket_key)
    if not buckets.found:
        raise ConfigError(f"no configuration can run: {buckets.refused[0]}")
    rng = np.random.default_rng(study.seed)
    draws = [study.space.draw(rng) for _ in range(_DRAWS)]
    rejected = sum(study.space.forbidden(params) is not None for params in draws) / _DRAWS
    refused = dict.fromkeys([*buckets.refused, *_refused(study, draws)])
    reports = tuple(
        BucketReport(
            bucket.static,
            bucket.quanta,
            **({} if cost_of is None else asdict(cost_of(bucket.key))),
        )
        for bucket in buckets.found[:_LISTED]
    )
    return CheckReport(
        study,
        reports,
        len(buckets.found),
        not buckets.more,
        len(buckets.found),
        expected_steps(study, buckets.found[0].quanta),
        rejected,
        tuple(
            [
                *_rule_warnings(study, draws),
                *_warnings(study, buckets),
                *_verdict_warnings(study),
                *_blind_warnings(study, reports, len(buckets.found)),
            ]
        ),
        tuple(refused),
    )


def _refused(study: Study, draws: list[dict[str, Any]]) -> list[str]:
    """Return what the knobs refuse among configurations that rules let pass, and its share."""
    counts: dict[str, int] = {}
    for params in draws:
        if study.space.forbidden(params) is None:
            try:
                study.complete(params, own_words=bool(study.imports))
            except ConfigError as error:
                counts[str(error)] = counts.get(str(error), 0) + 1
    return [f"{text} ({count / _DRAWS:.1%} of draws)" for text, count in counts.items()]


def _rule_warnings(study: Study, draws: list[dict[str, Any]]) -> list[str]:
    warnings: list[str] = []
    for rule in study.space.forbid:
        held = sum(rule.holds({**study.space.constants, **params}) for params in draws)
        if held == 0:
            warnings.append(f"forbid {rule} never held in {_DRAWS} draws; is it needed?")
        elif held == _DRAWS:
            warnings.append(f"forbid {rule} always held in {_DRAWS} draws; nothing is left")
    return warnings


def _warnings(study: Study, buckets: Buckets) -> list[str]:
    warnings = [
        f"{name} is static and searched over real numbers: every trial compiles its own program"
        for name in buckets.endless
    ]
    warnings.extend(filter(None, map(_whole_note, study.space.parameters)))
    first = buckets.found[0].quanta
    if len(first.rung_chunks) < len(rung_steps(study)):
        early = study.early_terminate
        key = "every" if early is not None and early.evolves else "min"
        warnings.append(
            "rungs less than a chunk apart, or from the end of a run, fall together; raise "
            f"early_terminate.{key}"
        )
    if first.updates_per_chunk == 1 and first.chunks < 8:
        warnings.append(
            f"a run is only {first.chunks} updates of {first.steps_per_update} env steps; rungs "
            "and ends are coarse"
        )
    unmodelled = _unmodelled(study)
    if unmodelled:
        warnings.append(
            f"{study.search.method} does not model {', '.join(unmodelled)}: drawn at random; "
            f"{' and '.join(_that_model())} model them"
        )
    if study.checkpoint.policies_every is not None and study.checkpoint.keep_best == 0:
        warnings.append(
            "checkpoint.policies_every keeps policies of the best trials alone, and "
            "checkpoint.keep_best is 0: none is kept"
        )
    warnings.extend([*buckets.notes, *idle_knobs(study)])
    warnings.extend(
        filter(None, [own_evaluation_note(study), endless_note(study), spread_note(study)])
    )
    method, usual = method_row(study.search.method), SearchSpec().random_share
    own = study.search.driver == "lanes"
    if own and not method.learns and study.search.random_share != usual:
        name = method.name
        warnings.append(f"search.random_share changes nothing: {name} learns from no result")
    if not study.space.parameters:
        warnings.append("nothing is searched: the study trains the default configuration")
    return warnings


def _verdict_warnings(study: Study) -> list[str]:
    """Return warnings where the seeds are too few for any verdict about the winner."""
    confirm, fewest = study.confirm, fewest_pairs(level_of(1))
    if not study.space.parameters or study.budget.trials == 1:
        return []
    if confirm is None and study.seeds.per_config == 1:
        return [
            "one seed per trial and no confirm: luck picks the winner, and nothing tests it; add "
            "confirm: {}"
        ]
    if confirm is None or not confirm.top_k or len(study.objectives) > 1:
        return []
    if 0 < confirm.report < fewest:
        return [
            f"confirm.report is {confirm.report}: a verdict about the winner needs at least "
            f"{fewest} test seeds"
        ]
    return []


def _blind_warnings(study: Study, reports: Sequence[BucketReport], programs: int) -> list[str]:
    """Return a warning where every trial starts before the first result is known."""
    method, trials = method_row(study.search.method), study.budget.trials
    lanes = reports[0].lanes
    early = study.early_terminate
    evolves = early is not None and early.evolves
    if trials is None or lanes is None or programs > 1 or not method.learns or evolves:
        return []
    if study.search.driver != "lanes" or not study.space.parameters:
        return []
    seeds = study.seeds.first
    if trials * seeds > lanes or trials < 2:
        return []
    fewer = max(seeds, lanes // 4 // seeds * seeds)
    return [
        f"all {trials} trials start before any result is known, so {method.name} acts as random "
        f"search; set population.lanes to {fewer}, or raise budget.trials"
    ]


def _whole_note(parameter: Parameter) -> str:
    """Return a note that a real number is searched over whole ones, unless a step asks for it."""
    name, distribution = parameter.name, parameter.distribution
    is_real = name.startswith("env.") or KNOBS[name].type == "float"
    stepped = getattr(distribution, "q", None) is not None
    if not is_real or stepped or distribution.kind not in WHOLE_KINDS:
        return ""
    few = "powers of two" if distribution.kind == "pow2" else "whole numbers"
    between = "uniform" if distribution.kind == "int_uniform" else "log_uniform"
    return f"{name} takes only {few} here; for any number between type distribution: {between}"


def spread_note(study: Study) -> str:
    """Return a note that lanes chosen by the rule grow with a cluster's workers; else ""."""
    workers = study.executor.workers
    if workers == 1 or study.population.lanes is not None:
        return ""
    return (
        f"population.lanes is auto: {workers} workers have up to {workers} times the lanes of one "
        "process, so more trials are in flight and the search is another one; give "
        "population.lanes for the same search"
    )


def _unmodelled(study: Study) -> list[str]:
    """Return the parameters that the method draws at random."""
    method = method_row(study.search.method)
    blind = {p.name for p in study.space.parameters if _is_at_random(method, p)}
    return [name for name in study.space.names if name in blind]


def _is_at_random(method: Method, parameter: Parameter) -> bool:
    choice = parameter.distribution.axis.kind == "choice"
    conditional = bool(parameter.when) and method.conditional == "at random"
    return conditional or (choice and method.choices == "at random")


def _that_model() -> list[str]:
    return [row.name for row in METHODS.values() if row.conditional == row.choices == "modelled"]


def _rule_words(early: EarlyTerminate) -> str:
    """Return a rule with what it goes by; of a registered one its options."""
    rule = rule_row(early.type)
    shown = rule.shown.format(**asdict(early))
    if early.pause:
        shown += f", up to {counted(early.pause, 'trial')} paused"
    if rule.registered and early.options:
        shown = "with " + ", ".join(f"{k} {as_lists(v)}" for k, v in early.options.items())
    return f"{early.type} {shown}".strip()


def _program_data(bucket: BucketReport) -> dict[str, Any]:
    quanta = bucket.quanta
    return {
        "static": as_lists(bucket.static),
        "updates_per_chunk": quanta.updates_per_chunk,
        "steps_per_chunk": quanta.steps_per_chunk,
        "chunks": quanta.chunks,
        "rungs": list(quanta.rungs),
        "env_steps": quanta.env_steps,
        "lanes": bucket.lanes,
        "memory_bytes": bucket.memory_bytes,
        "parameters": bucket.parameters,
        "gradient_parts": bucket.parts,
    }


def _head(report: CheckReport) -> list[str]:
    study = report.study
    rule = "nobody is stopped early"
    if study.early_terminate is not None:
        rule = _rule_words(study.early_terminate)
    method = study.search.method
    if study.search.driver == "ray_tune":
        method = f"Ray Tune ({study.search.searcher})"
        rule = f"its {study.search.scheduler} decides every {study.evaluation.every:,} env steps"
    seeds = f"{study.seeds.per_config} a trial"
    if study.seeds.racing is not None:
        seeds = f"{study.seeds.first} a trial, up to {study.seeds.per_config} if it may win"
    first, *more = study.objectives or (study.metric,)
    wanted = [
        f"{metric.aggregate} of {name} ({metric.goal})"
        for metric, name in [(first, metric_words(study)), *((one, one.name) for one in more)]
    ]
    lines = [
        f"study      {study.name}: {env_words(study)}, {_counted(len(study.space.names), 'knob')} "
        f"searched by {method}, {rule}",
        *several_lines(study),
        f"seeds      {seeds}, {', '.join(wanted)}",
    ]
    limits = [_limit(constraint) for constraint in study.constraints]
    return [*lines, f"limits     {', '.join(limits)}"] if limits else lines


def _limit(constraint: Constraint) -> str:
    low = "" if constraint.min is None else f"{constraint.min:g} <= "
    high = "" if constraint.max is None else f" <= {constraint.max:g}"
    return f"{low}{constraint.metric}{high}"


def _programs(report: CheckReport) -> list[str]:
    least = "" if report.bucket_count_exact else "at least "
    each, words = programs_words(report.study), _counted(report.bucket_count, "bucket")
    lines = [f"programs   {least}{words}, {each} each"]
    several = report.bucket_count > 1 or not report.bucket_count_exact
    for bucket in report.buckets:
        quanta = bucket.quanta
        names = ", ".join(f"{name}={as_lists(value)}" for name, value in bucket.static.items())
        rungs = ", ".join(f"{steps:,}" for steps in quanta.rungs) or "none"
        lanes = lane_words(report.study, bucket.lanes, several)
        memory = "" if bucket.memory_bytes is None else f"; {mebibytes(bucket.memory_bytes)}"
        chunks = _counted(quanta.chunks, "chunk")
        lines.append(
            f"  {names or 'all'}: chunk {_counted(quanta.updates_per_chunk, 'update')} = "
            f"{quanta.steps_per_chunk:,} env steps; rungs {rungs}; run {quanta.env_steps:,} env "
            f"steps in {chunks}{lanes}{memory}{_weights(bucket.parameters)}"
            f"{_parts(bucket.parts)}{curve_words(report.study, quanta)}"
        )
    if report.bucket_count > len(report.buckets):
        lines.append(f"  and {report.bucket_count - len(report.buckets)} more")
    return lines


def _steps(report: CheckReport) -> list[str]:
    expected = report.expected
    if expected.trials is None or expected.search is None or expected.full is None:
        search = "search until the budget ends"
    else:
        share = expected.search / expected.full if expected.full else 1.0
        search = (
            f"search {expected.search:,} expected ({share:.0%} of {expected.full:,} for "
            f"{_counted(expected.trials, 'full trial')})"
        )
    budget = "no bound" if expected.budget is None else f"bound {expected.budget:,}"
    total = "" if expected.total is None else f"; together {expected.total:,}"
    return [
        f"env steps  {search}; confirm {confirm_words(report.study, expected)}; {budget}{total}"
    ]


def _judgement(report: CheckReport) -> list[str]:
    lines = [f"warm start {report.warm_start}"] if report.warm_start else []
    if report.study.space.forbid:
        lines.append(f"forbid     refuses {report.rejected_share:.1%} of draws")
    lines.extend(f"warning    {text}" for text in report.warnings)
    lines.extend(f"mistake    {text}" for text in report.mistakes)
    return lines


def _weights(parameters: int | None) -> str:
    return "" if parameters is None else f"; {parameters:,} parameters a lane"


def _parts(parts: int | None) -> str:
    return "" if parts is None or parts == 1 else f"; gradients in {parts} parts"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"
