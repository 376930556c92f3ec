"""Flags of XLRON, an optical-network trainer; flags, defaults and code are those of 1.1.0.

Flags are case-sensitive (`GAMMA` is the discount, `gamma` a fibre constant). Interdependent flags
(schedules, lambda, layers) are read in `xlron_rules.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import Any

from .name_mapping import (
    COMPUTED,
    MACHINE,
    OUTPUT,
    UNKNOWN,
    NameRow,
    NoCounterpart,
    SettingsRow,
    System,
    Values,
    left,
    name_sets,
    parsed,
    refused,
    table,
    taken,
    words,
)

# fmt: off
_NOT_HERE = "this kind of network is not available"
_NO_EFFECT = "has no effect in XLRON"
# file stem of a table shipped with XLRON -> its name here
_TABLES = {"modulations_deeprmsa": "deeprmsa", "modulations": "full",
           "modulations_gn_model": "gn_model", "pcs_64qam": "pcs_64qam"}
_RINGS = {"4node": "ring4", "7node": "ring7"}


def _topology_settings(value: Any) -> SettingsRow:
    name = str(value)
    for ending, directed in (("_undirected", False), ("_directed", True)):
        if name.endswith(ending):
            plain = name.removesuffix(ending)
            topology = _RINGS.get(plain, plain)
            return SettingsRow({"env.topology": topology, "env.directed": directed})
    return SettingsRow({"env.topology": _RINGS.get(name, name)})


def _bitrate_list(value: Any) -> list[float] | None:
    if value in (None, ""):
        return None
    parts = value
    if not isinstance(value, list | tuple):
        parts = str(value).split(",")
    try:
        return [float(part) for part in parts if str(part).strip()]
    except ValueError:
        raise NoCounterpart("allowed: numbers separated by commas, such as 100,400") from None


def _modulation_name(value: Any) -> str:
    path = PurePath(str(value))
    if path.suffix != ".csv":
        return str(value)
    return _TABLES.get(path.stem, str(value))


def _network_switch(kind: str) -> Values:
    return words({True: SettingsRow(network=kind), False: SettingsRow()})


_TRAINING = (
    *table("""
        SEED = 42; NUM_LEARNERS seeds.per_config 1; TOTAL_TIMESTEPS env_steps 1000000
        NUM_ENVS = 1; ROLLOUT_LENGTH = 150; UPDATE_EPOCHS = 1; NUM_MINIBATCHES = 1
        STEPS_PER_INCREMENT log_every; LR learning_rate 0.0005; LR_SCHEDULE = cosine
        LR_END_FRACTION = 0.1; LR_SCHEDULE_MULTIPLIER = 1.0
        WARMUP_MULTIPLIER lr_warmup_multiplier 1.0
        WARMUP_STEPS_FRACTION lr_warmup_fraction 0.2; ADAM_EPS = 1e-05; ADAM_BETA1 = 0.9
        ADAM_BETA2 = 0.999; WEIGHT_DECAY = 0.0; MAX_GRAD_NORM = 0.5
        SEPARATE_VF_OPTIMIZER separate_vf_optimiser False; VF_LR vf_learning_rate
        VF_LR_SCHEDULE =; VF_LR_END_FRACTION =; VF_WARMUP_MULTIPLIER =
        VF_WARMUP_STEPS_FRACTION vf_warmup_fraction; VF_SCHEDULE_MULTIPLIER =; VF_ADAM_EPS =
        VF_ADAM_BETA1 =; VF_ADAM_BETA2 =; VF_MAX_GRAD_NORM =; VF_WEIGHT_DECAY =
        STEP_ON_GRADIENT schedule_on_gradient_steps False; GAMMA = 0.999; GAE_LAMBDA =
        INITIAL_LAMBDA gae_lambda_initial 0.9; FINAL_LAMBDA gae_lambda_final 0.98
        LAMBDA_SCHEDULE_MULTIPLIER gae_lambda_schedule_multiplier 1.0; CLIP_EPS = 0.2
        VF_COEF = 0.5; ENT_COEF = 0.0; ENT_SCHEDULE = constant; ENT_END_FRACTION = 0.1
        ENT_SCHEDULE_MULTIPLIER = 1.0; LOGR_CLIP = 10.0; ADV_CLIP = 10.0; REWARD_SCALE = 1.0
        REWARD_CENTERING = False; INITIAL_AVERAGE_REWARD average_reward_initial 0.0
        REWARD_STEPSIZE average_reward_step 0.001
        PRIO_BETA0 priority_beta0 1.0; OFF_POLICY_IAM off_policy_masking False
        IAM_DAMPING masking_damping True; IAM_GATING masking_gating True
        IAM_GATING_MIN_ACTIONS masking_gate_min_actions 2; VALID_MASS_TARGET = 0.05
        VML_SCHEDULE valid_mass_schedule constant
        VML_END_FRACTION valid_mass_end_fraction 10.0
        VML_SCHEDULE_MULTIPLIER valid_mass_schedule_multiplier 1.0
        C_CLIP =@off -1.0"""),
    *table("VALID_MASS_LOSS_COEF valid_mass_coef 0.0", (
        "hpo averages over rows with a valid action, "
        "XLRON over all rows, so XLRON's loss weighs less "
        "if some rows have none"
    )),
    *table("RHO_CLIP =@off -1.0", (
        "hpo's value targets follow V-trace; XLRON uses those of "
        "the rollout, and its minibatches are parts of a rollout's "
        "steps over all environments"
    )),
    *table("PRIO_ALPHA priority_alpha 0.0", (
        "PRIO_BETA0 rises to 1 over the run in hpo, and "
        "only PRIO_ALPHA of the way in XLRON; weights are "
        "(N P)^-beta in hpo and P^-beta in XLRON, N^beta "
        "times as large"
    )),
    *left(COMPUTED, "MINIBATCH_SIZE NUM_UPDATES NUM_INCREMENTS ACTION_DIM INPUT_DIM"),
    *left("has no effect in XLRON: actions are always masked", "ACTION_MASKING"),
    *left(_NO_EFFECT, "TEMPERATURE EPSILON"),
)

_CRELU = NoCounterpart(
    "it doubles the input width, which XLRON's layers do not support "
    "either; use relu or tanh"
)
_NETWORKS = (
    taken("USE_TRANSFORMER", "network", False, _network_switch("transformer")),
    taken("USE_GNN", "network", False, _network_switch("gnn")),
    *left("builds an mlp in XLRON, not a recurrent network", "USE_RNN"),
    taken("ACTIVATION", "activation", "tanh",
          words({"tanh": "tanh", "relu": "relu", "crelu": _CRELU}, "tanh")),
    taken("compute_dtype", "dtype", None,
          words({"float32": "float32", "bfloat16": "bfloat16", None: "float32"})),
    taken("DISABLE_NODE_FEATURES", "gnn_node_features", False, words({True: False, False: True})),
    taken("mlp_layers", "gnn_edge_mlp_layers", note="also for nodes, graph and attention"),
    taken("mlp_latent", "gnn_edge_mlp_latent", note="also for nodes, graph and attention"),
    *table("""
        NUM_LAYERS = 2; NUM_UNITS hidden_size 64; message_passing_steps gnn_= 3
        num_spectral_features gnn_= 8; edge_embedding_size gnn_= 128
        node_embedding_size gnn_= 16; global_embedding_size gnn_= 8; edge_mlp_layers gnn_= 2
        edge_mlp_latent gnn_= 128; node_mlp_layers gnn_= 2; node_mlp_latent gnn_= 128
        global_mlp_layers gnn_= 1; global_mlp_latent gnn_= 16; attn_mlp_layers gnn_= 1
        attn_mlp_latent gnn_= 64; gnn_layer_norm = True; mlp_layer_norm gnn_= False
        normalize_by_link_length gnn_normalise_by_link_length False
        transformer_obs_type = departure; transformer_embedding_size = 128
        transformer_intermediate_size = 256; transformer_num_layers transformer_layers 1
        transformer_num_heads transformer_heads 4
        num_wire_features transformer_wire_features 8
        transformer_dropout_rate transformer_dropout 0.1
        transformer_attention_dropout_rate transformer_attention_dropout 0.1
        transformer_enable_dropout = False; transformer_share_layers = False
        transformer_actor_mlp_width = 128; transformer_critic_mlp_width = 128
        transformer_actor_mlp_depth = 1; transformer_critic_mlp_depth = 2
        transformer_actor_pooling = mean; transformer_critic_pooling = mean"""),
    *left("has no effect in XLRON: sizes follow from the actions", "edge_output_size_actor"),
    *refused(_NOT_HERE, "edge_output_size_critic global_output_size_critic", (1,)),
    *refused(_NOT_HERE, "global_output_size_actor node_output_size_actor "
                        "node_output_size_critic", (0,)),
)

_SAVED = (
    taken("MODEL_PATH", "init.from", note=(
        "with RETRAIN_MODEL: an hpo policy folder, not an "
        ".eqx file"
    )),
    taken("KEEP_VF", "init.keep", values=words({True: "critic", False: "all"})),
    *table("""
        RETRAIN_MODEL init.from; SAVE_MODEL checkpoint.best_evaluation
        EVAL_DURING_TRAINING evaluation.every; EVAL_FREQUENCY evaluation.every
        EVAL_TIMESTEPS evaluation.steps; deterministic evaluation.greedy; WANDB loggers.wandb
        PROJECT loggers.wandb.project; DOWNSAMPLE_FACTOR loggers.wandb.every
        EXPERIMENT_NAME name; DETERMINISTIC_OPS population.deterministic"""),
    *left("files are named by the study",
          "OVERWRITE_MODEL DATA_OUTPUT_FILE EPISODE_DATA_OUTPUT_FILE"),
    *left("the journal has every metric",
          "LOG_LOSS_INFO LOG_ALL_INFO ENHANCED_LOGGING log_wrapper"),
    *left("traces are written by an evaluation", "TRAJ_DATA_OUTPUT_FILE"),
    *left("plots and the report are made after a study", "PLOTTING"),
    *left("used for evaluation, not for training", """
        EVAL_HEURISTIC EVAL_MODEL RENDER_EVAL_MODE RENDER_FPS RENDER_SCALE RENDER_OUTPUT_FILE
        RENDER_MAX_STEPS RENDER_CLICK_THROUGH EVAL_STEPS min_traffic max_traffic step_traffic"""),
    *left(MACHINE, """NUM_DEVICES VISIBLE_DEVICES EMULATED_DEVICES PREALLOCATE_MEM
                      PREALLOCATE_MEM_FRACTION PRINT_MEMORY_USE"""),
    *left(OUTPUT, """PRINT_FLAGS DEBUG DEBUG_LOSS DEBUG_NANS NO_TRUNCATE ORDERED PROFILE
                     DISABLE_JIT"""),
    *left("how the environment's state is stored; hpo's numbers are exact", """
        mixed_precision large_float_dtype small_float_dtype time_dtype float_dtype int_dtype
        large_int_dtype small_int_dtype binary_dtype reward_dtype action_dtype"""),
    *refused("parameters stay float32", "params_dtype", (None, "float32")),
    *refused("everything is float32", "ENABLE_X64"),
    *left("used for bounds, not for training", """
        COMPILE_RR_BOUNDS CUTSET_EXHAUSTIVE CUTSET_PARALLEL_PROCESSES CUTSET_BATCH_SIZE
        CUTSET_ITERATIONS CUTSET_TOP_K CUTSET_TOP_PCT NEGLECT_SPECTRUM_CONTINUITY num_trials
        cutset_link_selection_mode sort_requests"""),
    *refused("only training is imported",
             "ACTION_OPTIMIZATION optimise_launch_power differentiable"),
    *left("used to optimise actions, not for training", """
        INITIALIZE_ACTIONS_HEURISTIC INITIALIZE_ACTIONS_RANDOM INITIALIZE_ACTIONS_ASCENDING
        INITIALIZE_ACTIONS_DESCENDING INITIALIZE_ACTIONS_MAX temperature
        OPTIMIZATION_LEARNING_RATE OPTIMIZATION_ITERATIONS PATH_SLOT_ACTIONS GAUSSIAN_SMOOTHING
        GAUSSIAN_SIGMA traffic_array"""),
)

_GN = NoCounterpart("the physical layer (GN model) is not simulated here")
_ENVIRONMENT: tuple[NameRow, ...] = (
    taken("env_type", "env", "rmsa", words({
        "rsa_gn_model": _GN, "rmsa_gn_model": _GN,
        "vone": NoCounterpart("virtual networks are not simulated here"),
        "rsa_multiband": NoCounterpart("several bands are not simulated here")})),
    taken("topology_name", "env.topology", "4node",
          parsed(_topology_settings, "the ending _directed or _undirected sets env.directed; "
                                     "4node and 7node are ring4 and ring7")),
    *table("""
        load env.= 250.0; mean_service_holding_time env.mean_holding_time 25.0
        truncate_holding_time env.= False; min_bw env.min_bitrate 25
        max_bw env.max_bitrate 100; step_bw env.step_bitrate 1
        custom_traffic_matrix_csv_filepath env.traffic_matrix
        continuous_operation env.continuous False; max_requests env.= 4
        ENV_WARMUP_STEPS env.warmup_requests 0; incremental_loading env.incremental False
        end_first_blocking env.= False
        include_no_op env.no_op False; reward_type env.reward service; k env.= 5
        link_resources env.slots 5; slot_size env.slot_width 12.5; guardband env.= 1
        aggregate_slots env.= 1; disjoint_paths env.= False
        path_sort_criteria env.path_order spectral_resources; scale_factor env.= 1.0"""),
    taken("traffic_requests_csv_filepath", "env.requests", note=
          (
              "hpo's columns are source,destination,bitrate,arrival,holding, with absolute "
              "arrivals; XLRON's are source,bandwidth,destination,arrival,holding,current "
              "time"
          )),
    taken("values_bw", "env.bitrates", values=parsed(
        _bitrate_list, "numbers separated by commas; if empty, the range min_bw to max_bw")),
    taken("random_traffic", "env.traffic_matrix", False,
          words({True: "random", False: "uniform"})),
    taken("traffic_intensity", "env.load", values=words({0: SettingsRow()})),
    taken("modulations_csv_filepath", "env.modulation",
          "./xlron/data/modulations/modulations_deeprmsa.csv",
          parsed(_modulation_name, "XLRON's tables by their names: " + ", ".join(
              f"{stem}.csv is {name}" for stem, name in _TABLES.items()))),
    *refused("a study has one load, or searches env.load; give the range under `space`",
             "min_load max_load step_load", (None,)),
    *refused("requests drawn in advance from a list have no counterpart; give a CSV file of "
             "requests (traffic_requests_csv_filepath)",
             "deterministic_requests list_of_requests"),
    *left("times are relative here as well", "relative_arrival_times"),
    *left("paths are not packed here", "pack_path_bits"),
    *left(_NO_EFFECT, "maximise_throughout symbol_rate"),
    *refused("an episode that ends by max_requests is truncated", "terminate_on_episode_end"),
    *refused("warm-up uses the policy's actions", "warmup_action_type", (None,)),
    *left("heuristics are evaluated, not trained", "path_heuristic node_heuristic"),
    *left("set env.histograms", "log_actions log_path_lengths"),
    *refused("all candidate paths are kept, of any length", "maximum_path_length_km", (None,)),
    *refused("give the file as topology_name", "topology_directory", (None,)),
    *refused("a study has one topology", "multiple_topologies_directory", (None,)),
    *(row for name, default in {"alpha": 0.2, "beta_2": -21.7, "gamma": 1.2, "span_length": 100,
                                "lambda0": 1550}.items()
      for row in refused("lightpath capacities follow from fixed fibre constants",
                         name, (default,))),
    *left("used for virtual networks, which are not simulated here",
          "node_resources virtual_topologies min_node_resources max_node_resources node_probs"),
    *left("used for the physical layer (GN model), which is not simulated here", """
        calc_minimum_osnr beta_fec fec_rate span_lumped_loss_db ref_lambda max_power_per_fibre
        power_per_channel power_per_channel_per_band launch_power_csv launch_power_type
        nonlinear_coefficient raman_gain_slope attenuation attenuation_bar dispersion_coeff
        dispersion_slope coherent mod_format_correction interband_gap_width interband_gap_start
        enforce_band_gaps snr_margin max_snr min_snr max_power min_power step_power
        discrete_launch_power min_concentration max_concentration last_fit GNN_OUTPUT_LP
        GNN_OUTPUT_RSA noise_data_filepath band_data_filepath band_preference slots_per_band
        inter_band_gap_ghz uniform_spans num_subchannels use_raman_amp raman_pump_power_fw
        raman_pump_power_bw raman_pump_freq_fw raman_pump_freq_bw raman_max_bandwidth_thz"""),
)

OLDER = {
    "NUM_SEEDS": "NUM_LEARNERS", "NUM_STEPS": "ROLLOUT_LENGTH",
    "WARMUP_PEAK_MULTIPLIER": "WARMUP_MULTIPLIER", "WARMUP_END_FRACTION": "LR_END_FRACTION",
    "LOSS_DAMPING_VALID_MASS_TARGET": "VALID_MASS_TARGET",
    "LOSS_DAMPING_K_MIN": "IAM_GATING_MIN_ACTIONS", "LOAD_MODEL": "RETRAIN_MODEL",
    "gnn_mlp_layers": "mlp_layers", "gnn_latent": "mlp_latent",
}
"""Flag of earlier versions, still in XLRON's documentation -> the current flag."""
_NOW = {row.name: row for row in (*_TRAINING, *_NETWORKS, *_SAVED, *_ENVIRONMENT)}
_FIRST_ROW = (
    "without OFF_POLICY_IAM, XLRON's loss uses the policy of a minibatch's first row "
    "for all rows; hpo uses the policy of each row"
)
_UNGATED = "IAM_GATING: in XLRON, the value loss also includes rows without a valid action"

