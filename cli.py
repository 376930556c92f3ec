"""The command `hpo`: the words of a command line to a call of `hpo.views.commands`.

Results go to stdout, everything else to stderr. Nothing but the parser is imported before a verb
is known, so that `hpo --help` answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from . import __version__
from .errors import HpoError, suggestion
from .views.visible import echo

__all__ = ["main"]

_FORMATS = ("csv", "optuna", "tensorboard", "wandb")
_METHODS = ("ped-anova", "fanova")
_PICTURES = ("history", "curves", "parallel", "slices", "importance", "pareto")
_INTERRUPTED = 130
_BROKEN_PIPE = 141  # what a shell reports of a program that SIGPIPE ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; without words print the help.

    Returns:
        The exit code: 0, 1, 2 for a mistake, 130 for Ctrl-C, 141 for a closed pipe.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    try:
        args = _parse(given)
        module, function = args.call
        code = getattr(import_module(f".views.commands.{module}", __package__), function)(args)
        sys.stdout.flush()
    except SystemExit as end:  # argparse: --help, --version, or a usage error
        return end.code if isinstance(end.code, int) else 2
    except BrokenPipeError:
        _discard_stdout()
        return _BROKEN_PIPE
    except HpoError as error:
        echo(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:  # the disk is full, a folder cannot be written
        if error.strerror is None:
            raise
        if error.filename is None:
            _discard_stdout()
        where = "stdout" if error.filename is None else error.filename
        echo(f"{error.strerror} while reading or writing {where}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        echo("interrupted", file=sys.stderr)
        return _INTERRUPTED
    return code


# ---------------------------------------------------------------------- the words


def _parse(argv: list[str]) -> argparse.Namespace:
    parser, verbs = _parser()
    argv = argv or ["--help"]
    cut = argv.index("--") if "--" in argv and "import" in argv[:1] else len(argv)
    argv, rest = argv[:cut], argv[cut + 1 :]
    word = next((word for word in argv if not word.startswith("-")), None)
    if word is not None and word not in verbs:
        parser.error(
            f"unknown command {word!r};{suggestion(word, verbs)} Known: {', '.join(verbs)}"
        )
    args = parser.parse_args(argv)
    args.argv, args.rest = argv, rest
    return args


def _parser() -> tuple[argparse.ArgumentParser, list[str]]:
    parser = argparse.ArgumentParser(
        prog="hpo",
        description="Train hundreds of PPO configurations as lanes of one compiled program.",
        epilog="Start with:  hpo init CartPole-v1 > my.yaml;  hpo run my.yaml",
        allow_abbrev=False,
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"hpo {__version__}")
    group = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def verb(name: str, module: str, text: str) -> Any:
        added = group.add_parser(
            name, help=text, description=text, allow_abbrev=False, formatter_class=_Help
        )
        added.set_defaults(call=(module, f"do_{name.replace('-', '_')}"))
        return added

    _add_study_verbs(verb)
    _add_reading_verbs(verb)
    _add_other_verbs(verb)
    return parser, list(group.choices)


class _Help(argparse.HelpFormatter):
    """Help of at most 80 columns, its texts in one column."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=22)
        self._width = min(self._width, 78)  # argparse leaves two columns free
        self._action_max_length = 22  # which argparse counts too low for indented names


_IMPORTED = ("wandb", "xlron", "configspace", "optuna", "rlzoo", "cleanrl", "sb3", "purejaxrl",
             "rejax", "lerax", "jaxdem", "arlbench", "torch_ppo")  # fmt: skip


