"""Studies of optical networks: every mistake has its line, before anything is compiled."""

import json
import re
import sys
from pathlib import Path

import pytest

import hpo
from hpo.errors import StudyError
from hpo.studies.check import check
from hpo.studies.env_section import read_env_file
from hpo.studies.load import load, loads
from hpo.studies.programs import buckets_of
from hpo.studies.schema import schema

STUDY = """\
name: small
env: {id: rmsa, topology: ring4, k: 2, slots: 20}
env_steps: 100k
space:
  learning_rate: {min: 1e-5, max: 1e-2}
  env.load: {min: 2, max: 30, distribution: uniform}
  env.aggregate_slots: {values: [5, 10]}
  env.bitrates: {values: [[25, 50], [100]]}
enqueue: [{env.aggregate_slots: 5, env.bitrates: [100]}]
metric: {name: eval/service_blocking_probability, goal: minimize}
evaluation: {steps: 500, episodes: 2}
"""


def mistake(old, new, source="."):
    assert old in STUDY
    with pytest.raises(StudyError) as raised:
        loads(STUDY.replace(old, new), "s.yaml", source)
    return str(raised.value)


def test_searched_static_network_keys_give_separate_programs():
    study = loads(STUDY)
    statics = [bucket.static for bucket in buckets_of(study).found]
    assert len(statics) == 4
    assert {"env.aggregate_slots": 10, "env.bitrates": (100,)} in statics
    assert check(study).bucket_count == 4
    assert study.enqueue[0]["env.bitrates"] == (100,)


def test_default_baselines_are_used_unless_given():
    assert loads(STUDY).baselines == ("ksp_ff", "ff_ksp")
    assert loads(STUDY + "baselines: [kme_ff]\n").baselines == ("kme_ff",)
    named = loads(STUDY + "baselines: [ksp_bf@10, 'ksp_bf@10:hops']\n")
    assert named.baselines == ("ksp_bf@10", "ksp_bf@10:hops")
    assert loads(STUDY + "baselines: []\n").baselines == ()
    pole = "env: CartPole-v1\nenv_steps: 100k\nspace: {learning_rate: {min: 1e-5, max: 1e-2}}\n"
    assert loads(pole).baselines == ()
    with pytest.raises(StudyError, match="need an optical network as env"):
        loads(pole + "baselines: [ksp_ff]\n")


def test_settings_and_heuristics_list_the_same_names():
    from hpo.core.envs.optical.heuristics import HEURISTICS
    from hpo.core.envs.optical.optical_settings import HEURISTIC_NAMES

    assert tuple(HEURISTICS) == HEURISTIC_NAMES


def test_schema_accepts_optical_study():
    from jsonschema import Draft202012Validator

    from hpo.studies.yaml_io import plain, read_text

    Draft202012Validator(schema()).validate(plain(read_text(STUDY, "s.yaml")))


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("slots: 20", "load: -5", 2, "env.load is -5; allowed: a number above 0"),
        ("min: 2,", "min: 0,", 6, "env.load is 0"),
        (
            "min: 2, max: 30, distribution: uniform",
            "values: [5, -1]",
            6,
            "-1; allowed: a number above 0",
        ),
        ("topology: ring4", "topology: nsfnet", 2, "did you mean nsfnet_deeprmsa or nsfnet_"),
        ("topology: ring4", "topology: ring5", 2, "unknown topology 'ring5'"),
        ("slots: 20", "link_resources: 20", 2, "here it is called 'slots'"),
        ("env.load", "env.traffic_intensity", 6, "here it is called 'env.load'"),
        ("env.load", "env.laod", 6, "did you mean 'env.load'?"),
        ("[5, 10]", "[5, 40]", 7, "aggregate_slots is 40; it must be at most slots (20)"),
        ("values: [5, 10]", "min: 5, max: 10", 7, "list the `values`"),
        ("[5, 10]", "[5, 0]", 7, "a whole number of at least 1"),
        ("k: 2", "k: 0", 2, "env.k is 0; allowed: a whole number from 1 to 1000"),
        ("k: 2", "k: 1000000", 2, "env.k is 1000000; allowed: a whole number from 1 to 1000"),
        ("slots: 20", "slots: .inf", 2, "env.slots is inf; allowed: a whole number from 1 to"),
        ("slots: 20", "slots: .nan", 2, "env.slots is nan; allowed: a whole number from 1 to"),
        ("slots: 20", "max_requests: 100G", 2, "a whole number of at least 1 that fits an int32"),
        ("id: rmsa", "id: deeprmsa", 7, "deeprmsa chooses a path"),
        ("slots: 20", "requests: none.csv", 2, "does not exist"),
        ("slots: 20", "modulation: qam", 2, "unknown modulation table 'qam'"),
        ("slots: 20", "observation: fat", 2, "allowed: flat, packed"),
        ("steps: 500, ", "", 11, "set evaluation: {steps: 5000}"),
        ("metric:", "eval_env: {slots: 30}\nmetric:", 10, "the policy needs"),
        ("metric:", "eval_env: {modulation: x.csv}\nmetric:", 10, "eval_env: modulation file"),
        ("metric:", "baselines: [ksp_f]\nmetric:", 10, "did you mean 'ksp_ff'?"),
        ("metric:", "baselines: [ksp_ff, ksp_ff]\nmetric:", 10, "listed twice"),
        (
            "metric:",
            "baselines: [ksp_bf@x]\nmetric:",
            10,
            "whole number from 1 to 1000; for example: ksp_",
        ),
        ("metric:", "baselines: [ksp_bf@0]\nmetric:", 10, "whole number from 1 to 1000"),
        ("metric:", "baselines: ['ksp_bf@5:hop']\nmetric:", 10, "did you mean 'hops'?"),
        ("metric:", "baselines: [3]\nmetric:", 10, "allowed: a heuristic such as ksp_bf@10"),
        ("metric:", "baselines: ksp_ff\nmetric:", 10, "allowed: a list"),
        ("service_blocking_p", "blocking_p", 10, "eval/service_blocking_probability"),
        ("service_blocking_probability", "path_0_share", 10, "histograms: true"),
    ],
)
def test_optical_mistakes_are_reported_with_line(old, new, line, words):
    text = mistake(old, new)
    assert words in text
    assert text.startswith(f"s.yaml:{line}: ")


