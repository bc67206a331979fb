"""The Vision Transformer, from the image to its class scores; paper, equations 1 to 4."""

from __future__ import annotations

import keras

from keras_vit.configs import AxialConfig, ViTConfig
from keras_vit.layers import (
    AttentionPooling,
    ClassToken,
    Dropout,
    EncoderBlock,
    JoinLines,
    LayerNorm,
    PatchEmbedding,
    PositionEmbedding,
    PositionEmbedding2D,
    Registers,
    RelativeEncoderBlock,
    SplitLines,
    TakeTokens,
    TokensToMap,
    class_scores,
)
from keras_vit.models.resnet import resnet_stem


def build_vit(config: ViTConfig, images, grid: tuple[int, int]):
    """Returns the tokens and the patches of an image.

    Args:
        config: The architecture, an Axial-ViT or a hybrid too.
        images: A Keras tensor `(B, H, W, C)`; H and W may be unknown.
        grid: Patches (h, w) that tables of positions are made for. If the image size is
            unknown, the layers resize their tables in the graph.

    Returns:
        Keras tensors: the tokens of the last block `(B, P + N, D)`, normalised except for the
        variants of `config.final_norm`, with the class token and registers in front of N = h w
        patches; and the embedded patches `(B, h, w, D)`, for their grid.
    """
    if config.resnet:
        images = resnet_stem(config.resnet, images)  # A feature map, (B, H/16, W/16, 1024).
    # The embedded patches, (B, h, w, D).
    patches = PatchEmbedding(config.width, config.patch_sizes, name="patch_embedding")(images)
    x = keras.layers.Reshape((-1, config.width), name="patch_tokens")(patches)  # (B, N, D)
    x = add_prefix_tokens(config, x)  # (B, P + N, D)

    positions = position_layers(config, grid)
    x = add_positions(positions[0], x, patches)  # Equation 1.
    x = Dropout(config.dropout_rate, name="embedding_dropout")(x)
    if config.embedding_norm:  # CLIP's.
        x = LayerNorm(config.norm_epsilon, name="embedding_norm")(x)
    for block in range(config.depth):
        if block > 0:
            x = add_positions(positions[block], x, patches)  # Variants of Table 8 only.
        if isinstance(config, AxialConfig):
            x = encode_axes(config, x, patches, block, grid)
        else:
            x = encode(config, x, patches, block, grid)  # Equations 2 and 3.
    if config.final_norm == "tokens":
        x = LayerNorm(config.norm_epsilon, name="encoder_norm")(x)  # Equation 4.
    return x, patches


def vit_head(config: ViTConfig, x, patches, include_top, pooling, classes, activation):
    """Returns class scores, or features without a classification head.

    The input of the linear layer is the output of the layer "representation", which computes
    nothing: `(B, D)`, or `(B, 2, D)` for the two heads of a distilled model.

    Args:
        config: The architecture.
        x: The tokens of the last block `(B, P + N, D)`.
        patches: The embedded patches `(B, h, w, D)`.
        include_top: Whether to end with the classification head.
        pooling: Without the head: None, "token", "avg", "max" or "map".
        classes: Classes of the head, K.
        activation: Activation of the head, or None for logits.

    Returns:
        A Keras tensor: `(B, K)` float32; without the head `(B, h, w, D)`, or `(B, D)` if
        pooled.
    """
    if not include_top:
        if pooling in ("token", "map"):
            return pool_tokens(config, x, pooling)
        x = TokensToMap(config.num_prefix_tokens, name="patch_map")(x, patches)  # (B, h, w, D)
        if pooling == "avg":
            x = keras.layers.GlobalAveragePooling2D(name="avg_pool")(x)
        elif pooling == "max":
            x = keras.layers.GlobalMaxPooling2D(name="max_pool")(x)
        return x if pooling is None else norm_pooled(config, x)

    x = pool_tokens(config, x, config.classifier)
    if config.representation_size:  # The hidden layer of pre-training; paper, section 3.1.
        x = keras.layers.Dense(
            config.representation_size,
            activation="tanh",
            kernel_initializer="lecun_normal",
            name="pre_logits",
        )(x)
    x = keras.layers.Identity(name="representation")(x)
    return classification_head(config, x, classes, activation)


def classification_head(config: ViTConfig, x, classes: int, activation):
    """Returns class scores `(B, K)` of the representation `(B, D)`, or `(B, 2, D)` of two tokens.

    Args:
        config: The architecture.
        x: The representation.
        classes: Classes of the head, K.
        activation: Activation of the head, or None for logits.
    """
    if config.classifier != "token+distillation":
        return class_scores(x, classes, activation, config.head_bias)
    # DeiT (arXiv 2012.12877): the mean of two heads' logits. With a teacher each head has its
    # own loss; see docs/distillation.md.
    alone = {
        token: TakeTokens(i, i + 1, name=f"{token}_alone")(x)  # (B, D)
        for i, token in enumerate(config.class_tokens)
    }
    logits = [
        class_scores(one, classes, None, config.head_bias, name=f"{token}_head")
        for token, one in alone.items()
    ]
    mean = keras.layers.Average(dtype="float32", name="mean_logits")(logits)
    return keras.layers.Activation(activation, dtype="float32", name="predictions")(mean)


