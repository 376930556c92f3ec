"""`hpo eval`: evaluates an exported policy on seeds that no study uses."""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.policy_document import NAME, TRAINING, read_about, read_document, read_training
from ...environments.registry import find
from ...environments.table import ENVIRONMENTS
from ...errors import ConfigError, StoreError, counted
from ...machine.software import enable_compilation_cache
from ...store.statistics import mean
from ...store.unobserved import Bounds, bounded_interval
from ...studies.algorithm import Algorithm
from ...studies.algorithm_section import is_library, loaded_algorithm
from ...studies.evaluation import LONGEST
from ...studies.user_code import import_user_code
from ..formatting import number, origin_lines, with_interval
from ..output import finite_or_none, print_answer, write_csv
from ..terminal.console import fitted

if TYPE_CHECKING:  # jax is loaded once the arguments are valid
    from ...core.plan import EnvPlan
    from ...core.training_program import SavedTraining

_Play = Callable[[int, int], Any]  # of a number of episodes and a seed
_OF_NETWORKS = ("set", "seeds", "steps", "loads", "find_load", "plot")


def do_eval(args: Namespace) -> int:
    if args.policy is not None and args.directory is not None:
        raise ConfigError("the policy is given twice; use either POLICY_DIR or --policy")
    args.policy = args.policy or args.directory
    network = args.env is not None or args.heuristic is not None or _is_network(args.policy)
    _check_options(args, network)
    if args.video is not None:
        from ..pictures import check_film

        check_film(args.video)
    if args.imports:
        from ...core.device_request import ask_for_devices

        ask_for_devices()  # an array that a module creates on import starts jax
    for path in map(Path, args.imports):
        import_user_code([path.name], path.parent)
    if network:
        from .eval_network import do_eval_network

        return do_eval_network(args)
    if args.policy is None:
        raise ConfigError("nothing to evaluate; give POLICY_DIR, or --env FILE --heuristic NAME")
    enable_compilation_cache()
    if (Path(args.policy) / TRAINING).is_file():
        return _eval_training(args)
    return _eval_policy(args)


def _eval_policy(args: Namespace) -> int:
    """Evaluate a PPO policy."""
    from ...core.saved_policy import load_policy
    from ...machine.devices import prepare_devices

    prepare_devices()
    saved, greedy = load_policy(Path(args.policy)), not args.sample
    env = saved.plan.eval_env
    if _is_written(
        args, env.id, partial(saved.trace, greedy=greedy), partial(saved.film, greedy=greedy)
    ):
        return 0
    found = saved.evaluate(args.episodes, args.seed, greedy=greedy)
    returns = [float(value) for value in found.returns[0]]
    lengths = [float(value) for value in found.lengths[0]]
    data = {
        "policy": str(Path(args.policy)),
        "env": env.id,
        "episodes": len(returns),
        "seed": args.seed,
        "greedy": greedy,
        **_episode_statistics(returns, lengths, _return_bounds(env)),
        "metrics": _metric_means({name: values[0] for name, values in found.metrics.items()}),
        "returns": [finite_or_none(value) for value in returns],
        "about": dict(saved.about),
    }
    print_answer(args.json, data, fitted(_evaluation_text(data), sys.stdout, 8))
    return 0


def _episode_statistics(
    returns: list[float], lengths: list[float], bounds: Bounds
) -> dict[str, Any]:
    around = bounded_interval(returns, bounds)
    found = {
        "return_mean": mean(returns),
        "ci_low": around.low,
        "ci_high": around.high,
        "return_min": min(returns),
        "return_max": max(returns),
        "length_mean": mean(lengths),
    }
    cut = sum(length >= LONGEST for length in lengths)
    return {**{name: finite_or_none(value) for name, value in found.items()}, "cut": cut}


def _return_bounds(env: EnvPlan) -> Bounds:
    known = find(env.id)
    if known is None:
        return Bounds()
    return Bounds(*known.return_range(dict(env.keys)))


def _metric_means(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: finite_or_none(mean([*map(float, given)])) for name, given in sorted(values.items())
    }


def _eval_training(args: Namespace) -> int:
    """Evaluate the saved state of a custom training class from rejax or `--import`."""
    folder = Path(args.policy)
    name = read_training(folder)["algorithm"]
    saved = _saved_training(args, folder, name)
    watched = args.trace is not None or args.video is not None
    if watched and _is_written(args, saved.env_id, saved.trace, saved.film):
        return 0
    values = saved.evaluate(args.episodes, args.seed)
    lengths = [float(value) for value in values.pop("length", [])]
    returns = [float(value) for value in values.pop("return", [])]
    data = {"policy": str(folder), "algorithm": name, "episodes": args.episodes, "seed": args.seed}
    lines = [f"{folder} of {name}, {counted(args.episodes, 'episode')}"]
    if returns:
        given = saved.lane.training.given
        bounds = Bounds()
        if given is not None:
            bounds = _return_bounds(given.plan)
        data |= _episode_statistics(returns, lengths or [math.nan], bounds)
        about_returns = _lines_of_returns(data)
        if not lengths:
            about_returns = about_returns[:2]
        lines += about_returns
    metrics = _metric_means(values)
    data |= {"metrics": metrics, "returns": [finite_or_none(value) for value in returns]}
    lines += [f"{name}  {number(value)}" for name, value in metrics.items()]
    data["about"] = dict(read_about(folder / TRAINING))
    lines += origin_lines(data["about"])
    print_answer(args.json, data, fitted("\n".join(lines), sys.stdout, 8))
    return 0


