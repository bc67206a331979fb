"""Hides a share of the patches, which a model then learns to predict."""

import keras
from keras import ops

from keras_vit.layers.dropout import DrawnSeed


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchCorruption(keras.layers.Layer):
    """Corrupts a share of the patch embeddings; paper, Appendix B.1.2.

    In each image `round(rate * N)` patches are drawn. The embedding of a drawn patch becomes
    the learned [mask] embedding with probability 0.8, that of another patch with probability
    0.1, and stays as it is otherwise.

    The paper does not say where the other patch is from. Here it is one of the same image
    that was not drawn: an image's result then depends on no other image, and the pixels of a
    patch that was masked or replaced come back in no other place.

    In inference the same patches are drawn in every call, so that an evaluation repeats.

    Args:
        rate: Share of the patches, in (0, 1).
        mask_rate: Share of these that become the [mask] embedding.
        replace_rate: Share of these that become another patch's embedding.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, N, D)`: batch, patches without learned tokens, token size.
        training: Whether to draw from the layer's own generator.

    Output shape:
        A pair: the tokens `(B, N, D)`, and the places of the drawn patches, int32 `(B, n)`.

    Raises:
        ValueError: If a share is out of range; on build, if N is unknown or so small that no
            patch would be corrupted, or none left.

    Example:
    >>> tokens, places = PatchCorruption(0.5)(keras.ops.zeros((2, 196, 192)))
    >>> tuple(tokens.shape), tuple(places.shape)
    ((2, 196, 192), (2, 98))
    """

    def __init__(self, rate=0.5, mask_rate=0.8, replace_rate=0.1, **kwargs):
        super().__init__(**kwargs)
        if not 0 < rate < 1:
            raise ValueError(f"The corruption must be a share in (0, 1). Received: rate={rate}")
        if min(mask_rate, replace_rate) < 0 or mask_rate + replace_rate > 1:
            raise ValueError(
                "mask_rate and replace_rate must be shares with a sum of at most 1. "
                f"Received: mask_rate={mask_rate}, replace_rate={replace_rate}"
            )
        self.rate = rate
        self.mask_rate = mask_rate
        self.replace_rate = replace_rate
        self.seed_generator = keras.random.SeedGenerator()

    def build(self, input_shape):
        length = input_shape[1]
        if length is None or not 0 < self._count(length) < length:
            raise ValueError(
                "The corruption must take at least one of the patches, and leave one. "
                f"Received: rate={self.rate} of {length} patches"
            )
        self.mask = self.add_weight(
            shape=(1, 1, input_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="mask",
        )

    def call(self, tokens, training=False):
        batch, length = ops.shape(tokens)[0], tokens.shape[1]
        count = self._count(length)
        generator = self.seed_generator
        seed = generator.next() if training else ops.zeros((2,), generator.state.dtype)
        seeds = [DrawnSeed(seed + offset) for offset in range(3)]
        order = ops.argsort(keras.random.uniform((batch, length), dtype="float32", seed=seeds[0]))
        places, left = order[:, :count], order[:, count:]
        donor = keras.random.randint((batch, length), 0, length - count, seed=seeds[1])
        donor = ops.take_along_axis(left, donor, axis=1)
        others = ops.take_along_axis(tokens, donor[..., None], axis=1)
        kind = keras.random.uniform((batch, length), dtype="float32", seed=seeds[2])
        is_drawn = ops.argsort(order) < count  # By the rank of each patch.
        is_masked = ops.logical_and(is_drawn, kind < self.mask_rate)
        is_replaced = ops.logical_and(
            ops.logical_and(is_drawn, kind >= self.mask_rate),
            kind < self.mask_rate + self.replace_rate,
        )
        tokens = ops.where(is_masked[..., None], ops.cast(self.mask, tokens.dtype), tokens)
        return ops.where(is_replaced[..., None], others, tokens), ops.cast(places, "int32")

    def compute_output_spec(self, tokens, training=False):
        batch, length, _ = tokens.shape
        return (
            keras.KerasTensor(tokens.shape, self.compute_dtype),
            keras.KerasTensor((batch, self._count(length)), "int32"),
        )

    def _count(self, length):
        return round(self.rate * length)

    def get_config(self):
        return {
            **super().get_config(),
            "rate": self.rate,
            "mask_rate": self.mask_rate,
            "replace_rate": self.replace_rate,
        }
