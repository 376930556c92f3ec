"""What the lanes of a study start with where it names a saved policy: `init`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...core.hypers import Hypers
from ...core.initial import Initial, kept
from ...core.plan import Plan
from ...core.policy_folder import load_policy
from ...core.policy_parts import read_part
from ...core.population import lane_shapes
from ...core.reward_state import reward_notes
from ...errors import ConfigError
from ...studies.buckets import buckets_of, words_of_bucket
from .configuration import Split

__all__ = ["SavedStart"]

_TRIED = 12
"""Buckets that a saved policy is held against before a study begins."""


class SavedStart:
    """The saved policy that the lanes of a study start from, if there is one.

    Args:
        split: splits the study's configurations.
        warn: takes a line about what is not as it was saved, each once.

    Raises:
        StoreError: there is no policy where the study says.
    """

    def __init__(self, split: Split, warn: Callable[[str], None]):
        self._split, self._warn = split, warn
        self._noted: set[str] = set()
        init = split.study.init
        if init is None:
            self._saved = None
            return
        self._folder = Path(split.study.source) / init.folder
        self._saved = load_policy(self._folder)

    def check(self) -> None:
        """Refuse a policy that does not fit a bucket; of many buckets the first few are tried.

        Raises:
            ConfigError: as of `of`, and for which bucket.
        """
        if self._saved is None:
            return
        study = self._split.study
        buckets = buckets_of(study, lambda config: self._split.resolve(config).bucket)
        for bucket in buckets.found[:_TRIED]:
            parts = self._split.parts(bucket.config)
            try:
                self.of(parts.plan, parts.hypers)
            except ConfigError as error:
                if len(buckets.found) == 1:
                    raise
                raise ConfigError(
                    f"{error} (of {words_of_bucket(study, bucket.config)})"
                ) from None

    def of(self, plan: Plan, example: Hypers) -> Initial | None:
        """Return what lanes of a plan start with, None for fresh ones.

        Raises:
            ConfigError: it does not fit this plan.
            StoreError: it has no state of the optimiser, and that was asked for.
        """
        init, saved = self._split.study.init, self._saved
        if init is None or saved is None:
            return None
        shapes = lane_shapes(plan, example)
        normalised = bool(saved.config["normalise_observations"])
        raw, units = bool(saved.config.get("raw_reward_deviation")), self._split.reward_units
        rewards = saved.rewards and saved.rewards.in_units(raw, units)
        initial = kept(
            plan, shapes, saved.params, saved.statistics, init.keep, normalised, rewards
        )
        if init.keep != "policy":
            for line in reward_notes(plan, rewards, units == {raw}):
                if line not in self._noted:
                    self._noted.add(line)
                    self._warn(line)
        if init.optimiser == "restored":
            moments = read_part(self._folder, "optimiser", shapes.moments)
            initial = initial.replace(moments=moments)
        return initial