def _add_study_verbs(verb: Callable[..., Any]) -> None:
    init = verb("init", "init_check_run", "write a study file to start from")
    init.add_argument("env", metavar="ENV", help="an environment; `hpo envs` lists them")
    taken = verb("import", "import_study", "convert another system's sweep into a study file")
    taken.add_argument(
        "kind", metavar="KIND", choices=_IMPORTED,
        help=f"the system that SOURCE comes from: {', '.join(_IMPORTED)}",
    )  # fmt: skip
    taken.add_argument(
        "source", metavar="SOURCE",
        help="a sweep, a file of flags, a command line, a search space or a storage; flags "
        "after `--` override it",
    )  # fmt: skip
    taken.add_argument("--study", metavar="NAME", help="the study, if a storage holds several")
    taken.add_argument(
        "--env", metavar="ID", help="the environment; for rlzoo also whose configuration to read"
    )
    taken.add_argument(
        "--space", action="store_true",
        help="search around the one configuration that SOURCE holds, over the usual ranges",
    )  # fmt: skip
    for parser in (init, taken):
        parser.add_argument("--out", metavar="FILE", help="write to FILE instead of stdout")
    check = verb("check", "init_check_run", "show what a study will do and cost, and its mistakes")
    run = verb("run", "init_check_run", "run a study, or resume it")
    tune = verb("tune-lanes", "tune_lanes", "time a study's program with several lane counts")
    tune.add_argument(
        "--lanes", metavar="N,N,...", type=_counts,
        help="numbers of lanes to time (default: some around what the study would use)",
    )  # fmt: skip
    tune.add_argument(
        "--seconds", metavar="S", type=_positive, default=3,
        help="time each for S seconds, and its rollouts alone as long again (default: 3)",
    )  # fmt: skip
    train = verb("train", "train_one", "train one configuration on all its seeds")
    for parser in (check, run, train, tune):
        parser.add_argument("file", metavar="FILE", help="a study file")
        _add_set(parser, "override a key of FILE, such as budget.trials=10; repeatable")
        _add_json(parser)
    for parser in (run, train):
        parser.add_argument("--name", help="name the study, and so its folder")
        _add_out(parser)
        parser.add_argument(
            "--new", action="store_true", help="start NAME-2 beside the study that is there"
        )
        parser.add_argument("--quiet", action="store_true", help="print only the results")
        parser.add_argument(
            "--accept-new-bits", action="store_true",
            help="resume although results on this machine differ from the earlier machine's",
        )  # fmt: skip
        parser.add_argument(
            "--accept-changed-files", action="store_true",
            help="resume although a file that the study names, such as one of `imports`, changed",
        )  # fmt: skip
    _add_export(train, "copy")


def _add_reading_verbs(verb: Callable[..., Any]) -> None:
    top = verb("top", "read_study", "print the leaderboard of a study")
    top.add_argument(
        "-n", type=_positive, metavar="N", help="show N trials (default: 10; all with --json)"
    )
    show = verb("show", "read_study", "print everything about one trial")
    show.add_argument("trial", metavar="TRIAL", type=int, nargs="?", help="the trial's number")
    _add_network(show, "draw this optical network into --out PICTURE.png")
    query = verb("query", "read_study", "query the tables trials, evaluations and curves in SQL")
    query.add_argument("sql", metavar="SQL", help='such as "SELECT * FROM trials ORDER BY rank"')
    best = verb("best", "read_study", "print the winner of a study, or export its policy")
    _add_export(best, "copy")
    replay = verb("replay", "replay_trial", "train a trial again and compare every number")
    replay.add_argument("trial", metavar="TRIAL", type=int, help="the trial's number")
    _add_export(replay, "write")
    replay.add_argument(
        "--source", metavar="DIR", default=".",
        help="the folder of the study file, if it names other files (default: .)",
    )  # fmt: skip
    export = verb("export", "export_tables", "copy a study's tables for another tool")
    export.add_argument("format", metavar="FORMAT", choices=_FORMATS, help=", ".join(_FORMATS))
    export.add_argument(
        "--to", metavar="DIR", required=True,
        help="the folder to write into; for optuna a storage, such as sqlite:///trials.db",
    )  # fmt: skip
    _add_set(export, "set an option of the logger FORMAT, such as top_k=20; for optuna name=NAME")
    ranked = verb("importance", "knob_importance", "show which knobs mattered most")
    _add_importance(ranked)
    ranked.add_argument("--over-progress", action="store_true", help="at every point of the runs")
    compared = verb("compare", "compare_trials", "tell which of two trials, or studies, is better")
    for side in "ab":
        compared.add_argument(side, metavar=side.upper(), help="a trial's number, or a study")
    plot = verb("plot", "plot_report", "draw a study as a picture")
    plot.add_argument("kind", metavar="PICTURE", choices=_PICTURES, help=", ".join(_PICTURES))
    plot.add_argument("--to", metavar="FILE", help="a PNG, SVG or PDF (default: PICTURE.png)")
    _add_importance(plot, "for importance: ")
    report = verb("report", "plot_report", "write everything about a study as one HTML file")
    report.add_argument("--to", metavar="FILE", help="default: report.html in the study's folder")
    about_one = (top, show, query, best, replay, export, ranked, compared, plot, report)
    for parser in about_one:
        parser.add_argument(
            "--study", metavar="NAME", help="a study or its folder (default: the only one)"
        )
    for parser in (top, best, ranked, report):
        parser.add_argument(
            "study", metavar="STUDY", nargs="?", default=argparse.SUPPRESS, help="same as --study"
        )
    query.add_argument("--csv", action="store_true", help="print CSV")
    query.add_argument(
        "--timeout", metavar="SECONDS", type=_seconds, default=60.0,
        help="stop the query after SECONDS; 0: never (default: 60)",
    )  # fmt: skip
    listing = verb("list", "read_study", "list the studies")
    for parser in (*about_one, listing):
        _add_out(parser)
        _add_json(parser)


