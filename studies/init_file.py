"""The text of a first study for `hpo init ENV`; the file can be run unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from ..environments.gym_wrappers import Observation, observation_of
from ..environments.hosted import is_hosted
from ..environments.registry import entry, full_id
from ..environments.table import EnvEntry
from ..environments.via_gymnasium import UnsupportedActionsError
from ..errors import ConfigError, HpoError
from ..knobs import KNOBS, Knob
from ..spaces.make import make_distribution
from .algorithm import Algorithm
from .yaml_io import flow, to_yaml

SEARCHED = ("learning_rate", "gamma", "gae_lambda", "clip_eps", "ent_coef", "update_epochs")
"""Hyperparameters that the generated studies search."""
_NORMALISED = "normalise_observations"
_OFFERED = ("vf_coef", "max_grad_norm", "lr_schedule", "target_kl")
_COLUMN = 76
CONFIRM = {"top_k": 3, "choose": 3, "report": 16, "interim": 8}
"""How the winner is selected and tested in every generated study."""
SEED_PLAN = (  # lines and their meaning, for every generated study file
    ("seeds: {per_config: 1}", "per trial in the search"),
    (f"confirm: {flow(CONFIRM)}", "rerun the best 3 on 3 new seeds, then test"),
)
PROTECTED = {"top_k": 1, "choose": 0, "report": 4}
"""The end of a short study: the best trial against the default, on four new seeds."""
PORTFOLIO = 3
"""The number of learnt configurations in a short study, which has twelve runs in all."""
LONGER = (
    "# With more time, set these two keys and run the same command; finished runs are kept:",
    f"# confirm: {flow(CONFIRM)}",
    "# budget: {trials: 48}           # other limits: env_steps: 100M, wall: 2h",
    "# Early stopping needs a new study:",
    "# early_terminate: {type: asha, min: 150k, eta: 4} # three of four trials stop at min",
    "# population: {lanes: 24}        # fewer lanes than trials: tpe learns from early trials",
)
_SWITCHES = {"wind_power": "enable_wind", "turbulence_power": "enable_wind"}
"""Environment parameter -> the key without which it has no effect."""


def init_text(env_id: str, imports: Sequence[str] = (), custom: EnvEntry | None = None) -> str:
    """Return the text of a study; `LunarLander-v3` becomes `gym:LunarLander-v3`.

    `imports` are the files in the study's folder that register the environment; they have already
    run. `custom` describes an environment that is not in the tables.
    """
    env = custom or entry(full_id(env_id))
    observation = _observation_or_none(env)
    is_image = observation is not None and observation.is_image
    used, head = env.id, f"# {env.id}"
    if observation is not None and not is_image:
        used = observation.wrapped_id or env.id
    if env.meaning:
        head = f"{head}: {env.meaning}."
    name, import_lines = used.lower().replace(":", "-").replace("/", "-"), list[str]()
    if imports:
        import_lines = [f"imports: [{', '.join(imports)}]"]
    searched, offered = (*SEARCHED, _NORMALISED), _OFFERED
    if env.source == "optical" or is_image:  # those show bits, graphs, tokens or pixels
        searched, offered = SEARCHED, (*_OFFERED, _NORMALISED)
    lines = [
        head,
        "# Next: check this file, then run it. Omitted keys have defaults.",
        *_observation_lines(observation, imports),
        f"name: {name}",
        *import_lines,
        f"env: {used}",
        *_env_lines(env, used),
        "env_steps: 500k                  # per full run",
        "# fixed: the same in every trial; space: searched; trial 0 uses the defaults",
        (
            "fixed: {num_envs: 8, rollout_length: 128, num_minibatches: 4, "
            f"{_network_text(is_image)}}}"
        ),
        "space:",
        *(_knob_line(name) for name in searched),
        *(f"  # {_knob_line(name).strip()}" for name in offered),
        *_param_lines(env),
        "# forbid:",
        '#   - "gamma < gae_lambda - 0.15"',
        "# enqueue:                       # trials 1, 2, ...",
        "#   - {learning_rate: 3e-3}",
        *_metric_lines(env),
        f"search: {{method: tpe, portfolio: {PORTFOLIO}}} # learnt configurations come first",
        "seeds: {per_config: 1}           # per trial in the search",
        f"confirm: {flow(PROTECTED)} # compares the best with the default",
        f"budget: {{trials: {1 + PORTFOLIO}}}              # 12 runs, including the test",
        *LONGER,
        "# checkpoint: {keep_best: 3}",
        "# loggers: [{type: csv}]",
    ]
    return "\n".join(lines) + "\n"


def own_init_text(algorithm: Algorithm, env_id: str | None = None) -> str:
    """Return the text of a study for a custom training class that declares a range to search."""
    searched = [knob for knob in algorithm.knobs.values() if knob.search is not None]
    if not searched:
        given = 'search={"min": 1e-4, "max": 1e-1, "distribution": "log_uniform"}'
        text = f"{algorithm.label} declares no range to search; give one"
        raise ConfigError(f"{text}, such as hpo.traced(1e-3, {given})")
    given = list[str]()
    if algorithm.takes_env:
        given = [f"env: {env_id or 'CartPole-v1'}"]
    elif env_id is not None:
        given = [f"fixed: {{env: {env_id}}}"]
        algorithm.complete({"env": env_id})  # raises if the class has no environment
    lines = [
        f"# {algorithm.label} from {algorithm.name.partition(':')[0]}",
        f"name: {algorithm.label.lower()}",
        f"algorithm: {algorithm.name}",
        f"env_steps: 100k                  # {algorithm.unit} per full run",
        *given,
        "space:",
        *(_line_of(knob) for knob in searched),
        "metric: {name: eval/return_mean}  # or eval/<any value that evaluate returns>",
        "evaluation: {episodes: 10}",
        "early_terminate: {type: asha, min: 30k, eta: 4}   # three of four trials stop at min",
        *(f"{line.ljust(32)} # {what}" for line, what in SEED_PLAN),
        "population: {lanes: 16}          # fewer lanes than trials: tpe learns from early trials",
        "budget: {trials: 32}",
    ]
    return "\n".join(lines) + "\n"


def _knob_line(name: str) -> str:
    return _line_of(KNOBS[name])


def _line_of(knob: Knob) -> str:
    data = make_distribution(dict(knob.search or {})).as_mapping()
    if "values" in data:
        data.pop("distribution")
    line = "  " + to_yaml({knob.name: data}).replace("\n", "")
    if len(line) >= _COLUMN:
        return line
    return f"{line.ljust(_COLUMN)} # {knob.meaning}"


def _network_text(is_image: bool) -> str:
    if is_image:
        return "network: cnn, shared_encoder: true"
    return "hidden_sizes: [64, 64]"


def _observation_or_none(env: EnvEntry) -> Observation | None:
    if not is_hosted(env.id):
        return None
    try:
        return observation_of(env.id)
    except UnsupportedActionsError:
        raise
    except HpoError:  # a package is missing here, which the study's check reports
        return None


def _observation_lines(observation: Observation | None, imports: Sequence[str]) -> list[str]:
    """Return a comment for an environment whose observations need a wrapper."""
    if observation is None or (observation.is_image and not observation.line):
        return []
    space, wrapped = observation.space, observation.wrapped_id
    if not observation.line:
        return [f"# Its observation is a {space}, which no Gymnasium wrapper flattens."]
    if observation.is_registered and not observation.is_image:
        return [f"# Its observation is a {space}; {wrapped} flattens it."]
    if observation.is_registered:
        return [f"# Its observation is an {space}; {wrapped} has smaller images."]
    if observation.is_image:
        aim = f"To train on smaller images, set env to {wrapped} and add this line"
        lead = f"Its observation is an {space}. {aim}"
    else:
        lead = f"Its observation is a {space}. Before the first run add this line"
    if imports:
        return [f"# {lead} to {imports[0]}:", f"#   {observation.line}"]
    more = "# and name the file here: imports: [my_envs.py]"
    return [f"# {lead} to my_envs.py next to this file:", f"#   {observation.line}", more]


def _env_lines(env: EnvEntry, used: str) -> list[str]:
    if not env.keys:
        return []
    keys = ", ".join(f"{key}: {flow(spec.default)}" for key, spec in list(env.keys.items())[:4])
    return [f"# env: {{id: {used}, {keys}}}"]


def _metric_lines(env: EnvEntry) -> list[str]:
    if env.source != "optical":
        return [
            "# half of each search value is the training return; test values exclude it",
            "metric: {name: eval/return_mean, goal: maximize, training_weight: 0.5}",
            "evaluation: {every: rungs, episodes: 20}",
        ]
    return [
        "metric: {name: eval/service_blocking_probability, goal: minimize, aggregate: mean}",
        "evaluation: {every: rungs, episodes: 4, steps: 5000}   # 4 networks, 5,000 requests each",
    ]


def _param_lines(env: EnvEntry) -> list[str]:
    if not env.params:
        return []
    lines = ["  # environment parameters can be searched, too:"]
    useful = [item for item in env.params.items() if _has_effect(env, item[0])]
    for name, default in useful[:3]:
        low, high = sorted((0.8 * default, 1.2 * default))
        if low == high:
            continue
        bounds = f"{{min: {low:.4g}, max: {high:.4g}, distribution: uniform}}"
        lines.append(f"  # env.{name}: {bounds}")
    if len(lines) == 1:
        return []
    return lines


def _has_effect(env: EnvEntry, param: str) -> bool:
    switch = env.keys.get(_SWITCHES.get(param, ""))
    return switch is None or bool(switch.default)
