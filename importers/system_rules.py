"""Import rules that a system's table cannot express, in the order in which they apply.

A name that is computed from several others is a `Derived` in the system's table, and
`apply_derived` evaluates it. The rules here are for cases that no formula can express: names that
are dropped together, and settings that depend on the whole study.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import arlbench_rules, atari_rules, brax_rules, jaxdem_rules, torch_rules, xlron_rules
from .converted_study import ConvertedStudy, ImportSource
from .derive import apply_derived


@dataclass(frozen=True)
class Rules:
    """Changes to a source before its names are translated, and to the study afterwards."""

    before: tuple[Callable[[ConvertedStudy, ImportSource], None], ...] = (apply_derived,)
    after: tuple[Callable[[ConvertedStudy], None], ...] = ()


_RULES: Mapping[str, Rules] = {
    "cleanrl": Rules(after=(atari_rules.preprocessing, torch_rules.floored_minibatches)),
    "xlron": Rules((xlron_rules.before,), (xlron_rules.after,)),
    "sb3": Rules(
        (
            torch_rules.policy_first,
            torch_rules.refuse_settings_elsewhere,
            atari_rules.wrapped_game,
            torch_rules.gamma_of_rewards,
            apply_derived,
            torch_rules.leave_out_noise,
        ),
        (torch_rules.decay_as_torch, torch_rules.recurrent_minibatches),
    ),
    "torch_ppo": Rules(
        (apply_derived, torch_rules.defaults_of_helper),
        (torch_rules.decay_as_torch, torch_rules.unscaled_actions),
    ),
    "jaxdem": Rules((apply_derived, jaxdem_rules.before), (jaxdem_rules.after,)),
    "arlbench": Rules(
        (
            arlbench_rules.drop_hydra_file,
            arlbench_rules.steps_of_autorl,
            apply_derived,
            arlbench_rules.parts_of_checkpoints,
            arlbench_rules.ids_of_brax,
        )
    ),
    "brax": Rules((apply_derived, brax_rules.refuse_default_layers, brax_rules.leave_out_length)),
}


def rules_of(family: str) -> Rules:
    """Return the rules of a system's family; most families have only a table."""
    return _RULES.get(family, Rules())