def _add_other_verbs(verb: Callable[..., Any]) -> None:
    evaluate = verb("eval", "eval_policy", "evaluate an exported policy on seeds no study uses")
    evaluate.add_argument(
        "directory",
        metavar="POLICY_DIR",
        nargs="?",
        help="a policy from `hpo best --export`, as with --policy",
    )
    evaluate.add_argument(
        "--episodes", type=_positive, metavar="N",
        help="evaluate N episodes (default: 100; 1 with --video)",
    )  # fmt: skip
    _add_network(evaluate, "evaluate in this optical network")
    evaluate.add_argument(
        "--seeds", type=_positive, metavar="N", help="serve N streams of requests (default: 10)"
    )
    evaluate.add_argument(
        "--steps", type=_positive, metavar="N",
        help="serve N requests a stream after the warm-up (default: 20000; 300 with --video)",
    )  # fmt: skip
    evaluate.add_argument(
        "--loads", metavar="LOADS", help="loads in Erlang, such as 100:300:10 or 100,150"
    )
    evaluate.add_argument(
        "--find-load", type=float, metavar="SHARE",
        help="find the load at which SHARE of the requests is blocked",
    )  # fmt: skip
    evaluate.add_argument("--k", metavar="N,N", help="numbers of candidate paths to compare")
    evaluate.add_argument(
        "--path-order", metavar="NAMES", help="orders of candidate paths to compare, or all"
    )
    evaluate.add_argument("--plot", metavar="FILE", help="draw blocking over load as PNG")
    evaluate.add_argument("--trace", metavar="FILE", help="write every env step (request) as CSV")
    evaluate.add_argument(
        "--video", metavar="FILE", help="draw what happens as GIF or MP4, by FILE's suffix"
    )
    evaluate.add_argument(
        "--sample", action="store_true", help="sample actions instead of taking the most likely"
    )
    evaluate.add_argument(
        "--import", dest="imports", metavar="FILE", action="append", default=[],
        help="a Python file that registers the policy's environment; repeatable",
    )  # fmt: skip
    knobs = verb("knobs", "catalogue", "list the hyperparameters that can be tuned")
    envs = verb("envs", "catalogue", "list the environments")
    knobs.add_argument(
        "word", metavar="WORD", nargs="?",
        help="only those with WORD in their name, here or in another system, or meaning",
    )  # fmt: skip
    envs.add_argument(
        "word", metavar="WORD", nargs="?", help="only those with WORD in their id or meaning"
    )
    for parser in (evaluate, knobs, envs):
        _add_json(parser)
    verb("schema", "catalogue", "print the JSON Schema of the study file, for editors")


def _add_network(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--env", metavar="FILE", help=f"{text}: a file of its keys, or a study")
    _add_set(parser, "override a key of --env; repeatable")
    parser.add_argument(
        "--heuristic", metavar="NAME", help="heuristics of optical networks: NAME,NAME or all"
    )
    parser.add_argument("--policy", metavar="DIR", help="a policy from `hpo best --export`")
    parser.add_argument(
        "--seed", metavar="N", type=_seed, default=0, help="the random seed (default: 0)"
    )


def _add_importance(parser: argparse.ArgumentParser, prefix: str = "") -> None:
    parser.add_argument(
        "--at", type=_env_steps, metavar="STEPS",
        help=f"{prefix}compare trials at STEPS env steps (default: the latest that most reached)",
    )  # fmt: skip
    parser.add_argument(
        "--all", action="store_true",
        help=f"{prefix}include trials that a model proposed, which biases the result",
    )  # fmt: skip
    parser.add_argument(
        "--method", metavar="METHOD", choices=_METHODS,
        help=f"{prefix}{' or '.join(_METHODS)} (default: {_METHODS[0]})",
    )  # fmt: skip


def _add_export(parser: argparse.ArgumentParser, how: str) -> None:
    parser.add_argument("--export", metavar="DIR", help=f"{how} the policy into a new folder")


def _add_set(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help=text)


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", metavar="DIR", default="results", help="the folder of results (default: results)"
    )


def _positive(text: str) -> int:
    return _whole(text, 1)


def _env_steps(text: str) -> int:
    from .studies.amounts import count_of

    count = _positive(text) if text.isdigit() else count_of(text)
    if count is None or count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of env steps such as 50k")
    return count


def _counts(text: str) -> list[int]:
    return [_positive(part) for part in text.split(",")]


def _seed(text: str) -> int:
    return _whole(text, 0)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; 0 means no limit")
    return seconds


def _whole(text: str, low: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {low}")
    return int(text)


def _open_streams() -> None:
    """Point a stream that the shell has closed at nothing."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - stays


def _discard_stdout() -> None:
    """Discard the interpreter's last flush: the reader of stdout has left, or its disk is full."""
    try:
        place = sys.stdout.fileno()
    except (OSError, ValueError):  # stdout is no file
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, place)
    os.close(nowhere)
