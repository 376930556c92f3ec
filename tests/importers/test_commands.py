"""Commands in shell scripts, and searches in the notation of Hydra."""

import pytest

from hpo.cli import main
from hpo.errors import ConfigError
from hpo.importers.commands import read_command
from hpo.importers.hydra_sweeps import sweep_of
from hpo.studies.check import check
from hpo.studies.load import loads
from hpo.studies.yaml_io import plain, read_text


@pytest.fixture
def imported(tmp_path, capsys):
    def run(kind, text, *flags, name="train.sh"):
        (tmp_path / name).write_text(text)
        code = main(["import", kind, str(tmp_path / name), "--", *flags])
        out, err = capsys.readouterr()
        assert "Traceback" not in err and (code == 0 or (code == 2 and not out))
        if code:
            return None, err
        assert not check(loads(out)).mistakes
        return plain(read_text(out, "study.yaml")), out

    return run


# ----------------------------------------------------------------------------- shell

PPO = "python cleanrl/ppo.py --env-id CartPole-v1 --learning-rate 1e-3 --total-timesteps 100000"


@pytest.mark.parametrize(
    "script",
    [
        f"for seed in 1 2 3; do\n  {PPO} --seed $seed &\ndone\nwait\n",
        f"for seed in {{1..3}}; do {PPO} --seed=${{seed}} > log.txt 2>&1 & done; wait",
        f"for s in $(seq 1 3)\ndo\n{PPO} \\\n  --seed $s\ndone\n",
        f"#!/bin/bash\n#SBATCH --array=1-3\nmodule load cuda\n{PPO} --seed $SLURM_ARRAY_TASK_ID\n",
        f"{PPO} --seed 1 &\n{PPO} --seed 2 &\n{PPO} --seed 3 &\nwait\n",
        f"SEEDS=3\necho start && {PPO} --seed 1; {PPO} --seed 2; {PPO} --seed $SEEDS\n",
    ],
)
def test_shell_loop_over_seeds_becomes_seeds_per_config(imported, script):
    data, _ = imported("cleanrl", script)
    assert data["seeds"] == {"per_config": 3} and data["budget"] == {"trials": 1}
    assert data["env_steps"] == 100_000 and data["fixed"]["learning_rate"] == 1e-3
    assert "search" not in data and "space" not in data


@pytest.mark.parametrize(
    ("flags", "fixed", "said"),
    [
        ("--num-minibatches 3", {"minibatch_size": 170}, "an epoch has 4 gradient steps"),
        ("--num-minibatches 8", {"num_minibatches": 8}, ""),
    ],
)
def test_cleanrl_rounds_minibatches_down(imported, flags, fixed, said):
    """Its loop over 512 rows in steps of 170 ends with a minibatch of two rows."""
    data, text = imported("cleanrl", f"{PPO} {flags}")
    found = {name: value for name, value in data["fixed"].items() if "minibatch" in name}
    assert found == fixed and said in " ".join(text.replace("#", " ").split())
    data, _ = imported(
        "cleanrl", PPO, *flags.replace("--num-minibatches ", "--num_minibatches=").split()
    )
    assert fixed.items() <= data["fixed"].items()


def test_a_given_size_of_minibatches_replaces_their_number_in_cleanrl(imported):
    """CleanRL only computes a name that is also ours: a flag after `--` is ours."""
    for flag in ("--minibatch_size", "--minibatch-size"):
        data, text = imported("cleanrl", f"{PPO} --num-minibatches 8", flag, "50")
        found = {name: value for name, value in data["fixed"].items() if "minibatch" in name}
        assert found == {"minibatch_size": 50} and "minibatch_size: computed" not in text
    data, text = imported("cleanrl", f"{PPO} --minibatch-size 50")
    assert "minibatch_size" not in data["fixed"] and "computed" in text


def test_searched_minibatches_of_cleanrl_are_noted(imported):
    script = "for n in 2 3; do python cleanrl/ppo.py --num-minibatches $n; done\n"
    data, text = imported("cleanrl", script)
    assert data["space"]["num_minibatches"] == {"values": [2, 3]}
    assert "CleanRL rounds the size down" in " ".join(text.replace("#", " ").split())


