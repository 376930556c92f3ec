"""CleanRL's PPO scripts, Stable-Baselines3 with rl-zoo3, and the single-file PyTorch PPO."""

from __future__ import annotations

from typing import Any

from .name_mapping import (
    ACTIVATIONS,
    COMPUTED,
    ENDED,
    MACHINE,
    NORMALISED,
    OUTPUT,
    PLAIN_PPO,
    PPO_ALONE,
    STATISTICS,
    NoCounterpart,
    Settings,
    System,
    arguments,
    is_number,
    left,
    mapping_of,
    name_sets,
    orthogonal,
    parsed,
    refused,
    scheduled,
    table,
    taken,
    times,
    widths_of,
    with_defaults,
    words,
)

# fmt: off
# ------------------------------------------------------------------------------- CleanRL

_CLEANRL = (  # with the defaults of ppo.py
    *table("""
        env_id env CartPole-v1; gym_id env; total_timesteps env_steps 500_000; seed = 1
        num_envs = 4; learning_rate = 2.5e-4; num_steps rollout_length 128; gamma = 0.99
        gae_lambda = 0.95; num_minibatches = 4; update_epochs = 4; clip_coef clip_eps 0.2
        norm_adv normalise_advantages True; ent_coef = 0.01; vf_coef = 0.5; max_grad_norm = 0.5
        track loggers.wandb; wandb_entity loggers.wandb.entity
        wandb_project_name loggers.wandb.project; anneal_lr lr_schedule@anneal True
        clip_vloss value_clip_eps@value_clip True"""),
    taken("target_kl", "target_kl", None, times(1.0 / 1.5),
          "divided by 1.5, as an update is cut short at 1.5 times ours; CleanRL checks it after "
          "each epoch, here it is checked after each minibatch"),
    *left(COMPUTED, "batch_size minibatch_size num_iterations num_updates"),
    *left(OUTPUT, "exp_name capture_video save_model upload_model hf_entity"),
    *left(MACHINE, "torch_deterministic cuda"),
)
_CONTINUOUS = {
    "env_id": "HalfCheetah-v4", "total_timesteps": 1_000_000, "learning_rate": 3e-4,
    "num_envs": 1, "num_steps": 2048, "num_minibatches": 32, "update_epochs": 10, "ent_coef": 0.0,
}
_ATARI = {"env_id": "BreakoutNoFrameskip-v4", "total_timesteps": 10_000_000, "num_envs": 8,
          "clip_coef": 0.1}
_ENVPOOL = {**_ATARI, "env_id": "Breakout-v5"}
_TOWERS = {"network": "mlp", "hidden_sizes": [64, 64], "activation": "tanh"}
_IMAGES = {"network": "cnn", "shared_encoder": True, "activation": "relu", "history": 4}
_WRAPPED = "Atari's wrappers (no-ops, frame skip, lost lives, signs of rewards) are not added here"


def _script(
    name: str, program: str, defaults: dict[str, Any], always: dict[str, Any],
    *differs: str, unread: str = "", marks: str = "",
) -> System:
    rows = [row for row in with_defaults(_CLEANRL, defaults) if row.name not in unread.split()]
    return System(
        name, f"CleanRL's {program}.py", (*rows, *left("not used by this script", unread)),
        (f"cleanrl/{program}.py",), name_sets(marks) if marks else (), version="of April 2026",
        source=f"github.com/vwxyzjn/cleanrl, cleanrl/{program}.py",
        always={**PLAIN_PPO, "adam_eps": 1e-5, **always},
        differs=(ENDED.format("CleanRL"), *differs),
    )


CLEANRL = (
    _script("cleanrl", "ppo", {}, _TOWERS,
            marks="clip_coef norm_adv; clip_coef num_steps; clip_vloss update_epochs; "
                  "clip_coef update_epochs; learning_rate clip_coef"),
    _script("cleanrl_continuous", "ppo_continuous_action", _CONTINUOUS,
            {**_TOWERS, **NORMALISED, "distribution": "gaussian"},
            "running statistics are shared by a trial's environments and change once per rollout "
            "here; there each environment has its own, which change with every env step"),
    _script("cleanrl_atari", "ppo_atari", _ATARI, _IMAGES, _WRAPPED),
    _script("cleanrl_envpool", "ppo_atari_envpool", _ENVPOOL, _IMAGES, _WRAPPED),
    _script("cleanrl_envpool_xla", "ppo_atari_envpool_xla_jax", _ENVPOOL, _IMAGES, _WRAPPED,
            unread="clip_vloss target_kl"),
    _script("cleanrl_envpool_scan", "ppo_atari_envpool_xla_jax_scan", _ENVPOOL, _IMAGES, _WRAPPED,
            unread="clip_vloss target_kl"),
)
"""The scripts whose training has a counterpart."""

