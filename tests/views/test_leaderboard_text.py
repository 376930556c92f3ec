import io
import random
import statistics
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
from rich.console import Console

from hpo.store.baselines import baseline_entries
from hpo.store.rows import BaselineRow, TrialState
from hpo.views.formatting import between
from hpo.views.knob_columns import knob_columns, told_apart
from hpo.views.leaderboard_text import print_baselines, print_leaderboard, winner_line

samples = SimpleNamespace(**run_path(str(Path(__file__).with_name("samples.py"))))

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
        77, value=90.0, seed_values=(90.0,), choose_values=(95.0,) * 8,
        report_values=tuple(float(x) for x in range(480, 496)), env_steps=480_000, params=PARAMS,
    )  # fmt: skip
    stopped = samples.row(
        78, TrialState.STOPPED, rung=1, rung_value=-1234.5, env_steps=80_000, params=PARAMS
    )
    return [*finished, winner, stopped]


def printed(entries, width, most=None):
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    print_leaderboard(console, entries, most)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 81, 100, 160])
def test_the_table_fits_and_nothing_in_it_is_cut(width):
    entries = samples.entries(*rows())
    text = printed(entries, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "487.5" in text and "confirmed" in text
    assert between(entries[0].ci_low, entries[0].ci_high) in text


@pytest.mark.parametrize("width", [80, 200])
def test_every_knob_is_a_column_or_said_below(width):
    head, _, below = printed(samples.entries(*rows()), width).partition("───")
    assert "rate" in head and "schedule" not in head and "gamma" not in head
    below = " ".join(below.split())
    assert "lr_schedule warmup_cosine" in below and "hidden_sizes [64, 64]" in below
    assert "value_clip_eps off" in below


def test_a_stopped_trial_shows_the_value_at_its_rung_and_a_note_says_so():
    text = printed(samples.entries(*rows()), 100)
    assert "stopped at 1" in text and "(-1234)" in text.replace("(-1235)", "(-1234)")
    assert "(value): at its last rung" in text
    assert "stopped at 0: at the first rung. steps: of the search, over all seeds." in text
    assert "(value)" not in printed(samples.entries(rows()[0]), 100)


def test_a_paused_trial_says_at_which_rung_and_what_that_means():
    waits = samples.row(
        79, TrialState.PAUSED, rung=0, rung_value=3.5, env_steps=20_000, params=PARAMS
    )
    text = " ".join(printed(samples.entries(*rows(), waits), 100).split())
    assert "paused at 0" in text and "(3.5)" in text
    assert "paused at 0: it waits at the first rung, and goes on if it is among the best" in text
    assert "paused" not in printed(samples.entries(*rows()), 100)


def test_most_cuts_the_table_and_says_how_many_are_left():
    text = printed(samples.entries(*rows()), 100, most=3)
    assert "11 more trials" in text
    assert [line.split()[0] for line in text.splitlines() if " 480k " in line] == ["1", "2", "3"]


def test_intervals_that_rich_could_take_for_markup_are_printed():
    row = samples.row(0, value=5.0, seed_values=(float("nan"),) * 5)
    text = printed(samples.entries(row), 100)
    assert "finished" in text
    assert "no trials yet" in printed([], 80)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"choose_values": (1.0,) * 8, "report_values": (1.0,) * 16},
            "the mean of 16 fresh seeds that did not select it",
        ),
        ({"choose_values": (1.0,) * 8}, "8 fresh seeds that also selected it"),
        ({"seed_values": (1.0,)}, "from 1 seed of the search, which also selected it"),
    ],
)  # fmt: skip
def test_the_winner_is_told_with_the_seeds_behind_its_number(fields, words):
    row = samples.row(3, **{"value": 1.0, "seed_values": (1.0, 1.0), **fields})
    worse = samples.row(4, value=0.5, seed_values=(0.5,))
    assert words in winner_line(samples.entries(row, worse), "eval/return_mean")


def test_seeds_of_one_trial_select_nothing():
    alone = samples.row(3, value=1.0, seed_values=(1.0, 1.0))
    said = winner_line(samples.entries(alone), "eval/return_mean")
    assert said.endswith("from 2 seeds; one trial ran, so that they selected nothing.")
    alone = samples.row(3, value=None)
    assert "No trial has finished its run" in winner_line(samples.entries(alone), "x")


def test_without_trials_there_is_no_winner():
    assert "no winner" in winner_line([], "eval/return_mean")


def test_baselines_stand_below_with_their_difference():
    entries = samples.entries(*rows())
    seeds = tuple(float(x) for x in range(470, 486))  # the winner's less ten
    known = [BaselineRow("ksp_ff", {"report": seeds, "search": (1.0,)})]
    console = Console(file=io.StringIO(), width=80, markup=False, highlight=False)
    print_baselines(console, baseline_entries(known, entries, "maximize"))
    text = console.file.getvalue()
    assert "best minus this" in text and "16 (report)" in text
    assert "477.5" in text and "+10" in text
    assert "[10" not in text  # equal differences say nothing of another seed's
    console = Console(file=io.StringIO(), width=80, markup=False, highlight=False)
    print_baselines(console, baseline_entries(known, [], "maximize"))
    assert "best less" not in console.file.getvalue() and "1 (search)" in console.file.getvalue()
    print_baselines(console, [])


# ---------------------------------------------------------------------- knobs


