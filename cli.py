"""The `hpo` command: parses a command line and calls the matching `hpo.views.commands` function.

Results go to stdout, everything else to stderr. Only the parser is imported before the command is
known, and it gets only the options of that command. This makes `hpo --help` fast.
"""

from __future__ import annotations

if __name__ != "hpo.cli":
    raise ImportError("type `hpo` or `python -m hpo` instead, after `pip install -e .`")

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from .errors import HpoError, check_platform, suggestion
from .version import __version__
from .views import arguments as types
from .views.output import discard, echo, plain_warnings
from .views.words import on_command_line

_FORMATS = ("csv", "mlflow", "optuna", "table", "tensorboard", "wandb")
_PICTURES = ("history", "curves", "parallel", "slices", "importance", "effects", "schedule",
             "pareto")  # fmt: skip
_SHELLS = ("bash", "zsh", "fish")
_GROUPS = {
    "Start": ("init", "check", "run", "train", "import"),
    "Read": ("top", "show", "compare", "confirm", "importance", "what-if", "query", "report",
             "plot", "paper"),
    "Use": ("best", "eval", "tuned", "export", "replay", "bundle", "verify"),
    "Manage": ("list", "watch", "serve", "stop"),
    "Look up": ("knobs", "envs", "schema"),
    "More": ("bench", "completion"),
}  # fmt: skip
_FIRST = ("init", "check", "run", "top", "show", "compare", "confirm", "importance", "best",
          "eval", "tuned")  # fmt: skip
_INTERRUPTED = 130
_COLUMNS = 80  # without a terminal
_BROKEN_PIPE = 141  # exit status that a shell reports for a program ended by SIGPIPE
_SOURCE = "the study file's folder, with the files that the study names"
_RESULTS = "the results folder (default: results)"
_Parser = argparse.ArgumentParser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    The code is 0 for success, 1 for a failure, 2 for a user mistake, 130 for Ctrl-C, or 141 for a
    closed pipe.
    """
    if argv is None:
        argv = sys.argv[1:]
    # XLA's warnings about slow compilation go straight to stderr; its errors are also raised
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    _open_streams()
    try:
        args = _parse_line(list(argv))
    except SystemExit as end:  # argparse: --help, --version, or a usage error
        if isinstance(end.code, int):
            return end.code
        return 2
    try:
        check_platform()
        module, function = args.call
        command = getattr(import_module(f".views.commands.{module}", __package__), function)
        with plain_warnings():
            code = command(args)
        sys.stdout.flush()
    except SystemExit as end:  # raised by code that the study names, never by this program
        text = f"the study's code calls sys.exit({end.code}); raise an error there instead"
        echo(text, file=sys.stderr)
        return 2
    except BrokenPipeError:
        _discard_stdout()
        return _BROKEN_PIPE
    except HpoError as error:
        echo(on_command_line(error), file=sys.stderr)
        return error.exit_code
    except OSError as error:  # the disk is full, a folder cannot be written
        if error.strerror is None:
            raise
        echo(_disk_words(error, error.strerror), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        echo("interrupted", file=sys.stderr)
        return _INTERRUPTED
    return code


def _parse_line(argv: list[str]) -> argparse.Namespace:
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        whole, _ = make_parser()
        import_module(".views.commands.completion", __package__).complete_words(whole)
    argv, rest = argv or ["--help"], list[str]()
    if argv[0] == "import" and "--" in argv:
        cut = argv.index("--")
        argv, rest = argv[:cut], argv[cut + 1 :]
    word = next((word for word in argv if not word.startswith("-")), None)
    parser, verbs = make_parser([] if word is None else [word])
    parser.shows_all = word is None and ("-v" in argv or "--verbose" in argv)
    if word is not None and word not in verbs:
        lists = " hpo --help lists all"
        if near := suggestion(word, verbs):
            lists = f"{near} (hpo --help lists all)"
        parser.error(f"unknown command {word!r};{lists}")
    args = _known_arguments(parser, argv, word)
    if word == "compare" and args.b is not None and args.a == args.b:
        parser.error(f"{args.a} is compared with itself; name two trials, or two studies")
    args.argv, args.rest = argv, rest
    return args


def _known_arguments(parser: _Main, argv: Sequence[str], word: str | None) -> argparse.Namespace:
    """Parse a command's arguments; the error for an unknown argument suggests a correction."""
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.error(types.unknown_argument(str(word), unknown, parser.commands[str(word)]))
    return args


