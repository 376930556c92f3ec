import re
from pathlib import Path

from hpo.studies.load import loads

DOCS = Path(__file__).resolve().parents[2] / "docs" / "study.md"


def test_the_study_in_the_documentation_loads():
    block = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    assert loads(block[0]).name == "cartpole-asha"
    inner = loads("env: CartPole-v1\nenv_steps: 1k\nspace:\n" + block[1])
    assert inner.space.names == ("optimiser", "learning_rate")
