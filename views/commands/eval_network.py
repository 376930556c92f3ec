"""`hpo eval` on optical networks: heuristics and policies on the same requests.

Every rule serves the same streams, seed by seed, so that their differences are paired.
"""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...environments.registry import rooted
from ...environments.table import ENVIRONMENTS
from ...errors import ConfigError
from ...machine.software import enable_compilation_cache
from ...studies.env_section import EnvFile, read_env_file
from ..escape_control import echo
from ..json_output import print_answer, write_csv
from ..network_results import compare, found_loads, results_data, results_text
from ..terminal.console import plain_warnings

if TYPE_CHECKING:  # jax starts when a verb is known to need it
    from ...core.envs.optical.agents import Rule
    from ...core.envs.optical.optical_environment import OpticalEnvironment
    from ...core.saved_policy import SavedPolicy

_MOST_LOADS = 1000
_REQUESTS_A_SECOND = 10.0


@dataclass(frozen=True)
class _Question:
    environment: OpticalEnvironment
    rules: Mapping[str, Rule]
    policies: tuple[str, ...]  # names in `rules`
    sampled: bool  # policies draw their actions
    title: str  # the environment in a few words

    def head(self) -> dict[str, Any]:
        """Return the environment, and how policies act in it, for every kind of result."""
        return {"env": self.title, **({"greedy": not self.sampled} if self.policies else {})}

    def only_rule(self, option: str) -> Rule:
        if len(self.rules) > 1:
            raise ConfigError(f"{option} follows one heuristic or policy; name only one")
        [rule] = self.rules.values()
        return rule


def do_eval_network(args: Namespace) -> int:
    _check_forms(args)
    loads = None if args.loads is None else parse_loads(args.loads)
    if args.plot is not None:
        from ..pictures import require_matplotlib

        require_matplotlib("hpo eval --plot")
    question = _question(args)
    if not question.rules:
        raise ConfigError("nothing to evaluate; give --heuristic ksp_ff, or all, or --policy DIR")
    if args.trace is not None:
        return _trace(args, question)
    if args.video is not None:
        return _film(args, question)
    if args.find_load is not None:
        found = found_loads(question.environment, question.rules, question.policies,
                            args.find_load, args.seeds, args.steps, args.seed)  # fmt: skip
        return _print(args, {**question.head(), **found})
    results = compare(
        question.environment, question.rules, args.seeds, args.steps, args.seed, loads
    )
    data = {**question.head(), "warmup_requests": question.environment.warmup_steps,
            **results_data(results, question.policies)}  # fmt: skip
    if args.plot is not None:
        from ..pictures import draw_curves

        draw_curves(Path(args.plot), results, question.title)
        echo(f"wrote {args.plot}", file=sys.stderr)
    return _print(args, data)


def _check_forms(args: Namespace) -> None:
    """Refuse options that exclude each other."""
    if args.find_load is not None and args.loads is not None:
        raise ConfigError("--find-load searches for the load; leave --loads out")
    if args.find_load is not None and args.plot is not None:
        raise ConfigError("--plot draws blocking over loads; give --loads instead of --find-load")
    if args.trace is None and args.video is None:
        return
    follows = "--trace" if args.trace is not None else "--video"
    for option in ("find_load", "loads", "plot"):
        if getattr(args, option) is not None:
            raise ConfigError(
                f"{follows} follows one seed at the load of --env; leave "
                f"--{option.replace('_', '-')} out, or set the load by --set load=100"
            )


def parse_loads(text: str) -> list[float]:
    """Return the loads of `100:300:10` (both ends counted) or `100,150,200`, Erlang.

    >>> parse_loads("100:130:10"), parse_loads("50,75.5")
    ([100.0, 110.0, 120.0, 130.0], [50.0, 75.5])
    """
    allowed = "allowed: FROM:TO:STEP such as 100:300:10, or a list such as 100,150"
    try:
        parts = [float(part) for part in text.split(":" if ":" in text else ",")]
    except ValueError:
        parts = []
    loads = parts
    if ":" in text:
        first, last, step = parts if len(parts) == 3 else (0.0, 0.0, 0.0)
        fits = 0.0 < step < math.inf and 0.0 <= last - first < step * _MOST_LOADS
        count = int((last - first) / step + 1e-9) + 1 if fits else 0
        loads = [first + step * i for i in range(count)]
    if not loads or not all(0.0 < load < math.inf for load in loads):
        raise ConfigError(f"--loads is {text!r}; {allowed}, each above 0 Erlang")
    return loads


