"""Files in the shapes that XLRON and W&B document, and every value that each of them trains with.

Written by hand from XLRON 1.1.0: its flags (parameter_flags.py) and the code that reads them
(train/train_utils.py, train/ppo.py, models/, make_env.py). `XLRON` is a command without flags in
the words of a study; an entry names what its flags change.
"""

from __future__ import annotations

from math import sqrt

# fmt: off

XLRON = {
    "learning_rate": 5e-4, "lr_schedule": "cosine",
    "lr_end_fraction": 5e-4 * 0.1,  # optax takes LR x LR_END_FRACTION for a fraction of LR
    "lr_warmup_fraction": 0.2, "lr_warmup_multiplier": 1.0, "lr_schedule_multiplier": 1.0,
    "lr_decay_exponent": 1.0, "gamma": 0.999, "gae_lambda_initial": 0.9,
    "gae_lambda_final": 0.98, "gae_lambda_schedule_multiplier": 1.0, "vf_gae_lambda": None,
    "clip_eps": 0.2, "clip_eps_schedule": "constant",
    "value_clip_eps": None,  # 0.5 (V - R)^2 without a clip
    "vf_coef": 0.5, "ent_coef": 0.0, "ent_schedule": "constant", "max_grad_norm": 0.5,
    "adam_eps": 1e-5, "adam_beta1": 0.9, "adam_beta2": 0.999, "weight_decay": 0.0,
    "separate_vf_optimiser": False, "reward_scale": 1.0, "reward_clip": None,
    "reward_centering": False, "normalise_observations": False, "normalise_rewards": False,
    "raw_reward_deviation": False, "accumulate_minibatches": 1, "normalise_advantages": True,
    "logr_clip": 10.0, "adv_clip": 10.0, "target_kl": None, "priority_alpha": 0.0,
    "rho_clip": None, "c_clip": None, "update_epochs": 1, "action_masking": True,
    "off_policy_masking": False, "masking_gate_min_actions": 2, "masking_gating": True,
    "masking_damping": True, "valid_mass_target": 0.05, "valid_mass_coef": 0.0,
    "valid_mass_schedule": "constant", "schedule_on_gradient_steps": False, "num_envs": 1,
    "rollout_length": 150, "num_minibatches": 1, "network": "mlp", "history": 1,
    "hidden_sizes": (64, 64), "activation": "tanh", "layer_norm": False, "shared_encoder": False,
    "initialisation": "orthogonal", "hidden_gain": sqrt(2.0), "policy_gain": sqrt(2.0),
    "value_gain": sqrt(2.0),
    "optimiser": "adam",  # AdamW, whose decay is 0
    "dtype": "float32",
}
GNN = {
    "network": "gnn", "activation": "relu", "gnn_message_passing_steps": 3,
    "gnn_edge_embedding_size": 128, "gnn_node_embedding_size": 16,
    "gnn_global_embedding_size": 8, "gnn_edge_mlp_layers": 2, "gnn_edge_mlp_latent": 128,
    "gnn_node_mlp_layers": 2, "gnn_node_mlp_latent": 128, "gnn_global_mlp_layers": 1,
    "gnn_global_mlp_latent": 16, "gnn_attn_mlp_layers": 1, "gnn_attn_mlp_latent": 64,
    "gnn_num_spectral_features": 8, "gnn_layer_norm": True, "gnn_mlp_layer_norm": False,
    "gnn_normalise_by_link_length": False, "gnn_node_features": True,
}
TRANSFORMER = {
    "network": "transformer",
    "activation": "relu",  # of the heads; equinox's default
    "transformer_layers": 1, "transformer_heads": 4, "transformer_embedding_size": 128,
    "transformer_intermediate_size": 256, "transformer_obs_type": "departure",
    "transformer_wire_features": 8, "transformer_actor_mlp_width": 128,
    "transformer_actor_mlp_depth": 1, "transformer_critic_mlp_width": 128,
    "transformer_critic_mlp_depth": 2, "transformer_actor_pooling": "mean",
    "transformer_critic_pooling": "mean", "transformer_share_layers": False,
    "transformer_enable_dropout": False,
}
NSFNET = {
    "id": "rmsa", "topology": "nsfnet_deeprmsa", "directed": True, "slots": 100,
    "slot_width": 12.5, "guardband": 1, "k": 5, "path_order": "spectral_resources",
    "modulation": "deeprmsa", "load": 250.0, "mean_holding_time": 25.0,
    "truncate_holding_time": False, "bitrates": (), "min_bitrate": 25.0, "max_bitrate": 100.0,
    "step_bitrate": 1.0, "traffic_matrix": "uniform", "continuous": True,
    "warmup_requests": 3000, "incremental": False, "requests": "", "aggregate_slots": 1,
    "no_op": False, "reward": "service", "end_first_blocking": False, "disjoint_paths": False,
}
_NSFNET = """python -m xlron.train.train --env_type=rmsa \\
  --topology_name=nsfnet_deeprmsa_directed --link_resources=100 --continuous_operation \\
  --ENV_WARMUP_STEPS=3000 """

