"""PureJaxRL, Rejax, Lerax, JaxDEM and ARLBench: trainers in JAX."""

from __future__ import annotations

from typing import Any

from .name_mapping import (
    ACTIVATIONS,
    COMPUTED,
    ENDED,
    OUTPUT,
    PLAIN_PPO,
    PPO_ALONE,
    STATISTICS,
    TORCH_INIT,
    VALUE_CLIP,
    NoCounterpart,
    Row,
    Settings,
    System,
    arguments,
    left,
    mapping_of,
    name_sets,
    parsed,
    refused,
    table,
    taken,
    with_defaults,
    words,
)

_NAVIX = NoCounterpart("Navix environments are not supported; name another as env")

# fmt: off
# ----------------------------------------------------------------------------- PureJaxRL

_BRAX = ("ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_pendulum",
         "inverted_double_pendulum", "pusher", "reacher", "walker2d")


def _purejaxrl_env(value: Any) -> str:
    if str(value).lower().startswith("navix"):
        raise _NAVIX
    return f"brax:{value}" if value in _BRAX else str(value)


_PUREJAXRL = (  # with the defaults of ppo.py
    taken("ENV_NAME", "env", "CartPole-v1", parsed(_purejaxrl_env, "hopper is brax:hopper")),
    *table("""
        TOTAL_TIMESTEPS env_steps 500_000; SEED seed; NUM_SEEDS seeds.per_config
        LR learning_rate 2.5e-4; NUM_ENVS = 4; NUM_STEPS rollout_length 128; UPDATE_EPOCHS = 4
        NUM_MINIBATCHES = 4; GAMMA = 0.99; GAE_LAMBDA = 0.95; CLIP_EPS = 0.2; ENT_COEF = 0.01
        VF_COEF = 0.5; MAX_GRAD_NORM = 0.5; ANNEAL_LR lr_schedule@anneal True"""),
    taken("ACTIVATION", "activation", "tanh", words({"relu": "relu", "tanh": "tanh"}, "tanh")),
    taken("NORMALIZE_ENV", "normalise_observations", False, words({
        True: Settings(normalise_observations=True, observation_clip=None, normalise_rewards=True,
                       reward_clip=None),
        False: Settings(normalise_observations=False, normalise_rewards=False)}), STATISTICS),
    *left(COMPUTED, "NUM_UPDATES MINIBATCH_SIZE"),
    *left(OUTPUT, "DEBUG"),
)
_CONTINUOUS = {
    "LR": 3e-4, "NUM_ENVS": 2048, "NUM_STEPS": 10, "TOTAL_TIMESTEPS": 50_000_000,
    "NUM_MINIBATCHES": 32, "ENT_COEF": 0.0, "ENV_NAME": "hopper", "ANNEAL_LR": False,
    "NORMALIZE_ENV": True,
}
_MINIGRID = {"NUM_ENVS": 16, "TOTAL_TIMESTEPS": 1_000_000, "UPDATE_EPOCHS": 1,
             "NUM_MINIBATCHES": 8, "ENV_NAME": "Navix-DoorKey-5x5-v0"}
_MLP: dict[str, Any] = {"network": "mlp", "hidden_sizes": [64, 64]}
_GRU = {"network": "gru", "recurrent_size": 128, "hidden_sizes": [128], "activation": "relu",
        "shared_encoder": True}


def _purejaxrl(
    name: str, program: str, defaults: dict[str, Any], always: dict[str, Any], marks: str = "",
    differs: tuple[str, ...] = (), unread: str = "",
) -> System:
    rows = [row for row in with_defaults(_PUREJAXRL, defaults) if row.name != unread]
    return System(
        name, f"PureJaxRL's {program}.py",
        (*rows, *left("not used by this script", unread)),
        (f"purejaxrl/{program}.py",), name_sets(marks) if marks else (),
        ("make_train",), version="of September 2024", exact=True,
        source=f"github.com/luchris429/purejaxrl, purejaxrl/{program}.py",
        always={**PLAIN_PPO, "adam_eps": 1e-5, "value_clip_eps": "same", **always},
        differs=(ENDED.format("PureJaxRL"), *differs),
    )


