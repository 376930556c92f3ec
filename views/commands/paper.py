"""`hpo paper`: the methods, tables, figures and references of studies, ready for a paper."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ...errors import ConfigError, counted
from ...store.study_folder import find_study
from ..charts.snapshot import read_snapshot
from ..output import note, print_answer
from ..paper.document import paper_as_json, paper_of, write_paper
from ..paper.results import result_rows
from ..pictures import require_matplotlib


def do_paper(args: Namespace) -> int:
    if not args.no_figures:
        require_matplotlib("hpo paper without --no-figures")
    names = args.studies or [None]
    folders = [find_study(name, Path(args.out), note) for name in names]
    paths = [folder.path.resolve() for folder in folders]
    for path in paths:
        if paths.count(path) > 1:
            raise ConfigError(f"study {path.name!r} is named twice; name each study once")
    snapshots = [read_snapshot(folder) for folder in folders]
    for snapshot in snapshots:
        if snapshot.standing != "finished":
            note(f"{snapshot.meta.name} is {snapshot.standing}: these are its results so far")
    paper = paper_of(snapshots, not args.no_figures)
    written = write_paper(paper, Path(args.to))
    for text in paper.notes:
        note(text)
    rows = sum(len(result_rows(snapshot)) for snapshot in snapshots)
    first = paper.results[0].replace("`", "") if paper.results else "No value yet."
    lines = [
        first,
        f"wrote {counted(len(written), 'file')} to {args.to}/ ({counted(rows, 'row')} of results)",
        f"compile: cd {args.to} && pdflatex paper && bibtex paper && pdflatex paper "
        "&& pdflatex paper",
    ]
    data = {**paper_as_json(paper, snapshots), "files": [str(path) for path in written]}
    print_answer(args.json, data, "\n".join(lines))
    return 0
