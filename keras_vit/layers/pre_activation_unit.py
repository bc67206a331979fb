"""The residual unit of a BiT ResNet."""

import keras

from keras_vit.layers.group_norm import GroupNorm
from keras_vit.layers.standardized_conv import StandardizedConv2D


@keras.saving.register_keras_serializable(package="keras_vit")
class PreActivationUnit(keras.layers.Layer):
    """A bottleneck unit that starts with norm and ReLU (ResNet v2), as in BiT.

        a = relu(norm_1(x))
        y = conv_1(a)                           1x1
        y = conv_2(relu(norm_2(y)))             3x3, with the stride
        y = conv_3(relu(norm_3(y)))             1x1, to 4 times the filters
        output = x + y

    Where the shape changes, `conv_projection(a)` stands for x. GroupNorm has 32 groups and
    epsilon 1e-5 (Keras's default is 1e-3); the 3x3 convolution is padded with one zero on
    every side.

    Args:
        filters: Channels of the bottleneck; the output has 4 times as many.
        strides: Pixels between two outputs.
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        `(B, H, W, C)`.

    Output shape:
        `(B, ceil(H / strides), ceil(W / strides), 4 * filters)`.

    Example:
    >>> unit = PreActivationUnit(filters=64, strides=2)
    >>> tuple(unit(keras.ops.zeros((2, 57, 56, 64))).shape)
    (2, 29, 28, 256)
    """

    def __init__(self, filters, strides=1, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides

    def build(self, input_shape):
        wide = 4 * self.filters
        narrow_shape = (*input_shape[:-1], self.filters)
        self.norm_1, self.norm_2, self.norm_3 = (
            GroupNorm(epsilon=1e-5, dtype=self.dtype_policy, name=f"norm_{index}")
            for index in (1, 2, 3)
        )
        self.conv_1 = self._conv(self.filters, "conv_1")
        self.conv_2 = self.make_spatial_layer()
        self.conv_3 = self._conv(wide, "conv_3")
        for part in (self.norm_1, self.conv_1):
            part.build(input_shape)
        for part in (self.norm_2, self.conv_2, self.norm_3, self.conv_3):
            part.build(narrow_shape)
        self.projects = self.strides != 1 or input_shape[-1] != wide
        if self.projects:
            self.conv_projection = self._conv(wide, "conv_projection", strides=self.strides)
            self.conv_projection.build(input_shape)

    def call(self, x):
        shortcut, y = self.narrow(x)
        return shortcut + self.widen(self.conv_2(y))

    def narrow(self, x):
        """Returns the shortcut, and what the spatial layer gets."""
        activated = keras.ops.relu(self.norm_1(x))
        shortcut = self.conv_projection(activated) if self.projects else x
        return shortcut, keras.ops.relu(self.norm_2(self.conv_1(activated)))

    def widen(self, y):
        """Returns what is added to the shortcut, from what the spatial layer gives."""
        return self.conv_3(keras.ops.relu(self.norm_3(y)))

    def make_spatial_layer(self):
        """Returns the only layer that mixes positions, which a variant of the unit replaces."""
        return self._conv(self.filters, "conv_2", 3, self.strides, padding=1)

    def _conv(self, filters, name, kernel_size=1, strides=1, padding=0):
        return StandardizedConv2D(
            filters,
            kernel_size,
            strides,
            padding,
            epsilon_in="variance",
            dtype=self.dtype_policy,
            name=name,
        )

    def compute_output_shape(self, input_shape):
        # Said, not traced: JAX cannot see that a 1x1 and a 3x3 kernel give maps of one size.
        down, across = (
            None if side is None else -(-side // self.strides) for side in input_shape[1:3]
        )
        return (input_shape[0], down, across, 4 * self.filters)

    def get_config(self):
        return {**super().get_config(), "filters": self.filters, "strides": self.strides}
