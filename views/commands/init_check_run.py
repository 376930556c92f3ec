"""`hpo init`, `hpo check` and `hpo run`: the commands for a study file.

The file is read before any slow import, so that mistakes are reported at once.
"""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ...environments.registry import gymnax_class
from ...errors import ConfigError, clause, counted, enumerated
from ...files.atomic_files import output
from ...studies.algorithm_section import loaded_algorithm
from ...studies.check import CheckReport
from ...studies.init_file import init_text, own_init_text
from ...studies.load import load, loads
from ...studies.portfolio import forecast_of, placement_words, tries_only_given
from ...studies.script_flags import command_init_text
from ...studies.search_spec import Confirm
from ...studies.spec import Study
from ...studies.study_environments import env_words
from ...studies.tuned.record import known_record
from ...studies.tuned.study_text import around_text
from ...studies.user_code import import_user_code
from ..formatting import steps
from ..output import echo, note, plain_warnings, print_json
from ..terminal.console import fitted, in_columns

_COMMANDS = ("Next: ", "Details: ")  # lines that start with one are commands
_LABEL = 11  # `env steps  `
_NAMED, _NOTED = 5, 0.05
_SENTENCES = ("The study file is OK", "This study has")


def do_init(args: Namespace) -> int:
    if args.script is not None:
        text = command_init_text(args.script)
    elif args.algorithm is not None:
        text = own_init_text(loaded_algorithm(args.algorithm), args.env)
    elif args.env is None:
        raise ConfigError("hpo init needs an environment; for example: hpo init CartPole-v1")
    else:
        text = _study_of_env(args)
    write_study(text, args.to)
    if args.time:
        note(fitted(_timed_words(loads(text)), sys.stderr))
    return 0


def _study_of_env(args: Namespace) -> str:
    """Return the text of a first study, based on a tuned preset if there is one."""
    names = _run_imports(args.imports)
    record = None
    if not args.plain and not names:
        record = known_record(args.env)
    if record is None:
        return _first_study(args.env, names)
    return around_text(record)


def _first_study(env: str, imports: Sequence[str]) -> str:
    if not imports and gymnax_class(env) is None:  # jax is not needed
        return init_text(env)
    from ...core.envs.registry import custom_entry

    return init_text(env, imports, custom_entry(env))


def _run_imports(paths: Sequence[str]) -> list[str]:
    """Run files that register an environment; return their names as written in studies."""
    if paths:
        from ...core.device_request import ask_for_devices

        ask_for_devices()  # an array that a module creates on import starts jax
    for path in map(Path, paths):
        if not path.is_file():
            raise ConfigError(f"--import {path}: no such file")
        import_user_code([path.name], path.parent)
    return [Path(path).name for path in paths]


def _timed_words(study: Study) -> str:
    from ...search.study_estimate import preview

    with plain_warnings():
        report, _ = preview(study, timing=True, notify=note)
    if report.time is None:
        return f"time not known: {report.time_note}"
    return f"the study takes about {report.time.words()[0]} on this machine"


def write_study(
    text: str, to: str | None, command: Callable[[str], str] = lambda file: f"hpo check {file}"
) -> None:
    if to is None:
        echo(text, end="")
        return
    path = Path(to)
    if path.exists() or path.is_symlink():
        raise ConfigError(f"{path} already exists; choose another file with --to")
    with output(path) as file:
        file.write(text)
    note(f"wrote {path}; next: {command(shlex.quote(str(path)))}")


def do_check(args: Namespace) -> int:
    study = load(args.file, args.set)
    from ...search.study_estimate import preview, times_here

    timing = args.time
    if timing is None:
        timing = times_here()
    with plain_warnings():
        skip = " (skip it with --no-time)"
        report, why = preview(study, timing, bool(args.time), lambda text: note(text + skip))
    if args.json:
        print_json({**report.as_data(), "note": why})
    else:
        if report.not_run:  # the first line reports it; with -v, the time's line
            why, report = "", replace(report, time_note=f"{report.time_note} (--time)")
        if args.verbose:
            text = report.text() + clause("\nnote       {}", why)
        else:
            text = brief(report, why, args.file, args.set)
        echo("\n".join(map(_wrapped, text.split("\n"))))
    return 2 if report.mistakes else 0


