"""What the documents say to type in Python is run: every block marked python, page by page.

The blocks of a page share their names, as those of a notebook do. Studies follow formulas; what is
learned is learned for real, and shortened.
"""

from contextlib import nullcontext
from pathlib import Path

import pytest

import hpo
from helpers import doc_blocks as shown
from helpers.loading import run_file
from hpo.core.saved_policy import save_policy
from hpo.search import api

pytestmark = pytest.mark.usefixtures("quickly_compiled")

HERE = Path(__file__).parent
typed = run_file("tests/test_docs_run.py")
RUN_HERE = ("docs/migrating.md", "docs/outputs.md", "docs/python.md", "docs/ray.md")
ELSEWHERE = {
    ("docs/autorl.md", "hpo.AutoRLEnv("): "search/autorl/test_autorl.py",
    ("docs/bench.md", "run_bench(read_bench("): "search/bench/test_bench.py",
    ("docs/environments.md", "class Corridor:"): "core/envs/test_own_environment.py",
    ("docs/environments.md", "class TestCorridor("): "core/envs/test_own_environment.py",
    ("docs/networks.md", "class Scaled("): "core/networks/test_contract.py",
    ("docs/networks.md", "class TestScaled("): "core/networks/test_contract.py",
    ("docs/ppo.md", "def lion("): "core/test_testing.py",
    ("docs/ppo.md", "class LaplaceFamily("): "core/test_testing.py",
    ("docs/ppo.md", "class TestLion("): "core/test_testing.py",
    ("docs/reference/add-importer.md", "TINY = System("): "importers/test_add_importer.py",
    ("docs/search.md", "class Near:"): "search/test_registered.py",
    ("docs/search.md", "class Slack:"): "search/test_registered.py",
    ("docs/search.md", "class TestNear("): "search/test_registered.py",
}
"""(page, words of one block) -> the test that runs it: it needs more than a folder."""
SMALL = {"hidden_sizes": [4], "num_envs": 2, "rollout_length": 8, "minibatch_size": 16,
         "update_epochs": 1}  # fmt: skip
SHORT = {
    '{"learning_rate": 3e-3}, seed=1)': f'{{"learning_rate": 3e-3, **{SMALL}}}, 1, env_steps=160)',
    "episodes=20": "episodes=2",
}
"""What stands there -> what is run."""


@pytest.fixture(scope="module")
def learned():
    """Return the block that trains a policy, shortened, and the names it leaves."""
    block = shown.block("docs/python.md", "hpo.learn(")
    return block, shortened(block).run({"hpo": hpo})


@pytest.fixture
def reader(tmp_path, monkeypatch, learned):
    """Return what puts a reader of a page where its files are."""

    def sit(page):
        monkeypatch.chdir(tmp_path)
        Path("studies").symlink_to(shown.ROOT / "studies")
        if page == "docs/outputs.md":
            Path("my.yaml").write_text(typed.STUDY)
            save_policy(Path("policy"), learned[1]["policy"])
        if page == "docs/ray.md":
            for name in ("task-0", "task-1"):
                with monkeypatch.context() as patch:
                    patch.setattr(api, "factory_of", lambda *_: nullcontext(typed._Formulas()))
                    hpo.run(hpo.yaml(f"{typed.STUDY}name: {name}\n"))

    return sit


def shortened(block):
    code = block.code
    for long, short in SHORT.items():
        code = code.replace(long, short)
    return block._replace(code=code)


@pytest.mark.parametrize("page", RUN_HERE)
def test_documented_python_blocks_run(page, reader, learned, monkeypatch):
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib.pyplot").switch_backend("agg")
    reader(page)
    names = {"__name__": "__main__"}
    for block in shown.blocks_of(page):
        if block == learned[0]:
            names |= learned[1]
            continue
        with monkeypatch.context() as patch:
            if "hpo.run(" in block.code:
                patch.setattr(api, "factory_of", lambda *_: nullcontext(typed._Formulas()))
            shortened(block).run(names)
    import matplotlib.pyplot as plt

    plt.close("all")


def test_python_doc_blocks_are_all_tested():
    found = [block for page in shown.PAGES for block in shown.blocks_of(shown.named(page))]
    for page, words in ELSEWHERE:
        claimed = shown.block(page, words)
        assert claimed.page not in RUN_HERE
        found.remove(claimed)
        text = (HERE / ELSEWHERE[page, words]).read_text()
        assert page in text and words in text, f"{ELSEWHERE[page, words]} does not run it"
    left = [f"{block.page}:{block.line}" for block in found if block.page not in RUN_HERE]
    assert left == [], "add the page to RUN_HERE, or say in ELSEWHERE which test runs it"
    assert {block.page for block in found} == set(RUN_HERE)


def test_shortened_text_exists_in_the_docs():
    text = "".join(block.code for page in RUN_HERE for block in shown.blocks_of(page))
    assert [long for long in SHORT if long not in text] == []


def test_doc_block_error_points_to_the_page_line():
    block = shown.blocks_of("docs/python.md")[0]._replace(code="\nraise RuntimeError\n")
    with pytest.raises(RuntimeError) as told:
        block.run()
    last = told.traceback[-1]
    assert (last.path, last.lineno + 1) == (shown.ROOT / "docs" / "python.md", block.line + 1)
