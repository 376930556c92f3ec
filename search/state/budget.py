"""The remaining budget: trials, env steps, seconds, failures.

Env steps are a hard limit. Before every chunk, replicates are selected in order as far as the
remaining budget allows, and the others are cut. The cost of the confirm stage is reserved first.
Trials listed in `confirm.also` are not limited, because they are requested one by one.
"""

from __future__ import annotations

from math import inf

from ...errors import ConfigError, SearchError, counted
from ...store.rows import TrialState
from ...studies.chunk_sizes import budget_fault
from ...studies.spec import Study
from .loop_state import Phase
from .search_state import SearchState
from .usage import Usage

_FIRST_TRIALS = 20


def reserve(study: Study, phase: Phase, env_steps: int) -> int:
    """Return the env steps reserved for later phases.

    `env_steps` is the length of the longest full run in any bucket, on each environment. Once
    selection seeds run, the default gets the steps left over by the winner.
    """
    confirm = study.confirm
    if confirm is None or phase in (Phase.REPORT, Phase.ALSO, Phase.DONE):
        return 0
    each = env_steps * study.spread
    if phase is Phase.SEARCH:
        return study.confirming * each
    if len(study.objectives) > 1:
        return 0
    return confirm.report * each


def affordable_lanes(search_state: SearchState, run_env_steps: int, quantum: int) -> float:
    study, phase = search_state.study, search_state.state.phase
    left = env_steps_left(study, search_state.state.usage)
    if left == inf or phase is Phase.ALSO:
        return inf
    return max(0, left - reserve(study, phase, run_env_steps)) // (quantum * study.spread)


def env_steps_left(study: Study, usage: Usage) -> float:
    total = study.budget.env_steps
    if total is None:
        return inf
    return total - usage.bounded_env_steps


def trials_left(study: Study, proposed: int) -> float:
    if study.budget.trials is None:
        return inf
    return max(0, study.budget.trials - proposed)


def may_propose(search_state: SearchState) -> bool:
    state = search_state.state
    searches = state.phase is Phase.SEARCH and not state.exhausted
    return searches and trials_left(search_state.study, state.proposed) > 0


def seconds_left(search_state: SearchState, run_env_steps: int, run_chunks: int) -> float:
    """Return the remaining wall time, minus the reserve for confirm; may be infinite.

    The time for confirm is estimated from its env steps and the speed of chunks so far, excluding
    compile time. It is at least the time of full runs in sequence: on selection seeds, on test
    seeds, and on the remaining test seeds after an interim analysis. At most half of the wall time
    is reserved. `run_chunks` is the length of the longest full run.
    """
    wall, state = search_state.study.budget.wall_seconds, search_state.state
    phase, usage = state.phase, state.usage
    if wall is None or phase is Phase.ALSO:
        return inf
    kept_back, confirm = 0.0, search_state.study.confirm
    later = reserve(search_state.study, phase, run_env_steps)
    if confirm is not None and later and usage.env_steps:
        rounds = bool(confirm.report) + (confirm.interim is not None)
        rounds += phase is Phase.SEARCH and bool(confirm.top_k and confirm.choose)
        one_by_one = rounds * run_chunks * usage.chunk_seconds / usage.chunks
        kept_back = max(later * usage.chunk_seconds / usage.env_steps, one_by_one)
    return wall - min(kept_back, wall / 2) - usage.run_seconds


def check_budget_covers_a_trial(study: Study, run_env_steps: int) -> None:
    """Raise ConfigError if the budget does not cover the confirm stage and one trial."""
    if fault := budget_fault(study, run_env_steps * study.spread, study.seeds.first):
        raise ConfigError(f"budget.env_steps {fault}")


def check_health(search_state: SearchState) -> None:
    """Raise SearchError after `max_failures` errors, or if all of the first 20 trials diverged."""
    failures, most = search_state.state.usage.failures, search_state.study.budget.max_failures
    if failures > 0 and failures >= most:
        failed = (trial for trial in search_state.trials.values() if trial.error)  # or diverged
        last = max(failed, key=lambda trial: (trial.state is TrialState.FAILED, trial.number))
        raise SearchError(
            f"the study had {counted(failures, 'error')} (budget.max_failures: {most}); the last "
            f"was in trial {last.number}: {last.error}"
        )
    first = [search_state.trials.get(number) for number in range(_FIRST_TRIALS)]
    if all(trial is not None and trial.state is TrialState.DIVERGED for trial in first):
        raise SearchError(
            f"all of the first {_FIRST_TRIALS} trials diverged, including the default "
            "configuration; narrow learning_rate, or inspect trial 0",
            trial=0,
        )
