"""The place of this package: in a checkout or installed, alone or mixed with another project.

The project `keras-vit` of the package index also installs a package `keras_vit`. If both have a
file of the same name, the one that was installed last remains, and removing one project removes
files of the other.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings

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


@functools.cache  # A warning is given once.
def check_installation(folder: str = _PARENT) -> None:
    """Warns if the project `keras-vit` is in the same folder.

    Args:
        folder: The folder with the packages and their metadata.

    Raises:
        ImportError: If that project has replaced `keras_vit/__init__.py`.
    """
    installed = [name for name in os.listdir(folder) if name.endswith(".dist-info")]
    others = [name for name in installed if name.startswith("keras_vit-")]
    if not others:
        return
    message = (
        f"Another project, {others[0].removesuffix('.dist-info').replace('_', '-')}, is "
        f"installed in the same folder keras_vit as {DISTRIBUTION}, and each overwrites files of "
        f"the other. Remove both, pip uninstall -y keras-vit {DISTRIBUTION}, and install "
        f"{DISTRIBUTION} again"
    )
    if not hasattr(sys.modules["keras_vit"], "_registration"):
        raise ImportError(message)
    warnings.warn(message, stacklevel=2)
