"""The documents: what they show exists, works and is current; the site and the notebook build."""

import ast
import contextlib
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from helpers import doc_blocks as shown
from hpo.cli import main, make_parser

ROOT, DOCS, PAGES, named = shown.ROOT, shown.DOCS, shown.PAGES, shown.named
LINK = re.compile(r"(?:\]\(|src=\")([^)\s\"]+)[)\"]")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.S | re.M)
SEPARATORS = {"&&", "||", ";", "|", ">", "<", ">>"}


@pytest.fixture(scope="module")
def scripts():
    """Import a module of scripts/docs_site."""
    sys.path.insert(0, str(ROOT / "scripts"))
    yield lambda name: import_module(f"docs_site.{name}")
    sys.path.remove(str(ROOT / "scripts"))


# ---------------------------------------------------------------------- pages and links


def anchors(path):
    """Return the anchors of a page: its headings as the site and code hosts name them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.S | re.M)
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
        found.add(re.sub(r"\s", "-", plain))
    return found


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_doc_links_resolve(page):
    for target in LINK.findall(CODE.sub("", page.read_text())):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), f"{named(page)}: {target}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{named(page)}: {target}"


def in_navigation(entries):
    for entry in entries:
        for value in [entry] if isinstance(entry, str) else entry.values():
            yield from [value] if isinstance(value, str) else in_navigation(value)


def test_docs_pages_are_all_in_the_navigation():
    listed = list(in_navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert pages | {"tutorial.ipynb"} == set(listed), "name each page in `nav` of mkdocs.yml"
    assert len(listed) == len(set(listed))


def test_doc_figures_are_all_used():
    shown = {path.name for page in PAGES for path in map(Path, LINK.findall(page.read_text()))}
    assert {path.name for path in (DOCS / "figures").glob("*.png")} - shown == set()


def test_generated_docs_are_up_to_date(scripts):
    stale = [named(path) for path in scripts("generated").stale()]
    assert stale == [], "run scripts/docs --write"


def test_stale_generated_page_is_detected(scripts, tmp_path):
    generated = scripts("generated")
    for path in generated.updated():
        copy = tmp_path / path.relative_to(DOCS)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(path.read_text())
    page = tmp_path / "reference" / "knobs.md"
    page.write_text(page.read_text().replace("`gamma`", "`gama`"))
    assert generated.stale(tmp_path) == [page]
    generated.write(tmp_path)
    assert generated.stale(tmp_path) == [] and "`gama`" not in page.read_text()


def test_harmless_values_are_listed_once_without_blanks(scripts):
    from hpo.foreign_names.name_mapping import NameRow

    row = NameRow("wrapper", "refused", because="no counterpart", harmless=([], "", 0, 0.0))
    (line,) = scripts("foreign_names")._by_reason([row])
    assert line == "- `wrapper`: no counterpart (unless empty or 0)"


# ---------------------------------------------------------------------- commands


def blocks(text):
    """Yield the command lines of the blocks marked sh: continued lines and quotations joined."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M):
        joined = re.sub(r"\\\n\s*", "", block)
        joined = re.sub(r'"[^"]*"', lambda quoted: quoted[0].replace("\n", " "), joined)
        yield from (re.sub(r"^[\w-]+\$\s+", "", line) for line in joined.splitlines())


def commands(line):
    """Yield the words of each `hpo` command of a line, `hpo` left out."""
    words = shlex.split(line, comments=True)
    words = [part for word in words for part in _split(word)]
    while words:
        end = next((i for i, word in enumerate(words) if word in SEPARATORS), len(words))
        if words[0] == "hpo" and end > 1:
            yield words[1:end]
        words = words[end + 1 :]


def _split(word):
    return [word[:-1], ";"] if word.endswith(";") and len(word) > 1 else [word]


def typed():
    for page in PAGES:
        for line in blocks(page.read_text()):
            yield from ((named(page), shlex.join(words)) for words in commands(line))


def mentioned():
    for page in PAGES:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)
        for span in re.findall(r"`(hpo [a-z][^`\n]*)`", prose):
            yield named(page), span


TYPED, MENTIONED = sorted(set(typed())), sorted(set(mentioned()))


def test_docs_contain_commands():
    assert len(TYPED) > 40 and len(MENTIONED) > 60
    assert {"run", "top", "query", "import", "eval"} <= {text.split()[0] for _, text in TYPED}


