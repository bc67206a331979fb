"""Dropout with an explicit seed."""

import keras

from keras_vit.keras_private import FixedSeed


@keras.saving.register_keras_serializable(package="keras_vit")
class Dropout(keras.layers.Dropout):
    """Sets a share of units to zero in training, as `keras.layers.Dropout` does.

    The difference: `call` takes a `seed`, for callers that must draw the same mask twice,
    such as a block that recomputes its activations in the backward pass. Keras's own layer
    draws a new mask there, and the gradients are silently wrong.

    Args:
        rate: Share of units dropped, in [0, 1).
        **kwargs: Passed to `keras.layers.Dropout`.

    Call arguments:
        inputs: A tensor of any shape.
        training: Whether to drop.
        seed: Two integers as `keras.random.SeedGenerator.next()` returns them; None
            draws from the layer's own generator.
    """

    def call(self, inputs, training=False, seed=None):
        if seed is None or not training or not self.rate:
            return super().call(inputs, training=training)
        return keras.random.dropout(inputs, self.rate, self.noise_shape, seed=FixedSeed(seed))
