import dataclasses

import numpy as np
import pytest

from hpo.core.metrics import Metrics, joined, split_rows

K, LANES = 5, 3
OTHERS = ("features", "env", "diverged")
NAMES = [name for name in Metrics.__dataclass_fields__ if name not in OTHERS]


@pytest.fixture(scope="module")
def chunk():
    """A chunk in which lane 0 ended no episode and lane 2 diverged once."""
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=(K, LANES)).astype(np.float32) for name in NAMES}
    values["episodes"] = rng.integers(0, 4, size=(K, LANES)).astype(np.float32)
    values["episodes"][:, 0] = 0.0
    for name in ("episode_return", "episode_length"):
        values[name] *= values["episodes"] > 0  # sums over no episode
    diverged = np.zeros((K, LANES), bool)
    diverged[2, 2] = True
    env = {"blocking": rng.random((K, LANES)).astype(np.float32)}
    own = ("average_reward", "valid_mass_min", "valid_mass_max", "invalid_actions",
           "valid_actions_min", "valid_actions_max", "all_actions_valid",
           "choice_fraction")  # fmt: skip
    features = {name: rng.normal(size=(K, LANES)).astype(np.float32) for name in own}
    others = {"diverged": diverged, "features": features, "env": env}
    children = [others.get(name, values.get(name)) for name in Metrics.__dataclass_fields__]
    metrics = object.__new__(Metrics)  # host arrays, which `__init__` does not take in tests
    for field, child in zip(dataclasses.fields(Metrics), children, strict=True):
        object.__setattr__(metrics, field.name, child)
    (row,), diverged = split_rows(metrics, ())
    return metrics, row, diverged


def test_metrics_have_one_number_per_lane(chunk):
    _, rows, _ = chunk
    assert set(rows) == {*NAMES, *chunk[0].features, "env/blocking"}
    assert all(row.shape == (LANES,) and row.dtype == np.float64 for row in rows.values())


def test_episodes_are_averaged_over_the_chunk(chunk):
    metrics, rows, _ = chunk
    for lane in range(LANES):
        count = sum(float(metrics.episodes[k, lane]) for k in range(K))
        assert rows["episodes"][lane] == count
        for name in ("episode_return", "episode_length"):
            total = sum(float(getattr(metrics, name)[k, lane]) for k in range(K))
            if count:
                assert rows[name][lane] == pytest.approx(total / count)
            else:
                assert np.isnan(rows[name][lane])


@pytest.mark.parametrize("name", ["ratio_min", "ratio_max", "ratio_start_error", "log_prob_min"])
def test_extremes_stay_extremes(chunk, name):
    metrics, rows, _ = chunk
    pick = min if name.endswith("_min") else max
    for lane in range(LANES):
        assert rows[name][lane] == pick(float(x) for x in getattr(metrics, name)[:, lane])


@pytest.mark.parametrize(
    "name",
    [
        "param_norm",
        "policy_std",
        "learning_rate",
        "vf_learning_rate",
        "clip_eps",
        "ent_coef",
        "gae_lambda",
        "explained_variance",
    ],
)
def test_scheduled_values_and_norms_come_from_the_last_update(chunk, name):
    metrics, rows, _ = chunk
    np.testing.assert_array_equal(rows[name], getattr(metrics, name)[-1])


@pytest.mark.parametrize(
    "name",
    [
        "loss",
        "policy_loss",
        "value_loss",
        "entropy",
        "approx_kl",
        "clip_fraction",
        "ratio_mean",
        "ratio_std",
        "early_stopped",
        "value_target_mean",
        "advantage_mean",
        "advantage_std",
        "grad_norm",
        "reward_mean",
        "log_prob",
        "value_mean",
        "normalised_advantage_mean",
    ],
)
def test_other_metrics_are_chunk_means(chunk, name):
    metrics, rows, _ = chunk
    for lane in range(LANES):
        mean = sum(float(x) for x in getattr(metrics, name)[:, lane]) / K
        assert rows[name][lane] == pytest.approx(mean)


def test_feature_metrics_are_aggregated_by_their_kind(chunk):
    metrics, rows, _ = chunk
    seen = {name: np.asarray(value, np.float64) for name, value in metrics.features.items()}
    np.testing.assert_array_equal(rows["average_reward"], seen["average_reward"][-1])
    np.testing.assert_array_equal(rows["valid_mass_min"], seen["valid_mass_min"].min(axis=0))
    np.testing.assert_array_equal(rows["valid_mass_max"], seen["valid_mass_max"].max(axis=0))
    for name in ("valid_actions_min", "all_actions_valid"):
        np.testing.assert_array_equal(rows[name], seen[name].min(axis=0))
    np.testing.assert_array_equal(rows["valid_actions_max"], seen["valid_actions_max"].max(axis=0))
    for name in ("invalid_actions", "choice_fraction"):
        np.testing.assert_allclose(rows[name], seen[name].mean(axis=0))


def test_env_metrics_carry_a_prefix(chunk):
    metrics, rows, _ = chunk
    np.testing.assert_allclose(rows["env/blocking"], metrics.env["blocking"].mean(0), rtol=1e-6)


def test_lane_is_diverged_if_any_update_diverged(chunk):
    _, _, diverged = chunk
    np.testing.assert_array_equal(diverged, [False, False, True])


def test_split_rows_use_only_their_own_updates(chunk):
    """The parts of a chunk are what chunks of these updates would have shown."""
    metrics, _, diverged = chunk
    rows, same = split_rows(metrics, (2, 3, K))
    np.testing.assert_array_equal(same, diverged)
    for first, end, row in zip((0, 0, 2, 3), (K, 2, 3, K), rows, strict=True):
        part = object.__new__(Metrics)
        for field in dataclasses.fields(Metrics):
            value = getattr(metrics, field.name)
            cut = {n: x[first:end] for n, x in value.items()} if isinstance(value, dict) else None
            object.__setattr__(part, field.name, value[first:end] if cut is None else cut)
        alone = split_rows(part, ())[0][0]
        assert set(row) == set(alone)
        for name in row:
            np.testing.assert_array_equal(row[name], alone[name], err_msg=name)


def test_joined_metric_parts_equal_the_whole_chunk(chunk):
    """Rows of 2, 1 and 2 updates joined are the row of all 5, with episodes and without."""
    metrics, whole, _ = chunk
    _, *parts = split_rows(metrics, (2, 3, K))[0]
    for lane in range(LANES):
        one, two, three = ({n: float(v[lane]) for n, v in part.items()} for part in parts)
        row = joined(joined(one, two, 2.0), three, 3.0 / 2.0)
        for name, value in row.items():
            np.testing.assert_allclose(value, whole[name][lane], rtol=1e-12, err_msg=name)
