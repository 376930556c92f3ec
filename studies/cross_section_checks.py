"""Rules that involve several sections of a study.

`contradictions` lists every broken rule as (path, message). The loader adds the path's line, and
the search raises the messages. A path is `section.key`; alternative places to blame follow after
`|`. `environment_faults` and `knob_contradictions` are slower, so only the loader calls them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..environments.hosted import is_hosted, is_simulated
from ..environments.registry import held_out_keys
from ..environments.table import ENVIRONMENTS
from ..errors import ConfigError, MissingExtraError, counted, suggestion
from ..store.statistics import IQM_MIN_SEEDS
from .chunk_sizes import budget_fault, full_run
from .env_section import optical_faults
from .execution_spec import PopulationSpec, Processes
from .programs import env_kinds, is_static
from .search_methods import METHODS, method_row
from .search_spec import Confirm, Constraint, EarlyTerminate, Evaluation, Metric, Racing
from .spec import Study
from .stopping_rules import foreign_keys, rule_row
from .study_environments import each_alone, environments_of
from .study_keys import COSTS, DRIVEN_KEYS, EXECUTOR_KEYS, SEARCHER_KEYS
from .user_code import misfits
from .yaml_io import Node

Problems = Iterator[tuple[str, str]]

SCHEDULERS = ("asha", "pbt")
SEARCHERS = ("random", "optuna")
_UNFIT = {
    "PB2": (
        "models hyperparameters, which are not passed to Ray Tune; remove search.driver "
        "and use early_terminate: {type: pb2}"
    ),
    "HyperBandForBOHB": "needs the BOHB searcher; use ray.tune.schedulers.HyperBandScheduler",
    "PopulationBasedTrainingReplay": "needs a Ray checkpoint; replay the trial instead",
    "ResourceChangingScheduler": (
        "moves CPUs between processes, but all lanes share one program; use its base scheduler"
    ),
}
"""Ray Tune scheduler that cannot control lanes -> the reason."""
_MOST_RUNGS = 1_000
_MOST_EVALUATIONS = 10_000
_MOST_KINDS = 16
_MOST_PAIRS = 2000
_MOST_ENDS = 8


def stages(root: Node, study: Study) -> Iterator[Iterable[tuple[str, str]]]:
    """Yield the study's problems in stages; each assumes that the previous stages found none."""
    yield (*unused_keys(root, study), *contradictions(study))
    yield knob_contradictions(study)
    yield environment_faults(study)


def contradictions(study: Study) -> list[tuple[str, str]]:
    """Return (path, message) for every cross-section rule that a study breaks."""
    rules = (
        _seed_problems,
        _training_weight,
        _method_problems,
        _length_problems,
        _evolution_problems,
        _budget_problems,
        _default_problems,
        _ray_tune,
        _several_env_problems,
        _worker_problems,
        _custom_training,
        _command_problems,
    )
    problems = [problem for rule in rules for problem in rule(study)]
    problems += [(f"{one}.distribution", text) for one, text in misfits(study, imported=False)]
    # the key is put before its message
    return [(path, f"{path.partition('|')[0]} {text}") for path, text in problems]


def unused_keys(root: Node, study: Study) -> Problems:
    """Yield the given keys that belong to a different rule, executor or driver."""
    driver, early = study.search.driver, study.early_terminate
    others: list[tuple[str, tuple[str, ...], str]] = []
    if early is not None:
        others = [("early_terminate", foreign_keys(early.type), f"is not a key of {early.type}")]
    for kind in ("ray", "slurm"):
        own = EXECUTOR_KEYS[study.executor.type]
        foreign = tuple(key for key in EXECUTOR_KEYS[kind] if key not in own)
        others.append(("executor", foreign, f"needs executor: {{type: {kind}}}"))
    if driver == "lanes":
        others.append(("search", DRIVEN_KEYS, "needs search: {driver: ray_tune}"))
    else:
        text = f"does not work with driver {driver}, whose searcher proposes trials"
        others.append(("search", SEARCHER_KEYS, text))
    for section, keys, text in others:
        for key in keys:
            if key in root.child(section).mapping:
                yield f"{section}.{key}", f"{section}.{key} {text}; remove it"
    if "over_environments" in root.value and not study.more_envs:
        yield (
            "over_environments",
            "over_environments applies only to several environments; remove it",
        )


