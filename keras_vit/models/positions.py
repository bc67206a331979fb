"""Where a Vision Transformer gets the positions of its patches; paper, Appendix D.4."""

import functools

from keras_vit.configs import DEFAULT_IMAGE_SIZE
from keras_vit.layers import (
    EncoderBlock,
    PositionEmbedding,
    PositionEmbedding2D,
    RelativeEncoderBlock,
)

ADDED = {"learned_1d": PositionEmbedding, "learned_2d": PositionEmbedding2D}


def position_embeddings(config, patches):
    """Returns what adds positions to the tokens: at the input, and in front of each block.

    Of most models only the first adds anything (Table 8). A layer at every block is in front
    of the first one at the input, where the stem's dropout follows it.

    Args:
        config: The architecture, a `ViTConfig`.
        patches: The map `(B, down, across, D)` that the tokens are made of.

    Returns:
        A function from tokens to tokens, and a tuple of `config.depth` such functions.
    """
    nothing = (_unchanged,) * config.depth
    if not config.adds_positions:
        return _unchanged, nothing

    def added(name):
        layer = ADDED[config.position_embedding](
            table_grid(config, patches),
            len(config.class_tokens),
            config.num_registers,
            name=name,
        )
        return _told_the_size(layer, patches)

    if config.position_embedding_at == "every_block":
        first, *others = (added(f"position_embedding_{i}") for i in range(config.depth))
        return first, (_unchanged, *others)
    shared = added("position_embedding")
    if config.position_embedding_at == "every_block_shared":
        return shared, (_unchanged, *[shared] * (config.depth - 1))
    return shared, nothing


def encoder_block(config, name, grid, patches=None, stochastic_depth_rate=0.0):
    """Returns a block of the encoder, with relative positions where the config asks for them.

    Args:
        config: The architecture, a `ViTConfig`.
        name: The layer's name.
        grid: Patches (down, across) of the sequences that it gets; (1, length) for lines.
        patches: The map `(B, down, across, D)` that the tokens are made of, if its size is
            unknown while the model is built.
        stochastic_depth_rate: Share of examples that skip a part of the block in training.

    Returns:
        A function from tokens to tokens.
    """
    arguments = {
        "num_heads": config.num_heads,
        "mlp_dim": config.mlp_dim,
        "dropout_rate": config.dropout_rate,
        "attention_dropout_rate": config.attention_dropout_rate,
        "gelu": config.gelu,
        "norm_epsilon": config.norm_epsilon,
        "remat": config.remat,
        "stochastic_depth_rate": stochastic_depth_rate,
        "name": name,
    }
    if config.position_embedding != "relative":
        return EncoderBlock(**arguments)
    block = RelativeEncoderBlock(**arguments, grid=grid, num_prefix_tokens=config.num_prefix_tokens)
    return _told_the_size(block, patches)


def table_grid(config, patches):
    """Returns the patches (down, across) that tables of positions are made for.

    Where the image size is free they are those of pre-training, and the layers resize their
    tables in the graph.
    """
    grid = tuple(patches.shape[1:3])
    return config.grid((DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)) if None in grid else grid


def _told_the_size(layer, patches):
    if patches is None or None not in patches.shape[1:3]:
        return layer
    return functools.partial(layer, patches=patches)


def _unchanged(tokens):
    return tokens
