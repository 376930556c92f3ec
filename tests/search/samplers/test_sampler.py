import dataclasses
import inspect
from importlib.util import find_spec
from pkgutil import resolve_name

import numpy as np
import pytest
from optuna.samplers import RandomSampler
from optuna.study import StudyDirection
from optuna.trial import TrialState as OptunaState

from helpers import search_samples as samples
from hpo.errors import ConfigError, UnknownNameError
from hpo.search.samplers import (
    via_cmaes,
    via_optuna,
    via_smac,
    without_model,
)
from hpo.search.samplers import (
    via_optuna as optuna_gp,
)
from hpo.search.samplers import (
    via_optuna as optuna_nsga2,
)
from hpo.search.samplers import (
    via_optuna as optuna_tpe,
)
from hpo.search.samplers.history_window import Window, estimates, penalised
from hpo.search.samplers.registry import PriorTrial, SamplerSpec, make_sampler, register_sampler
from hpo.search.samplers.via_optuna import HistoryStorage
from hpo.spaces import Space
from hpo.store.rows import TrialState
from hpo.studies.search_methods import METHODS
from hpo.studies.search_spec import Metric
from hpo.testing.search import SamplerContract, contract_space


class TestRandom(SamplerContract):
    def make(self, space, seed):
        return without_model.RandomSearch(SamplerSpec(space, seed, {}))


class TestSobol(SamplerContract):
    def make(self, space, seed):
        return without_model.SobolSearch(SamplerSpec(space, seed, {}))


class TestGrid(SamplerContract):
    def make(self, space, seed):
        return without_model.GridSearch(SamplerSpec(space, seed, {"points": {"gamma": 2, "*": 4}}))


class TestTpe(SamplerContract):
    def make(self, space, seed):
        return optuna_tpe.Tpe(SamplerSpec(space, seed, {"n_startup_trials": 3}))


class TestGp(SamplerContract):
    batches, size, count = 2, 4, 2

    def make(self, space, seed):
        pytest.importorskip("torch")
        return optuna_gp.Gp(SamplerSpec(space, seed, {"n_startup_trials": 3}))


class TestCmaEs(SamplerContract):
    def make(self, space, seed):
        pytest.importorskip("cmaes")
        return via_cmaes.CmaEs(SamplerSpec(space, seed, {"popsize": 4}))


@pytest.mark.parametrize("limit", [None, 0.5])
def test_cmaes_starts_from_feasible_warm_start_trials(limit):
    """The larger the learning rate the better; above the middle it violates the constraint."""
    pytest.importorskip("cmaes")
    shares = [(place + 0.5) / 40 for place in range(40)]
    earlier = [
        PriorTrial(
            trial=place - len(shares),
            params={"learning_rate": 1e-5 ** (1.0 - share), "gamma": 0.9 + 0.09 * (place % 7) / 7},
            state=TrialState.FINISHED,
            loss=-share,
            violations=() if limit is None else (share - limit,),
            proposed_by="warm_start",
        )
        for place, share in enumerate(shares)
    ]
    batch = via_cmaes.CmaEs(SamplerSpec(samples.REAL, 3, {})).begin(0, earlier)
    drawn = [batch.draw(trial, 0).params["learning_rate"] for trial in range(200)]
    found = float(np.mean([1.0 + np.log(rate) / np.log(1e5) for rate in drawn]))
    assert (0.7 < found < 1.0) if limit is None else (0.25 < found < 0.55)


class TestNsga2(SamplerContract):
    def make(self, space, seed):
        return optuna_nsga2.Nsga2(SamplerSpec(space, seed, {"population_size": 4}))