def test_a_loop_over_values_is_a_grid(imported):
    script = (
        "for lr in 1e-3 3e-3; do for seed in 1 2; do\n"
        "python cleanrl/ppo.py --env-id CartPole-v1 --learning-rate $lr --seed $seed\n"
        "done; done\n"
    )
    data, _ = imported("cleanrl", script)
    assert data["space"] == {"learning_rate": {"values": [1e-3, 3e-3]}}
    assert data["search"]["method"] == "grid" and data["budget"] == {"trials": None}
    assert data["seeds"] == {"per_config": 2}


def test_commands_that_train_different_things_are_refused(imported):
    data, said = imported("cleanrl", f"{PPO} --gamma 0.9\n{PPO} --gamma 0.95 --num-envs 8\n")
    assert data is None and "several training commands" in said and "gamma, num_envs" in said
    script = "for env in CartPole-v1 Acrobot-v1; do python cleanrl/ppo.py --env-id $env; done"
    data, said = imported("cleanrl", script)
    assert data is None and "env_id is searched, but a study accepts only a single value" in said
    data, _ = imported("cleanrl", script, "--env-id", "Acrobot-v1")
    assert data["env"] == "Acrobot-v1"


def test_shell_comments_and_quoted_words_are_parsed():
    text = "python x.py \\\n  --a=1 \\\n# more\n  --b='two words' \\\n\n  --c \"three\nlines\"\n"
    assert read_command(text, None, {}).flags == {"a": "1", "b": "two words", "c": "three\nlines"}
    with pytest.raises(ConfigError, match="split into words"):
        read_command("python x.py --a 'one", None, {})


BENCHMARK = """
uv pip install .
OMP_NUM_THREADS=1 xvfb-run -a python -m cleanrl_utils.benchmark \\
    --env-ids CartPole-v1 Acrobot-v1 \\
    --command "uv run python cleanrl/ppo.py --no_cuda --track" \\
    --num-seeds 5 --workers 9
uv run python -m cleanrl_utils.benchmark \\
    --env-ids Pendulum-v1 \\
    --command "uv run python cleanrl/ppo_continuous_action.py --num-envs 2" --num-seeds 2
uv run python -m cleanrl_utils.benchmark --env-ids pong_v3 \\
    --command "uv run torchrun --nnodes=1 cleanrl/ppo_atari_multigpu.py --track"
"""


def test_benchmark_script_imports_one_environment(imported):
    data, said = imported("cleanrl", BENCHMARK)
    assert data is None and "(--env CartPole-v1)" in said.replace("-- --env", "--env")
    data, _ = imported("cleanrl", BENCHMARK, "--env", "Acrobot-v1")
    assert data["env"] == "Acrobot-v1" and data["seeds"] == {"per_config": 5}
    assert data["loggers"] == [{"type": "wandb"}] and data["fixed"]["num_envs"] == 4
    data, said = imported("cleanrl", BENCHMARK, "--env", "Pendulum-v1")
    assert data["seeds"] == {"per_config": 2} and data["fixed"]["num_envs"] == 2
    assert "ppo_continuous_action.py" in said
    assert data["fixed"]["normalise_observations"] is True