def _after_portfolio(study: Study, method: str) -> str:
    """Describe the learnt configurations, and name the method if it proposes further trials."""
    words = placement_words(study)
    if tries_only_given(study):
        return words
    return f"{words}, then {method}"


def _wrapped(line: str) -> str:
    """Wrap a line to the terminal's width, except commands: they are to be copied whole."""
    if line.startswith(_COMMANDS):
        return line
    return in_columns(line, sys.stdout, _hanging_indent(line))


def brief(report: CheckReport, note: str, file: str, overrides: Sequence[str] = ()) -> str:
    """Return a study's plan and cost, in at most fifteen lines."""
    lines = [
        _check_answer(report, file),
        "",
        f"  search    {_search_words(report.study)}",
        f"  stopping  {_stopping_text(report)}",
        f"  confirm   {_confirm_words(report.study)}",
        f"  training  {_training_words(report)}",
        *_optional_lines(report),
    ]
    for kind, texts in (("mistake", report.mistakes), ("warning", report.warnings)):
        if texts:
            lines += ["", *(f"{kind}: {text}" for text in texts)]
    if note:
        lines += ["", f"note: {note}"]
    if not report.mistakes:
        given = shlex.quote(file) + "".join(f" --set {shlex.quote(one)}" for one in overrides)
        lines += ["", f"Next: hpo run {given}", f"Details: hpo check -v {given}"]
    return "\n".join(lines)


def _search_words(study: Study) -> str:
    names = [*study.space.names[:_NAMED]]
    if more := len(study.space.names) - len(names):
        names.append(f"{more} more")
    method = study.search.method
    if study.search.driver == "ray_tune":
        method = f"Ray Tune ({study.search.searcher})"
    if study.search.portfolio:
        method = _after_portfolio(study, method)
    over = clause(" over {}", ", ".join(names))
    first, most = study.seeds.first, study.seeds.per_config
    seeds = counted(most, "seed")
    if first < most:
        seeds = f"{first} to {seeds}"
    return f"{method}{over}; {seeds} per trial"


def _confirm_words(study: Study) -> str:
    confirm, several = study.confirm, len(study.objectives)
    if confirm is None or not confirm.runs(several):
        return "none: nothing is measured on new seeds"
    default, interim = "", ""
    if study.has_default_alone:
        return _words_of_default_alone(confirm, several)
    if confirm.default:
        default = " and default"
    if confirm.interim is not None:
        interim = f"{confirm.interim} to "
    last = f"winner{default} on {interim}"
    if not confirm.choose:
        return f"{last}{counted(confirm.report, 'new seed')}"
    best = f"best {confirm.top_k}"
    if several:
        best += default
    selection = f"{best} on {counted(confirm.choose, 'new seed')}"
    if not confirm.reports(several):
        return selection
    return f"{selection}; then {last}{confirm.report} more"


def _words_of_default_alone(confirm: Confirm, objectives: int) -> str:
    """Describe the stage of a study that tries only the default configuration."""
    report = confirm.report * bool(confirm.reports(objectives))
    seeds = [(confirm.choose, "selection seed"), (report, "test seed")]
    return f"default on {' and '.join(counted(*each) for each in seeds if each[0])}"


def _training_words(report: CheckReport) -> str:
    study = report.study
    lanes = [cost.lanes for _, cost in report.buckets if cost.lanes is not None]
    costs = _steps_words(report)
    if lanes and study.algorithm.is_process:
        costs.append(f"{max(lanes)} at once")
    elif lanes:
        costs.append(counted(max(lanes), "lane"))
    if study.algorithm.is_process:
        return ", ".join(costs)
    compiles = counted(report.bucket_count * study.spread, "compile")
    if not report.bucket_count_exact:
        compiles = f"at least {compiles}"
    return ", ".join([*costs, compiles])


