"""Batches for training and for evaluation, as plain `tf.data.Dataset`s."""

from __future__ import annotations

import functools
import re

import tensorflow as tf

from keras_vit.images import apply_preprocessing, decode_image
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.run.machine import usable_cores

from .augmentations import AUGMENTATIONS, mixup_parameter, resize_random_crop
from .examples import Examples, random_key, untuned

# Batches that wait for the model. With the one that is being filled and the images that
# the cores are working on, this is what the pipeline holds whatever the data's size.
_AHEAD = 2
_IMAGES_PER_CORE = 4  # In work at a time: no core waits to be given the next.

SHARDING = ("rows", "examples")


def training_batches(
    examples: Examples,
    *,
    image_size: tuple[int, int],
    batch_size: int,
    seed: int,
    augmentation: str = "inception_crop",
    value_range: tuple[float, float] = (-1.0, 1.0),
    start_step: int = 0,
    shard: tuple[int, int] = (0, 1),
    shard_by: str = "rows",
    data_service: str | None = None,
    num_classes: int | None = None,
    mixup: float | None = None,
    resize: tuple[int, int] | None = None,
) -> tf.data.Dataset:
    """Returns batches without end, shuffled anew in every epoch.

    What an image becomes depends on the seed, the epoch and the image's index alone, so
    batches are the same however many cores decode, and from whatever step they start. An
    epoch's last images share a batch with the next epoch's first: none is lost, and data
    may be fewer than a batch. In memory, beside paths and labels: four batches of float32
    images at most, and of TensorFlow Datasets two blocks of encoded ones.

    Args:
        examples: The images.
        image_size: Pixels (height, width).
        batch_size: Images of a batch, of all replicas together.
        seed: Decides order and augmentation.
        augmentation: One of `AUGMENTATIONS`.
        value_range: What pixels 0 and 255 become.
        start_step: Batches that were taken before.
        shard: `(i, k)`: of every batch only the i-th of k equal parts, for one of k
            machines; i counts from 0. Mixup, if any, mixes within that part.
        shard_by: What a machine's part is. "rows": those of the batch that one machine
            would take; all read all records, and decode their own. "examples": those of
            its own k-th of the examples, `examples.part(i, k)`; it reads no others, and the
            batches differ from those of one machine.
        data_service: Address of a `tf.data` service, "grpc://host:port", whose workers
            read, decode and augment. They share the pieces of each epoch, so that every
            example is still there once in it; the order is another than without a service.
            With one worker it repeats; with several, batches come as they are ready, and a
            run cannot be repeated bit for bit. Machines share the batches: `shard` says
            only how many they are, and they must start at the same step.
        num_classes: K; only mixup needs it.
        mixup: Parameter of mixup's beta distribution, 0 for none; by default the
            augmentation's own.
        resize: Pixels (height, width) that the augmentation "resize_random_crop" cuts from.

    Returns:
        A dataset of (float32 images `(B, height, width, 3)`, int32 labels `(B,)`). With
        mixup labels are shares of classes, float32 `(B, K)`.

    Raises:
        ValueError: If there are no examples, the augmentation is unknown, a number is out
            of range or missing, k does not divide the batch, or the service's address is
            none.
    """
    part, parts = shard
    if augmentation not in AUGMENTATIONS:
        raise ValueError(
            f"augmentation must be one of {tuple(AUGMENTATIONS)}. Received: {augmentation!r}"
        )
    if start_step < 0 or not 0 <= part < parts or batch_size < 1 or batch_size % parts:
        raise ValueError(
            "batch_size must be positive and a multiple of the shards, start_step not negative. "
            f"Received: batch_size={batch_size}, shard={shard}, start_step={start_step}"
        )
    mixup = mixup_parameter(augmentation, mixup)
    if mixup and not num_classes:
        raise ValueError(
            "With mixup num_classes must be given. "
            f"Received: augmentation={augmentation!r}, mixup={mixup}"
        )
    if shard_by not in SHARDING:
        raise ValueError(f"shard_by must be one of {SHARDING}. Received: {shard_by!r}")
    if data_service is not None and not re.fullmatch(r"grpc://.+:\d+", data_service):
        raise ValueError(
            f"data_service must be an address such as grpc://host:5000. Received: {data_service!r}"
        )
    _check_not_empty(examples)
    rows = batch_size // parts
    augment = AUGMENTATIONS[augmentation]
    if augment is resize_random_crop:
        augment = functools.partial(augment, resize=resize)
    if data_service is not None:
        elements, places = examples.shuffled_pieces(seed, start_step * batch_size), (0, 1)
    elif shard_by == "examples":
        examples, places = examples.part(part, parts), shard
        _check_not_empty(examples)
        elements = examples.shuffled(seed, start_step * rows)
    else:
        elements, places = examples.shuffled(seed, start_step * batch_size), (0, 1)
        if parts > 1:
            elements = elements.enumerate().filter(lambda row, _: row % batch_size // rows == part)
            elements = elements.map(lambda row, element: element)
    first, step = places  # Of the index among all examples.

    def image_and_label(handle, epoch, index):
        # 1: not the key of the order.
        key = random_key(seed, tf.constant(1), epoch, first + step * index)
        encoded, label = examples.read(handle)
        return augment(encoded, key, image_size, value_range), label

    # The cores of a service are its own.
    calls = _parallel_calls() if data_service is None else tf.data.AUTOTUNE
    elements = elements.map(image_and_label, num_parallel_calls=calls)
    batches = elements.batch(rows, drop_remainder=True)
    if data_service is not None:
        batches = _prepared(batches).apply(_served(data_service, seed, start_step))
    if mixup and num_classes:
        batches = mixed(
            batches, parameter=mixup, num_classes=num_classes, seed=seed, start_step=start_step
        )
    batches = batches.prefetch(_AHEAD)
    infinite = tf.data.experimental.INFINITE_CARDINALITY
    batches = batches.apply(tf.data.experimental.assert_cardinality(infinite))
    # What is shared by a service already is left as it is.
    return batches if data_service is not None else _prepared(batches)


def evaluation_batches(
    examples: Examples, *, preprocessing: Preprocessing, batch_size: int
) -> tf.data.Dataset:
    """Returns batches with each example exactly once, in order.

    Args:
        examples: The images.
        preprocessing: How an image becomes the model's input.
        batch_size: Images of a batch; the last one may have fewer.

    Returns:
        A finite dataset of (float32 images `(B, height, width, 3)`, int32 labels `(B,)`).

    Raises:
        ValueError: If there are no examples, or the batch size is not positive.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be positive. Received: {batch_size}")
    _check_not_empty(examples)

    def image_and_label(handle, *_):
        encoded, label = examples.read(handle)
        return apply_preprocessing(decode_image(encoded), preprocessing), label

    elements = examples.ordered().map(image_and_label, num_parallel_calls=_parallel_calls())
    # Also a check: fewer or more examples than were counted are an error.
    elements = elements.apply(tf.data.experimental.assert_cardinality(len(examples)))
    return _prepared(elements.batch(batch_size).prefetch(_AHEAD))


def mixup(
    images: tf.Tensor, labels: tf.Tensor, key: tf.Tensor, parameter: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Blends each example of a batch with the one before it.

    One share a for the whole batch, as in big_vision:

        a ~ Beta(p, p), then a = max(a, 1 - a)
        x'_i = a * x_i + (1 - a) * x_(i - 1), and the labels likewise

    Args:
        images: Float `(B, ...)`.
        labels: Shares of classes, float `(B, K)`.
        key: Seed of the random operations, `(2,)`.
        parameter: p, more than 0.

    Returns:
        Images and labels of the same shapes.
    """
    # Of two gamma variables the share of one is a beta variable.
    first, second = tf.unstack(tf.random.stateless_gamma([2], key, parameter))
    share = first / (first + second)
    share = tf.where(tf.math.is_nan(share), 1.0, tf.maximum(share, 1 - share))

    def blended(values):
        return share * values + (1 - share) * tf.roll(values, 1, axis=0)

    return blended(images), blended(labels)


def mixed(
    batches: tf.data.Dataset, *, parameter: float, num_classes: int, seed: int, start_step: int = 0
) -> tf.data.Dataset:
    """Applies `mixup` to batches of images and class numbers.

    Args:
        batches: A dataset of (images `(B, ...)`, class numbers `(B,)`).
        parameter: p of the beta distribution, more than 0.
        num_classes: K.
        seed: With the number of the step, decides the shares.
        start_step: Batches that were taken before.

    Returns:
        A dataset of (images, float32 labels `(B, K)`).
    """

    def mix(step, batch):
        images, labels = batch
        # 2: not the key of the order (0), nor that of the augmentation (1).
        key = random_key(seed, tf.constant(2), step)
        return mixup(images, tf.one_hot(labels, num_classes), key, parameter)

    return batches.enumerate(start_step).map(mix)


def _served(address, seed, start_step):
    """Leaves the work to a service."""
    service = tf.data.experimental.service
    return service.distribute(
        # What is shared are the elements of the first data set, the pieces' numbers.
        processing_mode=service.ShardingPolicy.DYNAMIC,
        service=address,
        job_name=f"keras_vit seed {seed} step {start_step}",  # The same on all machines.
    )


def _check_not_empty(examples):
    if not len(examples):
        raise ValueError("There must be at least one example. Received: none")


def _parallel_calls():
    return _IMAGES_PER_CORE * usable_cores()


def _prepared(batches):
    options = tf.data.Options()
    options.deterministic = True
    # Between machines by elements: there are no files at the root to divide.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return untuned(batches.with_options(options))
