"""The methods paragraph: everything that a reviewer needs to judge and reproduce a study.

It is marked-up text (see `markup`) about the environment, search, selection, test, statistics,
cost and software.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from hashlib import sha256
from typing import Any

from ...errors import clause, counted, enumerated
from ...spaces.distributions import Distribution
from ...spaces.space import Parameter
from ...store.against import Sample
from ...store.interim_analyses import begins_interim, is_few, looks_of, next_level, winners_looks
from ...store.journal import Journal
from ...store.rows import COMPLETE, TrialState
from ...store.value_bounds import value_bounds
from ...studies.env_spec import EnvSpec
from ...studies.search_methods import METHODS
from ...studies.spec import Study
from ...studies.study_environments import environments_of, labels
from ...version import __version__
from ..charts.snapshot import Snapshot
from ..formatting import duration, number, param, versions_text
from ..quotes import metric_name, plain_metric
from .markup import code
from .references import OF_METHODS, OF_RULES

_METHODS = {
    "random": "Random search",
    "grid": "Grid search",
    "sobol": "A Sobol sequence",
    "tpe": "The tree-structured Parzen estimator (TPE)",
    "thompson": "Thompson sampling with a Bayesian linear model",
    "gp": "Bayesian optimisation with a Gaussian process",
    "cmaes": "CMA-ES",
    "nsga2": "NSGA-II",
    "smac": "SMAC3",
}
_RULES = {
    "asha": "ASHA",
    "hyperband": "Hyperband",
    "median": "The median rule",
    "plateau": "A plateau rule",
    "pbt": "Population-based training (PBT)",
    "pb2": "Population-based bandits (PB2)",
}
_SCALES = {
    "uniform": "uniform",
    "log_uniform": "log-uniform",
    "int_uniform": "uniform integers",
    "log_int_uniform": "log-uniform integers",
    "pow2": "powers of two",
    "one_minus_log": "log-uniform in one minus the value",
    "logit": "uniform in the logit",
}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_GIVEN = ("default", "enqueue", "portfolio")  # sources of configurations other than a method
SeedCounts = tuple[int, int, int]


def methods_text(snapshot: Snapshot) -> str:
    """Return the methods paragraph for one study, as marked-up text."""
    parts = [
        _task_sentence(snapshot),
        _space_sentences(snapshot),
        _search_sentences(snapshot),
        _stopping_sentence(snapshot),
        _lost_sentences(snapshot),
        _selection_sentences(snapshot),
        _value_sentences(snapshot),
        _statistics_sentences(snapshot),
        _cost_sentence(snapshot),
        _software_sentences(snapshot),
    ]
    return " ".join(filter(None, parts))


def counted_words(count: int, noun: str) -> str:
    """Return a count with its noun; counts up to ten are spelled out.

    >>> counted_words(3, "hyperparameter"), counted_words(12, "seed")
    ('three hyperparameters', '12 seeds')
    """
    return f"{number_word(count)} {noun}{'s' * (count != 1)}"


def number_word(count: int) -> str:
    """Return a count, spelled out up to ten."""
    if count >= len(_NUMBERS):
        return f"{count:,}"
    return _NUMBERS[count]


def _hpo_version(snapshot: Snapshot) -> str:
    """Return the version of hpo that ran the study, or the current one if none was recorded."""
    recorded = snapshot.meta.versions.get("hpo-lanes", "absent")
    if recorded == "absent":
        return __version__
    return recorded


def _task_sentence(snapshot: Snapshot) -> str:
    study = snapshot.study
    trained = "PPO [@schulman2017ppo]"
    if not study.algorithm.is_ppo:
        trained = f"the training algorithm {code(study.algorithm.label)}"
    where = _environments_text(study)
    verb = "We trained"
    if study.space.parameters:
        verb = "We tuned"
    return f"{verb} {trained}{where} with hpo {_hpo_version(snapshot)} [@hpo]."


def _environments_text(study: Study) -> str:
    if not study.algorithm.takes_env:
        return ""
    each = [_environment_text(one, study) for one in environments_of(study)]
    text = f" on {enumerated(each)}"
    if study.more_envs:
        text += ", with one configuration for all environments,"
    return text


def _environment_text(env: EnvSpec, study: Study) -> str:
    given = {name: value for name, value in env.values.items() if name != "id"}
    text = code(env.id)
    if given:
        text += f" ({_settings_text(given)})"
    if study.evaluation.env:
        text += f" (evaluated with {_settings_text(study.evaluation.env)})"
    return text


def _settings_text(given: Any) -> str:
    return ", ".join(f"{code(name)} = {_value_of(value)}" for name, value in given.items())


def _value_of(value: Any) -> str:
    if isinstance(value, str):
        return code(value)
    return param(value)


def _space_sentences(snapshot: Snapshot) -> str:
    study = snapshot.study
    found: list[str] = []
    parameters = study.space.parameters
    if parameters:
        each = "; ".join(map(_parameter_text, parameters))
        names = counted_words(len(study.space.names), "hyperparameter")
        found.append(f"The search space has {names}: {each}.")
    found.append(_other_settings(snapshot))
    if study.init is not None:
        found.append(f"Training started from the saved policy in {code(study.init.folder)}.")
    return " ".join(found)


def _other_settings(snapshot: Snapshot) -> str:
    """Return the sentence about hyperparameters that were not searched."""
    study = snapshot.study
    if study.algorithm.is_process:
        return "All other settings were left as in the training script."
    knobs = study.algorithm.knobs
    changed = {
        name: value
        for name, value in study.fixed.items()
        if name not in knobs or knobs[name].default != value
    }
    others = "All hyperparameters"
    if study.space.parameters:
        others = "All other hyperparameters"
    defaults = f"{others} have the default values of hpo {_hpo_version(snapshot)}"
    if not changed:
        return f"{defaults}."
    return f"{defaults}, except {_settings_text(changed)}."


def _parameter_text(parameter: Parameter) -> str:
    text = f"{code(parameter.name)} {_range_text(parameter.distribution)}"
    if not parameter.when:
        return text
    when = [
        f"{code(one.name)} is {' or '.join(map(_value_of, one.values))}" for one in parameter.when
    ]
    return f"{text} if {' and '.join(when)}"


def _range_text(distribution: Distribution) -> str:
    given = distribution.as_mapping()
    if "values" in given:
        return f"in {{{', '.join(map(_value_of, given['values']))}}}"
    zero = clause("; exactly 0 with probability {:g}", distribution.zero)
    if distribution.kind == "normal":
        mean, deviation = param(given["mu"]), param(given["sigma"])
        return f"normal with mean {mean} and standard deviation {deviation}{zero}"
    scale = _SCALES.get(distribution.kind, distribution.kind.replace("_", " "))
    step = ""
    if "q" in given:
        step = f", in steps of {param(given['q'])}"
    return f"in [{param(given['min'])}, {param(given['max'])}] ({scale}{step}{zero})"


def _search_sentences(snapshot: Snapshot) -> str:
    study, trials = snapshot.study, len(snapshot.searched)
    length = f"{_trained_steps(snapshot):,} {study.algorithm.unit}"
    seeds = counted_words(study.seeds.per_config, "search seed")
    if not study.space.parameters:
        kind = counted_words(study.seeds.per_config, "seed")
        return f"The configuration was trained for {length} on {kind}."
    evolving = study.early_terminate is not None and study.early_terminate.evolves
    proposed = _proposals_sentence(snapshot, trials)
    each = f"Each was trained for {length} on {seeds}"
    if study.seeds.racing is not None:
        start = counted_words(study.seeds.racing.start, "seed")
        each += f", starting with {start} and adding more only for trials that were not "
        each += "clearly worse"
    if study.early_terminate is not None and not evolving:
        each += ", unless it was stopped early"
    return f"{proposed}. {each}."


def _trained_steps(snapshot: Snapshot) -> int:
    """Return a full run's length, rounded to whole updates, if it is the same for all runs."""
    complete = [
        row for row in snapshot.searched.values() if row.state in COMPLETE and row.seed_values
    ]
    lengths = {row.env_steps / len(row.seed_values) for row in complete}
    if len(lengths) != 1 or snapshot.study.seeds.racing is not None:
        return snapshot.study.env_steps
    return round(lengths.pop())


