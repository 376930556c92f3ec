"""PureJaxRL, Rejax, Lerax, JaxDEM and ARLBench: trainers in JAX."""

from __future__ import annotations

from typing import Any

from .name_mapping import (
    ACTIVATIONS,
    ANNEAL,
    COMPUTED,
    ENV_KEYS,
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
    left,
    mapping_of,
    parsed,
    refused,
    same,
    taken,
    words,
)
from .torch_tables import with_defaults

_ENDED = "episodes that a time limit cuts bootstrap from their last observation here; {} counts "
_ENDED += "them as ended"

# ----------------------------------------------------------------------------- PureJaxRL


def _navix(value: Any) -> str:
    name = str(value)
    if name.lower().startswith("navix"):
        raise NoCounterpart("environments of Navix are not known here; name another as env")
    return name


_BRAX = ("ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_pendulum",
         "inverted_double_pendulum", "pusher", "reacher", "walker2d")  # fmt: skip
_NORMALISE = words({
    True: Settings(normalise_observations=True, observation_clip=None, normalise_rewards=True,
                   reward_clip=None),
    False: Settings(normalise_observations=False, normalise_rewards=False),
})  # fmt: skip
_PUREJAXRL = (
    taken("ENV_NAME", "env", values=parsed(
        lambda value: f"brax:{value}" if value in _BRAX else _navix(value), "hopper is brax:hopper"
    )),
    *same("""
        TOTAL_TIMESTEPS env_steps; SEED seed; NUM_SEEDS seeds.per_config; LR learning_rate
        NUM_ENVS num_envs; NUM_STEPS rollout_length; UPDATE_EPOCHS update_epochs
        NUM_MINIBATCHES num_minibatches; GAMMA gamma 0.99; GAE_LAMBDA gae_lambda 0.95
        CLIP_EPS clip_eps 0.2; ENT_COEF ent_coef; VF_COEF vf_coef 0.5
        MAX_GRAD_NORM max_grad_norm 0.5"""),
    taken("ANNEAL_LR", "lr_schedule", values=ANNEAL),
    taken("ACTIVATION", "activation", "tanh", words({"relu": "relu", "tanh": "tanh"}, "tanh")),
    taken("NORMALIZE_ENV", "normalise_observations", values=_NORMALISE, note=STATISTICS),
    *left(COMPUTED, "NUM_UPDATES", "MINIBATCH_SIZE"),
    *left(OUTPUT, "DEBUG"),
)  # fmt: skip
_PPO = {
    "LR": 2.5e-4, "NUM_ENVS": 4, "NUM_STEPS": 128, "TOTAL_TIMESTEPS": 500_000,
    "UPDATE_EPOCHS": 4, "NUM_MINIBATCHES": 4, "ENT_COEF": 0.01, "ENV_NAME": "CartPole-v1",
    "ANNEAL_LR": True, "NORMALIZE_ENV": False,
}  # fmt: skip
_CONTINUOUS = {
    **_PPO, "LR": 3e-4, "NUM_ENVS": 2048, "NUM_STEPS": 10, "TOTAL_TIMESTEPS": 50_000_000,
    "NUM_MINIBATCHES": 32, "ENT_COEF": 0.0, "ENV_NAME": "hopper", "ANNEAL_LR": False,
    "NORMALIZE_ENV": True,
}  # fmt: skip
_MINIGRID = {**_PPO, "NUM_ENVS": 16, "TOTAL_TIMESTEPS": 1_000_000, "UPDATE_EPOCHS": 1,
             "NUM_MINIBATCHES": 8, "ENV_NAME": "Navix-DoorKey-5x5-v0"}  # fmt: skip
_MLP: dict[str, Any] = {"network": "mlp", "hidden_sizes": [64, 64]}
_GRU = {"network": "gru", "recurrent_size": 128, "hidden_sizes": [128], "activation": "relu",
        "shared_encoder": True}  # fmt: skip
_HEADS_BEHIND = "its heads have a hidden layer of 128 behind the memory, which no network has here"