def searched(count=40):
    """Trials of which `gamma` decides, `num_envs` shapes the program, `ent_coef` is equal."""
    draws = random.Random(5)
    found = []
    for number in range(count):
        gamma, lr = draws.random(), draws.random()
        params = {"learning_rate": lr, "gamma": gamma, "ent_coef": 0.01, "lr_schedule": "linear",
                  "num_envs": draws.choice([4, 8])}  # fmt: skip
        if number % 2:
            params |= {"lr_schedule": "constant"}
        found.append(samples.row(number, value=10 * gamma + lr, params=params))
    return samples.entries(*found)


def test_structure_comes_first_then_what_tells_trials_apart_and_equal_knobs_are_said_once():
    entries = searched()
    knobs = knob_columns(entries, entries[:10])
    assert knobs.names[:2] == ("num_envs", "gamma") and len(knobs.names) == 4
    assert knobs.same_words == "Equal in all: ent_coef 0.01."
    text = printed(entries, 200, 10)
    head = text.split("\n---")[0]
    assert "Equal in all: ent_coef 0.01." in text
    assert head.index("num_") < head.index("gamma") < head.index("rate")


def test_how_much_a_knob_tells_is_epsilon_squared():
    entries = searched()
    apart = told_apart(entries, ["gamma", "lr_schedule", "num_envs"])
    place = {entry.trial: at for at, entry in enumerate(entries)}
    groups = [[place[e.trial] for e in entries if e.params["lr_schedule"] == word]
              for word in ("linear", "constant")]  # fmt: skip
    every = [at for group in groups for at in group]
    within = sum(statistics.pvariance(group) * len(group) for group in groups) / (len(every) - 2)
    expected = 1.0 - within / statistics.variance(every)
    assert apart["lr_schedule"] == pytest.approx(max(0.0, expected))
    assert apart["gamma"] > 0.8 and apart["num_envs"] < 0.2
    assert set(told_apart(entries[:9], ["gamma"]).values()) == {0.0}


def test_knobs_without_room_have_a_table_of_their_own_and_are_named_without_room_there():
    text = printed(searched(), 60, 10)
    above, _, below = text.partition("\n\n")
    assert "gamma" not in above and "num_" not in above
    assert all(word in below for word in ("gamma", "num_", "schedule")) and "No room" not in text
    first = [line.split()[:2] for line in above.splitlines()[2:]]
    assert (
        first
        == [line.split()[:2] for line in below.splitlines() if line.split()[0].isdigit()][
            : len(first)
        ]
    )
    narrow = printed(searched(), 40, 10)
    assert "No room for:" in narrow and "hpo show TRIAL" in " ".join(narrow.split())
    assert max(map(len, printed(searched(), 60, 10).splitlines())) <= 60
    assert "\n\n" not in printed(searched(), 200, 10)


def test_the_default_stands_below_however_poor_it_is():
    entries = samples.entries(*rows())
    shown = entries[:3]
    entries = [replace(entry, is_default=entry.trial == 11) for entry in entries]
    assert 11 not in [entry.trial for entry in shown]
    lines = printed(entries, 100, most=3).splitlines()
    ranks = [line.split()[:2] for line in lines if " 480k " in line]
    assert ranks == [[str(e.rank), str(e.trial)] for e in shown] + [["13", "11"]]
    assert "Trial 11 is the default configuration." in lines
    assert any("10 more trials" in line for line in lines)


def test_an_order_that_values_do_not_show_is_explained():
    def confirmed(trial, choose, report=()):
        return samples.row(trial, value=1.0, seed_values=(1.0,), choose_values=(choose,) * 8,
                           report_values=(report,) * 16 if report else ())  # fmt: skip

    def told(*rows):
        return " ".join(printed(samples.entries(*rows), 200).split())

    entries = [confirmed(3, -190.0, -208.0), confirmed(14, -199.0), confirmed(23, -210.0)]
    text = told(*entries, samples.row(5, value=-100.0, seed_values=(-100.0,)))
    assert (
        "Confirmed trials stand in the order of the seeds that select (-190, -199, -210); the "
        "value of trial 3 is from further seeds, which did not." in text
    )
    assert "Confirmed trials stand above those with values of the search" in text
    assert "Confirmed trials" not in told(entries[0])
    apart = [replace(entry, feasible=entry.trial == 3) for entry in samples.entries(*entries)]
    assert "those that keep the constraints stand higher" in " ".join(printed(apart, 200).split())


def test_of_one_trial_alone_every_knob_has_a_column():
    knobs = knob_columns(searched(), searched()[:1])
    assert len(knobs.names) == 5 and not knobs.same_words


@pytest.mark.parametrize(("room", "shown"), [(80, True), (40, False)])
def test_long_names_of_environments_are_folded_or_said_below(room, shown):
    names = ["deeprmsa_load=150_topology=nsfnet_deeprmsa", "x" * 60]
    trials = [samples.row(n, value=1.0, params={}, scores=(0.5, 1.5)) for n in range(3)]
    console = Console(file=io.StringIO(), width=room, markup=False, highlight=False)
    names = names if shown else names[1:] * 2
    print_leaderboard(console, samples.entries(*trials), None, (), names)
    text = console.file.getvalue()
    assert ("topology=nsfnet_" in text.split()) == shown
    assert text.count("#  trial") == 1 + shown  # no table of numbers of trials alone
    assert "No room for the scores on " in text