def _seed_problems(study: Study) -> Problems:
    """Require enough seeds for the aggregate and for racing."""
    seeds = study.seeds
    yield from _seeds_of_aggregates(study)
    if seeds.tolerate >= seeds.per_config:
        text = f"is {seeds.tolerate}; allowed: below per_config ({seeds.per_config})"
        yield "seeds.tolerate", text
    if seeds.racing is not None:
        yield from _racing_problems(study, seeds.racing)


def _seeds_of_aggregates(study: Study) -> Problems:
    seeds = study.seeds
    measured: dict[str, tuple[Metric | Constraint, ...]] = {
        "objectives": study.objectives,
        "constraints": study.constraints,
    }
    if not study.objectives:
        measured = {"metric": (study.metric,), **measured}
    for section, entries in measured.items():
        iqm = any(entry.aggregate == "iqm" for entry in entries)
        if iqm and seeds.first - seeds.tolerate < IQM_MIN_SEEDS:
            least = "seeds.per_config"
            if seeds.racing is not None:
                least = "seeds.racing.start"
            text = f"iqm needs {IQM_MIN_SEEDS} values per trial, but {least} is {seeds.first}"
            if seeds.tolerate:
                text += f" and {counted(seeds.tolerate, 'seed')} may diverge"
            yield f"{section}.aggregate", f"{text}; use mean or median"


def _racing_problems(study: Study, racing: Racing) -> Problems:
    seeds, early = study.seeds, study.early_terminate
    if seeds.first >= seeds.per_config:
        text = f"starts with {racing.start} seeds; allowed: below per_config ({seeds.per_config})"
        yield "seeds.racing", text
    elif seeds.tolerate >= seeds.first:
        yield "seeds.tolerate", f"is {seeds.tolerate}; allowed: below racing.start ({seeds.first})"
    if len(study.objectives) > 1:
        yield "seeds.racing", "supports only one objective; remove racing, or give one metric"
    elif study.metric.aggregate != "mean":
        text = f"compares means, but aggregate is {study.metric.aggregate}; use mean, or remove "
        yield "seeds.racing", f"{text}racing"
    if early is not None and (rule_row(early.type).finishes or early.evolves):
        text = "compares complete runs of fixed configurations, so it does not work with "
        yield "seeds.racing", f"{text}early_terminate.type: {early.type}; remove one of them"


def _training_weight(study: Study) -> Problems:
    """If training returns count, require a metric and an environment that support them."""
    metrics, path = study.objectives or (study.metric,), "metric.training_weight"
    if not any(metric.training_weight for metric in metrics):
        return
    if len(metrics) > 1:
        yield "objectives", "do not support training_weight; remove it"
    elif study.metric.name != "eval/return_mean":
        yield path, f"applies only to eval/return_mean, not to {study.metric.name}; remove it"
    elif study.more_envs or study.evaluation.env:
        text = "eval_env; remove one of them"
        if study.more_envs:
            text = "several environments; remove it, or use a single environment"
        yield path, f"does not work with {text}"
    elif study.evaluation.steps is not None:
        text = "does not work with evaluation.steps, because training episodes never end; "
        yield path, f"{text}remove training_weight"


def _method_problems(study: Study) -> Problems:
    method = method_row(study.search.method)
    if study.search.portfolio and not study.algorithm.is_ppo:
        text = f"has PPO configurations, but the study trains {study.algorithm.label}"
        yield "search.portfolio", f"{text}; remove it"
    if method.objectives == "one" and len(study.objectives) > 1:
        *first, last = [row.name for row in METHODS.values() if row.objectives == "several"]
        several = f"{', '.join(first)} or {last}"
        yield "search.method", f"{method.name} supports only one objective; use {several}"
    if not method.learns_from_results and study.search.warm_start is not None:
        text = (
            f"has no effect with {method.name}, which does not learn from results; remove "
            "it, or use tpe"
        )
        yield "search.warm_start", text


def _length_problems(study: Study) -> Problems:
    """Require rungs and evaluation points within a run, and one worker for a local executor."""
    early, every, length = study.early_terminate, study.evaluation.every, study.env_steps
    unit = study.algorithm.unit
    if early is not None and not early.evolves:
        path = "early_terminate.min"
        if early.min < 1 or not early.eta > 1:
            text = f"is {early.min} and eta is {early.eta:g}; allowed: min of at least 1 env step "
            yield path, f"{text}and eta above 1, such as min: 50k, eta: 4"
        elif early.min >= length:
            yield path, f"is {early.min}, but a run has {length} {unit}; set it below {length}"
        elif rule_row(early.type).even and early.min * _MOST_RUNGS < length:
            text = f"is {early.min}, which makes more than {_MOST_RUNGS} rungs in a run; raise it"
            yield path, text
    if isinstance(every, int) and every > length:
        text = f"is {every}, but a run has {length} {unit}; set it to at most {length}"
        yield "evaluation.every", text
    if isinstance(every, int) and every * _MOST_EVALUATIONS < length:
        text = f"is {every}, which makes more than {_MOST_EVALUATIONS} evaluations in a run"
        yield "evaluation.every", f"{text}; raise it"
    workers = study.executor.workers
    if study.executor.type == "local" and workers != 1:
        text = f"is {workers}, but executor.type: local runs in one process; use executor: "
        yield "executor.workers", f"{text}{{type: ray, workers: {workers}}}"