def _purejaxrl(
    name: str, program: str, defaults: dict[str, Any], always: dict[str, Any],
    marks: tuple[frozenset[str], ...], differs: tuple[str, ...] = (), without: str = "",
) -> System:  # fmt: skip
    rows = tuple(row for row in with_defaults(_PUREJAXRL, defaults) if row.name != without)
    unread = left("nothing in this script reads it", without) if without else ()
    return System(
        name, f"PureJaxRL's {program}.py", (*rows, *unread), (f"purejaxrl/{program}.py",), marks,
        ("make_train",), version="of September 2024", exact=True,
        source=f"github.com/luchris429/purejaxrl, purejaxrl/{program}.py",
        always={**PLAIN_PPO, "adam_eps": 1e-5, "value_clip_eps": "same", **always},
        differs=(_ENDED.format("PureJaxRL"), *differs),
    )  # fmt: skip


PUREJAXRL = (
    _purejaxrl("purejaxrl_continuous", "ppo_continuous_action", _CONTINUOUS,
               {**_MLP, "hidden_sizes": [256, 256]},
               (frozenset({"NUM_STEPS", "NORMALIZE_ENV"}),)),
    _purejaxrl("purejaxrl", "ppo", _PPO, _MLP,
               (frozenset({"NUM_STEPS", "ANNEAL_LR"}), frozenset({"NUM_STEPS", "LR"}))),
    _purejaxrl("purejaxrl_minigrid", "ppo_minigrid", _MINIGRID, _MLP, ()),
    _purejaxrl("purejaxrl_rnn", "ppo_rnn", _PPO, _GRU, (), (_HEADS_BEHIND,), "ACTIVATION"),
)  # fmt: skip

# --------------------------------------------------------------------------------- Rejax

_CLIP_NOTE = (
    "every component of a gradient is clipped by itself there, its norm here; the figures do not "
    "compare"
)


def _rejax_env(value: Any) -> str:
    kind, _, name = str(value).rpartition("/")
    if kind == "navix":
        raise NoCounterpart("environments of Navix are not known here; name another as env")
    return {"": "", "gymnax": "", "brax": "brax:", "gymnasium": "gym:"}.get(kind, kind) + name


def _agent(value: Any) -> Settings:
    given, settings = mapping_of(value), Settings(activation="silu", hidden_sizes=[64, 64])
    if "activation" in given:
        settings["activation"] = ACTIVATIONS.of(given.pop("activation"))
    if "hidden_layer_sizes" in given:
        settings["hidden_sizes"] = list(given.pop("hidden_layer_sizes"))
    if given:
        raise NoCounterpart(f"{', '.join(map(repr, given))} of the networks has no counterpart")
    return settings


def _rejax_keys(value: Any) -> Settings:
    ours = {"episode_length": "max_steps_in_episode"}  # brax's name of its time limit
    return Settings({f"env.{ours.get(k, k)}": one for k, one in mapping_of(value).items()})


REJAX = System(
    "rejax",
    "Rejax",
    (
        taken("env", "env", "CartPole-v1", parsed(_rejax_env, "brax/ant is brax:ant")),
        taken("env_params", "env.*", values=parsed(_rejax_keys, "keys of the environment")),
        taken("agent_kwargs", "network", {}, parsed(_agent, "activation, hidden_layer_sizes")),
        *same("""
            total_timesteps env_steps 131_072; seed seed; eval_freq evaluation.every 4096
            num_envs num_envs 64; num_steps rollout_length 64; num_epochs update_epochs 8
            num_minibatches num_minibatches 16; learning_rate learning_rate 3e-4
            gamma gamma 0.99; gae_lambda gae_lambda 0.95; clip_eps clip_eps 0.2
            vf_coef vf_coef 0.5; ent_coef ent_coef 0.01"""),
        taken("max_grad_norm", "max_grad_norm", float("inf"),
              words({float("inf"): None, "inf": None}), _CLIP_NOTE),
        taken("normalize_observations", "normalise_observations", False, note=STATISTICS),
        taken("normalize_rewards", "normalise_rewards", False, note=STATISTICS),
        *left("rewards are normalised with the study's gamma", "reward_normalization_discount"),
        *left(OUTPUT, "skip_initial_evaluation", "eval_callback"),
    ),
    ("rejax",),
    (frozenset({"agent_kwargs", "num_minibatches"}),),
    ("create", "PPO"),
    version="of June 2026",
    source="github.com/keraJLi/rejax, src/rejax/algos/ppo.py",
    always={
        **PLAIN_PPO, "adam_eps": 1e-8, "value_clip_eps": "same", "initialisation": "lecun",
        "hidden_gain": 1.0, "policy_gain": 1.0, "value_gain": 1.0, "network": "mlp",
        "observation_clip": None, "reward_clip": None,
    },
    differs=(
        "actor and critic have an Adam each there, and one here, which is the same but for the "
        "clip of gradients",
        _ENDED.format("Rejax"),
    ),
)  # fmt: skip

