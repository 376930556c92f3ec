"""What runs where: the lanes of every bucket, and the replicate in each."""

from __future__ import annotations

from html import escape

from ...search.after.recorded_progress import in_lanes
from ...search.book.runs import Run, RunState
from ...search.book.state import LoopState
from ...store.rows import Stream
from ..charts.snapshot import Snapshot
from ..formatting import counted, param
from .standing import Standing

__all__ = ["lanes_table"]

_MOST = 512
_STREAMS = {Stream.SEARCH: "c0", Stream.CHOOSE: "c1", Stream.REPORT: "c2"}
_MEANINGS = {
    Stream.SEARCH: "the search",
    Stream.CHOOSE: "selection seeds",
    Stream.REPORT: "test seeds",
}


def lanes_table(snapshot: Snapshot, standing: Standing) -> str:
    """Return the lanes at the last commit, each with its trial; "" once the study is finished."""
    if standing.word == "finished":
        return ""
    if not snapshot.head.number:
        return '<p class="nothing">Nothing is committed yet.</p>'
    state = LoopState.from_text(snapshot.head.loop_state)
    if not state.buckets:
        return '<p class="nothing">No lane is in use.</p>'
    runs = [run for trial in state.live.values() for run in trial.runs]
    waiting = sum(run.state is RunState.WAITING and run.lane is None for run in runs)
    streams = {run.stream for run in runs if run.lane is not None}
    keys = "".join(
        f'<li class="{style}"><i></i>{escape(_MEANINGS[stream])}</li>'
        for stream, style in _STREAMS.items()
        if stream in streams
    )
    note = "The number in a lane is the trial that it trains."
    note += "" if standing.word == "running" else " These are the lanes of the last commit."
    if waiting:
        note += f" {counted(waiting, 'run')} {'waits' if waiting == 1 else 'wait'} for a lane."
    return (
        f'<ul class="legend">{keys}</ul>'
        + "".join(_bucket(state, at) for at in range(len(state.buckets)))
        + f'<p class="note">{note}</p>'
    )


def _bucket(state: LoopState, at: int) -> str:
    bucket = state.buckets[at]
    busy = {run.lane: run for run in in_lanes(state, bucket.key)}
    shown = range(min(bucket.lanes, _MOST))
    cells = "".join(_lane(lane, busy.get(lane), state) for lane in shown)
    more = f", the first {_MOST} of them here" if bucket.lanes > _MOST else ""
    now = ", running now" if bucket.key == state.running and len(state.buckets) > 1 else ""
    title = f"{len(busy)} of {counted(bucket.lanes, 'lane')} busy{more}{now}"
    several = f"bucket {bucket.key[:8]}: " if len(state.buckets) > 1 else ""
    return f'<h3>{escape(several + title)}</h3><ol class="lanes">{cells}</ol>'


def _lane(lane: int, run: Run | None, state: LoopState) -> str:
    if run is None:
        return f'<li class="idle" title="lane {lane}: idle"></li>'
    trial = state.live[run.trial]
    knobs = ", ".join(f"{name} {param(value)}" for name, value in trial.params.items())
    told = (
        f"lane {lane}: trial {run.trial}, seed {run.replicate}, {_MEANINGS[run.stream]}, "
        f"{counted(run.chunks, 'chunk')} done; {knobs}"
    )
    return (
        f'<li class="{_STREAMS[run.stream]}" data-t="{run.trial}" title="{escape(told)}">'
        f"{run.trial}</li>"
    )
