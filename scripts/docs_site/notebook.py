"""Execute the tutorial notebook from top to bottom in an empty folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

SECONDS = 600


def execute(path: Path, keep: bool = False) -> None:
    """Run all cells; an error in a cell is raised, with its traceback.

    Args:
        path: path of the notebook.
        keep: whether to write the outputs back, except those that vary between runs.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="hpo-notebook-") as folder:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        ).execute()
    if keep:
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
            if "outputs" in cell:
                cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
        nbformat.write(notebook, path)
