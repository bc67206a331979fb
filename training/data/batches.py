"""Batches for training and evaluation as `tf.data.Dataset`."""

from __future__ import annotations

import dataclasses
import functools

import tensorflow as tf

from keras_vit.images.decoding import apply_preprocessing, decodable, decode_image, in_turn
from keras_vit.preprocessing import Preprocessing

from . import augmentations
from .augmentations import Augmentation, View, augment, mixup_parameter
from .content import usable_cores
from .examples import Examples, random_key, unconverted, without_autotune

_AHEAD = 2  # Batches that are ready for the model.
_IMAGES_PER_CORE = 4  # Parallel calls per core, so that no core waits for its next image.


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingBatches(Augmentation):
    """What `training_batches` gives; it has the fields of `Augmentation` too.

    Args:
        batch_size: Images in a batch, over all replicas.
        seed: Decides order and augmentation.
        start_step: Batches to skip at the beginning.
        micro_batches: Equal parts of a batch, which come one after the other, for a `Trainer` with
            so many `gradient_accumulation_steps`. Mixup mixes within the whole batch, so that the
            images and labels of a step are the same for any number.
        shard: `(i, k)`: this machine, from 0, of k machines. It gets the i-th of k equal
            parts of the batches that one machine would get, and decodes no other images, but
            reads all record files. Mixup, if any, mixes within that part.

    Raises:
        ValueError: If the augmentation is unknown, a number is out of range, or k times the
            micro-batches does not divide the batch.
    """

    batch_size: int
    seed: int
    start_step: int = 0
    micro_batches: int = 1
    shard: tuple[int, int] = (0, 1)

    def __post_init__(self):
        super().__post_init__()
        part, parts = self.shard
        if (
            self.start_step < 0
            or not 0 <= part < parts
            or self.batch_size < 1
            or self.micro_batches < 1
            or self.batch_size % (parts * self.micro_batches)
        ):
            raise ValueError(
                "batch_size must be positive and a multiple of the shards times micro_batches, "
                f"start_step not negative. Received: batch_size={self.batch_size}, "
                f"shard={self.shard}, micro_batches={self.micro_batches}, "
                f"start_step={self.start_step}"
            )

    @property
    def mixes(self) -> bool:
        """Whether images are mixed with others of their batch, and their labels."""
        return augmentations.mixes_batches(self.augmentation, self.mixup, self.layers)


