import pytest

from hpo.foreign_names.name_mapping import PythonCalls
from hpo.foreign_names.plain_values import NotPlain, Unread, value_of
from hpo.importers.plain_python import read_source
from hpo.views.words import on_command_line


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("dict(pi=[64], vf=[64])", {"pi": [64], "vf": [64]}),
        (
            "dict(log_std_init=-2,\n   ortho_init=False,\n  activation_fn=nn.ReLU)",
            {"log_std_init": -2, "ortho_init": False, "activation_fn": "ReLU"},
        ),
        ("{'norm_obs': False, 'norm_reward': True}", {"norm_obs": False, "norm_reward": True}),
        ("torch.nn.Tanh", "Tanh"),
        ("2**11", 2048),
        ("int(1e6)", 1_000_000),
        ("[400, 300]", [400, 300]),
        ("-3.29", -3.29),
        ("None", None),
        ("(0.9, 0.999)", [0.9, 0.999]),
    ],
)
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
def test_non_literal_python_is_refused_and_not_executed(text):
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
    assert read_source(text, lambda name: name == "hyperparams").named == {
        "hyperparams": {
            "MountainCarContinuous-v0": {
                "normalize": True,
                "n_timesteps": 20000.0,
                "policy_kwargs": {"activation_fn": "ReLU"},
            }
        }
    }
    assert not (tmp_path / "made").exists()


PPO = PythonCalls(("PPO",))


def known(name):
    return name in ("lr", "steps", "envs", "gamma", "kwargs", "seed", "env")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            "def main():\n    model = ppo.PPO('MlpPolicy', make(), steps=2 ** 11)\n",
            {"steps": 2048},
        ),
        ("agent = PPO(env)\nagent.train(*state, steps=100_000, rounds=3)\n", {"steps": 100_000}),
        (
            "first = {'lr': 0.1, 'name': 'x', 'envs': 2}\nsecond = {'steps': 5, 'gamma': 0.9}\n",
            {"lr": 0.1, "name": "x", "envs": 2, "steps": 5, "gamma": 0.9},
        ),
        (
            "@dataclass\nclass Args:\n    lr: float = 1e-3\n    steps: int = field(default=8)\n"
            "    tag: str = 'a'\n",
            {"lr": 1e-3, "steps": 8, "tag": "a"},
        ),
        (
            "p.add_argument('-g', '--gamma', type=float, default=0.9)\n"
            "p.add_argument('--fast', action='store_true')\n",
            {"gamma": 0.9, "fast": False},
        ),
        (
            "if __name__ == '__main__':\n    config = dict(lr=0.1, envs=4)\n    train(config)\n",
            {"lr": 0.1, "envs": 4},
        ),
        ("rate = 0.5\nPPO(lr=rate, envs=args.envs)\nargs.envs = 4\n", {"lr": 0.5, "envs": 4}),
        ("PPO(kwargs=dict(lr=1, gamma=0.5))\n", {"kwargs": {"lr": 1, "gamma": 0.5}}),
        ("PPO(seed=0)\nenv.reset(seed=0)\nlog(lr=old, width=3)\n", {"seed": 0}),
        ("config['gamma'] = 0.9\nconfig['updates'] = config['steps'] // 2\n", {"gamma": 0.9}),
    ],
)
def test_all_assignment_forms_of_a_value_are_read(text, named):
    assert read_source(text, known, PythonCalls(("PPO",), {"PPO": "_ _"})).named == named


def test_two_values_of_one_name_are_refused_with_both_lines():
    text = "PPO(gamma=0.99)\n\nother = dict(gamma=0.9, lr=1)\n"
    with pytest.raises(NotPlain, match=r"0\.99 \(line 1\) and 0\.9 \(line 3\); give") as told:
        read_source(text, known, PPO)
    assert on_command_line(told.value).endswith(" (-- --gamma 0.99)")
    assert read_source(text, known, PPO, {"gamma": 1}).named["lr"] == 1


def test_irrelevant_names_may_have_several_values():
    fates = {"gamma": "taken", "verbose": "left out"}
    text = "PPO(gamma=0.9, verbose=1, title='a')\nPPO(verbose=0, title='b')\n"
    found = read_source(text, lambda name: fates.get(name, ""), PPO).named
    assert found == {"gamma": 0.9, "verbose": 1, "title": "a"}


def test_unread_values_are_kept_with_their_line():
    text = "\nmodel = PPO(lr=decay(3), envs=number, env=env, note=f(x))\nlog(steps=k(0))\n"
    named = read_source(text, known, PPO).named
    assert set(named) == {"lr", "envs", "note"} and all(
        isinstance(one, Unread) and one.line == 2 for one in named.values()
    )


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("env = gym.make('CartPole-v1')\n", "CartPole-v1"),
        ("envs = make_vec_env('Pendulum-v1', n_envs=4)\n", "Pendulum-v1"),
        ("env = make_env('brax', 'ant', n_envs=2)\n", "brax:ant"),
        ("env = rl.Environment.create('two_gears')\n", "two_gears"),
        ("env = CartPole()\n", "CartPole"),
        ("env, params = gymnax.make(config['name'])\n", None),
    ],
)
def test_environment_is_found_in_python_source(text, env):
    assert read_source(text, known).env == env


