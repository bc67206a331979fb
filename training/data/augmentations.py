"""How an encoded image becomes a training image: a table of names."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_vit.image_headers import read_header
from keras_vit.images import (
    apply_preprocessing,
    decode_image,
    decode_region,
    resize_small,
    scale,
    upright_size,
)
from keras_vit.preprocessing import Preprocessing

from .randaugment import randaugment

_AREA = (0.05, 1.0)  # Of the image; as in the official code.
_ASPECT = (3 / 4, 4 / 3)  # Width by height.
_SCALING = 0.15  # Of a side, at most.
_BORDER = 8  # Of a side: 4 of CIFAR's 32 pixels.
_MOVING = 0.1  # Of a side, at most.
_RESIZE = 512 / 480  # Sides by those of the crop; BiT's HyperRule.


def inception_crop(
    encoded: tf.Tensor, key: tf.Tensor, image_size: tuple[int, int], value_range: Any
) -> tf.Tensor:
    """A rectangle of random area, shape and place, resized; then flipped, or not.

    The rectangle is drawn by the operation that the official code uses, and resized as
    there: bilinear, without antialiasing. Of a JPEG only the rectangle is decoded.

    Args:
        encoded: An encoded image, a scalar string tensor.
        key: Seed of the random operations, `(2,)`.
        image_size: Pixels (height, width).
        value_range: What pixels 0 and 255 become.

    Returns:
        float32 `(height, width, 3)`.
    """
    # Flipped while it is small: of bytes, and not yet resized.
    image = random_flip(_random_region(encoded, key), key)
    return scale(tf.image.resize(image, image_size), value_range)


def jitter(
    encoded: tf.Tensor, key: tf.Tensor, image_size: tuple[int, int], value_range: Any
) -> tf.Tensor:
    """The whole image, larger or smaller, higher or wider, and moved; never flipped.

    For digits, letters and the like, which a mirror or half a stroke makes something else.
    Each side is scaled by up to 15% and the middle moved by up to a tenth; where that leaves
    nothing it is black. Arguments and result as of `inception_crop`.
    """
    image = decode_image(encoded)
    drawn = tf.random.stateless_uniform([4], key, -1.0, 1.0)
    shape = tf.cast(tf.shape(image)[:2], tf.float32)
    part = shape * (1 + _SCALING * drawn[:2])  # Pixels of the image that fill the result.
    start = (shape - part) / 2 + shape * _MOVING * drawn[2:]
    factor = tf.constant(image_size, tf.float32) / part
    image = tf.raw_ops.ScaleAndTranslate(
        images=tf.cast(image, tf.float32)[tf.newaxis],
        size=image_size,
        scale=factor,
        translation=-start * factor,
        kernel_type="triangle",  # Bilinear, as everywhere.
        antialias=False,
    )[0]
    return scale(tf.ensure_shape(image, (*image_size, 3)), value_range)


def resize_small_random_crop(
    encoded: tf.Tensor, key: tf.Tensor, image_size: tuple[int, int], value_range: Any
) -> tf.Tensor:
    """A little larger than the size; a rectangle at a random place; flipped, or not.

    What big_vision offers beside the inception crop for transfer, where all of the object
    should be seen. Arguments and result are those of `inception_crop`.
    """
    image = resize_small(decode_image(encoded), image_size)
    image = tf.image.stateless_random_crop(image, (*image_size, 3), key)
    return scale(random_flip(image, key), value_range)


def resize_random_crop(
    encoded: tf.Tensor,
    key: tf.Tensor,
    image_size: tuple[int, int],
    value_range: Any,
    resize: tuple[int, int] | None = None,
) -> tf.Tensor:
    """The whole image resized whatever its shape; a rectangle of it; flipped, or not.

    BiT's, which however flips every training image, a slip that is not repeated here.

    Args:
        encoded: As of `inception_crop`.
        key: As of `inception_crop`.
        image_size: Pixels (height, width).
        value_range: What pixels 0 and 255 become.
        resize: Pixels (height, width) that the rectangle is cut from; by default as much
            larger as 512 is than 480.

    Returns:
        float32 `(height, width, 3)`.
    """
    height, width = image_size
    resize = resize or (round(height * _RESIZE), round(width * _RESIZE))
    image = tf.image.resize(decode_image(encoded), resize)
    image = tf.image.stateless_random_crop(image, (*image_size, 3), key)
    return scale(random_flip(image, key), value_range)


def padded_crop(
    encoded: tf.Tensor, key: tf.Tensor, image_size: tuple[int, int], value_range: Any
) -> tf.Tensor:
    """The whole image as in evaluation, moved by up to an eighth; flipped, or not.

    The usual one of CIFAR: 32 pixels with a grey border of 4 on every side, of which a
    rectangle is taken. Arguments and result are those of `inception_crop`.
    """
    image = none(encoded, key, image_size, value_range)
    rows, columns = (side // _BORDER for side in image_size)
    middle = sum(value_range) / 2
    image = tf.pad(image, [[rows, rows], [columns, columns], [0, 0]], constant_values=middle)
    return random_flip(tf.image.stateless_random_crop(image, (*image_size, 3), key), key)


def flip(
    encoded: tf.Tensor, key: tf.Tensor, image_size: tuple[int, int], value_range: Any
) -> tf.Tensor:
    """The whole image as in evaluation; flipped, or not."""
    return random_flip(none(encoded, key, image_size, value_range), key)


def none(
    encoded: tf.Tensor, key: tf.Tensor, image_size: tuple[int, int], value_range: Any
) -> tf.Tensor:
    """The whole image as in evaluation."""
    height, width = image_size
    preprocessing = Preprocessing((height, width), value_range=tuple(value_range))
    return apply_preprocessing(decode_image(encoded), preprocessing)


def _random_region(encoded, key):
    """A rectangle of random area, shape and place, uint8."""
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


def random_flip(image: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Exchanges left and right with probability 1/2."""
    # A key of its own: the operations of one key draw the same numbers.
    key = tf.random.experimental.stateless_fold_in(key, 1)
    flipped = tf.random.stateless_uniform([], key) < 0.5
    return tf.cond(flipped, lambda: tf.reverse(image, [1]), lambda: image)


