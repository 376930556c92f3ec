"""What somebody may change in a bundle, with all checksums made again, is refused or named."""

import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from helpers.bundles import packed, trap, verified
from helpers.loading import script_module
from helpers.recorded_study import EPISODES, SEEDS, change_journal, write_study
from hpo.cli import main
from hpo.errors import StoreError
from hpo.views.bundle import container
from hpo.views.bundle.write import portable_report

POLICY = "policies/trial_5"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    write_study(folder, code=trap(folder / "ran"))
    yield folder
    assert not (folder / "ran").exists()


def bundled(source, path, study="recorded"):
    words = ["bundle", str(source / "results" / study), "--source", str(source), "-o", str(path)]
    assert main(words) == 0
    return path


@pytest.fixture(scope="module")
def whole(source, tmp_path_factory):
    """Name -> content of the members of an honest bundle."""
    folder = tmp_path_factory.mktemp("members")
    names = container.unpack(bundled(source, folder / "b.zip"), folder / "all")
    return {name: (folder / "all" / name).read_bytes() for name in names}


def json_in(members, name, change):
    data = json.loads(members[name])
    change(data)
    members[name] = f"{json.dumps(data, indent=1)}\n".encode()


def claims(change):
    return lambda members: json_in(members, "claims.json", change)


def added(name, data=b"1"):
    return lambda members: members.update({name: data})


def removed(beginning):
    def change(members):
        for name in [one for one in members if one.startswith(beginning)]:
            del members[name]

    return change


def about(**values):
    def change(members):
        json_in(members, f"{POLICY}/policy.json", lambda data: data["about"].update(values))

    return change


