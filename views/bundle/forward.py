"""A policy's forward pass in NumPy alone: no other package, no code of a bundle but this file.

    from forward import Policy                  # in the folder `numpy` of an unzipped bundle
    action = Policy(".").act([0.01, -0.2])      # one observation, or a batch

The likeliest action; `mask` marks valid choices. With `history: n` an observation is the last n.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
    "gelu": lambda x: 0.5 * x * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "leaky_relu": lambda x: np.where(x >= 0.0, x, 0.01 * x),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
}
KINDS = ("categorical", "multi_discrete", "gaussian", "tanh_gaussian", "beta")


class Policy:
    """The policy in a folder of `policy.json` and `parameters.f32`."""

    def __init__(self, folder: str | Path):
        self.about: dict[str, Any] = json.loads((Path(folder) / "policy.json").read_text())
        flat = np.fromfile(Path(folder) / "parameters.f32", "<f4")
        self.arrays: dict[str, Any] = {}
        for name, shape in self.about["arrays"].items():
            part, flat = np.split(flat, [math.prod(shape)])
            self.arrays[name] = part.reshape(shape).astype(np.float64)

    def act(self, observation: Any, mask: Any = None) -> Any:
        about, arrays = self.about, self.arrays
        x = np.asarray(observation, np.float64)
        lead = x.shape[: x.ndim - len(about["observation"])]
        if "statistics/mean" in arrays:
            clip = about["observation_clip"] or np.inf
            x = np.clip((x - arrays["statistics/mean"]) / arrays["statistics/std"], -clip, clip)
        x, tower = x.reshape((*lead, -1)), about["tower"]
        for i in range(about["layers"]):
            x = x @ arrays[f"{tower}/dense_{i}/kernel"] + arrays[f"{tower}/dense_{i}/bias"]
            if about["layer_norm"]:
                x = x - x.mean(-1, keepdims=True)
                x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
                x = x * arrays[f"{tower}/norm_{i}/scale"] + arrays[f"{tower}/norm_{i}/bias"]
            x = ACTIVATIONS[about["activation"]](x)
        return self._mode(x @ arrays["actor_head/kernel"].T + arrays["actor_head/bias"], mask)

    def _mode(self, x: Any, mask: Any) -> Any:
        about, kind = self.about, self.about["distribution"]
        if kind in ("categorical", "multi_discrete"):
            ends = np.cumsum(about["sizes"])[:-1]
            valid = np.ones(x.shape, bool) if mask is None else np.asarray(mask, bool)
            parts = zip(np.split(x, ends, -1), np.split(valid, ends, -1), strict=True)
            # where nothing is valid, the raw policy acts
            kept = (np.where(m | ~m.any(-1, keepdims=True), part, -1e9) for part, m in parts)
            chosen = np.stack([np.argmax(part, -1) for part in kept], -1)
            return chosen[..., 0] if kind == "categorical" else chosen
        if kind == "gaussian":
            action = x if about["low"] is None else np.clip(x, about["low"], about["high"])
        else:
            alpha_beta = np.split(np.logaddexp(0.0, x) + 1.0, 2, -1) if kind == "beta" else ()
            share = 0.5 * (np.tanh(x) + 1.0) if not alpha_beta else alpha_beta[0] / sum(alpha_beta)
            low, high = np.asarray(about["low"]), np.asarray(about["high"])
            action = low + (high - low) * share
        return action.reshape((*action.shape[:-1], *about["action"]))
