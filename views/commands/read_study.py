"""`hpo top`, `show`, `query`, `list`, `best`, `stop`, `plot`, `report`: use existing studies."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ...core.policy_document import IMPORTS, NAME, TRAINING, read_about, read_imports
from ...errors import ConfigError, StoreError, counted
from ...files.atomic_files import copy_folder, write_bytes
from ...files.plain_data import escaped
from ...search.analysis.verdict import conclusion_of
from ...store.audits import Audit, audit_of
from ...store.baselines import BaselineEntry, baseline_entries, baselines_of
from ...store.codec import finite_json
from ...store.environment_columns import environment_names
from ...store.journal import Journal
from ...store.leaderboard import Entry, Ranking, leaderboard_of, volume_of
from ...store.lock import ask_to_stop, lock_holder
from ...store.query import CELLS, Rows, rows_as_json, streamed
from ...store.rows import Stream, StudyMeta, TrialRow
from ...store.statistics import sign_of
from ...store.study_folder import (
    PROCESS,
    StudyFolder,
    find_tables,
    list_studies,
    one_policy,
    state_of,
    summary_of,
    trials_seen,
)
from ...store.value_bounds import value_bounds
from ...store.verdict import Conclusion
from ...store.verdict_text import as_json
from ...studies.resolved import as_recorded
from ...studies.stopping_rules import finishing_rules
from ...studies.tuned.record import PLACE, shipped
from ..arguments import path_or_none, study_of
from ..formatting import SEED_KINDS, aligned_line, number, recorded_value_words, steps, unit_of
from ..leaderboard_text import (
    audit_words,
    deciding_command,
    explained,
    front_line,
    headline,
    kept_words,
    print_baselines,
    print_headline,
    print_leaderboard,
    target,
    winner_line,
)
from ..output import echo, note, print_answer, print_json
from ..resuming import resuming
from ..terminal.console import console, fitted, in_columns, knows_blocks, print_listing
from ..trial_page import trial_page
from ..trial_text import trial_text
from ..trial_view import Board
from ..words import value_text
from .catalogue import studies_listing

_ROWS = 8


def csv_pieces(rows: Rows) -> Iterator[str]:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(rows.columns)
    for some in rows:
        writer.writerows([*map(_csv_cell, row)] for row in some)
        yield out.getvalue()
        out.seek(0)
        out.truncate()
    yield out.getvalue()


def json_pieces(rows: Rows) -> Iterator[str]:
    before = "[\n"
    for some in rows:
        text = json.dumps(rows_as_json(rows.columns, some), indent=2, allow_nan=False)
        yield before + text.removeprefix("[\n").removesuffix("\n]")
        before = ",\n"
    if before == "[\n":
        yield "[]\n"
    else:
        yield "\n]\n"


def table_pieces(rows: Rows) -> Iterator[str]:
    header = [name or "?" for name in rows.columns]
    widths, right, waiting = [*map(len, header)], [True] * len(header), list[list[str]]()
    for some in rows:
        waiting += [[*map(_cell_text, row)] for row in some]
        if len(waiting) * len(header) > CELLS:
            text = f"the table has more than {CELLS:,} cells"
            raise StoreError(f"{text}; add LIMIT 1000, or use --csv or --json")
        for place, column in enumerate(zip(*waiting[-len(some) :], strict=True)):
            widths[place] = max(widths[place], *map(len, column))
            right[place] = right[place] and all(_is_number(r[place]) for r in some)
    for line in (header, ["-" * width for width in widths], *waiting):
        yield f"{aligned_line(line, widths, right)}\n"


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _cell_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_cell_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_cell_text(item)}' for key, item in value.items())}}}"
    # Each row is one line, and text from a study must not control the terminal.
    return escaped(str(value))


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(rows_as_json(["cell"], [(value,)])[0]["cell"])
    return value


@dataclass(frozen=True)
class _StudyResults:
    rows: Mapping[int, TrialRow]
    entries: list[Entry]
    baselines: list[BaselineEntry]
    meta: StudyMeta
    metric: str  # name of the values used for selection
    unit: str  # unit of a run's length
    state: str
    audit: Audit | None
    conclusion: Conclusion

    @property
    def front_line(self) -> str:
        return front_line(self.entries, volume_of(self.entries, Ranking.of(self.meta)))


def _read_results(folder: StudyFolder) -> _StudyResults:
    with Journal(folder.path) as journal, journal.at_one_commit():
        meta, head = journal.meta, journal.head()
        rows = trials_seen(journal)
        entries = leaderboard_of(meta, rows)
        audit = None
        if any(row.audited for row in rows):
            audit = audit_of(meta, rows, journal.decisions(), finishing_rules())
        baselines = baseline_entries(baselines_of(journal), entries, meta.goal, value_bounds(meta))
        conclusion = conclusion_of(journal, rows, entries)
        metric = recorded_value_words(journal)
    return _StudyResults(
        rows={row.trial: row for row in rows},
        entries=entries,
        baselines=baselines,
        meta=meta,
        metric=metric,
        unit=unit_of(meta.study_text),
        state=state_of(folder.path, head),
        audit=audit,
        conclusion=conclusion,
    )


def do_top(args: Namespace) -> int:
    folder = study_of(args)
    results = _read_results(folder)
    if args.json:
        print_json(_top_data(folder.name, results, args.n))
    elif args.latex or args.markdown:
        _print_for_paper(results, args)
    elif args.explain:
        console(sys.stdout).print(explained(results.unit), soft_wrap=True)
    else:
        _print_top(console(sys.stdout), folder.path, results, args.n)
    return 0


def _top_data(name: str, results: _StudyResults, most: int | None) -> dict[str, Any]:
    environments = environment_names(results.meta.environments)
    several, audit = dict[str, Any](), None
    if environments:
        several["environments"] = list(environments)
    if results.audit is not None:
        audit = finite_json(asdict(results.audit))
    return {
        "study": name,
        "state": results.state,
        "metric": results.meta.metric,
        "goal": results.meta.goal,
        **several,
        "conclusion": as_json(results.conclusion),
        "leaderboard": [entry.as_json() for entry in results.entries[:most]],
        "baselines": [entry.as_json() for entry in results.baselines],
        "audit": audit,
    }


def _print_top(out: Console, folder: Path, results: _StudyResults, most: int | None) -> None:
    board, which = Board.of_study(results.meta, results.entries), target(folder)
    print_headline(
        out, headline(results.conclusion, results.entries, results.metric, results.unit)
    )
    if results.state not in ("finished", "interrupted"):
        out.print(f"The study is {results.state}; these are its results so far.")
    for text in _ways_on(folder, results):
        out.print(text, soft_wrap=True)
    if board.objectives:
        out.print(results.front_line)
    out.print()
    print_leaderboard(out, board, most or _ROWS, which)
    if board.entries and not board.objectives and not most:
        out.print(Text(f"What the columns mean: hpo top --explain{which}", style="dim"))
    if results.audit is not None:
        out.print(f"Early stopping: {audit_words(results.audit, results.metric)}")
    if results.baselines:
        out.print()
        print_baselines(out, results.baselines)


def _ways_on(folder: Path, results: _StudyResults) -> list[str]:
    """Return the command that tests a finished study or resumes an interrupted one, if any."""
    if results.state == "interrupted":
        return [f"Interrupted: {resuming(folder)}"]
    if results.state != "finished":
        return []
    deciding = deciding_command(results.conclusion, results.entries, folder)
    if deciding is None:
        return []
    return [f"To decide ({deciding[1]}):\n  {deciding[0]}"]


def _print_for_paper(results: _StudyResults, args: Namespace) -> None:
    from ..paper.results import leaderboard_for_paper

    if args.latex and args.markdown:
        raise ConfigError("--latex and --markdown are two formats; choose one")
    if not results.entries:
        raise StoreError("the study has no trials yet; see: hpo list")
    verdict = results.conclusion.said[:1]
    form = "markdown"
    if args.latex:
        form = "latex"
    table = leaderboard_for_paper(results.meta, results.entries, args.n or _ROWS, verdict)
    echo(table.written(form), end="")


def do_show(args: Namespace) -> int:
    folder = study_of(args)
    page = trial_page(folder, args.trial)
    text = trial_text(page, knows_blocks(sys.stdout), args.verbose)
    output = folder.path / "processes" / f"trial_{page.view.trial}"
    if output.is_dir():  # of a study with `command`
        text += f"\n\nOutput of its processes: {output}/"
    print_answer(args.json, page.as_json(), text)
    return 0


def do_query(args: Namespace) -> int:
    pieces = table_pieces
    if args.csv:
        pieces = csv_pieces
    if args.json:
        pieces = json_pieces
    ours = {name: shipped() for name in (PLACE.name, PLACE.as_posix())}
    folder = find_tables(args.study, Path(args.out), ours, note)
    with streamed(folder, args.sql, args.timeout or None) as rows:
        for piece in pieces(rows):
            echo(piece, end="")
    return 0


def do_list(args: Namespace) -> int:
    root = Path(args.out)
    studies = list_studies(root, note)
    if args.json:
        print_json([study.as_json() for study in studies])
    elif studies:
        print_listing(console(sys.stdout), studies_listing(studies))
        for study in studies:
            if study.error:
                note(f"{study.name}: {study.error}")
    else:
        note(f"no study in {root}/; start one with: hpo run study.yaml")
    return 0


def do_best(args: Namespace) -> int:
    if args.onnx and args.export is None:
        raise ConfigError("--onnx needs --export DIR, where it writes policy.onnx")
    folder = study_of(args)
    results = _read_results(folder)
    entries, meta = results.entries, results.meta
    first = next(iter(entries), None)
    if first is None or first.value is None:
        return _print_leader(folder, results, args)
    details: dict[str, Any] = {"metric": meta.metric, "conclusion": as_json(results.conclusion)}
    details |= {"exported_to": None, "exported": None}
    target = path_or_none(args.export)
    if target is not None:
        export_policy(folder, first.trial, target, args.onnx)
        details |= {"exported_to": str(target), "exported": _origin_of(target)}
    if args.json:
        print_json({**first.as_json(), **details})
        return 0
    lines = _front_lines(results, first) if meta.objectives else _winner_lines(results)
    for text in lines:
        echo(text)
    _print_fixed(meta, first.params)
    if len(results.rows[first.trial].schedule) > 1:
        note(f"the trial was trained with different values earlier; see hpo show {first.trial}")
    _note_default(results.conclusion, first)
    if target is not None:
        print_exported(target, meta.study_text)
    return 0


def _front_lines(results: _StudyResults, first: Entry) -> list[str]:
    said = [*results.conclusion.said, results.front_line]
    lines = [in_columns(text, sys.stdout) for text in said]
    front = [e for e in results.entries if e.front == 1 and e.confirmed == first.confirmed]
    if len(front) > 1:
        why = "it has the largest crowding distance on the front"
        lines.append(f"Trial {first.trial} ranks first: {why}.")
    return lines


def _winner_lines(results: _StudyResults) -> list[str]:
    said = [winner_line(results.entries, results.metric, results.unit)]
    said += headline(results.conclusion, results.entries, results.metric, results.unit)
    return [in_columns(text, sys.stdout) for text in dict.fromkeys(said)]


def _note_default(conclusion: Conclusion, first: Entry) -> None:
    """Mention the default if the advice is to keep it, but a different trial was printed."""
    keep = conclusion.front is None and conclusion.against.advice == "keep"
    if keep and first.trial != 0:
        note("to keep the default instead: hpo show 0")


def _print_fixed(meta: StudyMeta, params: Mapping[str, Any]) -> None:
    """Print the searched values, and then the fixed ones."""
    values = {**params, **as_recorded(meta.study_text)["fixed"]}
    if not values:
        echo("fixed: {}")
        return
    echo("fixed:")
    for name, value in values.items():
        echo(f"  {name}: {_yaml_text(value)}")


def _finite_values(values: Mapping[int, float]) -> dict[int, float]:
    return {trial: value for trial, value in values.items() if math.isfinite(value)}


def _print_leader(folder: StudyFolder, results: _StudyResults, args: Namespace) -> int:
    from ...search.analysis.checkpoint_values import read_points  # imports numpy

    points = read_points(folder.path)
    known = {at: _finite_values(found) for at, found in points.values.items()}
    at = max((at for at, found in known.items() if len(found) > 1), default=None)
    if at is None or results.meta.objectives or args.export is not None:
        text = f"no trial of {folder.name!r} has finished its run yet; see: hpo top"
        raise StoreError(f"{text}{target(folder.path)}")
    sign = sign_of(results.meta.goal)
    trial, value = max(known[at].items(), key=lambda pair: (sign * pair[1], -pair[0]))
    params, reached = points.params(trial, at), len(known[at])
    if args.json:
        entry = next(entry for entry in results.entries if entry.trial == trial)
        details = {"metric": results.meta.metric, "conclusion": as_json(results.conclusion)}
        details |= {"at": at, "value_at": value, "trials_at": reached}
        print_json({**entry.as_json(), **details, "exported_to": None, "exported": None})
        return 0
    seeds = counted(len(points.seeds[str(Stream.SEARCH), trial, at]), "search seed")
    text = f"No trial has finished its run. Trial {trial} leads {reached} trials at {steps(at)} "
    text += (
        f"{results.unit}, the latest point that at least two reached: {number(value)} on {seeds}."
    )
    echo(in_columns(text, sys.stdout))
    _print_fixed(results.meta, params)
    return 0


def _yaml_text(value: Any) -> str:
    if value is None:
        return "off"
    if isinstance(value, float) and "e" in repr(value) and "." not in repr(value):
        return f"{value:.1e}"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value)


def print_exported(target: Path, study_text: str) -> None:
    origin = _origin_of(target)
    what = kept_words(target)
    value, length = origin.get("value"), origin.get("env_steps")
    is_process = (target / PROCESS).is_file()
    text = f"wrote the {what} of trial {origin.get('trial')}, "
    text += f"{SEED_KINDS.get(str(origin.get('stream')), '')} seed {origin.get('replicate')}"
    if isinstance(value, int | float):
        text += f", {origin.get('metric')} {number(value)}"
    if isinstance(length, int):
        text += f" after {steps(length)} {unit_of(study_text)}"
    note(fitted(f"{text}, to {target}/", sys.stderr))
    if not is_process:
        note(f"try: {eval_command(target, as_recorded(study_text)['imports'])}")


def _origin_of(policy: Path) -> dict[str, Any]:
    folder = one_policy(policy)
    kinds = (name for name in (TRAINING, PROCESS) if (folder / name).is_file())
    return dict(read_about(folder / next(kinds, NAME)))


def eval_command(folder: Path, imports: Sequence[str]) -> str:
    """Return the command that evaluates a kept policy, with the files that its study imports."""
    policy = one_policy(folder)
    if not (policy / TRAINING).is_file():
        imports = [str(policy / IMPORTS / name) for name in read_imports(policy / NAME)]
    return f"hpo eval {value_text((policy, imports))}"


def check_export(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"{target} already exists; choose another folder with --export")


def export_policy(folder: StudyFolder, trial: int, target: Path, onnx: bool = False) -> None:
    """Copy a trial's kept policy, and those of its other seeds, to a new folder.

    With `onnx`, also write it as `policy.onnx`.
    """
    source = folder.policies / f"trial_{trial}"
    if not source.is_dir():
        text = f"no policy of trial {trial} was saved; raise checkpoint.keep_best"
        raise StoreError(f"{text} in the study file and run the study with --new")
    check_export(target)
    model = None
    if onnx:
        from ..bundle.policy_forms import model_of  # imports numpy

        model = model_of(source)
    seeds = source.with_name(f"{source.name}_seeds")
    more = dict[str, Path]()
    if seeds.is_dir():
        more["seeds"] = seeds
    copy_folder(source, target, more)
    if model is not None:
        write_bytes(target / "policy.onnx", model)


def do_stop(args: Namespace) -> int:
    folder = study_of(args)
    holder = lock_holder(folder.path)
    if holder is None:
        raise StoreError(f"{folder.name} is not running; see: hpo list")
    ask_to_stop(folder.path, holder)
    asked = f"asked {holder.partition(', since')[0]} to stop {folder.name}"
    if args.no_wait:
        note(asked)
    else:
        note(f"{asked}; the process will finish its chunk, commit and stop")
        while lock_holder(folder.path) == holder:
            time.sleep(0.2)
    summary = summary_of(folder.path)
    ended = f"{summary.done} of {counted(summary.trials, 'trial')} ended"
    text = f"{summary.name}: {summary.state}, {ended}"
    if summary.state == "interrupted":
        text += f"; {resuming(folder.path)}"
    print_answer(args.json, {"study": folder.name, "state": summary.state}, text)
    return 0


def do_plot(args: Namespace) -> int:
    from ..charts import knob_charts, search_charts
    from ..charts.matplotlib_files import SUFFIXES, draw_picture
    from ..charts.snapshot import read_snapshot
    from ..pictures import require_matplotlib

    if args.at is not None and args.kind != "importance":
        raise ConfigError("--at works only with hpo plot importance; remove it")
    path = Path(args.to or f"{args.kind}.png")
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"--to {path}: the name must end in {' or '.join(SUFFIXES)}")
    require_matplotlib("hpo plot")
    folder = study_of(args)
    snapshot = read_snapshot(folder)
    build = getattr(knob_charts, args.kind, None) or getattr(search_charts, args.kind)
    options: dict[str, Any] = {}
    if args.at is not None:
        options["at"] = args.at
    picture = build(snapshot, **options)
    if not picture.panels:
        raise StoreError(f"nothing to draw for {folder.name!r}: {picture.caption}")
    draw_picture(path, picture, folder.name)
    if not args.json:
        note(f"wrote {path}")
    data = {"study": folder.name, "picture": str(path), "caption": picture.caption}
    print_answer(args.json, data, fitted(picture.caption, sys.stdout))
    return 0


def do_report(args: Namespace) -> int:
    from ..report.report import write_report

    path = write_report(study_of(args), path_or_none(args.to))
    print_answer(args.json, {"report": str(path)}, str(path))
    return 0
