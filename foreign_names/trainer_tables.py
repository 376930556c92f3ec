"""CleanRL, Stable-Baselines3, the single-file PyTorch PPO, and JAX trainers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..files.plain_data import is_number
from .derived import OFF, Derived, whole
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
    NameRow,
    NoCounterpart,
    PythonCalls,
    SettingsRow,
    System,
    arguments,
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
        num_seeds seeds.per_config
        clip_vloss value_clip_eps@value_clip True"""),
    taken("target_kl", "target_kl", None, times(1.0 / 1.5),
          (
              "divided by 1.5, because hpo stops at 1.5 times target_kl; CleanRL checks "
              "after each epoch, hpo after each minibatch"
          )),
    *left(COMPUTED, "batch_size minibatch_size num_iterations num_updates"),
    *left(OUTPUT, "exp_name capture_video save_model upload_model hf_entity"),
    *left(MACHINE, "torch_deterministic cuda workers slurm_gpus_per_task slurm_ntasks "
                   "slurm_total_cpus slurm_nodes slurm_template_path"),
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
WRAPPED = "Atari wrappers (no-ops, frame skip, episodic life, reward clipping) are not applied"


@dataclass(frozen=True)
class _Project:
    """A repository of scripts that share their names."""

    title: str
    account: str
    rows: tuple[NameRow, ...]
    fields: Mapping[str, Any]  # of all its systems

    def script(
        self, name: str, program: str, defaults: dict[str, Any], always: dict[str, Any],
        *differs: str, unread: str = "", marks: str = "",
    ) -> System:
        """Return the system of one script."""
        rows, folder = with_defaults(self.rows, defaults), self.title.lower()
        kept = [row for row in rows if row.name not in unread.split()]
        return System(
            name, f"{self.title}'s {program}.py",
            (*kept, *left("not used by this script", unread)),
            programs=(f"{folder}/{program}.py",), marks=name_sets(marks),
            source=f"github.com/{self.account}/{folder}, {folder}/{program}.py",
            always={**PLAIN_PPO, "adam_eps": 1e-5, **always},
            differs=(ENDED.format(self.title), *differs), **self.fields,
        )


_cleanrl = _Project("CleanRL", "vwxyzjn", _CLEANRL, {"version": "of April 2026"}).script
CLEANRL = (
    _cleanrl("cleanrl", "ppo", {}, _TOWERS,
            marks="clip_coef norm_adv; clip_coef num_steps; clip_vloss update_epochs; "
                  "clip_coef update_epochs; learning_rate clip_coef"),
    _cleanrl("cleanrl_continuous", "ppo_continuous_action", _CONTINUOUS,
            {**_TOWERS, **NORMALISED, "distribution": "gaussian"},
            (
                "hpo shares running statistics between a trial's environments and updates them "
                "once per rollout; the source has them per environment and updates them after "
                "every env step"
            )),
    _cleanrl("cleanrl_atari", "ppo_atari", _ATARI, _IMAGES, WRAPPED),
    _cleanrl("cleanrl_envpool", "ppo_atari_envpool", _ENVPOOL, _IMAGES, WRAPPED),
    _cleanrl("cleanrl_envpool_xla", "ppo_atari_envpool_xla_jax", _ENVPOOL, _IMAGES, WRAPPED,
            unread="clip_vloss target_kl"),
    _cleanrl("cleanrl_envpool_scan", "ppo_atari_envpool_xla_jax_scan", _ENVPOOL, _IMAGES, WRAPPED,
            unread="clip_vloss target_kl"),
)
"""The scripts whose training has a counterpart here."""

# ------------------------------------------------- Stable-Baselines3, sb3-contrib, rl-zoo3