def _proposals_sentence(snapshot: Snapshot, trials: int) -> str:
    """Return a sentence on the sources of the configurations, in the order in which they ran."""
    study, rows = snapshot.study, snapshot.searched.values()
    default = ""
    if _begins_with_default(snapshot):
        default = "the default configuration"
    given = _given_configurations(snapshot)
    if not given:
        what = counted_words(trials, "configuration")
        first = clause("; the first was {}", default)
        return f"{_method_text(study)} proposed {what}{_random_share_text(study, trials)}{first}"
    tried = f"The search tried {enumerated([*filter(None, [default]), *given])}"
    by_method = sum(row.proposed_by not in _GIVEN for row in rows)
    if not by_method:
        return tried
    what = counted_words(by_method, "configuration")
    return (
        f"{tried}. {_method_text(study)} then proposed {what}"
        f"{_random_share_text(study, by_method)}"
    )


def _given_configurations(snapshot: Snapshot) -> list[str]:
    """Return how many configurations were enqueued, and how many were learnt, in words."""
    sources = Counter(row.proposed_by for row in snapshot.searched.values())
    found = list[str]()
    if enqueued := sources["enqueue"]:
        found.append(f"{counted_words(enqueued, 'configuration')} that we specified")
    if learnt := sources["portfolio"]:
        origin = "that hpo learnt from recorded runs on other environments"
        found.append(f"{counted_words(learnt, 'configuration')} {origin}")
    return found


