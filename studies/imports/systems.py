"""The rules of systems whose names hang together, by the words of `elsewhere.SYSTEMS`."""

from __future__ import annotations

from collections.abc import Mapping

from .jaxdem_rules import JaxdemRules
from .sb3_rules import Sb3Rules
from .take import Rules
from .torch_rules import TorchRules
from .xlron import XlronRules

__all__ = ["RULES"]

RULES: Mapping[str, Rules] = {
    "xlron": XlronRules(),
    "sb3": Sb3Rules(),
    "jaxdem": JaxdemRules(),
    "torch_ppo": TorchRules(),
}
