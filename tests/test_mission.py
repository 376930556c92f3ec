"""What may never go: one test per promise, by the command or call that a user types.

A promise whose check trains for minutes is a point of `scripts/acceptance mission`.
"""

import json
import re
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

import hpo
from helpers import imported_texts as texts
from helpers import recorded_study
from helpers import view_samples as samples
from hpo.cli import main
from hpo.knobs import KNOBS
from hpo.studies.load import loads
from hpo.studies.search_spec import SearchSpec

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """Type commands in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return Here(tmp_path, capsys)


class Here:
    def __init__(self, folder, capsys):
        self.folder, self._capsys = folder, capsys

    def hpo(self, *words):
        self._capsys.readouterr()
        code = main([str(word) for word in words])
        return Said(code, *self._capsys.readouterr())

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def imported(self, kind, name, text, flags=(), env=()):
        """Return the study that `hpo import` makes of a file; `hpo check` accepts it."""
        source = self.write(name, text)
        said = self.hpo("import", kind, source, *env, *(["--", *flags] if flags else []))
        assert said.code == 0, said.err
        study = self.write("imported.yaml", said.out)
        assert self.hpo("check", study).code == 0
        return loads(said.out)

    def checked(self, text):
        """Return what `hpo check` says of a study that it accepts."""
        said = self.hpo("check", self.write("study.yaml", text))
        assert said.code == 0, said.err
        return said.out


# -------------------------------------------------------------------------- systems


@dataclass(frozen=True)
class Trainer:
    """A file of another system, and the values that its users' runs have here."""

    kind: str
    name: str
    text: str
    values: dict[str, Any]
    flags: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    env_steps: int = 0
    searched: dict[str, Any] = field(default_factory=dict)


JAXDEM_OF_SEPTEMBER_2025 = """
from jaxdem.rl.trainers import PPOTrainer

trainer = PPOTrainer.Create(env, model, num_epochs=100, learning_rate_decay_exponent=2.0,
                            learning_rate_decay_min_fraction=0.01)
"""
JAXDEM = """
from jaxdem.rl.trainers import PPOTrainer

trainer = PPOTrainer.Create(env, model, num_epochs=100, drip_decay=0.0, ppo_clip_eps=0.2)
"""
LERAX = """
from lerax.algorithm import PPO

algorithm = PPO(gamma=0.9)
algorithm.learn(env, policy, total_timesteps=65_536)
"""
XLRON = """
python -m xlron.train.train --env_type=rmsa --topology_name=nsfnet_deeprmsa_directed \\
  --link_resources=40 --k=3 --load=90 --mean_service_holding_time=20 --continuous_operation \\
  --ENV_WARMUP_STEPS=500 --NUM_ENVS=8 --ROLLOUT_LENGTH=32 --TOTAL_TIMESTEPS=20480 \\
  --REWARD_CENTERING --INITIAL_AVERAGE_REWARD=0.3 --VALID_MASS_LOSS_COEF=0.02 \\
  --PRIO_ALPHA=0.5 --PRIO_BETA0=0.4
"""
XLRON_GNN = f"{XLRON.strip()} --USE_GNN --message_passing_steps=2"
XLRON_TRANSFORMER = f"{XLRON.strip()} --USE_TRANSFORMER --transformer_num_layers=1"
TORCH = """
from PPO.RL import PPOConfig, PPOAgent

agent = PPOAgent(PPOConfig(env_id="Pendulum-v1", action_space_type="continuous")).learn()
"""
ARLBENCH = "algorithm: ppo\nenvironment: {name: CartPole-v1}\n" + texts.ARLBENCH

