"""Augmentations: from an encoded image to a training image."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_vit.images.decoding import (
    apply_preprocessing,
    decode_image,
    decode_region,
    scale,
    upright_size,
)
from keras_vit.images.headers import read_header
from keras_vit.images.resizing import resize_small
from keras_vit.preprocessing import Preprocessing, ValueRange
from keras_vit.training.settings import FLIPS

from .randaugment import randaugment

_AREA = (0.05, 1.0)  # The crop's area as a share of the image's; as in the official code.
_ASPECT = (3 / 4, 4 / 3)  # The crop's width / height.
_SCALING = 0.15  # Largest change of a side in `jitter`.
_MOVING = 0.1  # Largest shift in `jitter`, as a share of a side.
_BORDER = 8  # Side / border in `padded_crop`: 4 of CIFAR's 32 pixels.
_RESIZE = 512 / 480  # Resized side / crop side in `resize_random_crop`; BiT's HyperRule.


def inception_crop(
    encoded: tf.Tensor,
    key: tf.Tensor,
    image_size: tuple[int, int],
    value_range: ValueRange,
    flip: str = "horizontal",
) -> tf.Tensor:
    """Crops a rectangle of random area, shape and place, resizes it, and flips it at random.

    The crop is drawn by the same operation as in the official code, and resized as there:
    bilinear, without antialiasing. Only this rectangle of a JPEG is decoded.

    Args:
        encoded: An encoded image, a scalar string tensor.
        key: Seed of the random operations, `(2,)`.
        image_size: Pixels (height, width).
        value_range: Values of pixels 0 and 255.
        flip: One of `FLIPS`.

    Returns:
        float32 `(height, width, 3)`.
    """
    # Flipped before resizing, while it is small and of bytes.
    image = random_flip(_random_region(encoded, key), key, flip)
    return scale(tf.image.resize(image, image_size), value_range)


def jitter(
    encoded: tf.Tensor,
    key: tf.Tensor,
    image_size: tuple[int, int],
    value_range: ValueRange,
    flip: str = "never",
    evaluation: str = "resize",
) -> tf.Tensor:
    """Scales and shifts the whole image a little; does not flip it by default.

    For digits, letters and other images whose class a flip or a small crop would change.
    Each side is scaled by up to 15% and the centre shifted by up to 10%; the uncovered border
    is black, or with the evaluation "pad" as there. Arguments and result are as in
    `inception_crop`, with `evaluation` as in `none`.
    """
    image = decode_image(encoded)
    drawn = tf.random.stateless_uniform([4], key, -1.0, 1.0)
    shape = whole = tf.cast(tf.shape(image)[:2], tf.float32)
    border: tuple[int, ...] = (0,)
    if evaluation == "pad":
        border = Preprocessing(image_size, evaluation, value_range).fill
        # The image within a larger one that has the aspect ratio of the image size.
        whole = image_size * tf.reduce_max(shape / image_size)
    part = whole * (1 + _SCALING * drawn[:2])  # Pixels of the image that are shown.
    start = (shape - part) / 2 + whole * _MOVING * drawn[2:]
    factor = tf.constant(image_size, tf.float32) / part
    image = tf.raw_ops.ScaleAndTranslate(
        images=tf.cast(image, tf.float32)[tf.newaxis] - border,
        size=image_size,
        scale=factor,
        translation=-start * factor,
        kernel_type="triangle",  # Bilinear, as everywhere.
        antialias=False,
    )[0]
    image = random_flip(image + border, key, flip)
    return scale(tf.ensure_shape(image, (*image_size, 3)), value_range)


def resize_small_random_crop(
    encoded: tf.Tensor,
    key: tf.Tensor,
    image_size: tuple[int, int],
    value_range: ValueRange,
    flip: str = "horizontal",
) -> tf.Tensor:
    """Resizes the image to slightly more than the size, crops and flips it at random.

    big_vision's alternative to the inception crop for transfer, where the whole object
    should be visible. Arguments and result are as in `inception_crop`.
    """
    image = resize_small(decode_image(encoded), image_size)
    image = tf.image.stateless_random_crop(image, (*image_size, 3), key)
    return scale(random_flip(image, key, flip), value_range)


def resize_random_crop(
    encoded: tf.Tensor,
    key: tf.Tensor,
    image_size: tuple[int, int],
    value_range: ValueRange,
    flip: str = "horizontal",
    resize: tuple[int, int] | None = None,
) -> tf.Tensor:
    """Resizes the whole image, ignoring its aspect ratio, crops and flips it at random.

    As in BiT, whose code by mistake flips every training image.

    Args:
        encoded: An encoded image, a scalar string tensor.
        key: Seed of the random operations, `(2,)`.
        image_size: Pixels (height, width).
        value_range: Values of pixels 0 and 255.
        flip: One of `FLIPS`.
        resize: Pixels (height, width) before the crop; by default 512/480 of `image_size`.

    Returns:
        float32 `(height, width, 3)`.
    """
    height, width = image_size
    resize = resize or (round(height * _RESIZE), round(width * _RESIZE))
    image = tf.image.resize(decode_image(encoded), resize)
    image = tf.image.stateless_random_crop(image, (*image_size, 3), key)
    return scale(random_flip(image, key, flip), value_range)


def padded_crop(
    encoded: tf.Tensor,
    key: tf.Tensor,
    image_size: tuple[int, int],
    value_range: ValueRange,
    flip: str = "horizontal",
    evaluation: str = "resize",
) -> tf.Tensor:
    """Pads the whole image with grey, crops and flips it at random.

    The usual augmentation of CIFAR: 32 pixels with a border of 4 on every side, cropped to
    32. Arguments and result are as in `inception_crop`, with `evaluation` as in `none`.
    """
    image = none(encoded, key, image_size, value_range, evaluation=evaluation)
    rows, columns = (side // _BORDER for side in image_size)
    middle = np.mean(np.array(value_range, "float32"), axis=0)  # A number, or one by channel.
    image = tf.pad(image - middle, [[rows, rows], [columns, columns], [0, 0]]) + middle
    image = tf.image.stateless_random_crop(image, (*image_size, 3), key)
    return random_flip(image, key, flip)


def flip(
    encoded: tf.Tensor,
    key: tf.Tensor,
    image_size: tuple[int, int],
    value_range: ValueRange,
    flip: str = "horizontal",
    evaluation: str = "resize",
) -> tf.Tensor:
    """Resizes the whole image as `none`, and flips it at random."""
    return none(encoded, key, image_size, value_range, flip, evaluation)


def none(
    encoded: tf.Tensor,
    key: tf.Tensor,
    image_size: tuple[int, int],
    value_range: ValueRange,
    flip: str = "never",
    evaluation: str = "resize",
) -> tf.Tensor:
    """Resizes the whole image, and does not flip it by default.

    Arguments and result are as in `inception_crop`. With `evaluation="pad"` the image is padded as
    that evaluation does; with all others it is resized by the official one, which shows the whole
    image too.
    """
    height, width = image_size
    low, high = value_range
    evaluation = "pad" if evaluation == "pad" else "resize"
    preprocessing = Preprocessing((height, width), evaluation, (low, high))
    return random_flip(apply_preprocessing(decode_image(encoded), preprocessing), key, flip)


def _random_region(encoded, key):
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
    return decode_region(encoded, header, region)


def random_flip(image: tf.Tensor, key: tf.Tensor, flip: str) -> tf.Tensor:
    """Reverses each side that `FLIPS` has for a name, with probability 1/2."""
    for side in FLIPS[flip]:
        # Another key, as operations with the same key draw the same numbers.
        key = tf.random.experimental.stateless_fold_in(key, 1)
        is_flipped = tf.random.stateless_uniform([], key) < 0.5
        reverse = functools.partial(tf.reverse, image, [side])
        image = tf.cond(is_flipped, reverse, functools.partial(tf.identity, image))
    return image


def randaugmented(magnitude: float, *, solarize_wraps: bool = True) -> Callable[..., tf.Tensor]:
    """Returns the augmentation of an AugReg setting: `inception_crop`, then RandAugment.

    The resized image is rounded towards zero to bytes first, as in big_vision.

    Args:
        magnitude: Strength of the two operations that are applied.
        solarize_wraps: See `randaugment`.
    """

    def augment(encoded, key, image_size, value_range, flip="horizontal"):
        image = random_flip(_random_region(encoded, key), key, flip)
        image = tf.cast(tf.image.resize(image, image_size), tf.uint8)
        image = randaugment(image, key, _LAYERS, magnitude, solarize_wraps=solarize_wraps)
        return scale(image, value_range)

    return augment


_LAYERS = 2  # RandAugment's operations per image.

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

# The same with Solarize's thresholds as the official table has them, which change nothing. As
# that code ran, they were kept in 8 bits; see `randaugment`.
_UNWRAPPED = {f"{name}_unwrapped": row for name, row in AUGREG.items() if row[1]}

# Augmentations with mixup, and its parameter.
MIXUP = {name: parameter for name, (parameter, _) in (AUGREG | _UNWRAPPED).items() if parameter}


def mixup_parameter(augmentation: str, mixup: float | None = None) -> float:
    """Returns the parameter of mixup, 0 for none.

    Args:
        augmentation: One of `AUGMENTATIONS`.
        mixup: Overrides the augmentation's parameter; None keeps it.
    """
    return MIXUP.get(augmentation, 0.0) if mixup is None else mixup


# Functions of an encoded image, a random key, the image size and the value range.
AUGMENTATIONS = {
    "inception_crop": inception_crop,
    "resize_small_random_crop": resize_small_random_crop,
    "resize_random_crop": resize_random_crop,
    "padded_crop": padded_crop,
    "jitter": jitter,
    "flip": flip,
    "none": none,
    **{name: randaugmented(magnitude) for name, (_, magnitude) in AUGREG.items()},
    **{
        name: randaugmented(magnitude, solarize_wraps=False)
        for name, (_, magnitude) in _UNWRAPPED.items()
    },
}


# Augmentations of the whole image, which pad it where evaluation does.
WHOLE = ("padded_crop", "jitter", "flip", "none")


def check_augmentation(name: str) -> None:
    """Raises ValueError unless the name is one of `AUGMENTATIONS`."""
    if name not in AUGMENTATIONS:
        raise ValueError(f"augmentation must be one of {tuple(AUGMENTATIONS)}. Received: {name!r}")
