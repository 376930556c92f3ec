"""The rules that a study must keep across its sections.

`contradictions` lists every broken rule as (path, message). The loader adds the line of the path,
the search raises the messages. A path is `section.key`; after `|` follow places to blame instead.
`environment_faults` and `knob_contradictions` cost more, so only the loader asks for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from ..environments.registry import DISTRIBUTIONS
from ..environments.table import ENVIRONMENTS
from ..environments.via_gymnasium import is_gymnasium
from ..errors import ConfigError, MissingExtraError, counted, suggestion
from ..knobs import KNOBS
from ..store.statistics import IQM_MIN_SEEDS
from .programs import env_kinds, is_static
from .search_methods import METHODS, method_row
from .several_environments import each_alone, environments_of
from .spec import EarlyTerminate, Study
from .stopping_rules import foreign_keys, rule_row
from .study_keys import COSTS, DRIVEN_KEYS, SEARCHER_KEYS
from .yaml_io import Node

Problems = Iterator[tuple[str, str]]

SCHEDULERS = ("asha", "pbt")
SEARCHERS = ("random", "optuna")
_COPYING = ("pbt", "PopulationBasedTraining")
_UNFIT = {
    "PB2": "models knobs, which Ray Tune does not see here; leave out search.driver and type "
    "early_terminate: {type: pb2}",
    "HyperBandForBOHB": "needs its BOHB searcher; take ray.tune.schedulers.HyperBandScheduler",
    "PopulationBasedTrainingReplay": "needs a file of Ray's; replay the trial instead",
    "ResourceChangingScheduler": "moves CPUs between processes, but all lanes share one program; "
    "take its base scheduler",
}
"""Schedulers of Ray's that cannot decide over lanes, and why."""
_MOST_RUNGS = 1_000
_MOST_EVALUATIONS = 10_000
_MOST_KINDS = 16
_MOST_PAIRS = 2000
_MOST_ENDS = 8


def contradictions(study: Study) -> list[tuple[str, str]]:
    """Return (path, message) of every rule across sections that a study breaks."""
    found = [
        _seeds,
        _training_weight,
        _method,
        _lengths,
        _early,
        _budget,
        _default,
        _distributions,
        _executor,
    ]
    found += [_ray_tune, _several, _workers, _custom_training]
    return [problem for rule in found for problem in rule(study)]


def unused_keys(root: Node, study: Study) -> Problems:
    """Yield the given keys that belong to another rule, executor or driver than the study's."""
    driver = study.search.driver
    others: list[tuple[str, tuple[str, ...], str]] = []
    if study.early_terminate is not None:
        rule = study.early_terminate.type
        others.append(("early_terminate", foreign_keys(rule), f"is not a key of {rule};"))
    if study.executor.type == "local":
        text = "needs executor: {type: ray}; type that, or"
        others.append(("executor", ("address", "cpus"), text))
    if driver == "lanes":
        text = "needs search: {driver: ray_tune}; type that, or"
        others.append(("search", DRIVEN_KEYS, text))
    else:
        text = f"does not work with driver {driver}, where search.searcher proposes;"
        others.append(("search", SEARCHER_KEYS, text))
    for section, keys, text in others:
        node = root.value.get(section)
        given = node.value if node is not None and node.is_map else ()
        for key in keys:
            if key in given:
                yield f"{section}.{key}", f"{section}.{key} {text} leave it out"
    if "over_environments" in root.value and not study.more_envs:
        text = "over_environments is for several environments, but env is one; leave it out"
        yield "over_environments", text


# ---------------------------------------------------------------------- one function per topic


