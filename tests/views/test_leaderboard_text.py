import io
import random
import re
from dataclasses import replace

import pytest
from rich.console import Console

from helpers import view_samples as samples
from helpers.counted_calls import calls_of
from hpo.store.baselines import baseline_entries
from hpo.store.rows import BaselineRow, TrialState
from hpo.views.leaderboard_text import (
    board_columns,
    explained,
    front_line,
    knob_columns,
    print_baselines,
    print_leaderboard,
    winner_line,
)
from hpo.views.trial_view import Board

VALUE = "eval/return_mean with training returns"
PARAMS = {
    "learning_rate": 0.0023123,
    "lr_schedule": "warmup_cosine",
    "gamma": 0.99871,
    "hidden_sizes": [64, 64],
    "value_clip_eps": None,
}


def rows(count=12):
    finished = [
        samples.row(
            number,
            value=100.0 - number,
            seed_values=(99.0, 100.0, 101.0),
            env_steps=480_000,
            params={**PARAMS, "learning_rate": 0.001 * (number + 1)},
        )
        for number in range(count)
    ]
    winner = samples.row(
        77,
        value=90.0,
        seed_values=(90.0,),
        choose_values=(95.0,) * 8,
        report_values=tuple(float(x) for x in range(480, 496)),
        env_steps=480_000,
        params=PARAMS,
    )
    stopped = samples.row(
        78,
        TrialState.STOPPED,
        rung=1,
        rung_value=-1234.5,
        rung_env_steps=8_192,
        env_steps=80_000,
        params=PARAMS,
    )
    return [*finished, winner, stopped]


def printed(entries, width, most=None):
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    print_leaderboard(console, Board.of(entries), most)
    return console.file.getvalue()


def cells(entries, trial):
    """Return the text of one trial, column by column."""
    place = next(at for at, entry in enumerate(entries) if entry.trial == trial)
    return {column.name: column.cells[place] for column in board_columns(Board.of(entries))}


