"""The tables of all systems: every default is a legal value here, every target exists."""

import pytest

from hpo.foreign_names.name_mapping import (
    COMMON,
    UNKNOWN,
    NoCounterpart,
    SettingsRow,
    mapping_of,
    plain_name,
    times,
    widths_of,
)
from hpo.foreign_names.tables import SYSTEMS, another_algorithm, recognise
from hpo.importers.formats import file_name, read_word
from hpo.knobs import KNOBS, check_value

SECTIONS = ("evaluation.", "seeds.", "init.", "checkpoint.", "loggers.", "env.", "population.")
TOP = ("env", "env_steps", "seed", "name", "loggers", "log_every")
OWN = [one for one in SYSTEMS.values() if one.family != "xlron"]


@pytest.mark.parametrize("one", OWN, ids=lambda one: one.name)
def test_table_targets_exist_and_defaults_are_legal(one):
    for row in one.rows:
        if row.fate != "taken":
            assert row.because and not row.target
            continue
        assert row.target in KNOBS or row.target in TOP or row.target.startswith(SECTIONS)
        if row.name in one.defaults and row.target != "env":
            _check(row.target, row.values.of(row.default))
    for target, value in one.always.items():
        _check(target, value)


@pytest.mark.parametrize("one", SYSTEMS.values(), ids=lambda one: one.name)
def test_normalisation_is_always_set_explicitly(one):
    said = {row.target for row in one.rows if row.default is not UNKNOWN} | set(one.always)
    assert {"normalise_observations", "normalise_rewards"} <= said


def _check(target, value):
    if isinstance(value, SettingsRow):
        for inner, one in value.items():
            _check(inner, one)
    elif target in KNOBS:
        check_value(target, value)


@pytest.mark.parametrize(
    ("names", "words", "name"),
    [
        ("learning-rate clip-coef norm-adv", "", "cleanrl"),
        ("learning-rate", "python cleanrl/ppo.py", "cleanrl"),
        ("clip-coef num-steps", "python cleanrl/ppo_continuous_action.py", "cleanrl_continuous"),
        ("", "cleanrl/ppo_atari_envpool_xla_jax_scan.py", "cleanrl_envpool_scan"),
        ("", "python -m cleanrl.ppo_continuous_action", "cleanrl_continuous"),
        ("n_steps batch_size n_epochs clip_range", "train.py", "sb3"),
        ("learning_rate", "python -m rl_zoo3.train", "sb3"),
        ("LR NUM_STEPS NUM_ENVS ANNEAL_LR", "", "purejaxrl"),
        ("clip_epsilon rollout_steps", "", "torch_ppo"),
        ("clip_coefficient num_batches", "", "lerax"),
        ("ppo_clip_eps num_steps_epoch", "", "jaxdem"),
        ("hp_config.vf_clip_eps vf_clip_eps", "", "arlbench"),
        ("agent_kwargs num_minibatches", "", "rejax"),
        ("learning_rate gamma", "train.py", "none"),
    ],
)
def test_a_source_is_recognised_by_its_command_or_by_its_names(names, words, name):
    assert recognise(names.split(), words.split())[0].name == name


def test_the_single_file_ppo_has_46_fields():
    assert len(SYSTEMS["torch_ppo"].rows) == 46


def test_same_name_has_a_system_specific_meaning():
    """`num_epochs` is epochs in Lerax and Rejax, updates in JaxDEM; `batch_size` is no batch."""
    assert SYSTEMS["lerax"].find("num_epochs").target == "update_epochs"
    assert SYSTEMS["jaxdem"].find("num_epochs").target == "env_steps"
    assert SYSTEMS["sb3"].find("batch_size").target == "minibatch_size"
    assert SYSTEMS["cleanrl"].find("batch_size").fate == "left out"
    assert SYSTEMS["jaxdem"].find("clip_range").fate == "left out"  # of actions
    assert COMMON.find("clip_range").target == "clip_eps"


@pytest.mark.parametrize(
    ("given", "widths"),
    [
        ([64, 64], [64, 64]),
        ({"pi": [256], "vf": [256]}, [256]),
        ([{"pi": [8], "vf": [8]}], [8]),
        ("dict(pi=[], vf=[])", []),
    ],
)
def test_net_arch_is_one_list_of_widths(given, widths):
    assert widths_of(given) == widths


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"pi": [64], "vf": [128]}, "differ"),
        ([128, {"pi": [64], "vf": [64]}], "hpo shares all layers"),
        ("open('x')", "cannot be read"),
        ({"pi": [64], "xy": [64]}, "not a pair of towers"),
    ],
)
def test_unsupported_net_arch_is_refused(given, told):
    with pytest.raises(NoCounterpart, match=told):
        widths_of(given)


