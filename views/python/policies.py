"""`hpo.load_policy`: a policy folder, and on request the code saved with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...studies.user_code import import_user_code

if TYPE_CHECKING:
    from ...core.saved_policy import SavedPolicy


def load_policy(folder: str | Path, *, imports: bool = False) -> SavedPolicy:
    """Read a policy that a study kept or `hpo best --export` wrote.

    Args:
        folder: of the policy.
        imports: first run the saved code that registers its environment, network or the like;
            only for policies that you trust.

    Raises:
        StoreError: it is not a policy folder, or damaged.
        ConfigError: it was made with something unknown here; names the files that bring it.
    """
    from ...core.device_request import ask_for_devices
    from ...core.policy_document import NAME, read_document
    from ...core.saved_policy import IMPORTS
    from ...core.saved_policy import load_policy as load

    path = Path(folder) / NAME
    if imports and path.is_file():
        named = read_document(path).imports
        ask_for_devices()  # an array that a module makes when it is imported starts jax
        import_user_code(named, Path(folder) / IMPORTS)
    return load(folder)
