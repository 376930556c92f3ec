"""docs/reference/atlas.md: written text, with generated tables between marks."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from hpo.errors import counted
from hpo.views.formatting import number, steps

from .analysis import CONFIGURATIONS, SEEDS, Analysis, listed, said_of_rules
from .resampling import Estimate
from .rules import Found, Overall, overall

TEMPLATE = Path(__file__).with_name("page.md")
STUDIES = Path(__file__).resolve().parents[2] / "studies" / "atlas"
_POINTS = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
_MOST_PAIRS = 8


def page(text: str, found: Sequence[Analysis]) -> str:
    """Return a page with the analyses' results in its marked parts.

    Raises:
        ValueError: a mark is missing.
    """
    for mark, part in _PARTS.items():
        start, end = f"<!-- atlas: {mark} -->\n", "<!-- end -->"
        before, there, rest = text.partition(start)
        _, closed, after = rest.partition(end)
        if not there or not closed:
            raise ValueError(f"the page has no {start.strip()} ... {end}")
        text = f"{before}{start}\n{part(found)}\n\n{end}{after}"
    return text


def template_digest() -> str:
    """Return the sha256 of the page's text without its tables."""
    return hashlib.sha256(TEMPLATE.read_bytes()).hexdigest()


def digests(text: str) -> dict[str, str]:
    """Return the digests from which a page was made: each environment's tables, and `text`."""
    found = re.search(r"^<!-- made from (.*) -->$", text, re.M)
    return json.loads(found[1]) if found else {}


def data(found: Sequence[Analysis]) -> str:
    """Return the basis of the page, starting with whether the data are complete."""
    tables = {one.atlas.name: one.atlas.digest for one in found}
    made = json.dumps({**tables, "text": template_digest()}, sort_keys=True)
    rows = [
        (
            f"`{one.atlas.name}`",
            one.atlas.place,
            f"{one.atlas.values.shape[0]:,}",
            f"{one.atlas.values.shape[1]}",
            steps(int(one.atlas.points[-1])),
            f"{one.atlas.values.shape[2]}",
            f"{one.atlas.episodes or ''}",
            f"{one.atlas.diverged:.1%}",
            number(one.atlas.default),
            *_spread(one),
            *_cost(one),
        )
        for one in found
    ]
    head = ("environment", "metric", "configurations", "seeds", "env steps", "points",
            "episodes a point", "diverged", "default", "median", "best", "CPU-hours",
            "env steps a CPU-second")  # fmt: skip
    small = [one.atlas.name for one in found if not one.whole]
    lines = [f"<!-- made from {made} -->", ""]
    if small:
        lines += [
            f"**Not the whole atlas:** {', '.join(f'`{name}`' for name in small)} "
            f"{'has' if len(small) == 1 else 'have'} fewer than {CONFIGURATIONS:,} "
            f"configurations or {SEEDS} seeds here. Its numbers show how the page works; nothing "
            "is concluded from them.",
            "",
        ]
    there = {one.atlas.name for one in found}
    missing = [
        f"`{path.stem}`" for path in sorted(STUDIES.glob("*.yaml")) if path.stem not in there
    ]
    if missing and not small:
        lines += [f"Not made yet: {', '.join(missing)}.", ""]
    said = [f"- **{one.atlas.name}**: {' '.join(one.sentences)}" for one in found if one.whole]
    lines += [*said, *([""] if said else []), *_together(found), _table(head, rows)]
    return "\n".join(lines)