COMMANDS: dict[str, tuple[str, dict[str, object], dict[str, object], int]] = {
    "a minimal command": (
        _NSFNET + "--k=5 --load=250 --TOTAL_TIMESTEPS=5000000 --NUM_ENVS=16 "
        "--ROLLOUT_LENGTH=100 --LR=5e-4",
        {**XLRON, "num_envs": 16, "rollout_length": 100},
        NSFNET,
        5_000_000,
    ),
    "deeprmsa": (
        _NSFNET.replace("=rmsa", "=deeprmsa")
        + "--k=5 --load=250 --mean_service_holding_time=25 --max_requests=1000 --NUM_LAYERS=5 "
        "--NUM_UNITS=128 --NUM_ENVS=16 --ROLLOUT_LENGTH=100 --TOTAL_TIMESTEPS=5000000 --LR=5e-5 "
        "--LR_SCHEDULE=linear --WARMUP_MULTIPLIER=2 --UPDATE_EPOCHS=10 --GAE_LAMBDA=0.9 "
        "--GAMMA=0.95 --ACTION_MASKING",
        {
            **XLRON, "num_envs": 16, "rollout_length": 100, "hidden_sizes": (128,) * 5,
            "learning_rate": 5e-5, "lr_schedule": "linear", "lr_end_fraction": 0.1,
            "lr_warmup_multiplier": 2.0, "update_epochs": 10, "gae_lambda": 0.9,
            "gae_lambda_initial": None, "gae_lambda_final": None, "gamma": 0.95,
        },
        {**NSFNET, "id": "deeprmsa", "observation": "deeprmsa"},
        5_000_000,
    ),
    "a transformer": (
        _NSFNET + "--k=50 --load=200 --mean_service_holding_time=1 --truncate_holding_time "
        "--USE_TRANSFORMER --transformer_num_layers=2 --transformer_num_heads=4 "
        "--transformer_embedding_size=128 --transformer_obs_type=occupancy --aggregate_slots=20 "
        "--NUM_ENVS=64 --TOTAL_TIMESTEPS=60000000 --LR=5e-4 --REWARD_CENTERING --ENT_COEF=0.01 "
        "--ENT_SCHEDULE=cosine --ENT_END_FRACTION=0.1 --WANDB --LOG_LOSS_INFO "
        "--DOWNSAMPLE_FACTOR=100",
        {
            **XLRON, **TRANSFORMER, "transformer_layers": 2, "transformer_obs_type": "occupancy",
            "num_envs": 64, "reward_centering": True, "average_reward_initial": 0.0,
            "average_reward_step": 0.001, "ent_coef": 0.01, "ent_schedule": "cosine",
            "ent_end_fraction": 0.01 * 0.1,  # as with the learning rate
            "ent_schedule_multiplier": 1.0,
        },
        {**NSFNET, "k": 50, "load": 200.0, "mean_holding_time": 1.0,
         "truncate_holding_time": True, "aggregate_slots": 20},
        60_000_000,
    ),
    "a gnn": (
        _NSFNET + "--k=5 --USE_GNN --message_passing_steps=4 --edge_embedding_size=64 "
        "--attn_mlp_layers=0 --DISABLE_NODE_FEATURES --NUM_ENVS=32 --TOTAL_TIMESTEPS=1e7 "
        "--LR=3e-4 --random_traffic --compute_dtype=bfloat16 --ACTIVATION=tanh",
        {
            **XLRON, **GNN, "gnn_message_passing_steps": 4, "gnn_edge_embedding_size": 64,
            "gnn_attn_mlp_layers": 0, "gnn_node_features": False, "num_envs": 32,
            "learning_rate": 3e-4, "lr_end_fraction": 3e-5, "dtype": "bfloat16",
        },
        {**NSFNET, "traffic_matrix": "random"},
        10_000_000,
    ),
    "warm-up and a critic of its own": (
        _NSFNET + "--k=50 --NUM_ENVS=64 --ROLLOUT_LENGTH=128 --TOTAL_TIMESTEPS=20000000 "
        "--LR=3e-4 --LR_SCHEDULE=warmup_cosine --WARMUP_MULTIPLIER=2 "
        "--WARMUP_STEPS_FRACTION=0.1 --CLIP_EPS=0.08 --SEPARATE_VF_OPTIMIZER --VF_LR=1e-3 "
        "--VF_WARMUP_MULTIPLIER=3 --LR_SCHEDULE_MULTIPLIER=1.5 --OFF_POLICY_IAM "
        "--VALID_MASS_LOSS_COEF=0.01 --REWARD_SCALE=10 --WEIGHT_DECAY=0.01",
        {
            **XLRON, "num_envs": 64, "rollout_length": 128, "learning_rate": 3e-4,
            "lr_schedule": "warmup_cosine",
            "lr_warmup_start_fraction": 1.0,  # the warm-up begins at LR
            "lr_warmup_multiplier": 2.0, "lr_warmup_fraction": 0.1, "lr_end_fraction": 0.1,
            "lr_schedule_multiplier": 1.5, "clip_eps": 0.08, "separate_vf_optimiser": True,
            "vf_learning_rate": 1e-3, "vf_lr_schedule": "warmup_cosine",
            "vf_lr_end_fraction": 0.1, "vf_warmup_fraction": 0.1, "vf_warmup_multiplier": 3.0,
            "vf_warmup_start_fraction": 1.0,  # and the critic's at VF_LR
            "vf_schedule_multiplier": 1.0,  # does not follow LR_SCHEDULE_MULTIPLIER
            "vf_adam_eps": 1e-5, "vf_adam_beta1": 0.9, "vf_adam_beta2": 0.999,
            "vf_max_grad_norm": 0.5, "vf_weight_decay": 0.01, "off_policy_masking": True,
            "valid_mass_coef": 0.01, "reward_scale": 10.0, "optimiser": "adamw",
            "weight_decay": 0.01,
        },
        {**NSFNET, "k": 50},
        20_000_000,
    ),
    "warm-up as it is by default": (
        _NSFNET + "--LR_SCHEDULE=warmup_cosine --GAE_LAMBDA=0.95 --NUM_ENVS=512 "
        "--ROLLOUT_LENGTH=128 --TOTAL_TIMESTEPS=20000000 --STEPS_PER_INCREMENT=128000",
        {
            **XLRON, "num_envs": 512, "rollout_length": 128, "lr_schedule": "warmup_cosine",
            "lr_warmup_start_fraction": 1.0,
            "lr_warmup_multiplier": 1.0,  # from LR to LR: no ramp
            "lr_end_fraction": 0.1, "gae_lambda": 0.95, "gae_lambda_initial": None,
            "gae_lambda_final": None,
        },
        NSFNET,
        20_000_000,
    ),
    "several epochs and schedules": (
        _NSFNET + "--UPDATE_EPOCHS=4 --NUM_MINIBATCHES=2 --ENT_COEF=0.02 --ENT_SCHEDULE=linear "
        "--ENT_END_FRACTION=0.5 --VALID_MASS_LOSS_COEF=0.01 --VML_SCHEDULE=cosine "
        "--RHO_CLIP=1.0 --C_CLIP=0.9 --MINIBATCH_SIZE=64 --NUM_ENVS=8 --LR_SCHEDULE=constant "
        "--PRIO_ALPHA=0.6 --NUM_LAYERS=3 --ACTIVATION=swish",
        {
            **XLRON, "update_epochs": 4,
            "num_minibatches": 2,  # MINIBATCH_SIZE is computed there
            "num_envs": 8, "lr_schedule": "constant", "lr_end_fraction": 0.1, "ent_coef": 0.02,
            "ent_schedule": "linear", "ent_end_fraction": 0.5,
            "ent_schedule_multiplier": 8.0,  # counts updates, over a horizon of gradient steps
            "valid_mass_coef": 0.01, "valid_mass_schedule": "cosine",
            "valid_mass_end_fraction": 0.01 * 10.0, "valid_mass_schedule_multiplier": 8.0,
            "rho_clip": 1.0, "c_clip": 0.9,
            "priority_alpha": 0.0,  # without effect while PRIO_BETA0 is 1
            "hidden_sizes": (64,) * 3,
            "activation": "tanh",  # every name but relu and crelu is tanh there
        },
        NSFNET,
        1_000_000,
    ),
    "lightpaths, under names of an earlier version": (
        "uv run python -m xlron.train.train --env_type=rwa_lightpath_reuse "
        "--topology_name=nsfnet_deeprmsa_undirected --link_resources=100 --k=5 --values_bw=100 "
        "--scale_factor=0.2 --symbol_rate=100 --incremental_loading --max_requests=10000 "
        "--ROLLOUT_LENGTH=150 --TOTAL_TIMESTEPS=200000000 --NUM_ENVS=100 --NUM_SEEDS=1 "
        "--UPDATE_EPOCHS=10 --USE_GNN --gnn_mlp_layers=2 --message_passing_steps=3 "
        "--gnn_latent=128 --output_nodes_size=1 --output_globals_size=1 --LR=1.9432e-05 "
        "--LR_SCHEDULE=warmup_cosine --WARMUP_PEAK_MULTIPLIER=2 --WARMUP_END_FRACTION=0.1 "
        "--WARMUP_STEPS_FRACTION=0.1 --GAMMA=0.9186 --GAE_LAMBDA=0.9842 "
        "--DOWNSAMPLE_FACTOR=100 --SAVE_MODEL --MODEL_PATH=./RWA_LR_NSFNET_GNN.eqx --WANDB "
        "--PROJECT=RWA_LR_SWEEP",
        {
            **XLRON, **GNN,
            **{f"gnn_{part}_mlp_layers": 2 for part in ("edge", "node", "global", "attn")},
            **{f"gnn_{part}_mlp_latent": 128 for part in ("edge", "node", "global", "attn")},
            "num_envs": 100, "update_epochs": 10, "learning_rate": 1.9432e-05,
            "lr_schedule": "warmup_cosine", "lr_warmup_start_fraction": 1.0,
            "lr_warmup_multiplier": 2.0, "lr_warmup_fraction": 0.1, "lr_end_fraction": 0.1,
            "gamma": 0.9186, "gae_lambda": 0.9842, "gae_lambda_initial": None,
            "gae_lambda_final": None,
        },
        {**NSFNET, "id": "rwa_lightpath_reuse", "directed": False, "bitrates": (100.0,),
         "scale_factor": 0.2, "incremental": True, "max_requests": 2000, "continuous": False,
         "warmup_requests": 0, "guardband": 0},
        200_000_000,
    ),
}
"""Name -> the command, what trains, the environment, env steps. Reward: -1 a blocked request."""