def _evolution_problems(study: Study) -> Problems:
    early, length = study.early_terminate, study.env_steps
    if early is not None and early.pause:
        yield from _pause_problems(study, early)
    if early is None or not early.evolves:
        return
    if early.every >= length or early.every * _MOST_RUNGS < length:
        text = f"is {early.every}, but a run has {length} {study.algorithm.unit}; "
        text += "allowed: below the run length, with at "
        yield "early_terminate.every", f"{text}most {_MOST_RUNGS} copies per run"
    if len(study.objectives) > 1:
        yield "objectives", f"are not supported by {early.type}; give one metric, or use asha"
    if study.constraints:
        yield "constraints", f"are not supported by {early.type}; remove them, or use asha"
    if study.budget.trials is None or study.budget.trials < 2:
        yield (
            "budget.trials",
            f"must be at least 2 with {early.type}: the trials are its population",
        )
    yield from _copy_problems(study, early.type, study.executor.workers > 1)


def _copy_problems(study: Study, rule: str, moves: bool) -> Problems:
    """Require that a population runs all trials at once, and copies states within one program."""
    lanes, trials, seeds = study.population.lanes, study.budget.trials, study.seeds.per_config
    for parameter in study.space.parameters:
        if is_static(study, parameter.name):
            text = f"is compiled into the program, but {rule} copies networks only within one"
            yield (
                f"space.{parameter.name}|space",
                f"{text} program; move it to `fixed`, or use asha",
            )
    if lanes is not None and trials is not None and lanes < trials * seeds:
        text = f"is {lanes}, but {rule} runs all {trials} trials x {seeds} seeds at the same time"
        yield "population.lanes", f"{text}; set lanes: {trials * seeds}, or auto"
    hosted = _hosted_environments(study)
    if moves and hosted:
        text = f"{hosted[0]} is stepped by the host, so {rule} cannot copy its state; use a "
        yield "env", f"{text}compiled environment, or a rule without copies"


def _hosted_environments(study: Study) -> list[str]:
    return [one.id for one in environments_of(study) if is_hosted(one.id)]


def _pause_problems(study: Study, early: EarlyTerminate) -> Problems:
    path = "early_terminate.pause"
    if "pause" in foreign_keys(early.type):
        yield path, f"is not a key of {early.type}; remove it"
    if early.pause < 0:
        yield path, f"is {early.pause}; allowed: an integer of at least 0"
    if early.audit:
        text = "does not work with pause; remove one of them"
        yield "early_terminate.audit", text
    away = study.executor.type != "local"
    if away and not study.algorithm.is_process:
        text = f"works only with executor.type: local (here: {study.executor.type})"
        yield path, f"{text}; remove one of them"
    elif away and study.resume is None:
        yield (
            path,
            "keeps paused processes on the cluster's CPUs and GPUs; set resume, or remove pause",
        )
    if hosted := _hosted_environments(study):
        text = f"does not work with {hosted[0]}, which is stepped by the host and cannot "
        yield path, f"{text}be saved; remove pause, or use a compiled environment"


def _budget_problems(study: Study) -> Problems:
    """Require a finite budget that leaves env steps for the search besides those for confirm."""
    budget = study.budget
    endless = budget.trials is None and budget.env_steps is None and budget.wall_seconds is None
    if endless and not method_row(study.search.method).ends:
        text = "has no limit, so the study would never end; give budget.trials, env_steps or wall"
        yield "budget", text
    if study.confirm is not None:
        yield from _confirm_problems(study, study.confirm)
    yield from _budget_of_steps(study)


