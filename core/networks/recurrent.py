"""Recurrent networks: hidden layers, an LSTM or GRU cell, and a head.

Acting computes one step at a time. Learning unrolls whole sequences, so everything except the
cell's recurrent product is computed for all steps at once.
"""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..plan import Plan
from .layers import Outputs
from .mlp import Head, Tower, initialiser

_GATES = {"lstm": 4, "gru": 3}


class Cell(nn.Module):
    """An LSTM cell (Gers et al. 2000) or a GRU cell (Cho et al. 2014).

    LSTM: i, f, o = sigmoid, g = tanh of W x + U h + b (plus 1 before the sigmoid of f), c' = f c +
    i g, h' = o tanh(c'). GRU: r, z = sigmoid of W x + U h + b, n = tanh(W x + b + r (U h + b_n)),
    h' = (1 - z) n + z h. The reset gate is applied after the product, so there is one product per
    step.
    """

    plan: Plan
    inputs: int

    def setup(self) -> None:
        plan, size = self.plan, self.plan.recurrent_size
        gates = _GATES[plan.network]
        self.into = self.param(
            "into", initialiser(plan, 1.0), (self.inputs, gates * size), jnp.float32
        )
        self.over = self.param("over", initialiser(plan, 1.0), (size, gates * size), jnp.float32)
        self.bias = self.param("bias", nn.initializers.zeros, (gates * size,), jnp.float32)
        if plan.network == "gru":
            self.over_bias = self.param("over_bias", nn.initializers.zeros, (size,), jnp.float32)

    def prepare(self, x: Float[Array, "... D"]) -> Float[Array, "... G"]:
        y = x @ self.into
        return y + self.bias.reshape((1,) * (y.ndim - 1) + self.bias.shape)

    def step(self, memory: Any, ready: Float[Array, "... G"]) -> Any:
        if self.plan.network == "lstm":
            return self._lstm_step(memory, ready)
        return self._gru_step(memory, ready)

    def _lstm_step(self, memory: tuple[Array, Array], ready: Array) -> tuple[Array, Array]:
        cell, hidden = memory
        enter, forget, leave, new = jnp.split(ready + hidden @ self.over, 4, axis=-1)
        kept = jax.nn.sigmoid(forget + jnp.ones((), forget.dtype)) * cell
        cell = kept + jax.nn.sigmoid(enter) * jnp.tanh(new)
        return cell, jax.nn.sigmoid(leave) * jnp.tanh(cell)

    def _gru_step(self, hidden: Array, ready: Array) -> Array:
        size = self.plan.recurrent_size
        over = hidden @ self.over
        reset, keep = jnp.split(
            jax.nn.sigmoid(ready[..., : 2 * size] + over[..., : 2 * size]), 2, axis=-1
        )
        bias = self.over_bias.reshape((1,) * (over.ndim - 1) + self.over_bias.shape)
        new = jnp.tanh(ready[..., 2 * size :] + reset * (over[..., 2 * size :] + bias))
        return (1.0 - keep) * new + keep * hidden


class Recurrent(nn.Module):
    """Maps flat observations and memory to outputs and new memory; see `RecurrentNetwork`."""

    plan: Plan
    outputs: int
    shape: tuple[int, ...]

    def setup(self) -> None:
        plan = self.plan
        inputs = math.prod(self.shape)
        if plan.hidden_sizes:
            inputs = plan.hidden_sizes[-1]
        if plan.shared_encoder:
            self.encoder, self.cell = Tower(plan), Cell(plan, inputs)
        else:
            self.actor, self.actor_cell = Tower(plan), Cell(plan, inputs)
            self.critic, self.critic_cell = Tower(plan), Cell(plan, inputs)
        if plan.layer_norm:
            self.norm = nn.LayerNorm()
            if not plan.shared_encoder:
                self.critic_norm = nn.LayerNorm()
        self.actor_head = Head(self.outputs, initialiser(plan, plan.policy_gain))
        self.critic_head = Head(1, initialiser(plan, plan.value_gain))

    def initial_carry(self, lead: tuple[int, ...]) -> Any:
        zeros = jnp.zeros((*lead, self.plan.recurrent_size), jnp.float32)
        one = zeros
        if self.plan.network == "lstm":
            one = (zeros, zeros)
        if self.plan.shared_encoder:
            return (one,)
        return one, one

    def __call__(self, observation: Array) -> Outputs:
        lead = observation.shape[: observation.ndim - len(self.shape)]
        return self.step(observation, self.initial_carry(lead))[0]

    def step(self, observation: Array, carry: Any) -> tuple[Outputs, Any]:
        ready = self._prepare_inputs(observation)
        carry = tuple(
            cell.step(memory, x) for cell, memory, x in zip(self._cells, carry, ready, strict=True)
        )
        return self._read_outputs(tuple(self._hidden_state(memory) for memory in carry)), carry

    def unroll(self, observation: Array, first: Bool[Array, "T *S"], carry: Any) -> Outputs:
        ready = self._prepare_inputs(observation)
        # The scan contains only cells, because a traced body must not create parameters.
        over = [cell.step for cell in self._cells]
        fresh = self.initial_carry(first.shape[1:])

        def one(carry: Any, step: tuple[Any, Array]) -> tuple[Any, Any]:
            inputs, begins = step
            held = jax.tree.map(
                lambda new, old: jnp.where(begins[..., None], new.astype(old.dtype), old),
                fresh,
                carry,
            )
            after = tuple(f(m, x) for f, m, x in zip(over, held, inputs, strict=True))
            return after, tuple(self._hidden_state(memory) for memory in after)

        _, hidden = jax.lax.scan(one, carry, (ready, first))
        return self._read_outputs(hidden)

    @property
    def _cells(self) -> tuple[Cell, ...]:
        if self.plan.shared_encoder:
            return (self.cell,)
        return self.actor_cell, self.critic_cell

    @property
    def _towers(self) -> tuple[Tower, ...]:
        if self.plan.shared_encoder:
            return (self.encoder,)
        return self.actor, self.critic

    def _prepare_inputs(self, observation: Array) -> tuple[Array, ...]:
        lead = observation.shape[: observation.ndim - len(self.shape)]
        x = observation.reshape((*lead, -1)).astype(self.plan.dtype)
        pairs = zip(self._cells, self._towers, strict=True)
        return tuple(cell.prepare(tower(x)) for cell, tower in pairs)

    def _hidden_state(self, memory: Any) -> Array:
        if self.plan.network == "lstm":
            return memory[1]
        return memory

    def _read_outputs(self, hidden: tuple[Array, ...]) -> Outputs:
        actor, critic = hidden[0], hidden[-1]
        if self.plan.layer_norm and self.plan.shared_encoder:
            actor, critic = self.norm(actor), self.norm(critic)
        elif self.plan.layer_norm:
            actor, critic = self.norm(actor), self.critic_norm(critic)
        return Outputs(self.actor_head(actor), self.critic_head(critic)[..., 0])
