"""The size and cost of a model, counted without Keras or TensorFlow.

What counts as an operation, and the costs of the encoder block's fields, is in
`keras_vit.configs.blocks`.
"""

from __future__ import annotations

from keras_vit import configs
from keras_vit.configs.blocks import (
    POOL,
    SMALL_POOL,
    SOFTMAX,
    STANDARDIZATION,
    AttentionConfig,
    Cost,
    dense,
    norm,
    shared,
)
from keras_vit.configs.resnet_configs import cells


def cost_of(
    config: configs.ModelConfig,
    input_shape: tuple[int, int, int],
    classes: int | None,
) -> Cost:
    """Returns the cost of a model.

    Args:
        config: The architecture.
        input_shape: `(height, width, channels)` of an image.
        classes: Classes of the head, or None without it.

    Raises:
        ValueError: If the image is smaller than a patch.
    """
    height, width, channels = input_shape
    smallest = config.min_image_size
    if height < smallest[0] or width < smallest[1]:
        raise ValueError(
            f"The image must be at least {smallest[0]}x{smallest[1]} pixels. "
            f"Received: input_shape={tuple(input_shape)}"
        )
    if isinstance(config, configs.BiTConfig):
        return _resnet(config, (height, width), channels, classes)
    return _vit(config, (height, width), channels, classes)


def _vit(config, size, channels, classes) -> Cost:
    """The cost of `build_vit` with `vit_head`."""
    cost, width, prefix = Cost(), config.width, config.num_prefix_tokens
    if config.resnet:
        cost += _stem(config.resnet, size, channels)
        channels = config.resnet.channels
    grid = config.grid(size)
    patches = grid[0] * grid[1]
    tokens = prefix + patches
    patch_height, patch_width = config.patch_sizes
    cost += dense(patches, patch_height * patch_width * channels, width)
    cost += Cost(parameters=prefix * width)
    cost += _position_embeddings(config, grid)
    if isinstance(config, configs.AxialConfig):
        for lines, length in (grid, grid[::-1]):  # Rows, then columns.
            block = shared(lines, _encoder_block(config, prefix + length, (1, length)))
            mean_of_copies = Cost(flops=lines * prefix * width)
            cost += config.depth * (block + mean_of_copies)
    else:
        cost += config.depth * _encoder_block(config, tokens, grid)
    if config.embedding_norm:
        cost += norm(tokens, width)
    if config.final_norm == "tokens":
        cost += norm(tokens, width)
    if classes is not None:
        cost += _vit_head(config, patches, classes)
    return cost


def _vit_head(config, patches, classes) -> Cost:
    cost, width = Cost(), config.width
    if config.classifier == "token+distillation":
        if config.final_norm == "pooled":
            cost += norm(2, width)
        return cost + 2 * dense(1, width, classes) + Cost(flops=(2 + SOFTMAX) * classes)
    if config.classifier in ("gap", "token+gap"):
        cost += Cost(flops=patches * width)
    elif config.classifier == "map":
        cost += config.attention_pooling.cost(patches, width)
    if config.classifier == "token+gap":
        width *= 2
    if config.final_norm == "pooled":
        cost += norm(1, width)
    if config.representation_size:
        cost += dense(1, width, config.representation_size)
        width = config.representation_size
    return cost + _head(width, classes)


def _position_embeddings(config, grid) -> Cost:
    if not config.adds_positions:
        return Cost()
    down, across = grid
    width, class_tokens = config.width, len(config.class_tokens)
    if config.position_embedding == "learned_2d":
        table = (down + across) * width // 2
    else:
        table = down * across * width
    tables = config.depth if config.position_embedding_at == "every_block" else 1
    additions = 1 if config.position_embedding_at == "input" else config.depth
    return Cost(
        parameters=tables * (table + class_tokens * width),
        flops=additions * (down * across + class_tokens) * width,
    )


def _encoder_block(config, tokens, grid) -> Cost:
    """A block on a sequence of tokens with the patches of a grid or line among them."""
    width = config.width
    cost = config.block(0).cost(tokens, width)
    if config.position_embedding == "relative":
        cost += _relative_positions(_area(grid), width, config.num_heads)
    return cost


def _relative_positions(length, width, heads) -> Cost:
    """Products of the queries of a line of patches with the embeddings of all offsets."""
    offsets = 2 * length - 1
    return Cost(
        parameters=offsets * width,
        flops=2 * length * offsets * width + heads * length**2,
        activations=heads * length * offsets,
    )


