"""A classifier of handwritten digits in flax: the smallest custom training."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from sklearn.datasets import load_digits

import hpo


class Digits(hpo.Training):
    unit, epoch = "examples", 1400
    width = hpo.fixed(128, "of both layers", low=1)
    batch_size = hpo.fixed(64, low=1)
    learning_rate = hpo.traced(1e-3, "step size", low=0)
    weight_decay = hpo.traced(1e-4, low=0)
    b1 = hpo.traced(0.9, low=0, high=0.999)

    def setup(self):
        x, y = load_digits(return_X_y=True)
        self.x, self.y = np.float32(x / 16), np.int32(y)
        self.net = nn.Sequential([nn.Dense(self.width), nn.relu, nn.Dense(10)])
        self.steps_per_update = 50 * self.batch_size

    def init(self, key, h):
        tx = optax.adamw(h.learning_rate, b1=h.b1, weight_decay=h.weight_decay)
        params = self.net.init(key, self.x[:1])
        return TrainState.create(apply_fn=None, params=params, tx=tx), key

    def update(self, state, h):
        def step(state, _):
            train, key = state
            key, pick = jax.random.split(key)
            rows = jax.random.randint(pick, (self.batch_size,), 0, self.epoch)

            def loss(params):
                logits = self.net.apply(params, jnp.asarray(self.x)[rows])
                labels = jnp.asarray(self.y)[rows]
                return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

            value, grads = jax.value_and_grad(loss)(train.params)
            return (train.apply_gradients(grads=grads), key), value

        state, losses = jax.lax.scan(step, state, None, 50)
        return state, {"loss": losses.mean()}

    def evaluate(self, state, h, key):
        logits = self.net.apply(state[0].params, self.x[self.epoch :])
        return {"accuracy": (logits.argmax(1) == self.y[self.epoch :]).mean()}
