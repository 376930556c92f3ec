"""Libraries that are imported on first use, because `hpo top` and similar commands need none."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as csv
    import pyarrow.parquet as pq
    from scipy import special  # pyright: ignore[reportMissingTypeStubs]
else:

    class _OnUse(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if "_loaded" not in self.__dict__:
                self._loaded = import_module(self.__name__)
            return getattr(self._loaded, name)

    np, special, duckdb = map(_OnUse, ("numpy", "scipy.special", "duckdb"))
    pa, pc, csv, pq = map(_OnUse, ("pyarrow", "pyarrow.compute", "pyarrow.csv", "pyarrow.parquet"))

__all__ = ["csv", "duckdb", "np", "pa", "pc", "pq", "special"]