# ----------------------------------------------------------------------------- Hydra


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1", None),
        ("[1,2]", None),
        ("name", None),
        ("f(1)", None),
        ("0.1,0.2", {"values": [0.1, 0.2]}),
        ("[1,2],[3]", {"values": [[1, 2], [3]]}),
        ("choice(64, 128)", {"values": [64, 128]}),
        ("'a,b',c", {"values": ["a,b", "c"]}),
        ("range(1, 4)", {"values": [1, 2, 3]}),
        ("range(0, 1, 0.25)", {"values": [0, 0.25, 0.5, 0.75]}),
        ("interval(0.8, 1)", {"min": 0.8, "max": 1, "distribution": "uniform"}),
        ("interval(1, 8)", {"min": 1, "max": 8, "distribution": "int_uniform"}),
        ("int(interval(4, 16.5))", {"min": 4, "max": 16, "distribution": "int_uniform"}),
        (
            "tag(log, interval(1e-5, 1e-2))",
            {"min": 1e-5, "max": 1e-2, "distribution": "log_uniform"},
        ),
        (
            "tag(log, int(interval(1, 64)))",
            {"min": 1, "max": 64, "distribution": "log_int_uniform"},
        ),
        (
            "int(tag(log, interval(1, 64)))",
            {"min": 1, "max": 64, "distribution": "log_int_uniform"},
        ),
        ("shuffle(range(1, 4))", {"values": [1, 2, 3]}),
    ],
)
def test_hydra_sweep_syntax_becomes_distribution(text, expected):
    assert sweep_of(text) == expected


def test_optuna_sweeper_range_includes_upper_bound():
    assert sweep_of("range(1, 4)", inclusive=True) == {
        "min": 1,
        "max": 4,
        "distribution": "int_uniform",
    }
    assert sweep_of("range(64, 256, 64)", inclusive=True)["q"] == 64


@pytest.mark.parametrize("text", ["range(a, b)", "interval(1)", "range(4, 1)", "range(0, 1e6)"])
def test_ranges_that_cannot_be_read_are_refused(text):
    with pytest.raises(ConfigError):
        sweep_of(text)


MULTIRUN = (
    "python run_arlbench.py {} environment=cc_pendulum environment.name=Pendulum-v1 "
    "environment.framework=gymnax environment.n_total_timesteps=5e4 environment.n_envs=16 "
    "algorithm=ppo hp_config.learning_rate=0.001,0.003 hp_config.gae_lambda=0.9 "
    "nas_config.hidden_size=64,128 autorl.seed=0,1,2 autorl.checkpoint=[opt_state,params,loss]"
)


@pytest.mark.parametrize("flag", ["-m", "--multirun"])
def test_hydra_multirun_lists_become_search_space(imported, flag):
    data, _ = imported("arlbench", MULTIRUN.format(flag))
    assert data["space"] == {
        "learning_rate": {"values": [0.001, 0.003]},
        "hidden_size": {"values": [64, 128], "default": 64},
    }
    assert data["seeds"] == {"per_config": 3} and data["search"] == {"method": "grid"}
    assert data["env"] == "Pendulum-v1" and data["env_steps"] == 50_000
    assert data["fixed"]["gae_lambda"] == 0.9 and data["fixed"]["num_layers"] == 2
    assert data["checkpoint"] == {"parts": ["optimiser", "parameters", "losses"]}


def test_missing_hydra_config_file_is_reported(imported):
    for words in ("--config-name=random_search --multirun", "-m --config-name random_search"):
        data, said = imported("arlbench", f"python run_arlbench.py {words} hp_config.gamma=0.9")
        assert data is None and "random_search.yaml" in said


SWEEPER = """
defaults:
  - _self_
  - override hydra/sweeper: optuna{}
algorithm: {{name: ppo, learning_rate: 3e-4, n_steps: 128, batch_size: 64}}
env_id: CartPole-v1
total_timesteps: 100000
hydra:
  sweeper:
    n_trials: 20
    params:
      algorithm.learning_rate: tag(log, interval(1e-5, 1e-2))
      algorithm.batch_size: choice(64, 128)
      algorithm.n_epochs: range(4, 6)
"""


