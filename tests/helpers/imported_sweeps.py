"""Thirty sweep files in the shapes that Weights & Biases documents, and what becomes of each.

An entry is (text, expected): a mapping of space or fixed values that must be in the study, or a
text that the refusal must hold.
"""

from __future__ import annotations

import textwrap

# fmt: off

HEAD = """
program: train.py
method: {method}
metric: {{name: episode_return, goal: maximize}}
parameters:
  env_id: {{value: CartPole-v1}}
"""


def sweep(parameters: str, rest: str = "", method: str = "random") -> str:
    body = textwrap.indent(textwrap.dedent(parameters).strip("\n"), "  ")
    return HEAD.format(method=method) + body + "\n" + textwrap.dedent(rest)


SWEEPS: dict[str, tuple[str, object]] = {
    "uniform": (sweep("clip_range: {distribution: uniform, min: 0.1, max: 0.3}"),
        {"space.clip_eps": {"min": 0.1, "max": 0.3, "distribution": "uniform"}}),
    "uniform_inferred": (sweep("gae_lambda: {min: 0.8, max: 1.0}"),
        {"space.gae_lambda": {"min": 0.8, "max": 1.0, "distribution": "uniform"}}),
    "int_uniform": (sweep("n_epochs: {distribution: int_uniform, min: 1, max: 8}"),
        {"space.update_epochs": {"min": 1, "max": 8, "distribution": "int_uniform"}}),
    "values_that_bring_settings_of_their_own": (sweep("""
        n_steps: {value: 128}
        n_epochs: {value: 4}
        ortho_init: {values: [true, false]}"""), "change initialisation and .* together"),
    "a_schedule_for_one_of_the_values": (sweep("""
        n_steps: {value: 128}
        n_epochs: {value: 4}
        learning_rate: {values: [lin_0.001, 0.0003]}"""), "together; search only one"),
    "two_names_that_end_alike": (sweep("""
        actor: {parameters: {lr: {min: 1.0e-5, max: 1.0e-4}}}
        critic: {parameters: {lr: {min: 1.0e-3, max: 1.0e-2}}}"""),
        "actor.lr and critic.lr would both set learning_rate.*--without actor.lr"),
    "a_constant_beside_a_search_that_ends_alike": (sweep("""
        gamma: {values: [0.99, 0.999]}
        lr_scheduler: {parameters: {gamma: {value: 0.5}}}"""), "would both set gamma"),
    "synonyms_that_are_both_searched": (sweep("""
        actor: {parameters: {learning_rate: {min: 1.0e-3, max: 1.0e-1}}}
        critic: {parameters: {lr: {min: 1.0e-4, max: 1.0e-2}}}"""),
        "actor.learning_rate and critic.lr would both set learning_rate"),
    "a_constant_beside_a_synonym": (sweep("""
        learning_rate: {value: 0.001}
        lr: {min: 1.0e-4, max: 1.0e-2}"""),
        "learning_rate and lr would both set learning_rate"),
    "synonyms_that_agree": (sweep("""
        learning_rate: {value: 0.001}
        lr: {value: 0.001}
        gamma: {values: [0.9, 0.99]}"""), {"fixed.learning_rate": 0.001}),
    "a_grid_of_very_many_steps": (
        sweep(
            """
            ent_coef: {distribution: q_uniform, min: 0.0, max: 0.5, q: 0.0001}
            gamma: {distribution: q_log_uniform_values, min: 0.9, max: 0.99, q: 0.001}
            """,
            method="grid",
        ),
        {"search": {"method": "grid", "options": {"points": {"ent_coef": 1000}}}}),
    "steps_from_an_open_end": (
        sweep("clip_coef: {distribution: q_uniform, min: 0.0, max: 0.4, q: 0.1}"),
        {"space.clip_eps": {"min": 0.1, "max": 0.4, "q": 0.1, "distribution": "uniform"}}),
    "a_grid_of_whole_numbers": (
        sweep("""
        update_epochs: {min: 1, max: 8}
        clip_coef: {distribution: q_uniform, min: 0.1, max: 0.4, q: 0.1}
        gamma: {values: [0.9, 0.99]}""", method="grid"),
        {"search": {"method": "grid", "options": {"points": {"update_epochs": 8, "clip_eps": 4}}}}
    ),
    "int_uniform_inferred": (sweep("update_epochs: {min: 1, max: 8}"),
        {"space.update_epochs": {"min": 1, "max": 8, "distribution": "int_uniform"}}),
    "log_uniform_holds_exponents": (
        sweep("learning_rate: {distribution: log_uniform, min: -11.512925, max: -4.605170}"),
        {"space.learning_rate": {"min": 1e-5, "max": 1e-2, "distribution": "log_uniform"}}),
    "log_uniform_with_values_by_mistake": (
        sweep("learning_rate: {distribution: log_uniform, min: 0.0001, max: 300.0}"),
        "exponents"),
    "log_uniform_values": (sweep("lr: {distribution: log_uniform_values, min: 1e-5, max: 1e-2}"),
        {"space.learning_rate": {"min": 1e-5, "max": 1e-2, "distribution": "log_uniform"}}),
    "inv_log_uniform": (
        sweep("lr: {distribution: inv_log_uniform, min: 4.605170, max: 11.512925}"),
        {"space.learning_rate": {"min": 1e-5, "max": 1e-2, "distribution": "log_uniform"}}),
    "inv_log_uniform_values": (
        sweep("vf_coef: {distribution: inv_log_uniform_values, min: 0.1, max: 1.0}"),
        {"space.vf_coef": {"min": 0.1, "max": 1.0, "distribution": "log_uniform"}}),
    "q_uniform": (sweep("ent_coef: {distribution: q_uniform, min: 0.0, max: 0.1, q: 0.01}"),
        {"space.ent_coef": {"min": 0.0, "max": 0.1, "distribution": "uniform", "q": 0.01}}),
    "q_uniform_rounds_to_multiples": (
        sweep("vf_coef: {distribution: q_uniform, min: 0.12, max: 0.98, q: 0.25}"),
        {"space.vf_coef": {"min": 0.0, "max": 1.0, "distribution": "uniform", "q": 0.25}}),
    "q_uniform_of_integers": (sweep("n_epochs: {distribution: q_uniform, min: 2, max: 10, q: 2}"),
        {"space.update_epochs": {"min": 2, "max": 10, "distribution": "int_uniform", "q": 2}}),
    "q_log_uniform_values": (
        sweep("max_grad_norm: {distribution: q_log_uniform_values, min: 0.5, max: 4.0, q: 0.5}"),
        {"space.max_grad_norm": {"min": 0.5, "max": 4.0, "distribution": "log_uniform", "q": 0.5}}
    ),
    "normal": (sweep("gae_lambda: {distribution: normal, mu: 0.9, sigma: 0.02}"),
        {"space.gae_lambda": {"mu": 0.9, "sigma": 0.02, "distribution": "normal"}}),
    "q_normal": (sweep("gae_lambda: {distribution: q_normal, mu: 0.9, sigma: 0.02, q: 0.01}"),
        "the distribution 'q_normal' is not supported"),
    "log_normal": (sweep("learning_rate: {distribution: log_normal, mu: -7, sigma: 1}"),
        "the distribution 'log_normal' is not supported"),
    "beta": (sweep("gamma: {distribution: beta, a: 2, b: 5}"),
        "the distribution 'beta' is not supported"),
    "categorical": (sweep("batch_size: {values: [64, 128, 256]}"),
        {"space.minibatch_size": {"values": [64, 128, 256]}}),
    "categorical_with_equal_probabilities": (
        sweep(
            "activation: {distribution: categorical_w_probabilities, values: [tanh, relu], "
            "probabilities: [0.5, 0.5]}"
        ),
        {"space.activation": {"values": ["tanh", "relu"]}}),
    "categorical_with_unlike_probabilities": (
        sweep("activation: {values: [tanh, relu], probabilities: [0.9, 0.1]}"),
        "different probabilities"),
    "values_that_repeat": (sweep("num_envs: {values: [8, 16, 8]}"),
        {"space.num_envs": {"values": [8, 16]}}),
    "constant": (sweep("gamma: {distribution: constant, value: 0.98}\nn_steps: {value: 64}"),
        {"fixed.gamma": 0.98, "fixed.rollout_length": 64}),
    "nested": (
        sweep("""
        optimizer:
          parameters:
            learning_rate: {min: 0.0001, max: 0.01}
            extra: {parameters: {adam_eps: {value: 1e-6}}}"""),
        {
            "space.learning_rate": {"min": 0.0001, "max": 0.01, "distribution": "uniform"},
            "fixed.adam_eps": 1e-6,
        }),
    "a_static_knob_in_a_range": (sweep("num_minibatches: {min: 1, max: 4}"),
        {"space.num_minibatches": {"values": [1, 2, 3, 4]}}),
    "a_static_knob_in_a_wide_range": (sweep("rollout_length: {min: 16, max: 2048}"),
        {"space.rollout_length": {"values": [16, 32, 64, 128, 256, 512, 1024, 2048]}}),
    "a_static_knob_in_a_wide_range_of_no_powers": (sweep("rollout_length: {min: 33, max: 63}"),
        "each value of rollout_length needs a separate program"),
    "hyperband_of_iterations": (
        sweep(
            "total_timesteps: {value: 900000}\ngamma: {values: [0.9, 0.99]}",
            "early_terminate: {type: hyperband, s: 2, eta: 3, max_iter: 27}",
        ),
        {"early_terminate": {"type": "asha", "eta": 3.0, "min": 100000}}),
    "hyperband_of_env_steps": (
        sweep(
            "total_timesteps: {value: 60000000}\ngamma: {values: [0.9, 0.99]}",
            "early_terminate: {type: hyperband, min_iter: 10000000, max_iter: 60000000, s: 3}",
        ),
        {
            "early_terminate": {"type": "asha", "eta": 3.0, "min": 2222223},
            "left_out": "early_terminate.min_iter",
        }),
    "command_flags": (
        sweep(
            "learning_rate: {values: [1e-4, 1e-3]}",
            'command: ["${env}", python3, "${program}", --vf-coef=0.25, --num_envs, 16, '
            '--track, "${args}"]\nrun_cap: 12',
        ),
        {"fixed.vf_coef": 0.25, "fixed.num_envs": 16, "budget": {"trials": 12}}),
    "seeds_and_grid": (
        sweep("seed: {values: [1, 2, 3]}\ngamma: {values: [0.9, 0.99]}", method="grid"),
        {"seeds": {"per_config": 3}, "search": {"method": "grid"}}),
    "bayes_and_unknown_names": (
        sweep("dropout: {values: [0.1, 0.5]}\ngamma: {min: 0.9, max: 0.99}", method="bayes"),
        "dropout is searched, but hpo has no counterpart.*--without dropout"),
    "optical": ("""
        method: bayes
        metric: {name: service_blocking_probability_mean, goal: minimize}
        parameters:
          env_type: {value: rmsa}
          topology_name: {value: nsfnet_deeprmsa}
          link_resources: {value: 100}
          k: {value: 5}
          aggregate_slots: {values: [10, 20, 100]}
          GAMMA: {min: 0.99, max: 0.9999}
          ADAM_BETA1: {min: 0.8, max: 0.99}
          CLIP_EPS: {values: [0.02, 0.04, 0.08, 0.16]}
        """, {"space.env.aggregate_slots": {"values": [10, 20, 100]}, "env.k": 5}),
    "an_environment_that_is_searched": ("""
        method: grid
        metric: {name: episode_return, goal: maximize}
        parameters:
          env_id: {values: [CartPole-v1, Acrobot-v1]}
          gamma: {values: [0.9, 0.99]}
        """, "import the sweep once per value"),
    "a_metric_of_no_counterpart": ("""
        method: random
        metric: {name: val_loss, goal: minimize}
        parameters: {env_id: {value: CartPole-v1}, gamma: {values: [0.9, 0.99]}}
        """, "'val_loss' has no counterpart"),
    "an_illegal_value": (sweep("gamma: {value: 1.5}"), "gamma is 1.5; allowed"),
}
