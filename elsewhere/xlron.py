"""XLRON's flags: an optical-network trainer whose flags, defaults and code are read at 1.1.0.

Capitals matter there (`GAMMA` is the discount, `gamma` a fibre's constant). What follows from
several flags together (schedules, lambda, layers) is done by `studies/imports/xlron.py`.
"""

from __future__ import annotations

from dataclasses import replace

from .common import MACHINE, OUTPUT
from .rows import UNKNOWN, Row, System, left, refused, taken
from .values import NoCounterpart, Off, Settings, Words
from .xlron_env import ENVIRONMENT

__all__ = ["OLDER", "XLRON"]

_NOT_HERE = "networks of this kind are not built here"
_COMPUTED = "computed from other flags there"
_BOUNDS = "belongs to bounds, not to training"
_DTYPES = Words({"float32": "float32", "bfloat16": "bfloat16", None: "float32"})
_ACTIVATIONS = Words(
    {
        "tanh": "tanh",
        "relu": "relu",
        "crelu": NoCounterpart(
            "it doubles the width of what it is applied to, for which XLRON's own layers are not "
            "built either; take relu or tanh"
        ),
    },
    others="tanh",
)


def _network(kind: str, **settings: object) -> Words:
    return Words({True: Settings(network=kind, **settings), False: Settings()})


_RUN = (
    taken("SEED", "seed", 42),
    taken("NUM_LEARNERS", "seeds.per_config", 1),
    taken("TOTAL_TIMESTEPS", "env_steps", 1_000_000),
    taken("NUM_ENVS", "num_envs", 1),
    taken("ROLLOUT_LENGTH", "rollout_length", 150),
    taken("UPDATE_EPOCHS", "update_epochs", 1),
    taken("NUM_MINIBATCHES", "num_minibatches", 1),
    *left(_COMPUTED, "MINIBATCH_SIZE", "NUM_UPDATES", "NUM_INCREMENTS", "ACTION_DIM",
          "INPUT_DIM"),
    taken("STEPS_PER_INCREMENT", "log_every"),
)  # fmt: skip

_OPTIMISATION = (
    taken("LR", "learning_rate", 5e-4),
    taken("LR_SCHEDULE", "lr_schedule", "cosine"),
    taken("LR_END_FRACTION", "lr_end_fraction", 0.1),
    taken("LR_SCHEDULE_MULTIPLIER", "lr_schedule_multiplier", 1.0),
    taken("WARMUP_MULTIPLIER", "lr_warmup_multiplier", 1.0),
    taken("WARMUP_STEPS_FRACTION", "lr_warmup_fraction", 0.2),
    taken("ADAM_EPS", "adam_eps", 1e-5),
    taken("ADAM_BETA1", "adam_beta1", 0.9),
    taken("ADAM_BETA2", "adam_beta2", 0.999),
    taken("WEIGHT_DECAY", "weight_decay", 0.0),
    taken("MAX_GRAD_NORM", "max_grad_norm", 0.5),
    taken("SEPARATE_VF_OPTIMIZER", "separate_vf_optimiser", False),
    taken("VF_LR", "vf_learning_rate"),
    taken("VF_LR_SCHEDULE", "vf_lr_schedule"),
    taken("VF_LR_END_FRACTION", "vf_lr_end_fraction"),
    taken("VF_WARMUP_MULTIPLIER", "vf_warmup_multiplier"),
    taken("VF_WARMUP_STEPS_FRACTION", "vf_warmup_fraction"),
    taken("VF_SCHEDULE_MULTIPLIER", "vf_schedule_multiplier"),
    taken("VF_ADAM_EPS", "vf_adam_eps"),
    taken("VF_ADAM_BETA1", "vf_adam_beta1"),
    taken("VF_ADAM_BETA2", "vf_adam_beta2"),
    taken("VF_MAX_GRAD_NORM", "vf_max_grad_norm"),
    taken("VF_WEIGHT_DECAY", "vf_weight_decay"),
    taken("STEP_ON_GRADIENT", "schedule_on_gradient_steps", False),
)