@pytest.mark.parametrize("page, text", TYPED)
def test_documented_commands_parse(page, text, capsys):
    words = shlex.split(text)
    if words[0] == "import" and "--" in words:
        words = words[: words.index("--")]
    with contextlib.suppress(SystemExit):
        make_parser()[0].parse_args(words)
    assert "error" not in capsys.readouterr().err


def test_mentioned_commands_and_options_exist():
    verbs = make_parser()[0].commands
    for page, text in MENTIONED:
        verb = text.split()[1]
        assert verb in verbs, f"{page}: {text}"
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", verbs[verb].format_help()))
        ours = re.sub(r'"[^"]*"| -- .*', "", text).split()  # what another program is given, apart
        given = {word for word in ours if re.fullmatch(r"--[a-z][a-z-]*", word)}
        assert given <= options, f"{page}: {text}"


@pytest.mark.parametrize(
    "page, text",
    [each for each in TYPED if each[1].startswith("import ") and "'python" in each[1]],
)
def test_documented_imports_give_valid_studies(page, text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(text)
    if "--to" not in words:
        words += ["--to", "study.yaml"]
    assert main(words) == 0, capsys.readouterr().err
    assert main(["check", words[words.index("--to") + 1]]) == 0


# ---------------------------------------------------------------------- Python


BLOCKS = [block for page in PAGES for block in shown.blocks_of(named(page))]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}:{block.line}")
def test_documented_python_names_exist(block):
    place = f"{block.page}:{block.line}"
    for node in ast.walk(ast.parse(block.code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "hpo":
            module = import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"{place}: {node.module}.{alias.name}"
        match node:
            case ast.Attribute(ast.Name("hpo"), name) if name != "spaces":
                assert hasattr(import_module("hpo"), name), f"{place}: hpo.{name}"


# ---------------------------------------------------------------------- notebook and site


def test_the_notebook_runs(scripts):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    scripts("notebook").execute(DOCS / "tutorial.ipynb")


def test_the_site_builds_without_a_warning(tmp_path):
    for package in ("material", "mkdocs_jupyter", "mkdocstrings"):
        pytest.importorskip(package)
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "docs"), "--fast", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING" not in done.stderr
    for page in ("index", "tutorial/index", "reference/python/index", "outside/benchmarks/index"):
        assert (tmp_path / f"{page}.html").is_file()
    html = (tmp_path / "reference" / "python" / "index.html").read_text()
    import hpo

    assert all(f'id="hpo.{name}"' in html for name in hpo.__all__ if name != "__version__")


def tuned_rows():
    """Yield (environment, who, cells) of each row of the table of tuned configurations."""
    name = ""
    _, _, rest = (DOCS / "reference" / "tuned.md").read_text().partition("<!-- generated -->")
    for line in rest.partition("<!-- end -->")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and "---" not in line and cells[1] != "who":
            name = cells[0] or name
            yield name, cells[1], cells[2:]


def test_tuned_page_verdict_counts_match_its_table():
    page = " ".join((DOCS / "tuned.md").read_text().split())
    words = ("better", "no significant difference", "worse")
    found = {kind: dict.fromkeys(words, 0) for kind in ("default", "rule", "other")}
    for _, who, cells in tuned_rows():
        if who != "**tuned**":
            kind = "default" if who == "default" else "rule" if "heuristic" in who else "other"
            found[kind][cells[2].partition(",")[0].strip("*")] += 1
    default, rule = found["default"], found["rule"]
    assert (
        default["worse"] == 0
        and (
            f"beat the default on {default['better']} environments and are tied with it on "
            f"{default[words[1]]}. Of {sum(rule.values())} comparisons with heuristics for "
            f"optical networks they win {rule['better']}, tie {rule[words[1]]} and lose "
            f"{rule['worse']}."
        )
        in page
    )
    verdicts = sum(sum(one.values()) for one in found.values())
    assert f"Each of the {verdicts} verdicts" in page


def test_tuned_heuristic_differences_match_the_printed_values():
    """The difference that a row prints is that of the values above it."""
    seen = 0
    for name, who, cells in tuned_rows():
        value = float(cells[1].partition(" ")[0])
        if who == "**tuned**":
            ours, searched = value, cells[0]
            assert re.fullmatch(r"[\d.]+[kMG], [\d,]+ runs", searched), name
        elif "heuristic" in who:
            less = float(cells[2].partition("ours less its ")[2].partition(" ")[0])
            rounding = 1e-3 * max(abs(ours), abs(value))  # of four digits, twice
            assert ours - value == pytest.approx(less, abs=rounding), name
            seen += 1
    assert seen == 16
