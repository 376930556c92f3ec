"""Checks a study before it starts or resumes, against the records in its journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import ConfigError, StoreError, counted
from ..machine.software import others
from ..store.journal import Journal
from ..store.rows import StudyMeta
from ..store.study_folder import RESULTS, StudyFolder, common_failure
from ..studies.cross_section_checks import contradictions
from ..studies.overrides import Given, given_in, without_given
from ..studies.resolved import ABSENT, ChangedKey, as_recorded, diff, resolved
from ..studies.search_methods import method_row
from ..studies.spec import Study
from ..studies.study_files import changed_files, words_of_changes


def takes_changed_files(
    name: str, before: Mapping[str, str], source: str | Path, accept: bool
) -> bool:
    changes = changed_files(before, source)
    if changes and not accept:
        raise StoreError(
            f"these files changed after study {name!r} started; undo the changes, start another "
            "study, or resume with the changed files, which marks the trials that finish from now "
            "on:\n" + words_of_changes(changes),
            new=True,
            accept_changed_files=True,
        )
    return bool(changes)


def check_files_to_resume(
    folder: Path, source: str | Path, accept: bool, asks_for_the_same: Callable[[StudyMeta], bool]
) -> None:
    """Raise if a study would resume with changed files, before any of them runs.

    Changed files are allowed if the study starts over, or if it has finished and no additional
    work is requested.
    """
    if not Journal.exists(folder) or common_failure(folder):
        return
    with Journal(folder) as journal:
        meta, head = journal.meta, journal.head()
    if head.phase != "finished" or not asks_for_the_same(meta):
        takes_changed_files(meta.name, meta.files, source, accept)


def check_before_code(
    folder: Path,
    source: Path,
    text: str,
    overrides: Sequence[str] = (),
    *,
    accept_changed_files: bool = False,
    retry_failed: bool = False,
) -> None:
    """Raise if a study would resume with changed files; called before they can run.

    Args:
        folder: the study's results folder.
        source: the folder of the files that the study names.
        text: the current text of the study file.
        overrides: settings that override those in the file.
        accept_changed_files: allow changed files.
        retry_failed: whether failed trials run again, which counts as additional work.
    """

    def asks_for_the_same(meta: StudyMeta) -> bool:
        return not retry_failed and _given_as_before(folder, text, overrides)

    check_files_to_resume(folder, source, accept_changed_files, asks_for_the_same)


def _given_as_before(folder: Path, text: str, overrides: Sequence[str]) -> bool:
    """Return whether a study's text and settings are the same as in its last run."""
    kept = StudyFolder(folder).kept_text()
    before = given_in(kept)
    settings = ()
    if before is not None:
        settings = before.overrides
    return without_given(kept) == text and settings == tuple(overrides)


def check_same_files(meta: StudyMeta, source: str | Path) -> None:
    """Raise if a study's files have changed, because its records would not be comparable."""
    if changes := changed_files(meta.files, source):
        raise StoreError(
            f"study {meta.name!r} was trained with different versions of these files, so "
            f"nothing can be compared; undo the changes:\n{words_of_changes(changes)}"
        )


def source_of(meta: StudyMeta, kept: str, given: Path | None = None) -> Path:
    """Return the folder of a study's files: the given one, or the last known one.

    `kept` is the text of the study file; its first line may contain the command that ran it.
    """
    command, places = given_in(kept), [Path()]
    if given is not None:
        places = [given]
    elif command is not None:
        places = [Path(command.file).parent, Path()]
    for place in places:
        if _missing_file(meta, place) is None:
            return place
    raise ConfigError(
        f"{_missing_file(meta, places[-1])}, which the study needs, is not in {places[-1]}/; give "
        "the folder of the study file",
        source="DIR",
    )


def _missing_file(meta: StudyMeta, place: Path) -> str | None:
    return next((path for path in meta.files if not (place / path).is_file()), None)


def check_runnable(study: Study) -> None:
    """Raise if sections of a study, from a file or from Python, contradict each other."""
    problems = [text for _, text in contradictions(study)]
    if problems:
        raise ConfigError("\n".join(problems))


