"""The place of this package: in a checkout or installed, whole, in part or mixed with others.

It is built as two distributions without a common file, see setup.py: the runtime of exports, and
all else, which requires the former. An installation from source holds everything.

The project `keras-vit` of the package index also installs a package `keras_vit`. If both have a
file of the same name, the one that was installed last remains, and removing one project removes
files of the other.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings

APPLICATIONS, RUNTIME = "keras-vit-applications", "keras-vit-runtime"

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_PARENT = os.path.dirname(_PACKAGE)

# A checkout has these folders beside the package, an installation inside it.
IN_CHECKOUT = os.path.isfile(os.path.join(_PARENT, "training", "settings", "__init__.py"))

# Whether what needs TensorFlow is not installed; the layers are of it.
IS_RUNTIME_ALONE = not os.path.isdir(os.path.join(_PACKAGE, "layers"))

DISTRIBUTION = RUNTIME if IS_RUNTIME_ALONE else APPLICATIONS  # Whose extras can be installed.


def folders_of_package() -> list[str]:
    """Returns the folders that hold this package's subpackages.

    In a checkout, `training/` and `export/` lie beside `keras_vit/`. An editable installation
    finds them there. Without one, as after a plain installation when Python is started in the
    checkout, they are found in the folder of the checkout.
    """
    return [_PACKAGE, _PARENT] if IN_CHECKOUT else [_PACKAGE]


@functools.cache  # A warning is given once.
def check_installation(folder: str = _PARENT) -> None:
    """Warns if the project `keras-vit`, or a part that does not fit, is in the same folder.

    Args:
        folder: The folder with the packages and their metadata.

    Raises:
        ImportError: If that project has replaced `keras_vit/__init__.py`.
    """
    installed = [name for name in os.listdir(folder) if name.endswith(".dist-info")]
    _check_parts(folder, installed)
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


def _check_parts(folder, installed):
    """Warns if the two distributions are of different versions, or one holds the other's files."""
    parts = [
        name
        for part in (APPLICATIONS, RUNTIME)
        for name in installed
        if name.startswith(f"{part.replace('-', '_')}-")
    ]
    if len(parts) != 2:
        return
    applications, runtime = (name.removesuffix(".dist-info").split("-")[-1] for name in parts)
    with open(os.path.join(folder, parts[0], "METADATA"), encoding="utf-8") as file:
        fits = any(line.strip() == f"Requires-Dist: {RUNTIME}=={runtime}" for line in file)
    if not fits:
        warnings.warn(
            f"{APPLICATIONS} {applications} and {RUNTIME} {runtime} are installed together, but "
            "the former does not require the latter: it is of another version, or holds the same "
            f"files as an installation from source. Remove both, pip uninstall -y {APPLICATIONS} "
            f"{RUNTIME}, and install {APPLICATIONS} again",
            stacklevel=3,
        )


def missing_part(error: ImportError) -> str | None:
    """Returns the line about an import that fails as the runtime is installed alone; else None."""
    package = (error.name or "").split(".")[0]
    if not IS_RUNTIME_ALONE or package not in ("tensorflow", "keras", "keras_vit"):
        return None
    return (
        f"This needs TensorFlow and Keras, and so the distribution {APPLICATIONS}. Installed is "
        f"{RUNTIME}, which runs ONNX, TFLite and OpenVINO exports on photos ({error})"
    )
