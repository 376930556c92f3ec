"""Copies the checkout's tables into the package when it is built."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

RESULTS = Path(__file__).resolve().parents[2] / "results"
FOLDERS = ("held_out", "atlas", "portfolio")


class BuildWithTables(build_py):
    def run(self):
        super().run()
        data = Path(self.build_lib) / "hpo_tables" / "data"
        for folder in FOLDERS:
            for path in sorted((RESULTS / folder).glob("*/*.parquet")):
                target = data / folder / path.parent.name / path.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)


setup(cmdclass={"build_py": BuildWithTables})
