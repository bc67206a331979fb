"""Tokens of a Vision Transformer: patches, class token, registers, and the map they form."""

import keras
from keras import ops

from keras_vit.layers.base_layers import add_table, arguments
from keras_vit.layers.random_numbers import DrawsByExample, named_seed, random_bits


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchEmbedding(keras.layers.Conv2D):
    """Projects each patch of an image to a token; paper, equation 1.

    The same as a `keras.layers.Conv2D` whose strides are its kernel size, without padding,
    and with its weights. Patches do not overlap, so that they are the rows of a matrix and
    the projection is one product, which TensorFlow computes faster on CPUs.

    Args:
        dim: Token size, D.
        patch_size: Pixels (height, width) of a patch, P.
        **kwargs: Passed to `keras.layers.Conv2D`: initializers, regularizers, constraints.

    Input shape:
        `(B, H, W, C)`; a remainder smaller than a patch is cut off at the right and below.

    Output shape:
        `(B, H/P, W/P, D)`.

    Example:
    >>> embedding = PatchEmbedding(768, (16, 16))
    >>> tuple(embedding(keras.ops.zeros((2, 224, 224, 3))).shape)
    (2, 14, 14, 768)
    """

    def __init__(self, dim, patch_size, **kwargs):
        kwargs.setdefault("kernel_initializer", "lecun_normal")
        super().__init__(dim, patch_size, patch_size, data_format="channels_last", **kwargs)

    def call(self, images):
        patch_height, patch_width = self.kernel_size
        _, height, width, channels = ops.shape(images)
        rows, columns = height // patch_height, width // patch_width
        if None in images.shape[1:3] or height % patch_height or width % patch_width:
            images = images[:, : rows * patch_height, : columns * patch_width]
        # Four dimensions, as some runtimes transpose no more.
        x = ops.reshape(images, (-1, patch_height, columns, patch_width * channels))
        x = ops.transpose(x, (0, 2, 1, 3))
        x = ops.reshape(x, (-1, patch_height * patch_width * channels))
        x = ops.add(ops.matmul(x, ops.reshape(self.kernel, (-1, self.filters))), self.bias)
        return ops.reshape(x, (-1, rows, columns, self.filters))

    def get_config(self):
        kinds = ("_initializer", "_regularizer", "_constraint")
        options = {k: v for k, v in super().get_config().items() if k.endswith(kinds)}
        sizes = {"dim": self.filters, "patch_size": self.kernel_size}
        return {**keras.layers.Layer.get_config(self), **options, **sizes}


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassToken(keras.layers.Layer):
    """Puts a learned token in front of the sequence; paper, equation 1, x_class.

    Starts at zero, as in the official code.

    Args:
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        `(B, N, D)`: batch, tokens, token size.

    Output shape:
        `(B, N + 1, D)`.

    Example:
    >>> tuple(ClassToken()(keras.ops.zeros((2, 196, 192))).shape)
    (2, 197, 192)
    """

    def build(self, input_shape):
        self.token = self.add_weight(
            shape=(1, 1, input_shape[-1]), initializer="zeros", name="token"
        )

    def call(self, tokens):
        batch, _, dim = ops.shape(tokens)
        token = ops.broadcast_to(ops.cast(self.token, tokens.dtype), (batch, 1, dim))
        return ops.concatenate([token, tokens], axis=1)


@keras.saving.register_keras_serializable(package="keras_vit")
class Registers(keras.layers.Layer):
    """Puts learned tokens between the class token and the patches (arXiv 2309.16588).

    They take part in every block, have no position, and are read by no head. Values start
    normal with standard deviation 0.02: tokens that start equal would stay equal.

    Args:
        num_registers: Tokens to add, R.
        num_prefix_tokens: Tokens in front, which keep their place.
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        `(B, N, D)`: batch, tokens, token size.

    Output shape:
        `(B, N + R, D)`.

    Example:
    >>> tuple(Registers(4, num_prefix_tokens=1)(keras.ops.zeros((2, 197, 192))).shape)
    (2, 201, 192)
    """

    def __init__(self, num_registers, num_prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        self.num_registers = num_registers
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, input_shape):
        self.tokens = add_table(self, "tokens", (1, self.num_registers, input_shape[-1]))

    def call(self, tokens):
        batch, _, dim = ops.shape(tokens)
        registers = ops.broadcast_to(
            ops.cast(self.tokens, tokens.dtype), (batch, self.num_registers, dim)
        )
        prefix = self.num_prefix_tokens
        return ops.concatenate([tokens[:, :prefix], registers, tokens[:, prefix:]], axis=1)

    def get_config(self):
        names = ("num_registers", "num_prefix_tokens")
        return {**super().get_config(), **arguments(self, *names)}


