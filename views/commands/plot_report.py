"""`hpo plot` and `hpo report`: a study as pictures or as one HTML page."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from ...errors import ConfigError, StoreError
from ..arguments import study_of
from ..formatting import in_unit
from ..output import note, print_answer
from ..pictures import require_matplotlib
from ..terminal.console import fitted


def do_plot(args: Namespace) -> int:
    from ..charts import knob_charts, search_charts
    from ..charts.matplotlib_files import SUFFIXES, draw_picture
    from ..charts.snapshot import read_snapshot

    if args.at is not None and args.kind != "importance":
        raise ConfigError("--at is an option of hpo plot importance; leave it out")
    path = Path(args.to or f"{args.kind}.png")
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"--to {path}: allowed are files that end in {', '.join(SUFFIXES)}")
    require_matplotlib("hpo plot")
    folder = study_of(args)
    snapshot = read_snapshot(folder)
    build = getattr(knob_charts, args.kind, None) or getattr(search_charts, args.kind)
    options = {} if args.at is None else {"at": args.at}
    picture = in_unit(build(snapshot, **options), snapshot.study.algorithm.unit)
    if not picture.panels:
        raise StoreError(f"nothing to draw of {folder.name!r}: {picture.caption}")
    draw_picture(path, picture, folder.name)
    if not args.json:
        note(f"wrote {path}")
    data = {"study": folder.name, "picture": str(path), "caption": picture.caption}
    print_answer(args.json, data, fitted(picture.caption, sys.stdout))
    return 0


def do_report(args: Namespace) -> int:
    from ..report.report import write_report

    folder = study_of(args)
    path = write_report(folder, None if args.to is None else Path(args.to))
    print_answer(args.json, {"report": str(path)}, str(path))
    return 0
