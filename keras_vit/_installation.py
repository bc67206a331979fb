"""The installation: this package, optional packages, and the classes registered with Keras.

The project `keras-vit` of the package index also installs a package `keras_vit`. In one folder the
file of a name that was installed last remains, and removing one project removes files of the other.
In two folders the first of `sys.path` is imported.

`keras.saving.load_model` finds the layers, the optimizer, the loss and the trainer of a file only
if they were registered before, and `import keras_vit` must be enough for that. If Keras is loaded,
their modules are imported at once.
Otherwise importing them here would load Keras and TensorFlow: 10 s instead of 0.1 s, for
`keras-vit --help`, `keras_vit.list_models()` and every configuration file too; so the hook imports
them right after Keras. Keras has no entry point for registrations that would do this without a
hook. Nothing of it stays once Keras is imported.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
import types
import warnings
from collections.abc import Sequence
from typing import Any

DISTRIBUTION = "keras-vit-applications"

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_PARENT = os.path.dirname(_PACKAGE)

# A checkout has these folders beside the package, an installation inside it.
IN_CHECKOUT = os.path.isfile(os.path.join(_PARENT, "training", "settings", "__init__.py"))


def folders_of_package() -> list[str]:
    """Returns the folders that hold this package's subpackages.

    In a checkout, `training/` and `export/` lie beside `keras_vit/`. An editable installation
    finds them there. Without one, as after a plain installation when Python is started in the
    checkout, they are found in the folder of the checkout.
    """
    return [_PACKAGE, _PARENT] if IN_CHECKOUT else [_PACKAGE]


def other_projects(folders: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the installations of the project `keras-vit`: (its name with version, its folder).

    Args:
        folders: Folders of packages with their metadata, such as `sys.path`.
    """
    found = []
    for folder in dict.fromkeys(os.path.abspath(folder) for folder in folders):
        try:
            names = os.listdir(folder)
        except OSError:  # An archive, or a folder that is not there.
            continue
        for name in sorted(names):
            project, suffix = os.path.splitext(name)
            if name.startswith("keras_vit-") and suffix in (".dist-info", ".egg-info"):
                version = project.removeprefix("keras_vit-").partition("-py")[0]
                found.append((f"keras-vit {version}", folder))
    return found


@functools.cache  # A warning is given once.
def check_installation(folders: tuple[str, ...] | None = None) -> None:
    """Warns if the project `keras-vit`, whose package is called keras_vit too, is installed.

    Args:
        folders: The folders with packages and their metadata; `sys.path` by default.

    Raises:
        ImportError: If that project has replaced `keras_vit/__init__.py`.
    """
    others = other_projects(folders or (_PARENT, *sys.path))
    if not others:
        return
    project, folder = others[0]
    is_replaced = not hasattr(sys.modules["keras_vit"], "when_imported")
    what = f"{project} in {folder} is another project whose package is also called keras_vit"
    if is_replaced or folder == _PARENT:
        message = (
            f"{what}, and it and {DISTRIBUTION} (Vision Transformers) have overwritten files of "
            f"each other: pip uninstall -y keras-vit {DISTRIBUTION}, then install {DISTRIBUTION} "
            "again"
        )
    else:
        message = (
            f"{what}; this one is {DISTRIBUTION} (Vision Transformers) in {_PARENT}, and which of "
            "them is imported depends on the order of sys.path. To remove the other: "
            "pip uninstall -y keras-vit"
        )
    if is_replaced:
        raise ImportError(message)
    # In one line: with the place of a file, its line of code would follow.
    warnings.warn_explicit(message, UserWarning, "keras_vit", 1)


def when_imported(names: tuple[str, ...], module: str) -> None:
    """Imports `module` after all modules of `names` have been; now, if they have been."""
    waiting = {name for name in names if name not in sys.modules}
    if waiting:
        sys.meta_path.insert(0, _After(waiting, module))
    else:
        importlib.import_module(module)


class _After:
    """A finder; without the base class in importlib.abc, whose import takes a tenth of the rest."""

    def __init__(self, waiting, module):
        self.waiting = waiting
        self.module = module

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in self.waiting:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            # Back in its place: TensorFlow only asks where Keras is, and loads it later.
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def execute_and_import(module):
                del loader.exec_module  # The loader's own method is there again.
                execute(module)
                self.waiting.discard(fullname)
                if not self.waiting and self in sys.meta_path:
                    sys.meta_path.remove(self)
                    importlib.import_module(self.module)

            loader.exec_module = execute_and_import
        return spec


def import_optional(module: str, purpose: str, extra: str) -> types.ModuleType:
    """Returns a module of an optional package.

    Args:
        module: The module's full name.
        purpose: The feature that needs it; the first words of the error.
        extra: The extra of this project that installs it, or "" for a package in none.

    Raises:
        ImportError: If it is not installed. The message has the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        command = install_command(extra) if extra else f"pip install {package}"
        raise ImportError(f"{purpose} needs the package {package}: {command} ({error})") from error


def install_command(extra: str) -> str:
    """Returns the command that installs an extra: from a clone, as long as no index has it."""
    return f'pip install -e ".[{extra}]", in a clone of this project'