def _question(args: Namespace) -> _Question:
    """Read the environment and the rules, before anything is compiled."""
    file = _optical_file(args)
    if args.sample and args.policy is None:
        raise ConfigError("--sample samples a policy's actions; give --policy DIR")
    saved, id_, keys = _prepared(args, file)
    from ...core.envs.optical.agents import make_agent
    from ...core.envs.optical.optical_environment import make_from_keys
    from ...core.envs.optical.optical_settings import HEURISTIC_NAMES

    with plain_warnings():
        environment = make_from_keys(id=id_, **keys)
    names = sorted(HEURISTIC_NAMES) if args.heuristic == "all" else _names(args.heuristic)
    rules: dict[str, Rule] = {name: name for name in names}
    for name in names:
        make_agent(name, environment)  # refuses an unknown name
    policies = () if saved is None else (str(args.policy),)
    if saved is not None:
        rules[str(args.policy)] = _policy_rule(saved, environment, args.sample)
    settings = environment.settings
    title = f"{id_} on {Path(settings.topology).name}, {settings.slots} slots, k {settings.k}"
    return _Question(environment, rules, policies, args.sample, title)


def _prepared(
    args: Namespace, file: EnvFile | None
) -> tuple[SavedPolicy | None, str, dict[str, Any]]:
    """Start jax; return `--policy`, and id and keys of `--env` or else of its evaluation."""
    enable_compilation_cache()
    from ...machine.devices import prepare_devices

    prepare_devices()
    from ...core.saved_policy import load_policy

    saved = None if args.policy is None else load_policy(args.policy)
    if file is not None:
        id_, values, folder = file.spec.id, dict(file.spec.values), file.folder
    elif saved is not None:
        plan = saved.plan.eval_env
        id_, values, folder = plan.id, {**dict(plan.keys), **saved.eval_params}, plan.folder
    else:
        raise ConfigError("give --env FILE, the environment to evaluate in")
    return saved, id_, rooted(id_, values, folder)


def _policy_rule(saved: SavedPolicy, environment: OpticalEnvironment, sampled: bool) -> Rule:
    from ...core.envs import registry
    from ...core.envs.optical.agents import PolicyRule, check_fits

    check_fits(registry.make(saved.plan.eval_env), environment)
    return PolicyRule(environment, saved, greedy=not sampled)


def _optical_file(args: Namespace) -> EnvFile | None:
    """Read `--env`, which must be an optical network."""
    if args.env is None and args.set:
        raise ConfigError(
            "--set changes a key of --env FILE; give that file too, such as the policy's study"
        )
    file = None if args.env is None else read_env_file(args.env, args.set)
    if file is not None and file.known.source != "optical":
        raise ConfigError(
            f"{args.env} describes {file.spec.id}, which is not an optical network; heuristics "
            "and pictures are for "
            + ", ".join(name for name, item in ENVIRONMENTS.items() if item.source == "optical")
        )
    return file


def _names(given: str | None) -> list[str]:
    return [] if given is None else [name.strip() for name in given.split(",")]


def _trace(args: Namespace, question: _Question) -> int:
    from ...core.envs.optical.request_trace import trace_heuristic

    rule = question.only_rule("--trace")
    given = question.environment.settings.requests
    columns = trace_heuristic(
        question.environment, rule, steps=None if given else args.steps, seed=args.seed
    )
    del columns["occupancy"]
    write_csv(args.trace, columns)
    accepted = int(columns["accepted"].sum())
    count = len(columns["step"])
    data = {**question.head(), "trace": str(args.trace), "requests": count,
            "accepted": accepted, "blocked": count - accepted}  # fmt: skip
    return _print(args, data)


def _film(args: Namespace, question: _Question) -> int:
    from ...core.envs.optical.request_trace import spectra
    from ..pictures import spectrum_pictures, write_film

    rule, environment = question.only_rule("--video"), question.environment
    skipped = environment.warmup_steps if environment.settings.continuous else 0
    steps = skipped + args.steps
    if environment.settings.requests:
        steps = min(steps, environment.max_requests)
    shown = spectra(environment, rule, steps=steps, seed=args.seed)[skipped:]
    count = write_film(args.video, _REQUESTS_A_SECOND, spectrum_pictures(shown))
    return _print(args, {**question.head(), "video": str(args.video), "requests": count})


def _print(args: Namespace, data: Mapping[str, Any]) -> int:
    print_answer(args.json, data, results_text(data))
    return 0