# ------------------------------------------------- Stable-Baselines3, sb3-contrib, rl-zoo3

_DICTIONARIES = NoCounterpart("no network reads observations that are dictionaries")
_POLICIES = words(
    {"MlpPolicy": "mlp", "MlpLstmPolicy": Settings(network="lstm", recurrent_size=256),
     "CnnPolicy": Settings(network="cnn", shared_encoder=True, activation="relu"),
     "CnnLstmPolicy": NoCounterpart("no network here has a recurrent layer after convolutions"),
     "MultiInputPolicy": _DICTIONARIES, "MultiInputLstmPolicy": _DICTIONARIES},
    others=NoCounterpart("a custom policy; docs/networks.md shows how to register one"),
)


def _normalise(value: Any) -> Settings:
    """Read `normalize`: true, false, or arguments of VecNormalize."""
    if isinstance(value, bool | None) or value in ("true", "True", "false", "False"):
        none = Settings(normalise_observations=False, normalise_rewards=False)
        return Settings(NORMALISED) if value in (True, "true", "True") else none
    given = {"norm_obs": True, "norm_reward": True, **mapping_of(value)}
    texts = [one for one in given.values() if isinstance(one, str)]
    if texts:
        raise NoCounterpart(f"its {texts[0]} cannot be read")
    settings = Settings(normalise_observations=bool(given.pop("norm_obs")),
                        normalise_rewards=bool(given.pop("norm_reward")))
    for name, target, needs in (("clip_obs", "observation_clip", "normalise_observations"),
                                ("clip_reward", "reward_clip", "normalise_rewards")):
        clip = given.pop(name, 10.0)
        if settings[needs]:
            settings[target] = float(clip)
    if given.pop("gamma", None) is not None:
        raise NoCounterpart("rewards are normalised with the study's own gamma here; leave it out")
    odd = given.keys() - {"training", "epsilon"}
    if odd:
        raise NoCounterpart(f"VecNormalize's {', '.join(map(repr, odd))} has no counterpart")
    return settings


def _optimiser(word: Any) -> Settings:
    name = str(word).rsplit(".", 1)[-1].lower()
    if name not in ("adam", "adamw", "sgd"):
        raise NoCounterpart(f"the optimiser {word!r}; known: Adam, AdamW, SGD")
    return Settings(optimiser=name)


_policy_arguments = arguments(
    {"net_arch": lambda value: Settings(hidden_sizes=widths_of(value)),
     "activation_fn": lambda value: Settings(activation=ACTIVATIONS.of(value)),
     "ortho_init": orthogonal, "log_std_init": "log_std_init",
     "lstm_hidden_size": "recurrent_size", "optimizer_class": _optimiser,
     "optimizer_kwargs": arguments({
         "eps": "adam_eps", "weight_decay": "weight_decay",
         "betas": lambda pair: Settings(adam_beta1=pair[0], adam_beta2=pair[1])})},
    harmless={
        "enable_critic_lstm": (True,), "shared_lstm": (False,), "n_lstm_layers": (1,),
        "squash_output": (False,), "full_std": (True, False), "use_expln": (True, False),
        "share_features_extractor": (True,), "normalize_images": (True,), "use_sde": (False,)},
)


def _widths(value: Any) -> list[int]:
    """Read `net_arch` alone; the words are those of rl-zoo3's own search."""
    sizes = {"tiny": [64], "small": [64, 64], "medium": [256, 256]}
    return sizes[value] if isinstance(value, str) and value in sizes else widths_of(value)


def _save_freq(value: Any) -> int | Settings:
    if not is_number(value) or value != int(value):
        raise NoCounterpart(f"{value!r} is not a whole number of env steps")
    return int(value) if value > 0 else Settings()