def _saved_training(args: Namespace, folder: Path, name: str) -> SavedTraining:
    """Read the saved state of a custom training run, with the class that trained it."""
    from ...core.training_program import SavedTraining

    algorithm = _algorithm_of(name, folder, args.imports)
    if args.sample:
        raise ConfigError(f"--sample works only for PPO (here: {algorithm.label}); remove it")
    return SavedTraining.read(folder, algorithm.made)


def _algorithm_of(name: str, folder: Path, imports: Sequence[str]) -> Algorithm:
    """Return the class that trained a policy; its file must be one of the imports."""
    if is_library(name):
        return loaded_algorithm(name)
    file, _, label = name.partition(":")
    places = [Path(path).parent for path in imports if Path(path).name == Path(file).name]
    if not places:
        text = f"{folder} was trained by {name}; read that file, then run"
        raise ConfigError(f"{text}: hpo eval {folder} --import {file}")
    return loaded_algorithm(f"{Path(file).name}:{label}", places[0])


def _check_options(args: Namespace, network: bool) -> None:
    """Reject options that would have no effect, and add defaults."""
    others, what = _OF_NETWORKS, "is for optical networks only"
    if network:
        others, what = ("episodes",), "does not apply to optical networks"
    given = [name for name in others if getattr(args, name) not in (None, False, [])]
    if given and not _is_unknown(args.policy):  # otherwise, reading the folder reports it
        option = f"--{given[0].replace('_', '-')}"
        raise ConfigError(f"{option} {what}; remove it")
    if args.video is not None and args.trace is not None:
        raise ConfigError("--video and --trace cannot be combined; give only one of them")
    episodes, steps = 100, 20_000
    if args.video is not None:
        episodes, steps = 1, 300
    args.episodes = args.episodes or episodes
    args.seeds = args.seeds or 10
    args.steps = args.steps or steps


def _is_unknown(policy: str | None) -> bool:
    """Return whether a folder has no policy; it may be meant as one of an optical network."""
    known = (NAME, TRAINING)
    return policy is not None and not any((Path(policy) / name).is_file() for name in known)


def _is_written(args: Namespace, env: str, trace: _Play, film: _Play) -> bool:
    """Write a trace or video of the first evaluation episodes, if requested."""
    if args.trace is not None:
        columns = trace(args.episodes, args.seed)
        write_csv(args.trace, columns)
        kind, path, unit, count = "trace", args.trace, "env_steps", len(columns["step"])
    elif args.video is not None:
        from ..pictures import write_film

        kind, path, unit = "video", args.video, "pictures"
        count = write_film(args.video, *film(args.episodes, args.seed))
    else:
        return False
    data = {"env": env, kind: str(path), "episodes": args.episodes, unit: count}
    what = counted(count, "frame" if kind == "video" else "env step")
    text = f"wrote {what} from {counted(args.episodes, 'episode')} to {path}"
    print_answer(args.json, data, text)
    return True


def _is_network(policy: str | None) -> bool:
    """Return whether a policy is for an optical network; an invalid folder is reported later."""
    path = Path(policy or "") / NAME
    if policy is None or not path.is_file():
        return False
    try:
        id_ = read_document(path).eval_env.id
    except StoreError:
        return False
    return id_ in ENVIRONMENTS and ENVIRONMENTS[id_].source == "optical"


def _evaluation_text(data: dict[str, Any]) -> str:
    how = "sampled actions"
    if data["greedy"]:
        how = "the most likely action"
    lines = [f"{data['policy']} on {data['env']}, {counted(data['episodes'], 'episode')}, {how}"]
    lines += _lines_of_returns(data)
    lines += [f"{name}  {number(value)}" for name, value in data["metrics"].items()]
    if data["cut"]:
        lines.append(f"{counted(data['cut'], 'episode')} truncated at {LONGEST:,} env steps")
    lines += origin_lines(data["about"])
    return "\n".join(lines)


def _lines_of_returns(data: dict[str, Any]) -> list[str]:
    value = with_interval(data["return_mean"], data["ci_low"], data["ci_high"])
    return [
        f"return  {value}",
        f"        min {number(data['return_min'])}, max {number(data['return_max'])}",
        f"length  {number(data['length_mean'])} env steps",
    ]