def make_parser(asked: Sequence[str] | None = None) -> tuple[_Main, list[str]]:
    """Return the parser of the command line, and the names of all commands.

    Options are added only for the `asked` commands; by default, for all of them.
    """
    usual: Any = {"allow_abbrev": False, "formatter_class": _Help}
    text = "Train hundreds of PPO configurations as lanes of one compiled program."
    start = "Start with:  hpo init CartPole-v1 > my.yaml;  hpo run my.yaml"
    parser = _Main(prog="hpo", description=text, epilog=start, **usual)
    parser.add_argument("--version", action="version", version=f"hpo {__version__}")
    group = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=_Parser, prog="hpo"
    )

    def verb(name: str, module: str, text: str) -> Any:
        parser.texts[name] = text
        if asked is not None and name not in asked:
            return _Unasked()
        added = group.add_parser(name, help=text, description=text, **usual)
        added.set_defaults(call=(module, f"do_{name.replace('-', '_')}"))
        return added

    _add_study_verbs(verb)
    _add_reading_verbs(verb)
    _add_other_verbs(verb)
    parser.commands = group.choices
    return parser, list(parser.texts)


class _Unasked:
    """Replaces the parser of a command that was not requested; ignores its options."""

    def add_argument(self, *names: str, **more: Any) -> None:
        """Ignore an option."""


class _Kinds:
    """The source kinds that `hpo import` accepts; their tables are loaded on first use."""

    def __iter__(self) -> Iterator[str]:
        return iter(import_module(".foreign_names.tables", __package__).KINDS)

    def __contains__(self, kind: object) -> bool:
        return kind in tuple(self)


class _Help(argparse.HelpFormatter):
    def __init__(self, prog: str):
        width = min(_terminal_width() - 2, 78)  # argparse leaves two columns free
        super().__init__(prog, max_help_position=22, width=width)
        self._action_max_length = 22  # argparse underestimates it for indented names


def _terminal_width() -> int:
    """Return the terminal width like `shutil`, without importing bz2 and lzma."""
    with suppress(ValueError):
        if (given := int(os.environ.get("COLUMNS", ""))) > 0:
            return given
    if sys.__stdout__ is not None:
        with suppress(ValueError, OSError):  # it is closed, or no terminal
            return os.get_terminal_size(sys.__stdout__.fileno()).columns or _COLUMNS
    return _COLUMNS


class _Main(argparse.ArgumentParser):
    shows_all = False  # `hpo --help -v`

    def __init__(self, **usual: Any):
        super().__init__(**usual)
        self.texts: dict[str, str] = {}  # command -> its line of help
        self.commands: Mapping[str, argparse.ArgumentParser] = {}  # those that it parses

    def _shown_commands(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if self.shows_all or name in _FIRST]

    def format_help(self) -> str:
        """Format the help: all commands grouped by purpose, or only the most important ones."""
        from textwrap import wrap  # here: other commands start faster

        lines = [self.description or "", "", "usage: hpo COMMAND ...", ""]
        later: list[str] = []
        for group, names in _GROUPS.items():
            shown = self._shown_commands(names)
            if shown:
                lines.append(group)
            lines += [f"  {name:<12}{self.texts[name]}" for name in shown]
            later += [name for name in names if name not in _FIRST]
        if not self.shows_all:
            more = ", ".join(later)
            words = f"More (hpo --help -v): {more}"
            lines += ["", *wrap(words, 78, break_on_hyphens=False)]
        last = "One command:  hpo COMMAND --help        Version:  hpo --version"
        return "\n".join([*lines, "", last, self.epilog or "", ""])


