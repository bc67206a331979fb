"""The Axial-ViT: self-attention along rows, then along columns; paper, Appendix D.6."""

from __future__ import annotations

import keras

from keras_vit.configs import AxialConfig
from keras_vit.layers import (
    Dropout,
    EncoderBlock,
    JoinLines,
    LayerNorm,
    PatchEmbedding,
    RelativeEncoderBlock,
    SplitLines,
)
from keras_vit.models.resnet import resnet_stem
from keras_vit.models.vit import add_positions, add_prefix_tokens, position_layers


def build_axial_vit(config: AxialConfig, images, grid: tuple[int, int]):
    """Returns the tokens and the patches of an image; arguments and shapes as in `build_vit`.

    A block is the encoder block of the Vision Transformer, with all its weights, on the rows
    of the grid of patches; then another one on the columns. After both, every patch has seen
    all others, while the attention of N patches costs N sqrt(N) and not N^2.

    With a class token (or registers) every line gets a copy of it, and the copies are
    averaged after the block; see `keras_vit.layers.SplitLines`. Within a row block the patches
    of one row still do not depend on other rows.

    Counted by hand, for a grid of n x n = N patches, no class token, D, k heads, an MLP of 4 D
    and L pairs of blocks:

        parameters          2 L (12 D^2 + 13 D): twice those of the blocks of a ViT
        FLOPs of attention  2 L N^(3/2) (4 D + 5 k): each of n lines has n^2 pairs; a pair is
                            2 D of logits, 2 D of values and 5 for each head's softmax. A ViT
                            has L N^2 (4 D + 5 k).
    """
    if config.resnet:
        images = resnet_stem(config.resnet, images)
    patches = PatchEmbedding(config.width, config.patch_sizes, name="patch_embedding")(images)
    x = keras.layers.Reshape((-1, config.width), name="patch_tokens")(patches)  # (B, N, D)
    x = add_prefix_tokens(config, x)  # (B, P + N, D)

    positions = position_layers(config, grid)
    x = add_positions(positions[0], x, patches)
    x = Dropout(config.dropout_rate, name="dropout")(x)
    for block in range(config.depth):
        if block > 0:
            x = add_positions(positions[block], x, patches)
        x = encode_lines(config, x, patches, block, "row", grid[1])
        x = encode_lines(config, x, patches, block, "column", grid[0])
    x = LayerNorm(config.norm_epsilon, name="encoder_norm")(x)
    return x, patches


def encode_lines(config: AxialConfig, x, patches, block: int, axis: str, length: int):
    """Returns the tokens `(B, P + N, D)` after a block on the rows or columns of the grid."""
    prefix, name = config.num_prefix_tokens, f"{axis}_block_{block}"
    # For rows (B * h, P + w, D), for columns (B * w, P + h, D).
    lines = SplitLines(axis, prefix, name=f"split_{axis}s_{block}")(x, patches)
    if config.position_embedding == "relative":
        lines = RelativeEncoderBlock(
            **config.block_arguments(block), grid=(1, length), num_prefix_tokens=prefix, name=name
        )(lines)
    else:
        lines = EncoderBlock(**config.block_arguments(block), name=name)(lines)
    return JoinLines(axis, prefix, name=f"join_{axis}s_{block}")(lines, patches)
