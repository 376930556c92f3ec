"""`hpo eval ... --k ... --path-order ...`: heuristics over several sets of candidates.

Every combination serves the same streams of requests, a policy with them; all rules and orders of
one k are one compiled program.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError, UnknownNameError
from ...store.statistics import interval
from ..documents import print_answer
from ..formatting import aligned, between, counted

if TYPE_CHECKING:
    from ...core.envs.optical.agents import Rule
    from ...core.envs.optical.optical_environment import OpticalEnvironment
    from ...core.envs.optical.survey import Surveyed

__all__ = [
    "Candidate",
    "path_counts",
    "path_orders",
    "print_survey",
    "survey_data",
    "survey_text",
]

_MOST_PATHS = 1000


@dataclass(frozen=True)
class Candidate:
    """A policy beside the heuristics.

    Attributes:
        name: as it was given.
        environment: with the candidate paths that it was trained for.
        rule: the policy, as what serves there.
    """

    name: str
    environment: OpticalEnvironment
    rule: Rule


def path_counts(text: str | None) -> list[int]:
    """Return the numbers of `5,10,25`; none where nothing was given.

    Raises:
        ConfigError: one of them is no whole number of at least 1.

    >>> path_counts("5,10"), path_counts(None)
    ([5, 10], [])
    """
    counts: list[int] = []
    for word in [] if text is None else text.split(","):
        given = word.strip()
        if not given.isascii() or not given.isdigit() or not 1 <= int(given) <= _MOST_PATHS:
            raise ConfigError(
                f"--k is {text!r}; allowed: whole numbers from 1 to {_MOST_PATHS} such as 5,10,25"
            )
        counts.append(int(given))
    return list(dict.fromkeys(counts))


def path_orders(text: str | None) -> list[str]:
    """Return the path orders of `hops,distance` or `all`; none where nothing was given.

    Raises:
        UnknownNameError: no such order.
    """
    from ...core.envs.optical.candidate_paths import PATH_ORDERS

    if text is None:
        return []
    if text == "all":
        return list(PATH_ORDERS)
    names = [word.strip() for word in text.split(",")]
    for name in names:
        if name not in PATH_ORDERS:
            raise UnknownNameError("path order", name, (*PATH_ORDERS, "all"))
    return list(dict.fromkeys(names))


def print_survey(
    args: Namespace,
    groups: Sequence[Sequence[OpticalEnvironment]],
    rules: Sequence[str],
    title: str,
    policy: Candidate | None = None,
) -> int:
    """Evaluate and print.

    Args:
        args: of `hpo eval`.
        groups: environments that differ in `path_order` alone, one group a k.
        rules: heuristics.
        title: the environment in a few words.
        policy: serves the same requests; None where there is none.

    Raises:
        ConfigError: an option that does not go with several environments.
    """
    clashing = {"--loads": args.loads, "--find-load": args.find_load, "--trace": args.trace,
                "--plot": args.plot, "--video": args.video}  # fmt: skip
    for option, given in clashing.items():
        if given is not None:
            raise ConfigError(
                f"{option} is for a single network; leave --k and --path-order out, and give "
                "--set k=10 --set path_order=hops instead"
            )
    if not rules:
        raise ConfigError("nothing to evaluate; give --heuristic ksp_ff, or all")
    if args.sample and policy is None:
        raise ConfigError("--sample samples a policy's actions; give --policy DIR")
    from ...core.envs.optical.heuristic_evaluation import evaluate_heuristic
    from ...core.envs.optical.survey import Surveyed, survey

    size = {"seeds": args.seeds, "steps": args.steps, "seed": args.seed}
    found: list[Surveyed] = []
    for environments in groups:
        found += survey(environments, rules, **size)
    learnt = None
    if policy is not None:
        seen = evaluate_heuristic(policy.environment, policy.rule, utilisation=True, **size)
        learnt = Surveyed(policy.environment, policy.name, seen)
    data = survey_data(found, title, learnt)
    print_answer(args.json, data, survey_text(data))
    return 0


def survey_data(
    heuristics: Sequence[Surveyed], title: str, policy: Surveyed | None = None
) -> dict[str, Any]:
    """Return the figures as JSON data, the least service blocking first.

    The policy is compared with the strongest of the heuristics on these very requests, which the
    choice flatters: a difference below 0 is one from all of them.
    """
    found = [*heuristics, *([] if policy is None else [policy])]
    best = _strongest(found)
    rows = [_row(item, best) for item in found]
    rows.sort(key=lambda row: row["service_blocking_probability"]["mean"])
    first = found[0].evaluation
    data: dict[str, Any] = {
        "env": title,
        "load": float(first.loads[0]),
        "seeds": int(first.blocked.shape[1]),
        "requests_per_seed": first.requests,
        "warmup_requests": found[0].environment.warmup_steps,
        "results": rows,
    }
    if policy is not None:
        rival = _strongest(heuristics)
        data["policy"] = {
            "rule": policy.rule,
            "strongest": {
                "k": rival.environment.settings.k,
                "path_order": rival.environment.settings.path_order,
                "rule": rival.rule,
            },
            "less_strongest": _apart(policy, rival),
        }
    return data


def _strongest(found: Sequence[Surveyed]) -> Surveyed:
    return min(found, key=lambda item: item.evaluation.service_blocking.mean())


def _apart(item: Surveyed, other: Surveyed) -> dict[str, Any]:
    """Return the difference in service blocking, paired by seed, with its 95 % interval."""
    apart = (item.evaluation.service_blocking - other.evaluation.service_blocking)[0]
    paired = interval(apart.tolist())
    return {"mean": float(apart.mean()), "ci_low": paired.low, "ci_high": paired.high}


def _row(item: Surveyed, best: Surveyed) -> dict[str, Any]:
    settings, seen = item.environment.settings, item.evaluation
    service, bitrate = seen.service_summary(), seen.bitrate_summary()
    around = interval(service_values := seen.service_blocking[0].tolist())
    several = len(service_values) > 1
    return {
        "k": settings.k,
        "path_order": settings.path_order,
        "rule": item.rule,
        "service_blocking_probability": {
            "mean": service.mean,
            "std": service.std if several else None,
            "ci_low": around.low,
            "ci_high": around.high,
            "values": service_values,
        },
        "bitrate_blocking_probability": {
            "mean": bitrate.mean,
            "std": bitrate.std if several else None,
        },
        "utilisation": float(seen.utilisation.mean()),
        "less_best": _apart(item, best),
    }


def survey_text(data: Mapping[str, Any]) -> str:
    """Return the data as a table."""
    header = ["k", "path order", "rule", "service blocking", "95%", "minus the best", "95%",
              "bitrate blocking"]  # fmt: skip
    rows: list[list[str]] = []
    for row in data["results"]:
        service, apart = row["service_blocking_probability"], row["less_best"]
        rows.append(
            [
                str(row["k"]),
                row["path_order"],
                row["rule"],
                f"{service['mean']:.5f}",
                between(service["ci_low"], service["ci_high"]),
                f"{apart['mean']:+.5f}",
                between(apart["ci_low"], apart["ci_high"]),
                f"{row['bitrate_blocking_probability']['mean']:.5f}",
            ]
        )
    right = [True, False, False, True, False, True, False, True]
    head = (
        f"{data['env']} at {data['load']:g} Erlang: {counted(data['seeds'], 'seed')} x "
        f"{counted(data['requests_per_seed'], 'request')} after {data['warmup_requests']} of "
        "warm-up, the same for every row"
    )
    lines = [head, aligned(header, rows, right)]
    if "policy" in data:
        policy, strongest = data["policy"], data["policy"]["strongest"]
        apart = policy["less_strongest"]
        lines.append(
            f"{policy['rule']} minus the strongest heuristic ({strongest['rule']}, "
            f"k {strongest['k']}, {strongest['path_order']}): {apart['mean']:+.5f} "
            f"{between(apart['ci_low'], apart['ci_high'])}, paired by seed"
        )
    return "\n".join(lines)