EVIL = trap("/nowhere/ran").encode()
REFUSED = {
    # name: change, what the refusal says
    "a file": (added("extra.txt"), "extra.txt does not belong in a bundle"),
    "a page": (
        added("report.html", b"<script>"),
        "report.html: differs from the journal's report",
    ),
    "a table": (added("other.parquet"), "other.parquet does not belong in a bundle"),
    "baselines": (
        lambda members: members.update({"baselines.parquet": members["trials.parquet"]}),
        "baselines.parquet: the journal has no such rows",
    ),
    "a log of SQLite": (added("journal.sqlite-wal"), "journal.sqlite-wal does not belong"),
    "a hot journal": (added("journal.sqlite-journal"), "journal.sqlite-journal does not belong"),
    "a library's name": (added("numpy/numpy.py", EVIL), "numpy/numpy.py does not belong"),
    "a folder": (added("rounds/x.sqlite"), "rounds/x.sqlite does not belong"),
    "other code for NumPy": (
        added("numpy/forward.py", EVIL),
        "numpy/forward.py: differs from the file of this version of hpo",
    ),
    "a policy for NumPy": (added("numpy/policy.json", b"{}"), "numpy/forward.py: is missing"),
    "a compiled module": (added("source/x.so"), "source/x.so: is not used by the study"),
    "bytecode": (
        added("source/__pycache__/my_code.cpython-311.pyc"),
        "my_code.cpython-311.pyc: is not used by the study",
    ),
    "code of the study": (
        added("source/my_code.py", EVIL),
        "source/my_code.py: differs from the file that the study ran with",
    ),
    "no code of the study": (removed("source/"), "source/my_code.py: is missing"),
    "code of the policy": (
        added(f"{POLICY}/imports/my_code.py", EVIL),
        f"{POLICY}/imports/my_code.py: differs from the file that the study ran with",
    ),
    "more code of the policy": (
        added(f"{POLICY}/imports/evil.py", EVIL),
        f"{POLICY}/imports/evil.py: is not used by the study or its policy",
    ),
    "an array": (
        added(f"{POLICY}/arrays/d", bytes(10)),
        f"{POLICY}/arrays/d: differs from the file that the study ran with",
    ),
    "no sums of arrays": (removed(f"{POLICY}/arrays/SHA"), "arrays/SHA256SUMS of the policy"),
    "another policy": (added("policies/trial_4/policy.json"), "does not belong in a bundle"),
    "the policy's value": (about(value=500.0), "claims the value 500.0, but the rows give"),
    "the policy's trial": (about(trial=4), "claims to be from recorded, trial 4"),
    "the policy's seed": (about(replicate=30), "an evaluation that the journal does not have"),
    "a training": (added(f"{POLICY}/training.json", b"{}"), "training.json is damaged"),
    "a policy as text": (added(f"{POLICY}/policy.json", b"[]"), "policy.json is damaged"),
    "the study beside": (
        added("study.resolved.yaml", b"name: other\n"),
        "study.resolved.yaml: differs from the study in the journal",
    ),
    "the study beside, named": (
        claims(lambda data: data["ran_with"].update(study=False)),
        "ran_with.study: claimed False, but the rows give None",
    ),
    "a claim dropped": (
        claims(lambda data: data["claims"].pop()),
        "claims: 2 claimed, but the rows",
    ),
    "a claim twice": (
        claims(lambda data: data["claims"].append(data["claims"][0])),
        "claims: 4 claimed, but the rows give 3",
    ),
    "a verdict": (
        claims(lambda data: data["conclusion"].update(verdict="ceiling")),
        "conclusion.verdict: claimed 'ceiling', but the rows give 'undecided'",
    ),
    "what a claim rests on": (
        claims(lambda data: data["claims"][1]["rests_on"].pop()),
        "claims[1].rests_on: 1 claimed, but the rows give 2",
    ),
    "a unit": (
        claims(lambda data: data["claims"][-1]["numbers"].update(unit="epochs")),
        "numbers.unit: claimed 'epochs'",
    ),
    "a note": (claims(lambda data: data.update(note="better")), "note: claimed 'better'"),
    "a version": (
        claims(lambda data: data["ran_with"]["versions"].update(jax="9")),
        "ran_with.versions.jax: claimed '9'",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_tampered_bundle_error_names_the_change(whole, tmp_path, capsys, kind):
    change, words = REFUSED[kind]
    members = dict(whole)
    change(members)
    code, said = verified(packed(members, tmp_path / "b.zip"), capsys)
    assert code in (1, 2) and words in said.out + said.err, said
    assert "Trial 5 is" not in said.out + said.err  # no claim is printed


UNREAD = {
    # name: change, what the level says instead of refusing it
    "study.yaml": (added("study.yaml", b"!!python/object/apply:os.system ['x']"), "study.yaml"),
    "packages": (
        lambda members: json_in(members, "lock.json", lambda data: data["packages"].clear()),
        "lock.json",
    ),
    "code of hpo": (
        lambda members: json_in(members, "lock.json", lambda data: data["code"].clear()),
        "lock.json names a version with different code (hpo 0.1.0)",
    ),
    "no policy": (removed("policies/"), "it has no policy"),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_verify_lists_unchecked_changes(whole, tmp_path, capsys, kind):
    change, words = UNREAD[kind]
    members = dict(whole)
    change(members)
    code, said = verified(packed(members, tmp_path / "b.zip"), capsys)
    level = said.out[said.out.index("consistent") : said.out.index("playable")]
    assert code == 0 and words in level, said


def test_claims_worded_by_another_version_are_shown_next_to_ours(whole, tmp_path, capsys):
    """A later version may word a claim differently; its numbers are compared all the same."""
    members = dict(whole)
    json_in(members, "lock.json", lambda data: data.update(hpo="9.9"))
    text = "Trial 5 wins by far."
    json_in(members, "claims.json", lambda data: data["claims"][1].update(sentences=[text]))
    code, said = verified(packed(members, tmp_path / "a.zip"), capsys)
    assert code == 0 and f"claims[1].sentences: written ['{text}']" in said.out
    assert "different code (hpo 9.9)" in said.out
    assert "  Trial 5 has a significantly better" in said.out  # what the rows give, in our words
    json_in(members, "claims.json", lambda data: data["claims"][0]["numbers"].update(value=500.0))
    code, said = verified(packed(members, tmp_path / "b.zip"), capsys)
    assert code == 1 and "claims[0].numbers.value: claimed 500.0" in said.out
    assert "verify it with hpo 9.9" in said.out


def row_of(folder, trial):
    with closing(sqlite3.connect(folder / "journal.sqlite")) as journal:
        row = journal.execute("SELECT row FROM trials WHERE trial = ?", (trial,))
        return json.loads(row.fetchone()[0])


def forged_row(folder, trial, **values):
    text = json.dumps({**row_of(folder, trial), **values})
    change_journal(folder, ("UPDATE trials SET row = ? WHERE trial = ?", text, trial))


def forged_returns(folder, trial, value):
    """Make all returns on test seeds up, and the values that follow from them."""
    returns = np.full(EPISODES, value).tobytes()
    sql = "UPDATE evaluations SET returns = ? WHERE trial = ? AND stream = 'report'"
    change_journal(folder, (sql, returns, trial))
    forged_row(folder, trial, report_values=[value] * SEEDS["report"])


def forged_meta(folder, key, value):
    change_journal(folder, ("UPDATE meta SET value = ? WHERE key = ?", json.dumps(value), key))


JOURNALS = {
    # name: change of the journal, what the refusal of the bundle says that is made from it
    "test values": (
        lambda folder: forged_row(folder, 5, report_values=[500.0] * 8),
        "trial 5's test values differ from its evaluations",
    ),
    "selection values": (
        lambda folder: forged_row(folder, 5, choose_values=[500.0] * 4),
        "trial 5's selection values differ from its evaluations",
    ),
    "a search value": (
        lambda folder: forged_row(folder, 3, value=500.0),
        "trial 3's search values differ from its evaluations",
    ),
    "seeds that diverged": (
        lambda folder: forged_row(
            folder, 0, report_values=row_of(folder, 0)["report_values"][1:], report_diverged=[0]
        ),
        "trial 0's test values differ from its evaluations",
    ),
    "a return above the ceiling": (
        lambda folder: forged_returns(folder, 5, 501.0),
        "test seed 0 of trial 5 has 501, which is impossible in the environment",
    ),
    "the goal": (
        lambda folder: forged_meta(folder, "goal", "minimize"),
        "goal is 'minimize', but 'maximize' in the study",
    ),
    "a default of one's own": (
        lambda folder: forged_row(folder, 0, params={"learning_rate": 1e-4}),
        "trial 0 is not the study's default",
    ),
}


@pytest.mark.parametrize("kind", JOURNALS)
def test_a_journal_that_contradicts_itself_is_refused(source, tmp_path, capsys, kind):
    """As written with right checksums by somebody who makes all the rest from it."""
    shutil.copytree(source, tmp_path / "own")
    change, words = JOURNALS[kind]
    change(tmp_path / "own" / "results" / "recorded")
    code, said = verified(bundled(tmp_path / "own", tmp_path / "b.zip"), capsys)
    assert code == 1 and words in said.out, said


def test_verify_reports_missing_test_seeds(source, tmp_path, capsys):
    shutil.copytree(source, tmp_path / "own")
    folder = tmp_path / "own" / "results" / "recorded"
    fewer = "DELETE FROM evaluations WHERE stream = 'report' AND replicate > 5"
    for trial in (0, 5):
        values = row_of(folder, trial)["report_values"]
        forged_row(folder, trial, report_values=values[:6])
    change_journal(folder, (fewer,))
    code, said = verified(bundled(tmp_path / "own", tmp_path / "b.zip"), capsys)
    assert code == 0 and "6 of the 8 test seeds requested by its study" in said.out, said


def test_fabricated_rows_are_reported_as_claimed_only(source, tmp_path, capsys):
    """No level below --retrain can know; so none of the sentences stands there as checked."""
    better = tmp_path / "better"
    write_study(better, level=70.0, code=(source / "my_code.py").read_text())
    code, said = verified(bundled(better, tmp_path / "b.zip"), capsys)
    assert code == 0
    levels, _, rest = said.out.partition("\nClaimed, not retrained:\n")
    assert "Trial 5 has a significantly better mean episode return than the default" in rest
    assert "Trial 5 has" not in levels.split("intact")[1]  # after what `hpo bundle` prints
    assert "whether the rows are genuine (--retrain)" in levels
    assert main(["verify", str(tmp_path / "b.zip"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["retrained"] for one in found["claims"]] == [None] * len(found["claims"])


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", ".x", "a b", "x.."])
def test_study_name_with_path_traversal_is_refused(source, whole, tmp_path, capsys, name):
    members = dict(whole)
    for one in (tmp_path / "all", tmp_path / "results"):
        one.mkdir()
    for member in ("journal.sqlite", "study.resolved.yaml"):
        (tmp_path / "all" / member).write_bytes(members[member])
    text = members["study.resolved.yaml"].decode().replace("name: recorded", f"name: {name}")
    forged_meta(tmp_path / "all", "name", name)
    forged_meta(tmp_path / "all", "study_text", text)
    members["journal.sqlite"] = (tmp_path / "all" / "journal.sqlite").read_bytes()
    members["study.resolved.yaml"] = text.encode()
    json_in(members, "claims.json", lambda data: data.update(study=name))
    about(study=name)(members)
    for member, data in members.items():
        (tmp_path / "all" / member).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "all" / member).write_bytes(data)
    if name == "x..":  # the others are refused before the report is compared
        members["report.html"] = portable_report(tmp_path / "all").encode()
    path = packed(members, tmp_path / "b.zip")
    code, said = verified(path, capsys)
    before = sorted(tmp_path.rglob("*"))
    assert (code == 2 and "name is" in said.err) or name == "x.."
    with pytest.raises(StoreError, match=r"name is|is not a valid study name"):
        script_module("tuned_parts.main")._unpacked(path, tmp_path / "results")
    assert sorted(tmp_path.rglob("*")) == before


def test_seeds_is_an_option_of_retrain(whole, tmp_path, capsys):
    code, said = verified(packed(whole, tmp_path / "b.zip"), capsys, "--seeds", "2")
    assert code == 2 and "add --retrain" in said.err
