"""The hybrid: a Vision Transformer on the feature map of a ResNet; paper, section 3.1."""

import keras

from keras_vit.configs import ViTConfig
from keras_vit.layers import GroupNorm, PostActivationUnit, StandardizedConv2D
from keras_vit.models.vit import build_vit


def build_hybrid_vit(
    config: ViTConfig, images, *, include_top, pooling, classes, classifier_activation
):
    """Returns the output of a hybrid for its input.

    The arguments and the result are those of `build_vit`; the patches are of the ResNet's
    feature map.
    """
    return build_vit(
        config,
        resnet_features(config.resnet, images),
        include_top=include_top,
        pooling=pooling,
        classes=classes,
        classifier_activation=classifier_activation,
    )


def resnet_features(stem, images):
    """Returns the feature map of the ResNet in front of a hybrid.

    As in the official code: standardised convolutions, GroupNorm with epsilon 1e-6, "same"
    padding in convolution and pool, activation after the addition.

    Args:
        stem: The `ResNetStem`.
        images: A Keras tensor `(B, H, W, C)`; H and W may be unknown.

    Returns:
        A Keras tensor `(B, ceil(H / stem.stride), ceil(W / stem.stride), stem.channels)`.
    """
    x = StandardizedConv2D(stem.width, kernel_size=7, strides=2, name="root_conv")(images)
    x = GroupNorm(epsilon=1e-6, name="root_norm")(x)
    x = keras.layers.ReLU(name="root_relu")(x)
    x = keras.layers.MaxPooling2D(3, 2, padding="same", name="root_pool")(x)  # (B, H/4, W/4, C)
    for block, num_units in enumerate(stem.num_blocks):
        for unit in range(num_units):
            x = PostActivationUnit(
                filters=stem.width * 2**block,
                strides=2 if block > 0 and unit == 0 else 1,
                name=f"block_{block + 1}_unit_{unit + 1}",
            )(x)
    return x
