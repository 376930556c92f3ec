"""The pictures of a study as matplotlib's axes: what `hpo plot` draws into files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...errors import ConfigError, StoreError
from ...store.study_folder import StudyFolder
from ..charts.curves_chart import curves
from ..charts.knob_charts import effects, importance, parallel, slices
from ..charts.matplotlib_files import draw_panel, figure_size, fill_figure
from ..charts.model import Picture
from ..charts.search_charts import history, pareto, schedule
from ..charts.snapshot import Snapshot, read_snapshot
from ..pictures import require_matplotlib
from ..units import in_unit, unit_in


@dataclass(frozen=True)
class Plots:
    """Each method draws one picture and returns its axes, or a list with one per panel.

    With `ax` a picture of one panel is drawn there; else into a new figure.
    """

    folder: Path

    def curves(self, ax: Any = None) -> Any:
        """Draw the learning curves of the best trials."""
        return self._draw(curves(self._read()), ax)

    def history(self, ax: Any = None) -> Any:
        """Draw the value of every trial in the order of their numbers, and the best so far."""
        return self._draw(history(self._read()), ax)

    def importance(
        self,
        ax: Any = None,
        *,
        method: Literal["ped-anova", "fanova"] | None = None,
        at: int | None = None,
        everybody: bool = False,
    ) -> Any:
        """Draw how much of the ranking every hyperparameter explains.

        Args:
            ax: where to draw.
            method: `ped-anova` or `fanova` instead of the test.
            at: env steps at which trials are compared; None: the latest that most reached.
            everybody: for `method`: include trials that a model proposed, which biases it.
        """
        asked: dict[str, Any] = {"method": method, "at": at, "everybody": everybody or None}
        asked = {name: value for name, value in asked.items() if value is not None}
        return self._draw(importance(self._read(), **asked), ax)

    def effects(self, ax: Any = None) -> Any:
        """Draw the mean value along each significant hyperparameter, one panel each."""
        return self._draw(effects(self._read()), ax)

    def schedule(self, ax: Any = None) -> Any:
        """Draw the hyperparameters of every member of a population over env steps."""
        return self._draw(schedule(self._read()), ax)

    def parallel(self, ax: Any = None) -> Any:
        """Draw all trials across parallel coordinates."""
        return self._draw(parallel(self._read()), ax)

    def slices(self, ax: Any = None) -> Any:
        """Draw values along each hyperparameter, one panel each."""
        return self._draw(slices(self._read()), ax)

    def pareto(self, ax: Any = None) -> Any:
        """Draw the front of a study with several objectives."""
        return self._draw(pareto(self._read()), ax)

    def _read(self) -> Snapshot:
        require_matplotlib("hpo.open(...).plot")
        return read_snapshot(StudyFolder(self.folder))

    def _draw(self, picture: Picture, ax: Any) -> Any:
        picture = in_unit(picture, unit_in(self.folder))
        if not picture.panels:
            raise StoreError(f"nothing to draw of {self.folder.name!r}: {picture.caption}")
        if ax is not None:
            if len(picture.panels) != 1:
                count = len(picture.panels)
                raise ConfigError(f"this picture has {count} panels; leave out ax")
            draw_panel(ax, picture.panels[0])
            return ax
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=figure_size(picture), layout="constrained")
        axes = fill_figure(figure, picture, self.folder.name)
        return axes[0] if len(axes) == 1 else axes