def check_continues(
    before: StudyMeta,
    study: Study,
    last: Given | None = None,
    now: Given | None = None,
    same_file: bool = False,
) -> None:
    """Raise if settings changed in a way that `studies.resolved.RESUMING` does not allow."""
    old = as_recorded(before.study_text)
    refused = [change for change in diff(old, resolved(study)) if not change.allowed]
    if not refused:
        return
    if last is None and same_file and now is not None:
        last = _as_if_given(refused, now)
    commands = _Commands(last, now)
    if now is not None and now.verb == "train" and old.get("space"):
        said = f"study {before.name!r} is a search, but one configuration was to be trained"
        raise StoreError("\n".join([f"{said}:", *commands.way_on([])]), name="NAME", new=True)
    lines = [f"  {change}{commands.origin(change.key)}" for change in refused]
    filed = [one for one in refused if not same_file or _is_declared(one)]
    raise StoreError(
        f"study {before.name!r} was started with different settings; undo these changes, or start "
        "another study:\n" + "\n".join([*lines, *commands.way_on(filed)]),
        new=True,
        reuse=_reusable_folder(before, study, refused, now),
    )


def _is_declared(change: ChangedKey) -> bool:
    """Return whether a change is in a custom training class rather than in the study file."""
    return change.key.startswith("algorithm.")


def _as_if_given(refused: Sequence[ChangedKey], now: Given) -> Given | None:
    """Return the command with the old values as options; None if there are none to add.

    This is for a study that ran from Python with values that are not in its file. Options cannot
    remove a key, and another command than `hpo run` changes values itself.
    """
    if now.overrides or now.verb != "run":
        return None
    unsaid = [one for one in refused if not (now.override_of(one.key) or _is_declared(one))]
    if not unsaid or any(one.old == ABSENT for one in unsaid):
        return None
    return replace(now, overrides=tuple(f"{one.key}={_as_typed(one.old)}" for one in unsaid))


def _as_typed(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _reusable_folder(
    before: StudyMeta, study: Study, refused: Sequence[ChangedKey], now: Given | None
) -> Path | None:
    """Return the folder whose trials a separate study can reuse, if only its space differs."""
    if not all(change.key.startswith("space") for change in refused):
        return None
    if (
        not method_row(study.search.method).learns_from_results
        or study.search.warm_start is not None
    ):
        return None
    out = RESULTS
    if now is not None:
        out = now.out
    return Path(out) / before.name


_OF_ENV_STEPS = (
    "schedule_env_steps",
    "evaluation.every",
    "early_terminate.min",
    "early_terminate.every",
)
"""Keys that are derived from `env_steps` if a file omits them."""


def _override_of(command: Given | None, key: str) -> str:
    if command is None:
        return ""
    return command.override_of(key)


@dataclass(frozen=True)
class _Commands:
    """The command that last ran a study and the current command; None if unknown."""

    last: Given | None
    now: Given | None

    def origin(self, key: str) -> str:
        """Return the options that set a key last time and now; "" if they do not differ."""
        was, given = _override_of(self.last, key), _override_of(self.now, key)
        if was == given:
            return ""
        words = {"last time": was, "now": given}
        said = "; ".join(f"{when}: {value}" for when, value in words.items() if value)
        return f" [{said}]"

    def way_on(self, refused: Sequence[ChangedKey]) -> list[str]:
        """Return a line with the command that would resume the study, if the commands differ."""
        if self.now is None:
            if self.last is None:
                return []
            return [f"  the study was run as: {self.last.command}"]
        way = replace(self.now, verb="run", overrides=())
        if self.last is not None:
            way = replace(self.now, verb=self.last.verb, overrides=self.last.overrides)
        if way == self.now:
            return []
        rest = self._in_file(refused)
        if not rest or way.verb != self.now.verb:
            return [f"resume with: {way.command}"]
        return [f"restore the old {', '.join(rest)} in the file, then resume with: {way.command}"]

    def _in_file(self, refused: Sequence[ChangedKey]) -> list[str]:
        """Return the refused keys whose old values must be restored in the file."""
        rest = [change.key for change in refused if not self.origin(change.key)]
        if not self.origin("env_steps"):
            return rest
        return [key for key in rest if key not in _OF_ENV_STEPS]


def devices_text(backend: str, devices: int) -> str:
    """Format the devices of a run.

    >>> devices_text("cpu", 4), devices_text("gpu", 1)
    ('4 CPU devices', '1 GPU device')
    """
    return counted(devices, f"{backend.upper()} device")


def gives_new_bits(before: StudyMeta, now: StudyMeta, accept: bool) -> bool:
    """Return whether results here may differ in the last digits from those of the last run."""
    moved = before.backend != now.backend or now.devices < before.devices
    if moved and not accept:
        was, here = (devices_text(one.backend, one.devices) for one in (before, now))
        raise StoreError(
            f"study {before.name!r} ran on {was}; on {here} its results will differ in the last "
            "digits; resume it where it ran, or accept the difference",
            accept_new_bits=True,
        )
    return moved or before.devices != now.devices or others(before.versions, now.versions)