# --------------------------------------------------------------------------------- Lerax

_LERAX_HEADS = (
    "its policy is an encoder under two heads with hidden layers of their own; here actor and "
    "critic are towers of hidden_sizes, apart or shared"
)
_LERAX_CLIP = (
    "Lerax takes the smaller of the clipped and the unclipped loss; here it is the larger"
)
_LERAX_ENVS = words({
    "CartPole": "CartPole-v1", "Acrobot": "Acrobot-v1", "Pendulum": "Pendulum-v1",
    "MountainCar": "MountainCar-v0", "ContinuousMountainCar": "MountainCarContinuous-v0",
})  # fmt: skip


def _lerax(name: str, version: str, steps: int, epochs: int, feature: tuple[int, int]) -> System:
    size, depth = feature
    return System(
        name,
        "Lerax",
        (
            taken("env", "env", values=_LERAX_ENVS,
                  note="the environment of that name here, whose steps Lerax integrates itself"),
            *same(f"""
                total_timesteps env_steps; seed seed; learning_rate learning_rate 3e-4
                num_envs num_envs 4; num_steps rollout_length {steps}; gamma gamma 0.99
                num_epochs update_epochs {epochs}; num_batches num_minibatches 32
                gae_lambda gae_lambda 0.95; clip_coefficient clip_eps 0.2
                entropy_loss_coefficient ent_coef 0.0; value_loss_coefficient vf_coef 0.5
                max_grad_norm max_grad_norm 0.5; log_std_init log_std_init 0.0
                normalize_advantages normalise_advantages True"""),
            taken("clip_value_loss", "value_clip_eps", False, VALUE_CLIP, _LERAX_CLIP),
            taken("activation", "activation", "relu", ACTIVATIONS),
            *left("computed from num_batches there", "batch_size"),
            *left("an object there; see optimiser", "optimizer"),
            *refused(_LERAX_HEADS, "feature_size", harmless=(size, None)),
            *refused(_LERAX_HEADS, "feature_width", "value_width", "action_width",
                     harmless=(64, None)),
            *refused(_LERAX_HEADS, "feature_depth", harmless=(depth, None)),
            *refused(_LERAX_HEADS, "value_depth", "action_depth", harmless=(2, None)),
            *refused("a curriculum changes the environment in the run, which a study cannot",
                     "curriculum"),
            *refused("the size of states of neural differential equations has no counterpart",
                     "state_magnitude_coefficient", harmless=(0, 0.0, None)),
        ),
        ("lerax",),
        tuple(map(frozenset, (
            {"state_magnitude_coefficient"},) if name != "lerax" else (
            {"clip_coefficient"}, {"entropy_loss_coefficient"}, {"value_loss_coefficient"},
        ))),
        ("PPO",),
        {"ScheduledCurriculum": "curriculum"},
        version=version,
        source="github.com/RunnersNum40/lerax, algorithm/ppo.py",
        always={**PLAIN_PPO, "adam_eps": 1e-8, "network": "mlp", "hidden_sizes": [64, 64],
                **TORCH_INIT},
        differs=(_LERAX_HEADS,),
    )  # fmt: skip


