"""Import rules for JaxDEM's interdependent arguments, as `PPOTrainer.Create` reads them.

Until 4 November 2025 `minibatch_size` counted segments (one rollout of one environment each), and
a minibatch was a subset of the environments. Since then, it counts env steps and is rounded down
to whole segments. `clip_actions` clips the environment's actions to `clip_range`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..files.plain_data import is_number
from ..foreign_names.name_mapping import rounded
from ..knobs import KNOBS
from ..studies.study_values import count_of
from .converted_study import ConvertedStudy, ImportSource
from .formats import read_word

SEGMENTS = "2025.09"  # the first version in which minibatch_size counts segments
_ALL_SEGMENTS = (SEGMENTS, "2025.10")
MODELS = ("SharedActorCritic", "ActorCritic", "LSTMActorCritic", "MinGRUActorCritic")
_CLIP_RANGE = (-0.2, 0.2)


@dataclass(frozen=True)
class _Sizes:
    envs: int
    steps: int  # steps of a rollout in one environment
    parts: int  # minibatches per update


def _read_sizes(draft: ConvertedStudy, source: ImportSource) -> _Sizes:
    defaults = draft.system.defaults
    names = ("num_envs", "num_steps_epoch", "num_minibatches")
    return _Sizes(*(count_of(source.values(name, defaults[name])[0]) or 0 for name in names))


def counts_segments(draft: ConvertedStudy, source: ImportSource) -> str:
    """Return why `minibatch_size` must be in segments; "" if it is legal in later versions."""
    if draft.system.name != "jaxdem":
        return ""
    size, steps = count_of(source.find("minibatch_size")) or 0, _read_sizes(draft, source).steps
    if not 0 < size < steps:
        return ""
    return (
        f"its minibatch_size ({size}) is below num_steps_epoch ({steps}), which later versions "
        "reject"
    )


def before(draft: ConvertedStudy, source: ImportSource) -> None:
    sizes = _read_sizes(draft, source)
    _translate_model(draft, source)
    _clip_actions(draft, source)
    _translate_minibatches(draft, source, sizes)


_TOWERS = ("actor_architecture", "critic_architecture")


def _translate_model(draft: ConvertedStudy, source: ImportSource) -> None:
    """Leave out an unknown model, and set the default layer sizes of an LSTM."""
    model = str(source.find("model") or "")
    if model and model not in MODELS:
        source.drop("model")
        draft.leave_out(
            "model",
            f"{model!r} is not a JaxDEM model; the default network is used instead "
            "(docs/networks.md shows how to register one)",
        )
    if model == "ActorCritic":
        _refuse_unequal_towers(draft, source)
    if model != "LSTMActorCritic":
        return
    draft.silent.add("architecture")
    draft.add_defaults(source, {"hidden_features": 64, "lstm_features": 128})


def _refuse_unequal_towers(draft: ConvertedStudy, source: ImportSource) -> None:
    """Reject a tower whose widths differ from the default of the other tower."""
    given = [name for name in _TOWERS if name in source.constants]
    default = draft.system.defaults["architecture"]
    if len(given) != 1 or source.find(given[0]) == default:
        return
    text = (
        f"{given[0]} is {source.find(given[0])} and the other tower is {default} by "
        "default, but hpo uses the same widths for both"
    )
    raise draft.fault(text, flags={"without": given[0]})


def _clip_actions(draft: ConvertedStudy, source: ImportSource) -> None:
    if read_word(source.constants.get("clip_actions")) is not True:
        return
    if "clip_actions" in draft.without:
        return
    ends = source.find("clip_range")
    if ends is None:
        ends = list(_CLIP_RANGE)
    if not isinstance(ends, list) or len(ends) != 2 or not all(map(is_number, ends)):
        text = f"clip_range is {ends}, which cannot be read; give both ends"
        raise draft.fault(
            text, flags={"without": "clip_actions", "action_low": "LOW", "action_high": "HIGH"}
        )
    low, high = float(ends[0]), float(ends[1])
    source.drop("clip_actions", "clip_range")
    source.constants |= {"action_low": low, "action_high": high}
    draft.note(f"clip_actions: clip_range {low:g} to {high:g} becomes action_low and action_high")


# -------------------------------------------------------------------------- minibatches


def _translate_minibatches(draft: ConvertedStudy, source: ImportSource, sizes: _Sizes) -> None:
    """Convert the minibatch size, whether segments are sampled or a permutation is split."""
    old = draft.system.tag in _ALL_SEGMENTS
    usual = draft.system.defaults.get("minibatch_size")
    size = count_of(source.find("minibatch_size")) or usual or 0
    if not sizes.envs or not sizes.steps or not sizes.parts:
        return
    if "minibatch_size" in draft.without:
        return
    if not size and old and sizes.envs % sizes.parts:
        size = sizes.envs // sizes.parts
        draft.defaults.append(f"minibatch_size {size}")
    if not size:
        return
    unit, each = "env steps", sizes.steps
    if old:
        unit, each = "segments", 1
    segments = size // each
    if not 0 < segments <= sizes.envs:
        text = f"minibatch_size is {size} {unit}; JaxDEM allows {each} to {sizes.envs * each}"
        raise draft.fault(text, flags={"without": "minibatch_size"})
    if source.values("importance_sampling_alpha", 1.0) == [0]:
        drawn = f"{_counted_es(sizes.parts, 'minibatch')} of {segments * each} {unit}"
        rollout = f"the rollout of {sizes.envs * each} {unit}"
        _translate_passes(draft, source, sizes, segments, drawn=drawn, rollout=rollout)
        return
    source.put("minibatch_size", segments * sizes.steps)
    source.constants.setdefault("num_minibatches", sizes.parts)
    if old:
        draft.note(f"minibatch_size: {segments} segments of {sizes.steps} env steps")


def _translate_passes(
    draft: ConvertedStudy,
    source: ImportSource,
    sizes: _Sizes,
    segments: int,
    *,
    drawn: str,
    rollout: str,
) -> None:
    """Convert minibatches drawn without priorities to whole passes over the rollout."""
    text = f"{drawn} are"
    if sizes.parts == 1:
        text = f"{drawn} is"
    passes = segments * sizes.parts / sizes.envs
    if not passes.is_integer() or sizes.envs % segments:
        text += f" {passes:.3g} passes over {rollout}; hpo needs whole passes of equal minibatches"
        raise draft.fault(
            text,
            flags={
                "without": "minibatch_size",
                "num_minibatches": max(1, round(sizes.envs / segments)),
                "update_epochs": max(1, round(passes)),
            },
        )
    source.drop("minibatch_size")
    source.put("num_minibatches", sizes.envs // segments)
    source.constants["update_epochs"] = int(passes)
    draft.note(
        f"minibatch_size: {text} {_counted_es(int(passes), 'pass')} over {rollout}, with "
        f"{_counted_es(sizes.envs // segments, 'minibatch')} per pass. JaxDEM draws "
        "every minibatch independently"
    )


def _counted_es(count: int, noun: str) -> str:
    return f"{count} {noun}{'es' * (count != 1)}"


# ------------------------------------------------------------------------------ schedules


def after(draft: ConvertedStudy) -> None:
    """End the cosine schedule where JaxDEM does, and scale the rate for summed gradients."""
    parts = draft.fixed.get("num_minibatches", KNOBS["num_minibatches"].default)
    if isinstance(parts, int):
        parts *= draft.fixed.get("update_epochs", 1)
    else:
        parts = 1
    together = draft.fixed.get("accumulate_minibatches", 1)
    if draft.fixed.get("lr_schedule") == "cosine" and parts > 1:
        draft.fixed["lr_schedule_multiplier"] = 1.0 / parts
        draft.note(
            f"lr_schedule_multiplier: 1/{parts}, because JaxDEM's cosine ends "
            "after as many minibatches as there are updates; set 1 to anneal over the whole run"
        )
    rate = draft.fixed.get("learning_rate", KNOBS["learning_rate"].default)
    if together > 1 and "learning_rate" not in draft.space:
        draft.fixed["learning_rate"] = rounded(rate * together)
        draft.note(
            f"accumulate_n_gradients: JaxDEM adds the steps of {together} minibatches, but hpo "
            f"averages them, so learning_rate is multiplied by {together}"
        )