SB3 = System(
    "sb3", "Stable-Baselines3 and rl-zoo3",
    (
        *table("""
            env =; total_timesteps env_steps; n_timesteps env_steps; seed =; gamma = 0.99
            n_envs num_envs 1; n_eval_episodes evaluation.episodes; frame_stack history
            eval_episodes evaluation.episodes; lr_schedule =; ent_coef = 0.0
            n_steps rollout_length 2048; batch_size minibatch_size 64
            n_epochs update_epochs 10; gae_lambda = 0.95
            normalize_advantage normalise_advantages True; max_grad_norm = 0.5
            target_kl = None; log_std_init = 0.0; lstm_hidden_size recurrent_size
            track loggers.wandb; wandb_project_name loggers.wandb.project
            wandb_entity loggers.wandb.entity; tensorboard_log loggers.tensorboard
            env_kwargs env.*@env_keys"""),
        taken("learning_rate", "learning_rate", 3e-4,
              scheduled("learning_rate", "lr_schedule", "lr_end_fraction")),
        taken("clip_range", "clip_eps", 0.2,
              scheduled("clip_eps", "clip_eps_schedule", "clip_eps_end_fraction")),
        *table("clip_range_vf value_clip_eps@off None",
               "Stable-Baselines3 takes the loss of the clipped value; here it is the larger of "
               "that and the unclipped one, as in most others"),
        taken("vf_coef", "vf_coef", 0.5, times(2.0),
              "times 2, as the loss there is (V - R)^2 and half of that here"),
        taken("normalize", "normalise_observations", False,
              parsed(_normalise, "VecNormalize: true is both with clips of 10, or its arguments"),
              STATISTICS),
        *table("""
            n_steps_pow rollout_length@power_of_two; batch_size_pow minibatch_size@power_of_two
            one_minus_gamma gamma@one_minus; one_minus_gae_lambda gae_lambda@one_minus"""),
        taken("policy", "network", "MlpPolicy", _POLICIES),
        taken("policy_kwargs", "network", values=parsed(_policy_arguments, "read one by one")),
        taken("net_arch", "hidden_sizes", values=parsed(_widths, "pi and vf must be equal")),
        *table("""activation_fn activation@activation; activation =@activation
                  ortho_init initialisation@orthogonal"""),
        taken("save_freq", "checkpoint.policies_every", values=parsed(_save_freq, "-1 is off"),
              note="of the best trials, at the ends of chunks"),
        taken("log_interval", "log_every", note="in env steps here, in rollouts there"),
        *refused("wrappers change what is trained; register the wrapped environment "
                 "(docs/environments.md)", "env_wrapper vec_env_wrapper", (None, [], "")),
        *refused("noise that depends on the state (gSDE) has no counterpart; without it noise is "
                 "independent", "use_sde"),
        *refused("actor and critic have separate recurrent layers here", "enable_critic_lstm",
                 (True, None)),
        *refused("another buffer changes what is trained",
                 "rollout_buffer_class rollout_buffer_kwargs"),
        *refused(PPO_ALONE, "algo", ("ppo", "ppo_lstm", None)),
        *left("it belongs to use_sde", "sde_sample_freq"),
        *left(OUTPUT, "verbose stats_window_size callback monitor_kwargs log_folder tb_log_name "
                      "progress_bar progress wandb_group wandb_tags uuid"),
        *left(MACHINE, "device num_threads vec_env vec_env_type n_eval_envs n_jobs"),
    ),
    ("stable_baselines3", "rl_zoo3", "rl-baselines3-zoo", "sb3", "rl_zoo"),
    name_sets("n_steps clip_range; n_steps batch_size n_epochs; policy_kwargs; "
              "n_epochs clip_range; n_steps n_epochs; batch_size clip_range; clip_range_vf; "
              "use_sde; one_minus_gamma"),
    ("PPO", "RecurrentPPO"),
    {"VecNormalize": "normalize", "VecFrameStack": "frame_stack=n_stack",
     "AtariWrapper": "env_wrapper", "make_atari_env": "env_wrapper"},
    version="2.9 (rl-zoo3 of April 2026)",
    source="github.com/DLR-RM/stable-baselines3, ppo/ppo.py and common/policies.py",
    always={**PLAIN_PPO, "adam_eps": 1e-5, "hidden_sizes": [64, 64], "activation": "tanh"},
)
"""Its PPO; rl-zoo3 adds `n_envs`, `normalize`, `frame_stack`, `n_timesteps` and wrappers."""