def _add_study_verbs(verb: Callable[..., Any]) -> None:
    init = verb("init", "init_check_run", "write a study file to start from")
    _add_option(init, "env", "ENV", "an environment; `hpo envs` lists them", nargs="?")
    _add_option(
        init,
        "--algorithm",
        "FILE.py:CLASS",
        "a custom training class, or rejax:SAC, instead of PPO",
    )
    _add_option(init, "--command", "LINE", "a training script: python train.py", dest="script")
    runs = "run this Python file, which registers ENV; repeatable"
    _add_option(init, "--import", "FILE", runs, dest="imports", action="append", default=[])
    _add_flag(init, "--plain", "start from the defaults instead of a tuned configuration")
    _add_flag(init, "--time", "time the study here and report how long it takes")
    taken = verb("import", "import_export", "convert another system's sweep into a study file")
    kinds = "the system that SOURCE comes from: %(choices)s"
    _add_option(taken, "kind", "KIND", kinds, choices=_Kinds())
    source = "a file, a command line or a storage; flags after `--` override its settings"
    _add_option(taken, "source", "SOURCE", source)
    _add_option(taken, "--study", "NAME", "the study, if a storage contains several")
    _add_option(
        taken, "--env", "ID", "the environment; for rlzoo it also selects the configuration"
    )
    _add_flag(taken, "--space", "search the usual ranges around the one configuration in SOURCE")
    for parser in (init, taken):
        _add_option(parser, "--to", "FILE", "write to FILE instead of stdout")
    check = verb("check", "init_check_run", "show what a study will do, its cost and its mistakes")
    timed = "time the study's programs, running its `imports` (default: only if it has none)"
    _add_flag(check, "--time", timed, default=None)
    _add_verbose(check, "also print programs, chunks, memory, and where the time goes")
    _add_flag(
        check, "--no-time", "do not compile or time anything", dest="time", action="store_false"
    )
    run = verb("run", "init_check_run", "run a study, or resume it")
    train = verb("train", "train", "train one configuration on all its seeds")
    for parser, file in (
        (check, "a study file"),
        (run, "a study file"),
        (train, "a study file, or tuned:ENV"),
    ):
        _add_option(parser, "file", "FILE", file)
        _add_set(parser, "override a key of FILE, such as budget.trials=10; repeatable")
        _add_json(parser)
    for parser in (run, train):
        parser.add_argument("--name", help="name the study and its folder")
        _add_out(parser)
        _add_flag(parser, "--new", "start another study, NAME-2")
        _add_running(parser)
        _add_verbose(
            parser, "also print baselines, speed, where the time went, and an example query"
        )
    _add_flag(run, "--retry-failed", "run failed trials again, once the cause is fixed")
    _add_export(train, "copy")


def _add_running(parser: Any) -> None:
    _add_flag(parser, "--quiet", "print only the results")
    _add_flag(parser, "--accept-new-bits", "resume even if results would differ on this machine")
    _add_flag(
        parser, "--accept-changed-files", "resume even if a file named in the study has changed"
    )


def _add_reading_verbs(verb: Callable[..., Any]) -> None:
    top, show, query, best, replay, export = _add_result_verbs(verb)
    ranked, compared, judged, confirmed = _add_analysis_verbs(verb)
    plot = verb("plot", "read_study", "plot a study")
    picture = types.one_of("plot", _PICTURES)
    _add_option(plot, "kind", "PLOT", ", ".join(_PICTURES), choices=_PICTURES, type=picture)
    _add_option(plot, "--to", "FILE", "the PNG, SVG or PDF to write (default: PLOT.png)")
    _add_at(plot, "for importance: ")
    report = verb("report", "read_study", "write an HTML report")
    _add_option(
        report,
        "--to",
        "FILE",
        "the HTML file to write (default: report.html in the study's folder)",
    )
    paper = verb("paper", "bundle", "write a methods section, tables and figures for a paper")
    _add_option(
        paper, "studies", "STUDY", "studies or their folders (default: the only one)", nargs="*"
    )
    _add_option(paper, "--to", "DIR", "the folder to write into (default: paper)", default="paper")
    _add_flag(paper, "--no-figures", "write only text and tables, without matplotlib")
    _add_out(paper)
    _add_json(paper)
    stop = verb("stop", "read_study", "stop a running study; hpo run resumes it")
    _add_flag(stop, "--no-wait", "return at once, without waiting for the study to end")
    watch = verb("watch", "watch_serve", "show the progress of a running study")
    about_one = (top, show, query, best, replay, export, ranked, compared, confirmed, judged,
                 report, stop, plot)  # fmt: skip
    for parser in (*about_one, watch):
        _add_option(parser, "--study", "NAME", "a study or its folder (default: the only one)")
    for parser in (top, best, ranked, judged, report, stop, watch):
        _add_option(
            parser, "study", "STUDY", "same as --study", nargs="?", default=argparse.SUPPRESS
        )
    _add_flag(query, "--csv", "print CSV")
    timeout = "stop the query after SECONDS, or never if 0 (default: 60)"
    _add_option(query, "--timeout", "SECONDS", timeout, type=types.seconds, default=60.0)
    _add_out(watch)
    _add_flag(watch, "--json", "print one line of JSON for every commit")
    listing = verb("list", "read_study", "list the studies")
    for parser in (*about_one, listing):
        _add_out(parser)
        _add_json(parser)
    _add_serve(verb)
    _add_bundles(verb)