_DICTIONARIES = NoCounterpart("no network reads dictionary observations")
_POLICIES = words(
    {"MlpPolicy": "mlp", "MlpLstmPolicy": SettingsRow(network="lstm", recurrent_size=256),
     "CnnPolicy": SettingsRow(network="cnn", shared_encoder=True, activation="relu"),
     "CnnLstmPolicy": NoCounterpart("recurrent layers after convolutions are not available"),
     "MultiInputPolicy": _DICTIONARIES, "MultiInputLstmPolicy": _DICTIONARIES},
    others=NoCounterpart("a custom policy; docs/networks.md shows how to register one"),
)


def _normalisation_settings(value: Any) -> SettingsRow:
    """Read `normalize`: true, false, or arguments for VecNormalize."""
    if isinstance(value, bool | None) or value in ("true", "True", "false", "False"):
        if value in (True, "true", "True"):
            return SettingsRow(NORMALISED)
        return SettingsRow(normalise_observations=False, normalise_rewards=False)
    given = {"norm_obs": True, "norm_reward": True, **mapping_of(value)}
    texts = [one for one in given.values() if isinstance(one, str)]
    if texts:
        raise NoCounterpart(f"its {texts[0]} cannot be read")
    settings = SettingsRow(normalise_observations=bool(given.pop("norm_obs")),
                        normalise_rewards=bool(given.pop("norm_reward")))
    for name, target, needs in (("clip_obs", "observation_clip", "normalise_observations"),
                                ("clip_reward", "reward_clip", "normalise_rewards")):
        clip = given.pop(name, 10.0)
        if settings[needs]:
            settings[target] = float(clip)
    odd = given.keys() - {"training", "epsilon", "gamma"}
    if odd:
        raise NoCounterpart(f"VecNormalize's {', '.join(map(repr, odd))} has no counterpart")
    return settings


def _optimiser_of_class(word: Any) -> SettingsRow:
    name = str(word).rsplit(".", 1)[-1].lower()
    if name not in ("adam", "adamw", "sgd"):
        raise NoCounterpart(f"unknown optimiser {word!r}; known: Adam, AdamW, SGD")
    return SettingsRow(optimiser=name)


_policy_arguments = arguments(
    {"net_arch": lambda value: SettingsRow(hidden_sizes=widths_of(value)),
     "activation_fn": lambda value: SettingsRow(activation=ACTIVATIONS.of(value)),
     "ortho_init": orthogonal, "log_std_init": "log_std_init",
     "lstm_hidden_size": "recurrent_size", "optimizer_class": _optimiser_of_class,
     "optimizer_kwargs": arguments({
         "eps": "adam_eps", "weight_decay": "weight_decay",
         "betas": lambda pair: SettingsRow(adam_beta1=pair[0], adam_beta2=pair[1])})},
    harmless={
        "enable_critic_lstm": (True,), "shared_lstm": (False,), "n_lstm_layers": (1,),
        "squash_output": (False,), "full_std": (True, False), "use_expln": (True, False),
        "share_features_extractor": (True,), "normalize_images": (True,), "use_sde": (False,)},
)


def _net_arch_widths(value: Any) -> list[int]:
    """Read `net_arch` alone, including words from rl-zoo3's search such as `small`."""
    sizes = {"tiny": [64], "small": [64, 64], "medium": [256, 256]}
    if isinstance(value, str) and value in sizes:
        return sizes[value]
    return widths_of(value)


def _save_freq(value: Any) -> int | SettingsRow:
    if not is_number(value) or value != int(value):
        raise NoCounterpart(f"{value!r} is not a whole number of env steps")
    if value <= 0:
        return SettingsRow()
    return int(value)


def _env_steps(rollouts: Any, steps: Any, envs: Any) -> Any:
    """Convert a number of rollouts to env steps; `OFF` if the number is not positive."""
    count, length, width = (whole(value) for value in (rollouts, steps, envs))
    if not count or count < 0:
        return OFF
    if length is None or width is None:
        return None
    return count * length * width


def _in_rollouts(name: str, steps: str, envs: str, ours: str) -> Derived:
    """Return a name that counts rollouts, each of `steps` env steps in each of `envs`."""
    because = f"{steps} is searched, so the length of a rollout varies; give {ours}"
    return Derived(name, (name, steps, envs), _env_steps, searched="leave out", because=because)


