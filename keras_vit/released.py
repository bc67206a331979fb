"""Classifiers that come with the package: real weights that need no network."""

from __future__ import annotations

import dataclasses
import os
import pathlib

MODEL = "model.keras"  # In a classifier's folder.

_WEIGHTS = pathlib.Path(__file__).parent / "weights"


@dataclasses.dataclass(frozen=True)
class Released:
    """A classifier's folder inside the package.

    Args:
        model: Name of its model.
        classes: Classes of its head.
        folder: The folder.
    """

    model: str
    classes: int
    folder: pathlib.Path


# What `weights=` and the commands call them: the data that they were trained on.
RELEASED = {"cifar10": Released("ViT-Mini/4", 10, _WEIGHTS / "vit_mini4_cifar10")}


def classifier_folder(folder_or_name: str | os.PathLike) -> pathlib.Path:
    """Returns the folder of a released classifier's name; a folder passes through."""
    folder = pathlib.Path(folder_or_name)
    released = RELEASED.get(os.fspath(folder_or_name))
    return released.folder if released and not folder.exists() else folder