_PPO = (
    taken("GAMMA", "gamma", 0.999),
    taken("GAE_LAMBDA", "gae_lambda"),
    taken("INITIAL_LAMBDA", "gae_lambda_initial", 0.9),
    taken("FINAL_LAMBDA", "gae_lambda_final", 0.98),
    taken("LAMBDA_SCHEDULE_MULTIPLIER", "gae_lambda_schedule_multiplier", 1.0),
    taken("CLIP_EPS", "clip_eps", 0.2),
    taken("VF_COEF", "vf_coef", 0.5),
    taken("ENT_COEF", "ent_coef", 0.0),
    taken("ENT_SCHEDULE", "ent_schedule", "constant"),
    taken("ENT_END_FRACTION", "ent_end_fraction", 0.1),
    taken("ENT_SCHEDULE_MULTIPLIER", "ent_schedule_multiplier", 1.0),
    taken("LOGR_CLIP", "logr_clip", 10.0),
    taken("ADV_CLIP", "adv_clip", 10.0),
    taken("REWARD_SCALE", "reward_scale", 1.0),
    taken("REWARD_CENTERING", "reward_centering", False),
    taken("INITIAL_AVERAGE_REWARD", "average_reward_initial", 0.0),
    taken("REWARD_STEPSIZE", "average_reward_step", 0.001),
    taken("PRIO_ALPHA", "priority_alpha", 0.0),
    taken("PRIO_BETA0", "priority_beta0", 1.0),
    taken("RHO_CLIP", "rho_clip", -1.0, Off(0.0)),
    taken("C_CLIP", "c_clip", -1.0, Off(0.0)),
    taken("OFF_POLICY_IAM", "off_policy_masking", False),
    taken("IAM_DAMPING", "masking_damping", True),
    taken("IAM_GATING", "masking_gating", True),
    taken("IAM_GATING_MIN_ACTIONS", "masking_gate_min_actions", 2),
    taken("VALID_MASS_TARGET", "valid_mass_target", 0.05),
    taken("VALID_MASS_LOSS_COEF", "valid_mass_coef", 0.0),
    taken("VML_SCHEDULE", "valid_mass_schedule", "constant"),
    taken("VML_END_FRACTION", "valid_mass_end_fraction", 10.0),
    taken("VML_SCHEDULE_MULTIPLIER", "valid_mass_schedule_multiplier", 1.0),
    *left("has no effect there: actions are always masked", "ACTION_MASKING"),
    *left("has no effect there", "TEMPERATURE", "EPSILON"),
)

