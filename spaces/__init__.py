"""Search spaces: plain data about parameters, and conversions to other libraries."""

if __name__ == "spaces":
    raise ImportError("import hpo.spaces instead, after `pip install -e .`")

from .distributions import KINDS, Distribution
from .forbid import Rule, TextRule, ValueRule, parse_rule
from .make import make_distribution
from .ppo_spaces import ppo, ppo_architecture
from .space import Condition, Parameter, Space

__all__ = [
    "KINDS", "Condition", "Distribution", "Parameter", "Rule", "Space", "TextRule", "ValueRule",
    "make_distribution", "parse_rule", "ppo", "ppo_architecture",
]  # fmt: skip