PUREJAXRL = (
    _purejaxrl("purejaxrl_continuous", "ppo_continuous_action", _CONTINUOUS,
               {**_MLP, "hidden_sizes": [256, 256]}, "NUM_STEPS NORMALIZE_ENV"),
    _purejaxrl("purejaxrl", "ppo", {}, _MLP, "NUM_STEPS ANNEAL_LR; NUM_STEPS LR"),
    _purejaxrl("purejaxrl_minigrid", "ppo_minigrid", _MINIGRID, _MLP),
    _purejaxrl("purejaxrl_rnn", "ppo_rnn", {}, _GRU, differs=(
        "its heads have a hidden layer of 128 after the recurrent layer, which no network has "
        "here",), unread="ACTIVATION"),
)

# --------------------------------------------------------------------------------- Rejax


def _rejax_env(value: Any) -> str:
    kind, _, name = str(value).rpartition("/")
    if kind == "navix":
        raise _NAVIX
    return {"": "", "gymnax": "", "brax": "brax:", "gymnasium": "gym:"}.get(kind, kind) + name


_agent = arguments({
    "activation": lambda value: Settings(activation=ACTIVATIONS.of(value)),
    "hidden_layer_sizes": lambda value: Settings(hidden_sizes=list(value)),
})


def _rejax_agent(value: Any) -> Settings:
    return Settings({"activation": "silu", "hidden_sizes": [64, 64], **_agent(value)})


def _rejax_keys(value: Any) -> Settings:
    ours = {"episode_length": "max_steps_in_episode"}  # brax's name of its time limit
    return Settings({f"env.{ours.get(k, k)}": one for k, one in mapping_of(value).items()})


REJAX = System(
    "rejax", "Rejax",
    (
        taken("env", "env", "CartPole-v1", parsed(_rejax_env, "brax/ant is brax:ant")),
        taken("env_params", "env.*", values=parsed(_rejax_keys, "keys of the environment")),
        taken("agent_kwargs", "network", {}, parsed(_rejax_agent,
                                                    "activation, hidden_layer_sizes")),
        *table("""
            total_timesteps env_steps 131_072; seed =; eval_freq evaluation.every 4096
            num_envs = 64; num_steps rollout_length 64; num_epochs update_epochs 8
            num_minibatches = 16; learning_rate = 3e-4; gamma = 0.99; gae_lambda = 0.95
            clip_eps = 0.2; vf_coef = 0.5; ent_coef = 0.01"""),
        taken("max_grad_norm", "max_grad_norm", float("inf"),
              words({float("inf"): None, "inf": None}),
              "clips each component of a gradient there, its norm here; the numbers are not "
              "comparable"),
        *table("""normalize_observations normalise_observations False
                  normalize_rewards normalise_rewards False""", note=STATISTICS),
        *left("rewards are normalised with the study's gamma", "reward_normalization_discount"),
        *left(OUTPUT, "skip_initial_evaluation eval_callback"),
    ),
    ("rejax",), name_sets("agent_kwargs num_minibatches"), ("create", "PPO"),
    version="of June 2026", source="github.com/keraJLi/rejax, src/rejax/algos/ppo.py",
    always={
        **PLAIN_PPO, "adam_eps": 1e-8, "value_clip_eps": "same", "initialisation": "lecun",
        "hidden_gain": 1.0, "policy_gain": 1.0, "value_gain": 1.0, "network": "mlp",
        "observation_clip": None, "reward_clip": None,
    },
    differs=("actor and critic have an Adam each there, and one here, which differs only in how "
             "gradients are clipped", ENDED.format("Rejax")),
)

# --------------------------------------------------------------------------------- Lerax

_LERAX_HEADS = ("its policy is an encoder under two heads with separate hidden layers; here actor "
                "and critic are towers of hidden_sizes, separate or shared")
