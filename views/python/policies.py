"""`hpo.load_policy` and `hpo.load_training`: the kept results of a study's best runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...studies.user_code import import_user_code

if TYPE_CHECKING:
    from ...core.saved_policy import SavedPolicy
    from ...core.training import Training


def load_policy(folder: str | Path, *, imports: bool = False) -> SavedPolicy:
    """Read a policy that a study kept or that `hpo best --export` wrote.

    Args:
        folder: folder of the policy.
        imports: whether to run the saved code first, which registers its environment, network and
            other parts; only for policies that you trust.

    Raises:
        StoreError: it is not a policy folder, or is damaged.
        ConfigError: the policy has an unknown part; the error names the files that define it.
    """
    from ...core.device_request import ask_for_devices
    from ...core.policy_document import IMPORTS, NAME, read_imports
    from ...core.saved_policy import load_policy as load

    path = Path(folder) / NAME
    if imports and path.is_file():
        ask_for_devices()  # an array that a module creates on import starts jax
        import_user_code(read_imports(path), Path(folder) / IMPORTS)
    return load(folder)


def load_training(folder: str | Path, cls: type[Training]) -> tuple[Training, Any, Any]:
    """Read a custom training run that a study kept or that `hpo best --export` wrote.

    Args:
        folder: folder of the run.
        cls: its class, with the same declarations as in training.

    Returns:
        training, state, h: for `training.evaluate(state, h, key)`, or to continue training.

    Raises:
        StoreError: it is not such a folder, is damaged, or is of a different class.
        ConfigError: the class does not declare its hyperparameters.
    """
    from ...core.training_program import SavedTraining

    saved = SavedTraining.read(Path(folder), cls)
    state = saved.lane.state(saved.leaves, saved.hypers)
    return saved.lane.training, state, saved.lane.hypers(saved.hypers)
