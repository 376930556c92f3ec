"""The table of scores that normalise environments, and what it does to a return."""

from __future__ import annotations

import math

import pytest

from hpo.environments.registry import REFERENCES, Reference, normalised, reference_of
from hpo.environments.table import ENVIRONMENTS
from hpo.errors import ConfigError

LEAST = {
    *("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"),
    *("Breakout-MinAtar", "Asterix-MinAtar", "Freeway-MinAtar", "Catch-bsuite"),
    *("SpaceInvaders-MinAtar", "rsa", "rmsa", "deeprmsa"),
}


def test_reference_scores_name_a_known_env_and_source() -> None:
    assert {id_ for id_, _ in REFERENCES} >= LEAST
    for (id_, metric), scale in REFERENCES.items():
        known = ENVIRONMENTS[id_]
        blocking = known.source == "optical"
        assert metric == f"eval/{'service_blocking_probability' if blocking else 'return_mean'}"
        assert scale.source
        assert scale.random_episodes >= 32
        assert (scale.env_steps > 0) == scale.source.startswith("PPO")
        assert (scale.reference > scale.random) != blocking


def test_normalised_score_is_0_at_random_and_1_at_reference() -> None:
    scale = Reference(random=-200.0, reference=-120.0)
    assert [normalised(v, scale) for v in (-200.0, -140.0, -120.0, -80.0)] == [0, 0.75, 1, 1.5]
    blocked = Reference(random=0.4, reference=0.2)
    assert normalised(0.3, blocked) == pytest.approx(0.5)
    assert math.isnan(normalised(math.nan, scale))
    assert normalised(-math.inf, scale) == -math.inf


def test_reference_with_equal_scores_is_refused() -> None:
    with pytest.raises(ConfigError, match="both 3; give two different scores"):
        Reference(random=3.0, reference=3.0)
    with pytest.raises(ConfigError, match="finite"):
        Reference(random=math.nan, reference=3.0)


def test_unmeasured_env_or_metric_has_no_reference() -> None:
    assert reference_of("Seaquest-MinAtar") is None
    assert reference_of("CartPole-v1", "eval/length_mean") is None