@pytest.mark.parametrize("width", [80, 81, 100, 160])
def test_leaderboard_fits_the_width_without_truncation(width):
    entries = samples.entries(*rows())
    text = printed(entries, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "487.5" in text and "winner" in text


@pytest.mark.parametrize("width", [80, 200])
def test_varying_hyperparameters_are_columns_or_listed_below(width):
    entries = samples.entries(*rows())
    text = printed(entries, width)
    assert "rate" in text and "schedule" not in text
    wide = {**PARAMS, **{f"a_rather_long_name_{n}": 0.5 for n in range(6)}}
    many = [
        replace(entry, params={**wide, "a_rather_long_name_0": 0.1 * entry.trial})
        for entry in entries
    ]
    many = [
        replace(
            e, params={k: v * e.trial if k.startswith("a_") else v for k, v in e.params.items()}
        )
        for e in many
    ]
    text = printed(many, 80)
    named = text.partition("Not shown: ")[2]
    assert "a_rather_long_name" in named and f"hpo show {entries[0].trial}" in named


def test_leaderboard_values_are_in_their_seed_columns():
    entries = samples.entries(*rows())
    winner = cells(entries, 77)
    assert winner["status"] == "winner" and winner["select*8"] == "95"
    assert winner["test*16"] == "487.5" and winner["search"] == "90"
    other = cells(entries, 3)
    assert (other["search"], other["select*8"], other["test*16"]) == ("97", "-", "-")
    assert (winner["seeds"], other["seeds"]) == ("1", "3")  # not all have as many
    same = samples.entries(*rows()[:-2])
    assert [column.name for column in board_columns(Board.of(same))][3:] == ["search*3"]


def test_stopped_trial_shows_value_and_env_steps_of_last_rung():
    entries = samples.entries(*rows())
    stopped = cells(entries, 78)
    assert stopped["status"] == "stopped 8.19k" and stopped["search"] in ("-1234", "-1235")
    waits = samples.row(
        79,
        TrialState.PAUSED,
        rung=0,
        rung_value=3.5,
        rung_env_steps=4_096,
        env_steps=20_000,
        params=PARAMS,
    )
    paused = cells(samples.entries(*rows(), waits), 79)
    assert paused["status"] == "paused 4.1k" and paused["search"] == "3.5"


def test_default_has_a_row_at_any_rank():
    entries = samples.entries(*rows())
    last = replace(entries[-1], is_default=True)
    text = printed([*entries[:-1], last], 100, most=3)
    assert "default, 8.19k" in text and cells([last], 78)["status"] == "default, 8.19k"
    first = replace(entries[0], is_default=True)
    assert cells([first], 77)["status"] == "default, winner"
    ended = next(e for e in entries if e.state is TrialState.FINISHED)
    assert cells([replace(ended, is_default=True)], ended.trial)["status"] == "default"


def test_value_of_fewer_seeds_is_not_in_a_larger_seed_column():
    entries = samples.entries(*rows())
    fewer = replace(entries[1], choose_value=1.0, choose_seeds=4)
    assert cells([entries[0], fewer], fewer.trial)["select*8"] == "-"


def test_unequal_test_seed_counts_get_a_seeds_column():
    entries = samples.entries(*rows())
    default = replace(entries[1], is_default=True, report_value=3.0, report_seeds=8)
    pair = [entries[0], default]
    assert (cells(pair, 77)["test"], cells(pair, 77)["test\nseeds"]) == ("487.5", "16")
    other = cells(pair, default.trial)
    assert (other["test"], other["test\nseeds"]) == ("3", "8")


def test_leaderboard_limit_reports_the_remaining_count():
    text = printed(samples.entries(*rows()), 100, most=3)
    assert "11 more: hpo top -n 14" in text
    lines = [line.split()[0] for line in text.splitlines() if line[:3].strip().isdigit()]
    assert lines[:3] == ["1", "2", "3"] and len(lines) == 4  # and the default


def test_intervals_are_not_parsed_as_rich_markup():
    row = samples.row(0, value=5.0, seed_values=(float("nan"),) * 5)
    text = printed(samples.entries(row), 100)
    assert "default" in text and "search*5" in text
    assert "No trial yet." in printed([], 80)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"choose_values": (1.0,) * 8, "report_values": (1.0,) * 16},
            "on 16 test seeds.",
        ),
        ({"choose_values": (1.0,) * 8}, "on 8 selection seeds, also used to pick it."),
        ({"seed_values": (1.0,)}, "on 1 search seed, also used to pick it."),
    ],
)
def test_winner_line_names_the_seeds_of_its_value(fields, words):
    row = samples.row(3, **{"value": 1.0, "seed_values": (1.0, 1.0), **fields})
    worse = samples.row(4, value=0.5, seed_values=(0.5,))
    assert words in winner_line(samples.entries(row, worse), "eval/return_mean")


@pytest.mark.parametrize(
    ("value_from", "name"), [("search", VALUE), ("report", "eval/return_mean")]
)
def test_winner_line_names_values_with_training_returns(value_from, name):
    (entry,) = samples.entries(samples.row(0, value=1.0, seed_values=(1.0,)))
    said = winner_line([replace(entry, value_from=value_from)], VALUE)
    assert said.startswith(f"Trial 0 leads: {name} 1 on 1 ")


def test_legend_explains_training_returns():
    legend = " ".join(explained().split())
    assert "training returns count in search and select values." in legend
    assert "feasible satisfies the constraints. front: 1 for the Pareto front" in legend


def test_winner_line_of_a_single_trial_mentions_no_selection():
    alone = samples.row(3, value=1.0, seed_values=(1.0, 1.0))
    said = winner_line(samples.entries(alone), "eval/return_mean")
    assert said.endswith("on 2 seeds of the only trial.")
    alone = samples.row(3, value=None)
    assert "No trial has finished its run" in winner_line(samples.entries(alone), "x")


def test_empty_leaderboard_has_no_winner():
    assert "no winner" in winner_line([], "eval/return_mean")


def test_baselines_are_listed_below_with_differences():
    entries = samples.entries(*rows())
    seeds = tuple(float(x) for x in range(470, 486))  # the winner's less ten
    known = [BaselineRow("ksp_ff", {"report": seeds, "search": (1.0,)})]
    console = Console(file=io.StringIO(), width=80, markup=False, highlight=False)
    print_baselines(console, baseline_entries(known, entries, "maximize"))
    text = console.file.getvalue()
    assert "best minus this" in text and "16 test" in text
    assert "477.5" in text and "+10" in text
    assert "[10" not in text  # equal differences say nothing of another seed's
    console = Console(file=io.StringIO(), width=80, markup=False, highlight=False)
    print_baselines(console, baseline_entries(known, [], "maximize"))
    assert "best less" not in console.file.getvalue() and "1 search" in console.file.getvalue()
    print_baselines(console, [])


