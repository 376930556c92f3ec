"""The traced hyperparameters: leaves of `Hypers`, which may differ per lane of a program."""

from __future__ import annotations

from typing import Any

from .knob import FRACTION, POSITIVE, SCHEDULES, Knob, log, number, schedule, switch, uniform


def _critic_knob(name: str, meaning: str, **rest: Any) -> Knob:
    meaning = f"the critic's {meaning}; unset: the policy's"
    return number(name, None, meaning, off=True, **rest)


TRACED = (
    number(
        "learning_rate", 1e-3, "step size of the optimiser", **POSITIVE, search=log(1e-5, 1e-2)
    ),
    schedule(
        "lr_schedule",
        "constant",
        "how the learning rate changes over the run",
        search={"values": list(SCHEDULES)},
    ),
    number("lr_end_fraction", 0.1, "final learning rate as a fraction of the initial", **FRACTION),
    number(
        "lr_warmup_fraction",
        0.2,
        "fraction of the horizon used for warm-up (warmup_cosine)",
        low=0.0,
        high=0.99,
    ),
    number(
        "lr_warmup_multiplier",
        1.0,
        "peak learning rate as a multiple of learning_rate (warmup_cosine)",
        **POSITIVE,
    ),
    number(
        "lr_warmup_start_fraction",
        0.0,
        "initial learning rate as a fraction of learning_rate",
        **FRACTION,
    ),
    number(
        "lr_schedule_multiplier",
        1.0,
        "schedule horizon as a fraction of the run",
        **POSITIVE,
    ),
    number("lr_decay_exponent", 1.0, "exponent of the cosine", **POSITIVE),
    number(
        "gamma",
        0.99,
        "discount per env step",
        **FRACTION,
        search={"min": 0.9, "max": 0.9999, "distribution": "one_minus_log"},
    ),
    number(
        "gae_lambda",
        0.95,
        "lambda of generalised advantage estimation",
        **FRACTION,
        search=uniform(0.8, 1.0),
    ),
    number(
        "vf_gae_lambda",
        None,
        "lambda of the critic's targets; off: gae_lambda",
        low=0.0,
        low_open=True,
        high=1.0,
        off=True,
        search=uniform(0.9, 1.0),
    ),
    number(
        "gae_lambda_initial",
        None,
        "initial lambda; anneals to gae_lambda_final if that is set",
        **FRACTION,
        off=True,
    ),
    number("gae_lambda_final", None, "lambda at the end of annealing", **FRACTION, off=True),
    number(
        "gae_lambda_schedule_multiplier",
        1.0,
        "annealing horizon as a fraction of the run",
        **POSITIVE,
    ),
    number(
        "clip_eps", 0.2, "clip range of the probability ratio", **POSITIVE, search=log(0.02, 0.4)
    ),
    schedule("clip_eps_schedule", "constant", "how clip_eps changes over the run"),
    number(
        "clip_eps_end_fraction", 0.0, "final clip_eps as a fraction of the initial", **FRACTION
    ),
    number(
        "value_clip_eps",
        None,
        "clip range of value updates; `same`: clip_eps",
        **POSITIVE,
        off=True,
        choices=("same",),
    ),
    number(
        "vf_coef", 0.5, "weight of the value loss 0.5 (V - R)^2", low=0.0, search=log(0.05, 5.0)
    ),
    number(
        "ent_coef", 0.0, "weight of the entropy bonus", low=0.0, search=log(1e-4, 0.1, zero=0.2)
    ),
    schedule("ent_schedule", "constant", "how ent_coef changes over the run"),
    number("ent_end_fraction", 0.1, "final ent_coef as a fraction of the initial", low=0.0),
    number(
        "ent_schedule_multiplier", 1.0, "schedule horizon as a fraction of the run", **POSITIVE
    ),
    number(
        "max_grad_norm",
        0.5,
        "maximum global gradient norm",
        **POSITIVE,
        off=True,
        search=log(0.1, 5.0),
    ),
    number("adam_eps", 1e-5, "epsilon of Adam", **POSITIVE),
    number(
        "adam_beta1",
        0.9,
        "decay of Adam's first moment",
        low=0.0,
        high=0.99999,
        search=uniform(0.8, 0.99),
    ),
    number(
        "adam_beta2",
        0.999,
        "decay of Adam's second moment",
        low=0.0,
        high=0.9999999,
        search=uniform(0.9, 0.999),
    ),
    number(
        "weight_decay",
        0.0,
        "weight decay, decoupled except with adam_l2; must be 0 with optimiser: adam",
        low=0.0,
    ),
    number(
        "sgd_momentum",
        0.9,
        "momentum of the sgd optimiser",
        low=0.0,
        high=0.99999,
        search=uniform(0.0, 0.99),
    ),
    number(
        "muon_momentum",
        0.95,
        "momentum of the muon optimiser, for matrices",
        low=0.0,
        high=0.99999,
        search=uniform(0.8, 0.99),
    ),
    switch(
        "separate_vf_optimiser",
        False,
        "separate gradient clip, moments and schedule for all critic parameters",
    ),
    number(
        "vf_learning_rate",
        None,
        "the critic's learning rate; unset: learning_rate / 3",
        **POSITIVE,
        off=True,
    ),
    schedule("vf_lr_schedule", None, "the critic's schedule; unset: the policy's", off=True),
    _critic_knob("vf_lr_end_fraction", "final learning-rate fraction", **FRACTION),
    _critic_knob("vf_warmup_fraction", "warm-up share", low=0.0, high=0.99),
    _critic_knob("vf_warmup_multiplier", "peak learning-rate factor", **POSITIVE),
    _critic_knob("vf_warmup_start_fraction", "initial learning-rate fraction", **FRACTION),
    _critic_knob("vf_schedule_multiplier", "schedule-horizon factor", **POSITIVE),
    _critic_knob("vf_adam_eps", "Adam epsilon", **POSITIVE),
    _critic_knob("vf_adam_beta1", "Adam beta1", low=0.0, high=0.99999),
    _critic_knob("vf_adam_beta2", "Adam beta2", low=0.0, high=0.9999999),
    number(
        "vf_max_grad_norm",
        "same",
        "the critic's gradient clip; `same`: the policy's",
        **POSITIVE,
        off=True,
        choices=("same",),
    ),
    number(
        "vf_weight_decay",
        "same",
        "the critic's weight decay; `same`: the policy's",
        low=0.0,
        choices=("same",),
    ),
    number(
        "shadow_weight",
        1.0,
        "fraction of the shadow's advantage that is subtracted, if `env.shadow` is set",
        **FRACTION,
        search={"values": [0.0, 1.0]},
    ),
    number(
        "reward_scale",
        1.0,
        "factor by which the learner's reward is multiplied",
        **POSITIVE,
        search=log(0.1, 10.0),
    ),
    number(
        "reward_clip",
        None,
        "clip range of the learner's reward; unset: 10 with normalise_rewards, else off",
        **POSITIVE,
        off=True,
    ),
    switch(
        "reward_centering",
        False,
        "subtract a running average from the learner's reward",
        search={"values": [True, False]},
    ),
    number(
        "average_reward_initial",
        None,
        "initial value of the average reward (for reward_centering); off: the first rollout's "
        "average",
        off=True,
    ),
    number(
        "average_reward_step",
        1e-3,
        "step size for updating the average reward, once per rollout",
        **{**POSITIVE, "high": 1.0},
        search=log(1e-4, 1e-1),
    ),
    switch(
        "normalise_observations",
        False,
        "normalise observations by running mean and variance, frozen in evaluation",
        search={"values": [True, False]},
    ),
    number(
        "observation_clip", 10.0, "clip range of normalised observations", **POSITIVE, off=True
    ),
    switch(
        "normalise_rewards",
        True,
        "normalise rewards by the running standard deviation of the discounted return",
        search={"values": [True, False]},
    ),
    switch(
        "raw_reward_deviation",
        False,
        "normalise_rewards divides by the standard deviation of rewards, not of returns",
        search={"values": [True, False]},
    ),
    switch(
        "normalise_advantages",
        True,
        "normalise advantages to mean 0 and standard deviation 1 in every minibatch",
    ),
    number("logr_clip", 10.0, "clip range of the log probability ratio", **POSITIVE, off=True),
    number("adv_clip", 10.0, "clip range of normalised advantages", **POSITIVE, off=True),
    number(
        "target_kl",
        None,
        "skip the rest of an update once the KL divergence exceeds 1.5 times this value",
        **POSITIVE,
        off=True,
        search=log(0.005, 0.05),
    ),
    number(
        "priority_alpha",
        0.0,
        "exponent of |A| in row sampling probabilities; 0: each row is used once",
        low=0.0,
        search=uniform(0.0, 1.0),
    ),
    number(
        "priority_beta0",
        1.0,
        "initial exponent of the importance weights",
        **FRACTION,
        search=uniform(0.0, 1.0),
    ),
    switch("anneal_priority_beta", True, "raise priority_beta0 to 1 over the run"),
    number(
        "rho_clip",
        None,
        "V-trace: maximum importance ratio of a TD error; used with c_clip",
        **POSITIVE,
        off=True,
        search=uniform(0.5, 2.0),
    ),
    number(
        "c_clip",
        None,
        "V-trace: maximum importance ratio of the trace; used with rho_clip",
        **POSITIVE,
        off=True,
        search=uniform(0.5, 2.0),
    ),
    number(
        "log_std_init",
        -0.5,
        "initial log standard deviation of Gaussian policies",
        low=-20.0,
        high=2.0,
    ),
    number("log_std_min", -20.0, "smallest log standard deviation", low=-20.0, high=2.0),
    number("log_std_max", 2.0, "largest log standard deviation", low=-20.0, high=5.0),
    Knob(
        "update_epochs",
        "int",
        4,
        True,
        low=1,
        high=1000,
        meaning="passes over each rollout",
        search={"min": 1, "max": 20, "distribution": "log_int_uniform"},
    ),
    switch("action_masking", True, "invalid actions get probability 0, if there is a mask"),
    switch(
        "off_policy_masking",
        False,
        "use the importance ratio of the unmasked policy to the masked behaviour policy",
        search={"values": [True, False]},
    ),
    Knob(
        "masking_gate_min_actions",
        "int",
        2,
        True,
        low=1,
        high=2**24,
        meaning=(
            "with masking_gating, rows with fewer valid actions than this are excluded from the "
            "policy and entropy losses"
        ),
    ),
    switch(
        "masking_gating",
        True,
        (
            "exclude rows with too few valid actions from the policy and entropy losses, and rows "
            "with none from the value loss"
        ),
        search={"values": [True, False]},
    ),
    switch(
        "masking_damping",
        True,
        "weight each row by min(1, valid mass / valid_mass_target)",
        search={"values": [True, False]},
    ),
    number(
        "valid_mass_target",
        0.05,
        "valid mass at which a row gets the full weight (masking_damping)",
        **{**POSITIVE, "high": 1.0},
        search=log(0.02, 0.1),
    ),
    number(
        "valid_mass_coef",
        0.0,
        "weight of the loss -log(valid mass)",
        low=0.0,
        search=log(2e-4, 0.1, zero=0.2),
    ),
    schedule("valid_mass_schedule", "constant", "how valid_mass_coef changes over the run"),
    number(
        "valid_mass_end_fraction",
        10.0,
        "final valid_mass_coef as a fraction of the initial",
        low=0.0,
    ),
    number(
        "valid_mass_schedule_multiplier",
        1.0,
        "schedule horizon as a fraction of the run",
        **POSITIVE,
    ),
    switch(
        "schedule_on_gradient_steps",
        False,
        "schedules count gradient steps instead of updates",
    ),
)