LERAX = (
    _lerax("lerax_0_0_5", "up to 0.0.5 (January 2026)", 512, 16, (64, 0)),
    _lerax("lerax", "0.0.6 (since 18 February 2026)", 2048, 10, (16, 2)),
)

# -------------------------------------------------------------------------------- JaxDEM

_NOT_TRAINED = "it changes what is trained and has no counterpart"
_BODIES = "every body's step counts there, an environment's step here"
_JAXDEM_ENVS = NoCounterpart(
    "JaxDEM's own environments are not known here; register yours (docs/environments.md), or name "
    "another as env, such as navigators"
)
_COSINE = Settings(lr_schedule="cosine", schedule_on_gradient_steps=True)
_JAXDEM: tuple[Row, ...] = (
    taken("env", "env", values=words({
        name: _JAXDEM_ENVS for body in ("navigator", "roller") for name in (
            f"single_{body}", f"multi_{body}", f"swarm_{body}", f"swarm_{body}_3d")
    } | {"two_gears": _JAXDEM_ENVS, "three_gears": _JAXDEM_ENVS})),
    *same("""
        seed seed; optimizer optimiser muon; learning_rate learning_rate
        max_grad_norm max_grad_norm; ppo_clip_eps clip_eps 0.2; ppo_value_coeff vf_coef
        ppo_entropy_coeff ent_coef; advantage_gamma gamma 0.99; advantage_lambda gae_lambda 0.95
        advantage_rho_clip rho_clip; advantage_c_clip c_clip; num_minibatches num_minibatches
        importance_sampling_alpha priority_alpha; importance_sampling_beta priority_beta0
        anneal_importance_sampling_beta anneal_priority_beta True; num_envs num_envs
        num_steps_epoch rollout_length 64; minibatch_size minibatch_size
        accumulate_n_gradients accumulate_minibatches 1; in_scale hidden_gain
        actor_scale policy_gain 1.0; critic_scale value_gain 0.01; architecture hidden_sizes"""),
    taken("total_timesteps", "env_steps", note=_BODIES),
    taken("num_epochs", "env_steps",
          note="updates, each of num_envs x num_steps_epoch env steps"),
    taken("activation", "activation", "gelu", ACTIVATIONS),
    *refused("give action_low and action_high, as the model has no bijector here",
             "clip_actions"),
    *left("actions are within the environment's bounds; see `distribution`", "action_space"),
    *left("it belongs to clip_actions", "clip_range"),
    *left("a random key; see seed", "key"),
)  # fmt: skip


def _jaxdem(
    name: str, version: str, defaults: dict[str, Any], eps: float, more: tuple[Row, ...],
    marks: tuple[str, ...],
) -> System:  # fmt: skip
    return System(
        name,
        "JaxDEM",
        (*with_defaults(_JAXDEM, defaults), *more),
        ("jaxdem",),
        tuple(frozenset({mark}) for mark in marks),
        ("create", "Create"),
        version=version,
        source="github.com/cdelv/JaxDEM, jaxdem/rl/trainers/ppo_trainer.py",
        always={**PLAIN_PPO, "adam_eps": eps, "value_clip_eps": "same", "update_epochs": 1,
                "network": "mlp", "shared_encoder": True, "priority_over": "segments"},
        differs=(
            "segments are drawn once a rollout here, with the advantages of before its updates; "
            "JaxDEM draws them anew for each minibatch, without replacement",
            "value targets under V-trace are of the rollout's values here; JaxDEM computes them "
            "anew for each minibatch",
        ),
    )  # fmt: skip


