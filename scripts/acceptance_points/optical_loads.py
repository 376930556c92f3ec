"""Point 8 on optical networks: how often the interval for the load at 1 % contains the truth."""

from __future__ import annotations

from pathlib import Path

from .common import Outcome

TARGET = 0.01
RULES = ("ksp_ff", "kca_ff")
REPEATS = {True: 3, False: 100}
MANY = {True: 40, False: 400}
"""Numbers of seeds behind the values that the intervals are compared with."""
SEEDS, REQUESTS, WARMUP = 10, 3000, 1500
MOST = 11
"""Of 100 intervals that each miss with probability 1/20, more than this miss in 0.4 % of cases."""


def intervals(small: bool, work: Path) -> Outcome:
    """Find the load of two heuristics on NSFNET, each time on different requests.

    The truth is estimated from many times as many seeds; its own error is a sixth of an
    interval's.
    """
    from hpo.core.envs.optical.optical_environment import make_from_keys
    from hpo.core.envs.optical.supported_load import SupportedLoad, find_load
    from hpo.machine.devices import prepare_devices
    from hpo.views.commands.eval_network import more_load

    prepare_devices("cpu")
    network = make_from_keys(
        topology="nsfnet_deeprmsa", k=5, slots=100, load=160.0, warmup_requests=WARMUP
    )
    steps = 500 if small else REQUESTS

    def found(seeds: int, seed: int) -> list[SupportedLoad]:
        return [
            find_load(network, rule, TARGET, seeds=seeds, steps=steps, seed=seed) for rule in RULES
        ]

    exact = found(MANY[small], 0)
    more = more_load(*exact)["more"] or 0.0
    missed, of_ratio, widths = [0, 0], 0, list[float]()
    for seed in range(1, REPEATS[small] + 1):
        each = found(SEEDS, seed)
        for at, (one, so) in enumerate(zip(each, exact, strict=True)):
            missed[at] += not one.low <= so.load <= one.high
        widths += [one.high / one.low - 1.0 for one in each]
        ratio = more_load(*each)
        low, high = ratio["ci_low"], ratio["ci_high"]
        of_ratio += low is None or high is None or not low <= more <= high
    words = [
        f"{rule} {so.load:.1f} [{so.low:.1f}, {so.high:.1f}] Erlang, missed by {count}"
        for rule, so, count in zip(RULES, exact, missed, strict=True)
    ]
    return Outcome(
        max(*missed, of_ratio) <= MOST,
        f"of {REPEATS[small]} intervals of {SEEDS} seeds x {steps} requests each: "
        f"{'; '.join(words)}; {100.0 * more:+.2f} % between them, missed by {of_ratio}; an "
        f"interval is {100.0 * sorted(widths)[len(widths) // 2]:.1f} % wide in the middle",
    )