def test_files_are_relative_to_the_study(tmp_path):
    header = "source,destination,bitrate,arrival,holding\n"
    (tmp_path / "late.csv").write_text(header + "0,1,50,2.0,1\n0,1,50,1.0,1\n")
    assert "sort the list by arrival" in mistake("slots: 20", "requests: late.csv", tmp_path)
    (tmp_path / "fine.csv").write_text(header + "0,1,50,1.0,1\n0,1,50,2.0,1\n")
    text = STUDY.replace("slots: 20", "requests: fine.csv").replace("steps: 500, ", "")
    assert loads(text, "s.yaml", tmp_path).env.values["requests"] == "fine.csv"
    nodes, links = [{"id": 0}, {"id": 1}, {"id": 2}], [{"source": 0, "target": 1, "length": 5}]
    (tmp_path / "net.json").write_text(json.dumps({"nodes": nodes, "links": links}))
    found = mistake("topology: ring4", "topology: net.json", tmp_path)
    assert "s.yaml:2" in found
    assert "not connected" in found


def test_loading_needs_no_jax():
    import subprocess

    code = (
        "import sys; from hpo.studies.load import loads; "
        f"loads({STUDY!r}); sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["deeprmsa", "nsfnet_rmsa"])
def test_shipped_optical_studies_load_without_warnings(name):
    study = load(Path(hpo.__file__).parent / "studies" / f"{name}.yaml")
    assert study.metric.name == "eval/service_blocking_probability"
    assert study.env.values["load"] == 250
    assert not [w for w in check(study).warnings if "one seed per trial" not in w]


def test_an_environment_is_read_from_its_own_file_or_from_a_study(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(STUDY.replace("metric:", "eval_env: {guardband: 0}\nmetric:"))
    found = read_env_file(path, ["slots=30", "load=7"])
    assert found.spec.values["slots"] == 30
    assert found.spec.values["guardband"] == 0
    assert (found.spec.id, found.spec.values["load"]) == ("rmsa", 7.0)
    path.write_text("id: rsa\nk: 2\ntopology: ring4\n")
    assert read_env_file(path).spec.values == {"k": 2, "topology": "ring4"}
    for text, words in [
        ("id: rsaa", "did you mean 'rsa'?"),
        ("id: rsa\nguardbnd: 1", "did you mean 'guardband'?"),
        ("id: rsa\nslots: 5\naggregate_slots: 9", "at most slots (5)"),
        ("k: 5", "env needs `id`"),
        ("7", "env is 7; allowed: an id"),
    ]:
        path.write_text(text)
        with pytest.raises(StudyError, match=re.escape(words)):
            read_env_file(path)