def _confirm_problems(study: Study, confirm: Confirm) -> Problems:
    trials = study.budget.trials
    if trials is not None and confirm.choose and confirm.top_k > trials:
        most = counted(trials, "trial")
        yield "confirm.top_k", f"is {confirm.top_k}, but the budget is {most}"
    if not confirm.choose and (len(study.objectives) > 1 or study.constraints):
        text = "is 0, but several objectives or constraints need selection seeds; allowed: "
        yield "confirm.choose", f"{text}at least 1"
    yield from _interim_problems(confirm)
    last = max((trial for trial, _ in confirm.also), default=-1)
    if trials is not None and last >= trials:
        yield "confirm.also", f"has trial {last}, but the last trial is {trials - 1}"


def _interim_problems(confirm: Confirm) -> Problems:
    if confirm.interim is None:
        return
    if not (confirm.default and confirm.report):
        text = "needs test seeds of the default, but confirm.default is false or confirm.report "
        yield "confirm.interim", f"{text}is 0; remove interim"
    elif confirm.interim >= confirm.report:
        text = f"is {confirm.interim}; allowed: below confirm.report ({confirm.report})"
        yield "confirm.interim", text


def _budget_of_steps(study: Study) -> Problems:
    """Require enough env steps for the confirm stage and one trial.

    `check` and the study's start compare with runs in whole chunks. A custom training's chunks are
    not known here.
    """
    run, seeds = study.env_steps * study.spread, study.seeds.per_config
    if not budget_fault(study, run, seeds):
        return
    if study.algorithm.is_ppo or study.algorithm.is_process:
        with suppress(ConfigError):  # reported elsewhere
            run = full_run(study)
    yield "budget.env_steps", budget_fault(study, run, seeds)


def _default_problems(study: Study) -> Problems:
    """Require a legal default configuration, which is trial 0."""
    params = study.space.default()
    rule = study.space.forbidden(params)
    if rule is not None:
        words = ", ".join(f"{name}={params[name]!r}" for name in rule.names if name in params)
        text = f"{rule} forbids the default configuration ({words}); change a `default:` or the "
        yield "forbid|space", f"{text}rule"


def _ray_tune(study: Study) -> Problems:
    if study.search.driver == "lanes":
        return
    search, every = study.search, study.evaluation.every
    yield from _ray_class(study, "scheduler", search.scheduler, SCHEDULERS)
    yield from _ray_class(study, "searcher", search.searcher, SEARCHERS)
    scheduler, without = search.scheduler.rpartition(".")[2], "remove it, or search.driver"
    if "." in search.scheduler and scheduler in _UNFIT:
        yield "search.scheduler", f"{scheduler} {_UNFIT[scheduler]}"
    if study.early_terminate is not None:
        text = f"does not work with driver ray_tune, whose scheduler stops trials; {without}"
        yield "early_terminate", text
    if not isinstance(every, int):
        text = f"must be a number of {study.algorithm.unit}: the interval at which Ray Tune's "
        text += "scheduler "
        text += f"decides; use evaluation: {{every: {max(1, study.env_steps // 16)}}}"
        yield "evaluation.every|evaluation|search", text
    if study.budget.trials is None:
        yield "budget.trials|budget", "is required by driver ray_tune; set budget: {trials: 64}"
    if len(study.objectives) > 1:
        text = (
            "are not supported by Ray Tune's schedulers, which compare only one metric; give one"
        )
        yield "objectives", text
    if study.seeds.racing is not None:
        yield "seeds.racing|seeds", f"does not work with driver ray_tune; {without}"
    if scheduler in ("pbt", "PopulationBasedTraining"):
        yield from _ray_pbt(study)


def _ray_class(study: Study, key: str, given: str, known: Collection[str]) -> Problems:
    """Require a class from Ray Tune or `imports`, because a study file alone must not run code."""
    stems = [path.rpartition("/")[2].removesuffix(".py") for path in study.imports]
    module = given.rpartition(".")[0]
    if given not in known and not module:
        text = f"{given!r} is unknown;{suggestion(given, known)} Known: {', '.join(known)}"
        yield f"search.{key}", f"{text}, or the dotted name of a Ray Tune class"
    elif module and not f"{module}.".startswith("ray.tune.") and module not in stems:
        text = f"{given!r} is neither in ray.tune nor in a file listed in `imports`; "
        text += "for a custom class, use imports: [my_file.py] and my_file.MyClass"
        yield f"search.{key}", text


def _ray_pbt(study: Study) -> Problems:
    searcher = study.search.searcher
    if searcher != "random":
        text = f"is {searcher!r}, but pbt starts with random trials and changes them "
        yield "search.searcher", f"{text}itself; remove it"
    yield from _copy_problems(study, "pbt", True)


