"""Bundles travel, name what changed, refuse what is not theirs, and run none of its code."""

import json
import random
import re
import subprocess
import sys
import zipfile
from hashlib import sha256

import numpy as np
import pytest

from helpers import search_samples as search
from helpers import view_samples as samples
from helpers.bundles import edited, packed, trap, verified
from helpers.recorded_study import EPISODES, SEEDS, STUDY, write_study
from hpo.cli import main
from hpo.environments.registry import Reference
from hpo.errors import HpoError, StoreError
from hpo.search.analysis.verdict import conclusion_of
from hpo.search.lanes.multi_environment import SeveralFactory
from hpo.search.run import run
from hpo.store.journal import Journal
from hpo.store.query import query
from hpo.store.study_folder import StudyFolder, read_leaderboard
from hpo.studies.env_spec import EnvSpec
from hpo.studies.execution_spec import Budget
from hpo.studies.load import recorded
from hpo.studies.search_spec import Evaluation
from hpo.views.bundle import container
from hpo.views.bundle.claims import claims_of, differences

pytestmark = pytest.mark.slow

MUTANTS = 40  # the acceptance point results 2 makes 200
CLAIMED = ("claims.json", "study.resolved.yaml", "source/my_code.py", "journal.sqlite")
PIECES = [b"", b"9", b"}", b"null", b"\xff", b'"']


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The folder of a study file, whose code is a trap, and of its results."""
    folder = tmp_path_factory.mktemp("source")
    write_study(folder, code=trap(folder / "ran"))
    yield folder
    assert not (folder / "ran").exists()


@pytest.fixture(scope="module")
def study(source):
    return source / "results" / "recorded"


@pytest.fixture(scope="module")
def bundle(source, study, tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "recorded.zip"
    assert main(["bundle", str(study), "--source", str(source), "-o", str(path)]) == 0
    return path


@pytest.fixture
def members(bundle, tmp_path):
    """Name -> content of the bundle's members, in order."""
    names = container.unpack(bundle, tmp_path / "members")
    return {name: (tmp_path / "members" / name).read_bytes() for name in names}


# ---------------------------------------------------------------------- what travels


def test_a_bundle_verifies_anywhere_without_jax(bundle, tmp_path):
    moved = tmp_path / "else where" / "renamed.zip"
    moved.parent.mkdir()
    moved.write_bytes(bundle.read_bytes())
    lines = ["import sys", "from hpo.cli import main", f"code = main(['verify', {str(moved)!r}])"]
    heavy = {"jax", "flax", "optax", "orbax", "optuna", "gymnax", "ConfigSpace", "networkx"}
    lines.append(f"assert not {heavy!r} & sys.modules.keys(); sys.exit(code)")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "intact      yes" in done.stdout and "consistent  yes" in done.stdout
    assert "--retrain starts jax and trains" in done.stdout  # says what it would cost
    assert sha256(moved.read_bytes()).hexdigest() in done.stdout


def test_a_level_that_cannot_run_is_not_offered(tmp_path, capsys):
    """Studies on several environments cannot be retrained, whatever it would cost."""
    places = [EnvSpec(name, {}, Reference(0.0, 80.0)) for name in ("CartPole-v1", "Acrobot-v1")]
    several = search.study(
        env=places[0], more_envs=tuple(places[1:]), confirm=search.Confirm(1, 0, 2),
        budget=Budget(trials=4),
    )  # fmt: skip
    lanes = SeveralFactory(several, [search.AnalyticFactory(seed=number) for number in range(2)])
    folder, path = tmp_path / "several", tmp_path / "several.zip"
    run(several, folder, lanes, (), search.quick())
    assert main(["bundle", str(folder), "-o", str(path)]) == 0
    code, said = verified(path, capsys)
    assert code == 0 and "studies on several environments cannot be retrained" in said.out
    assert "--retrain starts" not in said.out


