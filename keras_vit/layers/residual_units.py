"""The convolution and the residual units of the paper's ResNets."""

import keras
import numpy as np
from keras import ops

from keras_vit.configs.resnet_configs import PoolingStem
from keras_vit.layers.base_layers import CompositeLayer, arguments
from keras_vit.layers.fused import add_branch
from keras_vit.layers.norms import GroupNorm

# The place of epsilon in the formula, and its value in the official training code.
EPSILONS = {"deviation": 1e-5, "variance": 1e-10}


@keras.saving.register_keras_serializable(package="keras_vit")
class StandardizedConv2D(keras.layers.Layer):
    """A 2D convolution without bias, whose kernel is standardised (Qiao et al., 2019).

    Each output filter has zero mean and unit variance (biased) over height, width and input
    channels. Two formulas are in use, and weights trained with one give wrong numbers with
    the other:

        "deviation":  (w - mean) / (sqrt(variance) + 1e-5)      hybrids, vision_transformer
        "variance":   (w - mean) / sqrt(variance + 1e-10)       BiT, big_transfer

    Statistics are float32 under every dtype policy. The kernel has the official shape
    `(height, width, C, filters)` and by default LeCun-normal values at the start.

    Args:
        filters: Output channels.
        kernel_size: Pixels per side of the kernel.
        strides: Pixels between two outputs.
        padding: "same", which for even sizes puts one zero more at the right and below, as
            TensorFlow and JAX do, or a number of zeros on every side, as PyTorch does.
        epsilon_in: "deviation" or "variance", the formula.
        kernel_initializer: The kernel's values at the start.
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        `(B, H, W, C)`; H and W may be unknown.

    Output shape:
        `(B, ceil(H / strides), ceil(W / strides), filters)` for "same"; else
        `(B, (H + 2 padding - kernel_size) // strides + 1, ..., filters)`.

    Example:
    >>> conv = StandardizedConv2D(64, kernel_size=7, strides=2)
    >>> tuple(conv(keras.ops.zeros((2, 97, 65, 3))).shape)
    (2, 49, 33, 64)
    """

    def __init__(
        self,
        filters,
        kernel_size,
        strides=1,
        padding="same",
        epsilon_in="deviation",
        kernel_initializer="lecun_normal",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.kernel_size = kernel_size
        self.strides = strides
        self.padding = padding
        self.epsilon_in = epsilon_in
        # A name stays one until the kernel is made: making the object draws a seed.
        self.kernel_initializer = kernel_initializer

    def build(self, input_shape):
        self.kernel = self.add_weight(
            shape=(self.kernel_size, self.kernel_size, input_shape[-1], self.filters),
            initializer=self.kernel_initializer,
            autocast=False,  # Half precision would round the statistics.
            name="kernel",
        )

    def call(self, images):
        padding = self.padding
        if padding != "same":
            zeros = (padding, padding)
            images = ops.pad(images, ((0, 0), zeros, zeros, (0, 0))) if padding else images
            padding = "valid"
        kernel = ops.cast(self.standardized_kernel(), images.dtype)
        return ops.conv(images, kernel, self.strides, padding=padding, data_format="channels_last")

    def standardized_kernel(self):
        """Returns the kernel that images are convolved with, float32."""
        kernel = ops.cast(self.kernel, "float32")
        centred = kernel - ops.mean(kernel, axis=(0, 1, 2))
        variance = ops.mean(ops.square(centred), axis=(0, 1, 2))
        epsilon = EPSILONS[self.epsilon_in]
        if self.epsilon_in == "variance":
            return centred / ops.sqrt(variance + epsilon)
        return centred / (ops.sqrt(variance) + epsilon)

    def get_config(self):
        initializer = self.kernel_initializer
        if isinstance(initializer, keras.initializers.Initializer):
            initializer = keras.initializers.serialize(initializer)
        names = ("filters", "kernel_size", "strides", "padding", "epsilon_in")
        config = {**super().get_config(), **arguments(self, *names)}
        return {**config, "kernel_initializer": initializer}


@keras.saving.register_keras_serializable(package="keras_vit")
class PassingKernel(keras.initializers.Initializer):
    """LeCun-normal values, with filters in front that pass the input channels on.

    Of a kernel `(height, width, C, filters)` of odd size, the first min(C, filters) filters are 1
    at their own channel in the middle and 0 elsewhere, as `torch.nn.init.dirac_`.
    """

    def __call__(self, shape, dtype=None):
        height, width, channels, filters = shape
        values = keras.initializers.LecunNormal()(shape, dtype)
        passing = np.zeros(shape, "float32")
        shared = range(min(channels, filters))
        passing[height // 2, width // 2, shared, shared] = 1
        is_random = (np.arange(filters) >= len(shared)).astype("float32")
        return keras.ops.add(keras.ops.multiply(values, is_random), passing)


class BottleneckUnit(CompositeLayer):
    """The arguments and the output shape of both residual units."""

    def __init__(self, filters, strides=1, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = strides

    def compute_output_shape(self, input_shape):
        # Written out, as JAX cannot infer that a 1x1 and a 3x3 kernel give maps of one size.
        down, across = (
            None if side is None else -(-side // self.strides) for side in input_shape[1:3]
        )
        return (input_shape[0], down, across, 4 * self.filters)

    def get_config(self):
        return {**super().get_config(), **arguments(self, "filters", "strides")}


@keras.saving.register_keras_serializable(package="keras_vit")
class PostActivationUnit(BottleneckUnit):
    """A bottleneck unit that ends with ReLU (ResNet v1), as in the official ViT hybrids.

        y = relu(norm_1(conv_1(x)))             1x1
        y = relu(norm_2(conv_2(y)))             3x3, with the stride
        y = norm_3(conv_3(y))                   1x1, to 4 times the filters
        output = relu(x + y)

    If the shape changes, `norm_projection(conv_projection(x))` replaces x. The scale
    of the last norm starts at zero, so that the unit starts as its shortcut. GroupNorm has
    32 groups and epsilon 1e-6 (Keras's default is 1e-3); padding is "same".

    Args:
        filters: Channels of the bottleneck; the output has 4 times as many.
        strides: Pixels between two outputs.
        epsilon_in: "deviation" or "variance"; see `StandardizedConv2D`.
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

    def __init__(self, filters, strides=1, epsilon_in="deviation", **kwargs):
        super().__init__(filters, strides, **kwargs)
        self.epsilon_in = epsilon_in

    def build(self, input_shape):
        wide, narrow_shape = 4 * self.filters, (*input_shape[:-1], self.filters)
        self.conv_1, self.norm_1 = _conv_and_norm(self, "1", input_shape, self.filters)
        self.conv_2, self.norm_2 = _conv_and_norm(
            self, "2", narrow_shape, self.filters, kernel_size=3, strides=self.strides
        )
        self.conv_3, self.norm_3 = _conv_and_norm(
            self, "3", narrow_shape, wide, gamma_initializer="zeros"
        )
        self.projects = self.strides != 1 or input_shape[-1] != wide
        if self.projects:
            self.conv_projection, self.norm_projection = _conv_and_norm(
                self, "projection", input_shape, wide, strides=self.strides
            )

    def call(self, x):
        shortcut = self.norm_projection(self.conv_projection(x)) if self.projects else x
        y = keras.ops.relu(self.norm_1(self.conv_1(x)))
        y = keras.ops.relu(self.norm_2(self.conv_2(y)))
        y = self.norm_3(self.conv_3(y))
        return keras.ops.relu(add_branch(shortcut, y))

    def get_config(self):
        return {**super().get_config(), "epsilon_in": self.epsilon_in}


def _conv_and_norm(
    unit, suffix, input_shape, filters, gamma_initializer="ones", groups=32, **kwargs
):
    """Returns a convolution of a unit of a hybrid's stem and the norm behind it, built."""
    kwargs = {"kernel_size": 1, "epsilon_in": unit.epsilon_in, **kwargs}
    conv = StandardizedConv2D(filters, dtype=unit.dtype_policy, name=f"conv_{suffix}", **kwargs)
    norm = GroupNorm(
        groups,
        epsilon=1e-6,
        gamma_initializer=gamma_initializer,
        dtype=unit.dtype_policy,
        name=f"norm_{suffix}",
    )
    conv.build(input_shape)
    norm.build((*input_shape[:-1], filters))
    return conv, norm


@keras.saving.register_keras_serializable(package="keras_vit")
class PoolingUnit(CompositeLayer):
    """Two 3x3 convolutions, with a pool behind the first and a residual over the second.

        x = relu(norm_1(max_pool(conv_1(x))))   3x3, to the filters; pool of 2x2 cells
        output = relu(x + norm_2(conv_2(x)))    3x3

    A block of airbench (arXiv 2404.00498) with a residual, and with GroupNorm and standardised
    convolutions for BatchNorm, so that an image's features depend on no other image. Kernels
    start as `PassingKernel` and the scale of the last norm at zero, so that the unit starts near
    the identity. GroupNorm has 8 groups and epsilon 1e-6; padding is "same".

    Args:
        filters: Channels of the output.
        epsilon_in: "deviation" or "variance"; see `StandardizedConv2D`.
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        `(B, H, W, C)`.

    Output shape:
        `(B, ceil(H / 2), ceil(W / 2), filters)`.

    Example:
    >>> unit = PoolingUnit(filters=64)
    >>> tuple(unit(keras.ops.zeros((2, 31, 32, 32))).shape)
    (2, 16, 16, 64)
    """

    def __init__(self, filters, epsilon_in="deviation", **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.epsilon_in = epsilon_in

    def build(self, input_shape):
        shape = (*input_shape[:-1], self.filters)
        options = {"kernel_size": 3, "groups": PoolingStem.groups}
        options["kernel_initializer"] = PassingKernel()
        self.conv_1, self.norm_1 = _conv_and_norm(self, "1", input_shape, self.filters, **options)
        self.conv_2, self.norm_2 = _conv_and_norm(
            self, "2", shape, self.filters, gamma_initializer="zeros", **options
        )

    def call(self, x):
        x = keras.ops.max_pool(self.conv_1(x), 2, 2, padding="same", data_format="channels_last")
        x = keras.ops.relu(self.norm_1(x))
        return keras.ops.relu(add_branch(x, self.norm_2(self.conv_2(x))))

    def get_config(self):
        return {**super().get_config(), **arguments(self, "filters", "epsilon_in")}


@keras.saving.register_keras_serializable(package="keras_vit")
class PreActivationUnit(BottleneckUnit):
    """A bottleneck unit that starts with norm and ReLU (ResNet v2), as in BiT.

        a = relu(norm_1(x))
        y = conv_1(a)                           1x1
        y = conv_2(relu(norm_2(y)))             3x3, with the stride
        y = conv_3(relu(norm_3(y)))             1x1, to 4 times the filters
        output = x + y

    If the shape changes, `conv_projection(a)` replaces x. GroupNorm has 32 groups and
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
        relu = keras.ops.relu
        activated = relu(self.norm_1(x))
        shortcut = self.conv_projection(activated) if self.projects else x
        y = self.conv_2(relu(self.norm_2(self.conv_1(activated))))
        return add_branch(shortcut, self.conv_3(relu(self.norm_3(y))))

    def make_spatial_layer(self):
        """Returns the only layer that mixes positions; `AxialUnit` has another one."""
        return self._conv(self.filters, "conv_2", 3, strides=self.strides, padding=1)

    def _conv(self, filters, name, kernel_size=1, **kwargs):
        kwargs = {"padding": 0, "epsilon_in": "variance", "dtype": self.dtype_policy, **kwargs}
        return StandardizedConv2D(filters, kernel_size, name=name, **kwargs)