class TestNsga2OfTwo(SamplerContract):
    def make(self, space, seed):
        spec = SamplerSpec(space, seed, {"population_size": 4}, objectives=2, constraints=1)
        return optuna_nsga2.Nsga2(spec)

    def ended(self, past):
        end = super().ended(past)
        known = end.loss is not None
        return dataclasses.replace(
            end,
            more=(-end.loss,) if known else (),
            more_reports=tuple((0.5,) for _ in end.reports),
            violations=(end.loss - 0.5,) if known else (),
        )

    def test_trials_of_an_earlier_study_are_understood(self):
        pass  # those of the contract have one objective


class TestTpeOfTwo(TestNsga2OfTwo):
    def make(self, space, seed):
        spec = SamplerSpec(space, seed, {"n_startup_trials": 3}, objectives=2, constraints=1)
        return optuna_tpe.Tpe(spec)


class TestSmac(SamplerContract):
    batches, size, count = 2, 4, 2

    def make(self, space, seed):
        pytest.importorskip("smac")
        return via_smac.Smac(SamplerSpec(space, seed, {"n_startup_trials": 3}))


def drawn(sampler, batch, count, history=()):
    return TestRandom().propose(sampler, batch, count, list(history))


def test_random_search_does_not_depend_on_batches():
    space = contract_space()
    whole = drawn(without_model.RandomSearch(SamplerSpec(space, 0, {})), 0, 6)
    halves = drawn(without_model.RandomSearch(SamplerSpec(space, 0, {})), 0, 3)
    halves += drawn(without_model.RandomSearch(SamplerSpec(space, 0, {})), 1, 3, halves)
    assert whole == halves


def test_sobol_covers_every_axis_evenly():
    space = contract_space()
    found = drawn(without_model.SobolSearch(SamplerSpec(space, 7, {})), 0, 64)
    # 64 points of a scrambled Sobol sequence: each quarter of each axis holds exactly 16.
    logs = [past.params["learning_rate"] for past in found]
    quarters = [
        sum(10 ** (-5 + 0.75 * k) <= x < 10 ** (-5 + 0.75 * (k + 1)) for x in logs)
        for k in range(4)
    ]
    assert quarters == [16, 16, 16, 16]
    assert sum(past.params["network"] == "mlp" for past in found) == 32


def test_sobol_continues_after_skipped_points():
    space = contract_space()
    sampler = without_model.SobolSearch(SamplerSpec(space, 0, {}))
    opened = sampler.begin(0, [])
    points = [opened.draw(0, attempt) for attempt in range(4)]
    past = PriorTrial(0, points[2].params, points[2].attributes)
    assert (
        without_model.SobolSearch(SamplerSpec(space, 0, {})).begin(1, [past]).draw(1, 0)
        == points[3]
    )


def test_grid_gives_every_combination_once_and_ends():
    space = samples.FINITE
    spec = SamplerSpec(space, 0, {"points": 9})
    found = drawn(without_model.GridSearch(spec), 0, 100)
    assert [past.params for past in found] == list(space.grid(9))
    assert len(found) == 12
    assert (
        without_model.GridSearch(SamplerSpec(space, 0, {"points": 9})).begin(1, found).draw(12, 0)
        is None
    )


@pytest.mark.parametrize("options", [{"pionts": 3}, {"points": 0}, {"points": {"gamma": True}}])
def test_grid_refuses_options_that_make_no_sense(options):
    with pytest.raises(ConfigError, match="points"):
        without_model.GridSearch(SamplerSpec(contract_space(), 0, options))


def test_methods_are_made_by_name():
    for method, made in (
        ("random", without_model.RandomSearch),
        ("grid", without_model.GridSearch),
        ("sobol", without_model.SobolSearch),
        ("tpe", optuna_tpe.Tpe),
        ("nsga2", optuna_nsga2.Nsga2),
    ):
        assert type(make_sampler(samples.study(method=method))) is made
    with pytest.raises(UnknownNameError, match="did you mean 'tpe'"):
        make_sampler(samples.study(method="tpee"))