# ------------------------------------------------------------- the single-file PyTorch PPO


def _schedule(kind: str, end: str) -> Any:
    """Return the words of a schedule; all but `constant` end at 0."""
    return words({
        "constant": "constant", "none": "constant", None: "constant",
        "linear": Settings({kind: "linear", end: 0.0}),
        "cosine": Settings({kind: "cosine", end: 0.0}),
        "warmup_cosine": Settings({kind: "warmup_cosine", end: 0.0, "lr_warmup_fraction": 0.1,
                                   "lr_warmup_start_fraction": 0.0}),
    })


TORCH_PPO = System(
    "torch_ppo", "the single-file PyTorch PPO (PPOConfig)",
    (
        *table("""
            env_id env CartPole-v1; num_envs = 4; seed = 42; gamma = 0.99
            total_timesteps env_steps 1_000_000; rollout_steps rollout_length 2048
            n_epochs update_epochs 10; minibatch_size = 64; gae_lambda = 0.95
            clip_epsilon clip_eps 0.2; value_clip_epsilon value_clip_eps 0.2
            value_coef vf_coef 0.5; entropy_coef ent_coef 0.01; max_grad_norm = 0.5
            target_kl = 0.02; hidden_sizes = [64, 64]; shared_backbone shared_encoder False
            log_std_init = -0.5; lr_actor learning_rate 3e-4; optimizer optimiser adam
            adam_eps = 1e-5; weight_decay = 0.0; reward_clip = 10.0
            norm_adv normalise_advantages True; use_wandb loggers.wandb
            wandb_project loggers.wandb.project"""),
        taken("clip_epsilon_schedule", "clip_eps_schedule", "linear",
              _schedule("clip_eps_schedule", "clip_eps_end_fraction")),
        taken("entropy_coef_schedule", "ent_schedule", "linear",
              _schedule("ent_schedule", "ent_end_fraction")),
        taken("lr_schedule", "lr_schedule", "linear", _schedule("lr_schedule", "lr_end_fraction")),
        *table("activation activation@activation tanh"),
        taken("continuous_dist", "distribution", "gaussian",
              words({"gaussian": Settings(), "beta": Settings(distribution="beta")})),
        taken("squash_actions", "distribution", False,
              words({True: Settings(distribution="tanh_gaussian"), False: Settings()}),
              "the action before tanh is stored here, and recomputed by atanh there, within "
              "0.9999; the entropy bonus is of the squashed action here, of the Gaussian before "
              "it there"),
        *table("normalise_obs normalise_observations True", STATISTICS),
        taken("normalise_rewards", "normalise_rewards", True, words({
            True: Settings(normalise_rewards=True, raw_reward_deviation=True), False: False,
        }), STATISTICS),
        taken("use_amp", "dtype", False, words({True: "bfloat16", False: "float32"}),
              "bfloat16 here, float16 there"),
        *table("ortho_init initialisation@orthogonal True"),
        taken("log_interval", "log_every", note="in env steps here, in updates there"),
        taken("save_interval", "checkpoint.policies_every",
              note="in env steps here, in updates there; of the best trials"),
        *left("not used there", "lr_critic recurrent"),
        *left("the environment's own actions decide", "action_space_type"),
        *left(OUTPUT, "log_dir experiment_name"),
        *left(MACHINE, "device"),
        *refused("a custom network (docs/networks.md); here a transformer reads the last "
                 "observations: without=backbone_cls network=transformer history=8",
                 "backbone_cls"),
        *refused("its checkpoints cannot be read here", "resume_from"),
    ),
    (),
    name_sets("rollout_steps clip_epsilon; clip_epsilon_schedule; entropy_coef_schedule; "
              "shared_backbone lr_actor; value_clip_epsilon; rollout_steps lr_actor"),
    ("PPOConfig", "train_discrete", "train_continuous", "train_with_transformer_backbone"),
    version="with 46 fields",
    source="PPOConfig of the single-file PyTorch PPO",
    always={**PLAIN_PPO, "network": "mlp", "observation_clip": None},
    differs=(ENDED.format("its GAE"),),
)
