"""Checks what no section can see alone: whether the parts of a study fit together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..environments.registry import DISTRIBUTIONS, find
from ..environments.table import ENVIRONMENTS, EnvEntry
from ..environments.via_gymnasium import is_gymnasium
from ..errors import ConfigError, MissingExtraError, counted, suggestion
from ..knobs import KNOBS
from ..spaces.space import Parameter
from .programs import buckets_of
from .search_methods import METHODS, method_row
from .several_environments import environments_of
from .spec import EarlyTerminate, Study
from .stopping_rules import foreign_keys, rule_row
from .study_keys import DRIVEN_KEYS, SEARCHER_KEYS
from .yaml_io import Node, Notes, place_of

SCHEDULERS = ("asha", "pbt")
SEARCHERS = ("random", "optuna")
_CLUSTER_KEYS = ("address", "cpus")
_COPYING = ("pbt", "PopulationBasedTraining")
_UNFIT = {
    "PB2": "models knobs, which Ray Tune does not see here; leave out search.driver and type "
    "early_terminate: {type: pb2}",
    "HyperBandForBOHB": "works with a searcher of its own alone; take "
    "ray.tune.schedulers.HyperBandScheduler",
    "PopulationBasedTrainingReplay": "reads a file of Ray's; replay the trial instead",
    "ResourceChangingScheduler": "moves CPUs between processes, but all lanes are one program; "
    "take the scheduler that it is given",
}
"""Schedulers of Ray's that cannot decide over lanes, and why."""


def check_executor(notes: Notes, root: Node, study: Study) -> None:
    """Note what the executor cannot do."""
    executor, early = study.executor, study.early_terminate
    section = root.value.get("executor")
    if executor.type == "local":
        if executor.workers != 1:
            text = f"executor.workers is {executor.workers}, but executor.type local is this "
            notes.add(f"{text}process alone; type executor: {{type: ray, workers: "
                      f"{executor.workers}}}", section, "workers")  # fmt: skip
        for key in _given(section, _CLUSTER_KEYS):
            text = f"executor.{key} is of a cluster; leave it out, or type executor: {{type: ray}}"
            notes.add(text, section, key)
    elif early is not None and early.pause:
        text = "early_terminate.pause keeps lanes of this process, but executor.type is "
        text += f"{executor.type}; leave pause out, or leave out executor"
        notes.add(text, root.value.get("early_terminate"), "pause")
    elif early is not None and early.evolves and executor.workers > 1:
        _check_movable(notes, root, study, f"{early.type} over several workers")


def check_driver(notes: Notes, root: Node, study: Study) -> None:
    """Note what does not go with whoever decides."""
    section = root.value.get("search")
    if study.search.driver == "lanes":
        for key in _given(section, DRIVEN_KEYS):
            text = f"search.{key} is of Ray Tune; leave it out, or type search: {{driver: ray_tune"
            notes.add(text + "}", section, key)
        return
    for key in _given(section, SEARCHER_KEYS):
        text = f"search.{key} is not of driver ray_tune, where search.searcher says who proposes"
        notes.add(f"{text}; leave it out", section, key)
    _check_names(notes, section, study)
    for key, text in _excluded(study):
        notes.add(text, root, key if key in root.value else "search")
    if _class_of(study) in _COPYING:
        _check_pbt(notes, root, study)


def _class_of(study: Study) -> str:
    """Return the scheduler's name, without the modules before it."""
    return study.search.scheduler.rpartition(".")[2]


def _given(section: Node | None, keys: tuple[str, ...]) -> list[str]:
    return [key for key in keys if section is not None and section.is_map and key in section.value]