def _seeds(study: Study) -> Problems:
    """Enough seeds for the aggregate and for racing."""
    seeds, early = study.seeds, study.early_terminate
    measured = {
        "objectives" if study.objectives else "metric": (study.metric, *study.objectives),
        "constraints": study.constraints,
    }
    for section, entries in measured.items():
        iqm = any(entry.aggregate == "iqm" for entry in entries)
        if iqm and seeds.first - seeds.tolerate < IQM_MIN_SEEDS:
            least = "seeds.per_config" if seeds.racing is None else "seeds.racing.start"
            lost = f" and {seeds.tolerate} of them may diverge" if seeds.tolerate else ""
            text = f"aggregate iqm needs {IQM_MIN_SEEDS} values of every trial, but {least} "
            yield f"{section}.aggregate", f"{text}is {seeds.first}{lost}; take mean or median"
    below = f"allowed: below per_config ({seeds.per_config})"
    if seeds.tolerate >= seeds.per_config:
        yield "seeds.tolerate", f"seeds.tolerate is {seeds.tolerate}; {below}"
    if seeds.racing is None:
        return
    if seeds.first >= seeds.per_config:
        starts = f"seeds.racing starts with {counted(seeds.first, 'seed')}"
        yield "seeds.racing", f"{starts}; {below}"
    elif seeds.tolerate >= seeds.first:
        text = f"seeds.tolerate is {seeds.tolerate}; allowed: below racing.start ({seeds.first})"
        yield "seeds.tolerate", text
    if len(study.objectives) > 1:
        text = "seeds.racing compares one objective; leave racing out, or give one metric"
        yield "seeds.racing", text
    elif study.metric.aggregate != "mean":
        text = f"seeds.racing compares means, but aggregate is {study.metric.aggregate}"
        yield "seeds.racing", f"{text}; take mean, or leave racing out"
    if early is not None and (rule_row(early.type).finishes or early.evolves):
        text = f"seeds.racing adds seeds to whole runs, which {early.type} "
        yield "seeds.racing", f"{text}does not have; leave one of them out"


def _training_weight(study: Study) -> Problems:
    """A training return is of one environment, and stands beside an evaluated return alone."""
    metrics = study.objectives or (study.metric,)
    if not any(metric.training_weight for metric in metrics):
        return
    if len(metrics) > 1:
        yield "objectives", "training_weight is for studies with one metric; leave it out"
    elif study.metric.name != "eval/return_mean":
        text = f"training_weight is for metric eval/return_mean, not {study.metric.name}"
        yield "metric.training_weight", f"{text}; leave it out"
    elif study.more_envs or study.evaluation.env:
        where = "several environments" if study.more_envs else "eval_env"
        text = f"training_weight does not work with {where}; leave one of them out"
        yield "metric.training_weight", text


def _method(study: Study) -> Problems:
    method = method_row(study.search.method)
    if method.objectives == "one" and len(study.objectives) > 1:
        *first, last = [row.name for row in METHODS.values() if row.objectives == "several"]
        several = f"{', '.join(first)} or {last}"
        yield "search.method", f"search.method {method.name} takes one objective; take {several}"
    if not method.learns and study.search.warm_start is not None:
        text = f"search.warm_start is for methods that learn, and {method.name} "
        yield "search.warm_start", f"{text}does not; leave it out, or take tpe"


def _lengths(study: Study) -> Problems:
    """Rungs and evaluation points are inside a run."""
    early, every, length = study.early_terminate, study.evaluation.every, study.env_steps
    if early is not None and not early.evolves:
        if early.min < 1 or not early.eta > 1:
            text = (
                f"early_terminate: min is {early.min} and eta {early.eta:g}; allowed: min of at "
                "least 1 env step and eta above 1, such as min: 50k, eta: 4"
            )
            yield "early_terminate.min", text
        elif early.min >= length:
            text = f"early_terminate.min is {early.min}, but a run has {length} "
            yield "early_terminate.min", f"{text}env steps; allowed: below that"
        elif rule_row(early.type).even and early.min * _MOST_RUNGS < length:
            text = f"early_terminate.min is {early.min}: more than {_MOST_RUNGS} rungs in a run"
            yield "early_terminate.min", f"{text}; raise it"
    if isinstance(every, int) and every > length:
        text = f"evaluation.every is {every}, but a run has {length} env steps"
        yield "evaluation.every", text
    if isinstance(every, int) and every * _MOST_EVALUATIONS < length:
        text = f"evaluation.every is {every}: more than {_MOST_EVALUATIONS} evaluations in a run"
        yield "evaluation.every", text