def _calls_in_env_steps(calls: Any, envs: Any) -> int | None:
    if not isinstance(calls, int):
        return None
    return calls * int(envs)


_SB3_ENV = "env n_envs seed start_index monitor_dir "
_SB3_PPO = ("policy env learning_rate n_steps batch_size n_epochs gamma gae_lambda clip_range "
            "clip_range_vf normalize_advantage ent_coef vf_coef max_grad_norm use_sde "
            "sde_sample_freq")
SB3 = System(
    "sb3", "Stable-Baselines3 and rl-zoo3",
    (
        *table("""
            env =; total_timesteps env_steps; n_timesteps env_steps; seed =; gamma = 0.99
            n_envs num_envs 1; n_eval_episodes evaluation.episodes; frame_stack history
            eval_episodes evaluation.episodes; ent_coef = 0.0
            n_steps rollout_length 2048; batch_size minibatch_size 64
            n_epochs update_epochs 10; gae_lambda = 0.95
            normalize_advantage normalise_advantages True; max_grad_norm = 0.5
            target_kl = None; log_std_init = 0.0; lstm_hidden_size recurrent_size
            track loggers.wandb; wandb_project_name loggers.wandb.project
            wandb_entity loggers.wandb.entity; tensorboard_log loggers.tensorboard
            env_kwargs env.*@env_keys"""),
        taken("learning_rate", "learning_rate", 3e-4,
              scheduled("learning_rate", "lr_schedule", "lr_end_fraction")),
        taken("lr_schedule", "lr_schedule", values=words(
            {"linear": SettingsRow(lr_schedule="linear", lr_end_fraction=0.0)})),
        taken("clip_range", "clip_eps", 0.2,
              scheduled("clip_eps", "clip_eps_schedule", "clip_eps_end_fraction")),
        *table("clip_range_vf value_clip_eps@off None",
               (
                   "Stable-Baselines3 uses the clipped value loss; hpo uses the larger of the "
                   "clipped and unclipped losses, as most implementations do"
               )),
        taken("vf_coef", "vf_coef", 0.5, times(2.0),
              "times 2, because its loss is (V - R)^2 and hpo's is half of that"),
        taken("normalize", "normalise_observations", False,
              parsed(_normalisation_settings, (
                  "VecNormalize: true normalises both, clipped at 10; or a "
                  "mapping of arguments"
              )),
              STATISTICS),
        *table("""
            n_steps_pow rollout_length@power_of_two; batch_size_pow minibatch_size@power_of_two
            one_minus_gamma gamma@one_minus; one_minus_gae_lambda gae_lambda@one_minus"""),
        taken("policy", "network", "MlpPolicy", _POLICIES),
        taken("policy_kwargs", "network", values=parsed(_policy_arguments, "read one by one")),
        taken("net_arch", "hidden_sizes",
              values=parsed(_net_arch_widths, "pi and vf must be equal")),
        *table("""activation_fn activation@activation; activation =@activation
                  ortho_init initialisation@orthogonal"""),
        taken("save_freq", "checkpoint.policies_every", values=parsed(_save_freq, "-1 is off"),
              note="for the best trials, at the ends of chunks"),
        taken("log_interval", "log_every",
              note="hpo counts env steps, the source counts rollouts"),
        *refused((
            "wrappers change the environment; register the wrapped one "
            "(docs/environments.md)"
        ), "env_wrapper vec_env_wrapper wrapper_class",
                 (None, [], "")),
        *refused("several calls of learn() are not added up", "reset_num_timesteps",
                 (True, None)),
        *refused((
            "state-dependent noise (gSDE) has no counterpart; without it, noise is "
            "independent"
        ), "use_sde"),
        *refused("hpo has separate recurrent layers for actor and critic", "enable_critic_lstm",
                 (True, None)),
        *refused("a different buffer changes training",
                 "rollout_buffer_class rollout_buffer_kwargs"),
        *refused(PPO_ALONE, "algo", ("ppo", "ppo_lstm", None)),
        *left("only used by use_sde", "sde_sample_freq"),
        *left(OUTPUT, "verbose stats_window_size callback monitor_kwargs log_folder tb_log_name "
                      "progress_bar progress wandb_group wandb_tags uuid"),
        *left(MACHINE, "device num_threads vec_env vec_env_type n_eval_envs n_jobs"),
    ),
    programs=("stable_baselines3", "rl_zoo3", "rl-baselines3-zoo", "sb3", "rl_zoo"),
    marks=name_sets("n_steps clip_range; n_steps batch_size n_epochs; policy_kwargs; "
              "n_epochs clip_range; n_steps n_epochs; batch_size clip_range; clip_range_vf; "
              "use_sde; one_minus_gamma"),
    python=PythonCalls(
        names=("PPO", "RecurrentPPO"),
        order={
            "PPO": _SB3_PPO, "RecurrentPPO": _SB3_PPO,
            "learn": "total_timesteps callback log_interval tb_log_name reset_num_timesteps",
            "make_vec_env": f"{_SB3_ENV} wrapper_class env_kwargs", "make_atari_env": _SB3_ENV,
            "VecNormalize": "_ training norm_obs norm_reward clip_obs clip_reward",
            "VecFrameStack": "_ n_stack", "DummyVecEnv": "env_fns", "SubprocVecEnv": "env_fns"},
        around={
            "VecNormalize": "normalize", "VecFrameStack": "frame_stack=n_stack",
            "AtariWrapper": "env_wrapper", "make_atari_env": "env_wrapper",
            "DummyVecEnv": "n_envs=env_fns", "SubprocVecEnv": "n_envs=env_fns"},
    ),
    derived=(
        _in_rollouts("log_interval", "n_steps", "n_envs", "log_every"),
        Derived("save_freq", ("save_freq", "n_envs"), _calls_in_env_steps, in_python=True,
                searched="first",
                note="save_freq: {save_freq} calls in the source, each {n_envs} env steps"),
    ),
    version="2.9 (rl-zoo3 of April 2026)",
    source="github.com/DLR-RM/stable-baselines3, ppo/ppo.py and common/policies.py",
    always={**PLAIN_PPO, "adam_eps": 1e-5, "hidden_sizes": [64, 64], "activation": "tanh"},
)
"""The PPO of SB3; rl-zoo3 adds `n_envs`, `normalize`, `frame_stack`, `n_timesteps`, wrappers."""

