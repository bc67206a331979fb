"""Checks of data before TensorFlow is imported and an image is read."""

from __future__ import annotations

import os
import pathlib

from keras_vit.images.listing import has_images

from .class_folders import check_folders
from .labelled_files import labelled_files, no_images
from .sources import check_several
from .spec import DataSpec
from .tables import Reading, read_label_table


def check_table(spec: DataSpec, *, min_classes: int) -> None:
    """Raises ValueError for data that cannot be read, without TensorFlow.

    That is a table, a folder whose folders do not say what they are, or a path to nothing.

    Args:
        spec: A `DataSpec` whose data are a text.
        min_classes: The classes that there must be; 0 where the other fields do not decide what
            columns and folders are.
    """
    kind = spec.kind
    is_folder = kind == "folder" and os.path.isdir(spec.data)
    if kind == "table" and min_classes:
        labelled_files(Reading(spec))
    elif is_folder and min_classes:
        reading = Reading(spec, min_classes=min_classes)
        check_several(check_folders(reading), reading)
    elif is_folder and not has_images(spec.data):
        raise no_images(spec.data)
    elif spec.has_paths and not os.path.isdir(spec.data):
        read_label_table(pathlib.Path(spec.data))
