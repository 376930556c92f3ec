import re
from pathlib import Path

from hpo.studies.load import loads
from hpo.studies.reference import methods, reference, rules

DOCS = Path(__file__).resolve().parents[2] / "docs" / "study.md"


def test_the_documentation_holds_the_tables_of_the_loader():
    assert DOCS.read_text().endswith(f"## Reference\n\n{reference()}")


def test_the_page_of_the_search_holds_the_tables_of_methods_and_rules():
    page = DOCS.with_name("search.md").read_text()
    assert f"<!-- methods -->\n{methods()}<!-- end -->" in page
    assert f"<!-- rules -->\n{rules()}<!-- end -->" in page


def test_the_study_in_the_documentation_loads():
    block = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    assert loads(block[0]).name == "cartpole-asha"
    inner = loads("env: CartPole-v1\nenv_steps: 1k\nspace:\n" + block[1])
    assert inner.space.names == ("optimiser", "learning_rate")
