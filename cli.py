"""The command `hpo`: words to calls of `hpo.views.commands`.

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
_PICTURES = ("history", "curves", "parallel", "slices", "importance", "pareto")
_INTERRUPTED = 130
_BROKEN_PIPE = 141  # what a shell reports of a program that SIGPIPE ended


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code: 0, 1, 2 for a mistake, 130 for Ctrl-C."""
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
        epilog="Begin with:  hpo init CartPole-v1 > my.yaml;  hpo run my.yaml",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"hpo {__version__}")
    group = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def verb(name: str, module: str, text: str) -> Any:
        added = group.add_parser(name, help=text, description=text, allow_abbrev=False)
        added.set_defaults(call=(module, f"do_{name.replace('-', '_')}"))
        return added

    _add_study_verbs(verb)
    _add_reading_verbs(verb)
    _add_other_verbs(verb)
    return parser, list(group.choices)


_IMPORTED = ("wandb", "xlron", "configspace", "optuna", "rlzoo", "cleanrl", "sb3", "purejaxrl",
             "rejax", "lerax", "jaxdem", "arlbench", "torch_ppo")  # fmt: skip


def _add_study_verbs(verb: Callable[..., Any]) -> None:
    init = verb("init", "init_check_run", "write a study file to start from")
    init.add_argument("env", metavar="ENV", help="an environment; `hpo envs` lists them")
    init.add_argument("--out", metavar="FILE", help="write it there instead of to stdout")

    taken = verb("import", "import_study", "make a study file of what another system reads")
    taken.add_argument("kind", choices=_IMPORTED, help="what SOURCE is of")
    taken.add_argument(
        "source", metavar="SOURCE",
        help="a sweep, a file of flags or a command line, a space, or a storage; flags after "
        "`--` override it",
    )  # fmt: skip
    taken.add_argument("--out", metavar="FILE", help="write it there instead of to stdout")
    taken.add_argument("--study", metavar="NAME", help="of Optuna's storage, if it has several")
    taken.add_argument(
        "--env", metavar="ID", help="the environment; for rlzoo also whose configuration is meant"
    )
    taken.add_argument(
        "--space", action="store_true",
        help="search around the one configuration that is read, with our usual ranges",
    )  # fmt: skip

    check = verb(
        "check", "init_check_run", "say what a study will do and cost, and every mistake in it"
    )
    run = verb("run", "init_check_run", "run a study, or go on with it")
    tune = verb("tune-lanes", "tune_lanes", "time a study's program with several numbers of lanes")
    tune.add_argument(
        "--lanes", metavar="N,N,...", type=_counts, help="numbers to try; left out: some around "
        "what the study would take",
    )  # fmt: skip
    tune.add_argument(
        "--seconds", metavar="S", type=_positive, default=3,
        help="that each is timed for, and its rollouts again (3)",
    )  # fmt: skip
    train = verb("train", "train_one", "train one configuration on all its seeds")
    for parser in (check, run, train, tune):
        parser.add_argument("file", metavar="FILE", help="a study file")
        parser.add_argument(
            "--set", metavar="KEY=VALUE", action="append", default=[],
            help="change a key of the file, such as budget.trials=10; may be repeated",
        )  # fmt: skip
        _add_json(parser)
    for parser in (run, train):
        parser.add_argument("--name", help="another name for the study, and so another folder")
        _add_out(parser)
        parser.add_argument("--new", action="store_true", help="begin NAME-2 beside what is there")
        parser.add_argument("--quiet", action="store_true", help="print nothing but the results")
        parser.add_argument(
            "--accept-new-bits", action="store_true",
            help="go on although this machine computes other bits than the one before",
        )  # fmt: skip
        parser.add_argument(
            "--accept-changed-files", action="store_true",
            help="go on although a file that the study names, such as one of `imports`, changed",
        )  # fmt: skip
    train.add_argument("--export", metavar="DIR", help="copy its policy into a new folder")


def _add_reading_verbs(verb: Callable[..., Any]) -> None:
    top = verb("top", "read_study", "print the leaderboard of a study")
    top.add_argument("-n", type=_positive, metavar="N", help="so many trials; with --json: all")
    show = verb("show", "read_study", "print everything about one trial")
    show.add_argument("trial", metavar="TRIAL", type=int, nargs="?", help="its number")
    _add_network(show, "draw this optical network instead, into --out PICTURE.png")
    query = verb("query", "read_study", "ask the tables trials, evaluations and curves in SQL")
    query.add_argument("sql", metavar="SQL", help='such as "SELECT * FROM trials ORDER BY rank"')
    best = verb("best", "read_study", "print the winner of a study, or export its policy")
    best.add_argument("--export", metavar="DIR", help="copy its policy into a new folder")
    replay = verb("replay", "replay_trial", "train a trial's way again and compare every number")
    replay.add_argument("trial", metavar="TRIAL", type=int, help="its number")
    replay.add_argument("--export", metavar="DIR", help="write its policy into a new folder")
    replay.add_argument(
        "--source", metavar="DIR", default=".",
        help="the folder of the study's file, if that names other files (.)",
    )  # fmt: skip
    export = verb("export", "export_tables", "copy a study's tables for another tool")
    export.add_argument("format", metavar="FORMAT", choices=_FORMATS, help=", ".join(_FORMATS))
    export.add_argument(
        "--to", metavar="DIR", required=True,
        help="the folder to write into; for optuna a storage, such as sqlite:///trials.db",
    )  # fmt: skip
    export.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[],
        help="an option of the logger of that name, such as top_k=20 or mode=offline; for optuna "
        "name=NAME",
    )  # fmt: skip
    decided = verb("importance", "knob_importance", "say which knobs decided")
    _add_importance(decided, "")
    decided.add_argument("--over-progress", action="store_true", help="at every point of the runs")
    compared = verb("compare", "compare_trials", "say which of two trials, or studies, is better")
    for side in "ab":
        compared.add_argument(side, metavar=side.upper(), help="a trial's number, or a study")
    plot = verb("plot", "plot_report", "draw a study: " + ", ".join(_PICTURES))
    plot.add_argument("kind", metavar="PICTURE", choices=_PICTURES, help=", ".join(_PICTURES))
    plot.add_argument("--to", metavar="FILE", help="PNG, SVG or PDF by its suffix (PICTURE.png)")
    _add_importance(plot, "of importance: ")
    report = verb("report", "plot_report", "write everything about a study as one HTML file")
    report.add_argument("--to", metavar="FILE", help="left out: report.html in the study's folder")
    about_one = (top, show, query, best, replay, export, decided, compared, plot, report)
    for parser in about_one:
        parser.add_argument(
            "--study", metavar="NAME", help="a study, or its folder; left out: the only one"
        )
    for parser in (top, best, decided, report):
        parser.add_argument(
            "study", metavar="STUDY", nargs="?", default=argparse.SUPPRESS, help="as --study"
        )
    query.add_argument("--csv", action="store_true", help="print CSV")
    query.add_argument(
        "--timeout", metavar="SECONDS", type=_seconds, default=60.0,
        help="end the query after so long; 0: never (60)",
    )  # fmt: skip
    listing = verb("list", "read_study", "list the studies")
    for parser in (*about_one, listing):
        _add_out(parser)
        _add_json(parser)


