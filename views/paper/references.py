"""A paper's references as BibTeX: hpo from CITATION.cff, and the methods that it uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ...errors import ConfigError
from ...files.plain_data import is_dict
from .markup import latex

HPO = "hpo"
_CITATION = Path(__file__).parents[2] / "CITATION.cff"
_WORKS: Mapping[str, Mapping[str, str]] = {
    "schulman2017ppo": {
        "": "article",
        "author": "John Schulman and Filip Wolski and Prafulla Dhariwal and Alec Radford and "
        "Oleg Klimov",
        "title": "Proximal Policy Optimization Algorithms",
        "journal": "arXiv preprint arXiv:1707.06347",
        "year": "2017",
    },
    "bergstra2011tpe": {
        "": "inproceedings",
        "author": "James Bergstra and R{\\'e}mi Bardenet and Yoshua Bengio and "
        "Bal{\\'a}zs K{\\'e}gl",
        "title": "Algorithms for Hyper-Parameter Optimization",
        "booktitle": "Advances in Neural Information Processing Systems",
        "volume": "24",
        "year": "2011",
    },
    "hansen2016cma": {
        "": "article",
        "author": "Nikolaus Hansen",
        "title": "The {CMA} Evolution Strategy: A Tutorial",
        "journal": "arXiv preprint arXiv:1604.00772",
        "year": "2016",
    },
    "deb2002nsga2": {
        "": "article",
        "author": "Kalyanmoy Deb and Amrit Pratap and Sameer Agarwal and T. Meyarivan",
        "title": "A Fast and Elitist Multiobjective Genetic Algorithm: {NSGA-II}",
        "journal": "IEEE Transactions on Evolutionary Computation",
        "volume": "6",
        "number": "2",
        "pages": "182--197",
        "year": "2002",
    },
    "lindauer2022smac3": {
        "": "article",
        "author": "Marius Lindauer and Katharina Eggensperger and Matthias Feurer and "
        "Andr{\\'e} Biedenkapp and Difan Deng and Carolin Benjamins and Tim Ruhkopf and "
        "Ren{\\'e} Sass and Frank Hutter",
        "title": "{SMAC3}: A Versatile {B}ayesian Optimization Package for Hyperparameter "
        "Optimization",
        "journal": "Journal of Machine Learning Research",
        "volume": "23",
        "number": "54",
        "pages": "1--9",
        "year": "2022",
    },
    "li2020asha": {
        "": "inproceedings",
        "author": "Liam Li and Kevin Jamieson and Afshin Rostamizadeh and Ekaterina Gonina and "
        "Jonathan Ben-tzur and Moritz Hardt and Benjamin Recht and Ameet Talwalkar",
        "title": "A System for Massively Parallel Hyperparameter Tuning",
        "booktitle": "Proceedings of Machine Learning and Systems",
        "volume": "2",
        "year": "2020",
    },
    "li2018hyperband": {
        "": "article",
        "author": "Lisha Li and Kevin Jamieson and Giulia DeSalvo and Afshin Rostamizadeh and "
        "Ameet Talwalkar",
        "title": "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization",
        "journal": "Journal of Machine Learning Research",
        "volume": "18",
        "number": "185",
        "pages": "1--52",
        "year": "2018",
    },
    "jaderberg2017pbt": {
        "": "article",
        "author": "Max Jaderberg and others",
        "title": "Population Based Training of Neural Networks",
        "journal": "arXiv preprint arXiv:1711.09846",
        "year": "2017",
    },
    "parkerholder2020pb2": {
        "": "inproceedings",
        "author": "Jack Parker-Holder and Vu Nguyen and Stephen J. Roberts",
        "title": "Provably Efficient Online Hyperparameter Optimization with Population-Based "
        "Bandits",
        "booktitle": "Advances in Neural Information Processing Systems",
        "volume": "33",
        "year": "2020",
    },
    "agarwal2021precipice": {
        "": "inproceedings",
        "author": "Rishabh Agarwal and Max Schwarzer and Pablo Samuel Castro and "
        "Aaron C. Courville and Marc G. Bellemare",
        "title": "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
        "booktitle": "Advances in Neural Information Processing Systems",
        "volume": "34",
        "year": "2021",
    },
    "hesterberg2015bootstrap": {
        "": "article",
        "author": "Tim C. Hesterberg",
        "title": "What Teachers Should Know About the Bootstrap: Resampling in the "
        "Undergraduate Statistics Curriculum",
        "journal": "The American Statistician",
        "volume": "69",
        "number": "4",
        "pages": "371--386",
        "year": "2015",
    },
    "learnedmiller2020bounded": {
        "": "article",
        "author": "Erik Learned-Miller and Philip S. Thomas",
        "title": "A New Confidence Interval for the Mean of a Bounded Random Variable",
        "journal": "arXiv preprint arXiv:1905.06208",
        "year": "2020",
    },
}
"""Key -> fields; "" is the type of the entry."""

OF_METHODS = {
    "tpe": "bergstra2011tpe",
    "cmaes": "hansen2016cma",
    "nsga2": "deb2002nsga2",
    "smac": "lindauer2022smac3",
}
OF_RULES = {
    "asha": "li2020asha",
    "hyperband": "li2018hyperband",
    "pbt": "jaderberg2017pbt",
    "pb2": "parkerholder2020pb2",
}


def bibtex(keys: Iterable[str]) -> str:
    """Return the entries of the cited works, in alphabetical order."""
    entries: list[str] = []
    for key in sorted(set(keys)):
        fields = own_entry() if key == HPO else dict(_WORKS[key])
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if name]
        entries.append("\n".join([f"@{fields['']}{{{key},", *lines, "}"]))
    return "\n\n".join(entries) + "\n"


def own_entry(path: Path = _CITATION) -> dict[str, str]:
    """Return the BibTeX entry for hpo, from CITATION.cff."""
    given: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not is_dict(given) or not given.get("authors") or not given.get("title"):
        raise ConfigError(f"{path} has no title or authors")
    names = [_author_name(one) for one in given["authors"]]
    entry = {"": "misc", "author": " and ".join(names), "title": f"{{{latex(given['title'])}}}"}
    released = str(given.get("date-released", ""))
    if released:
        entry["year"] = released[:4]
    entry["note"] = f"Software, version {latex(str(given['version']))}"
    for name in ("doi", "url"):
        if given.get(name):
            entry[name] = str(given[name])
    return entry


def _author_name(given: Any) -> str:
    if "name" in given:
        return f"{{{latex(str(given['name']))}}}"  # an organisation has a single name
    return latex(f"{given.get('family-names', '')}, {given.get('given-names', '')}".strip(", "))