XLRON = System(
    "xlron", "XLRON",
    (
        *_NOW.values(),
        *(replace(_NOW[new], name=old, default=UNKNOWN) for old, new in OLDER.items()),
        taken("ON_POLICY_IAM", "off_policy_masking", values=words({True: False, False: True})),
        *left("episodes end by max_requests", "max_timesteps"),
        *left("has no effect in XLRON: sizes follow from the actions",
              "output_nodes_size output_globals_size"),
        *left(MACHINE, "DEFAULT_DEVICE"),
    ),
    programs=("xlron",),
    marks=name_sets("env_type topology_name; topology_name link_resources; "
                    "aggregate_slots CLIP_EPS"),
    version="1.1.0, of 26 June 2026", tag="1.1.0", exact=True,
    source="github.com/micdoh/XLRON: xlron/parameter_flags.py and the code that reads it",
    always={"normalise_observations": False, "normalise_rewards": False},
    differs=((
        "hpo bootstraps truncated episodes from their last observation; XLRON 1.1.0 from the "
        "first one of the next episode"
    ), _FIRST_ROW, _UNGATED),
)
XLRON_JULY = replace(
    XLRON, name="xlron_july_2026", title="XLRON after 1.1.0",
    rows=tuple(replace(row, note=(
        "weights are (N P)^-beta in hpo; XLRON divides them by the "
        "largest one"
    )) if row.name == "PRIO_ALPHA" else row
               for row in XLRON.rows),
    version="with its fixes of 11 July 2026, pull request 34", tag="2026.07",
    _index={}, _folded={},
    differs=("hpo bootstraps truncated episodes from their last observation; XLRON does not",
             _FIRST_ROW, _UNGATED),
)
"""The same flags; `xlron_rules.py` reads priorities, cut episodes and schedules differently."""