# ---------------------------------------------------------------------- knobs


def searched(count=40):
    """Trials of which `num_envs` shapes the program, and `ent_coef` is equal."""
    draws = random.Random(5)
    found = []
    for number in range(count):
        gamma, lr = draws.random(), draws.random()
        params = {
            "learning_rate": lr,
            "gamma": gamma,
            "ent_coef": 0.01,
            "lr_schedule": "linear",
            "num_envs": draws.choice([4, 8]),
        }
        if number % 2:
            params |= {"lr_schedule": "constant"}
        found.append(samples.row(number, value=10 * gamma + lr, params=params))
    return samples.entries(*found)


def test_only_the_printed_trials_are_prepared():
    entries = searched(40)
    console = Console(file=io.StringIO(), width=80)
    seen = calls_of(lambda: print_leaderboard(console, Board.of(entries), 3), "views/")
    rows_and_default = {entry.trial for entry in entries if entry.rank <= 3 or entry.is_default}
    assert seen["views/trial_view.py:TrialView.of"] == len(rows_and_default) == 4
    assert "36 more: hpo top -n 40" in console.file.getvalue()


def test_static_knobs_come_first_and_equal_knobs_are_noted():
    entries = searched()
    apart, same = knob_columns(Board.of(entries[:10]).trials)
    assert [column.name for column in apart] == [
        "num_envs",
        "learning_rate",
        "gamma",
        "lr_schedule",
    ]
    assert same == "Equal in all: ent_coef 0.01."
    text = printed(entries, 200, 10)
    head = text.split("──")[0]
    assert "ent_" not in head
    assert head.index("num_") < head.index("rate") < head.index("gamma")


def test_columns_without_room_are_listed_below_the_table():
    for width in (40, 50, 200):
        text = printed(searched(), width, 10)
        assert len(re.findall("(?m)^─", text)) == 1
        assert ("Not shown: " in text) == (width < 200)
    assert "gamma" in printed(searched(), 40, 10).partition("Not shown: ")[2]


def test_low_ranked_default_is_the_last_row():
    entries = samples.entries(*rows())
    shown = entries[:3]
    entries = [replace(entry, is_default=entry.trial == 11) for entry in entries]
    assert 11 not in [entry.trial for entry in shown]
    lines = printed(entries, 100, most=3).splitlines()
    ranks = [line.split()[:2] for line in lines if line[:3].strip().isdigit()]
    ranks = [row for row in ranks if row[1].isdigit()]
    assert ranks == [[str(e.rank), str(e.trial)] for e in shown] + [["13", "11"]]
    assert any("10 more: hpo top -n 14" in line for line in lines)


def test_single_trial_leaderboard_shows_all_knobs():
    apart, same = knob_columns(Board.of(searched()[:1]).trials)
    assert len(apart) == 5 and not same


@pytest.mark.parametrize(("room", "shown"), [(80, True), (40, False)])
def test_long_env_names_are_folded_or_listed_below(room, shown):
    names = ["deeprmsa_load=150_topology=nsfnet_deeprmsa", "x" * 60]
    trials = [samples.row(n, value=1.0, params={}, scores=(0.5, 1.5)) for n in range(3)]
    console = Console(file=io.StringIO(), width=room, markup=False, highlight=False)
    names = names if shown else names[1:] * 2
    print_leaderboard(console, Board.of(samples.entries(*trials), environments=names))
    text = console.file.getvalue()
    assert ("topology=nsfnet_" in text.split()) == shown
    assert text.count("# trial") == 1 and "Not shown: x" in " ".join(text.split())


def test_a_front_has_no_winner_and_counts_its_feasible_trials():
    entries = samples.entries(*(samples.row(n, value=9.0 - n) for n in range(3)))
    entries = [
        replace(
            entry,
            confirmed=True,
            objectives=(1.0, 2.0),
            feasible=entry.rank < 3,
            front=entry.rank if entry.rank < 3 else None,
        )
        for entry in entries
    ]
    columns = {
        column.name: column.cells for column in board_columns(Board.of(entries, ["a", "b"]))
    }
    assert "winner" not in " ".join(columns["status"])
    assert front_line(entries, None) == "Pareto front: 1 of 2 feasible confirmed trials (0)."
