"""A policy's forward pass in NumPy, which needs no other package.

    from forward import Policy                  # in the folder `numpy` of an unzipped bundle
    action = Policy("policy.json").act([0.01, -0.2])    # one observation, or a batch

`act` returns the most likely action; `mask` marks valid choices. With `history: n` an observation
is the last n observations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
    "gelu": lambda x: 0.5 * x * (1.0 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "leaky_relu": lambda x: np.where(x >= 0.0, x, 0.01 * x),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
}
KINDS = ("categorical", "multi_discrete", "gaussian", "tanh_gaussian", "beta")


class Policy:
    """The policy in a file written by `hpo bundle`."""

    def __init__(self, path: str | Path):
        self.about: dict[str, Any] = json.loads(Path(path).read_text())
        self.arrays = {name: np.array(rows) for name, rows in self.about["arrays"].items()}

    def act(self, observation: Any, mask: Any = None) -> Any:
        config, arrays, x = self.about["config"], self.arrays, np.asarray(observation, np.float64)
        lead = x.shape[: x.ndim - len(self.about["observation"])]
        if config["normalise_observations"]:
            clip = float(config["observation_clip"])
            x = np.clip((x - arrays["mean"]) / arrays["std"], -clip, clip)
        x, tower = x.reshape((*lead, -1)), "encoder" if config["shared_encoder"] else "actor"
        for i in range(len(config["hidden_sizes"])):
            x = x @ arrays[f"{tower}/dense_{i}/kernel"] + arrays[f"{tower}/dense_{i}/bias"]
            if config["layer_norm"]:
                x = x - x.mean(-1, keepdims=True)
                x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
                x = x * arrays[f"{tower}/norm_{i}/scale"] + arrays[f"{tower}/norm_{i}/bias"]
            x = ACTIVATIONS[config["activation"]](x)
        return self._mode(x @ arrays["actor_head/kernel"].T + arrays["actor_head/bias"], mask)

    def _mode(self, x: Any, mask: Any) -> Any:
        about, kind = self.about, self.about["distribution"]
        if kind in ("categorical", "multi_discrete"):
            ends = np.cumsum(about["sizes"])[:-1]
            valid = np.ones(x.shape, bool) if mask is None else np.asarray(mask, bool)
            parts = zip(np.split(x, ends, -1), np.split(valid, ends, -1), strict=True)
            # if no choice is valid, the unmasked policy acts
            kept = (np.where(m | ~m.any(-1, keepdims=True), part, -1e9) for part, m in parts)
            chosen = np.stack([np.argmax(part, -1) for part in kept], -1)
            return chosen[..., 0] if kind == "categorical" else chosen
        if kind == "gaussian":
            action = np.clip(x, *about["range"]) if about["range"] else x
        else:
            share = 0.5 * (np.tanh(x) + 1.0)
            if kind == "beta":
                alpha, beta = np.split(np.logaddexp(0.0, x) + 1.0, 2, -1)
                share = alpha / (alpha + beta)
            low, high = np.asarray(about["range"])
            action = low + (high - low) * share
        return action.reshape((*action.shape[:-1], *about["action"]))
