"""Settings of all tests: strict numbers, two host devices, a compilation cache, `hpo` in reach.

No test may depend on how fast or how busy the machine is.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import importlib.util
import os
import re
import sys
import tempfile
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = Path(__file__).resolve().parent
_OPTIMISATIONS = "jax_disable_most_optimizations"
_QUICK_OPTIONS: dict[str, bool | int] = {
    "xla_cpu_use_fusion_emitters": False,  # the older ones compile in half the time
    "xla_cpu_parallel_codegen_split_count": 1,  # other tests use the other core
}
_LINKS = tempfile.TemporaryDirectory(prefix="hpo-link-")


def _make_importable() -> None:
    """Put `helpers`, and if need be the checkout as `hpo`, on the path, for children as well."""
    (Path(_LINKS.name) / "helpers").symlink_to(TESTS / "helpers", target_is_directory=True)
    if importlib.util.find_spec("hpo") is None:
        (Path(_LINKS.name) / "hpo").symlink_to(ROOT, target_is_directory=True)
    sys.path.insert(0, _LINKS.name)
    paths = [_LINKS.name, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def _settle_jax() -> None:
    """Set by environment variables, which children inherit and which start nothing."""
    cache = Path(tempfile.gettempdir()) / f"hpo-test-cache-{os.getuid()}"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")
    os.environ.setdefault("JAX_NUMPY_DTYPE_PROMOTION", "strict")
    os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("HPO_NO_TIME", "1")  # of all studies that tests check: no compile
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")


def _take_one_core() -> None:
    """Let linear algebra use one thread: other cores have tests of their own.

    In this process, where NumPy may be loaded by now, and in what is loaded or started later.
    """
    from threadpoolctl import threadpool_limits

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    threadpool_limits(1, user_api="blas")


def _check_shapes() -> None:
    """Check every jaxtyping annotation of the core at call time, by beartype.

    Functions without arrays are left as they are: pyright checks those.
    """
    import jaxtyping

    checked = jaxtyping.jaxtyped

    def jaxtyped(*, typechecker: Any) -> Any:
        decorate = checked(typechecker=typechecker)
        return lambda made: decorate(made) if _has_arrays(made) else made

    jaxtyping.jaxtyped = jaxtyped
    jaxtyping.install_import_hook("hpo.core", "beartype.beartype")


def _has_arrays(made: Any) -> bool:
    """Return whether an annotation of a function, descriptor or class is of arrays."""
    if isinstance(made, property):
        return any(_has_arrays(part) for part in (made.fget, made.fset, made.fdel) if part)
    function = getattr(made, "__func__", made)
    within = vars(sys.modules[function.__module__])
    bases = getattr(function, "__mro__", (function,))  # a class checks inherited fields, too
    said = [str(text) for one in bases for text in getattr(one, "__annotations__", {}).values()]
    named = [within.get(word) for word in re.findall(r"\w+", " ".join(said))]
    aliases = [str(one) for one in named if typing.get_origin(one) is not None]
    return any("Array" in text for text in (*said, *aliases))


def _have_patience() -> None:
    """Drop Hypothesis's limits in seconds, which compiles and busy machines exceed."""
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("patient")


def _collect_garbage_seldom() -> None:
    """Search for cycles a hundredth as often: traces and 6,000 tests are many objects."""
    gc.set_threshold(70_000, 10, 100)


def _leave_out_fsync() -> None:
    """Do not wait for the disk: no test cuts the power. Children wait as users' processes do."""
    os.fsync = lambda descriptor: None


_collect_garbage_seldom()
_leave_out_fsync()
_make_importable()
_settle_jax()
_take_one_core()
_have_patience()
_check_shapes()


class _NoJax:
    """Skips the test, or the test file, that imports jax."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "jax":
            pytest.skip("imports jax", allow_module_level=True)


def pytest_addoption(parser):
    parser.addoption("--no-jax", action="store_true", help="only quick tests that need no jax")


def pytest_configure(config):
    """Make the marker `slow` known."""
    if config.getoption("--no-jax"):
        sys.meta_path.insert(0, _NoJax())
    config.addinivalue_line(
        "markers",
        "slow: compiles, starts processes that import jax, or kills a study at many boundaries",
    )


def pytest_collection_modifyitems(config, items):
    """Leave out slow tests with `--no-jax`."""
    if config.getoption("--no-jax"):
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@functools.cache
def _quick_options() -> dict[str, bool | int]:
    """Return those of the options that this XLA has."""
    import jax

    found = dict[str, bool | int]()
    for name, value in _QUICK_OPTIONS.items():
        try:
            jax.jit(lambda: 0, compiler_options={name: value})()
        except jax.errors.JaxRuntimeError as problem:
            if "No such compile option" not in str(problem):
                raise
        else:
            found[name] = value
    return found


@contextlib.contextmanager
def _plain_code():
    """Leave out what LLVM does to make code fast; XLA's own passes stay. For children, too.

    XLA has read its flags by then, which it does once: the flags are for children. In this process
    they are options of each compile, so that tests of bits get the code of users.
    """
    import jax
    from jax._src import compiler

    options = compiler.get_compile_options

    def plain_options(*words, **named):
        found = options(*words, **named)
        found.env_option_overrides = [*found.env_option_overrides, *_quick_options().items()]
        return found

    optimised = jax.config.values[_OPTIMISATIONS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(_OPTIMISATIONS.upper(), "1")
        ours = [f"--{name}={value}".lower() for name, value in _quick_options().items()]
        flags = dict.fromkeys([*os.environ.get("XLA_FLAGS", "").split(), *ours])
        patch.setenv("XLA_FLAGS", " ".join(flags))
        patch.setattr(compiler, "get_compile_options", plain_options)
        jax.config.update(_OPTIMISATIONS, True)
        try:
            yield
        finally:
            jax.config.update(_OPTIMISATIONS, optimised)


@pytest.fixture(scope="module")
def quickly_compiled():
    """Compile the programs of a test file in half the time.

    For files that compare with slow references, try contracts, use commands, or look at lanes of
    one program. Bits of two programs are compared in code as users get it: without this.
    """
    with _plain_code():
        yield


@pytest.fixture
def quickly():
    """Compile the programs of one test in half the time; see `quickly_compiled`."""
    with _plain_code():
        yield


@pytest.fixture
def cannot_enter(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Let the disk refuse a folder as it refuses another user's, also to root."""

    def refuse(folder: Path) -> None:
        for name, inside in (
            ("stat", True),
            ("lstat", True),
            ("open", True),
            ("listdir", False),
            ("scandir", False),
        ):
            monkeypatch.setattr(os, name, _refusing(getattr(os, name), folder, inside))

    return refuse


def _refusing(call: Callable[..., Any], folder: Path, inside: bool) -> Callable[..., Any]:
    def refuse(path: Any = ".", *args: Any, **how: Any) -> Any:
        is_path = isinstance(path, str | os.PathLike)
        asked = Path(os.path.abspath(path)) if is_path else None
        if asked is not None and (folder in asked.parents or (asked == folder and not inside)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return call(path, *args, **how)

    return refuse