def _add_result_verbs(verb: Callable[..., Any]) -> tuple[Any, ...]:
    """Add the commands that print or export results; return their parsers."""
    top = verb("top", "read_study", "print the leaderboard")
    _add_option(top, "-n", "N", "show N trials (default: 8; all with --json)", type=types.positive)
    _add_flag(top, "--explain", "explain the columns")
    _add_flag(top, "--latex", "print the leaderboard as a LaTeX table (booktabs)")
    _add_flag(top, "--markdown", "print the leaderboard as a Markdown table")
    show = verb("show", "read_study", "print everything about one trial")
    _add_option(show, "trial", "TRIAL", "the trial's number", type=types.trial)
    _add_verbose(
        show, "also print every seed's value, the stopping rule's cut-offs, costs and times"
    )
    query = verb("query", "read_study", "query the results in SQL")
    _add_option(
        query, "sql", "SQL", 'such as "SELECT trial, report_value FROM trials ORDER BY rank"'
    )
    best = verb("best", "read_study", "print the winner, or export its policy")
    _add_export(best, "copy")
    _add_flag(best, "--onnx", "with --export: also write policy.onnx")
    replay = verb("replay", "replay", "retrain a trial and check that every number is the same")
    _add_option(replay, "trial", "TRIAL", "the trial's number", type=types.trial)
    _add_export(replay, "write")
    _add_option(replay, "--source", "DIR", f"{_SOURCE} (default: .)", default=".")
    export = verb(
        "export",
        "import_export",
        "export to CSV, MLflow, Optuna, TensorBoard, W&B, or a table of recorded runs",
    )
    _add_option(export, "format", "FORMAT", ", ".join(_FORMATS), choices=_FORMATS)
    into = "the folder to write into; for optuna a storage, such as sqlite:///trials.db"
    _add_option(export, "--to", "DIR", into, required=True)
    _add_set(export, "set an option of FORMAT, such as top_k=20 for wandb or name=NAME for optuna")
    return top, show, query, best, replay, export


def _add_analysis_verbs(verb: Callable[..., Any]) -> tuple[Any, ...]:
    """Add the commands that compare trials, rules and hyperparameters; return their parsers."""
    ranked = verb("importance", "analyses", "show which hyperparameters matter")
    _add_at(ranked)
    _add_flag(ranked, "--over-progress", "show importance at every point during training")
    compared = verb("compare", "compare", "compare two trials, or two studies")
    for side in "ab":
        _add_option(compared, side, side.upper(), "a trial's number, or a study", nargs="?")
    judged = verb("what-if", "analyses", "show what other stopping rules would have done")
    confirmed = verb("confirm", "train", "train given trials on test seeds")
    numbers = (
        "numbers of finished or stopped trials, or -1 for the default; a study may come first"
    )
    _add_option(confirmed, "words", "TRIAL", numbers, nargs="+")
    fewest = "use at least N test seeds (default: as many as the winner has, or 16)"
    _add_option(confirmed, "--seeds", "N", fewest, type=types.positive)
    _add_option(
        confirmed, "--source", "DIR", f"{_SOURCE} (default: where the study was run, or .)"
    )
    _add_running(confirmed)
    _add_option(judged, "--early-terminate", "RULE", types.RULES_HELP, action="append", default=[])
    _add_option(
        judged, "--seeds", "N", "assume N seeds per trial (default: all)", type=types.positive
    )
    _add_option(judged, "--source", "DIR", f"{_SOURCE} (default: where the study was run, or .)")
    return ranked, compared, judged, confirmed


