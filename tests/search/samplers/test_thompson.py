"""Thompson sampling: its model against dense Gaussians, and what it proposes."""

import dataclasses

import numpy as np
import pytest

from helpers import search_samples as samples
from hpo.search.run import run
from hpo.search.samplers import thompson, without_model
from hpo.search.samplers.registry import PriorTrial, SamplerSpec
from hpo.spaces import Condition, Parameter, Space, make_distribution
from hpo.store.rows import TrialState
from hpo.studies.search_methods import METHODS
from hpo.testing.search import RegisteredSamplerContract, SamplerContract, contract_space

FINISHED, STOPPED = TrialState.FINISHED, TrialState.STOPPED


class TestThompson(RegisteredSamplerContract):
    name = "thompson"


class TestThompsonOfTwo(SamplerContract):
    def make(self, space, seed):
        return thompson.Thompson(SamplerSpec(space, seed, {}, objectives=2, constraints=1))

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


# ---------------------------------------------------------------- the model


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_posterior_equals_dense_gaussian(seeds):
    rng = np.random.default_rng(seeds)
    trials, linear = 14, 4
    phi = np.hstack([np.ones((trials, 1)), rng.normal(size=(trials, 8))])
    y, extra = rng.normal(size=(trials, seeds)), rng.random(trials) * (rng.random(trials) < 0.4)
    if seeds > 1:
        y[rng.permutation(trials)[:5], -1] = np.nan  # some have fewer seeds
    model = thompson.fit(y, extra, phi, linear)
    # One row for every value there is: its own features, seed and configuration.
    trial, seed = np.nonzero(~np.isnan(y))
    same = trial[:, None] == trial
    design = np.hstack([phi[trial], np.eye(seeds)[seed]])
    prior = np.diag(np.r_[1.0 / model.prior, np.full(seeds, model.seed)])
    covariance = same * model.own[trial] + model.noise * np.eye(len(trial))
    gain = prior @ design.T @ np.linalg.inv(design @ prior @ design.T + covariance)
    np.testing.assert_allclose(model.mean, gain @ y[trial, seed], rtol=1e-6, atol=1e-8)
    posterior = np.linalg.inv(model.root @ model.root.T)
    np.testing.assert_allclose(posterior, prior - gain @ design @ prior, rtol=1e-6, atol=1e-7)


def test_draws_have_the_mean_and_the_covariance_of_the_posterior():
    rng = np.random.default_rng(0)
    phi = np.hstack([np.ones((20, 1)), rng.normal(size=(20, 3))])
    model = thompson.fit(rng.normal(size=(20, 2)), np.zeros(20), phi, 3)
    drawn = np.array([model.draw(rng) for _ in range(20_000)])
    covariance = np.linalg.inv(model.root @ model.root.T)[:4, :4]
    error = np.sqrt(np.diag(covariance) / len(drawn))
    assert (np.abs(drawn.mean(0) - model.mean[:4]) < 4.0 * error).all()
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.05 * covariance.max())


