"""Files of this package: weights by the names of layers, and the folder around them."""

from __future__ import annotations

import dataclasses
import pathlib

from keras_vit.checkpoints.code_bases.files_beside import found, other_count
from keras_vit.checkpoints.code_bases.layouts import Layout
from keras_vit.configs.model_table import LEVERAGE
from keras_vit.description import Description
from keras_vit.description.description_texts import description_of_texts, read_texts
from keras_vit.utils.files import CLASSES, DESCRIPTION


def read_folder(folder: pathlib.Path, classes: int | None) -> Description:
    """Returns the preprocessing and class names in the folder of a model of this package.

    Args:
        folder: The folder of a classifier, or of a model that was pre-trained without classes.
        classes: Classes of the head, or None without a head.

    Raises:
        ValueError: If a file of the folder is wrong.
    """
    texts = read_texts(folder)
    if DESCRIPTION not in texts:
        return found(f"no {DESCRIPTION}")
    notes: tuple[str, ...] = ()
    described = description_of_texts(texts, folder)
    count = len(described.labels.names or ())
    if count != (classes or 0):  # Files of another model.
        described = Description(preprocessing=described.preprocessing)
        notes = (other_count(CLASSES, count, classes),) if count and classes else ()
    origins = {**found(DESCRIPTION).origins, **described.origins}
    return dataclasses.replace(described, origins=origins, notes=(*described.notes, *notes))


# `save_weights` of our models; weights of KerasHub's other backbones look like it.
KERAS = Layout(
    "Keras",
    numbered=True,
    left_out=((rf"^{LEVERAGE}/", 'the class "unknown"'),),
    images=lambda checkpoint, image_size, classes: read_folder(checkpoint.folder, classes),
)
