"""Blocking of several rules on the same requests: values over seeds, paired differences, text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import counted
from ..store.statistics import NO_INTERVAL, interval
from .formatting import aligned, between, number

if TYPE_CHECKING:
    from ..core.envs.optical.agents import Rule
    from ..core.envs.optical.heuristic_evaluation import Evaluation, Summary
    from ..core.envs.optical.optical_environment import OpticalEnvironment
    from ..core.envs.optical.supported_load import SupportedLoad

Rules = Mapping[str, "Rule"]


@dataclass(frozen=True)
class Compared:
    rule: str
    evaluation: Evaluation


def compare(
    environment: OpticalEnvironment, rules: Rules, seeds: int, steps: int, seed: int,
    loads: Sequence[float] | None,
) -> list[Compared]:  # fmt: skip
    """Evaluate every rule on the same streams, one program per rule."""
    from ..core.envs.optical.heuristic_evaluation import evaluate_heuristic

    size: dict[str, Any] = {"seeds": seeds, "steps": steps, "seed": seed, "loads": loads}
    return [
        Compared(name, evaluate_heuristic(environment, rule, utilisation=True, **size))
        for name, rule in rules.items()
    ]


def found_loads(
    environment: OpticalEnvironment, rules: Rules, policies: Sequence[str], target: float,
    seeds: int, steps: int, seed: int,
) -> dict[str, list[dict[str, Any]]]:  # fmt: skip
    """Find, for every rule, the load at which it blocks a share `target` of the services."""
    from ..core.envs.optical.supported_load import find_load

    loads = {
        name: find_load(environment, rule, target, seeds=seeds, steps=steps, seed=seed)
        for name, rule in rules.items()
    }
    rows = [
        {
            "rule": name, "service_blocking_probability": target, "load": found.load,
            "ci_low": found.low, "ci_high": found.high, "seeds": seeds,
            "requests_per_seed": steps,
        }
        for name, found in loads.items()
    ]  # fmt: skip
    beside = [
        {"policy": policy, "heuristic": name, **more_load(loads[policy], found)}
        for policy in policies
        for name, found in loads.items()
        if name not in policies
    ]
    return {"supported_loads": rows, "more_load": beside}


def more_load(ours: SupportedLoad, theirs: SupportedLoad) -> dict[str, float | None]:
    """Return how much more load one rule carries, as a share of the other's.

    The interval is that of the logarithms of their ratios, paired by seed.
    """
    pairs = zip(ours.of_seeds, theirs.of_seeds, strict=True)
    logs = [math.log(own) - math.log(other) for own, other in pairs]
    around = interval(logs) if len(set(logs)) > 1 else NO_INTERVAL
    low, high = (None if end is None else math.expm1(end) for end in (around.low, around.high))
    return {"more": ours.load / theirs.load - 1.0, "ci_low": low, "ci_high": high}


def results_data(results: Sequence[Compared], policies: Sequence[str]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    heuristics = [item for item in results if item.rule not in policies]
    for item in results:
        seen = item.evaluation
        several = seen.blocked.shape[1] > 1
        for at, load in enumerate(seen.loads):
            rows.append({
                "rule": item.rule,
                "load": float(load),
                "service_blocking_probability": _figure(seen.service_summary(at), several),
                "bitrate_blocking_probability": _figure(seen.bitrate_summary(at), several),
                "utilisation": float(seen.utilisation[at].mean()),
            })  # fmt: skip
        if item.rule in policies:
            for other in heuristics:
                differences += _differences(item, other)
    first = results[0].evaluation
    return {
        "seeds": int(first.blocked.shape[1]),
        "requests_per_seed": first.requests,
        "results": rows,
        "differences": differences,
    }


def _figure(summary: Summary, several: bool) -> dict[str, Any]:
    finite = math.isfinite(summary.low)
    return {
        "mean": summary.mean,
        "std": summary.std if several else None,
        "ci_low": summary.low if finite else None,
        "ci_high": summary.high if finite else None,
        "nothing_blocked": summary.mean == 0.0,
    }


def _differences(policy: Compared, heuristic: Compared) -> list[dict[str, Any]]:
    """Return policy minus heuristic, seed by seed on the same requests, for every load."""
    rows: list[dict[str, Any]] = []
    ours, theirs = policy.evaluation.service_blocking, heuristic.evaluation.service_blocking
    for load, values in zip(policy.evaluation.loads, ours - theirs, strict=True):
        around = interval(values.tolist())
        rows.append({
            "policy": policy.rule, "heuristic": heuristic.rule, "load": float(load),
            "mean": float(values.mean()),
            "std": float(values.std(ddof=1)) if len(values) > 1 else None,
            "ci_low": around.low, "ci_high": around.high,
        })  # fmt: skip
    return rows


def results_text(data: Mapping[str, Any]) -> str:
    lines = [data["env"] + ", sampled actions" * (not data.get("greedy", True))]
    written = data.get("trace") or data.get("video")
    if written is not None:
        text = f"{lines[0]}\nwrote {counted(data['requests'], 'request')} to {written}"
        if "trace" in data:
            text += f": {data['accepted']} accepted, {data['blocked']} blocked"
        return text
    if "supported_loads" in data:
        header = ["rule", "blocking", "load", "95%"]
        rows = [
            [row["rule"], number(row["service_blocking_probability"]), number(row["load"]),
             between(row["ci_low"], row["ci_high"])]
            for row in data["supported_loads"]
        ]  # fmt: skip
        lines.append(aligned(header, rows, [False, True, True, False]))
        if data["more_load"]:
            header = ["policy minus", "load", "95%"]
            rows = [
                [row["heuristic"], f"{row['more']:+.2%}",
                 between(row["ci_low"], row["ci_high"], "+.2%")]
                for row in data["more_load"]
            ]  # fmt: skip
            lines += ["", aligned(header, rows, [False, True, False])]
        return "\n".join(lines)
    requests = counted(data["requests_per_seed"], "request")
    lines.append(
        f"{counted(data['seeds'], 'seed')} x {requests} after "
        f"{data['warmup_requests']} of warm-up, the same for every rule"
    )
    header = ["rule", "load", "service blocking", "std", "95%", "bitrate blocking", "utilisation"]
    rows = [_row(row) for row in data["results"]]
    lines.append(aligned(header, rows, [False, True, True, True, False, True, True]))
    if data["differences"]:
        header = ["policy minus", "load", "service blocking", "std", "95%"]
        rows = [
            [row["heuristic"], number(row["load"]), f"{row['mean']:+.5f}", _spread(row["std"]),
             between(row["ci_low"], row["ci_high"])]
            for row in data["differences"]
        ]  # fmt: skip
        lines += ["", aligned(header, rows, [False, True, True, True, False])]
    return "\n".join(lines)


def _spread(std: float | None) -> str:
    return "-" if std is None else f"{std:.5f}"


def _row(row: Mapping[str, Any]) -> list[str]:
    service, bitrate = (row[f"{kind}_blocking_probability"] for kind in ("service", "bitrate"))
    around = between(service["ci_low"], service["ci_high"])
    if service["nothing_blocked"]:
        around = f"below {number(service['ci_high'])} (3/n)"
    return [
        row["rule"], number(row["load"]), f"{service['mean']:.5f}", _spread(service["std"]),
        around, f"{bitrate['mean']:.5f}", f"{row['utilisation']:.3f}",
    ]  # fmt: skip