def _early(study: Study) -> Problems:
    early = study.early_terminate
    if early is not None and early.pause:
        yield from _pause(study, early)
    if early is None or not early.evolves:
        return
    rule, length = early.type, study.env_steps
    if early.every >= length or early.every * _MOST_RUNGS < length:
        text = (
            f"early_terminate.every is {early.every}, but a run has {length} env steps; allowed: "
            f"below that, and at most {_MOST_RUNGS} times in a run"
        )
        yield "early_terminate.every", text
    for parameter in study.space.parameters:
        if is_static(study, parameter.name):
            yield f"space.{parameter.name}", _untraced(parameter.name, rule)
    if len(study.objectives) > 1:
        yield "objectives", f"{rule} copies by one objective; give one metric, or take asha"
    if study.constraints:
        text = f"{rule} copies by one objective and without constraints; "
        yield "constraints", f"{text}leave them out, or take asha"
    if study.budget.trials is None or study.budget.trials < 2:
        text = f"{rule} needs budget.trials of at least 2: they are its population"
        yield "budget.trials", text
    else:
        yield from _lane_for_each(study, rule)
    if study.executor.type != "local" and study.executor.workers > 1:
        yield from _movable(study, f"{rule} over several workers")


def _pause(study: Study, early: EarlyTerminate) -> Problems:
    path = "early_terminate.pause"
    if "pause" in foreign_keys(early.type):
        yield path, f"{path} is not a key of {early.type}; leave it out"
    if early.pause < 0:
        yield path, f"{path} is {early.pause}; allowed: a whole number of at least 0"
    if early.audit:
        text = "early_terminate.audit does not work with pause, where stopped "
        yield "early_terminate.audit", f"{text}trials wait to resume; leave one of them out"
    if study.executor.type != "local":
        text = f"{path} keeps lanes of this process, but executor.type is {study.executor.type}"
        yield path, f"{text}; leave one of them out"
    hosted = [one.id for one in environments_of(study) if is_gymnasium(one.id)]
    if hosted:
        text = f"{path} keeps lanes with their environments, but the host steps {hosted[0]} "
        yield path, f"{text}and cannot keep it; leave pause out, or take a compiled environment"


def _untraced(name: str, rule: str) -> str:
    return (
        f"{name} is part of the compiled program, and {rule} copies networks between trials of "
        "one program; fix it, or take asha"
    )


def _lane_for_each(study: Study, rule: str) -> Problems:
    lanes, trials, seeds = study.population.lanes, study.budget.trials, study.seeds.per_config
    if lanes is not None and lanes < (trials or 0) * seeds:
        text = (
            f"population.lanes is {lanes}, but {rule} runs all {trials} trials x {seeds} seeds at "
            f"the same time; type lanes: {(trials or 0) * seeds}, or auto"
        )
        yield "population.lanes", text


def _movable(study: Study, what: str) -> Problems:
    if any(is_gymnasium(one.id) for one in environments_of(study)):
        text = f"{what} moves lanes, but the host steps {study.env.id} and cannot "
        yield "env", f"{text}move it; take a compiled environment, or let no trial copy another"