# ------------------------------------------------------------- the single-file PyTorch PPO


def _schedule_table(kind: str, end: str) -> Any:
    """Return a table of schedule names; all except `constant` end at 0."""
    return words({
        "constant": "constant", "none": "constant", None: "constant",
        "linear": SettingsRow({kind: "linear", end: 0.0}),
        "cosine": SettingsRow({kind: "cosine", end: 0.0}),
        "warmup_cosine": SettingsRow({kind: "warmup_cosine", end: 0.0, "lr_warmup_fraction": 0.1,
                                   "lr_warmup_start_fraction": 0.0}),
    })


_TRAIN = ("train_discrete", "train_continuous", "train_with_transformer_backbone")
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
              _schedule_table("clip_eps_schedule", "clip_eps_end_fraction")),
        taken("entropy_coef_schedule", "ent_schedule", "linear",
              _schedule_table("ent_schedule", "ent_end_fraction")),
        taken("lr_schedule", "lr_schedule", "linear",
              _schedule_table("lr_schedule", "lr_end_fraction")),
        *table("activation activation@activation tanh"),
        taken("continuous_dist", "distribution", "gaussian",
              words({"gaussian": SettingsRow(), "beta": SettingsRow(distribution="beta")})),
        taken("squash_actions", "distribution", False,
              words({True: SettingsRow(distribution="tanh_gaussian"), False: SettingsRow()}),
              (
                  "hpo stores actions before tanh; the source recomputes them with atanh, "
                  "clipped to 0.9999. hpo's entropy bonus uses the squashed distribution, the "
                  "source's the Gaussian before tanh"
              )),
        *table("normalise_obs normalise_observations True", STATISTICS),
        taken("normalise_rewards", "normalise_rewards", True, words({
            True: SettingsRow(normalise_rewards=True, raw_reward_deviation=True), False: False,
        }), STATISTICS),
        taken("use_amp", "dtype", False, words({True: "bfloat16", False: "float32"}),
              "bfloat16 in hpo, float16 in the source"),
        *table("ortho_init initialisation@orthogonal True"),
        taken("log_interval", "log_every", note="hpo counts env steps, the source counts updates"),
        taken("save_interval", "checkpoint.policies_every",
              note="hpo counts env steps, the source counts updates; for the best trials"),
        *left("not used in the source", "lr_critic recurrent"),
        *left("determined by the environment's action space", "action_space_type"),
        *left(OUTPUT, "log_dir experiment_name"),
        *left(MACHINE, "device"),
        *refused("a custom network (docs/networks.md); here a transformer reads the last "
                 "observations: without=backbone_cls network=transformer history=8 "
                 "transformer_layers=2",
                 "backbone_cls"),
        *refused("PyTorch checkpoints cannot be read", "resume_from"),
    ),
    marks=name_sets("rollout_steps clip_epsilon; clip_epsilon_schedule; entropy_coef_schedule; "
              "shared_backbone lr_actor; value_clip_epsilon; rollout_steps lr_actor"),
    python=PythonCalls(
        names=("PPOConfig", "PPOAgent", *_TRAIN),
        order={"PPOAgent": "_ env_factory", **dict.fromkeys(_TRAIN, "env_id total_timesteps")},
    ),
    derived=(
        _in_rollouts("log_interval", "rollout_steps", "num_envs", "log_every"),
        _in_rollouts("save_interval", "rollout_steps", "num_envs", "checkpoint.policies_every"),
    ),
    version="with 46 fields",
    source="PPOConfig of the single-file PyTorch PPO",
    always={**PLAIN_PPO, "network": "mlp", "observation_clip": None},
    differs=(
        ENDED.format("its GAE"),
        (
            "its GAE uses each done flag one step late, so the last step of an episode "
            "bootstraps from the next episode; hpo uses the flag of the same step"
        ),
        "its standard deviation of the advantages divides by n - 1, hpo's by n (0.8 % at 64 rows)",
        (
            "its evaluate() samples actions, although it claims to be deterministic; hpo "
            "takes the most likely ones (evaluation.greedy=false: sampled)"
        ),
    ),
)

