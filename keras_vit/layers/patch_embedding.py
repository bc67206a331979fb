"""The embedding of an image's patches."""

import keras
from keras import ops

# What a convolution may choose and an embedding of patches may not.
_FIXED = (
    "filters",
    "kernel_size",
    "strides",
    "padding",
    "data_format",
    "dilation_rate",
    "groups",
    "activation",
    "use_bias",
)


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
        `(B, H, W, C)`; a rest that makes no whole patch is left out.

    Output shape:
        `(B, H/P, W/P, D)`.

    Example:
    >>> embedding = PatchEmbedding(768, (16, 16))
    >>> tuple(embedding(keras.ops.zeros((2, 224, 224, 3))).shape)
    (2, 14, 14, 768)
    """

    def __init__(self, dim, patch_size, **kwargs):
        kwargs.setdefault("kernel_initializer", "lecun_normal")
        super().__init__(dim, patch_size, patch_size, **kwargs)

    def call(self, images):
        patch_height, patch_width = self.kernel_size
        _, height, width, channels = ops.shape(images)
        rows, columns = height // patch_height, width // patch_width
        if None in images.shape[1:3] or height % patch_height or width % patch_width:
            images = images[:, : rows * patch_height, : columns * patch_width]
        # Four dimensions are enough, and the most that some runtimes transpose.
        x = ops.reshape(images, (-1, patch_height, columns, patch_width * channels))
        x = ops.transpose(x, (0, 2, 1, 3))
        x = ops.reshape(x, (-1, patch_height * patch_width * channels))
        x = ops.add(ops.matmul(x, ops.reshape(self.kernel, (-1, self.filters))), self.bias)
        return ops.reshape(x, (-1, rows, columns, self.filters))

    def get_config(self):
        config = super().get_config()
        for name in _FIXED:
            del config[name]
        return {**config, "dim": self.filters, "patch_size": self.kernel_size}
