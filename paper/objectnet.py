"""Accuracy on ObjectNet, the paper's Appendix D.8.

    python paper/objectnet.py ViT-B/16 --weights imagenet --data objectnet-1.0

Download objectnet-1.0.zip from https://objectnet.dev and unpack it. Of its 313 classes those count
that have ImageNet classes; an image is right if the most probable of all 1000 classes is one of its
classes. The red border, which marks a test image, is cut off.
"""

from __future__ import annotations

import argparse
import os
import pathlib
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from keras_vit.images.decoding import apply_preprocessing, decode_image
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data.examples import multi_hot, without_autotune
from keras_vit.training.evaluation.imagenet import NUM_CLASSES, ImageNetAccuracy, count_all
from keras_vit.training.evaluation.predictions import build_evaluated
from keras_vit.utils.json_files import read_json

BORDER = 2  # Pixels of red around every image, which mark it as a test image; cut off.

FOLDERS = "folder_to_objectnet_label.json"
CLASSES = "objectnet_to_imagenet_1k.json"
LINES = "pytorch_to_imagenet_2012_id.json"
LABELS = "imagenet_to_label_2012_v2"


def main(arguments: Sequence[str] | None = None) -> None:
    """Evaluates a model and prints its accuracy."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="a classifier's folder, or a model's name")
    parser.add_argument("--weights", help="for a name: its weights")
    parser.add_argument("--data", required=True, help="the folder objectnet-1.0, unpacked")
    parser.add_argument("--batch-size", type=int, default=32)
    given = parser.parse_args(arguments)
    model = build_evaluated(given.model, weights=given.weights, classes=NUM_CLASSES)
    print(evaluate(model.model, given.data, model.preprocessing, given.batch_size, progress=True))


def evaluate(
    model: keras.Model,
    folder: str,
    preprocessing: Preprocessing,
    batch_size: int = 32,
    *,
    progress: bool = False,
) -> ImageNetAccuracy:
    """Evaluates a classifier of the 1000 ImageNet classes on ObjectNet.

    Args:
        model: From images to scores `(B, 1000)`.
        folder: objectnet-1.0, with the folders images and mappings.
        preprocessing: How an image becomes the model's input.
        batch_size: Images in a batch.
        progress: Whether to show progress.
    """
    batches, targets, left_out = open_objectnet(folder, preprocessing, batch_size)
    in_top_1, in_top_5 = count_all(model, batches, targets, progress=progress)
    return ImageNetAccuracy("ObjectNet", len(targets), left_out, in_top_1, in_top_5)


def read_mapping(folder: str | os.PathLike) -> dict[str, tuple[int, ...]]:
    """Returns the ImageNet class indices of each of ObjectNet's image folders.

    Args:
        folder: The folder "mappings" of the unpacked data set.

    Raises:
        ValueError: If a file is missing or damaged.
    """
    folder = pathlib.Path(folder)
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
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(
            "The ImageNet classes of ObjectNet are in its own files: objectnet-1.0/mappings of "
            f"objectnet-1.0.zip from https://objectnet.dev. {type(error).__name__}: {error}"
        ) from error


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
    suffixes = (".png", ".jpg", ".jpeg")
    files = [path for path in folder.glob("images/*/*") if path.suffix.lower() in suffixes]
    paths = sorted(path for path in files if path.parent.name in mapping)
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
    return batches, targets, len(files) - len(paths)


if __name__ == "__main__":
    main()