def _check_names(notes: Notes, section: Node | None, study: Study) -> None:
    """Note a scheduler or searcher that has no dots and is none of ours."""
    search = study.search
    for key, given, known in (
        ("scheduler", search.scheduler, SCHEDULERS),
        ("searcher", search.searcher, SEARCHERS),
    ):
        if given not in known and "." not in given:
            text = f"search: unknown {key} {given!r};{suggestion(given, known)} Known: "
            text += f"{', '.join(known)}, or a class of Ray Tune by its dotted name"
            notes.add(text, section, key)
        elif given not in known and not _may_be_imported(given, study):
            text = f"search.{key} {given!r} is neither a class of ray.tune nor of a file that "
            text += "`imports` names; for one of your own type imports: [my_file.py] and "
            notes.add(f"{text}my_file.MyClass", section, key)
    if "." in search.scheduler and (why := _UNFIT.get(_class_of(study))):
        notes.add(f"search.scheduler {_class_of(study)} {why}", section, "scheduler")


def _may_be_imported(name: str, study: Study) -> bool:
    """Return whether a study file may name this class: it alone must not run just any code."""
    module = name.rpartition(".")[0]
    stems = [path.rpartition("/")[2].removesuffix(".py") for path in study.imports]
    return f"{module}.".startswith("ray.tune.") or module in stems


def _excluded(study: Study) -> list[tuple[str, str]]:
    """Return the sections that are at odds with Ray Tune, and why."""
    found: list[tuple[str, str]] = []
    every, length = study.evaluation.every, study.env_steps
    if study.early_terminate is not None:
        text = "Ray Tune's scheduler stops trials here, so there is no early_terminate; leave it "
        found.append(("early_terminate", f"{text}out, or leave out search.driver"))
    if not isinstance(every, int):
        text = "with driver ray_tune evaluation.every is a number of env steps, after which its "
        text += f"scheduler decides; type evaluation: {{every: {max(1, length // 16)}}}"
        found.append(("evaluation", text))
    if study.budget.trials is None:
        text = "driver ray_tune needs budget.trials; type budget: {trials: 64}"
        found.append(("budget", text))
    if len(study.objectives) > 1:
        text = "Ray Tune's schedulers compare one metric; give metric instead of objectives"
        found.append(("objectives", text))
    if study.seeds.racing is not None:
        text = "seeds.racing is of our own search; leave it out, or leave out search.driver"
        found.append(("seeds", text))
    return found


def _check_pbt(notes: Notes, root: Node, study: Study) -> None:
    section = root.value.get("search")
    if study.search.searcher != "random":
        text = f"search.searcher is {study.search.searcher!r}, but pbt begins with random trials "
        notes.add(f"{text}and changes them itself; leave it out", section, "searcher")
    for parameter in study.space.parameters:
        name = parameter.name
        if not name.startswith("env.") and not KNOBS[name].traced:
            text = f"{name} is part of the compiled program, and pbt copies networks between "
            notes.add(f"{text}trials of one program; fix it, or take asha", root, "space")
    lanes, trials = study.population.lanes, study.budget.trials or 0
    needed = trials * study.seeds.per_config
    if lanes is not None and lanes < needed:
        text = f"population.lanes is {lanes}, but pbt runs all {trials} trials x "
        text += f"{study.seeds.per_config} seeds side by side; type lanes: {needed}, or auto"
        notes.add(text, root.value.get("population"), "lanes")
    _check_movable(notes, root, study, "pbt")


def _check_movable(notes: Notes, root: Node, study: Study, what: str) -> None:
    """Note environments of the host's, which cannot be moved with the lanes they belong to."""
    if any(is_gymnasium(one.id) for one in environments_of(study)):
        text = f"{what} moves lanes, but the host steps {study.env.id} and cannot move it; take a "
        notes.add(f"{text}compiled environment, or let no trial copy another", root, "env")


_MOST_KINDS = 16


