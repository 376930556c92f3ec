"""What sinks that follow trials share: how far each has got, which it keeps in a study's folder.

They take what is new whenever tables are published, and once more when the study's process ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from .follow import Follower, Mark, News, is_finished

__all__ = ["FollowingSink"]


class FollowingSink(ABC):
    """A sink that goes on where it was; see `store.sinks.Sink`.

    Args:
        follower: says which trials to show.
        target: the folder to write into; None is the study's.
    """

    name: str

    def __init__(self, follower: Follower, target: Path | None = None):
        self._follower, self._target = follower, target
        self._directory: Path | None = None
        self._mark = Mark()

    def published(self, directory: Path) -> None:
        """Take what is new."""
        if self._directory is None:
            self._mark = Mark.read(self._place(directory), self.name)
        self._directory = directory
        self._follow(directory, final=False)

    def close(self) -> None:
        """Take what only the end decides, and close what was opened."""
        directory, self._directory = self._directory, None
        if directory is not None:
            finished = is_finished(directory)
            news = self._follow(directory, finished)
            if finished:
                self._write_end(directory, news)
        self._close_all()

    def _place(self, directory: Path) -> Path:
        """Return the folder to write into, for a study's folder."""
        return self._target or directory

    def _follow(self, directory: Path, final: bool) -> News:
        news = self._follower.news(directory, self._mark, final)
        self._write(directory, news)
        self._keep_mark(directory)  # last: after a crash points come twice, and none is missing
        return news

    def _keep_mark(self, directory: Path) -> None:
        self._mark.write(self._place(directory), self.name)

    @abstractmethod
    def _write(self, directory: Path, news: News) -> None:
        """Write what is new."""

    def _write_end(self, directory: Path, news: News) -> None:  # noqa: B027 - few have any
        """Write what a finished study has besides."""

    @abstractmethod
    def _close_all(self) -> None:
        """Close what was opened."""
