"""GroupNorm on tensors of rank 4 at most."""

import keras


@keras.saving.register_keras_serializable(package="keras_vit")
class GroupNorm(keras.layers.GroupNormalization):
    """GroupNorm of a map, as Keras's, with rows and columns in one axis.

    Keras splits the channels of `(B, H, W, C)` into a fifth axis, which the integer and GPU
    units of phones do not take. With `(B, H W, C)` there are four; the mean over a group is the
    same.

    Args:
        **kwargs: Passed to `keras.layers.GroupNormalization`, such as `epsilon`.

    Input shape:
        `(B, H, W, C)`: a map; the groups divide C.

    Output shape:
        `(B, H, W, C)`.

    Example:
    >>> norm = GroupNorm(groups=2)
    >>> tuple(norm(keras.ops.zeros((1, 4, 4, 6))).shape)
    (1, 4, 4, 6)
    """

    def call(self, inputs):
        _, height, width, channels = inputs.shape
        if height is None or width is None:
            return super().call(inputs)
        lines = keras.ops.reshape(inputs, (-1, height * width, channels))
        return keras.ops.reshape(super().call(lines), (-1, height, width, channels))
