"""`hpo bundle` and `hpo verify`: a study's results in one file, and that file checked."""

from __future__ import annotations

import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from ...store.study_folder import find_study
from ..bundle.verify import Bundle, Level
from ..bundle.write import sha256, write_bundle
from ..escape_control import echo, note
from ..json_output import print_answer, print_json
from .stop_rm import confirmed

_ANSWERS = {True: "yes", False: "NO", None: "-"}


def do_bundle(args: Namespace) -> int:
    folder = find_study(args.study, Path(args.out), note)
    written = write_bundle(folder, args.trial, Path(args.source), Path(args.to))
    manifest, claims = written.manifest, written.claims["claims"]
    lines = [one["sentence"] for one in claims]
    for why in filter(None, (manifest["numpy"] and f"No policy for NumPy: {manifest['numpy']}.",)):
        lines.append(why)
    size = written.path.stat().st_size
    lines.append(f"{written.path}: {size:,} bytes, sha256 {written.sha256}")
    data = {"path": str(written.path), "bytes": size, "sha256": written.sha256}
    data |= {**manifest, "claims": claims}
    print_answer(args.json, data, "\n".join(lines))
    return 0


def do_verify(args: Namespace) -> int:
    """Check the levels that were asked for; exit code 1 if one does not hold."""
    path = Path(args.file)
    levels: list[Level] = []

    def show(level: Level) -> None:
        levels.append(level)
        if not args.json:
            for text in (
                f"{level.name:<11}{_ANSWERS[level.holds]:<4} {level.words}",
                *level.found,
            ):
                echo(text)

    with tempfile.TemporaryDirectory(prefix="hpo-verify-") as temporary:
        bundle = Bundle(path, Path(temporary) / "study")
        show(bundle.intact())
        level, claims = bundle.consistent()
        show(level)
        costs = {"play": bundle.play_cost(args.episodes), "retrain": bundle.retrain_cost()}
        for name, run in (
            ("play", lambda: bundle.play(args.episodes)),
            ("retrain", bundle.retrain),
        ):
            if not getattr(args, name):
                word = {"play": "playable", "retrain": "retrained"}[name]
                show(Level(word, None, f"not asked: --{name} {costs[name]}"))
                continue
            note(costs[name])
            bundle.allow(lambda files: args.allow_code or _ask(files))
            show(run())
    holds = all(level.holds is not False for level in levels)
    data: dict[str, Any] = {"path": str(path), "sha256": sha256(path), "holds": holds}
    if args.json:
        print_json({**data, "levels": [vars(level) for level in levels], **claims})
    elif holds:
        echo(
            "\n".join(
                ["", *(one["sentence"] for one in claims["claims"]), f"sha256 {data['sha256']}"]
            )
        )
    return 0 if holds else 1


def _ask(files: list[str]) -> bool:
    note(f"the bundle brings code: {', '.join(files)}")
    return confirmed("Run it? [y/N] ", "run this code", "--allow-code")
