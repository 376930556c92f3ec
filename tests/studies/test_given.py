"""The command that ran a study, as the file beside its results tells of it."""

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from hpo.studies.load import loads
from hpo.studies.overrides import Given, given_in, without_given

TEXT = "# mine\nenv: CartPole-v1\nenv_steps: 10k\n"
PLAIN = Given("run", "my.yaml")


def test_command_without_overrides_leaves_file_unchanged():
    assert PLAIN.on_top_of(TEXT) == TEXT
    assert given_in(TEXT) is None and without_given(TEXT) == TEXT
    assert Given("run", "my.yaml", out="elsewhere").on_top_of(TEXT) == TEXT


@pytest.mark.parametrize(
    "command",
    [
        Given("run", "my.yaml", ("budget.trials=40",)),
        Given("run", "a folder/my.yaml", ("space.lr={min: 1e-4, max: 1}", "seed=3"), "x", "o p"),
        Given("train", "my.yaml"),
        Given("run", "my.yaml", name="my-2"),
    ],
)
def test_recorded_command_round_trip(command):
    stored = command.on_top_of(TEXT)
    assert given_in(stored) == command
    assert without_given(stored) == TEXT
    assert command.command in stored
    assert loads(stored) == loads(TEXT)
    again = Given("run", "other.yaml", ("seed=9",))
    assert again.on_top_of(stored) == again.on_top_of(TEXT), "the newest command alone is told"
    assert PLAIN.on_top_of(stored) == TEXT


@drawn(st.text(max_size=40))
def test_override_text_cannot_escape_its_comment(text):
    stored = Given("run", "my.yaml", (f"name={text}",)).on_top_of(TEXT)
    lines = stored.split("\n")
    assert all(line.startswith("#") for line in lines[:3])
    assert "\n".join(lines[3:]) == TEXT.removeprefix("# mine\n")
    assert all(line.isprintable() for line in lines[:2])


@pytest.mark.parametrize("text", ["#", "", "hpo run", "#   hpo run x.yaml --set", "#   rm 'x"])
def test_edited_command_comment_is_ignored(text):
    mark = PLAIN.on_top_of(TEXT), Given("train", "x").on_top_of(TEXT).split("\n")[0]
    assert given_in(f"{mark[1]}\n{text}\n{TEXT}") is None


def test_overrides_are_found_by_the_key_they_changed():
    command = Given(
        "run",
        "x",
        ("budget.trials=4", "fixed.lr=0.1", "space.gamma={min: 0.9}", "budget.trials=5"),
    )
    assert command.override_of("budget.trials") == "budget.trials=5"
    assert command.override_of("fixed.learning_rate") == "fixed.lr=0.1"
    assert command.override_of("space.gamma.min") == "space.gamma={min: 0.9}"
    assert command.override_of("budget.wall") == ""
    assert command.override_of("env_steps") == ""
