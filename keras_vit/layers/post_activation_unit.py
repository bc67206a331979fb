"""The residual unit of a hybrid's ResNet."""

import keras

from keras_vit.layers.group_norm import GroupNorm
from keras_vit.layers.standardized_conv import StandardizedConv2D


@keras.saving.register_keras_serializable(package="keras_vit")
class PostActivationUnit(keras.layers.Layer):
    """A bottleneck unit that ends with ReLU (ResNet v1), as in the official ViT hybrids.

        y = relu(norm_1(conv_1(x)))             1x1
        y = relu(norm_2(conv_2(y)))             3x3, with the stride
        y = norm_3(conv_3(y))                   1x1, to 4 times the filters
        output = relu(x + y)

    Where the shape changes, `norm_projection(conv_projection(x))` stands for x. The scale
    of the last norm starts at zero, so that the unit starts as its shortcut. GroupNorm has
    32 groups and epsilon 1e-6 (Keras's default is 1e-3); padding is "same".

    Args:
        filters: Channels of the bottleneck; the output has 4 times as many.
        strides: Pixels between two outputs.
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        `(B, H, W, C)`.

    Output shape:
        `(B, ceil(H / strides), ceil(W / strides), 4 * filters)`.

    Example:
    >>> unit = PostActivationUnit(filters=64, strides=2)
    >>> tuple(unit(keras.ops.zeros((2, 57, 56, 64))).shape)
    (2, 29, 28, 256)
    """

    def __init__(self, filters, strides=1, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides

    def build(self, input_shape):
        wide = 4 * self.filters
        self.conv_1, self.norm_1 = self._conv_and_norm(self.filters, 1, 1, "1")
        self.conv_2, self.norm_2 = self._conv_and_norm(self.filters, 3, self.strides, "2")
        self.conv_3, self.norm_3 = self._conv_and_norm(wide, 1, 1, "3", gamma_initializer="zeros")
        self.conv_1.build(input_shape)
        for conv in (self.conv_2, self.conv_3):
            conv.build((*input_shape[:-1], self.filters))
        for norm, channels in (
            (self.norm_1, self.filters),
            (self.norm_2, self.filters),
            (self.norm_3, wide),
        ):
            norm.build((*input_shape[:-1], channels))
        self.projects = self.strides != 1 or input_shape[-1] != wide
        if self.projects:
            self.conv_projection, self.norm_projection = self._conv_and_norm(
                wide, 1, self.strides, "projection"
            )
            self.conv_projection.build(input_shape)
            self.norm_projection.build((*input_shape[:-1], wide))

    def call(self, x):
        shortcut = self.norm_projection(self.conv_projection(x)) if self.projects else x
        y = keras.ops.relu(self.norm_1(self.conv_1(x)))
        y = keras.ops.relu(self.norm_2(self.conv_2(y)))
        y = self.norm_3(self.conv_3(y))
        return keras.ops.relu(shortcut + y)

    def _conv_and_norm(self, filters, kernel_size, strides, suffix, gamma_initializer="ones"):
        conv = StandardizedConv2D(
            filters, kernel_size, strides, dtype=self.dtype_policy, name=f"conv_{suffix}"
        )
        norm = GroupNorm(
            epsilon=1e-6,
            gamma_initializer=gamma_initializer,
            dtype=self.dtype_policy,
            name=f"norm_{suffix}",
        )
        return conv, norm

    def compute_output_shape(self, input_shape):
        # Said, not traced: JAX cannot see that a 1x1 and a 3x3 kernel give maps of one size.
        down, across = (
            None if side is None else -(-side // self.strides) for side in input_shape[1:3]
        )
        return (input_shape[0], down, across, 4 * self.filters)

    def get_config(self):
        return {**super().get_config(), "filters": self.filters, "strides": self.strides}