@pytest.mark.parametrize("method", ["random", "sobol", "tpe", "nsga2"])
def test_unknown_sampler_options_are_refused(method):
    study = samples.study(method=method)
    search = dataclasses.replace(study.search, options={"multivariat": True})
    with pytest.raises(ConfigError, match="multivariat"):
        make_sampler(dataclasses.replace(study, search=search))


def test_sampler_option_of_wrong_type_is_refused():
    with pytest.raises(ConfigError, match="multivariate is 'yes'; allowed: true or false"):
        optuna_tpe.Tpe(SamplerSpec(contract_space(), 0, {"multivariate": "yes"}))


def test_a_method_is_registered_once(monkeypatch):
    monkeypatch.setitem(METHODS, "mine", METHODS["random"])
    del METHODS["mine"]
    register_sampler("mine", without_model.RandomSearch)
    made = make_sampler(samples.study(method="mine"))
    assert isinstance(made, without_model.RandomSearch)
    with pytest.raises(ConfigError, match="already registered"):
        register_sampler("mine", without_model.RandomSearch)


# ---------------------------------------------------------------- what Optuna sees


def past(trial, state, loss=None, reports=()):
    params = contract_space().default()
    return PriorTrial(trial, params, {}, state, loss, reports)


def test_the_history_a_sampler_sees_is_bounded():
    history = [past(n, TrialState.FINISHED, float(n % 500)) for n in range(2000)]
    history += [past(n, TrialState.RUNNING) for n in range(2000, 2020)]
    seen = Window(best=200, latest=800).of(history)
    numbers = [entry.trial for entry in seen]
    assert len(seen) == 1020 and numbers == sorted(numbers)
    assert set(range(1200, 2020)) <= set(numbers)
    older = [entry for entry in seen if entry.trial < 1200]
    # Of the trials 0 .. 1199 the best 200: losses 0 .. 66 three times (0-199 twice and a third).
    best = sorted(history[:1200], key=lambda entry: (entry.loss, entry.trial))[:200]
    assert sorted(older, key=lambda entry: entry.trial) == sorted(best, key=lambda e: e.trial)


def test_a_short_history_is_seen_whole():
    history = [past(n, TrialState.STOPPED, None, (1.0,)) for n in range(1000)]
    assert Window(best=200, latest=800).of(history) == history


def test_trial_states_are_mapped_to_optuna():
    space = contract_space()

    def told(state, loss=None, reports=()):
        trial = via_optuna.frozen_trial(space, past(3, state, loss, reports))
        return trial.state, trial.value, trial.intermediate_values

    assert told(TrialState.WAITING) == (OptunaState.RUNNING, None, {})
    assert told(TrialState.RUNNING, None, (5.0,)) == (OptunaState.RUNNING, None, {})
    assert told(TrialState.FINISHED, 2.0, (5.0,)) == (OptunaState.COMPLETE, 2.0, {0: 5.0})
    assert told(TrialState.STOPPED, None, (5.0, 4.0)) == (
        OptunaState.PRUNED,
        None,
        {0: 5.0, 1: 4.0},
    )
    assert told(TrialState.UNFINISHED, None, (5.0,)) == (OptunaState.PRUNED, None, {0: 5.0})
    assert told(TrialState.DIVERGED, None, (5.0,)) == (OptunaState.PRUNED, None, {})
    assert told(TrialState.FAILED, None, (5.0,)) == (OptunaState.FAIL, None, {})


def corner(trial, share, state, loss=None):
    """A trial whose learning rate lies at `share` of the axis."""
    space = samples.study().space
    rate = 10 ** (-5 + 5 * share)
    return PriorTrial(trial, space.complete({"learning_rate": rate}), {}, state, loss)


