"""ObjectNet: images, and the ImageNet classes of its classes.

Only classes that have ImageNet classes are used, out of 313. A prediction is correct if it
is one of them; the classifier chooses among all 1000.
"""

from __future__ import annotations

import os
import pathlib

import numpy as np
import tensorflow as tf

from keras_vit.images.decoding import apply_preprocessing, decode_image
from keras_vit.preprocessing import IMAGE_SUFFIXES, Preprocessing
from keras_vit.training.data.examples import without_autotune
from keras_vit.training.data.labels import multi_hot
from keras_vit.utils.json_files import read_json

NUM_CLASSES = 1000
BORDER = 2  # Pixels of red around every image, which mark it as a test image; cut off.

FOLDERS = "folder_to_objectnet_label.json"
CLASSES = "objectnet_to_imagenet_1k.json"
LINES = "pytorch_to_imagenet_2012_id.json"
LABELS = "imagenet_to_label_2012_v2"


def read_mapping(folder: str | os.PathLike) -> dict[str, tuple[int, ...]]:
    """Returns the ImageNet class indices of each of ObjectNet's image folders.

    Args:
        folder: The folder "mappings" of the unpacked data set.

    Raises:
        ValueError: If a file is missing or damaged.
    """
    folder = pathlib.Path(folder)
    missing = [name for name in (FOLDERS, CLASSES, LINES, LABELS) if not (folder / name).is_file()]
    if missing:
        raise ValueError(
            "The ImageNet classes of ObjectNet are in its own files: "
            f"objectnet-1.0/mappings of objectnet-1.0.zip from https://objectnet.dev. "
            f"Missing in {folder}: {', '.join(missing)}"
        )
    try:
        folders, classes, lines = (read_json(folder / name) for name in (FOLDERS, CLASSES, LINES))
        labels = (folder / LABELS).read_text(encoding="utf-8").splitlines()
        line_of = {label.strip(): line for line, label in enumerate(labels)}
        index_of = {int(line): int(index) for index, line in lines.items()}
        return {
            name: tuple(
                sorted(index_of[line_of[label.strip()]] for label in classes[title].split("; "))
            )
            for name, title in folders.items()
            if title in classes
        }
    except (ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"ObjectNet's mappings in {folder} do not fit: {error!r}") from error


def open_objectnet(
    folder: str | os.PathLike, preprocessing: Preprocessing, batch_size: int
) -> tuple[tf.data.Dataset, np.ndarray, int]:
    """Returns ObjectNet's images that have an ImageNet class.

    Args:
        folder: objectnet-1.0, with the folders images and mappings.
        preprocessing: How an image becomes the model's input.
        batch_size: Images in a batch.

    Returns:
        The images in order, `(B, h, w, 3)` in tuples of one; their correct classes, bool
        `(N, 1000)`; and the number of images whose class is not in ImageNet.

    Raises:
        ValueError: If the folder or a file in it is missing or damaged.
    """
    folder = pathlib.Path(folder)
    mapping = read_mapping(folder / "mappings")
    found = [path for path in folder.glob("images/*/*") if path.suffix.lower() in IMAGE_SUFFIXES]
    paths = sorted(path for path in found if path.parent.name in mapping)
    if not paths:
        raise ValueError(
            f"ObjectNet's images must be in {folder / 'images'}, a folder for each class. "
            "Received: none"
        )

    def read(path):
        image = decode_image(tf.io.read_file(path))
        image = image[BORDER:-BORDER, BORDER:-BORDER]
        return (apply_preprocessing(image, preprocessing),)

    images = tf.data.Dataset.from_tensor_slices([str(path) for path in paths])
    images = images.map(read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    targets = multi_hot([mapping[path.parent.name] for path in paths], NUM_CLASSES) > 0
    batches = without_autotune(images.batch(batch_size).prefetch(1))
    return batches, targets, len(found) - len(paths)
