"""`hpo bundle`, `hpo verify` and `hpo paper`: results for publication, and their verification."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...errors import ConfigError, StoreError, counted
from ...files.atomic_files import temporary_folder, write_text
from ...store.study_folder import find_study, first_of
from ..bundle.levels import Level
from ..bundle.page import verify_page
from ..bundle.play_and_train import (
    ClaimSeeds,
    playable,
    retrained,
    seconds_of_a_run,
    sides_of,
    why_not_playable,
    why_not_retrained,
    words_of,
)
from ..bundle.verify import Bundle
from ..bundle.write import sha256, write_bundle
from ..charts.snapshot import Snapshot, read_snapshot
from ..formatting import duration, unit_in
from ..output import echo, note, print_answer
from ..paper.document import distinctly_named, paper_as_json, paper_of, write_paper
from ..paper.results import result_rows
from ..pictures import require_matplotlib
from ..terminal.console import fitted


def do_bundle(args: Namespace) -> int:
    path = Path(args.to)
    folder = find_study(args.study, Path(args.out), note)
    about = write_bundle(folder, args.trial, Path(args.source), path)
    said = [sentence for one in about["claims"] for sentence in one["sentences"]]
    lines = [fitted(sentence, sys.stdout) for sentence in said]
    lines += [f"No policy for NumPy: {why}." for why in filter(None, [about["no_numpy"]])]
    data = {"path": str(path), "bytes": path.stat().st_size, "sha256": sha256(path)}
    lines.append(f"wrote {path}: {data['bytes']:,} bytes, sha256 {data['sha256']}")
    print_answer(args.json, {**data, **about}, "\n".join(lines))
    return 0


def do_paper(args: Namespace) -> int:
    if not args.no_figures:
        require_matplotlib("hpo paper without --no-figures")
    names = args.studies or [None]
    folders = [find_study(name, Path(args.out), note) for name in names]
    paths = [folder.path.resolve() for folder in folders]
    for path in paths:
        if paths.count(path) > 1:
            raise ConfigError(f"study {path.name!r} is named twice; name each study once")
    snapshots = distinctly_named([read_snapshot(folder) for folder in folders])
    for snapshot in snapshots:
        if snapshot.standing != "finished":
            note(f"{snapshot.meta.name} is {snapshot.standing}; these are the results so far")
    paper = paper_of(snapshots, not args.no_figures)
    written = write_paper(paper, Path(args.to))
    for text in paper.notes:
        note(text)
    rows = sum(len(result_rows(snapshot)) for snapshot in snapshots)
    lines = [
        *(
            fitted(_verdict_sentence(snapshot, len(snapshots)), sys.stdout)
            for snapshot in snapshots
        ),
        f"wrote {counted(len(written), 'file')} to {Path(args.to)}/ "
        f"({counted(rows, 'row')} of results)",
        f"compile: cd {shlex.quote(args.to)} && pdflatex paper && bibtex paper && pdflatex paper "
        "&& pdflatex paper",
    ]
    data = {**paper_as_json(paper, snapshots), "files": [str(path) for path in written]}
    print_answer(args.json, data, "\n".join(lines))
    return 0


def _verdict_sentence(snapshot: Snapshot, studies: int) -> str:
    """Return a verdict's first sentence, with the study's name if there are several studies."""
    first = next(iter(snapshot.conclusion.said), "No value yet.")
    if studies == 1:
        return first
    return f"{snapshot.meta.name}: {first}"


def do_verify(args: Namespace) -> int:
    if args.page is not None:
        return _write_page(args)
    if args.file is None:
        raise ConfigError(
            "give a bundle, such as my.zip, or write the page for a browser with --page"
        )
    if args.seeds is not None and not args.retrain:
        raise ConfigError("--seeds works only with --retrain; add --retrain")
    path, levels = Path(args.file), list[Level]()

    def show(level: Level) -> None:
        levels.append(level)
        if not args.json:
            echo(_level_text(level))

    with temporary_folder("verify") as temporary:
        bundle = Bundle(path, temporary / "study")
        show(bundle.intact())
        level, found = bundle.consistent()
        show(level)
        for one in _levels_that_run(bundle, found, level.holds is True, args):
            show(one)
    holds = all(level.holds is not False for level in levels)
    claims = _claims_data(found["claims"], levels[-1])
    data = {"path": str(path), "sha256": sha256(path), "holds": holds, "claims": claims}
    data["sentences"] = [said for one in claims for said in one["sentences"]]
    lines: list[str] = []
    if holds:
        lines = [*_claims_lines(claims, levels[-1]), f"sha256 {data['sha256']}"]
    print_answer(
        args.json, {**data, "levels": [vars(level) for level in levels]}, "\n".join(lines)
    )
    return 0 if holds else 1


def _write_page(args: Namespace) -> int:
    """Write the page that verifies bundles in a browser."""
    if args.file is not None:
        raise ConfigError(
            f"--page only writes a page and does not check a bundle; remove {args.file}"
        )
    path = Path(args.page)
    if path.exists():
        raise StoreError(f"{path} already exists; choose another file")
    write_text(path, verify_page())
    text = f"wrote {path}: open it in a browser and drop a bundle on it"
    print_answer(args.json, {"page": str(path)}, text)
    return 0


def _level_text(level: Level) -> str:
    answer = {True: "yes", False: "NO", None: "-"}[level.holds]
    lines = [f"{level.name:<11} {answer:<4} {level.words}", *level.wrong]
    if level.not_read and level.holds:
        lines.append(f"not checked here: {level.not_read}")
    return "\n  ".join(lines)


def _levels_that_run(
    bundle: Bundle, found: dict[str, Any], sound: bool, args: Namespace
) -> Iterator[Level]:
    """Yield the levels `playable` and `retrained`, if requested and if running code is allowed."""
    claims = found["claims"]
    sides = list[ClaimSeeds]()
    if sound:
        sides = sides_of(bundle, claims, args.seeds)
    new = counted(args.episodes, "new episode")
    play = f"starts jax and plays the recorded episodes and {new}, in about a minute"
    train = f"starts jax and trains {_retraining_cost(bundle, sides)}"
    for name, asked, option, cost, why_not, run in (
        (
            "playable",
            args.play,
            "--play",
            play,
            lambda: why_not_playable(bundle),
            lambda: playable(bundle, args.episodes),
        ),
        (
            "retrained",
            args.retrain,
            "--retrain",
            train,
            lambda: why_not_retrained(bundle, sides),
            lambda: retrained(bundle, claims, sides),
        ),
    ):
        if not sound:
            yield Level(name, None, "the bundle is not consistent")
        elif why := why_not():  # before anything is announced
            yield Level(name, None, why)
        elif not asked:
            yield Level(name, None, f"not requested: {option} {cost}")
        else:
            note(f"{option} {cost}")
            _allow_code(bundle, args)
            yield run()


def _allow_code(bundle: Bundle, args: Namespace) -> None:
    """Ask for permission to run a bundle's code, unless it was already given."""
    if not bundle.code or args.allow_code:
        return
    note(f"{bundle.path} contains code: {', '.join(bundle.code)}")
    if not _is_allowed():
        raise StoreError(f"code in the bundle was not allowed to run: {first_of(bundle.code)}")


