"""A study's own code, run where jax may start with it: the number of devices is settled before."""

from __future__ import annotations

from ..studies.spec import Study
from ..studies.user_code import import_user_code

__all__ = ["run_own_code"]


def run_own_code(study: Study, cores: int | None = None) -> None:
    """Run a study's `imports`; a module that starts jax finds as many devices as the study needs.

    An array made at import, as gymnax and many a module of one's own has, starts jax.

    Args:
        study: whose `imports` are run.
        cores: of this machine that this process may use; None: all.

    Raises:
        ConfigError: `file:line: what went wrong`.
    """
    if study.imports:
        from ..machine.devices import ask_for_devices

        ask_for_devices(study.population.device, study.population.deterministic, cores)
    import_user_code(study.imports, study.source)
