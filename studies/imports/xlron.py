"""Training commands of XLRON, an optical-network trainer, as studies of one configuration.

Names, values and defaults stand in `elsewhere/xlron.py`; here is what follows from several flags
together, as XLRON's code reads them (1.1.0: train/train_utils.py, train/ppo.py, make_env.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...elsewhere import XLRON
from ...elsewhere.xlron import OLDER
from ...errors import ConfigError
from .draft import Draft
from .flags import flags_of, words_of
from .take import Source, take
from .words import read_word
from .xlron_heuristic import heuristic_file
from .xlron_networks import read_networks
from .xlron_output import read_output
from .xlron_schedules import read_schedules

__all__ = ["XlronRules", "read_flags"]


def read_flags(source: str | Path, given: Mapping[str, Any]) -> Draft:
    """Read a flag file, a file that holds a command line, or a command line itself.

    Args:
        source: path of the file, or the words.
        given: flags that override it.

    Raises:
        ConfigError: it trains nothing, or a flag has a value that we cannot take.
    """
    shown, text, folder = _text_of(str(source))
    try:
        words = words_of(text)
        flags = flags_of(words, folder)
    except ConfigError as error:
        raise ConfigError(f"{shown}: {error}") from None
    if not flags:
        raise ConfigError(
            f"{shown}: no flags; a training command has some, such as --env_type=rmsa"
        )
    found = Source(dict(flags), words=words)
    rules = XlronRules()
    rules.negations(found)
    if _on(given.get("EVAL_HEURISTIC", found.find("EVAL_HEURISTIC"))):
        return heuristic_file(shown, found, given)
    draft = Draft(shown)
    if shown == _TYPED:
        draft.rest["name"] = "xlron"
    draft.section("budget")["trials"] = 1
    take(draft, found, {"system": XLRON.name, **given}, {XLRON.name: rules})
    return draft


_TYPED = "the command line"


def _text_of(source: str) -> tuple[str, str, Path]:
    """Return how a source is named in messages, its text, and the folder that its files are in."""
    path = Path(source)
    if "--" in source and (source.lstrip().startswith("-") or len(source.split()) > 1):
        return _TYPED, source, Path()
    try:
        if not path.is_file():
            raise ConfigError(f"{source[:200]}: no such file, and no command line with flags")
        return str(path), path.read_text(encoding="utf-8"), path.parent
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: no text in UTF-8") from None
    except OSError as error:  # a name that is too long, or a file that may not be read
        raise ConfigError(f"{source[:200]}: no such file: {error.strerror}") from None


class XlronRules:
    """What follows from several of XLRON's flags together."""

    def before(self, draft: Draft, source: Source) -> None:
        """Resolve flags that mean something only beside others."""
        self.negations(source)
        _renamed(draft, source)
        _check_kinds(draft, source)
        if _on(source.find("EVAL_MODEL")):
            raise ConfigError(
                f"{draft.source}: --EVAL_MODEL evaluates and trains nothing, and weights of "
                "Equinox (.eqx) cannot be read here; train a policy, then see `hpo eval --help`"
            )
        if any(map(_on, source.values("EVAL_HEURISTIC", False))):
            raise ConfigError(
                f"{draft.source}: --EVAL_HEURISTIC evaluates and trains nothing; `hpo import "
                "xlron` of one such command prints the `hpo eval` that does the same"
            )
        _one_environment(draft, source)
        _length(draft, source)
        _blocks(draft, source)
        _traffic(draft, source)
        _lambda(draft, source)
        _clips(draft, source)
        _priorities(draft, source)
        if any(value for value in source.values("MINIBATCH_SIZE", None)):
            draft.leave_out("MINIBATCH_SIZE", "XLRON computes it; NUM_MINIBATCHES counts")
            source.drop("MINIBATCH_SIZE")
        read_networks(draft, source)
        read_output(draft, source)
        read_schedules(draft, source)

    def after(self, draft: Draft, source: Source) -> None:
        """Add what every command of XLRON stands for."""
        decays = [draft.fixed.get(name) or name in draft.space
                  for name in ("weight_decay", "vf_weight_decay")]  # fmt: skip
        if any(decays):
            draft.fixed["optimiser"] = "adamw"
            draft.note("WEIGHT_DECAY: XLRON decays as AdamW does, so the optimiser is adamw")
        draft.rest.setdefault(
            "metric", {"name": "eval/service_blocking_probability", "goal": "minimize"}
        )
        evaluation = draft.section("evaluation")
        if draft.env.get("continuous"):
            evaluation.setdefault("episodes", 8)
            evaluation.setdefault("steps", 5000)
        else:
            draft.env["warmup_requests"] = 0
            evaluation.pop("steps", None)
            evaluation.setdefault("episodes", 20)
        _wavelengths(draft)

    def negations(self, source: Source) -> None:
        """Read `--noFLAG` as the flag, off."""
        for name in list(source.constants):
            flag = name.removeprefix("no")
            negated = source.constants[name] is True and XLRON.find(name) is None
            if negated and flag != name and XLRON.find(flag) is not None:
                source.drop(name)
                source.constants[flag] = False