def test_tpe_moves_towards_good_trials_and_away_from_diverged_ones():
    space: Space = samples.study().space
    history = [
        corner(n, (n % 10) / 10, TrialState.FINISHED, abs((n % 10) / 10 - 0.3)) for n in range(40)
    ]
    rates = [
        entry.params["learning_rate"]
        for entry in drawn(optuna_tpe.Tpe(SamplerSpec(space, 0, {})), 1, 20, history)
    ]
    near = sum(10**-4.25 < rate < 10**-2.75 for rate in rates)  # shares 0.15 to 0.45
    assert near >= 10  # random search would put 6 of them there
    wild = [
        corner(
            n,
            n / 40,
            TrialState.DIVERGED if n >= 20 else TrialState.FINISHED,
            1.0 if n < 20 else None,
        )
        for n in range(40)
    ]
    rates = [
        entry.params["learning_rate"]
        for entry in drawn(optuna_tpe.Tpe(SamplerSpec(space, 0, {})), 1, 20, wild)
    ]
    assert sum(rate > 10**-2.5 for rate in rates) <= 5


def test_tpe_spreads_out_around_running_trials():
    space = samples.study().space
    history = [
        corner(n, (n % 10) / 10, TrialState.FINISHED, abs((n % 10) / 10 - 0.3)) for n in range(40)
    ]

    def spread(options):
        found = drawn(optuna_tpe.Tpe(SamplerSpec(space, 1, options)), 1, 30, history)
        return len({round(entry.params["gamma"], 3) for entry in found})

    assert spread({}) >= spread({"constant_liar": False})


def test_every_optuna_option_exists_in_optuna():
    for sampler, options in (
        (optuna_tpe.TPESampler, METHODS["tpe"].options),
        (optuna_gp.GPSampler, METHODS["gp"].options),
        (optuna_nsga2.NSGAIISampler, METHODS["nsga2"].options),
    ):
        assert {field.key for field in options} <= set(
            inspect.signature(sampler.__init__).parameters
        )


@pytest.mark.parametrize(
    "method", ["random", "grid", "sobol", "tpe", "thompson", "gp", "cmaes", "nsga2", "smac"]
)
def test_every_sampler_works_with_its_default_options(method):
    row = METHODS[method]
    if row.package and find_spec(row.package) is None:
        pytest.skip(f"{row.package} is not installed")
    build = resolve_name(f"hpo.search.samplers.{row.build}")
    options = {field.key: field.default for field in row.options}
    found = build(SamplerSpec(contract_space(), 0, options)).begin(0, ()).draw(0, 0)
    assert contract_space().contains(found.params)