def _stem(stem, size, channels) -> Cost:
    """The cost of `keras_vit.models.resnet.resnet_stem`."""
    if isinstance(stem, configs.PoolingStem):
        return _pooling_stem(stem, size, channels)
    cost = _root(stem, size, channels) + norm(_area(cells(size, 2)), stem.width)
    return cost + _units(stem, size)


def _pooling_stem(stem, size, channels) -> Cost:
    cost = _standardized_conv(_area(size), 3, channels, stem.width)
    cost += norm(_area(size), stem.width)
    inputs = stem.width
    for width in stem.widths:
        pooled = cells(size, 2)
        cost += _standardized_conv(_area(size), 3, inputs, width)
        cost += Cost(flops=SMALL_POOL * _area(pooled) * width)
        cost += _standardized_conv(_area(pooled), 3, width, width)
        cost += 2 * norm(_area(pooled), width) + Cost(flops=width * _area(pooled))
        size, inputs = pooled, width
    return cost


def _resnet(config, size, channels, classes) -> Cost:
    """The cost of `keras_vit.models.resnet.build_resnet` with `resnet_head`."""
    positions = _area(cells(size, config.stride))
    cost = _root(config, size, channels) + _units(config, size)
    cost += norm(positions, config.channels)
    if classes is not None:
        cost += Cost(flops=positions * config.channels) + _head(config.channels, classes)
    return cost


def _root(config, size, channels) -> Cost:
    """The convolution and the pool in front of a ResNet's blocks."""
    convolved, pooled = _area(cells(size, 2)), _area(cells(size, 4))
    return _standardized_conv(convolved, 7, channels, config.width) + Cost(
        flops=POOL * pooled * config.width
    )


def _units(config, size) -> Cost:
    """All residual units of a stem, a BiT ResNet or an Axial-ResNet."""
    cost, before, inputs = Cost(), cells(size, 4), config.width
    for block, num_units in enumerate(config.num_blocks):
        after, filters = cells(size, 4 * 2**block), config.width * 2**block
        for unit in range(num_units):
            strided = block > 0 and unit == 0
            cost += _unit(config, before, after, inputs, filters, strided)
            before, inputs = after, 4 * filters
    return cost


def _unit(config, before, after, inputs, filters, strided) -> Cost:
    """A unit, from maps of sizes before and after, input channels and filters."""
    wide, cells_before, cells_after = 4 * filters, _area(before), _area(after)
    has_projection = strided or inputs != wide
    cost = (
        _standardized_conv(cells_before, 1, inputs, filters)
        + norm(cells_before, filters)
        + norm(cells_after, filters)
        + _standardized_conv(cells_after, 1, filters, wide)
        + Cost(flops=wide * cells_after)  # The residual.
    )
    if isinstance(config, configs.AxialResNetConfig):
        cost += _axial_attention(before, cells_after, filters, config.num_heads, strided)
    else:
        cost += _standardized_conv(cells_after, 3, filters, filters)
    if has_projection:
        cost += _standardized_conv(cells_after, 1, inputs, wide)
    # Units of a stem end with norms, units of BiT start with one.
    if isinstance(config, configs.ResNetStem):
        return cost + (2 if has_projection else 1) * norm(cells_after, wide)
    return cost + norm(cells_before, inputs)


def _axial_attention(size, cells_after, channels, heads, strided) -> Cost:
    """Attention along rows and columns, then an average over 2x2 positions if strided."""
    cost = Cost()
    for lines, length in (size, size[::-1]):
        line = AttentionConfig(heads).cost(length, channels)
        cost += shared(lines, line + _relative_positions(length, channels, heads))
    if strided:
        cost += Cost(flops=SMALL_POOL * cells_after * channels)
    return cost


def _area(size) -> int:
    return size[0] * size[1]


def _standardized_conv(positions, kernel_size, inputs, outputs) -> Cost:
    weights = kernel_size**2 * inputs * outputs
    return Cost(
        parameters=weights,
        flops=(2 * positions + STANDARDIZATION) * weights,
        activations=positions * outputs,
    )


def _head(width, classes) -> Cost:
    return dense(1, width, classes) + Cost(flops=SOFTMAX * classes)