def _renamed(draft: Draft, source: Source) -> None:
    """Read flags of earlier versions as those of today."""
    for old, new in OLDER.items():
        for given in (source.constants, source.searched):
            if old in given:
                given[new] = given.pop(old)
                draft.note(f"{old}: an earlier name of {new}")


def _on(value: Any) -> bool:
    return read_word(value) in (True, 1)


def _check_kinds(draft: Draft, source: Source) -> None:
    """Refuse what is no number where XLRON takes numbers, and mappings and lists among words.

    Raises:
        ConfigError: names the flag.
    """
    for name in source.names():
        row = draft.system.find(name)
        if row is None or (row.fate != "taken" and name != "STEPS_PER_INCREMENT"):
            continue
        number = isinstance(row.default, int | float) and not isinstance(row.default, bool)
        number = number or name == "STEPS_PER_INCREMENT"
        word = isinstance(row.default, str | bool) or name.endswith("_SCHEDULE")
        for value in source.values(name, None):
            counts = isinstance(value, int | float) and not isinstance(value, bool)
            if (number and not counts) or (word and isinstance(value, list | dict)):
                wanted = "a number" if number else "one word"
                raise ConfigError(f"{draft.source}: {name} is {value!r}; allowed: {wanted}")


def _one_environment(draft: Draft, source: Source) -> None:
    if "env_type" not in source.names():
        source.constants["env_type"] = "rmsa"
        draft.note("env_type: 'rmsa', the default of XLRON")