def _several_env_problems(study: Study) -> Problems:
    if not study.more_envs:
        return
    costs, one = " and ".join(COSTS), "only with a single environment; remove it"
    if study.metric.goal == "minimize":
        text = "minimize does not apply to scores over several environments, where 1 is the "
        text += "reference and higher is better for every metric; remove goal"
        place = "metric.goal"
        if study.objectives:
            place = "objectives"
        yield place, text
    if any(one.name not in COSTS for one in study.objectives[1:]):
        yield "objectives", f"over several environments can add only {costs} to the score"
    if any(one.metric not in COSTS for one in study.constraints):
        yield "constraints", f"over several environments can use only {costs}"
    unfit: list[tuple[str, object, str]] = [
        ("eval_env", study.evaluation.env, f"works {one}"),
        ("init", study.init, f"works {one}"),
        ("baselines", study.baselines, f"work {one}"),
        (
            "executor.type",
            study.executor.type != "local",
            "must be local: several environments run in one process",
        ),
        ("search.warm_start", study.search.warm_start, f"works {one}"),
        (
            "forbid",
            any(name.startswith("env.") for rule in study.space.forbid for name in rule.names),
            f"uses env.*, which works {one}",
        ),
    ]
    unfit += [
        (
            "loggers",
            logger.type in ("tensorboard", "wandb", "mlflow"),
            f"has {logger.type}, which supports only a single environment; use csv",
        )
        for logger in study.loggers
    ]
    for parameter in study.space.parameters:
        asks = any(condition.name.startswith("env.") for condition in parameter.when)
        text = f"has a condition on env.*, which works {one}"
        unfit.append((f"space.{parameter.name}", asks, text))
    yield from ((path, text) for path, given, text in unfit if given)


def _worker_problems(study: Study) -> Problems:
    """Allow workers and their time limit only for environments that are stepped on the host."""
    population, hosted = study.population, _hosted_environments(study)
    compiled = [one.id for one in environments_of(study) if one.id not in hosted]
    for key in ("workers", "step_timeout"):
        if compiled and getattr(population, key) is not None:
            text = f"applies only to gym: environments, but {compiled[0]} is compiled; remove it"
            yield f"population.{key}", text
    threaded = [one for one in hosted if is_simulated(one)]
    if threaded and population.workers:
        text = f"applies only to Python environments, but {threaded[0]} uses its own threads"
        yield "population.workers", f"{text}; remove it"


def _custom_training(study: Study) -> Problems:
    acts, judged = study.algorithm.acts, "has its own evaluate method"
    if acts:
        judged = "is evaluated in its training environment"
    for path, given, why in (
        ("env", study.more_envs, "trains in a single environment; give only one"),
        ("init", study.init, "creates states itself; load the file in its init method"),
        ("checkpoint.parts", study.checkpoint.parts, "saves whole states, not parts"),
        ("eval_env", study.evaluation.env, judged),
        (
            "evaluation.steps",
            study.evaluation.steps and not acts,
            "evaluates whole episodes; give episodes",
        ),
    ):
        if given and not study.algorithm.is_ppo:
            yield path, f"does not apply to {study.algorithm.label}, which {why}"


def _command_problems(study: Study) -> Problems:
    """Reject settings that belong to a command's script: environment, networks, evaluation."""
    if not study.algorithm.is_process:
        if study.executor.type == "slurm":
            yield "executor.type", "is slurm, which applies only to a study with command; use ray"
        for path, given in (
            ("resume", study.resume),
            ("processes", study.processes),
            ("metrics", study.metrics),
        ):
            if given is not None:
                yield path, "applies only to a study with command; remove it"
        return
    early, given, usual = study.early_terminate, study.evaluation, Evaluation()
    of_lanes = "is not a key of a study with command"
    for path, wrong, text in (
        ("population", study.population != PopulationSpec(), f"{of_lanes}; see processes"),
        ("baselines", study.baselines, f"{of_lanes}; remove it"),
        ("init", study.init, f"{of_lanes}; pass a checkpoint to the script"),
        ("eval_env", given.env, f"{of_lanes}, because the script evaluates; remove it"),
        (
            "evaluation",
            replace(given, env={}, every=usual.every) != usual,
            "accepts only `every` in a study with command, because the script evaluates",
        ),
        ("checkpoint.parts", study.checkpoint.parts, f"{of_lanes}; remove it"),
        (
            "search.driver",
            study.search.driver != "lanes",
            "must be `lanes` in a study that has `command`",
        ),
        ("schedule_env_steps", study.schedule_env_steps, f"{of_lanes}; remove it"),
        ("log_every", study.log_every, f"{of_lanes}; remove it"),
        (
            "early_terminate.type",
            early is not None and early.evolves,
            "copies states between trials, which does not work with processes; use asha",
        ),
    ):
        if wrong:
            yield path, text
    yield from _cluster_problems(study)


