"""Hyperparameters in a study that have no effect in any of its configurations.

They are legal, so that studies can share a space. `hpo check` warns about them, because a search
over a hyperparameter without effect is rarely intended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..environments.registry import find
from ..files.plain_data import same
from ..knobs import KNOBS, SCHEDULE_KNOBS, matters
from .spec import Study
from .study_environments import each_alone
from .yaml_io import flow


@dataclass(frozen=True)
class Need:
    knob: str
    values: tuple[Any, ...]
    among: bool = True  # False: none of these values

    def met(self, value: Any) -> bool:
        own = isinstance(value, str) and value not in KNOBS[self.knob].choices
        if own and self.knob in ("optimiser", "distribution"):
            return True
        return any(same(value, known) for known in self.values) == self.among

    def __str__(self) -> str:
        shown = [value for value in self.values if value is not None] or [None]
        words = " or ".join("off" if value is None else flow(value) for value in shown)
        if self.among:
            return f"{self.knob} {words}"
        return f"{self.knob} other than {words}"


def _switch_need(knob: str) -> tuple[Need, ...]:
    return (Need(knob, (True,)),)


def _above_0(knob: str) -> tuple[Need, ...]:
    return (Need(knob, (0.0,), False),)


def _schedule_needs(*schedules: str) -> tuple[Need, ...]:
    return tuple(Need(name, ("constant", None), False) for name in schedules)


def _of_kind(schedules: tuple[str, ...], *kinds: str) -> tuple[Need, ...]:
    return tuple(Need(name, kinds) for name in schedules)


_RATES = ("lr_schedule", "vf_lr_schedule")

NEEDS: dict[str, tuple[Need, ...]] = {
    name: needs
    for names, needs in {
        "lr_end_fraction lr_schedule_multiplier": _schedule_needs(*_RATES),
        "lr_warmup_fraction lr_warmup_start_fraction": _of_kind(SCHEDULE_KNOBS, "warmup_cosine"),
        "lr_warmup_multiplier": _of_kind(_RATES, "warmup_cosine"),
        "lr_decay_exponent": _of_kind(SCHEDULE_KNOBS, "cosine", "warmup_cosine"),
        "gae_lambda": (Need("gae_lambda_initial", (None,)),),
        "gae_lambda_schedule_multiplier": (Need("gae_lambda_initial", (None,), False),),
        "clip_eps_end_fraction": _schedule_needs("clip_eps_schedule"),
        "ent_schedule": _above_0("ent_coef"),
        "ent_end_fraction ent_schedule_multiplier": _schedule_needs("ent_schedule"),
        "link_critic_sees": (Need("shared_encoder", (False,)),),
        "adam_eps adam_beta1 adam_beta2": (Need("optimiser", ("sgd",), False),),
        "sgd_momentum": (Need("optimiser", ("sgd",)),),
        "muon_momentum": (Need("optimiser", ("muon",)),),
        "vf_learning_rate vf_lr_schedule vf_lr_end_fraction vf_warmup_fraction vf_weight_decay "
        "vf_warmup_multiplier vf_warmup_start_fraction vf_schedule_multiplier vf_adam_eps "
        "vf_adam_beta1 vf_adam_beta2 vf_max_grad_norm": _switch_need("separate_vf_optimiser"),
        "average_reward_initial average_reward_step": _switch_need("reward_centering"),
        "observation_clip": _switch_need("normalise_observations"),
        "raw_reward_deviation": _switch_need("normalise_rewards"),
        "reward_scale": (Need("normalise_rewards", (False,)),),  # otherwise divided out
        "adv_clip": _switch_need("normalise_advantages"),
        "priority_beta0 anneal_priority_beta priority_over": _above_0("priority_alpha"),
        "off_policy_masking masking_gating masking_damping": _switch_need("action_masking"),
        "masking_gate_min_actions": _switch_need("masking_gating"),
        "valid_mass_target": _switch_need("masking_damping"),
        "valid_mass_schedule": _above_0("valid_mass_coef"),
        "valid_mass_end_fraction valid_mass_schedule_multiplier": _schedule_needs(
            "valid_mass_schedule"
        ),
        "transformer_dropout transformer_attention_dropout": _switch_need(
            "transformer_enable_dropout"
        ),
        "log_std_init log_std_min log_std_max": (Need("distribution", ("beta",), False),),
    }.items()
    for name in names.split()
}
"""Hyperparameter -> its needs; it has an effect only if one of them is met."""

_OF_MASKS = (
    "action_masking", "off_policy_masking", "masking_gate_min_actions", "masking_gating",
    "masking_damping", "valid_mass_target", "valid_mass_coef", "valid_mass_schedule",
    "valid_mass_end_fraction", "valid_mass_schedule_multiplier",
)  # fmt: skip
_OF_REAL_ACTIONS = ("log_std_init", "log_std_min", "log_std_max", "action_low", "action_high")
_FLAT_SIZES = ("num_layers", "hidden_size")  # they determine `hidden_sizes`


def idle_knobs(study: Study) -> list[str]:
    """Return each hyperparameter that has no effect, with its unmet condition."""
    each, found = each_alone(study), list[str]()
    for name in dict.fromkeys([*study.fixed, *study.space.names]):
        if name.startswith("env.") or not all(_unmet_condition(one, name) for one in each):
            continue
        if why := _unmet_condition(study, name):
            found.append(f"{name} has no effect here: {why}")
    return found


def _unmet_condition(study: Study, name: str) -> str | None:
    """Return a hyperparameter's unmet condition; None if it has an effect."""
    return _lacking_environment(study, name) or _lacking_knob(study, name)