def pool_tokens(config: ViTConfig, x, pooling: str):
    """Returns the input of the head `(B, D)` from the tokens `(B, P + N, D)`.

    Args:
        config: The architecture.
        x: The tokens of the last block.
        pooling: A classifier of `ViTConfig`. "token+gap" gives `(B, 2 D)`, and
            "token+distillation" the two tokens `(B, 2, D)`.
    """
    if pooling == "token+distillation":
        return norm_pooled(config, TakeTokens(0, 2, name="both_tokens")(x))
    token = TakeTokens(0, 1, name="first_token")  # From (B, P + N, D) to (B, D).
    if pooling == "token":
        return norm_pooled(config, token(x))
    prefix = config.num_prefix_tokens
    patches = TakeTokens(prefix, name="patches_alone")(x) if prefix else x  # (B, N, D)
    if pooling == "map":
        pooled = AttentionPooling(config.attention_pooling, name="map_head")(patches)
    elif pooling == "max":
        pooled = keras.layers.GlobalMaxPooling1D(name="max_pool")(patches)
    else:
        pooled = keras.layers.GlobalAveragePooling1D(name="avg_pool")(patches)
    if pooling == "token+gap":
        pooled = keras.layers.Concatenate(name="token_and_mean")([token(x), pooled])
    return norm_pooled(config, pooled)


def norm_pooled(config: ViTConfig, x):
    """Returns pooled features after the normalisation that `final_norm="pooled"` puts here."""
    if config.final_norm != "pooled":
        return x
    return LayerNorm(config.norm_epsilon, name="pooled_norm")(x)


def add_prefix_tokens(config: ViTConfig, x):
    """Puts the class token, and registers behind it, in front of the patches `(B, N, D)`."""
    for name in reversed(config.class_tokens):
        x = ClassToken(name=name)(x)
    if config.num_registers:
        x = Registers(config.num_registers, len(config.class_tokens), name="registers")(x)
    return x  # (B, P + N, D)


def position_layers(config: ViTConfig, grid) -> list[PositionEmbedding | None]:
    """Returns the layer that adds positions before each block, or None; paper, Table 8."""
    kinds = {"learned_1d": PositionEmbedding, "learned_2d": PositionEmbedding2D}
    options = (grid, len(config.class_tokens), config.num_registers, config.position_resize)
    if not config.adds_positions:
        return [None] * config.depth
    kind, name = kinds[config.position_embedding], "position_embedding"
    if config.position_embedding_at == "every_block":
        return [kind(*options, name=f"{name}_{block}") for block in range(config.depth)]
    shared = kind(*options, name=name)
    if config.position_embedding_at == "every_block_shared":
        return [shared] * config.depth
    return [shared] + [None] * (config.depth - 1)


def add_positions(layer: PositionEmbedding | None, x, patches):
    """Returns the tokens after a layer of `position_layers`."""
    return x if layer is None else call_on_grid(layer, x, patches)


def encode(config: ViTConfig, x, patches, block: int, grid):
    """Returns the tokens `(B, P + N, D)` after an encoder block."""
    layer = block_layer(config, block, grid, f"encoder_block_{block}")
    if config.position_embedding == "relative":
        return call_on_grid(layer, x, patches)
    return layer(x, patches=patches) if layer.config.reads_grid else layer(x)


def block_layer(config: ViTConfig, block: int, grid, name: str) -> EncoderBlock:
    """Returns the layer of an encoder block, for a grid of patches or a line (1, length)."""
    fields = config.block(block)
    if config.position_embedding != "relative":
        return EncoderBlock(fields, name=name)
    prefix = config.num_prefix_tokens
    return RelativeEncoderBlock(fields, grid=grid, num_prefix_tokens=prefix, name=name)


def call_on_grid(layer, x, patches):
    """Calls a layer with a table for a grid; a free image size needs `patches` to resize it.

    Only the shape of `patches` is read. A functional model passes tensors between layers, and the
    grid of a free image size is known at a call only, so the tensor stands for its grid.
    """
    return layer(x, patches=patches) if None in patches.shape[1:3] else layer(x)


def encode_axes(config: AxialConfig, x, patches, block: int, grid: tuple[int, int]):
    """Returns the tokens after a block on the rows of the grid and one on its columns.

    Each is the encoder block of the Vision Transformer, with all its weights. After both,
    every patch has seen all others, while the attention of N patches costs N sqrt(N) and not
    N^2.

    With a class token (or registers) every line gets a copy of it, and the copies are
    averaged after the block; see `keras_vit.layers.SplitLines`. Within a row block the patches
    of one row still do not depend on other rows.

    Counted by hand, for a grid of n x n = N patches, no class token, D, k heads, an MLP of 4 D
    and L pairs of blocks:

        parameters          2 L (12 D^2 + 13 D): twice as many as the blocks of a ViT
        FLOPs of attention  2 L N^(3/2) (4 D + 5 k): each of n lines has n^2 pairs; a pair is
                            2 D of logits, 2 D of values and 5 for each head's softmax. A ViT
                            has L N^2 (4 D + 5 k).

    Args:
        config: The architecture.
        x: The tokens `(B, P + N, D)`.
        patches: The embedded patches `(B, h, w, D)`, for their grid.
        block: Number of the pair of blocks, from 0.
        grid: Patches (h, w) that tables of relative positions are made for.

    Returns:
        A Keras tensor `(B, P + N, D)`.
    """
    prefix = config.num_prefix_tokens
    for axis, length in (("row", grid[1]), ("column", grid[0])):
        encoder_block = block_layer(config, block, (1, length), f"{axis}_block_{block}")
        # For rows (B * h, P + w, D), for columns (B * w, P + h, D).
        lines = SplitLines(axis, prefix, name=f"split_{axis}s_{block}")(x, patches)
        x = JoinLines(axis, prefix, name=f"join_{axis}s_{block}")(encoder_block(lines), patches)
    return x