def test_mappings_may_be_written_as_python():
    assert mapping_of("dict(a=1)") == {"a": 1} == mapping_of({"a": 1})
    assert mapping_of(None) == {}
    with pytest.raises(NoCounterpart, match="not a mapping"):
        mapping_of("[1]")


def _of(system, name, value):
    return SYSTEMS[system].find(name).values.of(value)


def test_values_with_different_semantics_are_converted():
    assert _of("cleanrl", "target_kl", 0.03) == pytest.approx(0.02)  # stops at 1 x, not at 1.5 x
    assert _of("sb3", "vf_coef", 0.5) == 1.0  # on (V - R)^2, not on its half
    linear = SettingsRow(learning_rate=1e-3, lr_schedule="linear", lr_end_fraction=0.0)
    assert _of("sb3", "learning_rate", "lin_0.001") == linear
    assert _of("sb3", "learning_rate", 3e-4) == 3e-4
    assert _of("sb3", "clip_range", "lin_0.2") == SettingsRow(
        clip_eps=0.2, clip_eps_schedule="linear", clip_eps_end_fraction=0.0
    )
    assert _of("sb3", "clip_range_vf", -1) is None and _of("sb3", "clip_range_vf", 0.1) == 0.1
    assert _of("purejaxrl", "ACTIVATION", "swish") == "tanh"  # whatever is not relu is
    assert _of("torch_ppo", "squash_actions", True) == SettingsRow(distribution="tanh_gaussian")
    assert _of("torch_ppo", "lr_schedule", "warmup_cosine") == SettingsRow(
        lr_schedule="warmup_cosine",
        lr_end_fraction=0.0,
        lr_warmup_fraction=0.1,
        lr_warmup_start_fraction=0.0,
    )
    for bad in ("exp_0.1", "lin_x"):
        with pytest.raises(NoCounterpart, match="not a schedule"):
            _of("sb3", "learning_rate", bad)


def test_normalize_is_vecnormalize():
    both = SettingsRow(
        normalise_observations=True,
        observation_clip=10.0,
        normalise_rewards=True,
        reward_clip=10.0,
    )
    assert _of("sb3", "normalize", True) == both
    assert _of("sb3", "normalize", "{'norm_obs': False, 'norm_reward': True}") == SettingsRow(
        normalise_observations=False, normalise_rewards=True, reward_clip=10.0
    )
    assert _of("sb3", "normalize", {"clip_obs": 5}) == both | {"observation_clip": 5.0}
    with pytest.raises(NoCounterpart, match="norm_obs_keys"):
        _of("sb3", "normalize", {"norm_obs_keys": ["a"]})
    assert _of("sb3", "normalize", {"gamma": 0.9}) == both  # the import names it where it differs


def test_policy_kwargs_are_read_one_by_one():
    text = (
        "dict(log_std_init=-2, ortho_init=False, activation_fn=nn.ReLU, "
        "net_arch=dict(pi=[256, 256], vf=[256, 256]))"
    )
    assert _of("sb3", "policy_kwargs", text) == SettingsRow(
        log_std_init=-2,
        initialisation="lecun",
        hidden_gain=0.57735,
        policy_gain=0.57735,
        value_gain=0.57735,
        activation="relu",
        hidden_sizes=[256, 256],
    )
    for bad, told in (
        ("dict(features_extractor_class=Mine)", "features_extractor_class"),
        ("dict(enable_critic_lstm=False)", "enable_critic_lstm"),
        ("dict(optimizer_class=th.optim.RMSprop)", "RMSprop"),
    ):
        with pytest.raises(NoCounterpart, match=told):
            _of("sb3", "policy_kwargs", bad)


def test_words_and_mappings_in_program_syntax_are_read():
    assert [read_word(word) for word in ("True", "1e6", "cosine", "[64, 64]", "[64")] == [
        True,
        1_000_000,
        "cosine",
        [64, 64],
        "[64",
    ]
    assert file_name("my sweep/2", "x") == "my-sweep-2" and file_name("???", "sweep") == "sweep"
    assert times(2.0).of(0.5) == 1.0 and times(2.0).of(None) is None
    assert mapping_of("dict(norm_obs=False)") == {"norm_obs": False} and mapping_of(None) == {}
    assert plain_name("TOTAL-Timesteps") == "total_timesteps"
    assert plain_name("config.env_id") == "env_id"
    command = ["python", "cleanrl/sac_atari.py", "--exp-name", "dqn"]
    assert another_algorithm(command) == "sac_atari.py uses SAC, which is not available in a study"