def test_wrapper_calls_are_mapped_to_table_names():
    around = {"VecNormalize": "kwargs", "VecFrameStack": "steps=n_stack", "Curriculum": "seed"}
    text = "env = VecFrameStack(VecNormalize(env, clip=5.0), n_stack=4)\nc = Curriculum(f)\n"
    assert read_source(text, known, PythonCalls(around=around)).named == {
        "kwargs": {"clip": 5.0},
        "steps": 4,
        "seed": True,
    }


def test_positional_only_argument_defaults_are_accepted():
    text = "def scale(a=1, /): ...\ndef train(lr=0.1, /, steps=3): ...\nPPO(gamma=0.9)\n"
    assert read_source(text, known, PPO).named == {"gamma": 0.9}


PPO_CALL = """
from stable_baselines3 import PPO
{before}
model = PPO("MlpPolicy", "CartPole-v1", learning_rate=lr, n_steps=256)
model.learn(10_000)
{after}
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("lr = 3e-4\nlr *= 2", ""),
        ("lr = 3e-4\nlr = lr / 2", ""),
        ("lr = 3e-4\nlr = float(decay(lr))", ""),
        ("class Args:\n    lr: float = 3e-4", "lr = args.lr * 2"),
        ("def f(lr=3e-4):\n    pass", "f(1e-3)"),
        ("def f(lr=3e-4):\n    pass", "f(lr=args.rate)"),
    ],
)
def test_a_changed_variable_is_not_read(before, after):
    text = PPO_CALL.format(before=before, after=after)
    one = PythonCalls(names=("PPO",), order={"PPO": "policy env"})
    found = read_source(text, lambda name: "taken" * (name in ("learning_rate", "n_steps")), one)
    assert isinstance(found.named["learning_rate"], Unread)
    assert found.named["n_steps"] == 256


@pytest.mark.parametrize(
    "before", ["lr = 3e-4\nlr = float(lr)", "def f(lr=3e-4):\n    pass\nf(args.lr)\nf(3e-4)"]
)
def test_a_copied_variable_is_read(before):
    text = PPO_CALL.format(before=before, after="")
    one = PythonCalls(names=("PPO",), order={"PPO": "policy env"})
    found = read_source(text, lambda name: "taken" * (name == "learning_rate"), one)
    assert found.named["learning_rate"] == 3e-4


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ("args.lr = args.lr * args.n", "args.lr * args.n"),
        ("args.lr *= 2", "args.lr *= 2"),
        ("config['lr'] = scale(1)", "scale(1)"),
    ],
)
def test_a_setting_changed_after_its_default_is_not_read(change, shown):
    text = f"class Args:\n    lr: float = 1e-3\n    n: int = 4\n{change}\nargs.seed += 1\n"
    found = read_source(text, lambda name: "taken" * (name in ("lr", "n")))
    assert found.named["n"] == 4
    assert isinstance(found.named["lr"], Unread) and found.named["lr"] == shown
    assert found.named["lr"].line == 4
    given = read_source(text, lambda name: "taken" * (name in ("lr", "n")), given={"lr": 1})
    assert given.named["lr"] == 1e-3  # the user's value replaces it later


@pytest.mark.parametrize(
    "change",
    [
        "args.lr = float(args.lr)",
        "args.lr = lr",
        "self.lr = decay(lr)",
        "env = wrap(env)",
        "lr = args.lr * 2",
    ],
)
def test_a_copy_of_a_setting_is_no_change(change):
    text = f"class Args:\n    lr: float = 1e-3\n    n: int = 4\n{change}\n"
    assert read_source(text, lambda name: "taken" * (name in ("lr", "n"))).named["lr"] == 1e-3


@pytest.mark.parametrize(
    "change", ["setattr(args, 'lr', 5e-4)", "p.parse_args(['--lr', '5e-4', '--n=4'])"]
)
def test_a_second_value_is_an_error(change):
    text = f"class Args:\n    lr: float = 1e-3\n    n: int = 4\n{change}\n"
    with pytest.raises(NotPlain, match=r"lr is 0.001 \(line 2\) and 0.0005 \(line 4\)"):
        read_source(text, lambda name: "taken" * (name in ("lr", "n")))


def test_arguments_of_envpool_are_no_settings():
    text = "class Args:\n    lr: float = 1e-3\n    n: int = 4\n"
    text += "envpool.make('Breakout-v5', n=4, reward_clip=True, env_type='gym')\n"
    named = read_source(text, lambda name: "taken" * (name in ("lr", "n"))).named
    assert named == {"lr": 1e-3, "n": 4}
