"""The documented examples and others pass the contracts; ones that break a promise do not."""

import jax.numpy as jnp
import optax
import pytest

from helpers.doc_blocks import block
from hpo.core import distributions, own_optimisers
from hpo.core.distributions import CategoricalActions, Family, Gaussian
from hpo.core.envs.registry import make
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.policy import environment_action
from hpo.errors import ConfigError
from hpo.knobs import check_value, known_choices
from hpo.testing.learners import DistributionContract, OptimiserContract

pytestmark = pytest.mark.usefixtures("quickly_compiled")

PAGE = "docs/ppo.md"
SHOWN = block(PAGE, "class TestLion(").run()


def documented(name, words):
    """Run an example of docs/ppo.md, once a process."""
    if name not in {*known_choices("optimiser"), *known_choices("distribution")}:
        block(PAGE, words).run()


class TestLion(SHOWN["TestLion"]):
    """The example of docs/ppo.md, by the test there."""

    @classmethod
    def run(cls, rates, **knobs):
        documented("lion", "def lion(")
        return super().run(rates, **knobs)

    def test_its_state_is_arrays_that_keep_their_shape(self):
        documented("lion", "def lion(")
        super().test_its_state_is_arrays_that_keep_their_shape()

    def test_no_gradient_gives_finite_parameters(self):
        documented("lion", "def lion(")
        super().test_no_gradient_gives_finite_parameters()


class TestAdamL2(OptimiserContract):
    optimiser = "adam_l2"


class TestLaplace(SHOWN["TestLaplace"]):
    """The example of docs/ppo.md, by the test there."""

    @classmethod
    def plan(cls):
        documented("laplace", "class LaplaceFamily(")
        return super().plan()


class TestBeta(DistributionContract):
    distribution = "beta"


class Floored(Family):
    """Choices of which none is ever quite left out: head's probabilities mixed with equal ones."""

    actions = "discrete"

    def make(self, outputs, actions, mask, log_std):
        probs = jnp.exp(CategoricalActions.make(outputs, mask).log_probs)
        valid = jnp.ones_like(probs, bool) if mask is None else jnp.broadcast_to(mask, probs.shape)
        valid = valid | ~jnp.any(valid, axis=-1, keepdims=True)
        weight = valid.astype(jnp.float32)
        mixed = 0.9 * probs + 0.1 * weight / jnp.sum(weight, axis=-1, keepdims=True)
        return CategoricalActions(jnp.log(jnp.maximum(mixed, 1e-20)))


def once(name, family):
    if name not in known_choices("distribution"):
        distributions.register(name, family)


class TestFloored(DistributionContract):
    distribution = "test-floored"
    env = EnvPlan("CartPole-v1")

    @classmethod
    def plan(cls):
        once("test-floored", Floored())
        return super().plan()


class Boastful(Family):
    """Samples from a distribution narrower than its density says; its entropy is the first's."""

    def make(self, outputs, actions, mask, log_std):
        wide = Gaussian(outputs, jnp.full_like(outputs, 0.3))
        narrow = Gaussian(outputs, jnp.zeros_like(outputs))

        class Both:
            def sample(self, noise):
                return narrow.sample(noise)

            def log_prob(self, action):
                return wide.log_prob(action)

            def entropy(self, noise=None):
                return narrow.entropy()

            def mode(self):
                return narrow.mode()

        return Both()


def test_distribution_contract_rejects_a_wrong_density():
    once("test-boastful", Boastful())

    class Contract(DistributionContract):
        distribution = "test-boastful"

    with pytest.raises(AssertionError):
        Contract().test_samples_follow_the_density()
    with pytest.raises(AssertionError, match="is not that of log_prob"):
        Contract().test_the_entropy_is_minus_the_mean_of_log_probabilities()


def remembering(settings):
    return optax.inject_hyperparams(optax.sgd)(learning_rate=settings.learning_rate)


def growing(settings):
    def update(gradient, state, params=None):
        return gradient, jnp.concatenate([state, state])

    return optax.GradientTransformation(lambda params: jnp.zeros(1), update)


def test_optimiser_contract_rejects_broken_optimisers():
    for name, factory in (("test-remembers", remembering), ("test-grows", growing)):
        if name not in known_choices("optimiser"):
            own_optimisers.register(name, factory)

    class Remembers(OptimiserContract):
        optimiser = "test-remembers"

    class Grows(OptimiserContract):
        optimiser = "test-grows"

    with pytest.raises(AssertionError, match="learning rate"):
        Remembers().test_the_learning_rate_of_each_step_reaches_it()
    with pytest.raises(ConfigError, match="`init` and `update` must agree on all three"):
        Grows().test_its_state_is_arrays_that_keep_their_shape()


def test_taken_and_unknown_optimiser_names_are_refused():
    documented("lion", "def lion(")
    documented("laplace", "class LaplaceFamily(")
    for name in ("adam", "lion"):
        with pytest.raises(ConfigError, match=f"optimiser '{name}' is already registered"):
            own_optimisers.register(name, remembering)
    for name in ("beta", "laplace"):
        with pytest.raises(ConfigError, match=f"distribution '{name}' is already registered"):
            distributions.register(name, Family())
    with pytest.raises(ConfigError, match="did you mean 'lion'"):
        check_value("optimiser", "lio")
    with pytest.raises(ConfigError, match="did you mean 'laplace'"):
        check_value("distribution", "laplac")

    class Odd(Family):
        actions = "odd"

    with pytest.raises(ConfigError, match="allowed: discrete, multi_discrete, continuous"):
        distributions.register("test-odd", Odd())
    assert "test-odd" not in known_choices("distribution")


def test_custom_distribution_for_other_action_types_is_refused():
    from hpo.core.envs import registry
    from hpo.core.plan import make_plan
    from hpo.core.policy import head_outputs

    documented("laplace", "class LaplaceFamily(")
    plan = make_plan({"distribution": "laplace"}, EnvPlan("CartPole-v1"), features=())
    with pytest.raises(ConfigError, match="'laplace', which does not fit the actions of CartPole"):
        head_outputs(plan, registry.make(plan.env))


class Halving(Family):
    """A Gaussian whose actions the environment takes half of, within the box of the knobs."""

    def make(self, outputs, actions, mask, log_std):
        return Gaussian(outputs, jnp.zeros_like(outputs))

    def environment_action(self, action, actions):
        return 0.5 * action


@pytest.mark.parametrize(
    ("name", "ranged", "wanted"),
    [
        ("laplace", {}, [-3.0, 0.5, 2.5]),
        ("test-halving", {}, [-1.5, 0.25, 1.25]),
        ("test-halving", {"action_low": -1.0, "action_high": 1.0}, [-1.0, 0.25, 1.0]),
    ],
)
def test_env_actions_use_the_custom_distribution_mapping(name, ranged, wanted):
    documented("laplace", "class LaplaceFamily(")
    once("test-halving", Halving())
    plan = make_plan({"distribution": name, **ranged}, EnvPlan("Pendulum-v1"))
    env = make(EnvPlan("Pendulum-v1"))
    given = jnp.asarray([[-3.0], [0.5], [2.5]], jnp.float32)
    assert environment_action(plan, env, given).ravel().tolist() == wanted