def _random_share_text(study: Study, proposed: int) -> str:
    """Describe how many proposals of a model-based method were drawn at random."""
    row = METHODS.get(study.search.method)
    if study.search.driver == "ray_tune" or row is None or not row.learns_from_results:
        return ""
    found: list[str] = []
    start = study.search.options.get("n_startup_trials") or 0
    if proposed <= start:
        return " (all at random)"
    if start:
        found.append(f"the first {start} at random")
    if study.search.random_share:
        found.append(f"{study.search.random_share:.0%} of the others at random")
    return clause(" ({})", ", ".join(found))


def _begins_with_default(snapshot: Snapshot) -> bool:
    first = snapshot.rows.get(0)
    return first is not None and first.trial == snapshot.default


def _method_text(study: Study) -> str:
    if study.search.driver == "ray_tune":
        return f"Ray Tune ({code(study.search.searcher)}, {code(study.search.scheduler)})"
    name = study.search.method
    words = _METHODS.get(name, f"The search method {code(name)}")
    return words + clause(" [@{}]", OF_METHODS.get(name))


def _stopping_sentence(snapshot: Snapshot) -> str:
    rule = snapshot.study.early_terminate
    if rule is None or not snapshot.decisions:
        return ""
    unit = snapshot.study.algorithm.unit
    words = _RULES.get(rule.type, f"The rule {code(rule.type)}")
    words += clause(" [@{}]", OF_RULES.get(rule.type))
    if rule.evolves:
        copies = sum(row.action == "copy" for row in snapshot.decisions)
        text = f"With {words[:1].lower()}{words[1:]}, poorly performing configurations were "
        text += "replaced by copies of better ones with changed hyperparameters every "
        text += f"{rule.every:,} {unit}"
        return f"{text} ({counted(copies, 'copy').replace('copys', 'copies')})."
    lowest: dict[int, int] = {}
    for row in snapshot.decisions:
        lowest[row.rung] = min(row.env_steps, lowest.get(row.rung, row.env_steps))
    rungs = [f"{at:,}" for _, at in sorted(lowest.items())]
    at = ""
    if len(rungs) <= 6:
        at = f" at {enumerated(rungs)} {unit}"
    share = f"{len(snapshot.stopped)} of {counted(len(snapshot.searched), 'configuration')}"
    return f"{words} compared configurations{at} and stopped {share}."


def _lost_sentences(snapshot: Snapshot) -> str:
    """Return how many configurations and test runs failed or diverged, and how they count."""
    states = Counter(row.state for row in snapshot.searched.values())
    kinds = (
        (states[TrialState.FAILED], "failed with an error"),
        (states[TrialState.DIVERGED], "diverged (a value was not finite)"),
    )
    lost = [f"{number_word(count)} {words}" for count, words in kinds if count]
    said = list[str]()
    if lost:
        all_of_them = counted_words(len(snapshot.searched), "configuration")
        verb = "They have no value and rank"
        if sum(count for count, _ in kinds) == 1:
            verb = "It has no value and ranks"
        said.append(f"Of {all_of_them}, {enumerated(lost)}. {verb} last.")
    if failed := snapshot.conclusion.failed:
        said.append(f"Failed runs of {enumerated(failed)} on test seeds count as diverged.")
    return " ".join(said)