def test_hydra_optuna_sweeper_becomes_search(imported):
    """Trial 0 has the file's own values."""
    text = SWEEPER.format("").replace("learning_rate: 3e-4", "learning_rate: 2e-3")
    data, said = imported("sb3", text, name="config.yaml")
    assert data["space"] == {
        "learning_rate": {
            "min": 1e-5,
            "max": 1e-2,
            "distribution": "log_uniform",
            "default": 2e-3,
        },
        "minibatch_size": {"values": [64, 128], "default": 64},
        "update_epochs": {"min": 4, "max": 6, "distribution": "int_uniform"},
    }
    assert data["search"] == {"method": "tpe"} and data["budget"] == {"trials": 20}
    assert data["fixed"]["rollout_length"] == 128 and "learning_rate" not in data["fixed"]
    assert "the sweeper optimises the program's return value" in said
    more = "\n  - override hydra/sweeper/sampler: random"
    data, _ = imported("sb3", SWEEPER.format(more), name="config.yaml")
    assert data["search"] == {"method": "random"}
    more = "\n  - override hydra/sweeper/sampler: qmc"
    data, said = imported("sb3", SWEEPER.format(more), name="config.yaml")
    assert data is None and "the sampler 'qmc' has no counterpart" in said


def test_params_without_a_sampler_are_a_grid(imported):
    text = SWEEPER.format("").replace("optuna", "basic").replace("    n_trials: 20\n", "")
    text = text.replace("tag(log, interval(1e-5, 1e-2))", "1e-3,1e-4")
    data, _ = imported("sb3", text, name="config.yaml")
    assert data["search"] == {"method": "grid"} and data["budget"] == {"trials": None}
    assert data["space"]["update_epochs"] == {"values": [4, 5]}


def test_search_space_in_missing_file_is_reported(imported):
    text = (
        "algorithm: {n_steps: 64, clip_range: 0.1}\nenv: CartPole-v1\n"
        "hydra: {sweeper: {n_trials: 4, search_space: '${search_space}'}}\n"
    )
    data, said = imported("sb3", text, name="config.yaml")
    assert data is None and "(-- --without search_space)" in said
    data, _ = imported("sb3", text, "--without", "search_space", name="config.yaml")
    assert data["fixed"]["clip_eps"] == 0.1 and data["budget"] == {"trials": 1}


def test_flags_that_change_together_in_a_loop_are_no_grid(imported):
    script = f"for x in 1e-3 3e-3; do\n{PPO} --ent-coef $x --vf-coef $x\ndone\n"
    data, said = imported("cleanrl", script)
    assert data is None and "ent_coef and vf_coef change together in a loop" in said
    data, _ = imported("cleanrl", script, "--without", "vf_coef")
    assert data["space"] == {"ent_coef": {"values": [1e-3, 3e-3]}}


def test_interpolations_are_replaced_by_their_values(imported):
    text = "env_id: CartPole-v1\nbase: {rate: 1e-4}\nlearning_rate: ${base.rate}\nnum_steps: 64\n"
    text += "clip_coef: 0.1\nvf_coef: ${clip_coef}\ncopy: {num_steps: '${num_steps}'}\n"
    text += "logs: ${hydra:run.dir}\n"
    data, _ = imported("cleanrl", text, name="config.yaml")
    fixed = data["fixed"]
    assert (fixed["learning_rate"], fixed["vf_coef"], fixed["rollout_length"]) == (1e-4, 0.1, 64)


@pytest.mark.parametrize("value", ["${oc.env:LR}", "${base.other}", "${base}"])
def test_interpolation_that_cannot_be_read_is_refused(imported, value):
    text = f"env_id: CartPole-v1\nbase: {{rate: 1e-4}}\nlearning_rate: {value}\nnum_steps: 64\n"
    data, said = imported("cleanrl", text, name="config.yaml")
    assert data is None and f"learning_rate is {value}, which cannot be read" in said
    data, _ = imported("cleanrl", text, "--learning_rate", "1e-3", name="config.yaml")
    assert data["fixed"]["learning_rate"] == 1e-3


def test_our_names_override_the_source(imported):
    ours = ["--clip_eps", "0.3", "--rollout_length", "32", "--lr", "0.1", "--env_steps", "5000"]
    data, said = imported("cleanrl", f"{PPO} --clip-coef 0.1 --num-steps 64", *ours)
    fixed = data["fixed"]
    assert (fixed["clip_eps"], fixed["rollout_length"], fixed["learning_rate"]) == (0.3, 32, 0.1)
    assert data["env_steps"] == 5000 and "clip_coef: clip_eps is given" in said