_NETWORKS = (
    taken("USE_TRANSFORMER", "network", False, _network("transformer")),
    taken("USE_GNN", "network", False, _network("gnn")),
    *left("builds no recurrent network there: it is the mlp", "USE_RNN"),
    taken("NUM_LAYERS", "num_layers", 2),
    taken("NUM_UNITS", "hidden_size", 64),
    taken("ACTIVATION", "activation", "tanh", _ACTIVATIONS),
    taken("compute_dtype", "dtype", None, _DTYPES),
    taken("message_passing_steps", "gnn_message_passing_steps", 3),
    taken("DISABLE_NODE_FEATURES", "gnn_node_features", False, Words({True: False, False: True})),
    taken("num_spectral_features", "gnn_num_spectral_features", 8),
    taken("edge_embedding_size", "gnn_edge_embedding_size", 128),
    taken("node_embedding_size", "gnn_node_embedding_size", 16),
    taken("global_embedding_size", "gnn_global_embedding_size", 8),
    taken("edge_mlp_layers", "gnn_edge_mlp_layers", 2),
    taken("edge_mlp_latent", "gnn_edge_mlp_latent", 128),
    taken("node_mlp_layers", "gnn_node_mlp_layers", 2),
    taken("node_mlp_latent", "gnn_node_mlp_latent", 128),
    taken("global_mlp_layers", "gnn_global_mlp_layers", 1),
    taken("global_mlp_latent", "gnn_global_mlp_latent", 16),
    taken("attn_mlp_layers", "gnn_attn_mlp_layers", 1),
    taken("attn_mlp_latent", "gnn_attn_mlp_latent", 64),
    taken("gnn_layer_norm", "gnn_layer_norm", True),
    taken("mlp_layer_norm", "gnn_mlp_layer_norm", False),
    taken("normalize_by_link_length", "gnn_normalise_by_link_length", False),
    taken("mlp_layers", "gnn_edge_mlp_layers", note="and of the nodes, the graph, attention"),
    taken("mlp_latent", "gnn_edge_mlp_latent", note="and of the nodes, the graph, attention"),
    taken("transformer_obs_type", "transformer_obs_type", "departure"),
    taken("transformer_embedding_size", "transformer_embedding_size", 128),
    taken("transformer_intermediate_size", "transformer_intermediate_size", 256),
    taken("transformer_num_layers", "transformer_layers", 1),
    taken("transformer_num_heads", "transformer_heads", 4),
    taken("num_wire_features", "transformer_wire_features", 8),
    taken("transformer_dropout_rate", "transformer_dropout", 0.1),
    taken("transformer_attention_dropout_rate", "transformer_attention_dropout", 0.1),
    taken("transformer_enable_dropout", "transformer_enable_dropout", False),
    taken("transformer_share_layers", "transformer_share_layers", False),
    taken("transformer_actor_mlp_width", "transformer_actor_mlp_width", 128),
    taken("transformer_critic_mlp_width", "transformer_critic_mlp_width", 128),
    taken("transformer_actor_mlp_depth", "transformer_actor_mlp_depth", 1),
    taken("transformer_critic_mlp_depth", "transformer_critic_mlp_depth", 2),
    taken("transformer_actor_pooling", "transformer_actor_pooling", "mean"),
    taken("transformer_critic_pooling", "transformer_critic_pooling", "mean"),
    *left("has no effect there: sizes follow from the actions", "edge_output_size_actor"),
    *refused(_NOT_HERE, "edge_output_size_critic", "global_output_size_critic", harmless=(1,)),
    *refused(_NOT_HERE, "global_output_size_actor", "node_output_size_actor",
             "node_output_size_critic", harmless=(0,)),
)  # fmt: skip

_SAVED = (
    taken("MODEL_PATH", "init.from", note="with RETRAIN_MODEL; a folder of ours, no .eqx"),
    taken("RETRAIN_MODEL", "init.from"),
    taken("KEEP_VF", "init.keep", values=Words({True: "critic", False: "all"})),
    taken("SAVE_MODEL", "checkpoint.best_evaluation"),
    taken("EVAL_DURING_TRAINING", "evaluation.every"),
    taken("EVAL_FREQUENCY", "evaluation.every"),
    taken("EVAL_TIMESTEPS", "evaluation.steps"),
    taken("deterministic", "evaluation.greedy"),
    taken("WANDB", "loggers"),
    taken("PROJECT", "loggers"),
    taken("DOWNSAMPLE_FACTOR", "loggers"),
    taken("EXPERIMENT_NAME", "name"),
    taken("DETERMINISTIC_OPS", "population.deterministic"),
    *left("files are named by the study", "OVERWRITE_MODEL", "DATA_OUTPUT_FILE",
          "EPISODE_DATA_OUTPUT_FILE"),
    *left("the journal holds every metric", "LOG_LOSS_INFO", "LOG_ALL_INFO", "ENHANCED_LOGGING",
          "log_wrapper"),
    *left("see `hpo eval --trace`", "TRAJ_DATA_OUTPUT_FILE"),
    *left("see `hpo plot` and `hpo report`", "PLOTTING"),
    *left("belongs to evaluation, not to training", "EVAL_HEURISTIC", "EVAL_MODEL",
          "RENDER_EVAL_MODE", "RENDER_FPS", "RENDER_SCALE", "RENDER_OUTPUT_FILE",
          "RENDER_MAX_STEPS", "RENDER_CLICK_THROUGH", "EVAL_STEPS", "min_traffic", "max_traffic",
          "step_traffic"),
)  # fmt: skip