SWEEP = """
project: "SWEEP"
name: "DEEPRMSA_TRANSFORMER"
program: xlron/train/train.py
method: bayes
metric: {name: service_blocking_probability_mean, goal: minimize}
early_terminate: {type: hyperband, min_iter: 10000000, max_iter: 60000000, s: 3}
parameters:
  ADAM_BETA1: {min: 0.8, max: 0.99}
  GAE_LAMBDA: {min: 0.99, max: 0.999}
  ROLLOUT_LENGTH: {values: [128, 256]}
  LR: {min: 0.0001, max: 0.001}
  REWARD_SCALE: {values: [1, 10]}
  C_CLIP: {min: 0.0, max: 2.0}
  RHO_CLIP: {min: 0.0, max: 2.0}
  ENT_END_FRACTION: {values: [0.1, 0.2, 0.5]}
  OFF_POLICY_IAM: {values: [true, false]}
  WEIGHT_DECAY: {values: [0.0, 0.01]}
  transformer_num_layers: {values: [2]}
  transformer_num_heads: {values: [4, 8]}
  transformer_obs_type: {values: ["departure", "occupancy"]}
  aggregate_slots: {values: [10, 20, 100]}
  values_bw: {value: "100,400"}
command: [uv, run, python, "${program}", --env_type, rmsa, --load, 200, --k, 50, --topology_name,
  nsfnet_deeprmsa_directed, --link_resources, 100, --mean_service_holding_time, 1,
  --continuous_operation, --ENV_WARMUP_STEPS, 3000, --REWARD_CENTERING, --USE_TRANSFORMER,
  --truncate_holding_time, --TOTAL_TIMESTEPS, 60000000, --UPDATE_EPOCHS, 1, --NUM_ENVS, 64,
  --WANDB, --LOG_LOSS_INFO, --DOWNSAMPLE_FACTOR, 100, "${args}"]
"""
SWEEP_SPACE = {
    "adam_beta1": {"min": 0.8, "max": 0.99, "distribution": "uniform"},
    "gae_lambda": {"min": 0.99, "max": 0.999, "distribution": "uniform"},
    "rollout_length": {"values": [128, 256]},
    "learning_rate": {"min": 1e-4, "max": 1e-3, "distribution": "uniform", "default": 5e-4},
    "reward_scale": {"values": [1, 10]},
    "c_clip": {"min": 1e-6, "max": 2.0, "distribution": "uniform"},  # 0 itself is off there
    "rho_clip": {"min": 1e-6, "max": 2.0, "distribution": "uniform"},
    "ent_end_fraction": {"values": [0.1, 0.2, 0.5]},
    "off_policy_masking": {"values": [True, False]}, "weight_decay": {"values": [0.0, 0.01]},
    "transformer_heads": {"values": [4, 8]},
    "transformer_obs_type": {"values": ["departure", "occupancy"]},
    "env.aggregate_slots": {"values": [10, 20, 100]},
}
SWEEP_TRAINS = {
    **{name: value for name, value in {**XLRON, **TRANSFORMER}.items() if name not in SWEEP_SPACE},
    "num_envs": 64, "reward_centering": True, "average_reward_initial": 0.0,
    "average_reward_step": 0.001, "transformer_layers": 2,
    "lr_end_fraction": 0.1 * sqrt(1e-4 * 1e-3),  # LR in the middle of its range
    "gae_lambda_initial": None, "gae_lambda_final": None, "optimiser": "adamw",
}
SWEEP_ENV = {**NSFNET, "k": 50, "load": 200.0, "mean_holding_time": 1.0,
             "bitrates": (100.0, 400.0), "truncate_holding_time": True}

PLAIN_SWEEP = """
program: train.py
method: bayes
metric: {name: episode_return, goal: maximize}
parameters:
  env: {parameters: {id: {value: FrozenLake-v1}}}
  total_timesteps: {value: 300000}
  learning_rate: {distribution: log_uniform_values, min: 1.0e-5, max: 1.0e-2}
  anneal_lr: {values: [true, false]}
  num_steps: {values: [128, 256]}
  clip_vloss: {value: true}
  ent_coef: {min: 0.0, max: 0.02}
  log_interval: {value: 10}
  num_minibatches: {value: 4}
run_cap: 24
"""
PLAIN_STUDY = {
    "env": "gym:FrozenLake-v1",
    "env_steps": 300_000,
    "fixed": {"lr_end_fraction": 0.0, "value_clip_eps": "same", "num_minibatches": 4},
    "space": {
        "learning_rate": {"min": 1e-5, "max": 1e-2, "distribution": "log_uniform"},
        "lr_schedule": {"values": ["linear", "constant"]},
        "rollout_length": {"values": [128, 256]},
        "ent_coef": {"min": 0.0, "max": 0.02, "distribution": "uniform"},
    },
    "search": {"method": "tpe"},
    "budget": {"trials": 24},
}
