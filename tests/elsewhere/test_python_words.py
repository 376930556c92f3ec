import pytest

from hpo.elsewhere.python_words import NotPlain, assigned, called, value_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("dict(pi=[64], vf=[64])", {"pi": [64], "vf": [64]}),
        ("dict(log_std_init=-2,\n   ortho_init=False,\n  activation_fn=nn.ReLU)",
         {"log_std_init": -2, "ortho_init": False, "activation_fn": "ReLU"}),
        ("{'norm_obs': False, 'norm_reward': True}", {"norm_obs": False, "norm_reward": True}),
        ("torch.nn.Tanh", "Tanh"),
        ("2**11", 2048),
        ("int(1e6)", 1_000_000),
        ("[400, 300]", [400, 300]),
        ("-3.29", -3.29),
        ("None", None),
        ("(0.9, 0.999)", [0.9, 0.999]),
    ],
)  # fmt: skip
def test_plain_values_are_read(text, value):
    assert value_of(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('x')",
        "open('x')",
        "lambda: 1",
        "[x for x in y]",
        "10 ** 10 ** 10",
        "2 ** 1000",
        "1 / 0",
        "'a' * 9",
        "dict(**other)['a']",
        "f'{x}'",
        "int('many')",
        "(",
        "x = 1",
        "-" * 9000 + "1",
        "[" * 9000,
        "'" + "a" * 300_000 + "'",
    ],
)
def test_everything_else_is_refused_and_nothing_is_run(text):
    with pytest.raises(NotPlain):
        value_of(text)


def test_a_file_is_read_without_being_run(tmp_path):
    text = f"""
import torch
open({str(tmp_path / "made")!r}, "w")
hyperparams = {{
    "MountainCarContinuous-v0": dict(normalize=True, n_timesteps=20000.0,
                                     policy_kwargs=dict(activation_fn=torch.nn.ReLU)),
}}
other = make()
"""
    assert assigned(text) == {
        "hyperparams": {
            "MountainCarContinuous-v0": {
                "normalize": True,
                "n_timesteps": 20000.0,
                "policy_kwargs": {"activation_fn": "ReLU"},
            }
        }
    }
    assert not (tmp_path / "made").exists()


def test_the_arguments_of_a_call_are_found_wherever_it_stands():
    text = "def main():\n    model = ppo.PPO('MlpPolicy', make(), n_steps=2 ** 11, key=k(0))\n"
    assert called(text, ("PPO",), ("key",)) == {"0": "MlpPolicy", "n_steps": 2048}
    assert called(text, ("DQN",)) == {}
    with pytest.raises(NotPlain, match="k\\(0\\)"):
        called(text, ("PPO",))