@pytest.mark.parametrize(
    ("method", "package"), [("gp", "torch"), ("cmaes", "cmaes"), ("smac", "smac")]
)
def test_a_missing_package_names_its_extra(monkeypatch, method, package):
    monkeypatch.setattr("hpo.search.samplers.registry.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=rf"needs.*{package}.*pip install .*\[{method}\]"):
        make_sampler(samples.study(method=method))


# ---------------------------------------------------------------- generations


def played(sampler, batches, size, loss_of):
    """Batches of which every trial ends before the next one begins."""
    seen = []
    for batch in range(batches):
        found = drawn(sampler, batch, size, seen)
        seen += [
            dataclasses.replace(past, state=TrialState.FINISHED, loss=loss_of(past.params))
            for past in found
        ]
    return seen


def distance(params):
    """From a learning rate of 1e-2 and a gamma of 0.99, in decades."""
    rate, rest = np.log10(params["learning_rate"]), np.log10(1.0 - params["gamma"])
    return float((rate + 2.0) ** 2 + (rest + 2.0) ** 2)


def test_cmaes_closes_in_on_the_best():
    pytest.importorskip("cmaes")
    spec = SamplerSpec(samples.study().space, 0, {})
    seen = played(via_cmaes.CmaEs(spec), 25, 6, distance)
    generations = [past.attributes["cmaes:generation"] for past in seen]
    assert generations == [n // 6 for n in range(150)]  # 4 + 3 ln 2 = 6
    first, last = (np.mean([past.loss for past in part]) for part in (seen[:12], seen[-12:]))
    assert last < 0.02 * first
    told = [past.attributes.get("cmaes:told") for past in seen]
    assert [n for n, record in enumerate(told) if record] == list(range(6, 150, 6))
    assert told[12]["trials"] == list(range(6, 12))
    assert told[12]["losses"] == [past.loss for past in seen[6:12]]


def test_cmaes_equals_library_with_same_reports():
    cmaes = pytest.importorskip("cmaes")
    sampler = via_cmaes.CmaEs(SamplerSpec(samples.study().space, 0, {}))
    seen = played(sampler, 8, 6, distance)
    theirs = cmaes.CMA(np.full(2, 0.5), 1 / 6, bounds=np.array([[0.0, 1.0]] * 2), seed=1)
    for first in range(0, 48, 6):
        group = seen[first : first + 6]
        theirs.tell([(np.array(p.attributes["cmaes:point"]), p.loss) for p in group])
    opened = sampler.begin(9, seen)
    assert np.array_equal(opened._strategy.cma.mean, theirs.mean)
    assert opened._strategy.cma._sigma == theirs._sigma


def test_cmaes_restarts_with_larger_population():
    pytest.importorskip("cmaes")
    spec = SamplerSpec(samples.study().space, 0, {})
    seen = played(via_cmaes.CmaEs(spec), 30, 6, lambda params: 1.0)  # flat: done soon
    sizes = [
        len(past.attributes["cmaes:told"]["trials"])
        for past in seen
        if "cmaes:told" in past.attributes
    ]
    assert sizes[0] == 6 and max(sizes) >= 12


def test_cmaes_with_many_pending_trials_uses_larger_generations():
    pytest.importorskip("cmaes")
    sampler = via_cmaes.CmaEs(SamplerSpec(samples.study().space, 0, {}))
    seen = played(sampler, 2, 32, distance)
    assert len(seen[32].attributes["cmaes:told"]["trials"]) == 16


@pytest.mark.parametrize(
    ("space", "changes", "words"),
    [
        (samples.FINITE, {}, None),
        (Space((samples.SIZES,)), {}, "this space has none"),
        (samples.REAL, {"options": {"popsize": 1}}, "popsize is 1"),
    ],
)
def test_cmaes_refuses_what_it_cannot_do(space, changes, words):
    pytest.importorskip("cmaes")
    spec = SamplerSpec(space, 0, changes.get("options", {}), changes.get("objectives", 1))
    if words is None:
        assert isinstance(via_cmaes.CmaEs(spec), via_cmaes.CmaEs)
        return
    with pytest.raises(ConfigError, match=words):
        via_cmaes.CmaEs(spec)


def test_a_method_of_one_objective_refuses_two(monkeypatch):
    monkeypatch.setattr("hpo.search.samplers.registry.find_spec", lambda name: name)
    two = samples.study(method="cmaes", objectives=(Metric(), Metric("eval/length_mean")))
    with pytest.raises(ConfigError, match=r"'cmaes' supports only one objective \(here: 2\)"):
        make_sampler(two)


def test_nsga2_breeds_from_the_better_half():
    spec = SamplerSpec(samples.study().space, 0, {"population_size": 10})
    seen = played(optuna_nsga2.Nsga2(spec), 20, 10, distance)
    assert [past.attributes["nsga2:generation"] for past in seen] == [n // 10 for n in range(200)]
    with_parents = [past for past in seen if "nsga2:parents" in past.attributes]
    assert [past.trial for past in with_parents] == list(range(10, 200, 10))
    # The parents of the second generation are the best ten of the first two.
    best = sorted(seen[:20], key=lambda past: past.loss)[:10]
    assert set(seen[20].attributes["nsga2:parents"]) == {past.trial for past in best}
    means = [np.mean([past.loss for past in part]) for part in (seen[:10], seen[-10:])]
    assert means[1] < 0.7 * means[0]


def test_trials_without_generation_count_in_nsga2():
    spec = SamplerSpec(samples.study().space, 0, {"population_size": 10})
    sampler = optuna_nsga2.Nsga2(spec)
    seen = [dataclasses.replace(past, attributes={}) for past in played(sampler, 1, 10, distance)]
    found = drawn(sampler, 1, 2, seen)
    assert [past.attributes["nsga2:generation"] for past in found] == [1, 1]


# ---------------------------------------------------------------- what never finished counts


def entry(trial, state, loss=None, reports=(), **more):
    return PriorTrial(trial, {}, {}, state, loss, reports, **more)


def test_stopped_trial_estimate_uses_median_gain():
    history = [
        entry(0, TrialState.FINISHED, 1.0, (5.0, 3.0)),
        entry(1, TrialState.FINISHED, 2.0, (8.0, 3.0)),
        entry(2, TrialState.FINISHED, 4.0, (6.0, 9.0)),
        entry(3, TrialState.STOPPED, None, (9.0,)),
        entry(4, TrialState.STOPPED, None, (9.0, 7.0)),
        entry(5, TrialState.STOPPED, None, (1.0,)),
        entry(6, TrialState.DIVERGED),
        entry(7, TrialState.FAILED, None, (0.0,)),
        entry(8, TrialState.UNFINISHED),
        entry(9, TrialState.RUNNING),
    ]
    # Gains from rung 0: -4, -6, -2, the median -4; from rung 1: -2, -1, -5, the median -2.
    # Trial 5 would beat the best with 1 - 4 = -3: it counts as much as the best, 1.
    assert estimates(history) == {
        0: (1.0,),
        1: (2.0,),
        2: (4.0,),
        3: (5.0,),
        4: (5.0,),
        5: (1.0,),
        6: (5.0,),
    }


def test_estimates_without_finished_trials_have_no_gain():
    history = [entry(0, TrialState.STOPPED, None, (9.0,)), entry(1, TrialState.DIVERGED)]
    assert estimates(history) == {0: (9.0,), 1: (9.0,)}
    assert estimates([entry(0, TrialState.DIVERGED)]) == {}


def test_each_objective_has_its_own_gain():
    history = [
        entry(0, TrialState.FINISHED, 1.0, (3.0,), more=(10.0,), more_reports=((2.0,),)),
        entry(1, TrialState.STOPPED, None, (4.0,), more_reports=((3.0,),)),
    ]
    assert estimates(history)[1] == (2.0, 11.0)


def test_infeasible_trials_rank_below_feasible_ones():
    history = [
        entry(0, TrialState.FINISHED, 1.0, violations=(3.0,)),
        entry(1, TrialState.FINISHED, 5.0, violations=(-1.0,)),
        entry(2, TrialState.FINISHED, 2.0, violations=(0.5,)),
    ]
    seen = penalised(estimates(history), history)
    assert seen[1] == (5.0,) and seen[0] > seen[2] > seen[1]


def test_refused_draws_count_as_running_until_one_is_kept():
    space = samples.study().space
    known = via_optuna.frozen_trial(space, corner(0, 0.5, TrialState.FINISHED, 1.0))
    storage = HistoryStorage([StudyDirection.MINIMIZE], [known])
    method = optuna_gp.Gp(SamplerSpec(space, 3, {}))
    batch = optuna_gp.GpBatch(method, RandomSampler(seed=0), storage, 0)

    def numbers():
        return [trial.number for trial in storage.get_all_trials(0, deepcopy=False)]

    for attempt in range(3):
        batch.draw(1, attempt)
    assert numbers() == [0, 1, 2, 3]  # two refused ones and the last draw
    batch.keep(1, space.default())
    assert numbers() == [0, 1]
    for attempt in range(12):
        last = batch.draw(2, attempt)
    assert len(numbers()) == 2 + 8 and space.contains(last.params)
    batch.draw(2, 0)
    assert numbers() == [0, 1, 2]