def _spread(found: Analysis) -> tuple[str, str]:
    """Return the median and the best of the mean final values, with the metric's own sign.

    The best is chosen by half of the seeds, and its value is from the other half.
    """
    atlas = found.atlas
    finals = atlas.filled[:, :, -1]
    half = finals.shape[1] // 2
    best = int(finals[:, half:].mean(axis=1).argmax())
    middle = sorted(finals.mean(axis=1))[len(finals) // 2]
    return number(atlas.sign * float(middle)), number(
        atlas.sign * float(finals[best, :half].mean())
    )


def _cost(found: Analysis) -> tuple[str, str]:
    """Return CPU-hours, and training env steps per CPU-second, including the default's run."""
    seconds = _seconds(found)
    if seconds is None:
        return "unknown", "unknown"
    configurations, seeds, _ = found.atlas.values.shape
    taken = (configurations + 1) * seeds * int(found.atlas.points[-1])
    return f"{seconds / 3600:.1f}", steps(round(taken / seconds))


def _seconds(found: Analysis) -> float | None:
    seconds = found.atlas.about.get("cpu_seconds")
    return None if seconds is None else float(seconds)


def _together(found: Sequence[Analysis]) -> list[str]:
    """Return the cost of all environments, if it is known and there are several."""
    costs = [_seconds(one) for one in found]
    if len(found) < 2 or None in costs:
        return []
    hours = sum(cost or 0.0 for cost in costs) / 3600
    return [f"Together {hours:.1f} CPU-hours, {hours / 2:.1f} hours of two cores.", ""]


def knobs(found: Sequence[Analysis]) -> str:
    """Return a table by hyperparameter and environment; those that matter at the end are first."""
    rows = list[tuple[str, ...]]()
    for one in found:
        moved = {shift.name: shift for shift in one.shifts}
        for knob in one.decided[-1].knobs:
            shift = moved[knob.name]
            share = Estimate(knob.share, knob.low, knob.high)
            rows.append(
                (
                    f"`{one.atlas.name}`",
                    f"`{knob.name}`",
                    _share(share),
                    f"{knob.floor:.1%}",
                    "yes" if knob.decided else "",
                    f"{shift.early:z.0%} to {shift.end:z.0%}",
                    _share(shift.later),
                    f"**{shift.verdict}**" if shift.verdict else "",
                )
            )
    head = ("environment", "knob", "explains at the end", "floor", "decided",
            "alone, early to end", "difference", "when")  # fmt: skip
    return _table(head, rows)


def seeds(found: Sequence[Analysis]) -> str:
    """Return a table by number of seeds and environment."""
    rows = [
        (f"`{one.atlas.name}`", f"{row.seeds}", f"{row.judges}", _share(row.pair), _share(row.top))
        for one in found
        for row in one.ranked
    ]
    return _table(("environment", "seeds", "judges", "better of two", "top tenth"), rows)


def early(found: Sequence[Analysis]) -> str:
    """Return a table of some points of the run."""
    rows = list[tuple[str, ...]]()
    for one in found:
        places = {
            min(range(len(one.early)), key=lambda at: abs(one.early[at].fraction - point))
            for point in _POINTS
        }
        for at in sorted(places):
            row = one.early[at]
            correlation = row.correlation
            rows.append(
                (
                    f"`{one.atlas.name}`",
                    f"{row.fraction:.0%}",
                    f"{correlation.value:z.2f} [{correlation.low:z.2f}, {correlation.high:z.2f}]",
                    _share(row.kept),
                    _share(row.lost),
                )
            )
    return _table(("environment", "of the run", "rank correlation", "kept", "gain lost"), rows)


def pairs(found: Sequence[Analysis]) -> str:
    """Return a table of the real interactions, and the largest one that is not real."""
    rows, few = list[tuple[str, ...]](), list[str]()
    for one in found:
        if one.pairs is None:
            few.append(one.atlas.name)
            continue
        real = [pair for pair in one.pairs.pairs if pair.real]
        rest = [pair for pair in one.pairs.pairs if not pair.real]
        for pair in [*real[:_MOST_PAIRS], *rest[:1]]:
            rows.append(
                (
                    f"`{one.atlas.name}`",
                    f"`{pair.names[0]}`, `{pair.names[1]}`",
                    _share(pair.share),
                    f"{pair.floor:.1%}",
                    "yes"
                    if pair.real
                    else f"no, the largest of {counted(len(rest), 'such pair')}",
                )
            )
        rows.append(
            (
                f"`{one.atlas.name}`",
                "all knobs, each alone",
                f"{one.pairs.alone:.1%}",
                "",
                f"{len(real)} of {len(one.pairs.pairs)} pairs",
            )
        )
    said = [f"Too few configurations for interactions: {', '.join(few)}.", ""] if few else []
    if not rows:
        return said[0]
    return "\n".join([*said, _table(("environment", "knobs", "explains", "floor", "real"), rows)])


def rules(found: Sequence[Analysis]) -> str:
    """Return a table by rule, number of seeds and environment, with results for each budget."""
    rows, few = list[tuple[str, ...]](), list[str]()
    budgets = sorted({row.budget for one in found for row in one.searched})
    for one in found:
        if not one.searched:
            few.append(one.atlas.name)
        for rule, trained in dict.fromkeys((row.rule, row.seeds) for row in one.searched):
            cells = [f"`{one.atlas.name}`", f"`{rule}`", f"{trained}"]
            for row in one.searched:
                if (row.rule, row.seeds) == (rule, trained):
                    cells += [number(one.atlas.sign * row.value.value), _gain(row)]
            rows.append(tuple(cells))
        if one.searched:
            own = (number(one.atlas.default), "") * len(budgets)
            rows.append((f"`{one.atlas.name}`", "the default itself", "", *own))
    said = [f"No searches: {', '.join(few)} (fewer than ten seeds, or no default).", ""]
    if not rows:
        return said[0]
    head = ["environment", "rule", "seeds"]
    for budget in budgets:
        head += [f"{budget} full runs of one seed", "better than the usual by"]
    return "\n".join([*(said if few else []), _table(head, rows)])


def _gain(row: Found) -> str:
    if row.less is None:
        return "the usual"
    said = f"{number(row.less.value)} [{number(row.less.low)}, {number(row.less.high)}]"
    return f"{said}, **{row.verdict}**" if row.verdict else said


def searched_overall(found: Sequence[Analysis]) -> list[Overall]:
    """Return the results of rules over all complete environments; empty for fewer than two."""
    whole = [one.searched for one in found if one.whole and one.searched]
    shapes = {one.atlas.values.shape[:2] for one in found if one.whole and one.searched}
    return overall(whole) if len(whole) > 1 and len(shapes) == 1 else []


def rules_overall(found: Sequence[Analysis]) -> str:
    """Return a table by rule and number of seeds over all complete environments, and verdicts."""
    every = searched_overall(found)
    if not every:
        return "Fewer than two whole environments were searched."
    budgets = sorted({row.budget for row in every})
    rows = list[list[str]]()
    for rule, trained in dict.fromkeys((row.rule, row.seeds) for row in every):
        cells = [f"`{rule}`", f"{trained}"]
        for row in every:
            if (row.rule, row.seeds) == (rule, trained):
                more = "the usual" if row.more is None else _points(row.more)
                cells += [_share(row.beats), f"{more}, **{row.verdict}**" if row.verdict else more]
        rows.append(cells)
    head = ["rule", "seeds"]
    for budget in budgets:
        head += [f"beats, {budget} full runs of one seed", "points more than the usual"]
    said = [said_of_rules([row for row in every if row.budget == budget]) for budget in budgets]
    names = listed([f"`{one.atlas.name}`" for one in found if one.whole and one.searched])
    return "\n".join([f"Over {names}: {' '.join(said)}", "", _table(head, rows)])


def query(found: Sequence[Analysis]) -> str:
    """Return a query that works for the first environment."""
    one = found[0]
    order = "DESC" if one.atlas.goal == "maximize" else "ASC"
    return (
        "```sh\n"
        f'hpo query --study results/atlas/{one.atlas.name} "SELECT trial, '
        "t.param.learning_rate AS learning_rate, avg(e.value) AS mean, stddev(e.value) AS std "
        "FROM evaluations e JOIN trials t USING (trial) "
        f"WHERE e.env_steps = {int(one.atlas.points[-1])} GROUP BY ALL ORDER BY mean {order} "
        'LIMIT 5"\n```'
    )


def _share(one: Estimate) -> str:
    # z: a number that rounds to zero has no sign
    return f"{one.value:z.1%} [{one.low:z.1%}, {one.high:z.1%}]"


def _points(one: Estimate) -> str:
    return f"{100 * one.value:z.1f} [{100 * one.low:z.1f}, {100 * one.high:z.1f}]"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_PARTS: dict[str, Callable[[Sequence[Analysis]], str]] = {
    "data": data,
    "knobs": knobs,
    "seeds": seeds,
    "early": early,
    "interactions": pairs,
    "rules": rules,
    "rules overall": rules_overall,
    "query": query,
}