def _add_other_verbs(verb: Callable[..., Any]) -> None:
    evaluate = verb(
        "eval", "eval_policy", "evaluate an exported policy on seeds that no study uses"
    )
    evaluate.add_argument(
        "directory", metavar="POLICY_DIR", nargs="?", help="from `hpo best --export`"
    )
    evaluate.add_argument("--episodes", type=_positive, metavar="N", help="how many (100)")
    _add_network(evaluate, "evaluate in this optical network")
    evaluate.add_argument("--seeds", type=_positive, metavar="N",
                          help="streams of requests (10)")  # fmt: skip
    evaluate.add_argument("--steps", type=_positive, metavar="N",
                          help="requests of each seed, after the warm-up (20000)")  # fmt: skip
    evaluate.add_argument("--loads", metavar="FROM:TO:STEP", help="Erlang, all in one program")
    evaluate.add_argument("--find-load", type=float, metavar="BLOCKING",
                          help="find the load at which so large a share is blocked")  # fmt: skip
    evaluate.add_argument("--k", metavar="N,N", help="numbers of candidate paths to compare")
    evaluate.add_argument("--path-order", metavar="NAME,NAME",
                          help="orders of candidate paths to compare, or all")  # fmt: skip
    evaluate.add_argument("--plot", metavar="FILE", help="draw blocking over load as PNG")
    evaluate.add_argument("--trace", metavar="FILE", help="write every env step (request) as CSV")
    evaluate.add_argument(
        "--video", metavar="FILE", help="draw what happens as GIF or MP4, by its suffix"
    )
    evaluate.add_argument(
        "--sample", action="store_true", help="sample actions instead of taking the likeliest"
    )
    evaluate.add_argument(
        "--import", dest="imports", metavar="FILE", action="append", default=[],
        help="Python that registers the policy's environment; may be repeated",
    )  # fmt: skip
    knobs = verb("knobs", "catalogue", "list everything that can be tuned")
    envs = verb("envs", "catalogue", "list the environments")
    for parser, what in ((knobs, "learning"), (envs, "MinAtar")):
        parser.add_argument(
            "word",
            metavar="WORD",
            nargs="?",
            help=f"only what has it in its names (other systems' too) or meaning: {what}",
        )
    for parser in (evaluate, knobs, envs):
        _add_json(parser)
    verb("schema", "catalogue", "print the JSON Schema of the study file, for editors")


def _add_network(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--env", metavar="FILE", help=f"{text}; a file of its keys, or a study")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="change a key of --env"
    )
    parser.add_argument(
        "--heuristic", metavar="NAME", help="of the optical networks; several by commas, or all"
    )
    parser.add_argument("--policy", metavar="DIR", help="from `hpo best --export`")
    parser.add_argument("--seed", type=_seed, default=0)


def _add_importance(parser: argparse.ArgumentParser, of: str) -> None:
    parser.add_argument(
        "--at", type=_env_steps, metavar="ENV_STEPS", help=f"{of}the point of the runs"
    )
    parser.add_argument(
        "--all", action="store_true", help=f"{of}count a model's proposals too, which is biased"
    )
    parser.add_argument(
        "--method", choices=("ped-anova", "fanova"), help=f"{of}the estimator (ped-anova)"
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", metavar="DIR", default="results", help="the folder of results (./results)"
    )


def _positive(text: str) -> int:
    return _whole(text, 1)


def _env_steps(text: str) -> int:
    from .studies.amounts import count_of

    count = _positive(text) if text.isdigit() else count_of(text)
    if count is None or count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of env steps such as 50k")
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
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds; 0 is without end")
    return seconds


def _whole(text: str, low: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {low}")
    return int(text)


def _open_streams() -> None:
    """Let a stream that the shell has closed lead nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - stays


def _discard_stdout() -> None:
    """Let the interpreter's last flush go nowhere: whoever read stdout has left, or it is full."""
    try:
        place = sys.stdout.fileno()
    except (OSError, ValueError):  # it is no file
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, place)
    os.close(nowhere)
