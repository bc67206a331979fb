"""Dropout whose mask depends on the example, not on the device."""

import keras
import numpy as np
from keras import ops

from keras_vit.layers.random_numbers import DrawsByExample, random_bits


@keras.saving.register_keras_serializable(package="keras_vit")
class Dropout(DrawsByExample, keras.layers.Dropout):
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
            given = zip(self.noise_shape, shape, strict=True)
            shape = tuple(whole if size is None else size for size, whole in given)
        bits = random_bits(shape, self.seed_generator.next() if seed is None else seed)
        kept = bits >= np.uint32(round(self.rate * 2**32))
        return ops.where(kept, inputs * (1 / (1 - self.rate)), ops.zeros((), inputs.dtype))