def _add_bundles(verb: Callable[..., Any]) -> None:
    bundle = verb("bundle", "bundle", "write a study and its claims into one file")
    _add_option(bundle, "study", "STUDY", "a study or its folder")
    whose = "the trial whose policy and value are written (default: the best)"
    _add_option(bundle, "trial", "TRIAL", whose, type=types.trial, nargs="?")
    bundle.add_argument("-o", "--to", metavar="FILE", help="the zip to write", required=True)
    _add_option(bundle, "--source", "DIR", f"{_SOURCE} (default: .)", default=".")
    _add_out(bundle)
    verify = verb("verify", "bundle", "check a bundle, and every claim in it")
    _add_option(verify, "file", "FILE", "a bundle from `hpo bundle`", nargs="?")
    page = "write an HTML page that checks bundles offline, in a browser"
    _add_option(verify, "--page", "FILE", page)
    _add_flag(
        verify, "--play", "evaluate the policy again, on the recorded episodes and on new ones"
    )
    episodes = "--play: evaluate N new episodes (default: 100)"
    _add_option(verify, "--episodes", "N", episodes, type=types.positive, default=100)
    _add_flag(verify, "--retrain", "retrain the seeds behind the claims")
    some = "--retrain: N seeds of each trial, drawn at random (default: all)"
    _add_option(verify, "--seeds", "N", some, type=types.positive)
    _add_flag(verify, "--allow-code", "--play, --retrain: run the bundle's code without asking")
    for parser in (bundle, verify):
        _add_json(parser)


def _add_serve(verb: Callable[..., Any]) -> None:
    serve = verb("serve", "watch_serve", "show all studies on a live page in a browser")
    _add_option(serve, "out", "DIR", _RESULTS, nargs="?", default="results")
    host = "the address (default: 127.0.0.1, for this machine only); other addresses require "
    host += "the token in the printed URL"
    _add_option(serve, "--host", "HOST", host, default="127.0.0.1")
    _add_option(
        serve,
        "--port",
        "N",
        "the port, or 0 for any free one (default: 8765, or the next free one)",
        type=types.port,
    )
    _add_flag(
        serve,
        "--token",
        "require a token even on 127.0.0.1, to keep out other users of the machine",
    )
    _add_json(serve)


def _add_other_verbs(verb: Callable[..., Any]) -> None:
    tuned = verb("tuned", "tuned", "list tuned configurations, or print one")
    words = "ENV prints one with its tests, verify ENV retrains it (default: list all)"
    _add_option(tuned, "words", "WORD", words, nargs="*")
    _add_option(
        tuned, "--tuned", "DIR", "the folder of tuned configurations (default: results/tuned)"
    )
    for name, text, kind in (
        ("--seeds", "verify: run N new seeds (default: 32)", types.positive),
        ("--recorded", "verify: retrain on N of the recorded seeds (default: 8)", types.positive),
        ("--seed", "verify: use the N-th set of new seeds (default: 0)", types.seed),
    ):
        _add_option(tuned, name, "N", text, type=kind)
    _add_flag(tuned, "--bits", "verify: exit with code 1 unless the results are bit-equal")
    _add_verbose(tuned, "with ENV: also print curves, sources, cost and versions")
    _add_flag(tuned, "--quiet", "print only the results")
    _add_json(tuned)
    _add_eval(verb)
    knobs = verb("knobs", "catalogue", "list the hyperparameters that can be tuned")
    envs = verb("envs", "catalogue", "list the environments")
    _add_option(
        knobs,
        "word",
        "WORD",
        "a name (also from another system), or a word from a description",
        nargs="?",
    )
    _add_flag(knobs, "--all", "list all (default: 20 common ones)")
    _add_option(
        envs,
        "word",
        "WORD",
        "an id, to show its details, or a word from ids or descriptions",
        nargs="?",
    )
    for parser in (knobs, envs):
        _add_json(parser)
    bench = verb("bench", "bench", "compare search methods over tables of recorded runs")
    _add_option(
        bench, "file", "FILE", "a file that lists methods, as study keys, and the tables to search"
    )
    _add_set(bench, "override a key of FILE, such as bench.searches=5; repeatable")
    _add_option(
        bench, "--jobs", "N", "run N processes (default: 1)", type=types.positive, default=1
    )
    _add_option(
        bench, "--to", "FILE.json", "write the table here, and all searches to FILE.parquet"
    )
    _add_flag(bench, "--quiet", "print only the results")
    _add_json(bench)
    described = verb("schema", "catalogue", "print the JSON Schema of the study file, for editors")
    _add_option(
        described,
        "--algorithm",
        "FILE.py:CLASS",
        "a custom training class, or rejax:SAC (default: PPO)",
    )
    completion = verb("completion", "completion", "print the shell's completion script")
    shells = f'{", ".join(_SHELLS)}; for bash: eval "$(hpo completion bash)"'
    _add_option(completion, "shell", "SHELL", shells, choices=_SHELLS)


