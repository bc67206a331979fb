"""Writing weights for other programs, compared with their model before a file is kept."""

from __future__ import annotations

import os
import pathlib
import warnings
from functools import partial

import keras
import numpy as np

from keras_vit import configs
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.file_descriptions import of_file
from keras_vit.checkpoints.formats import write_npz
from keras_vit.checkpoints.load import load_arrays
from keras_vit.checkpoints.save import note_of, official_layout, stored_arrays
from keras_vit.description import Description, check_one_output
from keras_vit.models.build import build
from keras_vit.models.graph import check_described
from keras_vit.models.rebuild import float32_model, in_float32, without_unknown
from keras_vit.utils.fields import required
from keras_vit.utils.files import atomic_write


def save_checkpoint(
    model: keras.Model, path: str | os.PathLike, description: Description | None = None
) -> None:
    """Writes the weights to an `.npz` in the official layout, atomically.

    Names and shapes are as in the published files, BiT's for a BiT ResNet, so that the
    official code, timm and big_vision read it; for variants without published weights there are
    no names: `save_weights` of Keras holds them. Values keep their bits. What the layout has no
    array for, such as the form of GELU, is in the comment of the archive, which other readers
    ignore and `load_checkpoint` and `build` read. The file is read again and compared with the
    model on an image before it is kept.

    Args:
        model: A model of `keras_vit.build`, with nothing added or changed.
        path: The file to write; must end in ".npz".
        description: What the comment holds; by default what the model holds, without the
            preprocessing.

    Raises:
        ValueError: If the layout has no name for a variable or no model with the same forward
            pass, the model computes something else than its description says, or `path` has
            another suffix.
        OSError: If the file cannot be written.
    """
    path = pathlib.Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"The path of a checkpoint must end in .npz. Received: {path}")
    check_one_output(model)
    arrays = stored_arrays(model, official_layout(model))
    check_described(model, "The official layout holds unchanged models of keras_vit.build")
    with atomic_write(path) as partial:
        write_npz(partial, arrays, description or note_of(model))
        check_written(model, partial)


def check_written(model: keras.Model, path: str | os.PathLike) -> None:
    """Raises ValueError if weights that were written compute something else than their model.

    The file or folder is read as by any reader. Both models get one image, and are compared at
    the input of the head too, because a new head is zero for all inputs.

    Args:
        model: The model that was written.
        path: The file or folder.
    """
    model = float32_model(without_unknown(model))
    shape = Description.of_model(model).counted_shape
    image = np.random.default_rng(0).uniform(-1, 1, (1, *shape)).astype("float32")
    checkpoint = open_checkpoint(path)
    expected = _values(_at_head(model) or [model.output], model, image)
    with in_float32():
        differences = [
            _largest_difference(expected, _values(outputs, written, image))
            for written, outputs in _read_again(checkpoint, of_file(checkpoint), model, shape)
        ]
    if not min(differences) <= _TOLERANCE:
        raise ValueError(
            "A file must compute what its model does; keras_vit.save_classifier and save_weights "
            f"of Keras keep all models. Received: {model.name}, whose outputs differ by "
            f"{min(differences):.2g} of the largest from the outputs of the file"
        )


# A share of the largest value: rounding in float32 through many layers.
_TOLERANCE = 1e-4


def _read_again(checkpoint, description, model, shape):
    """Yields models with the weights, with the outputs to compare: one with a head, else several.

    A file does not show how a model without a head pools its tokens.
    """
    config = required(description.config, "config")
    poolings = config.poolings[1:] if len(model.output.shape) == 2 else [None]
    makers = [partial(build, config, include_top=False, pooling=pooling) for pooling in poolings]
    if classes := description.classes:
        activation = getattr(model.layers[-1], "activation", "softmax")
        makers = [partial(build, config, classes=classes, classifier_activation=activation)]
    for make in makers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # A head of zeros, which the model has as well.
            written = make(input_shape=shape)
            load_arrays(checkpoint, description, written, "fitting")
        outputs = _at_head(written) or [written.output]
        if len(model.output.shape) == 3:  # The tokens that the map is made of.
            outputs = [written.layers[-1].input[0]]
        yield written, outputs


def _at_head(model):
    """The input of a model's head and its output; None without a head."""
    head = configs.classifier_layer({layer.name: layer for layer in model.layers})
    return None if head is None else [head.input, model.output]


def _values(outputs, model, image):
    values = keras.Model(model.input, outputs)(image, training=False)
    return [keras.ops.convert_to_numpy(value) for value in values]


def _largest_difference(expected, values):
    if [value.shape for value in expected] != [value.shape for value in values]:
        return float("inf")
    return max(
        np.max(np.abs(one - other)) / max(np.max(np.abs(one)), 1e-6)
        for one, other in zip(expected, values, strict=True)
    )