def _length(draft: Draft, source: Source) -> None:
    """Set the env steps that XLRON really trains: whole updates in whole increments."""
    names = {"TOTAL_TIMESTEPS": 10**6, "STEPS_PER_INCREMENT": 10**5, "NUM_ENVS": 1,
             "ROLLOUT_LENGTH": 150}  # fmt: skip
    given = [source.values(name, default) for name, default in names.items()]
    if any(len(values) > 1 for values in given):
        return
    total, increment, envs, rollout = (int(values[0]) for values in given)
    if min(envs, rollout) < 1:  # refused where they are put
        return
    increment = max(min(total, increment), rollout * envs)
    updates = max(1, increment // (rollout * envs)) * max(1, total // increment)
    trained = updates * rollout * envs
    if trained != total:
        draft.note(
            f"TOTAL_TIMESTEPS: {total:,} as it says; XLRON trains {trained:,}, whole updates in "
            f"increments of STEPS_PER_INCREMENT"
        )


def _blocks(draft: Draft, source: Source) -> None:
    """Read blocks wider than a link, of which XLRON makes one block a path."""
    name, slots = "aggregate_slots", source.values("link_resources", 5)
    if (
        len(slots) > 1
        or name not in source.names()
        or not any(width > slots[0] for width in source.values(name, 1))
    ):
        return
    draft.note(f"{name}: at most link_resources ({slots[0]}), one block a path")
    if name in source.constants:
        source.constants[name] = slots[0]
    elif "values" in source.searched[name]:
        fields = source.searched[name]
        fields["values"] = sorted({min(read_word(one), slots[0]) for one in fields["values"]})


def _traffic(draft: Draft, source: Source) -> None:
    """Read what decides the traffic: the load, the matrix, lists of requests."""
    if source.values("env_type", "rmsa")[0] in ("rwa", "rwa_lightpath_reuse"):
        draft.silent.add("guardband")
    if _on(source.find("continuous_operation")):
        draft.silent.add("max_requests")
    if source.find("traffic_intensity"):
        source.constants["load"] = source.constants.pop("traffic_intensity")
        draft.note("traffic_intensity: it is the load there, whatever --load says")
    if source.find("custom_traffic_matrix_csv_filepath"):
        if any(map(_on, source.values("random_traffic", False))):
            draft.leave_out("random_traffic", "a matrix is given, which wins there")
        source.drop("random_traffic")
        draft.silent.add("random_traffic")
    listed = source.find("traffic_requests_csv_filepath")
    if _on(source.find("deterministic_requests")) and listed:
        source.drop("deterministic_requests")
        draft.note(
            "traffic_requests_csv_filepath: the columns are source,destination,bitrate,arrival,"
            "holding here, with absolute arrivals; XLRON's are source,bandwidth,destination,"
            "arrival,holding,current time"
        )
    elif listed and not any(map(_on, source.values("deterministic_requests", False))):
        draft.leave_out(
            "traffic_requests_csv_filepath", "read there with --deterministic_requests only"
        )
        source.drop("traffic_requests_csv_filepath")


def _wavelengths(draft: Draft) -> None:
    """Take what wavelengths decide by themselves, there and here."""
    if draft.env.get("id") == "rwa":
        draft.env.pop("guardband", None)
        draft.env["bitrates"] = [draft.env.get("slot_width", 12.5)]
        draft.note("values_bw: a wavelength of slot_size, as in rwa of XLRON")
    elif draft.env.get("id") == "rwa_lightpath_reuse":
        draft.env.pop("guardband", None)
        scale = draft.env.get("scale_factor", 1.0)
        if scale != 1.0 and "max_requests" in draft.env:
            draft.env["max_requests"] = int(scale * draft.env["max_requests"])
            draft.note("max_requests: times scale_factor, as in rwa_lightpath_reuse of XLRON")


def _lambda(draft: Draft, source: Source) -> None:
    """Read lambda: given, or annealed from one value to another."""
    if source.values("GAE_LAMBDA", None) != [None]:
        for name in ("INITIAL_LAMBDA", "FINAL_LAMBDA", "LAMBDA_SCHEDULE_MULTIPLIER"):
            if name in source.names():
                draft.leave_out(name, "GAE_LAMBDA is given, so lambda does not anneal")
            source.drop(name)
            draft.silent.add(name)
        return
    source.drop("GAE_LAMBDA")
    draft.note("GAE_LAMBDA: without it lambda anneals, by default from 0.9 towards 0.98")


def _clips(draft: Draft, source: Source) -> None:
    """Read V-trace's clips: both above 0, or none."""
    off = {name: [value is None or value <= 0 for value in source.values(name, -1.0)]
           for name in ("RHO_CLIP", "C_CLIP")}  # fmt: skip
    if all(off["RHO_CLIP"]) or all(off["C_CLIP"]):
        for name in off:
            if not all(off[name]):
                draft.leave_out(name, "has no effect while the other clip is off")
            source.drop(name)


def _priorities(draft: Draft, source: Source) -> None:
    """Read prioritised sampling, which an importance exponent of 1 switches off there."""
    alpha, beta = source.values("PRIO_ALPHA", 0.0), source.values("PRIO_BETA0", 1.0)
    if any(alpha) and beta == [1.0]:
        draft.leave_out("PRIO_ALPHA", "has no effect there while PRIO_BETA0 is 1 (its default)")
        if "PRIO_ALPHA" in source.searched:
            draft.lost.append("PRIO_ALPHA")
        source.drop("PRIO_ALPHA", "PRIO_BETA0")
    elif any(alpha):
        draft.note(
            "PRIO_BETA0: it rises to 1 over the run here, and by PRIO_ALPHA of that way there"
        )