def _cluster_problems(study: Study) -> Problems:
    """Check the settings for the processes of a command on a cluster."""
    settings, executor = study.processes or Processes(), study.executor
    text = "does not apply to a study with command;"
    if executor.type == "ray" and executor.workers != 1:
        yield "executor.workers", f"{text} use processes: {{at_once: {executor.workers}}}"
    if executor.type == "ray" and executor.cpus is not None:
        yield "executor.cpus", f"{text} use processes: {{threads: {executor.cpus}}}"
    if executor.type != "slurm":
        return
    if settings.at_once is None:
        text = "is auto, but SLURM has no fixed number of slots; give the number of simultaneous "
        yield "processes.at_once|executor.type", f"{text}jobs, such as processes: {{at_once: 8}}"
    if settings.gpus and settings.gpus != int(settings.gpus):
        text = f"is {settings.gpus:g}, but SLURM jobs get whole GPUs; use gpus: 1, or remove"
        yield "processes.gpus", f"{text} gpus and use executor: {{options: {{gres: 'shard:1'}}}}"


def environment_faults(study: Study) -> Problems:
    """Yield mistakes in the environments of all buckets; reads the files of optical networks."""
    for one in each_alone(study):
        if one.env.id in ENVIRONMENTS and ENVIRONMENTS[one.env.id].source == "optical":
            yield from optical_faults(one)
        elif is_hosted(one.env.id) and not one.imports:  # imports may register it
            for kind in env_kinds(one)[:_MOST_KINDS]:
                yield from _gymnasium_faults(one, kind)


def _gymnasium_faults(study: Study, values: Mapping[str, Any]) -> Problems:
    from ..core.host.batch import code_of  # imports numpy
    from ..environments.hosted import probe

    found: list[Any] = []
    judged = {**values, **held_out_keys(study.env.id, study.evaluation.env)}
    for path, given in (("env", values), ("eval_env|env", judged)):
        try:
            found.append(code_of(study.env.id, probe(study.env.id, given)))
        except (ConfigError, MissingExtraError) as error:
            yield path, str(error)
            return
    if found[0] != found[1]:
        text = "eval_env has different observations or actions than the training environment; "
        yield "eval_env", f"{text}remove the keys that change them"


def knob_contradictions(study: Study) -> Problems:
    """Yield each contradiction between two hyperparameter values that can occur together."""
    reported: set[str] = set()
    for names, params in _corner_configurations(study):
        try:
            study.complete(params, own_words=True)
        except ConfigError as error:
            text = str(error)
            if text not in reported:
                reported.add(text)
                words = names or {word.strip("`.,:;()") for word in text.split()}
                places = [f"space.{name}" for name in study.space.names if name in words]
                places += [f"fixed.{name}" for name in study.fixed if name in words]
                yield "|".join([*places, "space", "fixed"]), text


def _corner_configurations(study: Study) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield (names, configuration): the default, then variants with one or two extreme values."""
    space = study.space
    yield (), space.default()
    own = [one for one in space.parameters if not one.name.startswith("env.")]
    ends = [(one, value) for one in own for value in one.distribution.ends()[:_MOST_ENDS]]
    pairs = ((a, b) for a, b in itertools.combinations(ends, 2) if a[0].name != b[0].name)
    each = itertools.chain(((end,) for end in ends), pairs)
    for chosen in itertools.islice(each, _MOST_PAIRS):
        wanted = {parameter.name: value for parameter, value in chosen}
        params = _activate_values(study, wanted)
        if params is not None:
            yield tuple(wanted), params


def _activate_values(study: Study, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """Return the default, changed so that all wanted values are active; None if impossible."""
    space = study.space
    forced = dict(wanted)
    for parameter in space.parameters:
        if parameter.name in wanted:
            for condition in parameter.when:
                forced.setdefault(condition.name, condition.values[0])
    params = space.resolve(lambda _, parameter: forced.get(parameter.name, parameter.default))
    active = all(name in params and params[name] == value for name, value in wanted.items())
    if not active or not space.contains(params):
        return None
    return params
