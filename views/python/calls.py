"""`hpo.run`, `hpo.train`, `hpo.check`, `hpo.learn`: the commands as Python functions.

A study is a path, `hpo.yaml("...")`, a mapping or a loaded study. Warnings go to stderr; in
notebooks and terminals, one line shows the study's status.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError, SearchError, clause
from ...files.atomic_files import temporary_folder
from ...search import api
from ...search.engine.callbacks import Callback
from ...search.run import RunResults as _Results
from ...search.state.progress import Progress
from ...store.study_folder import RESULTS
from ...studies.check import CheckReport
from ...studies.load import Source, read_study
from ...studies.spec import Study
from ..output import note, plain_warnings, to_stderr
from ..terminal.run_view import RunView, status_line
from ..words import speaks_python
from .open_study import Opened


class OneLine(RunView):
    """A study's events on one line, each replacing the previous one; warnings remain visible.

    Without a notebook or a terminal, lines are written to stderr, at most one every 30 seconds.
    """

    def __init__(
        self, show: Callable[[str], None] | None = None, every_seconds: float | None = None
    ):
        super().__init__()
        if every_seconds is None and (show is not None or somebody_looks()):
            every_seconds = 0.5
        elif every_seconds is None:
            every_seconds = 30.0
        self._show, self._every = show or _usual_display(), every_seconds
        self._shown = -float("inf")

    def say(self, text: str) -> None:
        self._show(text)

    def on_chunk(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._shown >= self._every:
            self._shown = now
            self.say(status_line(progress, unit=self.unit))

    def on_end(self, progress: Progress, state: str) -> None:
        self.say(f"{state}: {status_line(progress, unit=self.unit)}")


def somebody_looks() -> bool:
    """Return whether a status line can be updated: in a notebook, or if stderr is a terminal."""
    return _is_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _usual_display() -> Callable[[str], None]:
    if _is_notebook():
        return _in_notebook()
    if somebody_looks():
        return _at_terminal
    return note


def _is_notebook() -> bool:
    """Return whether this is a notebook kernel, without importing IPython."""
    module = sys.modules.get("IPython")
    if module is None:
        return False
    return hasattr(module.get_ipython(), "kernel")


def _in_notebook() -> Callable[[str], None]:
    from IPython.display import display  # type: ignore[import-not-found]  # a notebook has it

    handle: list[Any] = []

    def show(text: str) -> None:
        data = {"text/plain": text}
        if handle:
            handle[0].update(data, raw=True)
        else:
            handle.append(display(data, raw=True, display_id=True))

    return show


def _at_terminal(text: str) -> None:
    width = shutil.get_terminal_size().columns - 1
    sys.stderr.write(f"\r\x1b[K{text[:width]}")
    sys.stderr.flush()


if TYPE_CHECKING:
    from ...core.saved_policy import SavedPolicy


@dataclass(frozen=True, repr=False)
class Results(_Results):
    """The results of a study; `open()` returns its tables and pictures, `policy()` a policy."""

    def open(self) -> Opened:
        """Open the study, to read its tables and draw its pictures."""
        return Opened(self.folder)

    def policy(self, trial: int | None = None) -> SavedPolicy:
        """Return the policy of the winner, or of a trial."""
        return self.open().policy(trial)

    def __repr__(self) -> str:
        best = self.best
        won = "no trial has a value"
        if best is not None:
            won = f"trial {best.trial}: {best.value:.4g}"
        return f"<Results of {self.folder.name}: {self.state}, {won}; .open(), .policy()>"

    def _repr_html_(self) -> str:
        return self.open()._repr_html_()


@dataclass(frozen=True, repr=False)
class Checked:
    """A study's plan and cost; `note` gives the reason if lanes and memory are unknown."""

    report: CheckReport
    note: str

    @property
    def mistakes(self) -> tuple[str, ...]:
        """Configurations in the space that cannot run."""
        return self.report.mistakes

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about settings that are legal but probably unintended."""
        return self.report.warnings

    def as_data(self) -> dict[str, Any]:
        """Return plain data, as printed by `hpo check --json`."""
        return {**self.report.as_data(), "note": self.note}

    def __repr__(self) -> str:
        return self.report.text() + clause("\nnote       {}", self.note)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def run(
    study: Source,
    out: str | Path = RESULTS,
    observers: Sequence[Any] = (),
    *,
    name: str | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Results:
    """Run a study, or resume it; a finished study returns its results at once.

    Args:
        study: the path of its file, `hpo.yaml("...")`, a mapping, or a loaded study.
        out: the results folder; the study gets a subfolder with its name.
        observers: objects that are notified of every event.
        name: replaces the study's name; YAML strings and mappings without one are called `study`.
        progress: whether to show a status line in a notebook or a terminal, and elsewhere an
            occasional line on stderr; None: only in a notebook or a terminal.
        settings: `callbacks`, `new`, `accept_new_bits`, `accept_changed_files`, `warn` and the
            other arguments of `hpo.search.api.run`.

    Raises:
        HpoError: see `hpo.search.api.run`.
    """
    return _run_with_progress(
        api.run, study, out, observers, name=name, progress=progress, settings=settings
    )


def train(
    study: Source,
    out: str | Path = RESULTS,
    observers: Sequence[Any] = (),
    *,
    name: str | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Results:
    """Train a study's default configuration on all its seeds; the arguments are those of `run`."""
    return _run_with_progress(
        api.train, study, out, observers, name=name, progress=progress, settings=settings
    )


