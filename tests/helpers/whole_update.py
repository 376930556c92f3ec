"""Whole updates: compiled ones of a few lanes, and what they should have been, in NumPy.

Everything after the rollout is computed anew in float64 loops, gradients by
central differences; only random numbers come from the core's keys.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import slow
from hpo.core.envs import registry
from hpo.core.epochs import PRIORITY, SHUFFLE
from hpo.core.hypers import make_hypers
from hpo.core.lane_state import use_key
from hpo.core.minibatches import permutation
from hpo.core.plan import make_plan
from hpo.core.population import init_lane
from hpo.core.pytree import stack
from hpo.core.rollout import rollout
from hpo.core.update import learn
from hpo.knobs import complete

TOTAL = 5  # updates of a full run


class Updates:
    """A compiled update of some lanes, which also gives the rollout that it made."""

    def __init__(self, where, static, features):
        self.static = static
        self.plan = make_plan(static, where, features=features)
        self.params = registry.make(where).default_params

        def start(args):
            hypers, replicate, updates = args
            many = jnp.int32(TOTAL)
            return init_lane(
                self.plan, jnp.int32(3), hypers, jnp.int32(0), replicate, updates, many
            )

        def both(hypers, state):
            rolled = rollout(self.plan, hypers, state)
            return learn(self.plan, hypers, rolled), rolled.trajectory, rolled.last_value

        self._start = jax.jit(lambda *args: jax.lax.map(start, args))
        self.both = jax.jit(both)

    def begin(self, lanes, first=0, replicates=None):
        """Return hyperparameters and fresh states of lanes with these knobs."""
        replicates = range(len(lanes)) if replicates is None else replicates
        rows = [make_hypers({**self.static, **k}, self.params, self.params) for k in lanes]
        hypers = stack(rows)
        updates = np.full(len(lanes), first, np.int32)
        return hypers, self._start(hypers, np.asarray(replicates, np.int32), updates)

    def run(self, lanes, count, first=0, replicates=None):
        """Return (state before, state after, metrics, trajectory, last value) an update."""
        hypers, state = self.begin(lanes, first, replicates)
        rows = []
        for _ in range(count):
            (after, metrics), trajectory, last = self.both(hypers, state)
            rows.append(jax.device_get((state, after, metrics, trajectory, last)))
            state = after
        return rows

    def check(self, given, row, lane, kl_limit=math.inf):
        """Compare one update of one lane; gives the KL of each gradient step taken."""
        before, after, metrics, trajectory, last = lane_of(row, lane)
        expected = Expected(self.plan, {**self.static, **given}, before, after, trajectory, last)
        params, numbers, kls = expected.update(kl_limit)
        for made, leaf in zip(slow.leaves(after.params), slow.leaves(params), strict=True):
            np.testing.assert_allclose(made, leaf, rtol=1e-3, atol=1e-4)
        shown = {name: getattr(metrics, name) for name in type(metrics).__dataclass_fields__}
        shown |= metrics.features
        for name, number in numbers.items():
            assert float(shown[name]) == pytest.approx(number, rel=2e-3, abs=2e-4), name
        if expected.knobs["normalise_rewards"]:
            np.testing.assert_allclose(
                after.discounted_return, expected.running, rtol=1e-4, atol=1e-4
            )
        assert int(after.updates) == int(before.updates) + 1
        assert int(after.gradient_steps) == int(before.gradient_steps) + expected.taken
        off_policy = expected.knobs["off_policy_masking"]
        assert not metrics.diverged and (off_policy or metrics.ratio_start_error <= 1e-6)
        return kls


def lane_of(row, lane):
    """Return one lane of what `Updates.run` gives; trajectories lead with time."""
    axes = (0, 0, 0, 1, 0)
    return [
        jax.tree.map(lambda x, a=axis: np.take(x, lane, axis=a), tree)
        for tree, axis in zip(row, axes, strict=True)
    ]


class Expected:
    """What one update of one lane should have done."""

    def __init__(self, plan, given, state, after, seen, last):
        self.plan, self.knobs = plan, complete(given)
        self.state, self.seen, self.last = state, seen, last.astype(np.float64)
        self.last_observation = self._normalised(after.observation)
        self.steps, self.envs = seen.reward.shape
        self.segments = plan.by_segments
        self.rows = self.envs if self.segments else self.steps * self.envs
        self.updates = int(state.updates)
        if not self.segments:
            self.size = plan.minibatch_size
        else:
            self.size = math.ceil(self.envs / plan.num_minibatches)
        self.count = math.ceil(self.rows / self.size)

    def progress(self, taken):
        """Return progress after `taken` gradient steps of this update."""
        if not self.knobs["schedule_on_gradient_steps"]:
            return self.updates / TOTAL
        steps = math.ceil(self.count / self.knobs["accumulate_minibatches"])
        whole = TOTAL * self.knobs["update_epochs"] * steps
        return (int(self.state.gradient_steps) + taken) / whole

    def scheduled(self, name, taken, end, kind, multiplier=None):
        knobs = self.knobs
        return slow.schedule(
            knobs[kind],
            knobs[name],
            self.progress(taken),
            end=knobs[end],
            warmup=knobs["lr_warmup_fraction"],
            start=knobs["lr_warmup_start_fraction"],
            multiplier=1.0 if multiplier is None else knobs[multiplier],
        )

    def values(self, taken):
        """Return (learning rate, clip, entropy weight, valid-mass weight)."""
        return (
            self.scheduled("learning_rate", taken, "lr_end_fraction", "lr_schedule"),
            self.scheduled("clip_eps", taken, "clip_eps_end_fraction", "clip_eps_schedule"),
            self.scheduled("ent_coef", taken, "ent_end_fraction", "ent_schedule"),
            self.scheduled(
                "valid_mass_coef",
                taken,
                "valid_mass_end_fraction",
                "valid_mass_schedule",
                "valid_mass_schedule_multiplier",
            ),
        )

    def gae_lambda(self, taken=0):
        knobs = self.knobs
        if knobs["gae_lambda_initial"] is None:
            return knobs["gae_lambda"]
        return slow.annealed_lambda(
            knobs["gae_lambda_initial"],
            knobs["gae_lambda_final"],
            self.progress(taken),
            knobs["gae_lambda_schedule_multiplier"],
        )

    def vf_gae_lambda(self, taken=0):
        own = self.knobs["vf_gae_lambda"]
        return self.gae_lambda(taken) if own is None else own

    def _normalised(self, observation):
        observation = np.asarray(observation, np.float64)
        if not self.knobs["normalise_observations"]:
            return observation
        statistics = self.state.observation_statistics
        if statistics.count > 0:
            std = np.sqrt(statistics.square / statistics.count)
            observation = (observation - statistics.mean) / std
        clip = self.knobs["observation_clip"]
        return np.clip(observation, -clip, clip)

    def rewards(self):
        """Return the learner's rewards [T, E] before centring; sets the running returns."""
        knobs, seen, state = self.knobs, self.seen, self.state
        rewards = seen.reward.astype(np.float64) * knobs["reward_scale"]
        ended = seen.terminated | seen.truncated
        returns, running = [], state.discounted_return.astype(np.float64)
        for t in range(self.steps):
            running = knobs["gamma"] * running + rewards[t]
            returns.append(running)
            running = np.where(ended[t], 0.0, running)
        self.running = running
        returns = np.concatenate([x.ravel() for x in returns])
        if knobs["normalise_rewards"]:
            statistics = state.return_statistics
            count, mean, square = (
                float(x) for x in (statistics.count, statistics.mean, statistics.square)
            )
            if knobs["raw_reward_deviation"]:
                returns = rewards.ravel()
            total = count + len(returns)
            # variance of the union: E[x^2] - E[x]^2, all in float64
            second = (square + count * mean**2 + (returns**2).sum()) / total
            first = (count * mean + returns.sum()) / total
            rewards = rewards / math.sqrt(second - first**2)
        if knobs["reward_clip"] is not None:
            rewards = np.clip(rewards, -knobs["reward_clip"], knobs["reward_clip"])
        return rewards

    def prepare(self):
        """Compute the samples, [T, E] and row by row; gives numbers to compare."""
        knobs, seen, state = self.knobs, self.seen, self.state
        numbers = {}
        value = seen.value.astype(np.float64)
        following = np.concatenate([value[1:], self.last[None]])
        following = np.where(seen.truncated, seen.bootstrap, following)
        self.reward = self.rewards()
        if knobs["reward_centering"]:
            self.reward = self.reward - float(state.average_reward)
            going_on = 1.0 - seen.terminated
            deltas = self.reward + knobs["gamma"] * going_on * following - value
            step = knobs["average_reward_step"]
            trace = float(state.average_trace) + step * (1.0 - float(state.average_trace))
            average = float(state.average_reward) + step / trace * deltas.mean()
            numbers["average_reward"] = average
        advantage, toward = (
            self._estimate(value, following, decay)
            for decay in (self.gae_lambda(), self.vf_gae_lambda())
        )
        arrays = {
            "observation": self._normalised(seen.observation),
            "action": seen.action,
            "mask": seen.mask,
            "log_prob": seen.log_prob,
            "value": value,
            "advantage": advantage,
            "target": toward + value,
        }
        self.arrays = arrays
        if seen.mask is not None:
            mass = slow.valid_mass(
                slow.network(slow.as_float64(state.params), arrays["observation"])[0], seen.mask
            )
            chosen = np.take_along_axis(seen.mask, seen.action[..., None], -1)
            mask_size = seen.mask.shape[-1]
            numbers |= {
                "valid_mass_mean": mass.mean(),
                "valid_mass_std": mass.std(),
                "valid_mass_min": mass.min(),
                "valid_mass_max": mass.max(),
                "valid_actions": seen.mask.sum(-1).mean(),
                "invalid_actions": (~chosen).mean(),
                "valid_fraction": seen.mask.mean(),
                "valid_actions_min": min(row.sum() for row in seen.mask.reshape(-1, mask_size)),
                "valid_actions_max": max(row.sum() for row in seen.mask.reshape(-1, mask_size)),
                "all_actions_valid": float(all(chosen.ravel())),
                "choice_fraction": np.mean(
                    [row.sum() >= 2 for row in seen.mask.reshape(-1, mask_size)]
                ),
            }
            weights = slow.row_weights(
                seen.mask.reshape(-1, seen.mask.shape[-1]),
                mass.ravel(),
                gate=knobs["masking_gate_min_actions"],
                gating=knobs["masking_gating"],
                damping=knobs["masking_damping"],
                target=knobs["valid_mass_target"],
                masking=knobs["action_masking"],
            )
            numbers["policy_weight_mean"] = weights["policy"].mean()
            arrays["weights"] = {k: w.reshape(mass.shape) for k, w in weights.items()}
        self._importance(numbers)
        return numbers

    def _estimate(self, value, following, decay):
        """Return advantages [T, E] of the policy that acted: every ratio is 1, clips hold."""
        knobs, seen = self.knobs, self.seen
        steps = (self.reward, value, following, seen.terminated, seen.truncated)
        if knobs["rho_clip"] is None:
            return slow.gae(*steps, knobs["gamma"], decay)
        ones, clips = np.ones_like(self.reward), (knobs["rho_clip"], knobs["c_clip"])
        return slow.v_trace(*steps, knobs["gamma"], decay, ones, *clips)

    def _importance(self, numbers):
        knobs = self.knobs
        axis = 0 if self.segments else None
        size = np.abs(self.arrays["advantage"])
        size = size.sum(axis=0) if axis == 0 else size.ravel()
        self.chances = (size + 1e-6) ** knobs["priority_alpha"]
        if "priority" in self.plan.features:
            numbers["priority_mean"] = self.chances.mean()
            numbers["priority_std"] = self.chances.std()
        self.chances /= self.chances.sum()
        beta = knobs["priority_beta0"]
        if knobs["anneal_priority_beta"]:
            beta += (1.0 - beta) * self.progress(0)
        if "priority" in self.plan.features:
            numbers["priority_beta"] = beta
        importance = (self.chances * self.rows) ** -beta
        if not knobs["priority_alpha"]:
            importance = np.ones(self.rows)
        self.arrays["importance"] = (
            np.tile(importance, (self.steps, 1))
            if self.segments
            else importance.reshape(self.steps, self.envs)
        )

    def orders(self):
        """Yield the row indices of each epoch."""
        updates = self.updates
        chosen = np.arange(self.rows)
        if self.knobs["priority_alpha"]:
            key = use_key(self.state.key, PRIORITY, updates)
            points = np.asarray(jax.random.uniform(key, (self.rows,), jnp.float32), np.float64)
            cumulative = np.cumsum(self.chances)
            chosen = np.array([np.argmax(cumulative > u * cumulative[-1]) for u in points])
        for epoch in range(self.knobs["update_epochs"]):
            key = jax.random.fold_in(use_key(self.state.key, SHUFFLE, updates), epoch)
            yield chosen[np.asarray(permutation(key, self.rows))]

    def minibatch(self, at, params, taken):
        """Return the single steps of some rows, V-trace's advantages in place of the others."""
        if self.segments:
            arrays = self._traced(params, at, taken)
            arrays = {
                k: self._over(arrays[k], lambda x: np.swapaxes(x[:, at], 0, 1)) for k in arrays
            }
            pick = slice(None)
        else:
            arrays, pick = self.arrays, at
        return {
            k: self._over(v, lambda x: x.reshape(-1, *x.shape[2:])[pick])
            for k, v in arrays.items()
        }

    @staticmethod
    def _over(value, change):
        if isinstance(value, dict):
            return {k: change(v) for k, v in value.items()}
        return None if value is None else change(value)

    def _traced(self, params, at, taken):
        """Return the arrays [T, E] with V-trace's advantages, if it is on."""
        knobs, seen, arrays = self.knobs, self.seen, dict(self.arrays)
        if knobs["rho_clip"] is None:
            return arrays
        for name in ("advantage", "target"):
            arrays[name] = arrays[name].copy()
        for e in set(at.tolist()):
            one = {
                k: None if arrays[k] is None else arrays[k][:, e]
                for k in ("observation", "action", "mask")
            }
            log_prob, _, value = slow.policy_terms(params, one)
            last = slow.network(params, self.last_observation[e : e + 1])[1]
            following = np.concatenate([value[1:], last])
            following = np.where(seen.truncated[:, e], seen.bootstrap[:, e], following)
            change = np.clip(log_prob - seen.log_prob[:, e], -10.0, 10.0)
            advantage, toward = (
                slow.v_trace(
                    *(
                        x[:, None]
                        for x in (
                            self.reward[:, e],
                            value,
                            following,
                            seen.terminated[:, e],
                            seen.truncated[:, e],
                        )
                    ),
                    knobs["gamma"],
                    decay,
                    np.exp(change)[:, None],
                    knobs["rho_clip"],
                    knobs["c_clip"],
                )[:, 0]
                for decay in (self.gae_lambda(taken), self.vf_gae_lambda(taken))
            )
            arrays["advantage"][:, e] = advantage
            arrays["target"][:, e] = toward + value
        return arrays

    def _adam(self, params):
        knobs, state = self.knobs, self.state
        adam = slow.Adam(params, clip=knobs["max_grad_norm"], eps=knobs["adam_eps"])
        adam.count = int(state.moments[0].count)
        first, second = (
            {**state.moments[0]._asdict()[m], **state.moments[1]._asdict()[m]}
            for m in ("mu", "nu")
        )
        adam.first, adam.second = (slow.leaves(slow.as_float64(x)) for x in (first, second))
        return adam

    def update(self, kl_limit=math.inf):
        """Return (parameters, numbers, KL of each minibatch learnt from) after the update.

        `taken` counts the optimiser's steps.
        """
        knobs = self.knobs
        numbers = self.prepare()
        params = slow.as_float64(self.state.params)
        adam = self._adam(params)
        parts, norms, slopes_seen, stopped, waiting = [], [], [], 0, []
        for order in self.orders():
            for start in range(0, self.rows, self.size):
                size, eps, ent, mass = self.values(len(norms))
                clip = eps if knobs["value_clip_eps"] == "same" else knobs["value_clip_eps"]
                how = {
                    "clip_eps": eps,
                    "value_clip": clip,
                    "ent_coef": ent,
                    "mass_coef": mass,
                    "normalise": knobs["normalise_advantages"],
                    "adv_clip": knobs["adv_clip"],
                    "off_policy": knobs["off_policy_masking"],
                }
                batch = self.minibatch(order[start : start + self.size], params, len(norms))
                shown = slow.ppo_loss(params, batch, **how)[1]
                if stopped or shown["approx_kl"] > kl_limit:
                    stopped += 1
                    continue
                slopes = slow.gradient(
                    lambda p, b=batch, h=how: slow.ppo_loss(p, b, **h)[0], params
                )
                parts.append(shown)
                waiting.append(slopes)
                whole = len(waiting) == knobs["accumulate_minibatches"]
                if whole or start + self.size >= self.rows:
                    slopes = jax.tree.map(lambda *each: sum(each) / len(each), *waiting)
                    slopes_seen.append(np.concatenate([x.ravel() for x in slow.leaves(slopes)]))
                    norms.append(adam.step(params, slopes, size))
                    waiting = []
        self.taken = len(norms)
        numbers |= {name: np.mean([p[name] for p in parts]) for name in parts[0]}
        numbers["ratio_min"] = min(p["ratio_min"] for p in parts)
        numbers["ratio_max"] = max(p["ratio_max"] for p in parts)
        numbers["log_prob_min"] = min(p["log_prob_min"] for p in parts)
        target, value = self.arrays["target"], self.arrays["value"]
        advantage = self.arrays["advantage"]
        size, eps, ent, mass = self.values(0)
        numbers |= {
            "grad_norm": np.mean(norms),
            "learning_rate": size,
            "clip_eps": eps,
            "ent_coef": ent,
            "grad_variance": np.var(slopes_seen, axis=0).sum(),
            "gae_lambda": self.gae_lambda(),
            "advantage_mean": advantage.mean(),
            "advantage_std": advantage.std(),
            "value_target_mean": target.mean(),
            "explained_variance": 1 - np.var(target - value) / np.var(target),
            "reward_mean": self.seen.reward.mean(),
            "value_mean": value.mean(),
            "early_stopped": stopped / (stopped + len(parts)),
            "param_norm": math.sqrt(sum((leaf**2).sum() for leaf in slow.leaves(params))),
        }
        if not knobs["separate_vf_optimiser"]:
            numbers["vf_learning_rate"] = size
        if "valid_mass_loss" in self.plan.features:
            numbers["valid_mass_coef"] = mass
        return params, numbers, [p["approx_kl"] for p in parts]