def training_batches(examples: Examples, given: TrainingBatches) -> tf.data.Dataset:
    """Returns batches without end, shuffled in every epoch.

    The augmented image depends on the seed, the epoch and the image's index only, so batches
    do not depend on the number of cores or the step they start from. The last images of an
    epoch share a batch with the first of the next: none is lost, and a data set may be
    smaller than a batch. Memory: paths and labels, at most four batches of float32 images,
    and for record files the shuffle buffer of encoded ones.

    Args:
        examples: The images.
        given: The batches.

    Returns:
        A dataset of (float32 images `(B, height, width, 3)`, int32 labels `(B,)`, or uint8
        `(B, K)` of multi-label images). With mixup labels are shares of classes, float32
        `(B, K)`.

    Raises:
        ValueError: If there are no examples, or mixup is without the number of classes.
    """
    batch_size, start_step, seed = given.batch_size, given.start_step, given.seed
    micro_batches = given.micro_batches
    part, parts = given.shard
    made = augmentations.make_layers(given.layers)
    mixing = [layer for layer in made if isinstance(layer, augmentations.MIXING)]
    of_images = [layer for layer in made if layer not in mixing]
    parameter = mixup_parameter(given.augmentation, given.mixup)
    mixes = parameter or mixing
    if not mixes:  # Nothing joins the images of a batch: its parts are made one by one.
        batch_size //= micro_batches
        start_step *= micro_batches
        micro_batches = 1
    elif not given.num_classes:
        raise ValueError(
            f"With mixup={parameter} and layers={given.layers} num_classes must be given."
        )
    _check_not_empty(examples)

    rows = batch_size // parts
    view = View(given.image_size, given.value_range, given.bit_depth)
    elements = examples.shuffled(seed, start_step * batch_size)
    if parts > 1:
        is_own = unconverted(lambda row, _: row % batch_size // rows == part)
        elements = elements.enumerate().filter(is_own)
        elements = elements.map(unconverted(lambda row, element: element))

    @unconverted
    def image_and_label(handle, epoch, index):
        key = random_key(seed, tf.constant(1), epoch, index)  # 1: another key than the order's.
        encoded, label = examples.read(handle)

        def image_of(encoded):
            return augment(given.augmentation, decodable(encoded), key, view, given.flip, of_images)

        return in_turn(encoded, image_of), label

    elements = elements.map(image_and_label, num_parallel_calls=_parallel_calls())
    batches = elements.batch(rows, drop_remainder=True)
    if mixes:

        @unconverted
        def mix(step, batch):
            images, labels = batch
            # 2 distinguishes the key from the order's (0) and the augmentation's (1).
            key = random_key(seed, tf.constant(2), step)
            if labels.shape.rank == 2:
                labels = tf.cast(labels, tf.float32)
            else:
                labels = tf.one_hot(labels, given.num_classes)
            if parameter:
                images, labels = augmentations.mixup(images, labels, key, parameter)
            mixed = augmentations.apply_layers(mixing, {"images": images, "labels": labels}, key)
            return mixed["images"], mixed["labels"]

        batches = batches.enumerate(start_step).map(mix)
    if micro_batches > 1:
        batches = batches.prefetch(1).rebatch(rows // micro_batches, drop_remainder=True)
    batches = batches.prefetch(_AHEAD)
    batches = batches.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    return _prepared(batches)


def evaluation_batches(
    examples: Examples,
    *,
    preprocessing: Preprocessing,
    batch_size: int,
    as_pixels: bool = False,
    skip_unreadable: bool = False,
    shuffled: int | None = None,
) -> tf.data.Dataset:
    """Returns batches with each example exactly once, in order.

    The examples keep the pipeline for the next evaluation with the same arguments: a run validates
    ten times, and to trace it takes longer than to run it on a hundred photos.

    Args:
        examples: The images.
        preprocessing: How an image becomes the model's input.
        batch_size: Images in a batch; the last one may have fewer. Pixels are in batches of one
            image, as images differ in size.
        as_pixels: Whether images are decoded only, for an export that does the rest itself.
        skip_unreadable: Whether images that cannot be read are left out. The batches then have a
            third part, the places of their images among the examples, int64 `(B,)`.
        shuffled: The seed of another order each time; None for the order of the examples.

    Returns:
        A finite dataset of (float32 images `(B, height, width, 3)`, or uint8 pixels
        `(1, H, W, 3)`; int32 labels `(B,)`, or uint8 `(B, K)` of multi-label images).

    Raises:
        ValueError: If there are no examples, or the batch size is not positive.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be positive. Received: {batch_size}")
    _check_not_empty(examples)
    arguments = (preprocessing, batch_size, as_pixels, skip_unreadable)
    last = examples.last_evaluation
    if shuffled is None and last is not None and last[0] == arguments:
        return last[1]

    image_of = _decoding(preprocessing, as_pixels)

    @unconverted
    def image_and_label(handle, _, place):
        encoded, label = examples.read(handle)
        image = in_turn(encoded, lambda encoded: image_of(decodable(encoded)))
        return (image, label, place) if skip_unreadable else (image, label)

    elements = examples.ordered()
    if shuffled is not None:
        elements = elements.shuffle(len(examples), shuffled, reshuffle_each_iteration=True)
    elements = elements.map(image_and_label, num_parallel_calls=_parallel_calls())
    if skip_unreadable:
        elements = elements.ignore_errors()
    else:  # Raises if the data hold fewer or more examples than were counted.
        elements = elements.apply(tf.data.experimental.assert_cardinality(len(examples)))
    batches = _prepared(elements.batch(1 if as_pixels else batch_size).prefetch(_AHEAD))
    if shuffled is None:  # A shuffled pipeline goes on with other orders.
        examples.last_evaluation = arguments, batches
    return batches


@functools.lru_cache(maxsize=8)
def _decoding(preprocessing, as_pixels):
    """Returns the graph from an encoded image to the model's input.

    One for all data sets.
    """

    def image_of(encoded):
        pixels = decode_image(encoded, bit_depth=preprocessing.bit_depth)
        return pixels if as_pixels else apply_preprocessing(pixels, preprocessing)

    return tf.function(image_of, input_signature=[tf.TensorSpec([], tf.string)], autograph=False)


def _check_not_empty(examples):
    if not len(examples):
        raise ValueError("There must be at least one example. Received: none")


def _parallel_calls():
    return _IMAGES_PER_CORE * usable_cores()


def _prepared(batches):
    options = tf.data.Options()
    options.deterministic = True
    # Sharding by elements: the pipeline does not start from files.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return without_autotune(batches.with_options(options))
