"""A study as Python gives it: a path, marked YAML, a mapping, or a loaded one; with its text.

A plain string is always a path: YAML is marked by `yaml("...")`, so that a typing error in a path
is reported as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import ConfigError, Mistake, StudyError
from ..files.plain_data import is_mapping, is_sequence
from .load import load, loads
from .resolved import resolved_yaml
from .spec import Study
from .yaml_io import to_yaml


@dataclass(frozen=True)
class YamlText:
    text: str


Source = Study | YamlText | Mapping[str, Any] | str | PathLike[str]
"""The forms in which a study can be given."""


def yaml(text: str) -> YamlText:
    """Mark a string as the text of a study, not the path of its file.

    >>> yaml("env: CartPole-v1").text
    'env: CartPole-v1'
    """
    return YamlText(text)


def read_study(given: Source, name: str | None = None) -> tuple[Study, str]:
    """Return a study and the text of its file; text and mapping without a name are `study`."""
    if isinstance(given, Study):
        study = given if name is None else replace(given, name=name)
        return study, resolved_yaml(study)
    if isinstance(given, YamlText):
        return loads(given.text, "study.yaml", name=name), given.text
    if isinstance(given, Mapping):
        text = to_yaml(_plain(given))
        try:
            return loads(text, "study.yaml", name=name), text
        except StudyError as error:  # lines of a text that nobody wrote say nothing
            mistakes = [Mistake(None, mistake.text) for mistake in error.mistakes]
            raise StudyError("the mapping", mistakes) from None
    if isinstance(given, str) and "\n" in given:
        raise ConfigError('multi-line text is not a path; type hpo.yaml("""...""")')
    try:
        path = Path(given)
    except TypeError:
        raise ConfigError(
            f"a study is given as {type(given).__name__}; allowed: a path, hpo.yaml(text) or a "
            "mapping"
        ) from None
    study = load(path, name=name)
    return study, path.read_text(encoding="utf-8-sig")


def _plain(value: Any) -> Any:
    """Replace NumPy's numbers, paths and the like by values that YAML has."""
    if is_mapping(value):
        return {str(key): _plain(item) for key, item in value.items()}
    if is_sequence(value) or isinstance(value, range):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    of_numpy: Any = getattr(value, "tolist", None)
    if of_numpy is not None:
        return of_numpy()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ConfigError(f"a study cannot hold a {type(value).__name__}: {value!r}")
