"""`hpo eval`: an exported policy by itself, on seeds that no study uses."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.policy_document import NAME, read_document
from ...environments.registry import find
from ...environments.table import ENVIRONMENTS
from ...errors import ConfigError, StoreError, counted
from ...machine.software import enable_compilation_cache
from ...store.paired import Bounds
from ...store.statistics import interval, mean
from ...studies.evaluation import LONGEST
from ...studies.user_code import import_user_code
from ..formatting import number, with_interval
from ..json_output import finite_or_none, print_answer, write_csv
from ..terminal.console import fitted

if TYPE_CHECKING:  # jax is loaded once the words are known to be right
    from ...core.saved_policy import SavedPolicy

_OF_NETWORKS = ("set", "seeds", "steps", "loads", "find_load", "plot")


def do_eval(args: Namespace) -> int:
    if args.policy is not None and args.directory is not None:
        raise ConfigError("a policy is given twice; keep POLICY_DIR or --policy")
    args.policy = args.policy or args.directory
    network = args.env is not None or args.heuristic is not None or _is_network(args.policy)
    _check_options(args, network)
    if args.video is not None:
        from ..pictures import check_film

        check_film(args.video)
    if args.imports:
        from ...core.device_request import ask_for_devices

        ask_for_devices()  # an array that a module makes when it is imported starts jax
    for path in map(Path, args.imports):
        import_user_code([path.name], path.parent)
    if network:
        from .eval_network import do_eval_network

        return do_eval_network(args)
    if args.policy is None:
        raise ConfigError("nothing to evaluate; give POLICY_DIR, or --env FILE --heuristic NAME")
    enable_compilation_cache()
    from ...core.saved_policy import load_policy
    from ...machine.devices import prepare_devices

    prepare_devices()
    saved = load_policy(Path(args.policy))
    if args.trace is not None:
        return _trace(args, saved)
    if args.video is not None:
        return _film(args, saved)
    found = saved.evaluate(args.episodes, args.seed, greedy=not args.sample)
    returns = [float(value) for value in found.returns[0]]
    lengths = [float(value) for value in found.lengths[0]]
    env = saved.plan.eval_env
    known = find(env.id)
    bounds = Bounds() if known is None else Bounds(*known.return_range(dict(env.keys)))
    around = bounds.around(interval(returns))
    data = {
        "policy": str(Path(args.policy)),
        "env": env.id,
        "episodes": len(returns),
        "seed": args.seed,
        "greedy": not args.sample,
        "return_mean": finite_or_none(mean(returns)),
        "ci_low": finite_or_none(around.low),
        "ci_high": finite_or_none(around.high),
        "return_min": finite_or_none(min(returns)),
        "return_max": finite_or_none(max(returns)),
        "length_mean": mean(lengths),
        "cut": sum(length >= LONGEST for length in lengths),
        "metrics": {
            name: finite_or_none(mean([float(value) for value in values[0]]))
            for name, values in sorted(found.metrics.items())
        },
        "returns": [finite_or_none(value) for value in returns],
        "about": dict(saved.about),
    }
    print_answer(args.json, data, fitted(_text(data), sys.stdout, 8))
    return 0


def _check_options(args: Namespace, network: bool) -> None:
    """Refuse options that would do nothing, and fill in defaults."""
    others = ("episodes",) if network else _OF_NETWORKS
    given = [name for name in others if getattr(args, name) not in (None, False, [])]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        what = "is not for optical networks" if network else "is for optical networks only"
        raise ConfigError(f"{option} {what}; leave it out")
    if args.video is not None and args.trace is not None:
        raise ConfigError("--video and --trace cannot be combined; give one of them")
    filmed = args.video is not None
    args.episodes = args.episodes or (1 if filmed else 100)
    args.seeds = args.seeds or 10
    args.steps = args.steps or (300 if filmed else 20_000)


def _trace(args: Namespace, saved: SavedPolicy) -> int:
    columns = saved.trace(args.episodes, args.seed, greedy=not args.sample)
    write_csv(args.trace, columns)
    count = len(columns["step"])
    return _print_written(args, saved, "trace", args.trace, "env_steps", count)


def _print_written(
    args: Namespace, saved: SavedPolicy, kind: str, path: str, unit: str, count: int
) -> int:
    data = {"env": saved.plan.eval_env.id, kind: str(path), "episodes": args.episodes, unit: count}
    what = counted(count, unit.removesuffix("s").replace("_", " "))
    text = f"wrote {what} of {counted(args.episodes, 'episode')} into {path}"
    print_answer(args.json, data, text)
    return 0


def _film(args: Namespace, saved: SavedPolicy) -> int:
    """Draw the first episodes that the policy would be evaluated on."""
    from ..pictures import write_film

    rate, pictures = saved.film(args.episodes, args.seed, greedy=not args.sample)
    count = write_film(args.video, rate, pictures)
    return _print_written(args, saved, "video", args.video, "pictures", count)


def _is_network(policy: str | None) -> bool:
    """Return whether a policy serves an optical network; a bad folder is reported later."""
    path = Path(policy or "") / NAME
    if policy is None or not path.is_file():
        return False
    try:
        id_ = read_document(path).eval_env.id
    except StoreError:
        return False
    return id_ in ENVIRONMENTS and ENVIRONMENTS[id_].source == "optical"


def _text(data: dict[str, Any]) -> str:
    how = "the most likely action" if data["greedy"] else "sampled actions"
    value = with_interval(data["return_mean"], data["ci_low"], data["ci_high"])
    lines = [
        f"{data['policy']} on {data['env']}, {counted(data['episodes'], 'episode')}, {how}",
        f"return  {value}",
        f"        min {number(data['return_min'])}, max {number(data['return_max'])}",
        f"length  {number(data['length_mean'])} env steps",
    ]
    lines += [f"{name}  {number(value)}" for name, value in data["metrics"].items()]
    if data["cut"]:
        lines.append(f"{data['cut']} of the episodes were cut at {LONGEST:,} env steps: the "
                     "environment did not end them")  # fmt: skip
    return "\n".join(lines)
