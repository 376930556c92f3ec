"""Empties `build/lib` before each build, so that deleted modules do not come back in a wheel."""

import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class FreshBuild(build_py):
    """`build_py` that starts from an empty folder."""

    def run(self) -> None:
        """Empty the folder, then build."""
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": FreshBuild})