@keras.saving.register_keras_serializable(package="keras_vit")
class TakeTokens(keras.layers.Layer):
    """Takes one token, or several, out of a sequence.

    The slice of a Keras tensor would be an operation, which Keras's `RematScope` and its older
    `.h5` files do not take.

    Args:
        start: Place of the first token.
        stop: Place behind the last one; None for all.
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        `(B, N, D)`: batch, tokens, token size.

    Output shape:
        `(B, stop - start, D)`; `(B, D)` for one token.

    Example:
    >>> tuple(TakeTokens(0, 1)(keras.ops.zeros((2, 197, 192))).shape)
    (2, 192)
    """

    def __init__(self, start, stop=None, **kwargs):
        super().__init__(**kwargs)
        self.start = start
        self.stop = stop

    def call(self, tokens):
        is_one = self.stop == self.start + 1
        return tokens[:, self.start] if is_one else tokens[:, self.start : self.stop]

    def get_config(self):
        return {**super().get_config(), "start": self.start, "stop": self.stop}


@keras.saving.register_keras_serializable(package="keras_vit")
class TokensToMap(keras.layers.Layer):
    """Lays the patch tokens out as a feature map, as every Keras application returns.

    Args:
        num_prefix_tokens: Tokens in front of the patches, which are left out.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, N, D)`: batch, tokens, token size; N counts the prefix.
        patches: The map `(B, down, across, D)` that the tokens were made of; only its
            shape is read.

    Output shape:
        `(B, down, across, D)`.

    Example:
    >>> tokens, patches = keras.ops.zeros((2, 197, 192)), keras.ops.zeros((2, 14, 14, 192))
    >>> tuple(TokensToMap(num_prefix_tokens=1)(tokens, patches).shape)
    (2, 14, 14, 192)
    """

    def __init__(self, num_prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        self.num_prefix_tokens = num_prefix_tokens

    def call(self, tokens, patches):
        _, down, across, dim = ops.shape(patches)
        return ops.reshape(tokens[:, self.num_prefix_tokens :], (-1, down, across, dim))

    def compute_output_shape(self, tokens_shape, patches_shape):
        # Written out, as JAX cannot infer that there is a token for each patch.
        return (tokens_shape[0], *patches_shape[1:])

    def get_config(self):
        return {**super().get_config(), "num_prefix_tokens": self.num_prefix_tokens}


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchCorruption(DrawsByExample, keras.layers.Layer):
    """Corrupts a share of the patch embeddings; paper, Appendix B.1.2.

    In each image `round(rate * N)` patches are drawn. The embedding of a drawn patch becomes
    the learned [mask] embedding with probability 0.8, another patch's embedding with
    probability 0.1, and is unchanged otherwise.

    The paper does not define the other patch. Here it is one of the same image
    that was not drawn: an image's result then depends on no other image, and the pixels of a
    patch that was masked or replaced appear nowhere else.

    In inference the same patches are drawn in every call, so that an evaluation repeats.

    Args:
        rate: Share of the patches, in (0, 1).
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        tokens: `(B, N, D)`: batch, patches without learned tokens, token size.
        training: Whether to draw from the layer's own generator.

    Output shape:
        A pair: the tokens `(B, N, D)`, and the places of the drawn patches, int32 `(B, n)`.

    Raises:
        ValueError: If the share is out of range; on build, if N is unknown or so small that no
            patch would be corrupted, or none left.

    Example:
    >>> tokens, places = PatchCorruption(0.5)(keras.ops.zeros((2, 196, 192)))
    >>> tuple(tokens.shape), tuple(places.shape)
    ((2, 196, 192), (2, 98))
    """

    mask_rate, replace_rate = 0.8, 0.1  # Shares of the drawn patches.

    def __init__(self, rate=0.5, **kwargs):
        super().__init__(**kwargs)
        if not 0 < rate < 1:
            raise ValueError(f"rate must be in (0, 1). Received: rate={rate}")
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator()

    def build(self, input_shape):
        length = input_shape[1]
        if length is None or not 0 < self._count(length) < length:
            raise ValueError(
                "The corruption must take at least one of the patches and leave one. "
                f"Received: rate={self.rate} of {length} patches"
            )
        self.mask = add_table(self, "mask", (1, 1, input_shape[-1]))

    def call(self, tokens, training=False):
        batch, length = ops.shape(tokens)[0], tokens.shape[1]
        count = self._count(length)
        generator = self.seed_generator
        seed = generator.next() if training else ops.zeros((2,), generator.state.dtype)

        def drawn(use):
            """Returns float32 numbers in [0, 1), one for each patch."""
            bits = ops.right_shift(random_bits((batch, length), named_seed(seed, use)), 8)
            return ops.cast(bits, "float32") * 2.0**-24

        order = ops.argsort(drawn("order"))
        places, left = order[:, :count], order[:, count:]
        donor = ops.cast(ops.floor(drawn("donor") * (length - count)), "int32")
        donor = ops.take_along_axis(left, donor, axis=1)
        others = ops.take_along_axis(tokens, donor[..., None], axis=1)
        kind = drawn("kind")
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
        return {**super().get_config(), "rate": self.rate}