def _seed_counts(snapshot: Snapshot) -> SeedCounts:
    """Return the first trial's numbers of search, selection and test seeds."""
    first = snapshot.winner
    if first is None:
        return 0, 0, 0
    row = snapshot.rows[first.trial]
    return len(row.seed_values), len(row.choose_values), len(row.by_report_seed)


def _selection_sentences(snapshot: Snapshot) -> str:
    study, first = snapshot.study, snapshot.winner
    if first is None:
        return "No configuration has finished its run yet."
    _, chosen, tested = _seed_counts(snapshot)
    if not study.space.parameters:
        return ""
    if study.objectives:
        return _front_sentences(snapshot, chosen)
    said: list[str] = []
    if chosen:
        again = sum(bool(row.choose_values) for row in snapshot.searched.values())
        best = f"The {counted_words(again, 'configuration')} with the best search values"
        said.append(
            f"{best} {'was' if again == 1 else 'were'} trained again on "
            f"{counted_words(chosen, 'selection seed')} not used in the search. The configuration "
            "with the best mean on these seeds is the winner."
        )
    elif tested:
        said.append("The configuration with the best search value is the winner.")
    if tested:
        default = snapshot.default
        both = default is not None and bool(snapshot.rows[default].by_report_seed)
        both = both and default != first.trial
        who = "The winner was"
        if both:
            who = "The winner and the default configuration were"
        said.append(
            f"{who} then trained on {counted_words(tested, 'test seed')} not used for selection."
        )
    else:
        kind = "selection" if chosen else "search"
        said.append(
            f"No configuration was trained on separate test seeds: the reported values are from "
            f"the {kind} seeds that were also used to pick the winner, and are optimistic."
        )
    return " ".join(said)


def _front_sentences(snapshot: Snapshot, chosen: int) -> str:
    """Return how the Pareto front was measured; it has no winner and no test seeds."""
    if not chosen:
        text = "The Pareto front was computed from the search seeds, so its values are optimistic"
        return f"{text}."
    again = [row.trial for row in snapshot.searched.values() if row.choose_values]
    others = [trial for trial in again if trial != snapshot.default]
    who = list[str]()
    if len(others) < len(again):
        who.append("the default configuration")
    if others:
        who.append(f"the {counted_words(len(others), 'configuration')} that ranked first")
    verb = "were"
    if len(again) == 1:
        verb = "was"
    where = f"{counted_words(chosen, 'selection seed')} not used in the search"
    return (
        f"After the search, {enumerated(who)} {verb} trained again on {where}. "
        "Their means on these seeds determine the Pareto front."
    )


def _value_sentences(snapshot: Snapshot) -> str:
    study = snapshot.study
    text = _of_values(study)
    if study.constraints:
        limits = enumerated([_limit_text(one) for one in study.constraints])
        text += f" Configurations had to satisfy: {limits}."
    return text


def _of_values(study: Study) -> str:
    """Return the sentences on what a seed's value is, without constraints."""
    if not study.algorithm.acts:
        return _of_own_values(study)
    mode = "greedy" if study.evaluation.greedy else "sampled"
    policy = f"the {mode} policy after training"
    if study.evaluation.steps is not None:
        over = f"{study.evaluation.steps:,} evaluation steps of {policy}"
    else:
        over = f"{counted(study.evaluation.episodes, 'evaluation episode')} of {policy}"
    if study.objectives:
        names = [f"{plain_metric(one.name)} ({one.goal}d)" for one in study.objectives]
        return f"The objectives were {enumerated(names)}, measured over {over}."
    text = f"The value of a seed is its {metric_name(study)} over {over}."
    if study.metric.training_weight:
        text += f" In the search and the selection, {study.metric.training_weight:.0%} of it is "
        text += "the mean return of the last 100 training episodes."
    if study.more_envs:
        ends = "; ".join(
            f"{code(name)} {number(one.scale.random)} and {number(one.scale.reference)}"
            for name, one in zip(labels(study), environments_of(study), strict=True)
            if one.scale is not None
        )
        text += " Scores are normalised per environment: 0 is the mean return of random actions "
        text += f"and 1 that of a reference policy ({ends})."
    return text


def _of_own_values(study: Study) -> str:
    """Return the sentence on the metrics that the user's training reports."""
    if study.objectives:
        names = [f"{code(one.name)} ({one.goal}d)" for one in study.objectives]
        return f"The objectives were {enumerated(names)}, measured at the end of training."
    better = "higher" if study.metric.goal == "maximize" else "lower"
    text = f"The value of a seed is {code(study.metric.name)} at the end of its training"
    return f"{text}; {better} is better."


