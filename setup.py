"""The distributions of this tree: which modules, requirements and commands each of them has.

    pip install .                                           # All of it, also with --editable.
    KERAS_VIT_DISTRIBUTION=runtime pip wheel --no-deps .         # What runs exports.
    KERAS_VIT_DISTRIBUTION=applications pip wheel --no-deps .    # All else; it requires the former.

`make wheel` builds the last two. They have no file in common. An installation from source cannot be
two distributions, so it is one that holds everything.
"""

import configparser
import os
import pathlib

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).parent
RUNTIME = "keras-vit-runtime"
LAYERS = "keras_vit.layers"  # Keras's part of the package.


def main():
    """Builds the distribution that the environment names; everything without a name."""
    chosen = os.environ.get("KERAS_VIT_DISTRIBUTION", "")
    parts = {"": dict, "runtime": runtime, "applications": applications}
    if chosen not in parts:
        raise SystemExit(
            f"KERAS_VIT_DISTRIBUTION must be runtime or applications. Received: {chosen}"
        )
    setup(**parts[chosen]())


def runtime():
    """Returns the arguments of the distribution of `runtime_modules.txt`; others: setup.cfg."""
    settings = read_settings()
    known = [line for part in all_requirements(settings) for line in part]
    own = settings["keras-vit-runtime"]
    return {
        "name": RUNTIME,
        "description": own["description"],
        "long_description": (ROOT / "docs" / "runtime.md").read_text(encoding="utf-8"),
        "packages": packages_with(settings, runtime_modules()),
        "install_requires": [pick(known, name) for name in own["install_requires"].split()],
        "extras_require": {
            extra: lines_of(settings["options.extras_require"][extra])
            for extra in own["extras"].split()
        },
        "cmdclass": {"build_py": build_of(lambda module: module in runtime_modules())},
    }


def applications():
    """Returns the arguments of the distribution with all modules that the runtime lacks."""
    settings = read_settings()
    version: dict = {}
    exec((ROOT / "keras_vit" / "_version.py").read_text(encoding="utf-8"), version)
    requirements = lines_of(settings["options"]["install_requires"])
    return {
        "install_requires": [f"{RUNTIME}=={version['__version__']}", *requirements],
        "entry_points": {"console_scripts": []},  # The runtime's.
        "cmdclass": {"build_py": build_of(lambda module: module not in runtime_modules())},
    }


def build_of(is_wanted):
    """Returns the command that copies the modules for which a function returns true."""

    class BuildPart(build_py):
        def find_package_modules(self, package, package_dir):
            found = super().find_package_modules(package, package_dir)
            return [row for row in found if is_wanted(full_name(package, row[1]))]

        def find_data_files(self, package, src_dir):
            """Data go with the `__init__` of their package, but packaged Keras models do not."""
            files = super().find_data_files(package, src_dir)
            models = [file for file in files if "/weights/" in pathlib.Path(file).as_posix()]
            others = [file for file in files if file not in models]
            return (models if is_wanted(LAYERS) else []) + (others if is_wanted(package) else [])

    return BuildPart


def full_name(package, module):
    """Returns the name of a module; a package has its own."""
    return package if module == "__init__" else f"{package}.{module}"


def runtime_modules():
    """Returns the modules of the runtime; tests/helpers/runtime_modules.py writes their list."""
    return frozenset((ROOT / "runtime_modules.txt").read_text(encoding="utf-8").split())


def packages_with(settings, modules):
    """Returns the packages that are among modules."""
    return [name for name in lines_of(settings["options"]["packages"]) if name in modules]


def read_settings():
    """Returns setup.cfg."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    return settings


def lines_of(text):
    """Returns the lines of a value without empty ones."""
    return [line for line in text.split("\n") if line]


def all_requirements(settings):
    """Yields the requirements of the whole distribution and of each extra."""
    yield lines_of(settings["options"]["install_requires"])
    for text in settings["options.extras_require"].values():
        yield lines_of(text)


def pick(requirements, name):
    """Returns the requirement of a package, with its lowest version."""
    return next(line for line in requirements if line.startswith((f"{name}>", f"{name}=")))


main()