def _budget(study: Study) -> Problems:
    """Something ends the study, and confirm leaves room for a search."""
    budget, confirm, trials = study.budget, study.confirm, study.budget.trials
    endless = trials is None and budget.env_steps is None and budget.wall_seconds is None
    if endless and not method_row(study.search.method).ends:
        yield "budget", "nothing ends the study; give budget.trials, env_steps or wall"
    reserved, run = 0, study.env_steps * study.spread
    if confirm is not None:
        reserved = confirm.runs(len(study.objectives)) * run
        if trials is not None and confirm.choose and confirm.top_k > trials:
            most = counted(trials, "trial")
            yield "confirm.top_k", f"confirm.top_k is {confirm.top_k}, but the budget is {most}"
        if not confirm.choose and (len(study.objectives) > 1 or study.constraints):
            text = "several objectives and constraints need selection seeds"
            yield "confirm.choose", f"confirm.choose is 0, but {text}; allowed: at least 1"
        if confirm.interim is not None and not (confirm.default and confirm.report):
            text = "confirm.interim compares with the default on test seeds, which do not run"
            yield "confirm.interim", f"{text}; leave it out"
        elif confirm.interim is not None and confirm.interim >= confirm.report:
            text = f"confirm.interim is {confirm.interim}; allowed: below confirm.report"
            yield "confirm.interim", f"{text} ({confirm.report})"
        last = max((trial for trial, _ in confirm.also), default=-1)
        if trials is not None and last >= trials:
            text = f"confirm.also has trial {last}, but there are {trials} trials"
            yield "confirm.also", text
    one = study.seeds.per_config * run
    if budget.env_steps is not None and budget.env_steps < reserved + one:
        words = f" after the {reserved} that confirm needs" if reserved else ""
        text = f"budget.env_steps is {budget.env_steps}, not enough for one trial of {one} "
        yield "budget.env_steps", f"{text}env steps{words}; allowed: at least {reserved + one}"


def _default(study: Study) -> Problems:
    """The default configuration, which is trial 0, must be legal."""
    params = study.space.default()
    rule = study.space.forbidden(params)
    if rule is not None:
        words = ", ".join(f"{name}={params[name]!r}" for name in rule.names if name in params)
        text = f"the default configuration ({words}) is forbidden by {rule}; "
        yield "forbid|space", f"{text}change a `default:` or the rule"


def _distributions(study: Study) -> Problems:
    """Every action distribution fits the environment, if a table knows it."""
    name = "distribution"
    values = [("fixed", study.fixed[name])] if name in study.fixed else []
    values += [
        ("space", value)
        for parameter in study.space.parameters
        if parameter.name == name
        for value in parameter.distribution.ends()
    ]
    values += [("enqueue", given[name]) for given in study.enqueue if name in given]
    for one in environments_of(study):
        known = ENVIRONMENTS.get(one.id)
        if known is None or known.actions not in DISTRIBUTIONS:
            continue
        fitting = DISTRIBUTIONS[known.actions]
        for section, value in values:
            own = value not in KNOBS[name].choices and study.imports
            if value is not None and value not in fitting and not own:
                text = f"distribution {value!r} does not fit {known.id}, whose actions are "
                yield f"{section}.{name}", f"{text}{known.actions}; allowed: {', '.join(fitting)}"


def _executor(study: Study) -> Problems:
    workers = study.executor.workers
    if study.executor.type == "local" and workers != 1:
        text = f"executor.workers is {workers}, but executor.type local is one process; "
        yield "executor.workers", f"{text}type executor: {{type: ray, workers: {workers}}}"


def _ray_tune(study: Study) -> Problems:
    if study.search.driver == "lanes":
        return
    search, every, length = study.search, study.evaluation.every, study.env_steps
    scheduler = search.scheduler.rpartition(".")[2]
    yield from _ray_tune_names(study)
    if "." in search.scheduler and scheduler in _UNFIT:
        yield "search.scheduler", f"search.scheduler {scheduler} {_UNFIT[scheduler]}"
    if study.early_terminate is not None:
        text = "early_terminate does not work with driver ray_tune, whose scheduler "
        yield "early_terminate", f"{text}stops trials; leave it out, or leave out search.driver"
    if not isinstance(every, int):
        text = (
            "with driver ray_tune evaluation.every is a number of env steps, after which its "
            f"scheduler decides; type evaluation: {{every: {max(1, length // 16)}}}"
        )
        yield "evaluation|search", text
    if study.budget.trials is None:
        yield "budget", "driver ray_tune needs budget.trials; type budget: {trials: 64}"
    if len(study.objectives) > 1:
        text = "Ray Tune's schedulers compare one metric; give metric instead of objectives"
        yield "objectives", text
    if study.seeds.racing is not None:
        text = "seeds.racing does not work with driver ray_tune; leave it "
        yield "seeds", f"{text}out, or leave out search.driver"
    if scheduler in _COPYING:
        if search.searcher != "random":
            text = f"search.searcher is {search.searcher!r}, but pbt starts with "
            yield "search.searcher", f"{text}random trials and changes them itself; leave it out"
        for parameter in study.space.parameters:
            if (
                not parameter.name.startswith("env.")
                and not study.algorithm.knobs[parameter.name].traced
            ):
                yield "space", _untraced(parameter.name, "pbt")
        yield from _lane_for_each(study, "pbt")
        yield from _movable(study, "pbt")


