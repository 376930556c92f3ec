"""The tables of all systems: what stands in them exists, and stands once."""

import pytest

from hpo.environments.table import ENVIRONMENTS
from hpo.errors import ConfigError
from hpo.foreign_names.name_mapping import (
    COMMON,
    TRANSFORMS,
    UNKNOWN,
    NoCounterpart,
    SettingsRow,
    System,
    taken,
    times,
    words,
)
from hpo.foreign_names.tables import SYSTEMS, find, hints, names_of, recognise
from hpo.foreign_names.xlron_table import OLDER, XLRON
from hpo.knobs import KNOBS, check_name, check_value, hint_of
from hpo.studies.study_keys import LOGGERS, SECTIONS, TOP

ALL = (*SYSTEMS.values(), COMMON)
TOPS = {field.key for field in TOP}
ENV_KEYS = {key for entry in ENVIRONMENTS.values() for key in (*entry.params, *entry.keys)}


def is_a_target(target):
    section, _, key = target.partition(".")
    if target in KNOBS or target in TOPS:
        return True
    if section == "env":
        return key in ENV_KEYS or key == "*"  # a mapping of keys
    if section == "loggers":
        kind, _, option = key.partition(".")
        return kind in LOGGERS and option in ("", *(field.key for field in LOGGERS[kind]))
    return key in {field.key for field in SECTIONS.get(section, ())}


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_every_table_row_has_a_target_or_a_reason(one):
    for row in one.rows:
        assert (row.fate == "taken") == bool(row.target) == (not row.because), row
        if row.fate == "taken":
            assert is_a_target(row.target), row
        if row.values.table:
            for ours in row.values.table.values():
                targets = ours if isinstance(ours, SettingsRow) else ()
                assert all(map(is_a_target, targets)), row


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_table_defaults_pass_the_value_check(one):
    for row in one.rows:
        if row.default is not UNKNOWN and row.target in KNOBS:
            ours = row.values.of(row.default)
            settings = ours if isinstance(ours, SettingsRow) else {row.target: ours}
            for target, value in settings.items():
                check_value(target, value)


def test_xlron_table_lists_all_flags():
    """308 in 1.1.0, and the names of earlier versions that its documents still use."""
    older = {
        *OLDER,
        "ON_POLICY_IAM",
        "max_timesteps",
        "output_nodes_size",
        "output_globals_size",
        "DEFAULT_DEVICE",
    }
    assert len(XLRON.rows) == 308 + len(older)
    assert older <= {row.name for row in XLRON.rows}


def test_flag_names_are_case_sensitive_where_needed():
    assert XLRON.find("GAMMA").target == "gamma" and XLRON.find("gamma").fate == "refused"
    assert XLRON.find("Gamma") is None
    assert COMMON.find("Learning-Rate") is None and COMMON.find("CLIP-COEF").target == "clip_eps"
    assert find("config.env_id").target == "env" and find("env.id").target == "env"


def test_a_system_is_recognised_by_its_command_or_by_its_names():
    assert recognise(["LR"], ["uv", "run", "xlron/train/train.py"])[0] is XLRON
    assert recognise(["env_type", "topology_name", "LR"])[0] is XLRON
    assert recognise(["learning_rate", "gamma"], ["python", "train.py"]) == (COMMON, "")


def test_a_name_appears_once_in_a_table():
    with pytest.raises(ValueError, match="appears twice"):
        System("x", "x", (taken("a-b", "gamma"), taken("A_B", "gamma")))


def test_table_values_are_converted_or_refused():
    assert times(2.0).of(0.25) == 0.5 and times(2.0).bound(0.1) == 0.2
    off = TRANSFORMS["off"]
    assert off.of(0) is None and off.bound(0.0) == 1e-6
    with pytest.raises(NoCounterpart, match="start the range above"):
        off.bound(-1.0)
    table = words({True: "on", "x": NoCounterpart("no x")}, others="rest")
    assert table.of(True) == "on" and table.of(1) == "rest"
    with pytest.raises(NoCounterpart, match="no x"):
        table.of("X")


def test_unknown_names_hint_at_study_keys():
    assert hint_of("total_timesteps") == " in a study it is `env_steps`"
    assert hint_of("use_gnn") == " in a study it is the hyperparameter `network`"
    assert hint_of("wandb_entity") == " in a study it is `loggers: [{type: wandb, entity: ...}]`"
    assert "no counterpart: output" in hint_of("capture_video")
    assert hint_of("nobody") == "" and hints("nobody") == ()
    assert "LR" in names_of("learning_rate")
    with pytest.raises(ConfigError, match=r"is called 'lr_schedule' \(true: lr_schedule linear"):
        check_name("anneal_lr")
    with pytest.raises(ConfigError, match=r"in a study it is `seeds\.per_config`"):
        check_name("NUM_LEARNERS")
