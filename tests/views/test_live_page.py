"""The live page answers what it should, to whom it should, and nothing else."""

import dataclasses
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager
from subprocess import PIPE

import pytest

from helpers import view_samples as samples
from hpo.cli import main
from hpo.search.run import run
from hpo.search.state.progress import Observer
from hpo.store import codec, tables_equal
from hpo.store.journal import Journal
from hpo.store.lock import StudyLock
from hpo.store.rows import Commit
from hpo.store.study_folder import StudyFolder
from hpo.views.charts.snapshot import read_snapshot
from hpo.views.live.library import Library
from hpo.views.live.server import LiveServer, RequestGuard, is_loopback
from hpo.views.live.study_status import ASKED, read_standing
from hpo.views.report.report import PARTS, head_html

SECRET = "nobody may read this"


@contextmanager
def serving(root, host="127.0.0.1", token=None):
    with LiveServer(Library(root), host, 0, token) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server, place, method="GET", **headers):
    """Return (status, headers, text) of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.guard.port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, place, headers=named)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def whole_list(server):
    """Return the list once every study in it has been read."""
    while json.loads(ask(server, "/states")[2])["state"] == "reading":
        pass
    return ask(server, "/list-part")[2]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    top = tmp_path_factory.mktemp("top")
    (top / "secret.txt").write_text(SECRET)
    (top / "journal.sqlite").write_text(SECRET)
    folder = top / "results"
    samples.make_audited(folder)
    samples.make_results(folder)
    (folder / "notes").mkdir()
    shutil.copytree(folder / "small", folder / ".removed")
    return folder


@pytest.fixture(scope="module")
def server(root):
    with serving(root) as found:
        yield found


# ---------------------------------------------------------------------- what is there


def test_live_list_shows_every_study(server):
    assert ask(server, "/")[0] == 200
    text = whole_list(server)
    assert re.findall(r'href="/study/([^"]+)"', text) == ["small", "audited"]
    assert text.count(">finished<") == 2 and "100%" in text


def test_live_page_sections_match_the_report(server, root):
    snapshot = read_snapshot(StudyFolder(root / "audited"))
    page = ask(server, "/study/audited")[2]
    built = {name: build(snapshot) for name, (_, build) in PARTS.items()}
    effects = built.pop("effects")
    for name, body in built.items():
        assert f'<section id="{name}">' in page
        text = ask(server, f"/part/audited/{name}")[2]
        assert text.startswith(body) if name == "importance" else text == body
    assert effects in ask(server, "/part/audited/importance")[2]
    assert ask(server, "/part/audited/head")[2] == head_html(snapshot)
    assert "Finished." in ask(server, "/part/audited/now")[2]
    sections = re.findall('<section id="([a-z]+)">', page)
    assert [name for name in sections if name != "lanes"] == list(built)  # in the report's order
    assert ask(server, "/part/audited/lanes")[2] == ""  # no section of a finished study


def test_slow_sections_are_loaded_only_on_request(server):
    page = ask(server, "/study/audited")[2]
    for name in ASKED:
        assert f'class="piece" data-study="audited" data-part="{name}"' not in page
        assert re.search(rf'<button [^>]*class="ask"[^>]* data-part="{name}"', page)


def test_live_pages_have_no_inline_code_or_external_links(server):
    pages = ["/", "/study/audited", "/list-part"]
    pieces = re.findall(r'data-part="(\w+)"', ask(server, "/study/audited")[2])
    pages += [f"/part/audited/{name}" for name in pieces]
    for place in pages:
        status, headers, text = ask(server, place)
        assert status == 200
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert not re.search(r"<style|\sstyle=|\son\w+=|https?://", text), place
        assert re.findall(r"<script[^>]*>", text) in ([], ['<script src="/live.js">'])
    for place in ("/live.js", "/live.css"):
        text = ask(server, place)[2].replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://", text)


# ---------------------------------------------------------------------- what is not


@pytest.mark.parametrize(
    "place",
    [
        "/study/nobody",
        "/study/notes",
        "/study/.removed",
        "/study/..",
        "/study/%2e%2e",
        "/study/..%2f",
        "/study/%2Ftmp",
        "/study/small%2F..%2F..",
        "/part/small/..%2f..%2fsecret",
        "/part/../head",
        "/part/%2e%2e/study",
        "/part/small/nothing",
        "/state/%2e%2e",
        "/both",
        "/part/small/%2e%2e",
        "/secret.txt",
        "/../secret.txt",
        "/journal.sqlite",
        "//secret.txt",
        "/%00",
        "/study/small%00",
        "/live.js/x",
    ],
)
def test_live_page_prevents_path_traversal(server, place):
    status, _, text = ask(server, place)
    assert status == 404
    assert SECRET not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_live_page_allows_only_get_and_head(server, method):
    status, headers, _ = ask(server, "/study/small", method)
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"


def test_head_is_get_without_its_body(server):
    got, head = ask(server, "/list-part"), ask(server, "/list-part", "HEAD")
    assert (head[0], head[2]) == (200, "")
    assert head[1]["Content-Length"] == got[1]["Content-Length"] == str(len(got[2].encode()))


def test_unchanged_content_returns_304(server):
    tag = ask(server, "/part/audited/history")[1]["ETag"]
    status, headers, text = ask(server, "/part/audited/history", If_None_Match=tag)
    assert (status, text, headers["ETag"]) == (304, "", tag)
    assert ask(server, "/part/small/history", If_None_Match=tag)[0] == 200


@pytest.mark.parametrize(
    "host, status",
    [
        ("127.0.0.1", 200),
        ("localhost:1234", 200),
        ("[::1]:80", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("192.168.1.7", 421),
        ("", 421),
        ("localhost.evil", 421),
    ],
)
def test_foreign_host_header_is_refused(server, host, status):
    """A page elsewhere whose name is made to point here must read nothing (DNS rebinding)."""
    assert ask(server, "/list-part", Host=host)[0] == status


def test_malformed_request_url_is_refused(server):
    with socket.create_connection(("127.0.0.1", server.guard.port), timeout=60) as raw:
        raw.sendall(b"GET http://[ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with raw.makefile() as answer:
            assert answer.readline() == "HTTP/1.1 400 Bad Request\n"
    assert ask(server, "/list-part")[0] == 200


def test_public_server_accepts_its_host_names_and_addresses():
    guard = RequestGuard("0.0.0.0", 80, "t", frozenset({"box", "box.example"}))
    assert guard.knows("10.1.2.3:80") and guard.knows("BOX:80") and guard.knows("box.example")
    assert not guard.knows("evil.example") and not guard.knows(None)
    assert is_loopback("::1") and not is_loopback("box")


# ---------------------------------------------------------------------- the token


def test_requests_without_token_are_forbidden(root):
    with serving(root, token="right") as server:
        for place in ("/", "/study/small", "/part/small/head", "/live.js", "/?token=wrong", "/x"):
            status, _, text = ask(server, place)
            assert status == 403 and "small" not in text
        bad = [
            f"{server.guard.cookie}=wrong",
            f"{server.guard.cookie}=",
            "right",
            "a=right",
            ";,=",
        ]
        for cookie in bad:
            assert ask(server, "/", Cookie=cookie)[0] == 403


def test_token_is_moved_from_url_to_cookie(root):
    with serving(root, token="right") as server:
        assert server.url.endswith("/?token=right")
        status, headers, _ = ask(server, "/states?study=a&token=right&study=b")
        assert (status, headers["Location"]) == (303, "/states?study=a&study=b")
        cookie = headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite" in cookie
        assert ask(server, "/list-part", Cookie=cookie.partition(";")[0])[0] == 200
        for place in ("//evil.example/", "/\\evil.example/", "/\\/evil.example/"):
            assert ask(server, f"{place}?token=right")[1]["Location"] == "/evil.example/"


# ---------------------------------------------------------------------- studies that change


def test_damaged_study_is_reported_without_hiding_others(tmp_path):
    samples.make_results(tmp_path)
    shutil.copytree(tmp_path / "small", tmp_path / "bad")
    (tmp_path / "bad" / "journal.sqlite").write_bytes(b"SQLite format 3\0" + bytes(5000))
    with serving(tmp_path) as server:
        text = whole_list(server)
        assert "cannot be read" in text and "53.07" in text
        assert ask(server, "/study/bad")[0] == 200
        for place in ("/part/bad/now", "/state/bad"):
            status, _, text = ask(server, place)
            assert status == 503 and "is damaged" in text
        shutil.rmtree(tmp_path / "small")
        assert ask(server, "/state/small")[0] == 404


def test_unreadable_folder_is_reported_without_hiding_others(tmp_path, cannot_enter):
    samples.make_results(tmp_path)
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    cannot_enter(tmp_path / "lost+found")
    with serving(tmp_path) as server:
        text = whole_list(server)
        assert "53.07" in text
        assert text.count("loop cannot be read: Too many levels of symbolic links") == 1
        assert text.count("lost+found cannot be read: Permission denied") == 1
        assert ask(server, "/study/small")[0] == 200
        for place in ("/part/loop/now", "/state/lost%2Bfound"):
            status, _, text = ask(server, place)
            assert status == 503 and "cannot be read" in text
        cannot_enter(tmp_path)
        for place in ("/state/small", "/study/small"):
            status, _, text = ask(server, place)
            assert status == 503 and text.endswith("/ cannot be read: Permission denied\n")


def test_folder_names_are_html_escaped(tmp_path):
    samples.make_results(tmp_path)
    (tmp_path / "small").rename(tmp_path / "<b>&'\"x")
    with serving(tmp_path) as server:
        text = whole_list(server)
        assert "<b>" not in text
        [link] = re.findall(r'href="(/study/[^"]+)"', text)
        status, _, page = ask(server, link)
        assert status == 200 and "<b>" not in page


def test_reading_live_pages_does_not_affect_the_study(tmp_path):
    """Pages are read all the time; nothing is held up, and the tables and files are equal."""
    alone = run(samples.study("alone"), tmp_path / "alone", samples.FACTORY, (), often())
    errors, reads, done = [], [], threading.Event()

    def read(server):
        names = ["now", "head", "leaderboard", "lanes", "history", "curves", "slices"]
        while not done.is_set():
            for place in ["/list-part", "/state/watched", *(f"/part/watched/{n}" for n in names)]:
                status, _, text = ask(server, place)
                reads.append(status)
                if status not in (200, 404, 503) or "Error" in text:
                    errors.append((place, status, text[:300]))

    root = tmp_path / "watched"
    with serving(root) as server:
        readers = [threading.Thread(target=read, args=(server,)) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            asked = samples.study("alone")
            watched = run(asked, root / "watched", samples.FACTORY, (), often())
        finally:
            done.set()
            for reader in readers:
                reader.join()
        last = json.loads(ask(server, "/state/watched")[2])
    assert errors == [] and reads.count(200) > 5
    assert last["state"] == "finished"
    assert tables_equal(alone.folder, watched.folder) == []
    left = {path.name for path in watched.folder.iterdir()}
    assert left == {path.name for path in alone.folder.iterdir()}


def often():
    """Settings that commit and publish at every boundary."""
    return samples.search.quick(commit_seconds=0.0, publish_seconds=0.0)


def test_live_page_shows_lanes_of_a_running_study(tmp_path):
    folder = tmp_path / "running"
    with serving(tmp_path) as server:
        seen = []

        class Watching(Observer):
            def on_trial_end(self, trial):
                if not seen and Journal.exists(folder):
                    with Journal(folder) as journal:
                        if journal.head().number:
                            seen.append(ask(server, "/part/running/lanes")[2])
                            seen.append(ask(server, "/part/running/now")[2])

        run(samples.study("running"), folder, samples.FACTORY, [Watching()], often())
    lanes, now = seen
    assert re.search(
        r'<li class="c0" data-t="\d+" title="lane \d+: trial \d+, search seed [01], ', lanes
    )
    assert "of 12 lanes busy" in lanes
    assert "Running." in now and "<dt>phase</dt><dd>search</dd>" in now


def test_live_page_is_never_older_than_the_study(tmp_path):
    """Commits between two looks and during one, another study of that name, and none at all."""
    folder = samples.make_results(tmp_path / "results").folder
    library, rng = Library(tmp_path / "results"), random.Random(0)
    samples.make_results(tmp_path / "other", seed=5)

    def commit():
        with Journal(folder, writable=True) as journal:
            head, rows = journal.head(), journal.trials()
            changed = dataclasses.replace(rng.choice(rows), choose_values=(rng.random(),) * 5)
            journal.commit(Commit(head.number + 1, head.loop_state, None, head.at, [changed]))

    def begin_anew():
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "other" / "small", folder)

    def shown():
        made = library.view("small")
        pieces = {name: made.value.part(name, made.spend) for name in ("head", "leaderboard")}
        return made.value.snapshot.head.number, made.value.snapshot.conclusion, pieces

    def really():
        snapshot = read_snapshot(StudyFolder(folder))
        now = dataclasses.replace(snapshot, standing=read_standing(folder).word)
        board = PARTS["leaderboard"][1](now)
        pieces = {"head": head_html(now), "leaderboard": board}
        return snapshot.head.number, snapshot.conclusion, pieces

    assert shown() == really()
    for step in [commit, commit, begin_anew, commit, commit]:
        step()
        assert shown() == really()
    while_read = threading.Thread(target=lambda: [commit() for _ in range(20)])
    while_read.start()
    while while_read.is_alive():
        shown()
    while_read.join()
    assert shown() == really()
    shutil.rmtree(folder)
    assert library.view("small") is None
    shutil.copytree(tmp_path / "other" / "small", folder)
    assert shown() == really()


def test_live_page_decodes_each_trial_only_once(tmp_path, monkeypatch):
    folder = samples.make_results(tmp_path).folder
    journal = folder / "journal.sqlite"
    os.utime(journal, (1e9, 1e9))  # older than a tick of the clock
    decoded, decode = [], codec.trial_from_text
    monkeypatch.setattr(
        codec, "trial_from_text", lambda text: decoded.append(text) or decode(text)
    )
    with serving(tmp_path) as server:
        for _ in range(2):
            for name in ("head", "now", "leaderboard", "history", "curves", "slices"):
                assert ask(server, f"/part/small/{name}")[0] == 200
    assert len(decoded) == len(set(decoded)) == 24


def test_live_page_shows_a_died_process(tmp_path):
    folder = samples.make_results(tmp_path).folder
    with Journal(folder, writable=True) as journal:
        head = journal.head()
        journal.commit(Commit(head.number + 1, head.loop_state, None, head.at))
    with serving(tmp_path) as server:
        assert json.loads(ask(server, "/state/small")[2])["state"] == "died"
        assert "The process died" in ask(server, "/part/small/now")[2]
        assert '<span class="standing">died</span>' in ask(server, "/part/small/head")[2]
        with StudyLock(folder):
            assert "Running." in ask(server, "/part/small/now")[2]


# ---------------------------------------------------------------------- the command


def test_serve_mistakes_are_reported(tmp_path, root, capsys, server):
    taken = str(server.guard.port)
    for words, told in [
        (["serve", str(tmp_path / "none")], "no such folder"),
        (["serve", str(root / "small")], "is a study; give the results folder"),
        (["serve", str(root), "--port", taken], "change --host or --port"),
        (["serve", str(root), "--port", "70000"], "is not a port"),
        (["serve", str(root), "--host", "no.such.host.invalid"], "cannot listen on"),
    ]:
        assert main(words) == 2
        out, err = capsys.readouterr()
        assert told in err and out == ""


def test_serve_prints_the_url_and_stops_on_ctrl_c(root):
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from hpo.cli import main; sys.exit(main())"
    )  # a shell starts what runs in its background with Ctrl-C switched off
    words = [sys.executable, "-c", code, "serve", str(root), "--port", "0", "--token"]
    with subprocess.Popen(words, stdout=PIPE, stderr=PIPE, text=True) as child:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{20,}", url)
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(url, timeout=60) as answer:
            assert "Studies" in answer.read().decode() and "token" not in answer.url
        child.send_signal(signal.SIGINT)
        try:
            assert child.wait(timeout=60) == 0
        finally:
            child.kill()
        assert child.stderr is not None and "Ctrl-C stops the server" in child.stderr.read()
