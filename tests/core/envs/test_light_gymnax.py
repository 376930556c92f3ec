"""gymnax is imported without what it draws with, which is there when it draws."""

import subprocess
import sys
from types import ModuleType

from hpo.core.envs.from_gymnax import import_gymnax

CHILD = """
import sys
from hpo.core.envs import registry
from hpo.core.plan import EnvPlan
registry.make(EnvPlan("CartPole-v1"))
heavy = {"seaborn", "pandas", "scipy.stats"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
from gymnax.environments.misc import pong
assert not hasattr(pong.sns, "__file__") and "seaborn" not in sys.modules
colours = pong.sns.color_palette("cubehelix", 3)
assert heavy < set(sys.modules)
import seaborn
assert seaborn.__file__ and pong.sns is not seaborn
assert colours == seaborn.color_palette("cubehelix", 3)
"""


def test_seaborn_is_imported_when_something_is_drawn():
    subprocess.run([sys.executable, "-c", CHILD], check=True)


def test_import_gymnax_keeps_an_already_imported_seaborn(monkeypatch):
    theirs = ModuleType("seaborn")
    monkeypatch.setitem(sys.modules, "seaborn", theirs)
    assert import_gymnax() is sys.modules["gymnax"]
    assert sys.modules["seaborn"] is theirs