def _lacking_environment(study: Study, name: str) -> str | None:
    known = find(study.env.id)
    if known is not None and known.source != "optical":
        if name in _OF_MASKS:
            return f"{study.env.id} has no action mask"
        if name == "transformer_obs_type":
            return f"{study.env.id} has no link tokens"
    if name == "shadow_weight" and not any(_possible_shadows(study)):
        return "env.shadow is not set"
    if known is not None and known.actions == "discrete" and name in _OF_REAL_ACTIONS:
        return f"the actions of {study.env.id} are discrete"
    return None


def _lacking_knob(study: Study, name: str) -> str | None:
    """Return a phrase that names an unmet requirement of a hyperparameter, or None."""
    sizes = name
    if name in _FLAT_SIZES:
        sizes = "hidden_sizes"
    if not any(matters(sizes, network) for network in possible_values(study, "network")):
        return f"it is used only by {', '.join(KNOBS[sizes].networks)}"
    if name == "link_critic_sees" and _shares_all_layers(study):
        return "it needs transformer_share_layers false"
    needs = NEEDS.get(name, ())
    if not needs:
        return None
    if any(any(map(need.met, possible_values(study, need.knob))) for need in needs):
        return None
    return f"it needs {' or '.join(map(str, needs))}"


def _possible_shadows(study: Study) -> list[Any]:
    given = study.env.values.get("shadow")
    own = [p for p in study.space.parameters if p.name == "env.shadow"]
    return [given, *(value for p in own for value in p.distribution.ends())]


def _shares_all_layers(study: Study) -> bool:
    """Return whether all networks over links are transformers whose critic shares all blocks."""
    networks = {n for n in possible_values(study, "network") if matters("link_critic_sees", n)}
    return networks == {"transformer"} and all(possible_values(study, "transformer_share_layers"))


def possible_values(study: Study, name: str) -> list[Any]:
    """Return the values that a hyperparameter may have; for a range, its ends."""
    own = [parameter for parameter in study.space.parameters if parameter.name == name]
    values = [value for parameter in own for value in parameter.distribution.ends()]
    if not own or any(parameter.when for parameter in own):
        values.append(study.fixed.get(name, KNOBS[name].default))
    return [*values, *(given[name] for given in study.enqueue if name in given)]
