"""The ResNets of the paper: the stem of a hybrid, BiT (arXiv 1912.11370) and Axial-ResNet."""

from __future__ import annotations

import keras

from keras_vit.configs import (
    DEFAULT_IMAGE_SIZE,
    AxialResNetConfig,
    BiTConfig,
    PoolingStem,
    ResNetStem,
)
from keras_vit.layers import (
    AxialUnit,
    GroupNorm,
    PoolingUnit,
    PostActivationUnit,
    PreActivationUnit,
    StandardizedConv2D,
    class_scores,
)


def resnet_stem(stem: ResNetStem | PoolingStem, images):
    """Returns the feature map of the ResNet in front of a hybrid; paper, section 3.1.

    As in the official code: standardised convolutions, GroupNorm with epsilon 1e-6, "same"
    padding in convolution and pool, activation after the addition. A `PoolingStem` differs from
    a `ResNetStem` in its root and its units.

    Args:
        stem: The ResNet.
        images: A Keras tensor `(B, H, W, C)`; H and W may be unknown.

    Returns:
        A Keras tensor `(B, ceil(H / stem.stride), ceil(W / stem.stride), stem.channels)`.
    """
    if isinstance(stem, PoolingStem):
        x = _root(stem, images, kernel_size=3, strides=1, groups=stem.groups)  # (B, H, W, C)
        for block, width in enumerate(stem.widths, 1):
            x = PoolingUnit(width, stem.epsilon_in, name=f"block_{block}_unit_1")(x)
        return x
    x = _root(stem, images, kernel_size=7, strides=2)
    x = keras.layers.MaxPooling2D(3, 2, padding="same", name="root_pool")(x)  # (B, H/4, W/4, C)
    for block, num_units in enumerate(stem.num_blocks):
        for unit in range(num_units):
            x = PostActivationUnit(
                filters=stem.width * 2**block,
                strides=2 if block > 0 and unit == 0 else 1,
                epsilon_in=stem.epsilon_in,
                name=f"block_{block + 1}_unit_{unit + 1}",
            )(x)
    return x


def _root(stem, images, kernel_size, strides, groups=32):
    x = StandardizedConv2D(
        stem.width, kernel_size, strides, epsilon_in=stem.epsilon_in, name="root_conv"
    )(images)
    x = GroupNorm(groups, epsilon=1e-6, name="root_norm")(x)
    return keras.layers.ReLU(name="root_relu")(x)


def build_resnet(config: BiTConfig, images):
    """Returns the feature map of a BiT ResNet or an Axial-ResNet.

    BiT is ResNet v2 with GroupNorm (epsilon 1e-5) for BatchNorm and standardised convolutions.
    All padding is with zeros and the same on every side, before the pool too: there is no ReLU
    in front of it, so a zero is not the smallest value and counts.

    An Axial-ResNet (paper, Appendix D.6) has row then column self-attention with relative
    positions for the 3x3 convolution of every unit (`keras_vit.layers.AxialUnit`). The 7x7
    convolution and the pool of the root stay. Where the convolution had stride 2, the
    attention sees the map before it, and an average over 2x2 positions follows.

    Counted by hand, an axial unit with C filters on a map of n x n loses the 9 C^2 parameters
    of the convolution, and gets 2 (4 C^2 + 4 C + (2 n - 1) C) of attention. The attention's
    pairs cost 2 n^3 (8 C + 6 k) FLOPs with k heads: on both axes n lines of n^2 pairs, each
    with 2 C for logits, about 4 C and k for positions, 2 C for values and 5 k for the softmax.

    Args:
        config: The architecture.
        images: A Keras tensor `(B, H, W, C)`; H and W may be unknown, and an Axial-ResNet's tables
            of positions are then made for 224 pixels per side.

    Returns:
        A Keras tensor `(B, ceil(H / 32), ceil(W / 32), 2048 * width_factor)` after the last
        norm and ReLU, for four blocks.
    """
    x = StandardizedConv2D(
        config.width, kernel_size=7, strides=2, padding=3, epsilon_in="variance", name="root_conv"
    )(images)
    x = keras.layers.ZeroPadding2D(1, name="root_padding")(x)
    x = keras.layers.MaxPooling2D(3, 2, name="root_pool")(x)  # (B, H/4, W/4, width)
    side = -(-DEFAULT_IMAGE_SIZE // 4)  # Positions per side; a part of a stride counts as one.
    for block, num_units in enumerate(config.num_blocks):
        for unit in range(num_units):
            filters, strides = config.width * 2**block, 2 if block > 0 and unit == 0 else 1
            name = f"block_{block + 1}_unit_{unit + 1}"
            if isinstance(config, AxialResNetConfig):
                grid = [positions or side for positions in x.shape[1:3]]
                x = AxialUnit(filters, config.num_heads, grid, strides, name=name)(x)
            else:
                x = PreActivationUnit(filters, strides, name=name)(x)
            side = -(-side // strides)
    x = GroupNorm(epsilon=1e-5, name="final_norm")(x)
    return keras.layers.ReLU(name="final_relu")(x)


def resnet_head(config: BiTConfig, x, include_top, pooling, classes, activation):
    """Returns class scores, or features without a classification head.

    Args:
        config: The architecture.
        x: The feature map `(B, h, w, C)` of `build_resnet`.
        include_top: Whether to end with the classification head.
        pooling: Without the head: None, "avg" or "max".
        classes: Classes of the head, K.
        activation: Activation of the head, or None for logits.

    Returns:
        A Keras tensor: `(B, K)` float32; without the head `(B, h, w, C)`, or `(B, C)` if pooled.
    """
    if pooling == "max":
        return keras.layers.GlobalMaxPooling2D(name="max_pool")(x)
    if include_top or pooling == "avg":
        x = keras.layers.GlobalAveragePooling2D(name="avg_pool")(x)
    if not include_top:
        return x
    x = keras.layers.Identity(name="representation")(x)  # As in `vit_head`.
    return class_scores(x, classes, activation, config.head_bias)
