"""`hpo bundle` and `hpo verify`: a study's results in one file, and that file checked."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from ...errors import ConfigError, StoreError, counted
from ...files.atomic_files import temporary_folder
from ...store.study_folder import find_study, first_of
from ..bundle.verify import Bundle, Level
from ..bundle.write import sha256, write_bundle
from ..formatting import duration, steps
from ..output import echo, note, print_answer


def do_bundle(args: Namespace) -> int:
    path = Path(args.to)
    folder = find_study(args.study, Path(args.out), note)
    about = write_bundle(folder, args.trial, Path(args.source), path)
    lines = [one["sentence"] for one in about["claims"]]
    lines += [f"No policy for NumPy: {why}." for why in filter(None, [about["no_numpy"]])]
    data = {"path": str(path), "bytes": path.stat().st_size, "sha256": sha256(path)}
    lines.append(f"wrote {path}: {data['bytes']:,} bytes, sha256 {data['sha256']}")
    print_answer(args.json, {**data, **about}, "\n".join(lines))
    return 0


def do_verify(args: Namespace) -> int:
    path, levels = Path(args.file), list[Level]()

    def show(level: Level) -> None:
        levels.append(level)
        if not args.json:
            answer = {True: "yes", False: "NO", None: "-"}[level.holds]
            echo("\n  ".join([f"{level.name:<11} {answer:<4} {level.words}", *level.wrong]))

    with temporary_folder("verify") as temporary:
        bundle = Bundle(path, temporary / "study")
        show(Level("intact", True, f"{counted(len(bundle.members), 'member')} by sha256"))
        level, found = bundle.consistent()
        show(level)
        sentences = [one["sentence"] for one in found["claims"]]
        play = f"starts jax and plays {counted(args.episodes, 'episode')}: about a minute"
        share = f"its share of the study took {duration(found['train_seconds'])}"
        train = f"starts jax and trains {steps(found['env_steps'])} env steps: {share}"
        for name, asked, option, cost, run in (
            ("playable", args.play, "--play", play, lambda: bundle.play(args.episodes)),
            ("retrained", args.retrain, "--retrain", train, bundle.retrain),
        ):
            if not asked or not level.holds:
                why = f"not asked: {option} {cost}"
                show(Level(name, None, why if level.holds else "it is not consistent"))
                continue
            note(cost)
            if bundle.code and not args.allow_code:
                note(f"{bundle.path} brings code: {', '.join(bundle.code)}")
                if not _is_allowed():
                    raise StoreError(f"its code was not allowed to run: {first_of(bundle.code)}")
            show(run())
    data = {"path": str(path), "sha256": sha256(path), "sentences": sentences}
    data["holds"] = all(level.holds is not False for level in levels)
    text = "\n".join(["", *sentences, f"sha256 {data['sha256']}"] if data["holds"] else [])
    print_answer(args.json, {**data, "levels": [vars(level) for level in levels]}, text)
    return 0 if data["holds"] else 1


def _is_allowed() -> bool:
    """Ask in the terminal; `ConfigError` names the option where there is none."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError("cannot ask without a terminal; to run this code: --allow-code")
    echo("Run it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