def check(study: Source, *, name: str | None = None, time: bool = False) -> Checked:
    """Check a study on this machine, without running it.

    Args:
        study: as for `run`.
        name: as for `run`.
        time: whether to estimate the study's time: compile it, and time each program that was not
            timed here before; this runs the study's imports.

    Raises:
        StudyError: contains every mistake in the study.
    """
    from ...search.study_estimate import preview

    with speaks_python(), plain_warnings():
        return Checked(*preview(read_study(study, name)[0], time, own_code=time, notify=note))


def learn(
    env: str | Mapping[str, Any],
    config: Mapping[str, Any] | None = None,
    seed: int = 0,
    *,
    env_steps: int | str = "200k",
    imports: Sequence[str] = (),
    progress: bool | None = None,
) -> SavedPolicy:
    """Train one configuration on one seed and return its policy; leave no files.

    Args:
        env: an id, or a mapping with `id` and the settings that differ from its defaults.
        config: hyperparameters by name, as under `fixed`; all others have their defaults.
        seed: seed for all randomness.
        env_steps: length of the run, such as `1M`.
        imports: files in the working folder that register the environment.
        progress: as for `run`.

    Raises:
        HpoError: as for `run`; it is a SearchError if the training diverged or failed.
    """
    if not isinstance(config or {}, Mapping):
        text = f"config is {config!r}; allowed: a mapping of hyperparameters"
        raise ConfigError(f"{text}, such as {{'learning_rate': 1e-3}}")
    if not isinstance(env, str | Mapping):
        text = f"env is {env!r}; allowed: an id or a mapping with `id`"
        raise ConfigError(f"{text}; for several environments: hpo.train({{'env': [...], ...}})")
    study: dict[str, Any] = {
        "name": "learn",
        "env": env,
        "env_steps": env_steps,
        "fixed": dict(config or {}),
        "seed": seed,
        "seeds": {"per_config": 1},
        "budget": {"trials": 1},
    }
    if imports:
        study["imports"] = list(imports)
    with temporary_folder("learn") as folder:
        results = train(study, folder, progress=progress)
        if results.state == "interrupted":
            raise KeyboardInterrupt
        if results.best is None:
            rows = results.open().rows
            why = "; ".join(row.error for row in rows if row.error) or "it diverged"
            raise SearchError(f"training on {env!r} produced no policy: {why}")
        return results.policy()


def _run_with_progress(
    function: Any,
    study: Source,
    out: str | Path,
    observers: Sequence[Any],
    *,
    name: str | None,
    progress: bool | None,
    settings: dict[str, Any],
) -> Results:
    with speaks_python():
        _check_options(progress, observers=observers, callbacks=settings.get("callbacks", ()))
        loaded, text = _load_study(study, out, name, settings)
        warn = to_stderr
        settings.setdefault("study_text", text)
        if progress is None:
            progress = somebody_looks()
        if progress:
            line = OneLine()
            warn, observers = line.warn, [*observers, line]
            settings.setdefault("compiling", line.compiling)
        warn = settings.pop("warn", None) or warn
        with plain_warnings(warn):
            return Results(**vars(function(loaded, out, observers, warn=warn, **settings)))


def _load_study(
    study: Source, out: str | Path, name: str | None, settings: Mapping[str, Any]
) -> tuple[Study, str]:
    """Load a study; if it resumes an existing one, compare the two before its files run."""
    if isinstance(study, Study):
        return read_study(study, name)
    return api.load_to_run(study, Path(out), name, **api.resume_settings(settings))


def _check_options(progress: Any, **several: Any) -> None:
    if progress is not None and not isinstance(progress, bool):
        raise ConfigError(f"progress is {progress!r}; allowed: True, False or None")
    for name, given in several.items():
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise ConfigError(f"{name} is {given!r:.60}; allowed: a list of {name}")
    for one in several["callbacks"]:
        has_method = any(hasattr(one, name) for name in vars(Callback) if name.startswith("on_"))
        if isinstance(one, type) or not has_method:
            text = f"a callback is {one!r:.60}; allowed: an object with methods of hpo.Callback"
            raise ConfigError(text)
