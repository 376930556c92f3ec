"""The commands of README.md, shortened so that each runs in seconds in a folder with my.yaml."""

from __future__ import annotations

import re

SHORT = (
    " --set env_steps=16k --set budget.trials=12 --set early_terminate=null --set seed=1"
    " --set 'confirm={top_k: 2, choose: 3, report: 6}'"
)
APART = "mkdir train && cd train && "
CHANGES = (
    ("hpo run studies/first.yaml", f"hpo run my.yaml{SHORT} --name again"),
    ("hpo run my.yaml", f"hpo run my.yaml{SHORT}"),
    ("hpo check my.yaml", "hpo check my.yaml --no-time"),
    ("hpo init CartPole-v1 > my.yaml", "hpo init CartPole-v1 --plain > my.yaml"),
    ("hpo show 17", "hpo show 1"),
    ("hpo compare 3 17", "hpo compare 0 1"),
    ("hpo confirm 3 17", "hpo confirm 0 1 --seeds 6"),
    # in a separate folder: with a second study, `hpo report` would ask which one
    ("hpo train tuned:CartPole-v1", f"{APART}hpo train tuned:CartPole-v1 --set env_steps=4k"),
    ("hpo bundle NAME", "hpo bundle cartpole-v1 -o bundle.zip && hpo verify bundle.zip"),
    ("hpo paper NAME", "hpo paper cartpole-v1 --to paper --no-figures"),
    ("hpo serve", "hpo serve --help"),
    ("hpo eval policy/", "hpo eval policy/ --episodes 2"),
)
"""(README command, tested form, which is shorter, uses existing trials and ends by itself)."""


def commands(readme: str) -> list[str]:
    """Return README's commands in order, each once, in the form in which they run here."""
    block = re.findall(r"hpo run studies/\S+", readme)[:1]
    table: list[str] = [
        code
        for line in readme.splitlines()
        if line.startswith("| ")
        for code in re.findall(r"`(hpo [^`]+)`", line)
    ]
    known: dict[str, str] = dict(CHANGES)
    found = dict.fromkeys(table + block)  # the block's study last, because its folder makes two
    return [known.get(command) or command for command in found]