_MACHINES = (
    *left(MACHINE, "NUM_DEVICES", "VISIBLE_DEVICES", "EMULATED_DEVICES", "PREALLOCATE_MEM",
          "PREALLOCATE_MEM_FRACTION", "PRINT_MEMORY_USE"),
    *left(OUTPUT, "PRINT_FLAGS", "DEBUG", "DEBUG_LOSS", "DEBUG_NANS", "NO_TRUNCATE", "ORDERED",
          "PROFILE", "DISABLE_JIT"),
    *left("how the environment's state is stored; its numbers here are exact",
          "mixed_precision", "large_float_dtype", "small_float_dtype", "time_dtype",
          "float_dtype", "int_dtype", "large_int_dtype", "small_int_dtype", "binary_dtype",
          "reward_dtype", "action_dtype"),
    *refused("parameters stay float32", "params_dtype", harmless=(None, "float32")),
    *refused("everything is float32", "ENABLE_X64"),
    *left(_BOUNDS, "COMPILE_RR_BOUNDS", "CUTSET_EXHAUSTIVE", "CUTSET_PARALLEL_PROCESSES",
          "CUTSET_BATCH_SIZE", "CUTSET_ITERATIONS", "CUTSET_TOP_K", "CUTSET_TOP_PCT",
          "NEGLECT_SPECTRUM_CONTINUITY", "num_trials", "cutset_link_selection_mode",
          "sort_requests"),
    *refused("training alone is imported", "ACTION_OPTIMIZATION", "optimise_launch_power",
             "differentiable"),
    *left("belongs to the optimisation of actions, not to training",
          "INITIALIZE_ACTIONS_HEURISTIC", "INITIALIZE_ACTIONS_RANDOM",
          "INITIALIZE_ACTIONS_ASCENDING", "INITIALIZE_ACTIONS_DESCENDING",
          "INITIALIZE_ACTIONS_MAX", "temperature", "OPTIMIZATION_LEARNING_RATE",
          "OPTIMIZATION_ITERATIONS", "PATH_SLOT_ACTIONS", "GAUSSIAN_SMOOTHING", "GAUSSIAN_SIGMA",
          "traffic_array"),
)  # fmt: skip

OLDER = {
    "NUM_SEEDS": "NUM_LEARNERS",
    "NUM_STEPS": "ROLLOUT_LENGTH",
    "WARMUP_PEAK_MULTIPLIER": "WARMUP_MULTIPLIER",
    "WARMUP_END_FRACTION": "LR_END_FRACTION",
    "LOSS_DAMPING_VALID_MASS_TARGET": "VALID_MASS_TARGET",
    "LOSS_DAMPING_K_MIN": "IAM_GATING_MIN_ACTIONS",
    "LOAD_MODEL": "RETRAIN_MODEL",
    "gnn_mlp_layers": "mlp_layers",
    "gnn_latent": "mlp_latent",
}
"""Flag of earlier versions, which its documents still name -> the flag of today."""

_NOW = (*_RUN, *_OPTIMISATION, *_PPO, *_NETWORKS, *_SAVED, *_MACHINES, *ENVIRONMENT)


def _older() -> tuple[Row, ...]:
    rows = {row.name: row for row in _NOW}
    return (
        *(replace(rows[new], name=old, default=UNKNOWN) for old, new in OLDER.items()),
        taken("ON_POLICY_IAM", "off_policy_masking", values=Words({True: False, False: True})),
        *left("an episode ends by max_requests", "max_timesteps"),
        *left("has no effect there: sizes follow from the actions", "output_nodes_size",
              "output_globals_size"),
        *left(MACHINE, "DEFAULT_DEVICE"),
    )  # fmt: skip


XLRON = System(
    "xlron",
    "XLRON",
    (*_NOW, *_older()),
    programs=("xlron",),
    marks=(
        frozenset({"env_type", "topology_name"}),
        frozenset({"topology_name", "link_resources"}),
        frozenset({"aggregate_slots", "CLIP_EPS"}),
    ),
    exact=True,
    strict=True,
    source="github.com/micdoh/XLRON: xlron/parameter_flags.py and the code that reads it",
    always={"normalise_observations": False, "normalise_rewards": False},
)