JAXDEM = (
    _jaxdem(
        "jaxdem_2025_09", "of 22 September to 4 November 2025",
        {"learning_rate": 2e-2, "max_grad_norm": 0.4, "ppo_value_coeff": 0.5,
         "ppo_entropy_coeff": 0.03, "advantage_rho_clip": 0.5, "advantage_c_clip": 0.5,
         "importance_sampling_alpha": 0.4, "importance_sampling_beta": 0.1, "num_envs": 2048,
         "num_minibatches": 10, "architecture": [32, 32]},
        1e-5,
        (taken("anneal_learning_rate", "lr_schedule", True,
               words({True: _COSINE, False: "constant"})),
         *same("""learning_rate_decay_exponent lr_decay_exponent 2.0
                  learning_rate_decay_min_fraction lr_end_fraction 0.01""")),
        ("learning_rate_decay_exponent", "learning_rate_decay_min_fraction"),
    ),
    _jaxdem(
        "jaxdem", "since 6 November 2025 (0.1, read at June 2026)",
        {"learning_rate": 1e-2, "max_grad_norm": 1.5, "ppo_value_coeff": 2.0,
         "ppo_entropy_coeff": 0.001, "advantage_rho_clip": 1.0, "advantage_c_clip": 1.0,
         "importance_sampling_alpha": 0.8, "importance_sampling_beta": 0.2, "num_envs": 1024,
         "num_minibatches": 4, "architecture": [42, 42, 42]},
        1e-12,
        (taken("anneal_learning_rate", "lr_schedule", True,
               words({True: Settings(_COSINE, lr_end_fraction=0.0), False: "constant"})),
         *refused(_NOT_TRAINED, "drip_decay", harmless=(0, 0.0, None)),
         *refused(_NOT_TRAINED, "skip_frames", harmless=(0, None)),
         *refused(_NOT_TRAINED, "stop_at_epoch", "actor_sigma_head")),
        ("ppo_clip_eps", "ppo_value_coeff", "num_steps_epoch", "ppo_entropy_coeff"),
    ),
)  # fmt: skip

# ------------------------------------------------------------------------------ ARLBench

ARLBENCH = System(
    "arlbench",
    "ARLBench",
    (
        taken("env_name", "env", "CartPole-v1"),
        taken("environment.name", "env"),
        taken("env_kwargs", "env.*", values=ENV_KEYS),
        taken("environment.kwargs", "env.*", values=ENV_KEYS),
        *same("""
            n_total_timesteps env_steps 1_000_000; seed seed; n_envs num_envs 8
            n_eval_episodes evaluation.episodes; deterministic_eval evaluation.greedy
            learning_rate learning_rate 3e-4; n_steps rollout_length 128
            minibatch_size minibatch_size 64; update_epochs update_epochs 10; gamma gamma 0.99
            gae_lambda gae_lambda 0.95; clip_eps clip_eps 0.2; vf_clip_eps value_clip_eps 0.2
            normalize_advantage normalise_advantages True; ent_coef ent_coef 0.0
            vf_coef vf_coef 0.5; max_grad_norm max_grad_norm 0.5; activation activation tanh
            normalize_observations normalise_observations False; hidden_size hidden_size 64"""),
        taken("cnn_policy", "network", values=words({
            True: Settings(network="cnn", shared_encoder=True), False: Settings(network="mlp"),
        })),
        *refused(PPO_ALONE, "algorithm", harmless=("ppo", "PPO", None)),
        *left("ids of gymnax stand as they are, others as gym:, brax:", "env_framework",
              "framework"),
        *left("see `evaluation`", "n_eval_steps", "eval_kwargs", "eval_env_kwargs"),
        *left("see `metric`", "objectives", "optimize_objectives"),
        *left("a separate file, of ConfigSpace", "search_space"),
        *left("it belongs to hyperparameters as actions; see docs/autorl.md", "state_features"),
        *left(OUTPUT, "checkpoint", "checkpoint_name", "checkpoint_dir", "load_checkpoint",
              "track_metrics", "track_trajectories", "hpo_method"),
        *left("the precision is `dtype`", "jax_enable_x64"),
    ),
    ("arlbench", "run_arlbench.py"),
    (frozenset({"vf_clip_eps"}), frozenset({"minibatch_size", "n_steps"})),
    ("AutoRLEnv", "PPO"),
    version="of February 2025",
    source="github.com/automl/arlbench, arlbench/core/algorithms/ppo",
    always={**PLAIN_PPO, "adam_eps": 1e-5, "num_layers": 2, "observation_clip": None},
    differs=(_ENDED.format("ARLBench"),),
)  # fmt: skip
