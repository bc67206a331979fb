"""Packages of npm that tests of browsers and Node run."""

import os
import pathlib
import shutil
import subprocess

import pytest


def installed(variable, package, tmp_path_factory, below):
    """Returns the folder that an environment variable names, or one of a new npm package."""
    if variable in os.environ:
        return pathlib.Path(os.environ[variable])
    if not shutil.which("npm"):
        pytest.skip(f"install npm, or name a folder of node_modules/{below} in {variable}")
    folder = tmp_path_factory.mktemp("npm")
    # Scripts of its packages fetch libraries for GPUs.
    install = ["npm", "install", "--ignore-scripts", "--prefix", folder, package]
    subprocess.run(install, check=True)
    return folder / "node_modules" / below