def _ray_tune_names(study: Study) -> Problems:
    """A study file alone must not run just any code: classes are Ray Tune's or of `imports`."""
    search = study.search
    stems = [path.rpartition("/")[2].removesuffix(".py") for path in study.imports]
    for key, given, known in (
        ("scheduler", search.scheduler, SCHEDULERS),
        ("searcher", search.searcher, SEARCHERS),
    ):
        module = given.rpartition(".")[0]
        if given not in known and not module:
            text = (
                f"search: unknown {key} {given!r};{suggestion(given, known)} Known: "
                f"{', '.join(known)}, or a class of Ray Tune by its dotted name"
            )
            yield f"search.{key}", text
        elif module and not f"{module}.".startswith("ray.tune.") and module not in stems:
            text = (
                f"search.{key} {given!r} is neither a class of ray.tune nor of a file that "
                "`imports` names; for a custom class type imports: [my_file.py] and "
                "my_file.MyClass"
            )
            yield f"search.{key}", text


def _several(study: Study) -> Problems:
    if not study.more_envs:
        return
    costs = " and ".join(COSTS)
    if study.metric.goal == "minimize":
        text = (
            "scores over several environments are maximised: 1 is the reference, whichever way "
            "the metric goes; leave goal out"
        )
        yield "objectives" if study.objectives else "metric.goal", text
    if any(one.name not in COSTS for one in study.objectives[1:]):
        text = f"after the score over several environments only {costs} can be objectives"
        yield "objectives", text
    if any(one.metric not in COSTS for one in study.constraints):
        yield "constraints", f"over several environments only {costs} can be constraints"
    for key, given, words in (
        ("eval_env", study.evaluation.env, "eval_env changes keys"),
        ("init", study.init, "a policy that lanes start from is one"),
        ("baselines", study.baselines, "baselines are heuristics"),
    ):
        if given:
            yield key, f"{words} of one environment; env lists {study.spread}"
    if study.executor.type != "local":
        text = "several environments run in one process; take executor: {type: local}"
        yield "executor.type", text
    if study.search.warm_start is not None:
        text = "a warm start takes trials of one environment; leave it out"
        yield "search.warm_start", text
    for logger in study.loggers:
        if logger.type in ("tensorboard", "wandb"):
            text = f"{logger.type} is written for one environment; take csv"
            yield "loggers", text
    for parameter in study.space.parameters:
        if any(condition.name.startswith("env.") for condition in parameter.when):
            text = f"{parameter.name}: conditions on env.* are for one environment; leave it out"
            yield f"space.{parameter.name}", text
    if any(name.startswith("env.") for rule in study.space.forbid for name in rule.names):
        yield "forbid", "rules that name env.* are for one environment; leave them out"


def _workers(study: Study) -> Problems:
    """Workers and their time limit are for environments that the host steps."""
    population = study.population
    hosted = [one for one in environments_of(study) if is_gymnasium(one.id)]
    compiled = [one for one in environments_of(study) if not is_gymnasium(one.id)]
    for key in ("workers", "step_timeout") if compiled else ():
        given = getattr(population, key)
        if given is not None:
            text = f"population.{key} is for gym: environments, but {compiled[0].id} "
            yield f"population.{key}", f"{text}is compiled; leave it out"
    if hosted and population.step_timeout and population.workers == 0:
        text = "population.step_timeout needs processes that can be ended, but population.workers "
        yield "population.step_timeout", f"{text}is 0; leave workers out, or type step_timeout: 0"


