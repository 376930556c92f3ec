"""Optuna's tree-structured Parzen estimator, the method `tpe`.

Stopped trials are told as pruned, where one objective allows it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, TPESampler

from ..streams import integer
from .contract import SamplerSpec, checked_options
from .via_optuna import OptunaMethod

__all__ = ["Tpe", "build"]


class Tpe(OptunaMethod):
    """Tree-structured Parzen estimator (Bergstra et al. 2011), multivariate and grouped.

    Running trials count as bad ones (the constant liar), so that the many proposals of one batch
    spread out.
    """

    def __init__(self, spec: SamplerSpec, options: Mapping[str, Any]):
        super().__init__(spec, options)
        self.understands_stopped = spec.objectives == 1
        conditional = any(parameter.when for parameter in spec.space.parameters)
        if not conditional or not self._options["multivariate"]:
            self._options["group"] = False  # one group anyway; looking for more costs a fifth

    def _sampler(self, batch: int) -> BaseSampler:
        for option in ("multivariate", "group", "constant_liar"):
            warnings.filterwarnings("ignore", message=f".*{option}", category=ExperimentalWarning)
        return TPESampler(seed=integer(self._seed, "tpe", batch), **self._options)


def build(spec: SamplerSpec) -> Tpe:
    """Build the method `tpe`; its options are those of `optuna.samplers.TPESampler`."""
    return Tpe(spec, checked_options("tpe", spec.options))
