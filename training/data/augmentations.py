"""Augmentations: from an encoded image to a training image."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import keras
import numpy as np
import tensorflow as tf

from keras_vit.images.decoding import (
    apply_preprocessing,
    decode_image,
    decode_region,
    read_header,
    scale,
    upright_size,
)
from keras_vit.images.pixels import FULL_DEPTH
from keras_vit.images.resizing import resize_small
from keras_vit.keras_private import BaseImagePreprocessingLayer, all_layers, use_seeds
from keras_vit.preprocessing import Preprocessing, ValueRange
from keras_vit.training.settings import FLIPS
from keras_vit.training.settings.declared import stored_layers
from keras_vit.utils.synonyms import nearest_names

from .randaugment import randaugment

_AREA = (0.05, 1.0)  # The crop's area as a share of the image's; as in the official code.
_ASPECT = (3 / 4, 4 / 3)  # The crop's width / height.
_SCALING = 0.15  # Largest change of a side in `jitter`.
_MOVING = 0.1  # Largest shift in `jitter`, as a share of a side.
_BORDER = 8  # Side / border in `padded_crop`: 4 of CIFAR's 32 pixels.
_LAYERS = 2  # RandAugment's operations per image.
_PIXELS = (0.0, 255.0)  # The value range that Keras's layers get.
_FOLD = 100  # Folded into a key for Keras's layers; flips and RandAugment fold in less.
# Keras's layers that mix the images of a batch and their labels.
MIXING = (keras.layers.CutMix, keras.layers.MixUp)


class View(NamedTuple):
    """What the model sees of an image.

    Args:
        image_size: Pixels (height, width).
        value_range: Values of pixels 0 and 255; each a number, or one for each channel.
        bit_depth: Bits of the values of a 16-bit image.
    """

    image_size: tuple[int, int]
    value_range: ValueRange
    bit_depth: int = FULL_DEPTH


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """What `training_batches` makes of an image.

    Args:
        image_size: Pixels (height, width).
        augmentation: One of `AUGMENTATIONS`.
        value_range: Values of pixels 0 and 255; each a number, or one for each channel.
        bit_depth: Bits of the values of a 16-bit image.
        flip: "never", "horizontal" or "both"; by default as the augmentation does.
        mixup: Parameter of mixup's beta distribution, 0 for none; by default the augmentation's.
        layers: For `make_layers`: Keras's image layers, applied to each image after crop and flip;
            then, like mixup and after it, those that mix the images of a batch.
        num_classes: K; needed for mixup only.

    Raises:
        ValueError: If the augmentation or the flip is unknown.
    """

    image_size: tuple[int, int]
    augmentation: str = "inception_crop"
    value_range: ValueRange = (-1.0, 1.0)
    bit_depth: int = FULL_DEPTH
    flip: str | None = None
    mixup: float | None = None
    layers: Sequence[str | dict | keras.layers.Layer] = ()
    num_classes: int | None = None

    def __post_init__(self):
        check_augmentation(self.augmentation)
        if self.flip not in (None, *FLIPS):
            raise ValueError(f"flip must be one of {tuple(FLIPS)} or None. Received: {self.flip!r}")


def augment(
    name: str,
    encoded: tf.Tensor,
    key: tf.Tensor,
    view: View,
    flip: str | None = None,
    layers: Sequence[keras.layers.Layer] = (),
) -> tf.Tensor:
    """Returns a training image: an encoded image decoded, augmented, flipped at random and scaled.

    Args:
        name: One of `AUGMENTATIONS`.
        encoded: An encoded image, a scalar string tensor.
        key: Seed of the random operations, `(2,)`.
        view: The image size and the value range.
        flip: One of `FLIPS`; None: "never" with "jitter" and "none", else "horizontal".
        layers: Layers of `make_layers`, which get the flipped image before it is scaled.

    Returns:
        float32 `(height, width, 3)`.
    """
    if layers:
        image = augment(name, encoded, key, view._replace(value_range=_PIXELS), flip)
        image = tf.ensure_shape(image, (*view.image_size, 3))
        return scale(apply_layers(layers, image, key), view.value_range)
    flip = flip or ("never" if name in ("jitter", "none") else "horizontal")
    if name in _OF_REGIONS:  # Flipped before resizing, while it is small and of bytes.
        image = random_flip(_random_region(encoded, key, view), key, flip)
        return AUGMENTATIONS[name](image, key, view)
    image = decode_image(encoded, bit_depth=view.bit_depth)
    return random_flip(AUGMENTATIONS[name](image, key, view), key, flip)


def inception_crop(region: tf.Tensor, key: tf.Tensor, view: View) -> tf.Tensor:
    """Resizes a rectangle of random area, shape and place.

    The crop is drawn by the same operation as in the official code, and resized as there:
    bilinear, without antialiasing. Only this rectangle of a JPEG is decoded.
    """
    return scale(_resize(region, view.image_size), view.value_range)


def augreg(region: tf.Tensor, key: tf.Tensor, view: View, *, magnitude: float) -> tf.Tensor:
    """Applies `inception_crop`, then RandAugment, as the settings of AugReg.

    The resized image is rounded towards zero to bytes first, as in big_vision.
    """
    image = tf.cast(_resize(region, view.image_size), tf.uint8)
    image = randaugment(image, key, _LAYERS, magnitude)
    return scale(image, view.value_range)


def jitter(image: tf.Tensor, key: tf.Tensor, view: View) -> tf.Tensor:
    """Scales and shifts the whole image a little; does not flip it by default.

    For digits, letters and other images whose class a flip or a small crop would change.
    Each side is scaled by up to 15% and the centre shifted by up to 10%; the uncovered border
    is black.
    """
    drawn = tf.random.stateless_uniform([4], key, -1.0, 1.0)
    shape = tf.cast(tf.shape(image)[:2], tf.float32)
    part = shape * (1 + _SCALING * drawn[:2])  # Pixels of the image that are shown.
    start = (shape - part) / 2 + shape * _MOVING * drawn[2:]
    factor = tf.constant(view.image_size, tf.float32) / part
    image = tf.raw_ops.ScaleAndTranslate(
        images=tf.cast(image, tf.float32)[tf.newaxis],
        size=view.image_size,
        scale=factor,
        translation=-start * factor,
        kernel_type="triangle",  # Bilinear, as everywhere.
        antialias=False,
    )[0]
    return scale(tf.ensure_shape(image, (*view.image_size, 3)), view.value_range)


def resize_small_random_crop(image: tf.Tensor, key: tf.Tensor, view: View) -> tf.Tensor:
    """Resizes the image to slightly more than the size, and crops it at random.

    big_vision's alternative to the inception crop for transfer, where the whole object
    should be visible.
    """
    image = resize_small(image, view.image_size)
    image = tf.image.stateless_random_crop(image, (*view.image_size, 3), key)
    return scale(image, view.value_range)


def padded_crop(image: tf.Tensor, key: tf.Tensor, view: View) -> tf.Tensor:
    """Pads the whole image with grey, and crops it at random.

    The usual augmentation of CIFAR: 32 pixels with a border of 4 on every side, cropped to 32.
    """
    rows, columns = (side // _BORDER for side in view.image_size)
    middle = np.mean(np.array(view.value_range, "float32"), axis=0)  # A number, or one by channel.
    image = whole(image, key, view) - middle
    image = tf.pad(image, [[rows, rows], [columns, columns], [0, 0]]) + middle
    return tf.image.stateless_random_crop(image, (*view.image_size, 3), key)


def whole(image: tf.Tensor, key: tf.Tensor, view: View) -> tf.Tensor:
    """Resizes the whole image, as the official evaluation does."""
    return apply_preprocessing(image, Preprocessing(view.image_size, "resize", view.value_range))


def _resize(region, size):
    """Returns a rectangle resized, bilinear without antialiasing, float32.

    TensorFlow's kernel gives equal pixels for bytes and floats, for floats in half the time. To
    copy a large rectangle as floats would take longer than that saves.
    """
    return tf.cond(
        tf.size(region) < 2**20,
        lambda: tf.image.resize(tf.cast(region, tf.float32), size),
        lambda: tf.image.resize(region, size),
    )


def _random_region(encoded, key, view):
    """Decodes a rectangle of random area, shape and place, uint8."""
    header = read_header(encoded)
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.concat([upright_size(header), [3]], axis=0),
        tf.zeros([0, 0, 4]),
        key,
        min_object_covered=0,
        aspect_ratio_range=_ASPECT,
        area_range=_AREA,
        use_image_if_no_bounding_boxes=True,
    )
    region = tf.concat([begin[:2], size[:2]], axis=0)
    return decode_region(encoded, header, region, view.bit_depth)


def random_flip(image: tf.Tensor, key: tf.Tensor, flip: str) -> tf.Tensor:
    """Reverses each side that `FLIPS` has for a name, with probability 1/2."""
    for side in FLIPS[flip]:
        # Another key, as operations with the same key draw the same numbers.
        key = tf.random.experimental.stateless_fold_in(key, 1)
        is_flipped = tf.random.stateless_uniform([], key) < 0.5
        reverse = functools.partial(tf.reverse, image, [side])
        image = tf.cond(is_flipped, reverse, functools.partial(tf.identity, image))
    return image


class KeySeeds(keras.random.SeedGenerator):
    """Seeds of the random operations of Keras's layers, which depend on a key alone.

    Keras's own class keeps a state, by which an image would depend on the ones before it.

    Args:
        key: The key of an image or a step, `(2,)`.
    """

    def __init__(self, key: tf.Tensor):
        self.key, self.drawn = tf.random.experimental.stateless_fold_in(key, _FOLD), 0

    def next(self, ordered: bool = True) -> tf.Tensor:
        """Returns another seed at each call."""
        self.drawn += 1
        return tf.random.experimental.stateless_fold_in(self.key, self.drawn)


Inputs = TypeVar("Inputs")


def apply_layers(layers: Sequence[keras.layers.Layer], inputs: Inputs, key: tf.Tensor) -> Inputs:
    """Applies Keras's layers, whose random operations depend on a key alone.

    Args:
        layers: Layers of `make_layers`.
        inputs: An image `(height, width, 3)`; for `MIXING` layers {"images": a batch, "labels":
            its class probabilities}.
        key: Seed of the random operations, `(2,)`.
    """
    seeds = KeySeeds(key)
    for layer in layers:
        use_seeds(layer, seeds)
        inputs = layer(inputs, training=True)
    return inputs


def make_layers(layers: Sequence[str | dict | keras.layers.Layer]) -> list[keras.layers.Layer]:
    """Makes Keras's image preprocessing layers, each a new one that computes in float32.

    Args:
        layers: Names of `keras.layers`, with or without arguments, as "RandomRotation(0.1)"; or
            configs of `keras.saving.serialize_keras_object`, or layer objects.

    Raises:
        ValueError: If a layer is unknown, or changes nothing, the size or the value range.
    """
    made = []
    for text in stored_layers(layers):
        try:
            config = isinstance(text, dict)
            layer = keras.saving.deserialize_keras_object(text) if config else _called(text)
            _check_layer(layer)
        except (SyntaxError, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(
                "Layers (--layers, layers=) must be image layers of Keras, as RandomErasing or "
                f"RandomRotation(0.1). Received: {text!s:.80}: {reason}"
            ) from error
        for part in all_layers(layer):
            part.dtype_policy = "float32"
        made.append(layer)
    return made


def _called(text):
    """Returns the layer of a name with or without arguments, which are literals."""
    name = text.partition("(")[0]
    classes = {other: kind for other, kind in vars(keras.layers).items() if _is_image_layer(kind)}
    if name not in classes:
        raise ValueError(nearest_names(name, classes, cutoff=0.8))
    call: ast.expr = ast.parse(text, mode="eval").body
    values = [ast.literal_eval(value) for value in getattr(call, "args", ())]
    named = {word.arg: ast.literal_eval(word.value) for word in getattr(call, "keywords", ())}
    return classes[name](*values, **named)


def _is_image_layer(kind):
    return isinstance(kind, type) and issubclass(kind, BaseImagePreprocessingLayer)


def _check_layer(layer):
    if not _is_image_layer(type(layer)):
        raise ValueError("no image preprocessing layer")
    config, shape = layer.get_config(), (1, 31, 37, 3)  # Sides of no image.
    factors = [value for name, value in config.items() if name.endswith("factor")]
    if isinstance(layer, keras.layers.AugMix):
        raise ValueError("AugMix chooses its operations once for all images")
    if layer.compute_output_shape(shape) != shape:
        raise ValueError("it must keep the image's size")
    if tuple(config.get("value_range", _PIXELS)) != _PIXELS:
        raise ValueError("it must be for pixels of 0 to 255")
    if factors and not any(factors):
        raise ValueError("without a factor it changes nothing")


def mixup(
    images: tf.Tensor, labels: tf.Tensor, key: tf.Tensor, parameter: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Blends each example of a batch with the one before it.

    One share a is used for the whole batch, as in big_vision:

        a ~ Beta(p, p), then a = max(a, 1 - a)
        x'_i = a * x_i + (1 - a) * x_(i - 1), and the labels likewise

    Args:
        images: Float `(B, ...)`.
        labels: Class probabilities, float `(B, K)`.
        key: Seed of the random operations, `(2,)`.
        parameter: p, more than 0.

    Returns:
        Images and labels of the same shapes.
    """
    # g1 / (g1 + g2) of two gamma variables is a beta variable.
    first, second = tf.unstack(tf.random.stateless_gamma([2], key, parameter))
    share = first / (first + second)
    share = tf.where(tf.math.is_nan(share), 1.0, tf.maximum(share, 1 - share))

    def blended(values):
        return share * values + (1 - share) * tf.roll(values, 1, axis=0)

    return blended(images), blended(labels)


