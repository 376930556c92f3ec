"""`hpo eval` on optical networks: heuristics and policies on the same requests.

For each seed, every rule gets the same request stream, so differences are paired.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.policy_document import NAME, read_about
from ...environments.registry import rooted
from ...environments.table import ENVIRONMENTS
from ...errors import ConfigError, counted
from ...machine.software import enable_compilation_cache
from ...store.mean_difference import paired_interval
from ...store.statistics import NO_INTERVAL, interval
from ...store.value_bounds import RATE
from ...studies.env_section import EnvFile, read_env_file
from ..charts.model import (
    XY,
    Band,
    Dot,
    Label,
    Line,
    Picture,
    Scale,
    labelled_ticks,
    round_ticks,
    value_scale,
)
from ..formatting import aligned, between, number, origin_lines
from ..output import finite_or_none, note, plain_warnings, print_answer, write_csv

if TYPE_CHECKING:  # jax is started only if a command needs it
    from ...core.envs.optical.heuristic_evaluation import HeuristicSummary, HeuristicSums, Rule
    from ...core.envs.optical.optical_environment import OpticalEnvironment
    from ...core.envs.optical.supported_load import SupportedLoad
    from ...core.saved_policy import SavedPolicy


Compared = Mapping[str, "HeuristicSums"]  # rule -> its sums
_MOST_LOADS = 1000
_LEVEL = 0.05  # of each single difference
_COLOURS = 6


def found_loads(
    question: _Question, target: float, size: Mapping[str, int]
) -> dict[str, list[dict[str, Any]]]:
    from ...core.envs.optical.supported_load import find_load

    loads = {
        name: find_load(question.environment, rule, target, **size)
        for name, rule in question.rules.items()
    }
    rows = [
        {
            "rule": name,
            "service_blocking_probability": target,
            "load": found.load,
            "ci_low": found.low,
            "ci_high": found.high,
            "seeds": size["seeds"],
            "requests_per_seed": size["steps"],
        }
        for name, found in loads.items()
    ]
    others = {name: found for name, found in loads.items() if name not in question.policies}
    beside = [
        {"policy": policy, "heuristic": name, **more_load(loads[policy], found)}
        for policy in question.policies
        for name, found in others.items()
    ]
    return {"supported_loads": rows, "more_load": beside}


def more_load(policy: SupportedLoad, heuristic: SupportedLoad) -> dict[str, float | None]:
    """Return the extra load that one rule supports, as a fraction of the other rule's load."""
    pairs = zip(policy.of_seeds, heuristic.of_seeds, strict=True)
    logs = [math.log(own) - math.log(other) for own, other in pairs]
    around = NO_INTERVAL
    if len(set(logs)) > 1:
        around = interval(logs)
    low, high = (None if end is None else math.expm1(end) for end in (around.low, around.high))
    return {"more": policy.load / heuristic.load - 1.0, "ci_low": low, "ci_high": high}