def _raced_words(report: CheckReport) -> str:
    """Return the number of seeds that the forecast counts, if racing may add more."""
    seeds, expected = report.study.seeds, report.expected
    if seeds.first == seeds.per_config or expected.total == expected.limit:
        return ""
    return f" on {seeds.first} of {seeds.per_config} seeds"


def _steps_words(report: CheckReport) -> list[str]:
    """Return the total env steps by stage, as text; empty if unknown."""
    expected = report.expected
    fresh = expected.confirm + expected.asked
    parts: list[str] = []
    if expected.total is not None and expected.search is not None:
        parts.append(f"search {steps(expected.total - fresh)}{_raced_words(report)}")
    if fresh:
        parts.append(f"confirm {steps(fresh)}")
    if not parts:
        return []
    total = ""
    if expected.total is not None:
        total = f"{steps(expected.total)} {report.study.algorithm.unit} "
    if total and _raced_words(report):
        total = f"at least {total}"
    elif total and expected.is_rough:
        total = f"about {total}"
    return [f"{total}({', '.join(parts)})"]


def _optional_lines(report: CheckReport) -> Iterator[str]:
    """Yield the lines that are printed only for some studies."""
    forecast = forecast_of(report.study)
    if forecast is not None:
        yield f"  forecast  {forecast.words}"
    share = 0.0
    if report.time is not None:
        share = report.time.share("evaluation")
    if share > _NOTED:
        unit = report.study.algorithm.unit
        yield f"  evaluation takes {share:.0%} of the time; its {unit} are not counted here"
    if report.process_text:
        yield f"  process   {report.process_text}"
    if report.warm_start:
        yield f"  start     {report.warm_start}"
    if report.rejected_share > 0.0:
        yield f"  forbid    rejects {report.rejected_share:.0%} of random draws"


def _check_answer(report: CheckReport, file: str) -> str:
    if report.mistakes:
        return f"This study has {counted(len(report.mistakes), 'mistake')}."
    trials, env = report.expected.trials, env_words(report.study)
    what = env
    if trials is not None:
        what = f"{counted(trials, 'trial')} of {env}"
        if report.expected.ends_early or (report.time is not None and report.time.is_cut):
            what = f"up to {what}"
    if report.not_run:
        files, way = ", ".join(report.not_run), f"hpo check --time {shlex.quote(file)}"
        text = f"The study file is OK. Not checked: {files}; to check the code, run {way}"
        return f"{text}. Runs {what}."
    if report.time is None:
        why = clause("; time not known: {}", report.time_note)
        return f"OK. Runs {what}{why}."
    middle, low, high = report.time.words()
    return f"OK. Runs {what} in about {middle} on this machine ({low} to {high})."


def _stopping_text(report: CheckReport) -> str:
    search, early = report.study.search, report.study.early_terminate
    if early is not None:
        rule = early.type
    elif search.driver == "ray_tune":
        rule = f"Ray Tune's {search.scheduler}"
    else:
        return "none: every trial runs to completion"
    chunk_sizes = report.buckets[0][0].chunk_sizes
    rungs = [steps(at) for at in chunk_sizes.rungs]
    if not rungs:
        return f"{rule}, but runs have no rungs"
    if len(rungs) > _NAMED:
        rungs = [*rungs[:2], "...", rungs[-1]]
    end = f"{steps(chunk_sizes.env_steps)} {report.study.algorithm.unit}"
    return f"{rule} compares trials at {enumerated(rungs)} of {end}"


def _hanging_indent(line: str) -> int:
    if line.startswith(("warning: ", "mistake: ", "note: ", "OK. ")):
        return line.index(" ") + 1
    if line.startswith(_SENTENCES):
        return 0
    if line.startswith(" "):
        return 2
    return _LABEL


def do_run(args: Namespace) -> int:
    def before_code(name: str) -> None:  # mistakes in the file are reported without jax
        from .watched_run import before_code_of

        before_code_of(args)(name)

    study = load(args.file, args.set, args.name, before_code)
    text = Path(args.file).read_text(encoding="utf-8")
    from .watched_run import run_watched

    return run_watched(study, text, args)
