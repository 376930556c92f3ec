"""The parts of a study's page: the status, the lanes, and the sections of the report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from ...errors import counted
from ...search.state.loop_state import LoopState
from ...search.state.progress import Progress, in_lanes, recorded_progress
from ...search.state.trials import Replicate, RunState
from ...store.journal import Journal
from ...store.leaderboard import Entry, leaderboard_of
from ...store.rows import CommitHead, Stream, StudyMeta, TrialRow
from ...store.study_folder import state_of, trials_seen
from ...studies.load import recorded
from ...studies.spec import Study
from ..charts.model import Key
from ..charts.snapshot import Snapshot
from ..formatting import SEED_KINDS, duration, moment, params_text
from ..report.page import legend, placeholder, small_print
from ..report.report import PARTS, head_html
from ..terminal.run_view import left_text, progress_facts

_ALMOST = 0.99
_MOST_LANES = 512
_STREAMS = {Stream.SEARCH: "c0", Stream.CHOOSE: "c1", Stream.REPORT: "c2"}
_WORDS = {
    "running": "Running.", "finished": "Finished.",
    "interrupted": "Interrupted; to resume, rerun the command that started the study.",
    "died": "The process died; to resume from the last commit, rerun the command that started "
    "the study.",
}  # fmt: skip


@dataclass(frozen=True)
class StudyStatus:
    name: str  # name of its folder
    word: str  # running, finished, interrupted or died
    meta: StudyMeta
    study: Study
    head: CommitHead
    progress: Progress | None  # None before the first commit
    first: Entry | None  # first entry of the leaderboard that has a value

    @property
    def share(self) -> float:
        if self.word == "finished":
            return 1.0
        if self.progress is None:
            return 0.0
        return min(self.progress.share, _ALMOST)


def read_standing(folder: Path) -> StudyStatus:
    with Journal(folder, copied=True) as journal, journal.at_one_commit():
        meta, head = journal.meta, journal.head()
        rows = trials_seen(journal)
    entries = leaderboard_of(meta, rows)
    first = next(iter(entries), None)
    if first is not None and first.value is None:
        first = None
    study = recorded(meta.study_text)
    return standing_of(folder, meta, head, study=study, rows=rows, first=first)


def standing_of(
    folder: Path,
    meta: StudyMeta,
    head: CommitHead,
    *,
    study: Study,
    rows: Iterable[TrialRow],
    first: Entry | None,
) -> StudyStatus:
    progress = None
    if head.number:
        state = LoopState.from_text(head.loop_state)
        progress = recorded_progress(study, state, rows)
    word = state_of(folder, head)
    # A process that was asked to stop records that in its last commit.
    if word == "interrupted" and head.phase == "running":
        word = "died"
    return StudyStatus(folder.name, word, meta, study, head, progress, first)


def lanes_table(snapshot: Snapshot, standing: StudyStatus) -> str:
    if standing.word == "finished":
        return ""
    if not snapshot.head.number:
        return placeholder("Nothing is committed yet.")
    state = LoopState.from_text(snapshot.head.loop_state)
    if not state.buckets:
        return placeholder("No lane is in use.")
    runs = [run for trial in state.live.values() for run in trial.runs]
    waiting = sum(run.state is RunState.WAITING and run.lane is None for run in runs)
    streams = {run.stream for run in runs if run.lane is not None}
    styles = {stream: style for stream, style in _STREAMS.items() if stream in streams}
    keys = [Key(f"{SEED_KINDS[stream]} seeds", style, "") for stream, style in styles.items()]
    lanes = standing.study.algorithm.lanes
    buckets = "".join(_bucket_html(state, at, lanes) for at in range(len(state.buckets)))
    note = _lanes_note(standing, lanes, waiting)
    return legend(keys) + buckets + small_print(note)


def _lanes_note(standing: StudyStatus, lanes: str, waiting: int) -> str:
    note = f"The numbers in the {lanes} are trial numbers."
    if standing.word != "running":
        note += f" The {lanes} are shown as of the last commit."
    if waiting:
        note += f" {counted(waiting, 'run')} wait{'s' * (waiting == 1)} for free {lanes}."
    return note


def _bucket_html(state: LoopState, at: int, lanes: str) -> str:
    bucket = state.buckets[at]
    busy = {run.lane: run for run in in_lanes(state, bucket.key)}
    shown = range(min(bucket.lanes, _MOST_LANES))
    cells = "".join(_lane_html(lane, busy.get(lane), state) for lane in shown)
    several = len(state.buckets) > 1
    many = f"{bucket.lanes} {lanes}"
    if lanes == "lanes":
        many = counted(bucket.lanes, "lane")
    title = f"{len(busy)} of {many} busy"
    if several:
        title = f"bucket {bucket.key[:8]}: {title}"
    if bucket.lanes > _MOST_LANES:
        title += f", the first {_MOST_LANES} shown"
    if several and bucket.key == state.running:
        title += ", running now"
    return f'<h3>{escape(title)}</h3><ol class="lanes">{cells}</ol>'


def _lane_html(lane: int, run: Replicate | None, state: LoopState) -> str:
    if run is None:
        return f'<li class="idle" title="lane {lane}: idle"></li>'
    trial = state.live[run.trial]
    knobs = params_text(trial.params)
    title = (
        f"lane {lane}: trial {run.trial}, {SEED_KINDS[run.stream]} seed {run.replicate}, "
        f"{counted(run.chunks, 'chunk')} done; {knobs}"
    )
    kind = _STREAMS[run.stream]
    return f'<li class="{kind}" data-t="{run.trial}" title="{escape(title)}">{run.trial}</li>'


ASKED = ("importance",)
"""Pieces made only on request (as are main effects), because many trials make them slow."""
_SECTIONS = tuple((name, title) for name, (title, _) in PARTS.items() if name != "effects")
PIECES = (
    ("head", ""),
    ("now", ""),
    *_SECTIONS[:-1],
    ("lanes", "Lanes"),
    _SECTIONS[-1],
)
"""(name, title) of the pieces of a study's page, in the report's order; some have no title."""


def part_of(name: str, snapshot: Snapshot, standing: StudyStatus) -> str:
    if name == "head":
        found = head_html(snapshot)
    elif name == "now":
        found = _status_html(standing)
    elif name == "lanes":
        found = lanes_table(snapshot, standing)
    else:
        found = PARTS[name][1](snapshot)
    if name == "importance" and (effects := PARTS["effects"][1](snapshot)):
        found += f"<h3>Main effects</h3>{effects}"
    return found


def progress_bar(standing: StudyStatus) -> str:
    share = standing.share
    bar = f'<progress max="1" value="{share:.4f}"></progress>'
    return f'<span class="share">{bar} <span>{share:.0%}</span></span>'


def _status_html(standing: StudyStatus) -> str:
    head, progress = standing.head, standing.progress
    if progress is None:
        return small_print(f"{escape(_WORDS[standing.word])} Nothing is committed yet.")
    clock = duration(progress.seconds)
    shown = ""
    if standing.word == "running":
        clock += left_text(progress)
        facts = progress_facts(progress, unit=standing.study.algorithm.unit)
        rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts)
        shown = f'<dl class="now">{rows}</dl>'
    commit = f'Last commit: <time data-at="{head.at!r}">{escape(moment(head.at))}</time>.'
    note = small_print(f"{escape(_WORDS[standing.word])} {commit}")
    return (
        f'<div class="standing-line"><p>{progress_bar(standing)} <span>{escape(clock)}</span></p>'
        f"{note}</div>{shown}"
    )