def check_gymnasium(notes: Notes, root: Node, study: Study) -> None:
    """Note environments that cannot be made or whose spaces fit no policy."""
    if not is_gymnasium(study.env.id):
        _refuse_workers(notes, root, study)
        return
    _check_timeout(notes, root, study)
    if not study.imports:  # which may register it, and run only with the study
        kinds: list[dict[str, Any]] = []
        for bucket in buckets_of(study).found:
            searched = {k[4:]: v for k, v in bucket.config.items() if k.startswith("env.")}
            if (kind := {**study.env.values, **searched}) not in kinds:
                kinds.append(kind)
        for kind in kinds[:_MOST_KINDS]:
            _look_at(notes, root, study, kind)


def _refuse_workers(notes: Notes, root: Node, study: Study) -> None:
    if study.population.workers is not None:
        text = (
            f"population.workers is {study.population.workers}, but {study.env.id} is compiled; "
            "workers step gym: environments only, so leave it out"
        )
        notes.add(text, root.value["population"], "workers")
    if study.population.step_timeout is not None:
        text = (
            f"population.step_timeout is for gym: environments, but {study.env.id} is compiled; "
            "leave it out"
        )
        notes.add(text, root.value["population"], "step_timeout")


def _check_timeout(notes: Notes, root: Node, study: Study) -> None:
    """Note a limit that nobody could enforce: a process cannot break off its own steps."""
    if study.population.step_timeout and study.population.workers == 0:
        text = (
            "population.step_timeout needs processes that can be ended, but population.workers "
            "is 0; leave workers out, or type step_timeout: 0"
        )
        notes.add(text, root.value["population"], "step_timeout")


def _look_at(notes: Notes, root: Node, study: Study, values: Mapping[str, Any]) -> None:
    """Make the environment that trains and the one that evaluates."""
    found: list[Any] = []
    for section, given in (("env", values), ("eval_env", {**values, **study.evaluation.env})):
        try:
            found.append(_code(study.env.id, given))
        except (ConfigError, MissingExtraError) as error:
            notes.add(str(error), root, section if section in root.value else "env")
            return
    if found[0] != found[1]:
        text = (
            "eval_env has other observations or actions than the environment that trains; leave "
            "out what changes them"
        )
        notes.add(text, root, "eval_env")


def _code(id_: str, values: Mapping[str, Any]) -> Any:
    from ..core.host.shared_arrays import code_of  # numpy
    from ..environments.via_gymnasium import make

    env = make(id_, values)
    try:
        return code_of(id_, env)
    finally:
        env.close()


_LEAST_FOR_IQM = 8
_MOST_RUNGS = 1_000
_MOST_PAIRS = 2000
_MOST_ENDS = 8


def check_together(notes: Notes, root: Node, study: Study) -> None:
    """Note whatever contradicts something else in the study."""
    checks = _Checks(notes, root, study)
    checks.metric_and_seeds()
    checks.method()
    checks.lengths()
    checks.evolution()
    checks.budget()
    checks.default()
    checks.distributions()
    if not notes:
        checks.knobs()