TRAINERS = {
    "XLRON's PPO on an optical network": Trainer(
        "xlron",
        "flags.txt",
        XLRON,
        {
            "reward_centering": True,
            "average_reward_initial": 0.3,
            "valid_mass_coef": 0.02,
            "action_masking": True,
            "gamma": 0.999,
            "gae_lambda_initial": 0.9,
            "learning_rate": 5e-4,
            "num_envs": 8,
            "priority_alpha": 0.5,
            "priority_beta0": 0.4,
        },
        env_steps=20_480,
    ),
    "XLRON's GNN": Trainer(
        "xlron",
        "flags.txt",
        XLRON_GNN,
        {"network": "gnn", "gnn_message_passing_steps": 2, "gnn_edge_embedding_size": 128},
    ),
    "XLRON's Transformer": Trainer(
        "xlron",
        "flags.txt",
        XLRON_TRANSFORMER,
        {"network": "transformer", "transformer_layers": 1, "transformer_embedding_size": 128},
    ),
    "JaxDEM of September 2025": Trainer(
        "jaxdem",
        "train.py",
        JAXDEM_OF_SEPTEMBER_2025,
        {
            "max_grad_norm": 0.4,
            "vf_coef": 0.5,
            "ent_coef": 0.03,
            "rho_clip": 0.5,
            "c_clip": 0.5,
            "priority_alpha": 0.4,
            "priority_beta0": 0.1,
            "priority_over": "segments",
            "num_envs": 2048,
            "num_minibatches": 10,
            "learning_rate": 0.02,
            "adam_eps": 1e-5,
            "lr_decay_exponent": 2.0,
            "lr_end_fraction": 0.01,
        },
        env=("--env", "Pendulum-v1"),
    ),
    "JaxDEM later": Trainer(
        "jaxdem",
        "train.py",
        JAXDEM,
        {"adam_eps": 1e-12, "lr_end_fraction": 0.0, "priority_over": "segments"},
        env=("--env", "Pendulum-v1"),
    ),
    "Lerax up to 0.0.5": Trainer(
        "lerax",
        "train.py",
        LERAX,
        {"rollout_length": 512, "update_epochs": 16, "hidden_sizes": (64, 64), "gamma": 0.9},
        flags=("--version", "0.0.5"),
        env=("--env", "Pendulum-v1"),
    ),
    "Lerax later": Trainer(
        "lerax",
        "train.py",
        LERAX.replace("gamma=0.9", "gamma=0.9, clip_coefficient=0.1"),
        {"rollout_length": 2048, "update_epochs": 10, "clip_eps": 0.1},
        env=("--env", "Pendulum-v1"),
    ),
    "the PyTorch single file": Trainer(
        "torch_ppo",
        "train.py",
        TORCH,
        {"hidden_sizes": (64, 64), "clip_eps_schedule": "linear"},
    ),
    "ARLBench's PPO": Trainer(
        "arlbench",
        "run.yaml",
        ARLBENCH,
        {
            "rollout_length": 128,
            "update_epochs": 10,
            "minibatch_size": 64,
            "hidden_sizes": (64, 64),
        },
    ),
}


@pytest.mark.parametrize("trainer", TRAINERS.values(), ids=TRAINERS)
def test_foreign_training_run_is_imported_with_its_defaults(here, trainer):
    given = trainer
    study = here.imported(given.kind, given.name, given.text, given.flags, given.env)
    config = study.complete(study.space.default())
    wrong = {
        name: (config.get(name), value)
        for name, value in given.values.items()
        if config.get(name) != value
    }
    assert not wrong, "name -> (what it is here, what it is there)"
    assert given.env_steps in (0, study.env_steps)


def test_xlron_flags_are_imported_or_refused(here):
    from hpo.foreign_names.xlron_table import XLRON as TABLE

    fates = {row.fate for row in TABLE.rows}
    assert len(TABLE.rows) > 200 and fates == {"taken", "left out", "refused"}
    for flag in ("--terminate_on_episode_end", "--ACTIVATION=crelu", "--GAMA=0.9"):
        said = here.hpo("import", "xlron", f"{' '.join(XLRON.split())} {flag}".replace("\\", ""))
        assert said.code == 2 and not said.out and len(said.err.strip().splitlines()) == 1


def test_xlron_heuristic_names_are_supported():
    from hpo.core.envs.optical.optical_settings import HEURISTIC_NAMES

    theirs = {
        "ksp_ff", "ff_ksp", "ksp_lf", "ksp_bf", "bf_ksp", "ksp_mu", "mu_ksp", "kca_ff", "kmc_ff",
        "kmf_ff", "kme_ff",
    }  # fmt: skip
    assert theirs <= set(HEURISTIC_NAMES)


# -------------------------------------------------------------------------- PPO

