"""The Vision Transformer, from the image to its class scores; paper, equations 1 to 4."""

import keras

from keras_vit.configs import ViTConfig
from keras_vit.layers import ClassToken, Dropout, LayerNorm, PatchEmbedding, Registers
from keras_vit.models.head import read_tokens
from keras_vit.models.positions import encoder_block, position_embeddings, table_grid


def build_vit(config: ViTConfig, images, *, include_top, pooling, classes, classifier_activation):
    """Returns the output of a Vision Transformer for its input.

    Args:
        config: The architecture.
        images: A Keras tensor `(B, H, W, C)`; H and W may be unknown.
        include_top: Whether to end with the classification head.
        pooling: Without the head: None, "token", "avg" or "max".
        classes: Classes of the head.
        classifier_activation: Activation of the head, or None for logits.

    Returns:
        A Keras tensor: `(B, classes)` float32; without the head `(B, H/P, W/P, D)`, or
        `(B, D)` if pooled.
    """
    patches, z = patch_tokens(config, images)
    add_at_input, add_at_block = position_embeddings(config, patches)
    z = add_at_input(z)  # Equation 1.
    z = Dropout(config.dropout_rate, name="dropout")(z)
    for index in range(config.depth):
        z = add_at_block[index](z)
        block = encoder_block(
            config,
            f"encoder_block_{index}",
            table_grid(config, patches),
            patches,
            config.stochastic_depth_rates[index],
        )
        z = block(z)  # Equations 2 and 3.
    z = LayerNorm(config.norm_epsilon, name="encoder_norm")(z)
    return read_tokens(  # Equation 4 and the head.
        config,
        z,
        patches,
        include_top=include_top,
        pooling=pooling,
        classes=classes,
        classifier_activation=classifier_activation,
    )


def patch_tokens(config: ViTConfig, images):
    """Returns the patches of an image as a map, and as tokens behind the learned ones.

    Args:
        config: The architecture.
        images: A Keras tensor `(B, H, W, C)`; H and W may be unknown.

    Returns:
        Keras tensors `(B, H/P, W/P, D)` and `(B, N + 1, D)`.
    """
    # (B, H/P, W/P, D)
    patches = PatchEmbedding(config.width, config.patch_sizes, name="patch_embedding")(images)
    z = keras.layers.Reshape((-1, config.width), name="patch_tokens")(patches)  # (B, N, D)
    for name in reversed(config.class_tokens):
        z = ClassToken(name=name)(z)  # (B, N + 1, D)
    if config.num_registers:
        z = Registers(config.num_registers, len(config.class_tokens), name="registers")(z)
    return patches, z