def _limit_text(constraint: Any) -> str:
    ends = [
        f"{words} {number(end)}"
        for words, end in (("at least", constraint.min), ("at most", constraint.max))
        if end is not None
    ]
    return f"{plain_metric(constraint.metric)} {' and '.join(ends)}"


def _statistics_sentences(snapshot: Snapshot) -> str:
    said = [_of_means(snapshot), _of_difference(snapshot)]
    return " ".join(filter(None, said))


def _of_means(snapshot: Snapshot) -> str:
    first = snapshot.winner
    if first is None or snapshot.meta.objectives:
        return ""
    what = "Values are means over seeds"
    over = snapshot.meta.aggregate
    if first.measured_from == "search" and over != "mean":
        what = f"Values are the {over} over seeds"
    if first.ci_low is None:
        return f"{what}; there are too few seeds, or too little variation, for an interval."
    how = {
        "t": "Student's t",
        "bootstrap": "percentile bootstrap with expanded percentiles [@hesterberg2015bootstrap]",
    }.get(first.ci_kind, "")
    text = f"{what}, with 95 % confidence intervals{clause(' ({})', how)}"
    bounds = value_bounds(snapshot.meta)
    if math.isfinite(bounds.low) and math.isfinite(bounds.high):
        text += f", clipped to the possible values [{number(bounds.low)}, {number(bounds.high)}]"
        text += ". At a bound, the intervals allow for outcomes not observed on any seed "
        text += "[@learnedmiller2020bounded]"
    return f"{text}."


def _of_difference(snapshot: Snapshot) -> str:
    against, default = snapshot.conclusion.against, snapshot.default
    first = snapshot.winner
    if first is None or default is None or against.means is None or not against.pairs:
        return ""
    if against.verdict == "default":
        return ""
    with Journal(snapshot.folder.path) as journal:
        looks = looks_of(journal.attributes())
    earlier = winners_looks(looks, first.trial, default, against.seeds)
    sides = [snapshot.rows[trial].by_report_seed for trial in (first.trial, default)]
    known = sorted(_finite_seeds(sides[0]) & _finite_seeds(sides[1]))
    before = [bisect_left(known, size) for size in earlier]  # pairs, as in the test
    level = next_level(before, begins_interim(looks), against.pairs)
    how, test = "seed by seed", "sign-flip permutation test"
    if is_few(against.pairs):
        how, test = "on the same seeds", "two-sample permutation test (unpaired)"
    text = (
        f"The winner and the default configuration are compared {how}. A difference is "
        f"called significant if an exact {test} rejects equality at the {level:.3g} "
        "level and unobserved outcomes could not reverse the result "
        "[@learnedmiller2020bounded]"
    )
    if earlier:
        tests = counted(len(earlier), "earlier test")
        text += f". Including {tests}, the error rate is at most 5 %"
    return f"{text}."


def _finite_seeds(values: Sample) -> set[int]:
    return {seed for seed, value in values.items() if math.isfinite(value)}


def _cost_sentence(snapshot: Snapshot) -> str:
    usage, meta = snapshot.usage, snapshot.meta
    unit = snapshot.study.algorithm.unit
    spent = usage.search_env_steps + usage.confirm_env_steps + usage.warmup_env_steps
    text = f"Training took {spent:,} {unit} in total"
    if usage.confirm_env_steps:
        text += f" ({usage.search_env_steps:,} in the search, "
        text += f"{usage.confirm_env_steps:,} for selection and test)"
    text += f" and {duration(usage.run_seconds)} of wall time"
    if snapshot.study.algorithm.is_process:
        return f"{text}; each run was a separate process."
    return f"{text} on {counted(meta.devices, f'{meta.backend.upper()} device')}."


def _software_sentences(snapshot: Snapshot) -> str:
    meta = snapshot.meta
    versions = {name: one for name, one in meta.versions.items() if one != "absent"}
    versions.pop("hpo-lanes", None)
    software = versions_text(versions)
    digest = sha256(meta.study_text.encode()).hexdigest()
    text = f"Software: {software}. Random seed of the study: {snapshot.study.seed}. "
    text += f"The resolved study file has SHA-256 {code(digest)}."
    if meta.files:
        text += f" The study used {enumerated([code(name) for name in meta.files])}."
    return text