@dataclass
class _Checks:
    notes: Notes
    root: Node
    study: Study

    def _note(self, text: str, section: str, key: str | None = None) -> None:
        self.notes.add(text, *place_of(self.root, section, key))

    def metric_and_seeds(self) -> None:
        """Enough seeds for the aggregate, and fewer tolerated than there are."""
        study, seeds = self.study, self.study.seeds
        measured = {
            "objectives" if study.objectives else "metric": (study.metric, *study.objectives),
            "constraints": study.constraints,
        }
        for section, entries in measured.items():
            iqm = any(entry.aggregate == "iqm" for entry in entries)
            if not iqm or seeds.first - seeds.tolerate >= _LEAST_FOR_IQM:
                continue
            least = "seeds.per_config" if seeds.racing is None else "seeds.racing.start"
            lost = f" and {seeds.tolerate} of them may diverge" if seeds.tolerate else ""
            text = (
                f"aggregate iqm needs {_LEAST_FOR_IQM} values of every trial, but {least} is "
                f"{seeds.first}{lost}; take mean or median"
            )
            self._note(text, section, "aggregate")
        if seeds.tolerate >= seeds.per_config:
            text = f"seeds.tolerate is {seeds.tolerate}; allowed: below per_config"
            self._note(f"{text} ({seeds.per_config})", "seeds", "tolerate")
        if seeds.racing is not None:
            self._racing()

    def _racing(self) -> None:
        """Racing compares means of one objective at the end of runs."""
        study, seeds = self.study, self.study.seeds
        early = study.early_terminate
        if seeds.first >= seeds.per_config:
            starts = f"seeds.racing starts with {counted(seeds.first, 'seed')}"
            text = f"{starts}; allowed: below per_config"
            self._note(f"{text} ({seeds.per_config})", "seeds", "racing")
        elif seeds.tolerate >= seeds.first:
            text = f"seeds.tolerate is {seeds.tolerate}; allowed: below racing.start"
            self._note(f"{text} ({seeds.first})", "seeds", "tolerate")
        if len(study.objectives) > 1:
            text = "seeds.racing compares one objective; leave racing out, or give one metric"
            self._note(text, "seeds", "racing")
        elif study.metric.aggregate != "mean":
            text = f"seeds.racing compares means, but aggregate is {study.metric.aggregate}"
            self._note(f"{text}; take mean, or leave racing out", "seeds", "racing")
        if early is not None and (rule_row(early.type).finishes or early.evolves):
            text = (
                f"seeds.racing adds seeds to whole runs, which {early.type} does not have; leave "
                "one of them out"
            )
            self._note(text, "seeds", "racing")

    def method(self) -> None:
        """The search method can do what is asked of it."""
        study = self.study
        method = method_row(study.search.method)
        if method.objectives == "one" and len(study.objectives) > 1:
            *first, last = [row.name for row in METHODS.values() if row.objectives == "several"]
            text = f"search.method {method.name} takes one objective; take {', '.join(first)} or "
            text += last
            self._note(text, "search", "method")
        if not method.learns and study.search.warm_start is not None:
            text = (
                f"search.warm_start is for methods that learn, and {method.name} does "
                "not; leave it out, or take tpe"
            )
            self._note(text, "search", "warm_start")

    def lengths(self) -> None:
        """Rungs and evaluation points within a run."""
        study, early = self.study, self.study.early_terminate
        if early is not None and not early.evolves and early.min >= study.env_steps:
            text = (
                f"early_terminate.min is {early.min}, but a run has {study.env_steps} env steps; "
                "the first rung must lie below"
            )
            self._note(text, "early_terminate", "min")
        even = early is not None and not early.evolves and rule_row(early.type).even
        if early is not None and even and early.min * _MOST_RUNGS < study.env_steps:
            text = f"early_terminate.min is {early.min}: more than {_MOST_RUNGS} rungs in a run; "
            text += "raise it"
            self._note(text, "early_terminate", "min")
        every = study.evaluation.every
        if isinstance(every, int) and every > study.env_steps:
            text = f"evaluation.every is {every}, but a run has {study.env_steps} env steps"
            self._note(text, "evaluation", "every")
        if isinstance(every, int) and every * 10_000 < study.env_steps:
            text = f"evaluation.every is {every}: more than 10000 evaluations in a run"
            self._note(text, "evaluation", "every")

    def evolution(self) -> None:
        """What a population that evolves needs: traced knobs alone, and a lane for everyone."""
        study, early = self.study, self.study.early_terminate
        if early is None:
            return
        section = self.root.value.get("early_terminate")
        for key in foreign_keys(early.type):
            if section is not None and section.is_map and key in section.value:
                text = f"early_terminate.{key} is no key of {early.type}; leave it out"
                self._note(text, "early_terminate", key)
        if early.pause:
            self._pausing(early)
        if not early.evolves:
            return
        if early.every >= study.env_steps or early.every * _MOST_RUNGS < study.env_steps:
            text = f"early_terminate.every is {early.every}, but a run has {study.env_steps} env "
            text += f"steps; allowed: below that, and at most {_MOST_RUNGS} times in a run"
            self._note(text, "early_terminate", "every")
        for parameter in study.space.parameters:
            if not _is_traced(study, parameter.name):
                text = (
                    f"{parameter.name} is part of the compiled program, and {early.type} copies "
                    "networks between trials of one program; fix it, or take asha"
                )
                self._note(text, "space", parameter.name)
        if len(study.objectives) > 1:
            text = f"{early.type} copies by one objective; give one metric, or take asha"
            self._note(text, "objectives")
        if study.constraints:
            text = (
                f"{early.type} copies by one objective and knows no constraints; leave them out, "
            )
            text += "or take asha"
            self._note(text, "constraints")
        self._room(early.type)

    def _pausing(self, early: EarlyTerminate) -> None:
        """Whoever waits at a rung keeps its lanes, and is not stopped to be wrong about."""
        if early.audit:
            text = (
                "early_terminate.audit lets stopped trials run on, and with pause they wait to go "
                "on by themselves; leave one of them out"
            )
            self._note(text, "early_terminate", "audit")
        hosted = [one.id for one in environments_of(self.study) if is_gymnasium(one.id)]
        if hosted:
            text = (
                f"early_terminate.pause keeps lanes with their environments, but the host steps "
                f"{hosted[0]} and cannot keep it; leave pause out, or take a compiled environment"
            )
            self._note(text, "early_terminate", "pause")

    def _room(self, rule: str) -> None:
        study = self.study
        trials, lanes = study.budget.trials, study.population.lanes
        if trials is None or trials < 2:
            text = f"{rule} needs budget.trials of at least 2: they are its population"
            self._note(text, "budget", "trials")
        elif lanes is not None and lanes < trials * study.seeds.per_config:
            text = (
                f"population.lanes is {lanes}, but {rule} runs all {trials} trials x "
                f"{study.seeds.per_config} seeds side by side; type lanes: "
                f"{trials * study.seeds.per_config}, or auto"
            )
            self._note(text, "population", "lanes")

    def budget(self) -> None:
        """Something ends the study, and confirm leaves room for a search."""
        study, budget, confirm = self.study, self.study.budget, self.study.confirm
        endless = budget.trials is None and budget.env_steps is None
        if endless and budget.wall_seconds is None and not method_row(study.search.method).ends:
            self._note("nothing ends the study; give trials, env_steps or wall", "budget")
        reserved = 0
        if confirm is not None:
            reserved = confirm.runs(len(study.objectives)) * study.env_steps * study.spread
            if budget.trials is not None and confirm.top_k > budget.trials:
                trials = counted(budget.trials, "trial")
                text = f"confirm.top_k is {confirm.top_k}, but the budget is {trials}"
                self._note(text, "confirm", "top_k")
            last = max((trial for trial, _ in confirm.also), default=-1)
            if budget.trials is not None and last >= budget.trials:
                text = f"confirm.also has trial {last}, but there are {budget.trials} trials"
                self._note(text, "confirm", "also")
        if budget.env_steps is None:
            return
        one = study.seeds.per_config * study.env_steps * study.spread
        if budget.env_steps < reserved + one:
            words = f" after the {reserved} that confirm needs" if reserved else ""
            text = (
                f"budget.env_steps is {budget.env_steps}, not enough for one trial of {one} env "
                f"steps{words}; allowed: at least {reserved + one}"
            )
            self._note(text, "budget", "env_steps")

    def default(self) -> None:
        """The default configuration, which is trial 0, must be legal."""
        space = self.study.space
        params = space.default()
        rule = space.forbidden(params)
        if rule is not None:
            named = {name: params[name] for name in rule.names if name in params}
            words = ", ".join(f"{name}={value!r}" for name, value in named.items())
            text = (
                f"the default configuration ({words}) is forbidden by {rule}; change a `default:` "
                "or the rule"
            )
            self._note(text, "forbid" if "forbid" in self.root.value else "space")

    def distributions(self) -> None:
        """Every action distribution fits the environment, as far as the table knows it."""
        for one in environments_of(self.study):
            self._distributions(ENVIRONMENTS.get(one.id))

    def _distributions(self, known: EnvEntry | None) -> None:
        if known is None or known.actions not in DISTRIBUTIONS:
            return
        fitting = DISTRIBUTIONS[known.actions]
        for section, value in _values_of(self.study, "distribution"):
            own = value not in KNOBS["distribution"].choices and self.study.imports
            if value is not None and value not in fitting and not own:
                text = (
                    f"distribution {value!r} does not fit {known.id}, whose actions are "
                    f"{known.actions}; allowed: {', '.join(fitting)}"
                )
                self._note(text, section, "distribution")

    def knobs(self) -> None:
        """No two values that can come together contradict each other."""
        told: set[str] = set()
        for names, params in _corners(self.study):
            try:
                self.study.complete(params, own_words=True)
            except ConfigError as error:
                if str(error) not in told:
                    told.add(str(error))
                    self._contradiction(str(error), names)

    def _contradiction(self, text: str, names: tuple[str, ...]) -> None:
        """Note it at the first knob concerned: one of `names`, or else one that the text names."""
        words = {word.strip("`.,:;()") for word in text.split()}
        for section in ("space", "fixed"):
            node = self.root.value.get(section)
            for key in node.value if node is not None and node.is_map else ():
                if key in names or (not names and key in words):
                    self.notes.add(text, node, key)
                    return
        self._note(text, "space" if "space" in self.root.value else "fixed")


