"""The blocks of an Axial-ViT: self-attention along rows, then columns; paper, Appendix D.6."""

from __future__ import annotations

from keras_vit.configs import AxialConfig
from keras_vit.layers import EncoderBlock, JoinLines, RelativeEncoderBlock, SplitLines


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
    prefix, fields = config.num_prefix_tokens, config.block(block)
    for axis, length in (("row", grid[1]), ("column", grid[0])):
        name = f"{axis}_block_{block}"
        if config.position_embedding == "relative":
            encoder_block = RelativeEncoderBlock(
                fields, grid=(1, length), num_prefix_tokens=prefix, name=name
            )
        else:
            encoder_block = EncoderBlock(fields, name=name)
        # For rows (B * h, P + w, D), for columns (B * w, P + h, D).
        lines = SplitLines(axis, prefix, name=f"split_{axis}s_{block}")(x, patches)
        x = JoinLines(axis, prefix, name=f"join_{axis}s_{block}")(encoder_block(lines), patches)
    return x
