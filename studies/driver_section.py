"""What must hold where a cluster runs the lanes, or where Ray Tune decides.

Both exclude other settings; each mistake is noted at the key that asks for too much.
"""

from __future__ import annotations

from ..errors import suggestion
from ..knobs import KNOBS
from ..via_gymnasium import is_gymnasium
from .fields import DRIVEN_KEYS, SEARCHER_KEYS
from .notes import Notes
from .reader import Node
from .several import environments_of
from .spec import Study

__all__ = ["check_driver", "check_executor"]

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