SMALL = "env: CartPole-v1\nenv_steps: 4096\nbudget: {trials: 4}\n"
OPTICAL = """
env: {id: rmsa, topology: nsfnet_deeprmsa, k: 3, load: 200}
env_steps: 40960
evaluation: {steps: 1000, episodes: 1}
metric: {name: eval/service_blocking_probability, goal: minimize}
budget: {trials: 2}
"""
SEARCH = "space: {learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}}\n"
FEATURES = {
    "V-trace and prioritised segments": {
        "rho_clip": 1.0,
        "c_clip": 1.0,
        "priority_alpha": 0.4,
        "priority_over": "segments",
    },
    "Muon": {"optimiser": "muon"},
    "reward centring": {"reward_centering": True},
    "Beta": {"distribution": "beta"},
    "squashed Gaussian": {"distribution": "tanh_gaussian"},
    "GRU": {"network": "gru"},
    "LSTM": {"network": "lstm"},
}


@pytest.mark.parametrize("fixed", FEATURES.values(), ids=FEATURES)
def test_study_file_supports_each_ppo_feature(here, fixed):
    env = "Pendulum-v1" if "distribution" in fixed else "CartPole-v1"
    text = f"{SMALL}{SEARCH}fixed: {json.dumps(fixed)}\n".replace("CartPole-v1", env)
    assert here.checked(text).startswith("OK")


@pytest.mark.parametrize("network", ["mlp", "gnn", "transformer", "path_mlp"])
def test_study_file_supports_optical_networks(here, network):
    fixed = {"network": network, "action_masking": True, "valid_mass_coef": 0.01}
    assert here.checked(f"{OPTICAL}{SEARCH}fixed: {json.dumps(fixed)}\n").startswith("OK")


def test_study_file_supports_cnn(here):
    fixed = "fixed: {network: cnn}\n"
    text = f"{SMALL}{SEARCH}{fixed}".replace("CartPole-v1", "Breakout-MinAtar")
    assert here.checked(text).startswith("OK")


def test_study_file_supports_every_schedule(here):
    from hpo.knobs import SCHEDULES

    assert {"constant", "linear", "cosine", "warmup_cosine"} <= set(SCHEDULES)
    for name in SCHEDULES:
        assert here.checked(f"{SMALL}{SEARCH}fixed: {{lr_schedule: {name}}}\n").startswith("OK")


SHAPES = {
    "num_envs",
    "rollout_length",
    "num_minibatches",
    "minibatch_size",
    "history",
    "num_layers",
    "hidden_size",
    "recurrent_size",
    "action_low",
    "action_high",
    "accumulate_minibatches",
    "gradient_accumulation",
    "hidden_gain",
    "policy_gain",
    "value_gain",
}
"""Numbers that shape arrays, or are used once, before anything is trained."""


def test_numeric_hyperparameters_are_batched_in_one_program(here):
    numbers = [knob for knob in KNOBS.values() if knob.type in ("int", "float")]
    of_networks = ("cnn_", "gnn_", "transformer_", "path_mlp_")
    static = {knob.name for knob in numbers if not knob.traced}
    assert {name for name in static if not name.startswith(of_networks)} <= SHAPES
    assert len(numbers) - len(static) > 40
    text = SMALL + (
        "space:\n"
        "  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}\n"
        "  gamma: {min: 0.9, max: 0.999}\n"
        "  clip_eps: {min: 0.1, max: 0.3}\n"
        "  update_epochs: {min: 1, max: 8}\n"
    )
    here.checked(text)
    assert json.loads(here.hpo("check", "study.yaml", "--json").out)["training_compiles"] == 1
    here.checked(text + "  activation: {values: [tanh, relu]}\n")
    assert json.loads(here.hpo("check", "study.yaml", "--json").out)["training_compiles"] == 2


def test_optical_founding_search_is_one_study(here):
    """Learning rate, clipping, lambda, entropy, architecture and slot aggregation."""
    space = """space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  clip_eps: {min: 0.1, max: 0.3}
  gae_lambda: {min: 0.9, max: 1.0}
  ent_coef: {min: 0.0, max: 0.02}
  hidden_sizes: {values: [[64, 64], [128, 128]]}
  env.aggregate_slots: {values: [1, 20]}
"""
    here.checked(f"{OPTICAL}{space}search: {{method: tpe}}\n")
    by_tune = OPTICAL.replace("steps: 1000", "steps: 1000, every: 2560")
    here.checked(f"{by_tune}{space}search: {{driver: ray_tune}}\n")


