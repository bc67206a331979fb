"""What the readers of `readers.py` are, and the model, image and classifier of their good files."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import PIL.Image

import keras_vit
from keras_vit.classifier_folder import save_classifier
from keras_vit.preprocessing import Preprocessing

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
SIZE = (12, 8)
NAMES = ("red fox", "blå hval", "grey owl")


class Reader(NamedTuple):
    """A reader of files.

    Args:
        make: Writes the good files into a new folder.
        read: Reads a folder.
    """

    make: Callable[[pathlib.Path], object]
    read: Callable[[pathlib.Path], Any]


@functools.cache
def model():
    """A Vision Transformer with all that its size allows."""
    keras.utils.set_random_seed(0)
    config = keras_vit.ViTConfig(patch_size=4, width=8, depth=1, mlp_dim=16, num_heads=2)
    built = keras_vit.build(config, input_shape=(*SIZE, 3), classes=3)
    head = built.get_layer("predictions")
    head.kernel.assign(np.random.default_rng(0).normal(size=head.kernel.shape))
    return built


def image(number=0):
    pixels = np.random.default_rng(number).integers(256, size=(13, 10, 3), dtype="uint8")
    return PIL.Image.fromarray(pixels)


def classifier(folder):
    recipe = {"model": "ViT-Ti/16", "settings": {"steps": 3}, "data": {"data": "x"}}
    save_classifier(folder, model(), NAMES, Preprocessing(SIZE), recipe=recipe)
    (folder / "samples").mkdir()
    for number in range(4):
        image(number).save(folder / "samples" / f"{number}.png")