def _retraining_cost(bundle: Bundle, sides: Sequence[ClaimSeeds]) -> str:
    if not sides:
        return "the seeds behind the bundle's claims"
    runs, unit = sum(len(side.drawn) for side in sides), unit_in(bundle.folder)
    length = f"{bundle.study.horizon:,} {unit}"
    took = seconds_of_a_run(bundle)
    time = ""
    if took:
        time = f"; one run took {duration(took)} in the study"
    return f"{counted(runs, 'run')} of {length}, {words_of(sides)}{time}"


def _claims_data(claims: Sequence[dict[str, Any]], retrained: Level) -> list[dict[str, Any]]:
    """Return the claims, each with the retrained seeds that support it."""
    return [
        {
            "about": one["about"],
            "sentences": one["sentences"],
            "retrained": retrained.covers if one["about"] in retrained.claims else None,
        }
        for one in claims
    ]


def _claims_lines(claims: Sequence[dict[str, Any]], level: Level) -> list[str]:
    """Return the sentences of the claims, retrained claims first."""
    again = [said for one in claims if one["retrained"] for said in one["sentences"]]
    rest = [said for one in claims if not one["retrained"] for said in one["sentences"]]
    lines = [""]
    if again:
        lines += [f"{level.covers}:", *map(_indent_sentence, again)]
    if rest:
        lines += ["Claimed, not retrained:", *map(_indent_sentence, rest)]
    return lines


def _indent_sentence(said: str) -> str:
    return fitted(f"  {said}", sys.stdout)


def _is_allowed() -> bool:
    """Ask in the terminal whether to run code; without one, raise `ConfigError`."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError(
            "cannot ask for permission without a terminal; to run this code: --allow-code"
        )
    echo("Run it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