def test_autorl_env_api_is_available():
    """ARLBench's dynamic configuration; tests/search/autorl trains it."""
    assert {"reset", "step", "save", "restore"} <= set(dir(hpo.AutoRLEnv))
    assert "AutoRLEnv" in hpo.__all__


# -------------------------------------------------------------------------- a study's life

ROWS = {
    "seeds and confirm": "seeds: {per_config: 2}\nconfirm: {top_k: 2, choose: 2, report: 4}\n",
    "racing": "seeds: {per_config: 6, racing: {start: 2}}\n",
    "asha": "early_terminate: {type: asha, min: 1024}\n",
    "PBT": "early_terminate: {type: pbt, every: 1024}\n",
    "PB2": "early_terminate: {type: pb2, every: 1024}\n",
    "several objectives": (
        "objectives: [{name: eval/return_mean}, {name: eval/length_mean, goal: minimize}]\n"
        "search: {method: nsga2}\n"
    ),
    "constraints": "constraints: [{metric: eval/length_mean, max: 400}]\n",
    "tpe": "search: {method: tpe}\n",
    "a grid": "search: {method: grid}\n",
    "Ray workers": "executor: {type: ray, workers: 1}\n",
}


@pytest.mark.parametrize("more", ROWS.values(), ids=ROWS)
def test_study_file_supports_each_search_option(here, more):
    assert here.checked(f"{SMALL}{SEARCH}{more}").startswith("OK")