_LERAX_ENVS = words({
    "CartPole": "CartPole-v1", "Acrobot": "Acrobot-v1", "Pendulum": "Pendulum-v1",
    "MountainCar": "MountainCar-v0", "ContinuousMountainCar": "MountainCarContinuous-v0",
})


LERAX = System(
    "lerax", "Lerax",
    (
        taken("env", "env", values=_LERAX_ENVS,
              note="the environment of that name here, whose steps Lerax integrates itself"),
        *table("""
            total_timesteps env_steps; seed =; learning_rate = 3e-4; num_envs = 4
            num_steps rollout_length 2048; gamma = 0.99
            num_epochs update_epochs 10; num_batches num_minibatches 32
            gae_lambda = 0.95; clip_coefficient clip_eps 0.2
            entropy_loss_coefficient ent_coef 0.0; value_loss_coefficient vf_coef 0.5
            max_grad_norm = 0.5; log_std_init = 0.0
            normalize_advantages normalise_advantages True; activation =@activation relu"""),
        taken("clip_value_loss", "value_clip_eps", False, VALUE_CLIP, "Lerax takes the "
              "smaller of the clipped and the unclipped loss; here it is the larger"),
        *left("computed from num_batches there", "batch_size"),
        *left("an object there; see optimiser", "optimizer"),
        *refused(_LERAX_HEADS, "feature_size", (16, None)),
        *refused(_LERAX_HEADS, "feature_width value_width action_width", (64, None)),
        *refused(_LERAX_HEADS, "feature_depth value_depth action_depth", (2, None)),
        *refused("a curriculum changes the environment during training, which a study cannot",
                 "curriculum"),
    ),
    ("lerax",), name_sets("clip_coefficient; entropy_loss_coefficient; value_loss_coefficient"),
    ("PPO",), {"ScheduledCurriculum": "curriculum"},
    version="0.0.6 (since 18 February 2026)",
    source="github.com/RunnersNum40/lerax, algorithm/ppo.py",
    always={**PLAIN_PPO, "adam_eps": 1e-8, "network": "mlp", "hidden_sizes": [64, 64],
            **TORCH_INIT},
    differs=(_LERAX_HEADS,),
)

# -------------------------------------------------------------------------------- JaxDEM

_NOT_TRAINED = "it affects training and has no counterpart"
_JAXDEM_ENVS = NoCounterpart(
    "JaxDEM's own environments are not supported; register yours (docs/environments.md), or name "
    "another as env, such as navigators"
)
_JAXDEM: tuple[Row, ...] = (
    taken("env", "env", values=words({
        name: _JAXDEM_ENVS for body in ("navigator", "roller") for name in (
            f"single_{body}", f"multi_{body}", f"swarm_{body}", f"swarm_{body}_3d")
    } | {"two_gears": _JAXDEM_ENVS, "three_gears": _JAXDEM_ENVS})),
    *table("""
        seed =; optimizer optimiser muon; learning_rate = 1e-2; max_grad_norm = 1.5
        ppo_clip_eps clip_eps 0.2; ppo_value_coeff vf_coef 2.0; ppo_entropy_coeff ent_coef 0.001
        advantage_gamma gamma 0.99; advantage_lambda gae_lambda 0.95
        advantage_rho_clip rho_clip 1.0; advantage_c_clip c_clip 1.0; num_minibatches = 4
        importance_sampling_alpha priority_alpha 0.8; importance_sampling_beta priority_beta0 0.2
        anneal_importance_sampling_beta anneal_priority_beta True; num_envs = 1024
        num_steps_epoch rollout_length 64; minibatch_size =
        accumulate_n_gradients accumulate_minibatches 1; in_scale hidden_gain
        actor_scale policy_gain 1.0; critic_scale value_gain 0.01
        architecture hidden_sizes [42, 42, 42]"""),
    taken("total_timesteps", "env_steps",
          note="every agent's step counts there, an environment's step here"),
    taken("num_epochs", "env_steps",
          note="updates, each of num_envs x num_steps_epoch env steps"),
    *table("activation activation@activation gelu"),
    *refused("give action_low and action_high, as the model has no bijector here",
             "clip_actions"),
    *left("actions are within the environment's bounds; see `distribution`", "action_space"),
    *left("it belongs to clip_actions", "clip_range"),
    *left("a random key; see seed", "key"),
    taken("anneal_learning_rate", "lr_schedule", True, words({
        True: Settings(lr_schedule="cosine", schedule_on_gradient_steps=True, lr_end_fraction=0.0),
        False: "constant"})),
    *refused(_NOT_TRAINED, "drip_decay", (0, 0.0, None)),
    *refused(_NOT_TRAINED, "skip_frames", (0, None)),
    *refused(_NOT_TRAINED, "stop_at_epoch actor_sigma_head"),
)


