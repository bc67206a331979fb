"""The ResNet that the paper compares with: BiT (arXiv 1912.11370)."""

import keras

from keras_vit.configs import BiTConfig
from keras_vit.layers import GroupNorm, PreActivationUnit, StandardizedConv2D
from keras_vit.models.head import classify


def build_bit(config: BiTConfig, images, *, include_top, pooling, classes, classifier_activation):
    """Returns the output of a BiT ResNet for its input.

    ResNet v2 with GroupNorm (epsilon 1e-5) for BatchNorm and standardised convolutions. All
    padding is with zeros and the same on every side, before the pool too: no ReLU stands
    there, so a zero is not the least value and counts.

    Args:
        config: The architecture.
        images: A Keras tensor `(B, H, W, C)`; H and W may be unknown.
        include_top: Whether to end with the classification head.
        pooling: Without the head: None, "avg" or "max".
        classes: Classes of the head.
        classifier_activation: Activation of the head, or None for logits.

    Returns:
        A Keras tensor: `(B, classes)` float32; without the head
        `(B, ceil(H / 32), ceil(W / 32), 2048 * width_factor)` after the last norm and ReLU,
        or `(B, 2048 * width_factor)` if pooled.
    """
    x = root(config, images)
    for block, unit, strides in units(config):
        x = PreActivationUnit(
            filters=config.width * 2**block,
            strides=strides,
            name=f"block_{block + 1}_unit_{unit + 1}",
        )(x)
    return read_features(
        config,
        x,
        include_top=include_top,
        pooling=pooling,
        classes=classes,
        classifier_activation=classifier_activation,
    )


def root(config, images):
    """Returns the feature map `(B, ceil(H / 4), ceil(W / 4), width)` in front of the blocks."""
    x = StandardizedConv2D(
        config.width, kernel_size=7, strides=2, padding=3, epsilon_in="variance", name="root_conv"
    )(images)
    x = keras.layers.ZeroPadding2D(1, name="root_padding")(x)
    return keras.layers.MaxPooling2D(3, 2, name="root_pool")(x)


def units(config):
    """Yields the block, the index in the block and the stride of every unit."""
    for block, num_units in enumerate(config.num_blocks):
        for unit in range(num_units):
            yield block, unit, 2 if block > 0 and unit == 0 else 1


def read_features(config, x, *, include_top, pooling, classes, classifier_activation):
    """Returns the output of a ResNet for the feature map of its last unit."""
    x = GroupNorm(epsilon=1e-5, name="final_norm")(x)
    x = keras.layers.ReLU(name="final_relu")(x)

    if pooling == "max":
        return keras.layers.GlobalMaxPooling2D(name="max_pool")(x)
    if include_top or pooling == "avg":
        x = keras.layers.GlobalAveragePooling2D(name="avg_pool")(x)
    if not include_top:
        return x
    return classify(x, classes, classifier_activation, config.head_bias)