def test_study_may_have_several_environments(here):
    text = f"{SMALL}{SEARCH}".replace("CartPole-v1", "[CartPole-v1, Acrobot-v1]")
    assert here.checked(text).startswith("OK")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished study over lanes of a formula."""
    return samples.make_results(tmp_path_factory.mktemp("results"))


COMMANDS = {
    "top": (["top"], "Keep the default"),
    "show": (["show", "{best}"], r"Trial \d+ is the default and the winner"),
    "best": (["best"], r"Trial \d+"),
    "compare": (["compare", "{best}", "{second}"], r"(trial|Trial) \d+"),
    "importance": (["importance"], "learning_rate"),
    "what-if": (["what-if"], "asha"),
    "query": (["query", "SELECT count(*) AS trials FROM trials"], "24"),
    "report": (["report", "--to", "report.html"], "report.html"),
    "plot": (["plot", "curves", "--to", "curves.svg"], "curves.svg"),
    "top as a table": (["top", "--latex"], "toprule"),
    "paper": (["paper", "{study}", "--to", "paper", "--no-figures"], "pdflatex paper"),
    "export csv": (["export", "csv", "--to", "tables"], "tables"),
    "export optuna": (["export", "optuna", "--to", "sqlite:///o.db"], "o.db"),
    "list": (["list", "--out", "{folder}"], "small"),
}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize(("words", "pattern"), COMMANDS.values(), ids=COMMANDS)
def test_finished_study_is_read_by_each_command(here, finished, words, pattern):
    best, second = (entry.trial for entry in finished.leaderboard[:2])
    places = {"folder": finished.folder.parent, "study": finished.folder}
    typed = [word.format(best=best, second=second, **places) for word in words]
    study = () if words[0] in ("list", "paper") else ("--study", finished.folder)
    said = here.hpo(*typed, *study)
    assert said.code == 0, said.err
    assert re.search(pattern, said.out + said.err)


def test_results_are_parquet_that_pyarrow_reads(finished):
    table = pyarrow.parquet.read_table(finished.folder / "trials.parquet")
    rows = {row["trial"]: row for row in table.to_pylist()}
    assert len(rows) == len(finished.leaderboard)
    for entry in finished.leaderboard:
        given = json.loads(rows[entry.trial]["params"])
        assert given["learning_rate"] == entry.params["learning_rate"]


def test_the_journal_is_sqlite(finished):
    with sqlite3.connect(finished.folder / "journal.sqlite") as journal:
        names = {name for (name,) in journal.execute("SELECT name FROM sqlite_master")}
    assert names


def test_a_bundle_is_written_and_verified(here):
    study = recorded_study.write_study(here.folder)
    said = here.hpo("bundle", study, "--to", "claims.zip", "--source", here.folder)
    assert said.code == 0, said.err
    said = here.hpo("verify", "claims.zip")
    assert said.code == 0 and "intact" in said.out and "consistent" in said.out


def test_a_study_is_opened_from_python(finished):
    """As in a notebook, which shows the object."""
    study = hpo.open(finished.folder)
    assert len(study.trials) == len(finished.leaderboard)
    assert "<table" in study._repr_html_()


def test_the_live_page_lists_the_study(finished):
    from hpo.views.live.library import Library

    lines = Library(finished.folder.parent).lines(most_seconds=60.0)
    assert [line.name for line in lines] == ["small"]


# -------------------------------------------------------------------------- the rest


def test_a_tuned_configuration_is_printed(here):
    said = here.hpo("tuned", "CartPole-v1")
    assert said.code == 0 and "learning_rate" in said.out


def test_custom_training_passes_check(here):
    import jax

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        said = here.hpo("check", ROOT / "examples" / "dqn.yaml")
    assert said.out.startswith("OK"), said.err


def test_atlas_studies_are_included():
    """Its studies, and the surfaces that they recorded."""
    assert list((ROOT / "studies" / "atlas").glob("*.yaml"))


def test_search_methods_are_compared_over_recorded_runs(here):
    bench = ROOT / "benchmarks" / "bench" / "methods.yaml"
    few = ("bench.searches=2", "bench.budgets=[8]", "bench.baseline_budget=8")
    flags = [word for key in few for word in ("--set", key)]
    said = here.hpo("bench", bench, "--jobs", 1, "--quiet", "--json", *flags)
    assert said.code == 0, said.err
    methods = {row["method"].partition(",")[0] for row in json.loads(said.out)["rows"]}
    assert {"random", "tpe"} <= methods


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("wandb", "sweep.yaml", texts.CLEANRL_SWEEP),
        ("rlzoo", "ppo.yml", texts.ZOO),
        ("purejaxrl", "train.py", texts.PUREJAXRL),
        ("rejax", "run.yaml", texts.REJAX),
    ],
)
def test_a_sweep_or_configuration_is_imported(here, kind, name, text):
    env = ("--env", "CartPole-v1") if kind == "rlzoo" else ()
    assert here.imported(kind, name, text, env=env).space is not None


def test_configspace_round_trip_keeps_parameter_names():
    from hpo.spaces.via_configspace import as_configspace, from_configspace

    space = loads(SMALL + SEARCH).space
    theirs = as_configspace(space)
    assert type(theirs).__module__.startswith("ConfigSpace")
    assert from_configspace(theirs).names == space.names


def test_optuna_proposes_trials(tmp_path, monkeypatch):
    """`search: {method: tpe}` asks Optuna's sampler."""
    import optuna

    asked, real = [], optuna.samplers.TPESampler.sample_relative
    monkeypatch.setattr(
        optuna.samplers.TPESampler,
        "sample_relative",
        lambda *given: asked.append(1) or real(*given),
    )
    samples.make_results(tmp_path, search=SearchSpec("tpe"))
    assert asked


def test_networks_are_flax_and_optimisers_optax():
    import flax.linen
    import optax

    from hpo.core import optimisers
    from hpo.core.networks import gnn

    assert issubclass(gnn.GNN, flax.linen.Module)
    assert optimisers.optax is optax


def test_optical_graph_observation_is_a_jraph_tuple():
    import jax
    import jraph

    from hpo.core.envs.registry import make
    from hpo.core.plan import EnvPlan

    keys = {"topology": "nsfnet_deeprmsa", "observation": "graph", "k": 2}
    env = make(EnvPlan("rmsa", tuple(sorted(keys.items()))))
    _, observation = jax.eval_shape(env.reset, jax.random.key(0), env.default_params)
    assert isinstance(observation, jraph.GraphsTuple)


def test_study_file_supports_wandb_logger():
    text = f"{SMALL}{SEARCH}loggers: [{{type: wandb, mode: offline}}]\n"
    assert loads(text).loggers[0].type == "wandb"
