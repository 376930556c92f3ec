"""Defaults that have changed: studies recorded before keep what they were begun with."""

from dataclasses import replace

import pytest

from hpo.errors import StoreError
from hpo.knobs import DEFAULTS_OF_OLD, KNOBS
from hpo.search.checks import check_continues
from hpo.studies.load import loads, of_its_day, recorded
from hpo.studies.resolved import as_recorded, resolved, resolved_yaml
from hpo.studies.study_meta import study_meta
from hpo.studies.yaml_io import read_text

BASE = "name: s\nenv: CartPole-v1\nenv_steps: 40k\nbudget: {trials: 2}\n"
SPACE = "space:\n  gamma: {min: 0.9, max: 0.99, distribution: uniform}\n"


def of_old(text):
    """Return a study's record as it was written when defaults were others."""
    lines = resolved_yaml(loads(text)).splitlines()
    fixed = next(line for line in lines if line.startswith("fixed: "))
    assert fixed == "fixed: {learning_rate: 0.001, normalise_rewards: true}"
    return "\n".join("fixed: {}" if line == fixed else line for line in lines) + "\n"


def test_old_defaults_differ_from_current_defaults():
    assert all(KNOBS[name].default != value for name, value in DEFAULTS_OF_OLD.items())


def test_resolved_study_states_defaults_that_changed():
    study = loads(BASE + "fixed: {learning_rate: 0.02}\n")
    assert resolved(study)["fixed"] == {"learning_rate": 0.02, "normalise_rewards": True}
    searched = BASE + SPACE.replace("gamma", "learning_rate").replace("0.9,", "0.0001,")
    assert resolved(loads(searched))["fixed"] == {"normalise_rewards": True}


def test_old_record_is_read_with_old_defaults():
    config = recorded(of_old(BASE + SPACE)).default()
    assert config["normalise_rewards"] is False and config["reward_clip"] is None
    assert config["learning_rate"] == 3e-4
    assert config["vf_learning_rate"] == pytest.approx(1e-4)
    now = recorded(resolved_yaml(loads(BASE + SPACE))).default()
    assert now["normalise_rewards"] is True and now["learning_rate"] == 1e-3
    assert now["reward_clip"] == 10.0


def test_old_study_does_not_resume_with_new_defaults(tmp_path):
    meta = study_meta(loads(BASE + SPACE), {}, "cpu", 1)
    meta = type(meta)(**{**vars(meta), "study_text": of_old(BASE + SPACE)})
    with pytest.raises(StoreError, match="give False under fixed") as caught:
        check_continues(meta, loads(BASE + SPACE))
    assert "fixed.learning_rate: 0.0003 -> 0.001 (the default has changed" in str(caught.value)
    mended = BASE + SPACE + "fixed: {learning_rate: 3e-4, normalise_rewards: false}\n"
    check_continues(meta, loads(mended))
    assert as_recorded(meta.study_text)["fixed"] == resolved(loads(mended))["fixed"]


FIRST = "{name: eval/return_mean, goal: maximize, aggregate: mean}"
OTHER = "{name: eval/length_mean, goal: minimize, aggregate: mean}"


@pytest.mark.parametrize("then", ["", ", training_weight: 0.0"])  # before 2026-11-27, and then
@pytest.mark.parametrize("text", [f"metric: {FIRST}\n", f"objectives: [{FIRST}, {OTHER}]\n"])
def test_study_without_training_weight_is_resumed(text, then):
    study = loads(BASE + text)
    meta = study_meta(study, {}, "cpu", 1)
    assert "training_weight" not in meta.study_text
    before = meta.study_text.replace("aggregate: mean", f"aggregate: mean{then}")
    check_continues(replace(meta, study_text=before), study)
    weighed = loads(BASE + f"metric: {FIRST[:-1]}, training_weight: 0.5}}\n")
    with pytest.raises(StoreError, match=r"training_weight|objectives"):
        check_continues(replace(meta, study_text=before), weighed)


def without_tiles(text):
    """Return a record as it was written before `population.tiles`."""
    (line,) = (line for line in text.splitlines() if line.startswith("population: "))
    assert ", tiles: auto" in line
    return text.replace(line, line.replace(", tiles: auto", ""))


def test_old_studies_keep_narrow_tiles():
    text = without_tiles(resolved_yaml(loads(BASE + "population: {lanes: 9}\n")))
    assert recorded(text).population.tiles == "narrow"
    assert as_recorded(text)["population"]["tiles"] == "narrow"
    assert recorded(resolved_yaml(loads(BASE))).population.tiles == "auto"


CENTRED = "fixed: {reward_centering: true, average_reward_initial: %s}\n"
SEARCHED = (
    "fixed: {reward_centering: true}\nspace: {average_reward_initial: {values: [%s, 0.5]}}\n"
)


@pytest.mark.parametrize(
    ("section", "text"), [("fixed", CENTRED), ("space", SEARCHED)], ids=["fixed", "searched"]
)
def test_zero_average_reward_initial_keeps_its_old_meaning(section, text):
    """It stood for the average of the first rollout, which is `off` today."""
    zero, off = loads(BASE + text % "0"), loads(BASE + text % "off")
    meta = study_meta(zero, {}, "cpu", 1)
    check_continues(meta, zero)  # a record of today means 0 by it
    old = replace(meta, study_text=without_tiles(meta.study_text))
    narrow = replace(zero, population=replace(zero.population, tiles="narrow"))
    with pytest.raises(StoreError, match=f"set it to off under {section}"):
        check_continues(old, narrow)
    check_continues(old, replace(off, population=narrow.population))


def test_old_record_runs_with_old_meaning_of_zero():
    text = without_tiles(resolved_yaml(loads(BASE + CENTRED % "0")))
    assert recorded(text).default()["average_reward_initial"] is None
    again = loads(text, overrides=of_its_day(read_text(text, "study.resolved.yaml")))
    assert again.default()["average_reward_initial"] is None
    assert (
        recorded(resolved_yaml(loads(BASE + CENTRED % "0"))).default()["average_reward_initial"]
        == 0.0
    )
    uncentred = without_tiles(resolved_yaml(loads(BASE + "fixed: {average_reward_initial: 0}\n")))
    assert as_recorded(uncentred)["fixed"]["average_reward_initial"] == 0.0
