"""Rules over many studies, by hand."""

from pathlib import Path

from helpers.loading import run_file
from hpo.search.what_if import WhatIf, WhatIfRow

PATH = Path(__file__).parents[3] / "benchmarks" / "rules_table.py"
rules_table = run_file("benchmarks/rules_table.py")


def row(rule, stopped, saved, kept, why=""):
    return WhatIfRow(rule, not why, why, 10, stopped, stopped, saved, 0, kept, 0.0, False)


def told(*rows):
    return WhatIf("s", 10, 1, 1, "m", "maximize", "", True, "random", 1, 1, 0, 1000, None, rows)


def test_rule_summary_merges_different_first_rungs():
    first = told(row("none", 0.0, 0.0, 1.0), row("asha eta=2 min=1000", 8.0, 0.6, 1.0))
    second = told(row("asha eta=2 min=512", 6.0, 0.4, 0.5, why="unseen"))
    none, asha = rules_table.summary([first, second])
    assert (none.studies, none.saved, none.kept) == (1, 0.0, 1.0)
    # medians of 0.8 and 0.6, of 0.6 and 0.4; the mean of 1 and a half
    assert (asha.rule, asha.studies, asha.exact) == ("asha eta=2", 2, 1)
    assert [round(x, 9) for x in (asha.stopped, asha.saved, asha.kept)] == [0.7, 0.5, 0.75]
    assert "| asha eta=2 | 2 | 1 | 70% | 50% | 75% |" in rules_table.table([asha])