JAXDEM = System(
    "jaxdem", "JaxDEM", _JAXDEM, ("jaxdem",),
    name_sets("ppo_clip_eps; ppo_value_coeff; num_steps_epoch; ppo_entropy_coeff"),
    ("create", "Create"), version="since 6 November 2025 (0.1, read at June 2026)",
    source="github.com/cdelv/JaxDEM, jaxdem/rl/trainers/ppo_trainer.py",
    always={**PLAIN_PPO, "adam_eps": 1e-12, "value_clip_eps": "same", "update_epochs": 1,
            "network": "mlp", "shared_encoder": True, "priority_over": "segments"},
    differs=(
        "segments are drawn once per rollout here, with the advantages from before its "
        "updates; JaxDEM draws them for each minibatch, without replacement",
        "V-trace's value targets use the rollout's values here; JaxDEM recomputes them for "
        "each minibatch",
    ),
)

# ------------------------------------------------------------------------------ ARLBench

ARLBENCH = System(
    "arlbench", "ARLBench",
    (
        *table("""
            env_name env CartPole-v1; environment.name env; env_kwargs env.*@env_keys
            environment.kwargs env.*@env_keys; n_total_timesteps env_steps 1_000_000; seed =
            n_envs num_envs 8; n_eval_episodes evaluation.episodes
            deterministic_eval evaluation.greedy; learning_rate = 3e-4
            n_steps rollout_length 128; minibatch_size = 64; update_epochs = 10; gamma = 0.99
            gae_lambda = 0.95; clip_eps = 0.2; vf_clip_eps value_clip_eps 0.2
            normalize_advantage normalise_advantages True; ent_coef = 0.0; vf_coef = 0.5
            max_grad_norm = 0.5; activation = tanh
            normalize_observations normalise_observations False; hidden_size = 64"""),
        taken("cnn_policy", "network", values=words({
            True: Settings(network="cnn", shared_encoder=True), False: Settings(network="mlp"),
        })),
        *refused(PPO_ALONE, "algorithm", ("ppo", "PPO", None)),
        *left("ids of gymnax stay as they are, others start with gym: or brax:",
              "env_framework framework"),
        *left("see `evaluation`", "n_eval_steps eval_kwargs eval_env_kwargs"),
        *left("see `metric`", "objectives optimize_objectives"),
        *left("a separate file, of ConfigSpace", "search_space"),
        *left("it belongs to hyperparameters as actions", "state_features"),
        *left(OUTPUT, "checkpoint checkpoint_name checkpoint_dir load_checkpoint track_metrics "
                      "track_trajectories hpo_method"),
        *left("the precision is `dtype`", "jax_enable_x64"),
    ),
    ("arlbench", "run_arlbench.py"), name_sets("vf_clip_eps; minibatch_size n_steps"),
    ("AutoRLEnv", "PPO"), version="of February 2025",
    source="github.com/automl/arlbench, arlbench/core/algorithms/ppo",
    always={**PLAIN_PPO, "adam_eps": 1e-5, "num_layers": 2, "observation_clip": None},
    differs=(ENDED.format("ARLBench"),),
)