def results_data(results: Compared, policies: Sequence[str]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for rule, sums in results.items():
        several = sums.blocked.shape[1] > 1
        for at, load in enumerate(sums.loads):
            rows.append(
                {
                    "rule": rule,
                    "load": float(load),
                    "service_blocking_probability": _figure_data(
                        sums.service_summary(at), several
                    ),
                    "bitrate_blocking_probability": _figure_data(
                        sums.bitrate_summary(at), several
                    ),
                    "utilisation": float(sums.utilisation[at].mean()),
                }
            )
    others = [name for name in results if name not in policies]
    differences = [
        row
        for policy in policies
        for heuristic in others
        for row in _paired_differences(policy, heuristic, results)
    ]
    first = next(iter(results.values()))
    return {
        "seeds": int(first.blocked.shape[1]),
        "requests_per_seed": first.requests,
        "results": rows,
        "differences": differences,
    }


def _figure_data(summary: HeuristicSummary, several: bool) -> dict[str, Any]:
    std = None
    if several:
        std = summary.std
    return {
        "mean": summary.mean,
        "std": std,
        "ci_low": finite_or_none(summary.low),
        "ci_high": finite_or_none(summary.high),
        "nothing_blocked": summary.mean == 0.0,
    }


def _paired_differences(policy: str, heuristic: str, results: Compared) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    policy_sums, heuristic_sums = results[policy], results[heuristic]
    for load, own, other in zip(
        policy_sums.loads,
        policy_sums.service_blocking,
        heuristic_sums.service_blocking,
        strict=True,
    ):
        values = own - other
        std = None
        if len(values) > 1:
            std = float(values.std(ddof=1))
        around = paired_interval(own.tolist(), other.tolist(), level=_LEVEL, bounds=RATE)
        rows.append(
            {
                "policy": policy,
                "heuristic": heuristic,
                "load": float(load),
                "mean": float(values.mean()),
                "std": std,
                "ci_low": around.low,
                "ci_high": around.high,
            }
        )
    return rows


def results_text(data: Mapping[str, Any]) -> str:
    origins = [line for about in data.get("about", {}).values() for line in origin_lines(about)]
    return "\n".join([_answer_text(data), *origins])


def _answer_text(data: Mapping[str, Any]) -> str:
    lines = [data["env"] + ", sampled actions" * (not data.get("greedy", True))]
    if "trace" in data:
        what = f"{counted(data['requests'], 'request')} to {data['trace']}"
        lines.append(f"wrote {what}: {data['accepted']} accepted, {data['blocked']} blocked")
        return "\n".join(lines)
    if "supported_loads" in data:
        header = ["rule", "blocking", "load", "95%"]
        rows = [
            [
                row["rule"],
                number(row["service_blocking_probability"]),
                number(row["load"]),
                between(row["ci_low"], row["ci_high"]),
            ]
            for row in data["supported_loads"]
        ]
        lines.append(aligned(header, rows, [False, True, True, False]))
        if data["more_load"]:
            header = ["policy minus", "load", "95%"]
            rows = [
                [
                    row["heuristic"],
                    f"{row['more']:+.2%}",
                    between(row["ci_low"], row["ci_high"], "+.2%"),
                ]
                for row in data["more_load"]
            ]
            lines += ["", aligned(header, rows, [False, True, False])]
        return "\n".join(lines)
    size = f"{counted(data['seeds'], 'seed')} x {counted(data['requests_per_seed'], 'request')}"
    lines.append(
        f"{size} after {data['warmup_requests']} warm-up requests, the same for every rule"
    )
    header = ["rule", "load", "service blocking", "std", "95%", "bitrate blocking", "utilisation"]
    rows = [_table_row(row) for row in data["results"]]
    lines.append(aligned(header, rows, [False, True, True, True, False, True, True]))
    if data["differences"]:
        header = ["policy minus", "load", "service blocking", "std", "95%"]
        rows = [
            [
                row["heuristic"],
                number(row["load"]),
                f"{row['mean']:+.5f}",
                _deviation_text(row["std"]),
                between(row["ci_low"], row["ci_high"]),
            ]
            for row in data["differences"]
        ]
        lines += ["", aligned(header, rows, [False, True, True, True, False])]
    return "\n".join(lines)


def _deviation_text(std: float | None) -> str:
    if std is None:
        return "-"
    return f"{std:.5f}"


def _table_row(row: Mapping[str, Any]) -> list[str]:
    service, bitrate = (row[f"{kind}_blocking_probability"] for kind in ("service", "bitrate"))
    around = between(service["ci_low"], service["ci_high"])
    if service["nothing_blocked"]:
        around = f"below {number(service['ci_high'])} (3/n)"
    return [
        row["rule"],
        number(row["load"]),
        f"{service['mean']:.5f}",
        _deviation_text(service["std"]),
        around,
        f"{bitrate['mean']:.5f}",
        f"{row['utilisation']:.3f}",
    ]


def blocking_picture(results: Compared, title: str) -> Picture:
    """Plot blocking against load, and each rule's difference from the first, paired by seed.

    All rules get the same requests, so even rules whose intervals overlap may be significantly
    different.
    """
    # a policy is given by the path of its folder
    names = [Path(rule).name or rule for rule in results]
    sums = list(results.values())
    styles = [f"c{place % _COLOURS}" for place in range(len(sums))]
    loads = [float(load) for load in sums[0].loads]
    ticks = labelled_ticks(round_ticks(min(loads), max(loads)), number)
    reach = 0.02 * (max(loads) - min(loads)) or 1.0
    x = Scale(min(loads) - reach, max(loads) + reach, ticks, "load, Erlang")
    named = list(zip(names, styles, sums, strict=True))
    curves = [_Curve(name, style, _blocking_points(one)) for name, style, one in named]
    panels = [_loads_panel("Blocking", "service blocking probability", curves, x)]
    if len(sums) > 1:
        apart = [
            _Curve(name, style, _difference_points(one, sums[0])) for name, style, one in named[1:]
        ]
        label = f"difference from {names[0]}"
        words = f"Difference from {names[0]}, seed by seed"
        panels.append(_loads_panel(words, label, apart, x, even=True))
    caption = f"{title}: means over {counted(int(sums[0].blocked.shape[1]), 'seed')} with 95 % "
    caption += "intervals, on the same requests for every rule."
    return Picture("blocking", "Blocking over load", caption, panels)


_Points = Sequence[tuple[float, float, float | None, float | None]]  # load, mean, interval


def _blocking_points(sums: HeuristicSums) -> _Points:
    found: list[tuple[float, float, float | None, float | None]] = []
    for at, load in enumerate(sums.loads):
        one = sums.service_summary(at)
        ends = finite_or_none(one.low), finite_or_none(one.high)
        found.append((float(load), one.mean, *ends))
    return found


def _difference_points(sums: HeuristicSums, baseline: HeuristicSums) -> _Points:
    found: list[tuple[float, float, float | None, float | None]] = []
    differences = sums.service_blocking - baseline.service_blocking
    for load, values in zip(sums.loads, differences, strict=True):
        around = interval(values.tolist())
        found.append((float(load), float(values.mean()), around.low, around.high))
    return found


@dataclass(frozen=True)
class _Curve:
    """The results of one rule, load by load."""

    name: str
    style: str
    points: _Points

    def marks(self, y: Scale, even: bool) -> list[Line | Band | Dot]:
        marks: list[Line | Band | Dot] = []
        bands = [
            (at, max(low, y.low), max(high, y.low))
            for at, _, low, high in self.points
            if low is not None and high is not None
        ]
        if bands:
            marks.append(Band(tuple(bands), self.style))
        if drawn := self.drawn(even):
            marks.append(Line(tuple(drawn), self.style, tip=self.name))
        return [*marks, *(self._dot_with_tip(at, mean) for at, mean in drawn)]

    def drawn(self, even: bool) -> list[tuple[float, float]]:
        """Return the means, without zeros if the scale is logarithmic."""
        return [(at, mean) for at, mean, _, _ in self.points if even or mean > 0.0]

    def _dot_with_tip(self, at: float, mean: float) -> Dot:
        return Dot(at, mean, self.style, tip=f"{self.name}: {number(mean)}")


def _loads_panel(
    title: str, label: str, curves: Sequence[_Curve], x: Scale, *, even: bool = False
) -> XY:
    """Return one panel; `even` adds a line at 0, where two rules are equal."""
    ends = chain.from_iterable(point[1:] for one in curves for point in one.points)
    known = [value for value in ends if value is not None and (even or value > 0.0)]
    marks: list[Line | Band | Dot] = []
    labels: list[Label] = []
    if even:
        known.append(0.0)
        marks.append(Line(((x.low, 0.0), (x.high, 0.0)), "muted", thin=True, dashed=True))
    y = value_scale(known, label, may_be_log=not even)
    for one in curves:
        marks += one.marks(y, even)
        if drawn := one.drawn(even):
            labels.append(Label(drawn[-1][1], one.name, one.style))
    return XY(title, x, y, tuple(marks), wide=True, labels=tuple(labels))


def draw_curves(path: Path, results: Compared, title: str) -> None:
    from ..charts.matplotlib_files import draw_picture

    draw_picture(path, blocking_picture(results, title), title)


@dataclass(frozen=True)
class _Question:
    environment: OpticalEnvironment
    rules: Mapping[str, Rule]
    policies: tuple[str, ...]  # names in `rules`
    sampled: bool  # whether policies sample their actions
    title: str  # a short name of the environment

    def head(self) -> dict[str, Any]:
        if not self.policies:
            return {"env": self.title}
        origins = {policy: dict(read_about(Path(policy) / NAME)) for policy in self.policies}
        return {"env": self.title, "greedy": not self.sampled, "about": origins}


def do_eval_network(args: Namespace) -> int:
    _check_forms(args)
    loads = None
    if args.loads is not None:
        loads = parse_loads(args.loads)
    if args.plot is not None:
        from ..pictures import require_matplotlib

        require_matplotlib("hpo eval --plot")
    question = _read_question(args)
    if not question.rules:
        raise ConfigError("nothing to evaluate; give --heuristic ksp_ff (or all), or --policy DIR")
    if args.trace is not None:
        return _write_trace(args, question)
    size: dict[str, Any] = {"seeds": args.seeds, "steps": args.steps, "seed": args.seed}
    if args.find_load is not None:
        found = found_loads(question, args.find_load, size)
        return _print_results(args, {**question.head(), **found})
    from ...core.envs.optical.heuristic_evaluation import evaluate_heuristic

    size |= {"loads": loads, "utilisation": True}
    results = {
        name: evaluate_heuristic(question.environment, rule, **size)
        for name, rule in question.rules.items()
    }
    data = {
        **question.head(),
        "warmup_requests": question.environment.warmup_steps,
        **results_data(results, question.policies),
    }
    if args.plot is not None:
        draw_curves(Path(args.plot), results, question.title)
        note(f"wrote {args.plot}")
    return _print_results(args, data)


def _check_forms(args: Namespace) -> None:
    if args.video is not None:
        raise ConfigError("--video does not apply to optical networks; use --trace FILE")
    given = [name for name in ("find_load", "loads", "plot") if getattr(args, name) is not None]
    if args.find_load is not None and len(given) > 1:
        raise ConfigError(f"--find-load searches for the load; remove --{given[1]}")
    if args.trace is not None and given:
        option = given[0].replace("_", "-")
        raise ConfigError(f"--trace needs a single load (--set load=100); remove --{option}")


def parse_loads(text: str) -> list[float]:
    """Parse loads in Erlang, written as `100:300:10` (both ends included) or `100,150,200`.

    >>> parse_loads("100:130:10"), parse_loads("50,75.5")
    ([100.0, 110.0, 120.0, 130.0], [50.0, 75.5])
    """
    allowed = "allowed: FROM:TO:STEP such as 100:300:10, or a list such as 100,150"
    try:
        if ":" in text:
            loads = _loads_in_range([float(part) for part in text.split(":")])
        else:
            loads = [float(part) for part in text.split(",")]
    except ValueError:
        loads = []
    if not loads or not all(0.0 < load < math.inf for load in loads):
        raise ConfigError(f"--loads is {text!r}; {allowed}, each above 0 Erlang")
    return loads


def _loads_in_range(parts: Sequence[float]) -> list[float]:
    """Return the loads given as `FROM:TO:STEP`; none if the range is not finite."""
    if len(parts) != 3:
        return []
    first, last, step = parts
    if not 0.0 < step < math.inf or not 0.0 <= last - first < step * _MOST_LOADS:
        return []
    count = int((last - first) / step + 1e-9) + 1
    return [first + step * i for i in range(count)]


def _read_question(args: Namespace) -> _Question:
    file = _optical_file(args)
    if args.sample and args.policy is None:
        raise ConfigError("--sample samples a policy's actions; give --policy DIR")
    saved, id_, keys = _load_policy_and_env(args, file)
    from ...core.envs import registry
    from ...core.envs.optical.heuristic_evaluation import PolicyRule, check_fits, make_agent
    from ...core.envs.optical.optical_environment import make_from_keys
    from ...core.envs.optical.optical_settings import HEURISTIC_NAMES

    with plain_warnings():
        environment = make_from_keys(id=id_, **keys)
    names: list[str] = []
    if args.heuristic == "all":
        names = sorted(HEURISTIC_NAMES)
    elif args.heuristic:
        names = [name.strip() for name in args.heuristic.split(",")]
    rules: dict[str, Rule] = {name: name for name in names}
    for name in names:
        make_agent(name, environment)  # raises for an unknown name
    policies: tuple[str, ...] = ()
    if saved is not None:
        policies = (str(args.policy),)
        check_fits(registry.make(saved.plan.eval_env), environment)
        rules[str(args.policy)] = PolicyRule(environment, saved, greedy=not args.sample)
    settings = environment.settings
    title = f"{id_} on {Path(settings.topology).name}, {settings.slots} slots, k {settings.k}"
    return _Question(environment, rules, policies, args.sample, title)


def _load_policy_and_env(
    args: Namespace, file: EnvFile | None
) -> tuple[SavedPolicy | None, str, dict[str, Any]]:
    enable_compilation_cache()
    from ...machine.devices import prepare_devices

    prepare_devices()
    from ...core.saved_policy import load_policy

    saved = None
    if args.policy is not None:
        saved = load_policy(args.policy)
    if file is not None:
        id_, values, folder = file.spec.id, dict(file.spec.values), file.folder
    elif saved is not None:
        plan = saved.plan.eval_env
        id_, values, folder = plan.id, {**dict(plan.keys), **saved.eval_params}, plan.folder
    else:
        raise ConfigError("give --env FILE, the environment to evaluate in")
    return saved, id_, rooted(id_, values, folder)


def _optical_file(args: Namespace) -> EnvFile | None:
    if args.env is None and args.set:
        raise ConfigError("--set changes a key of --env FILE; give that file too")
    if args.env is None:
        return None
    file = read_env_file(args.env, args.set)
    if file.known.source != "optical":
        known = ", ".join(name for name, it in ENVIRONMENTS.items() if it.source == "optical")
        raise ConfigError(f"{args.env}: {file.spec.id} is not an optical network; known: {known}")
    return file


def _write_trace(args: Namespace, question: _Question) -> int:
    from ...core.envs.optical.heuristic_evaluation import trace_heuristic

    if len(question.rules) > 1:
        raise ConfigError("--trace follows one heuristic or policy; name only one")
    [rule] = question.rules.values()
    steps = args.steps
    if question.environment.settings.requests:
        steps = None
    columns = trace_heuristic(question.environment, rule, steps=steps, seed=args.seed)
    del columns["occupancy"]
    write_csv(args.trace, columns)
    accepted = int(columns["accepted"].sum())
    count = len(columns["step"])
    data = {
        **question.head(),
        "trace": str(args.trace),
        "requests": count,
        "accepted": accepted,
        "blocked": count - accepted,
    }
    return _print_results(args, data)


def _print_results(args: Namespace, data: Mapping[str, Any]) -> int:
    print_answer(args.json, data, results_text(data))
    return 0