# ----------------------------------------------------------------------------- PureJaxRL

_NAVIX = NoCounterpart("Navix environments are not supported; name another as env")
_BRAX = ("ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_pendulum",
         "inverted_double_pendulum", "pusher", "reacher", "walker2d")


def _purejaxrl_env(value: Any) -> str:
    if str(value).lower().startswith("navix"):
        raise _NAVIX
    if value in _BRAX:
        return f"brax:{value}"
    return str(value)


_PUREJAXRL = (  # with the defaults of ppo.py
    taken("ENV_NAME", "env", "CartPole-v1", parsed(_purejaxrl_env, "hopper is brax:hopper")),
    *table("""
        TOTAL_TIMESTEPS env_steps 500_000; SEED seed; NUM_SEEDS seeds.per_config
        LR learning_rate 2.5e-4; NUM_ENVS = 4; NUM_STEPS rollout_length 128; UPDATE_EPOCHS = 4
        NUM_MINIBATCHES = 4; GAMMA = 0.99; GAE_LAMBDA = 0.95; CLIP_EPS = 0.2; ENT_COEF = 0.01
        VF_COEF = 0.5; MAX_GRAD_NORM = 0.5; ANNEAL_LR lr_schedule@anneal True"""),
    taken("ACTIVATION", "activation", "tanh", words({"relu": "relu", "tanh": "tanh"}, "tanh")),
    taken("NORMALIZE_ENV", "normalise_observations", False, words({
        True: SettingsRow(normalise_observations=True, observation_clip=None,
                          normalise_rewards=True, reward_clip=None),
        False: SettingsRow(normalise_observations=False, normalise_rewards=False)}), STATISTICS),
    *left(COMPUTED, "NUM_UPDATES MINIBATCH_SIZE"),
    *left(OUTPUT, "DEBUG"),
)
_PUREJAXRL_CONTINUOUS = {
    "LR": 3e-4, "NUM_ENVS": 2048, "NUM_STEPS": 10, "TOTAL_TIMESTEPS": 50_000_000,
    "NUM_MINIBATCHES": 32, "ENT_COEF": 0.0, "ENV_NAME": "hopper", "ANNEAL_LR": False,
    "NORMALIZE_ENV": True,
}
_MINIGRID = {"NUM_ENVS": 16, "TOTAL_TIMESTEPS": 1_000_000, "UPDATE_EPOCHS": 1,
             "NUM_MINIBATCHES": 8, "ENV_NAME": "Navix-DoorKey-5x5-v0"}