def _is_traced(study: Study, name: str) -> bool:
    """Return whether a knob may change in mid-run; what no table knows is taken to."""
    if not name.startswith("env."):
        return KNOBS[name].traced
    each = [find(one.id) for one in environments_of(study)]
    return not any(known and name.removeprefix("env.") in known.keys for known in each)


def _values_of(study: Study, name: str) -> Iterator[tuple[str, Any]]:
    """Yield every value that a categorical knob can take, with the section that says so."""
    if name in study.fixed:
        yield "fixed", study.fixed[name]
    for parameter in study.space.parameters:
        if parameter.name == name:
            yield from (("space", value) for value in parameter.distribution.ends())
    yield from (("enqueue", given[name]) for given in study.enqueue if name in given)


def _corners(study: Study) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the default, then every pair of extreme values on top of it: (names, configuration).

    A contradiction that needs three values to come together passes here and is met by
    `hpo check`, which draws from the space.
    """
    space = study.space
    yield (), space.default()
    ends = [
        (parameter, value)
        for parameter in space.parameters
        for value in _few(parameter)
        if not parameter.name.startswith("env.")
    ]
    pairs = itertools.chain(
        (((parameter, value),) for parameter, value in ends),
        (pair for pair in itertools.combinations(ends, 2) if pair[0][0].name != pair[1][0].name),
    )
    for chosen in itertools.islice(pairs, _MOST_PAIRS):
        wanted = {parameter.name: value for parameter, value in chosen}
        params = _with(study, wanted)
        if params is not None:
            yield tuple(wanted), params


def _few(parameter: Parameter) -> tuple[Any, ...]:
    return parameter.distribution.ends()[:_MOST_ENDS]


def _with(study: Study, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """Return the default changed so that all wanted values are active, or None if it cannot be."""
    space = study.space
    forced = dict(wanted)
    for name in wanted:
        for parameter in space.parameters:
            if parameter.name == name:
                for condition in parameter.when:
                    forced.setdefault(condition.name, condition.values[0])
    params = space.resolve(lambda _, parameter: forced.get(parameter.name, parameter.default))
    active = all(name in params and params[name] == value for name, value in wanted.items())
    return params if active and space.contains(params) else None
