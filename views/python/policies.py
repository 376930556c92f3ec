"""`hpo.load_policy` and `hpo.load_training`: the kept results of a study's best runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...studies.user_code import import_user_code

if TYPE_CHECKING:
    from ...core.saved_policy import SavedPolicy
    from ...core.training import Training


def load_policy(folder: str | Path, *, imports: bool = False) -> SavedPolicy:
    """Read a policy kept by a study or written by `hpo best --export`.

    Args:
        folder: of the policy.
        imports: first run the saved code that registers its environment, network or the like;
            only for policies that you trust.

    Raises:
        StoreError: it is not a policy folder, or damaged. ConfigError: it uses something unknown
        here; the error names the files that define it.
    """
    from ...core.device_request import ask_for_devices
    from ...core.policy_document import IMPORTS, NAME, read_imports
    from ...core.saved_policy import load_policy as load

    path = Path(folder) / NAME
    if imports and path.is_file():
        ask_for_devices()  # an array that a module makes when it is imported starts jax
        import_user_code(read_imports(path), Path(folder) / IMPORTS)
    return load(folder)


def load_training(folder: str | Path, cls: type[Training]) -> tuple[Training, Any, Any]:
    """Read a custom training's run kept by a study or written by `hpo best --export`.

    Args:
        folder: of the run.
        cls: its class, with the declarations that it was trained with.

    Returns:
        training, state, h: for `training.evaluate(state, h, key)`, or to train on.

    Raises:
        StoreError: it is not such a folder, or damaged, or of another class. ConfigError: the
        class does not declare its hyperparameters.
    """
    from ...core.training_program import SavedTraining

    saved = SavedTraining.read(Path(folder), cls)
    state = saved.lane.state(saved.leaves, saved.hypers)
    return saved.lane.training, state, saved.lane.hypers(saved.hypers)