_MLP: dict[str, Any] = {"network": "mlp", "hidden_sizes": [64, 64], "value_clip_eps": "same"}
_GRU = {"network": "gru", "recurrent_size": 128, "hidden_sizes": [128], "activation": "relu",
        "shared_encoder": True, "value_clip_eps": "same"}


_purejaxrl = _Project("PureJaxRL", "luchris429", _PUREJAXRL, {
    "python": PythonCalls(("make_train",), order={"make_train": "_"}),
    "version": "of September 2024", "exact": True,
}).script
PUREJAXRL = (
    _purejaxrl("purejaxrl_continuous", "ppo_continuous_action", _PUREJAXRL_CONTINUOUS,
               {**_MLP, "hidden_sizes": [256, 256]}, marks="NUM_STEPS NORMALIZE_ENV"),
    _purejaxrl("purejaxrl", "ppo", {}, _MLP, marks="NUM_STEPS ANNEAL_LR; NUM_STEPS LR"),
    _purejaxrl("purejaxrl_minigrid", "ppo_minigrid", _MINIGRID, _MLP),
    _purejaxrl("purejaxrl_rnn", "ppo_rnn", {}, _GRU, (
        "its heads have a hidden layer of 128 after the "
        "recurrent layer, which hpo does not offer"
    ), unread="ACTIVATION"),
)

# --------------------------------------------------------------------------------- Rejax


def _rejax_env(value: Any) -> str:
    kind, _, name = str(value).rpartition("/")
    if kind == "navix":
        raise _NAVIX
    return {"": "", "gymnax": "", "brax": "brax:", "gymnasium": "gym:"}.get(kind, kind) + name


_agent = arguments({
    "activation": lambda value: SettingsRow(activation=ACTIVATIONS.of(value)),
    "hidden_layer_sizes": lambda value: SettingsRow(hidden_sizes=list(value)),
})


def _rejax_agent(value: Any) -> SettingsRow:
    return SettingsRow({"activation": "silu", "hidden_sizes": [64, 64], **_agent(value)})


def _rejax_keys(value: Any) -> SettingsRow:
    ours = {"episode_length": "max_steps_in_episode"}  # brax's name for its time limit
    return SettingsRow({f"env.{ours.get(k, k)}": one for k, one in mapping_of(value).items()})


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
              (
                  "the source clips each gradient component, hpo the norm; the numbers are not "
                  "comparable"
              )),
        *table("""normalize_observations normalise_observations False
                  normalize_rewards normalise_rewards False""", note=STATISTICS),
        *left("rewards are normalised with the study's gamma", "reward_normalization_discount"),
        *left(OUTPUT, "skip_initial_evaluation eval_callback"),
    ),
    programs=("rejax",), marks=name_sets("agent_kwargs num_minibatches"),
    python=PythonCalls(("create", "PPO")),
    version="of June 2026", source="github.com/keraJLi/rejax, src/rejax/algos/ppo.py",
    always={
        **PLAIN_PPO, "adam_eps": 1e-8, "value_clip_eps": "same", "initialisation": "lecun",
        "hidden_gain": 1.0, "policy_gain": 1.0, "value_gain": 1.0, "network": "mlp",
        "observation_clip": None, "reward_clip": None,
    },
    differs=((
        "the source has separate Adam optimisers for actor and critic, hpo has one for both; "
        "this matters only for gradient clipping"
    ), ENDED.format("Rejax")),
)