# AugReg's settings (arXiv 2106.10270): parameter of mixup, magnitude of RandAugment. AugReg's
# "none" is `inception_crop`.
AUGREG = {
    "light1": (0.0, 0),
    "light2": (0.2, 10),
    "medium1": (0.2, 15),
    "medium2": (0.5, 15),
    "strong1": (0.5, 20),
    "strong2": (0.8, 20),
}

# Augmentations with mixup, and its parameter.
MIXUP = {name: parameter for name, (parameter, _) in AUGREG.items() if parameter}


def mixes_batches(
    augmentation: str,
    mixup: float | None,
    layers: Sequence[str | dict | keras.layers.Layer] = (),
) -> bool:
    """Returns whether training images are mixed with others of their batch, and their labels.

    Args:
        augmentation: One of `AUGMENTATIONS`.
        mixup: See `Augmentation`.
        layers: See `Augmentation`.
    """
    mixing = any(isinstance(layer, MIXING) for layer in make_layers(layers))
    return mixing or bool(mixup_parameter(augmentation, mixup))


def mixup_parameter(augmentation: str, mixup: float | None = None) -> float:
    """Returns the parameter of mixup, 0 for none.

    Args:
        augmentation: One of `AUGMENTATIONS`.
        mixup: Overrides the augmentation's parameter; None keeps it.
    """
    return MIXUP.get(augmentation, 0.0) if mixup is None else mixup


# Functions of a decoded image, a random key and a view to an image in the value range.
AUGMENTATIONS: dict[str, Callable[..., tf.Tensor]] = {
    "inception_crop": inception_crop,
    "resize_small_random_crop": resize_small_random_crop,
    "padded_crop": padded_crop,
    "jitter": jitter,
    "flip": whole,
    "none": whole,
    **{name: functools.partial(augreg, magnitude=row[1]) for name, row in AUGREG.items()},
}
# Augmentations of a random rectangle; the others get the whole image.
_OF_REGIONS = {"inception_crop", *AUGREG}


def check_augmentation(name: str) -> None:
    """Raises ValueError unless the name is one of `AUGMENTATIONS`."""
    if name not in AUGMENTATIONS:
        raise ValueError(f"augmentation must be one of {tuple(AUGMENTATIONS)}. Received: {name!r}")