def randaugmented(magnitude: float):
    """Returns the augmentation of an AugReg setting: as `inception_crop`, then RandAugment.

    The resized image is rounded towards zero to bytes first, as in big_vision.

    Args:
        magnitude: Of the two operations that are applied.
    """

    def augment(encoded, key, image_size, value_range):
        image = random_flip(_random_region(encoded, key), key)
        image = tf.cast(tf.image.resize(image, image_size), tf.uint8)
        return scale(randaugment(image, key, _LAYERS, magnitude), value_range)

    return augment


# AugReg's settings (arXiv 2106.10270): parameter of mixup, magnitude of RandAugment. Its
# "none" is the inception crop alone.
_LAYERS = 2
AUGREG = {
    "light1": (0.0, 0),
    "light2": (0.2, 10),
    "medium1": (0.2, 15),
    "medium2": (0.5, 15),
    "strong1": (0.5, 20),
    "strong2": (0.8, 20),
}

# Augmentation: parameter of mixup, where it has one.
MIXUP = {name: parameter for name, (parameter, _) in AUGREG.items() if parameter}


def mixup_parameter(augmentation: str, mixup: float | None = None) -> float:
    """Returns the parameter of mixup, 0 for none.

    Args:
        augmentation: One of `AUGMENTATIONS`, which may have its own.
        mixup: What is wanted instead; None for the augmentation's own.
    """
    return MIXUP.get(augmentation, 0.0) if mixup is None else mixup


# Name: function of an encoded image, a seed, the image size and the range of values.
AUGMENTATIONS = {
    "inception_crop": inception_crop,
    "resize_small_random_crop": resize_small_random_crop,
    "resize_random_crop": resize_random_crop,
    "padded_crop": padded_crop,
    "jitter": jitter,
    "flip": flip,
    "none": none,
    **{name: randaugmented(magnitude) for name, (_, magnitude) in AUGREG.items()},
}