# ------------------------------------------------------------------------------ ARLBench


def _env_steps_between(count: Any, total: Any) -> int | None:
    """Return the env steps between the `count` evaluations of a run."""
    evaluations = whole(count)
    if not evaluations:
        return None
    return max(1, (whole(total) or 0) // evaluations)


def _evaluation_points(count: Any, total: Any) -> int | str | None:
    if whole(count) == 1:
        return "rungs"
    return _env_steps_between(count, total)


def _evaluations_said(count: Any, total: Any) -> str:
    each = f"one every {_env_steps_between(count, total):,} env steps"
    return f"n_eval_steps: {whole(count)} evaluations in a run, {each}"


ARLBENCH = System(
    "arlbench", "ARLBench",
    (
        *table("""
            env_name env CartPole-v1; environment.name env; env_kwargs env.*@env_keys
            environment.kwargs env.*@env_keys; n_total_timesteps env_steps 1_000_000; seed =
            n_envs num_envs 8; n_eval_episodes evaluation.episodes
            n_eval_steps evaluation.every; checkpoint checkpoint.parts
            track_metrics checkpoint.parts; track_trajectories checkpoint.parts
            deterministic_eval evaluation.greedy; learning_rate = 3e-4
            n_steps rollout_length 128; minibatch_size = 64; update_epochs = 10; gamma = 0.99
            gae_lambda = 0.95; clip_eps = 0.2; vf_clip_eps value_clip_eps 0.2
            normalize_advantage normalise_advantages True; ent_coef = 0.0; vf_coef = 0.5
            max_grad_norm = 0.5; activation = tanh
            normalize_observations normalise_observations False; hidden_size = 64"""),
        taken("cnn_policy", "network", values=words({
            True: SettingsRow(network="cnn", shared_encoder=True),
            False: SettingsRow(network="mlp"),
        })),
        *refused(PPO_ALONE, "algorithm", ("ppo", "PPO", None)),
        *left("gymnax ids are unchanged; others start with gym: or brax:",
              "env_framework framework"),
        *left("see `evaluation`", "eval_kwargs eval_env_kwargs"),
        *left("see `metric`", "objectives optimize_objectives"),
        *left("a separate ConfigSpace file", "search_space"),
        *left("only used when hyperparameters are actions", "state_features"),
        *left(OUTPUT, "checkpoint_name checkpoint_dir load_checkpoint hpo_method"),
        *left("precision is set by `dtype`", "jax_enable_x64"),
    ),
    programs=("arlbench", "run_arlbench.py"),
    marks=name_sets("vf_clip_eps; minibatch_size n_steps"),
    python=PythonCalls(
        names=("AutoRLEnv", "PPO"),
        order={"AutoRLEnv": "_", "PPO": "_ env",
               "train": "* n_total_timesteps n_eval_steps n_eval_episodes"},
    ),
    derived=(
        Derived("n_eval_steps", ("n_eval_steps", "n_total_timesteps"), _evaluation_points,
                _evaluations_said, drops=("n_eval_steps",), searched="skip"),
    ),
    version="of February 2025",
    source="github.com/automl/arlbench, arlbench/core/algorithms/ppo",
    always={**PLAIN_PPO, "adam_eps": 1e-5, "num_layers": 2, "observation_clip": None},
    differs=(ENDED.format("ARLBench"),),
)
