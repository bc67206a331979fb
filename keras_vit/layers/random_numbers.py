"""Random numbers by example, the same on any device, backend and number of replicas; dropout."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
import zlib
from collections.abc import Callable, Iterator

import keras
import numpy as np
from keras import KerasTensor as Tensor, ops

from keras_vit.layers.fused import CalledDirectly

# Philox-4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_PHILOX = 1  # The number of the algorithm in TensorFlow's operations.

_EXAMPLES: contextvars.ContextVar = contextvars.ContextVar("_EXAMPLES", default=None)


class DrawsByExample:
    """A layer that takes all its random numbers from `random_bits`, by its `seed_generator`.

    The `Trainer` gives the generator the same seed on every replica and in every micro-batch.
    The generator of another layer, such as `keras.layers.Dropout`, gets a seed for each of them.
    """

    seed_generator: keras.random.SeedGenerator

    def draw_seeds(self, is_random: bool) -> Callable[[str], Tensor | None]:
        """Returns the function from the name of a use of randomness to its seed in this call.

        Args:
            is_random: Whether anything is drawn; else each seed is None.
        """
        if not is_random:
            return lambda name: None
        return functools.partial(named_seed, self.seed_generator.next())


@contextlib.contextmanager
def examples_from(first: int | Tensor, count: int | Tensor) -> Iterator[None]:
    """Sets the place of this device's examples in the step, for `random_bits`.

    Args:
        first: Number of the first example; an integer or a scalar tensor.
        count: Examples of this device.
    """
    token = _EXAMPLES.set((first, count))
    try:
        yield
    finally:
        _EXAMPLES.reset(token)


def named_seed(seed: Tensor, name: str) -> Tensor:
    """Returns the seed of one of several uses of randomness that share a seed.

    Args:
        seed: Two integers as `keras.random.SeedGenerator.next()` returns them.
        name: Name of the use.
    """
    # In the first integer, as a generator counts its calls in the second.
    added = ops.convert_to_tensor([zlib.crc32(name.encode()), 0], "uint32")
    return _wrapped(ops.cast(seed, "uint32") + added)


def random_bits(shape: tuple, seed: Tensor) -> Tensor:
    """Returns random integers that depend on the seed and the place of an example only.

    An example has the same numbers whatever device it is on and whatever examples are in its
    batch: row r of replica or micro-batch m is drawn as its row of the whole batch.
    The first axis is of examples, or of equally many rows for each of them, one example after
    the other. Outside of `examples_from` replicas are taken to have equally many rows.

    Args:
        shape: The shape, `(rows, ...)`; its items may be scalar tensors.
        seed: Two integers.

    Returns:
        A uint32 tensor.
    """
    rows = shape[0]
    if _EXAMPLES.get() is not None:
        first, count = _EXAMPLES.get()
        first = ops.cast(first, "int32") * (rows // count)
    else:
        first = _replica() * rows
    return philox(shape, seed, first)


def philox(shape: tuple, seed: Tensor, first_row: int | Tensor = 0) -> Tensor:
    """Returns rows of the random numbers of a seed, by Philox-4x32-10.

    A row has as many counters as it needs, four numbers each; row r begins at counter r times
    their number.

    Args:
        shape: The shape, `(rows, ...)`; its items may be scalar tensors.
        seed: Two integers, the key.
        first_row: Number of the first row.

    Returns:
        A uint32 tensor.
    """
    rows, length = shape[0], math.prod(shape[1:])
    counters = -(-length // 4)  # Counters of a row.
    if keras.backend.backend() == "tensorflow":
        bits = _philox_of_tensorflow(rows, counters, seed, first_row)
    else:
        bits = _philox_of_operations(rows, counters, seed, first_row)
    if not isinstance(length, int) or length % 4:
        bits = bits[:, :length]
    return ops.reshape(bits, shape)


def _replica():
    if keras.backend.backend() != "tensorflow":
        return 0
    import tensorflow as tf

    context = tf.distribute.get_replica_context() if tf.distribute.has_strategy() else None
    return 0 if context is None else context.replica_id_in_sync_group


def _philox_of_tensorflow(rows, counters, seed, first_row):
    import tensorflow as tf

    key = tf.bitcast(tf.cast(seed, "uint32"), "uint64")
    counter = tf.cast(first_row, "uint64") * tf.cast(counters, "uint64")
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[rows, 4 * counters],
        key=key[tf.newaxis],
        counter=tf.stack([counter, tf.zeros_like(counter)]),
        alg=_PHILOX,
        dtype="uint32",
    )


def _philox_of_operations(rows, counters, seed, first_row):
    """The same numbers by operations on uint32, which XLA compiles into one loop."""
    key = ops.unstack(ops.cast(seed, "uint32"), 2)
    row = ops.cast(first_row, "uint32") + ops.arange(rows, dtype="uint32")[:, None]
    high, low = _multiply(counters, row)
    column = ops.arange(counters, dtype="uint32")[None]
    low = _wrapped(low + column)
    high = high + ops.cast(low < column, "uint32")  # The carry.
    zeros = ops.zeros_like(low)
    x = [low, high, zeros, zeros]
    for _ in range(_ROUNDS):
        high_0, low_0 = _multiply(_MULTIPLIERS[0], x[0])
        high_1, low_1 = _multiply(_MULTIPLIERS[1], x[2])
        x = [
            ops.bitwise_xor(ops.bitwise_xor(high_1, x[1]), key[0]),
            low_1,
            ops.bitwise_xor(ops.bitwise_xor(high_0, x[3]), key[1]),
            low_0,
        ]
        key = [_wrapped(part + np.uint32(step)) for part, step in zip(key, _KEY_STEPS, strict=True)]
    return ops.reshape(ops.stack(x, axis=-1), (rows, 4 * counters))


def _multiply(constant, x):
    """Returns the high and the low half of the product of a constant and uint32 numbers."""
    half, mask = np.uint32(16), np.uint32(0xFFFF)
    a_high, a_low = np.uint32(constant >> 16), np.uint32(constant & 0xFFFF)
    x_high, x_low = ops.right_shift(x, half), ops.bitwise_and(x, mask)
    middle = a_high * x_low + ops.right_shift(a_low * x_low, half)
    other = a_low * x_high + ops.bitwise_and(middle, mask)
    high = a_high * x_high + ops.right_shift(middle, half) + ops.right_shift(other, half)
    return high, _wrapped(np.uint32(constant) * x)


def _wrapped(x):
    """The lower 32 bits of sums and products of uint32 numbers, which PyTorch holds as int64."""
    return ops.bitwise_and(x, np.uint32(2**32 - 1)) if keras.backend.backend() == "torch" else x


@keras.saving.register_keras_serializable(package="keras_vit")
class Dropout(DrawsByExample, CalledDirectly, keras.layers.Dropout):
    """Sets a share of units to zero in training, as `keras.layers.Dropout` does.

    Two differences. The mask of an example is the same on every device, backend and number of
    replicas; see `keras_vit.layers.random_numbers`. And `call` takes a `seed`, for callers that
    must draw the same mask twice, such as a block that recomputes its activations in the
    backward pass: Keras's own layer draws a new mask there, and the gradients are silently
    wrong.

    Args:
        rate: Share of units dropped, in [0, 1).
        **kwargs: Passed to `keras.layers.Dropout`.

    Call arguments:
        inputs: A tensor of any shape; the first axis is of examples, or of equally many rows
            for each of them.
        training: Whether to drop.
        seed: Two integers as `keras.random.SeedGenerator.next()` returns them; None
            draws from the layer's own generator.
    """

    def call(self, inputs, training=False, seed=None):
        if not training or not self.rate:
            return inputs
        shape = ops.shape(inputs)
        if self.noise_shape:
            sizes = zip(self.noise_shape, shape, strict=True)
            shape = tuple(whole if size is None else size for size, whole in sizes)
        bits = random_bits(shape, self.seed_generator.next() if seed is None else seed)
        kept = bits >= np.uint32(round(self.rate * 2**32))
        return ops.where(kept, inputs * (1 / (1 - self.rate)), ops.zeros((), inputs.dtype))