def _custom_training(study: Study) -> Problems:
    """What custom trainings cannot do."""
    if study.algorithm.is_ppo:
        return
    label = study.algorithm.label
    for key, given, why in (
        ("env", study.more_envs, "trains in one environment; give one"),
        ("init", study.init, "makes states itself; read a file in init"),
        ("checkpoint.parts", study.checkpoint.parts, "keeps whole states, not parts"),
        ("eval_env", study.evaluation.env, "has its evaluate instead"),
        (
            "evaluation.steps",
            study.evaluation.steps and not study.algorithm.acts,
            "evaluates whole episodes; give episodes",
        ),
    ):
        if given:
            yield key, f"{key}: {label} {why}"


# ---------------------------------------------------------------------- the expensive ones


def environment_faults(study: Study) -> Problems:
    """Yield the mistakes in the environments of all buckets; optical files are read."""
    for one in each_alone(study):
        if one.env.id in ENVIRONMENTS and ENVIRONMENTS[one.env.id].source == "optical":
            from .optical_section import optical_faults  # numpy and file readers, 0.1 s

            yield from optical_faults(one)
        elif is_gymnasium(one.env.id) and not one.imports:  # which may register it
            for kind in env_kinds(one)[:_MOST_KINDS]:
                yield from _gymnasium_faults(one, kind)


def _gymnasium_faults(study: Study, values: Mapping[str, Any]) -> Problems:
    from ..core.host.shared_arrays import code_of  # numpy
    from ..environments.via_gymnasium import make

    found: list[Any] = []
    for path, given in (("env", values), ("eval_env|env", {**values, **study.evaluation.env})):
        try:
            env = make(study.env.id, given)
            try:
                found.append(code_of(study.env.id, env))
            finally:
                env.close()
        except (ConfigError, MissingExtraError) as error:
            yield path, str(error)
            return
    if found[0] != found[1]:
        text = "eval_env has different observations or actions than the "
        yield "eval_env", f"{text}environment that trains; leave out the keys that change them"


def knob_contradictions(study: Study) -> Problems:
    """Yield each contradiction between two values of knobs that can come together."""
    seen: set[str] = set()
    for names, params in _corners(study):
        try:
            study.complete(params, own_words=True)
        except ConfigError as error:
            text = str(error)
            if text not in seen:
                seen.add(text)
                words = names or {word.strip("`.,:;()") for word in text.split()}
                places = [f"space.{name}" for name in study.space.names if name in words]
                places += [f"fixed.{name}" for name in study.fixed if name in words]
                yield "|".join([*places, "space", "fixed"]), text


def _corners(study: Study) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the default, then every pair of extreme values on top of it: (names, configuration).

    A contradiction that needs three values passes here; the draws of `hpo check` may find it.
    """
    space = study.space
    yield (), space.default()
    ends = [
        (parameter, value)
        for parameter in space.parameters
        if not parameter.name.startswith("env.")
        for value in parameter.distribution.ends()[:_MOST_ENDS]
    ]
    pairs = itertools.chain(
        ((end,) for end in ends),
        (pair for pair in itertools.combinations(ends, 2) if pair[0][0].name != pair[1][0].name),
    )
    for chosen in itertools.islice(pairs, _MOST_PAIRS):
        wanted = {parameter.name: value for parameter, value in chosen}
        params = _with(study, wanted)
        if params is not None:
            yield tuple(wanted), params


def _with(study: Study, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """Return the default changed so that all wanted values are active, or None if impossible."""
    space = study.space
    forced = dict(wanted)
    for parameter in space.parameters:
        if parameter.name in wanted:
            for condition in parameter.when:
                forced.setdefault(condition.name, condition.values[0])
    params = space.resolve(lambda _, parameter: forced.get(parameter.name, parameter.default))
    active = all(name in params and params[name] == value for name, value in wanted.items())
    return params if active and space.contains(params) else None