def test_estimated_variances_equal_simulated_ones():
    """400 configurations, 3 seeds: noise 0.25, seeds' effects as drawn, the rest as drawn."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 2))
    phi = np.hstack([np.ones((400, 1)), x, x**2])
    effect = np.array([-1.0, 0.0, 1.0])
    y = (x.sum(1) + rng.normal(size=400))[:, None] + effect + 0.5 * rng.normal(size=(400, 3))
    model = thompson.fit(y, np.zeros(400), phi, 3)
    assert model.noise == pytest.approx(0.25, rel=0.15)
    # Effects -1, 0, 1 have a mean square of 2/3; the prior is 2 of 5 and 0.3 of the noise.
    assert model.seed == pytest.approx((3 * 2 / 3 + 2 * 0.3 * 0.25) / 5, rel=0.1)
    assert model.own.mean() == pytest.approx(0.4 * 3.0, rel=0.15)  # of 2 + 1
    assert model.mean[1:3] == pytest.approx([1.0, 1.0], abs=0.2)


def test_all_equal_values_are_accepted():
    space = contract_space()
    history = [PriorTrial(n, space.default(), state=FINISHED, loss=1.0) for n in range(6)]
    batch = thompson.Thompson(SamplerSpec(space, 0, {})).begin(1, history)
    assert space.contains(batch.draw(6, 0).params)


# ---------------------------------------------------------------- what trials count for


def past(trial, loss=None, reports=(), state=FINISHED, **more):
    return PriorTrial(trial, {}, state=state, loss=loss, reports=reports, **more)


def means(history):
    found = thompson.results_of(history)
    return {trial: pytest.approx(float(one.losses.mean())) for trial, one in found.items()}


@pytest.mark.filterwarnings("error")
def test_rounding_errors_of_equal_values_are_not_scaled_up():
    """Most trials fail alike, and the mean of three equal values may be a rounding error away."""
    rng = np.random.default_rng(0)
    for value in rng.normal(-200.0, 100.0, 200):
        bad = [thompson.Result(np.full((3, 1), value), np.zeros(1)) for _ in range(9)]
        worse = [thompson.Result(np.full((3, 1), value + 50.0), np.zeros(1))]
        y, extra = thompson.weighed([*bad, *worse], np.ones(1))
        phi = np.hstack([np.ones((10, 1)), rng.normal(size=(10, 3))])
        assert np.isfinite(thompson.fit(y, extra, phi, 4).mean).all()
        assert y[9].mean() < y[:9].mean()


def test_stopped_trials_are_extrapolated_by_regression():
    """At the rung x = -1, 0, 1 and at the end y = -3, 0, 3: sum xy = 6, sum xx = 2.

    Two more trials of slope 1, of mean square 2/3: (6 + 4/3) / (2 + 4/3) = 2.2, cut at 1.5.
    """
    history = [past(n, 3.0 * n - 3.0, (n - 1.0,)) for n in range(3)]
    history.append(past(3, None, (4.0,), STOPPED))
    results = thompson.results_of(history)
    assert results[3].losses == pytest.approx(6.0)
    # Residuals -1.5, 0, 1.5; mean square of y is 6: (4.5 + 2 * 6) / 5.
    assert results[3].extra == pytest.approx(3.3) and results[0].extra == 0.0
    history[:3] = [past(n, 0.5 * n, (n - 1.0,)) for n in range(3)]
    # sum xy = 1: (1 + 4/3) / (2 + 4/3) = 0.7.
    assert thompson.results_of(history)[3].losses == pytest.approx(0.5 + 0.7 * 4.0)


def test_model_needs_two_finished_trials_and_four_values():
    history = [past(0, 1.0, (2.0,)), *(past(n, None, (3.0,), STOPPED) for n in range(1, 9))]
    assert thompson.results_of(history) == {}
    assert len(thompson.results_of([*history, past(9, 0.0, (1.0,))])) == 10
    assert thompson.results_of([past(n, 1.0) for n in range(3)]) == {}
    stuck = [past(n, None, (), TrialState.DIVERGED) for n in range(3, 9)]
    assert thompson.results_of([*(past(n, 1.0) for n in range(3)), *stuck]) == {}


def test_diverged_and_infeasible_trials_count_as_worst():
    history = [past(n, float(n)) for n in range(4)]
    history += [past(4, None, (9.0,), TrialState.DIVERGED), past(5, None, (), TrialState.FAILED)]
    assert means(history) == {0: 0.0, 1: 1.0, 2: 2.0, 3: 3.0, 4: 3.0, 5: 3.0}
    history[0] = past(0, 0.0, violations=(1.0,))
    assert thompson.results_of(history)[0].losses.item() > 3.0


def test_seed_losses_are_centred_on_trial_loss():
    history = [past(n, float(n), seeds=(5.0, 7.0)) for n in range(4)]
    assert thompson.results_of(history)[2].losses.tolist() == [[1.0], [3.0]]


def test_sampler_receives_seeds_of_finished_and_stopped_trials(tmp_path, monkeypatch):
    shown, original = {}, thompson.results_of

    def results_of(history):
        shown.update({past.trial: past for past in history})
        return original(history)

    monkeypatch.setattr(thompson, "results_of", results_of)
    study = samples.study(method="thompson", budget=samples.Budget(trials=40))
    run(study, tmp_path / "s", samples.AnalyticFactory(lanes=4), (), samples.quick())
    finished = [past for past in shown.values() if past.state is FINISHED]
    stopped = [past for past in shown.values() if past.state is STOPPED]
    assert len(finished) > 1 and len(stopped) > 2
    assert all(np.mean(past.seeds) == pytest.approx(past.loss) for past in finished)
    assert all(len(past.seeds) == 2 for past in (*finished, *stopped))
    assert not any(past.seeds for past in shown.values() if past.is_live)
    assert sum(past.proposed_by == "thompson" for past in shown.values()) > 10


def test_differences_below_median_are_compressed():
    results = [thompson.Result(np.array([[loss]]), np.zeros(1)) for loss in (0.0, 1, 2, 3, 1e9)]
    value, extra = thompson.weighed(results, np.ones(1))
    drops = -np.diff(value[:, 0])
    assert (drops > 0).all() and (extra == 0.0).all()
    assert drops[0] == pytest.approx(drops[1]) and drops[2] < drops[1] < drops[3] < 50 * drops[1]


# ---------------------------------------------------------------- coordinates


def test_features_cover_every_parameter_kind():
    def parameter(name, when=(), **fields):
        distribution = make_distribution(fields)
        return Parameter(name, distribution, distribution.middle(), when)

    space = Space(
        (
            parameter("rate", min=1e-4, max=1.0, distribution="log_uniform"),
            parameter("net", values=["mlp", "cnn", "rnn"]),
            parameter(
                "cells", (Condition("net", ("rnn",)),), min=1, max=4, distribution="int_uniform"
            ),
            parameter("width", min=16, max=128, distribution="pow2"),
        )
    )
    of = thompson.Coordinates(space)
    # rate; cnn, rnn; cells, cells inactive; width (four parts, its middle the third).
    assert of.default.tolist() == pytest.approx([0.5, 0, 0, 0.625, 1, 0.625])
    other = {"rate": 1e-3, "net": "rnn", "cells": 1, "width": 128}
    assert of.of(other).tolist() == pytest.approx([0.25, 0, 1, 0.125, 0, 0.875])
    # 1, six columns, squares of rate, cells and width, fifteen products.
    assert of.features([of.of(other)]).shape == (1, 25)
    assert not of.features([of.default])[0, 1:].any()


# ---------------------------------------------------------------- proposals


def proposals(space, history, count=200, **options):
    batch = thompson.Thompson(SamplerSpec(space, 0, options)).begin(1, history)
    return [batch.draw(trial, 0).params for trial in range(1000, 1000 + count)]


def test_without_a_model_proposals_are_near_the_default():
    unit = make_distribution({"min": 0.0, "max": 1.0, "distribution": "uniform"})
    space = Space((Parameter("x", unit, 0.0),))
    narrow = np.array([p["x"] for p in proposals(space, [], width=0.1, floor=0.0)])
    assert np.sqrt((narrow**2).mean()) == pytest.approx(0.1, rel=0.2)  # half a Gaussian
    wide = np.array([p["x"] for p in proposals(space, [], width=0.1, floor=1.0)])
    assert 0.3 < wide.mean() < 0.5


def test_each_proposal_in_batch_uses_a_separate_posterior_draw():
    rng = np.random.default_rng(0)
    space = samples.REAL
    history = [
        PriorTrial(n, space.sample(rng), state=FINISHED, loss=rng.random()) for n in range(8)
    ]
    found = {space.canonical(params) for params in proposals(space, history, count=30)}
    assert len(found) > 25  # the engine has the next best for a repeated one
    alone = thompson.Thompson(SamplerSpec(space, 0, {})).begin(1, history)
    assert alone.draw(1007, 0).params == proposals(space, history, count=8)[7]


def test_choices_and_conditional_parameters_are_learnt():
    space = contract_space()
    rng = np.random.default_rng(2)

    def loss(params):
        if params["network"] == "mlp":
            return 1.0
        return {1: 0.6, 2: 0.3, 4: 0.0}[params["transformer_heads"]]

    drawn = [space.sample(rng) for _ in range(40)]
    history = [
        PriorTrial(n, params, state=FINISHED, loss=loss(params)) for n, params in enumerate(drawn)
    ]
    found = proposals(space, history, count=60)
    assert all(space.contains(params) for params in found)
    losses = [loss(params) for params in found]
    assert losses.count(0.0) > 30  # one in six at random
    infeasible = [dataclasses.replace(one, violations=(1.0 - 2.0 * one.loss,)) for one in history]
    batch = thompson.Thompson(SamplerSpec(space, 0, {}, constraints=1)).begin(1, infeasible)
    kept = [loss(batch.draw(trial, 0).params) >= 0.5 for trial in range(1000, 1060)]
    assert sum(kept) > 45  # two in three at random


def bowl(build, seed, dimensions=8, trials=60, lanes=4, noise=0.1):
    """Return the true loss of the best of a search by the means of two noisy seeds."""
    unit = make_distribution({"min": 0.0, "max": 1.0, "distribution": "uniform"})
    names = [f"x{n}" for n in range(dimensions)]
    rng = np.random.default_rng([seed, 7])
    middle, turn = rng.uniform(0.2, 0.8, dimensions), rng.normal(size=(dimensions, dimensions))
    bend = turn @ turn.T / dimensions + np.eye(dimensions)
    sampler = build(SamplerSpec(Space(tuple(Parameter(n, unit, 0.5) for n in names)), seed, {}))
    history, truth = [], {}
    for batch in range(trials // lanes):
        opened = sampler.begin(batch, history)
        for trial in range(batch * lanes, (batch + 1) * lanes):
            params = opened.draw(trial, 0).params
            z = np.array([params[name] for name in names]) - middle
            truth[trial] = float(z @ bend @ z)
            seeds = truth[trial] + noise * rng.normal(size=2)
            loss = float(seeds.mean())
            history.append(
                PriorTrial(trial, params, state=FINISHED, loss=loss, seeds=tuple(seeds))
            )
    return truth[min(history, key=lambda one: one.loss).trial]


def test_thompson_beats_random_search_on_noisy_bowl():
    ours = [bowl(thompson.Thompson, seed) for seed in range(30)]
    random = [bowl(without_model.RandomSearch, seed) for seed in range(30)]
    assert np.mean(ours) < 0.75 * np.mean(random)


def test_thompson_is_a_registered_method():
    assert METHODS["thompson"].learns_from_results and not METHODS["thompson"].package