def _add_eval(verb: Callable[..., Any]) -> None:
    evaluate = verb("eval", "eval_policy", "evaluate an exported policy")
    _add_option(evaluate, "directory", "POLICY_DIR", "same as --policy", nargs="?")
    _add_option(
        evaluate,
        "--env",
        "FILE",
        "evaluate in the optical network of a study, or of a file with environment keys",
    )
    _add_set(evaluate, "override a key of --env; repeatable")
    _add_option(
        evaluate, "--heuristic", "NAME", "heuristics for optical networks: NAME,NAME or all"
    )
    _add_option(evaluate, "--policy", "DIR", "a policy from `hpo best --export`")
    _add_option(
        evaluate, "--seed", "N", "the random seed (default: 0)", type=types.seed, default=0
    )
    for name, text in (
        ("--episodes", "evaluate N episodes (default: 100; 1 with --video)"),
        ("--seeds", "evaluate on N request streams (default: 10)"),
        ("--steps", "evaluate N requests per stream after the warm-up (default: 20000)"),
    ):
        _add_option(evaluate, name, "N", text, type=types.positive)
    _add_option(evaluate, "--loads", "LOADS", "loads in Erlang, such as 100:300:10 or 100,150")
    found = "compare the loads at which SHARE of the requests is blocked"
    _add_option(evaluate, "--find-load", "SHARE", found, type=float)
    _add_option(evaluate, "--plot", "FILE", "plot blocking against load, as a PNG")
    _add_option(evaluate, "--trace", "FILE", "write every env step (request) as CSV")
    _add_option(
        evaluate,
        "--video",
        "FILE",
        "render the episodes as a GIF or MP4, according to FILE's suffix",
    )
    _add_flag(evaluate, "--sample", "sample actions instead of taking the most likely ones")
    imported = "a Python file that registers the policy's environment; repeatable"
    _add_option(
        evaluate, "--import", "FILE", imported, dest="imports", action="append", default=[]
    )
    _add_json(evaluate)


def _add_option(parser: _Parser, name: str, metavar: str, text: str, **more: Any) -> None:
    parser.add_argument(name, metavar=metavar, help=text, **more)


def _add_flag(parser: _Parser, name: str, text: str, **more: Any) -> None:
    parser.add_argument(name, **{"action": "store_true", "help": text, **more})


def _add_at(parser: _Parser, prefix: str = "") -> None:
    at = f"{prefix}compare trials at STEPS env steps "
    at += "(default: the last point that most trials reached)"
    _add_option(parser, "--at", "STEPS", at, type=types.env_steps)


def _add_export(parser: _Parser, how: str) -> None:
    _add_option(parser, "--export", "DIR", f"{how} the policy into a new folder")


def _add_set(parser: _Parser, text: str) -> None:
    _add_option(parser, "--set", "KEY=VALUE", text, action="append", default=[])


def _add_verbose(parser: _Parser, text: str) -> None:
    parser.add_argument("-v", "--verbose", action="store_true", help=text)


def _add_json(parser: _Parser) -> None:
    _add_flag(parser, "--json", "print one JSON document")


def _add_out(parser: _Parser) -> None:
    _add_option(parser, "--out", "DIR", _RESULTS, default="results")


def _open_streams() -> None:
    for name in ("stdout", "stderr"):  # None if the shell has closed it
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - stays


def _disk_words(error: OSError, reason: str) -> str:
    """Format a disk error as one line; without a file, it concerns stdout or temporary files."""
    from .files.atomic_files import TEMPORARY_CURE, full_temporary_folder, has_refused, named_file

    # no temporary folder is writable
    if error.filename is None and "temporary directory" in reason:
        return f"{reason}; name one with TMPDIR=FOLDER"
    place = named_file(error)
    folder = None
    if has_refused(error):
        folder = full_temporary_folder(place, sure=place is not None)
    if folder is not None:
        return f"{reason} while writing {folder}; {TEMPORARY_CURE} and run the same command again"
    if place is None:
        _discard_stdout()
        return f"{reason} while reading or writing stdout"
    return f"{reason} while reading or writing {place}"


def _discard_stdout() -> None:
    """Discard buffered output, because stdout has been closed or its disk is full."""
    with suppress(OSError, ValueError):  # stdout is not a file
        discard(sys.stdout.fileno())