OPENED = """
import sys, tempfile
from pathlib import Path
import hpo
from hpo.cli import main
opened = set()
def hook(event, args):
    if event in ("open", "sqlite3.connect") and isinstance(args[0], str):
        opened.add(args[0].removeprefix("file://"))
sys.addaudithook(hook)
code = main(["verify", sys.argv[1]])
ours = [sys.prefix, sys.base_prefix, *hpo.__path__, str(Path(hpo.__path__[0]).resolve())]
ours += [sys.argv[1], f"{tempfile.gettempdir()}/hpo-verify-", "/dev/", "/proc/", "/sys/"]
ours += ["/etc/", "/usr/share/zoneinfo/"]
tried = str(Path(tempfile.gettempdir()))  # tempfile writes a file there, to see whether it can
print([one for one in sorted(opened) if one.startswith("/") and str(Path(one).parent) != tried
       and not one.startswith(tuple(ours))], file=sys.stderr)
sys.exit(code)
"""


def test_verifying_opens_nothing_outside_its_folder(bundle, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", OPENED, str(bundle)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stderr == "[]\n", done.stderr


def test_bundles_of_the_same_study_are_byte_identical(source, study, bundle, tmp_path):
    words = ["--source", str(source), "-o", str(tmp_path / "again.zip")]
    assert main(["bundle", str(study), *words]) == 0
    assert (tmp_path / "again.zip").read_bytes() == bundle.read_bytes()


def test_unzipped_bundle_is_a_readable_study(bundle, study, tmp_path):
    with zipfile.ZipFile(bundle) as zipped:
        assert zipped.testzip() is None
        zipped.extractall(tmp_path / "recorded")
    entries = read_leaderboard(StudyFolder(study))
    assert read_leaderboard(StudyFolder(tmp_path / "recorded")) == entries
    assert (tmp_path / "recorded" / "study.yaml").read_text() == (study / "study.yaml").read_text()


def test_bundle_claims_match_top_and_their_sql(study, members):
    with Journal(study) as journal:
        conclusion = conclusion_of(journal)
    best = read_leaderboard(StudyFolder(study))[0]
    found = json.loads(members["claims.json"])
    assert [*conclusion.said] == found["conclusion"]["sentences"]
    value, verdict, cost = found["claims"]
    by = f"difference {abs(conclusion.against.difference):.4g}, 95 % CI ["
    assert by in verdict["sentences"][0] and "8 test seeds" in verdict["sentences"][0]
    assert [one["about"] for one in found["claims"]] == ["value", "verdict", "cost"]
    assert value["rests_on"] == [{"trial": 5, "seeds": "report"}]
    assert verdict["rests_on"] == [*value["rests_on"], {"trial": 0, "seeds": "report"}]
    assert cost["rests_on"] == []
    around = {"low": best.ci_low, "high": best.ci_high}
    assert value["numbers"] == {"value": best.value, "seeds": SEEDS["report"], **around}
    seen = dict(query(study, value["sql"])[1])
    assert {len(episodes) for episodes in seen.values()} == {EPISODES}
    assert np.mean(list(seen.values())) == pytest.approx(best.value)
    pairs = [np.mean(a) - np.mean(b) for _, a, b in query(study, verdict["sql"])[1]]
    assert np.mean(pairs) == pytest.approx(verdict["numbers"]["difference"])
    assert verdict["numbers"]["verdict"] == conclusion.verdict == "undecided"
    assert verdict["numbers"]["unless"] is not None
    assert query(study, cost["sql"])[1] == [tuple(cost["numbers"]["rows"].values())]


def test_unconditional_verdict_is_claimed_in_the_bundle(tmp_path, capsys):
    """Its winner is so far ahead that no unseen failure could turn the difference."""
    study = write_study(tmp_path, level=70.0)
    path = tmp_path / "clear.zip"
    assert main(["bundle", str(study), "--source", str(tmp_path), "-o", str(path)]) == 0
    with Journal(study) as journal:
        against = conclusion_of(journal).against
    names = container.unpack(path, tmp_path / "members")
    assert "claims.json" in names
    _, verdict, _ = json.loads((tmp_path / "members" / "claims.json").read_text())["claims"]
    assert (verdict["numbers"]["verdict"], verdict["numbers"]["unless"]) == ("better", None)
    assert verdict["numbers"]["interval"]["low"] == against.interval.low > 0.0
    better = "Trial 5 has a significantly better mean episode return than the default"
    assert verdict["sentences"][0].startswith(better)
    pairs = [np.mean(a) - np.mean(b) for _, a, b in query(study, verdict["sql"])[1]]
    assert np.mean(pairs) == pytest.approx(against.difference)
    capsys.readouterr()
    code, said = verified(path, capsys)
    assert code == 0 and better in said.out


def test_trial_other_than_the_best_can_be_bundled(source, study, tmp_path, capsys):
    words = ["bundle", str(study), "--source", str(source), "-o", str(tmp_path / "b.zip")]
    assert main([*words[:2], "1", *words[2:]]) == 0
    said = capsys.readouterr().out
    assert "Trial 1 has rank" in said and "no policy of trial 1 was saved" in said
    code, said = verified(tmp_path / "b.zip", capsys)
    assert code == 0 and "no policy for NumPy: no policy" in said.out
    assert main(words) == 2 and "already exists" in capsys.readouterr().err
    words[-1] = str(tmp_path / "c.zip")
    assert main([*words[:2], "999", *words[2:]]) == 2
    assert "has no trial 999" in capsys.readouterr().err
    words[3] = str(tmp_path)
    assert main(words) == 2 and "my_code.py: is gone" in capsys.readouterr().err


KINDS = {
    "no confirm": "confirm: null",
    "a median": "metric: {name: eval/length_median, goal: minimize, aggregate: median}",
}


@pytest.mark.parametrize("kind", KINDS)
def test_bundles_of_other_study_kinds_verify(tmp_path, capsys, kind):
    study = write_study(tmp_path, more=KINDS[kind])
    words = ["bundle", str(study), "--source", str(tmp_path), "-o", str(tmp_path / "b.zip")]
    assert main(words) == 0
    code, said = verified(tmp_path / "b.zip", capsys)
    assert code == 0, said


def test_claimed_search_value_includes_training_returns(tmp_path, capsys):
    study = write_study(tmp_path, more="metric: {training_weight: 0.5}")
    words = ["--source", str(tmp_path), "-o", str(tmp_path / "b.zip")]
    assert main(["bundle", str(study), "1", *words]) == 0
    folder = tmp_path / "members"
    names = container.unpack(tmp_path / "b.zip", folder)
    value = json.loads((folder / "claims.json").read_text())["claims"][0]
    entry = next(one for one in read_leaderboard(StudyFolder(study)) if one.trial == 1)
    assert value["numbers"] == {"value": pytest.approx(entry.search_value), "seeds": 3}
    assert f" with training returns of {entry.value:.4g} on" in value["sentences"][0]
    mixed = [(np.mean(seen) + trained) / 2 for _, seen, trained in query(study, value["sql"])[1]]
    assert np.mean(mixed) == pytest.approx(entry.value)
    code, said = verified(tmp_path / "b.zip", capsys)
    assert code == 0, said
    members = {name: (folder / name).read_bytes() for name in names}

    def flatter(data):
        data["claims"][0]["numbers"]["value"] += 1.0

    code, said = verified(edited(members, tmp_path / "c.zip", "claims.json", flatter), capsys)
    assert code == 1 and "claims[0].numbers.value" in said.out
    assert main(["bundle", str(study), "-o", str(tmp_path / "d.zip"), *words[:2]]) == 0
    said = capsys.readouterr()
    container.unpack(tmp_path / "d.zip", tmp_path / "best")
    best = json.loads((tmp_path / "best" / "claims.json").read_text())["claims"][0]
    assert "training" not in best["sentences"][0] + best["sql"]  # of test seeds


def test_bundle_has_no_verdict_across_different_environments(tmp_path):
    """The winner's searched length is not the default's, so the study has no verdict."""
    length = search.parameter("env.length", 0.5, min=0.1, max=2.0)
    poor = search.parameter("learning_rate", 1e-5, min=1e-5, max=1.0, distribution="log_uniform")
    space = search.Space((poor, search.REAL.parameters[1], length))
    changes = {"space": space, "early_terminate": None, "budget": search.Budget(8)}
    samples.make_results(tmp_path, "apart", **changes)
    found = claims_of(tmp_path / "apart")
    assert found["trial"] != 0 and found["conclusion"]["verdict"] == "nothing"
    assert [claim["about"] for claim in found["claims"]] == ["value", "cost"]
    held = Evaluation(env={"length": 0.5})
    samples.make_results(tmp_path, "held", evaluation=held, **changes)
    assert "verdict" in [claim["about"] for claim in claims_of(tmp_path / "held")["claims"]]


# ---------------------------------------------------------------------- what changed


def test_changed_bundle_byte_is_attributed_to_its_member(tmp_path):
    files = {"bundle.json": b'{"a": 1}', "journal.sqlite": bytes(range(40)), "source/my.py": b"x"}
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    path = tmp_path / "b.zip"
    container.pack({name: tmp_path / name for name in files}, path)
    whole = path.read_bytes()
    owner = [name for name, data in files.items() for _ in range(30 + len(name) + len(data))]
    owner += [name for name in files for _ in range(46 + len(name))]
    owner += [""] * 22
    assert len(owner) == len(whole)
    for at, name in enumerate(owner):
        for bit in (1, 16, 128):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
            with pytest.raises(StoreError) as raised:
                container.unpack(path, tmp_path / f"out-{at}-{bit}")
            assert name in str(raised.value), (at, bit, str(raised.value))


def says_the_same(text, other):
    """Whether two JSON texts differ at most in digits that another NumPy may give."""
    try:
        data = json.loads(text)
        ours = f"{json.dumps(data, indent=1)}\n".encode() == text
        return text == other or (ours and not differences(data, json.loads(other)).wrong)
    except ValueError:  # not JSON
        return text == other


def mutants(whole, members, tmp_path):
    """Yield damaged bundles: bytes, lengths, members, JSON with and without new hashes."""
    rng = random.Random(7)
    names = list(members)
    path = tmp_path / "mutant.zip"
    for number in range(MUTANTS):
        kind, name = number % 8, rng.choice(names[1:])
        changed = dict(members)
        if kind == 0:
            content = bytearray(whole)
            for at in rng.sample(range(len(content)), rng.randint(1, 5)):
                content[at] ^= rng.randint(1, 255)
            path.write_bytes(content)
        elif kind == 1:
            path.write_bytes(whole[: rng.randrange(len(whole))])
        elif kind == 2:
            changed = {(f"{n}x" if n == name else n): data for n, data in members.items()}
        elif kind == 3:
            del changed[name]
        elif kind == 4:
            changed[f"source/more{number}.py"] = trap(tmp_path / "ran").encode()
        else:
            name = rng.choice(["bundle.json", "claims.json"]) if kind < 7 else name
            while says_the_same(changed[name], members[name]):
                text = bytearray(members[name])
                at = rng.randrange(len(text))
                text[at : at + rng.randint(1, 4)] = rng.choice(PIECES)
                changed[name] = bytes(text)
        if kind > 1:
            # half of those that claims rest on have hashes that are right again
            rests = kind == 4 or name in CLAIMED
            packed(changed, path, honest=number % 16 > 7 and rests)
        yield f"{number}: {name}", path


def test_damaged_bundles_are_refused_in_a_sentence(bundle, members, tmp_path, capsys):
    codes = []
    for what, path in mutants(bundle.read_bytes(), members, tmp_path):
        code, said = verified(path, capsys, "--allow-code")
        codes.append(code)
        assert code in (1, 2), what
        assert "Traceback" not in said.out + said.err
        if code == 2:
            assert len(said.err.strip().splitlines()) == 1, (what, said.err)
        else:
            assert "NO" in said.out
    assert len(codes) == MUTANTS and {1, 2} == set(codes)
    assert not (tmp_path / "ran").exists()


# ---------------------------------------------------------------------- what is made up


def test_changed_claim_is_refuted_with_both_numbers(members, tmp_path, capsys):
    real = json.loads(members["claims.json"])["claims"][1]["numbers"]["difference"]

    def flatter(data):
        data["claims"][1]["numbers"]["difference"] = real + 10.0

    path = edited(members, tmp_path / "b.zip", "claims.json", flatter)
    code, said = verified(path, capsys)
    assert code == 1 and "consistent  NO" in said.out
    line = next(line for line in said.out.splitlines() if "difference" in line)
    assert repr(real + 10.0) in line and repr(real) in line


@pytest.mark.parametrize("part", ["sentences", "sql", "estimator"])
def test_changed_claim_text_is_refuted(members, tmp_path, capsys, part):
    def change(data):
        claim = data["claims"][0]
        claim[part] = [f"{claim[part][0]}!"] if part == "sentences" else f"{claim[part]}!"

    code, said = verified(edited(members, tmp_path / "b.zip", "claims.json", change), capsys)
    assert code == 1 and re.search(rf"claims\[0\]\.{part}.*: claimed", said.out)


def test_duplicate_json_key_in_claims_is_refused(members, tmp_path, capsys):
    text = members["claims.json"].replace(b'"sql": "', b'"sql": "x", "sql": "', 1)
    assert text != members["claims.json"]
    code, said = verified(packed({**members, "claims.json": text}, tmp_path / "b.zip"), capsys)
    assert code == 1 and "the JSON was not written by hpo" in said.out


def test_consistently_changed_rows_and_claims_are_detected(
    source, study, members, tmp_path, capsys
):
    better = write_study(tmp_path / "better", level=30.0, code=(source / "my_code.py").read_text())
    words = ["--source", str(tmp_path / "better"), "-o", str(tmp_path / "better.zip")]
    assert main(["bundle", str(better), *words]) == 0
    container.unpack(tmp_path / "better.zip", tmp_path / "flattered")
    for name in ("evaluations.parquet", "trials.parquet", "claims.json"):
        members[name] = (tmp_path / "flattered" / name).read_bytes()
    code, said = verified(packed(members, tmp_path / "b.zip"), capsys)
    assert code == 1
    assert "trials.parquet: 5 rows not in the journal" in said.out
    assert "evaluations.parquet" in said.out and "conclusion.against.means" in said.out


def test_replaced_code_and_study_are_detected_and_not_run(members, tmp_path, capsys):
    members["source/my_code.py"] = trap(tmp_path / "ran").encode()
    members["study.resolved.yaml"] += b"# more\n"
    code, said = verified(packed(members, tmp_path / "b.zip"), capsys)
    assert code == 1 and not (tmp_path / "ran").exists()
    assert "source/my_code.py: differs from the file that the study ran with" in said.out
    assert "study.resolved.yaml: differs from the study in the journal" in said.out


def zipped(path, entries, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for entry, data in entries:
            archive.writestr(entry, data)
    return path


def link():
    entry = zipfile.ZipInfo("study.yaml", (1980, 1, 1, 0, 0, 0))
    entry.create_system, entry.external_attr = 3, 0o120777 << 16
    return entry


HOSTILE = {
    "leads out": ([("../../outside.txt", b"x")], "is not a plain path"),
    "absolute": ([("/tmp/hpo-outside.txt", b"x")], "is not a plain path"),
    "drive": ([("C:\\outside.txt", b"x")], "is not a plain path"),
    "a bomb": ([("claims.json", bytes(10**8))], "is compressed"),
    "twice": ([("a.json", b"1"), ("A.JSON", b"2")], "two members are named A.JSON"),
    "a file as folder": ([("a", b"1"), ("a/b", b"2")], "two members are named a/b"),
    "a link": ([(link(), b"/etc/passwd")], "study.yaml in its list of members changed"),
    "an empty zip": ([], "is not a bundle"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_zips_are_refused_before_anything_is_written(tmp_path, capsys, kind):
    entries, words = HOSTILE[kind]
    packing = zipfile.ZIP_DEFLATED if kind == "a bomb" else zipfile.ZIP_STORED
    entries = [
        (zipfile.ZipInfo(one, (1980, 1, 1, 0, 0, 0)) if isinstance(one, str) else one, data)
        for one, data in entries
    ]
    for entry, _ in entries:
        entry.compress_type = packing
    path = zipped(tmp_path / "b.zip", entries, packing)
    code, said = verified(path, capsys)
    assert code == 2 and len(said.err.strip().splitlines()) == 1 and words in said.err, said.err
    assert [one.name for one in tmp_path.iterdir()] == ["b.zip"]


def test_non_zip_bundles_are_refused(tmp_path, capsys):
    (tmp_path / "text").write_text("hello")
    for path in (tmp_path, tmp_path / "none.zip", tmp_path / "text"):
        code, said = verified(path, capsys)
        assert code == 2 and len(said.err.strip().splitlines()) == 1, said.err


@pytest.mark.parametrize("word", ["--play", "--retrain"])
def test_bundled_code_is_not_run_without_allow_code(bundle, capsys, monkeypatch, word):
    monkeypatch.setattr("sys.stdin", None)
    code, said = verified(bundle, capsys, word)
    assert code == 2 and "source/my_code.py" in said.err and "--allow-code" in said.err
    assert "starts jax" in said.err.splitlines()[0]  # what it costs comes first


@pytest.mark.parametrize(
    "key", ["algorithm: study/my_code.py:SAC", "space: {file: study/space.yaml}"]
)
def test_forged_study_text_runs_no_local_code(tmp_path, monkeypatch, key):
    """A record is no study file: it has an algorithm with its class, and a space in full."""
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "my_code.py").write_text(trap(tmp_path / "ran"))
    (tmp_path / "study" / "space.yaml").write_text("space: {gamma: {min: 0.9, max: 0.99}}")
    monkeypatch.chdir(tmp_path)
    text = re.sub(f"^{key.partition(':')[0]}:.*\n( .*\n)*", "", STUDY, flags=re.M)
    with pytest.raises(HpoError):
        recorded(f"{text}{key}\n")
    assert not (tmp_path / "ran").exists()


def test_previous_bundle_format_still_verifies(members, tmp_path, capsys):
    """It has no report and no page, and its claims lack keys that were added since."""
    older = {name: data for name, data in members.items() if name not in _ADDED}
    claims = json.loads(older["claims.json"])
    for name in ("environment", "metric", "possible", "best_possible"):
        del claims[name]
    claims["claims"][1]["sentences"] = ["Trial 5 is better than the default."]
    older["claims.json"] = f"{json.dumps(claims, indent=1)}\n".encode()
    lock = {**json.loads(older["lock.json"]), "code": {}}
    older["lock.json"] = f"{json.dumps(lock, indent=1)}\n".encode()
    manifest = {**json.loads(older["bundle.json"]), "format": 2}
    older["bundle.json"] = f"{json.dumps(manifest, indent=1)}\n".encode()
    code, said = verified(packed(older, tmp_path / "old.zip"), capsys)
    assert code == 0, said
    assert "it has no report" in said.out and "claims[1].sentences: written" in said.out


_ADDED = ("report.html", "verify.html")
