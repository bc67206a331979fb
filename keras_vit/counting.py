"""Parameters, FLOPs and activations of a config, counted without Keras or TensorFlow.

A floating-point operation is one multiplication or one addition, as in the paper's
exaFLOPs. They are counted as TensorFlow's profiler does, for a forward pass of one image:

    matrix product, convolution     2 for each product, 1 for each bias
    norm                            7 an element
    softmax                         5 an element
    GELU                            8 an element (tanh), 4 (exact), 3 (quick)
    SwiGLU                          3 a gated element
    kernel standardisation          5 a weight: once a pass, so less in a batch
    pool                            9 an output (3x3), 4 (2x2)
    addition of two tensors, mean   1 an element

ReLU, copies and comparisons are not counted. Activations are the elements of the outputs of
all convolutions and matrix products (Radosavovic et al., 2020, arXiv 2003.13678), including
attention logits; they predict memory traffic better than FLOPs do.
"""

from __future__ import annotations

import dataclasses

from keras_vit import configs

NORM, SOFTMAX, STANDARDIZATION, POOL, AXIAL_POOL = 7, 5, 5, 9, 4
# By the nonlinearity of the MLP, for each of its hidden units.
GELU = {"tanh": 8, "exact": 4, "quick": 3, "relu": 0, "swiglu": 3}


@dataclasses.dataclass(frozen=True)
class Cost:
    """Parameters, FLOPs and activations; costs add, and a number times a cost repeats it.

    Args:
        parameters: Numbers that the model learns.
        flops: Multiplications and additions of a forward pass of one image.
        activations: Elements of the outputs of convolutions and matrix products.
    """

    parameters: int = 0
    flops: int = 0
    activations: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.parameters + other.parameters,
            self.flops + other.flops,
            self.activations + other.activations,
        )

    def __rmul__(self, times: int) -> Cost:
        return Cost(times * self.parameters, times * self.flops, times * self.activations)


def cost_of(
    config: configs.ViTConfig | configs.BiTConfig,
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
    cost += _dense(patches, patch_height * patch_width * channels, width)
    cost += Cost(parameters=prefix * width)
    cost += _position_embeddings(config, grid)
    if isinstance(config, configs.AxialConfig):
        for lines, length in (grid, grid[::-1]):  # Rows, then columns.
            block = _shared(lines, _encoder_block(config, prefix + length, (1, length)))
            mean_of_copies = Cost(flops=lines * prefix * width)
            cost += config.depth * (block + mean_of_copies)
    else:
        cost += config.depth * _encoder_block(config, tokens, grid)
    if config.embedding_norm:
        cost += _norm(tokens, width)
    if config.final_norm == "tokens":
        cost += _norm(tokens, width)
    if classes is not None:
        cost += _vit_head(config, patches, classes)
    return cost


def _vit_head(config, patches, classes) -> Cost:
    width = config.width
    cost = Cost()
    if config.classifier == "token+distillation":
        if config.final_norm == "pooled":
            cost += _norm(2, width)
        return cost + 2 * _dense(1, width, classes) + Cost(flops=(2 + SOFTMAX) * classes)
    if config.classifier in ("gap", "token+gap"):
        cost += Cost(flops=patches * width)
    elif config.classifier == "map":
        read = patches + config.num_prefix_tokens * config.map_reads_prefix
        pooling = config.map_arguments()
        cost += (
            Cost(parameters=width)  # The probe.
            + 2 * _dense(1, width, width)  # Query, out.
            + 2 * _dense(read, width, width)  # Key, value.
            + _attention(1, read, width, pooling["num_heads"])
            + _norm(1, width)
            + _mlp(dataclasses.replace(config, mlp_dim=pooling["mlp_dim"]), 1)
            + Cost(flops=width)  # The residual.
        )
    if config.classifier == "token+gap":
        width *= 2
    if config.final_norm == "pooled":
        cost += _norm(1, width)
    if config.representation_size:
        cost += _dense(1, width, config.representation_size)
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
    patches = _area(grid)
    width, heads = config.width, config.num_heads
    cost = 2 * _norm(tokens, width) + _self_attention(tokens, width, heads) + _mlp(config, tokens)
    cost += Cost(flops=2 * tokens * width)  # Residuals.
    if config.layer_scale:
        cost += 2 * Cost(parameters=width, flops=tokens * width)
    if config.qk_norm:
        cost += 2 * Cost(parameters=2 * (width // heads), flops=NORM * tokens * width)
    if config.rotary:  # Two products and a sum for each unit of queries and keys.
        cost += Cost(parameters=width * config.rotary.learned, flops=6 * tokens * width)
    if config.position_embedding == "relative_bias":
        down, across = grid
        steps = (2 * down - 1) * (2 * across - 1)
        cost += Cost(parameters=steps * heads, flops=heads * tokens**2)
    if config.position_embedding == "relative":
        cost += _relative_positions(patches, width, heads)
    return cost


def _self_attention(tokens, width, heads) -> Cost:
    """Query, key and value, then attention, then its output."""
    return 4 * _dense(tokens, width, width) + _attention(tokens, tokens, width, heads)


def _attention(queries, keys, width, heads) -> Cost:
    """Logits, softmax and the weighted sum of the values."""
    pairs = queries * keys
    return Cost(
        flops=2 * pairs * width + SOFTMAX * heads * pairs + 2 * pairs * width,
        activations=heads * pairs + queries * width,
    )


def _relative_positions(length, width, heads) -> Cost:
    """Products of the queries of a line of patches with the embeddings of all offsets."""
    offsets = 2 * length - 1
    return Cost(
        parameters=offsets * width,
        flops=2 * length * offsets * width + heads * length**2,
        activations=heads * length * offsets,
    )


def _mlp(config, tokens) -> Cost:
    units = 2 * config.mlp_dim if config.gelu == "swiglu" else config.mlp_dim
    return (
        _dense(tokens, config.width, units)
        + Cost(flops=GELU[config.gelu] * tokens * config.mlp_dim)
        + _dense(tokens, config.mlp_dim, config.width)
    )


def _stem(stem, size, channels) -> Cost:
    """The cost of `keras_vit.models.resnet.resnet_stem`."""
    cost = _root(stem, size, channels) + _norm(_area(_strided(size, 2)), stem.width)
    return cost + _units(stem, size)


def _resnet(config, size, channels, classes) -> Cost:
    """The cost of `keras_vit.models.resnet.build_resnet` with `resnet_head`."""
    positions = _area(config.feature_size(size))
    cost = _root(config, size, channels) + _units(config, size)
    cost += _norm(positions, config.channels)
    if classes is not None:
        cost += Cost(flops=positions * config.channels) + _head(config.channels, classes)
    return cost


def _root(config, size, channels) -> Cost:
    """The convolution and the pool in front of a ResNet's blocks."""
    convolved, pooled = _area(_strided(size, 2)), _area(_strided(size, 4))
    return _standardized_conv(convolved, 7, channels, config.width) + Cost(
        flops=POOL * pooled * config.width
    )


def _units(config, size) -> Cost:
    """All residual units of a stem, a BiT ResNet or an Axial-ResNet."""
    cost, before, inputs = Cost(), _strided(size, 4), config.width
    for block, num_units in enumerate(config.num_blocks):
        after, filters = _strided(size, 4 * 2**block), config.width * 2**block
        for unit in range(num_units):
            strided = block > 0 and unit == 0
            cost += _unit(config, before, after, inputs, filters, strided)
            before, inputs = after, 4 * filters
    return cost


def _unit(config, before, after, inputs, filters, strided) -> Cost:
    """A unit, from maps of sizes before and after, input channels and filters."""
    wide, cells_before, cells = 4 * filters, _area(before), _area(after)
    has_projection = strided or inputs != wide
    cost = (
        _standardized_conv(cells_before, 1, inputs, filters)
        + _norm(cells_before, filters)
        + _norm(cells, filters)
        + _standardized_conv(cells, 1, filters, wide)
        + Cost(flops=wide * cells)  # The residual.
    )
    if isinstance(config, configs.AxialResNetConfig):
        cost += _axial_attention(before, cells, filters, config.num_heads, strided)
    else:
        cost += _standardized_conv(cells, 3, filters, filters)
    if has_projection:
        cost += _standardized_conv(cells, 1, inputs, wide)
    # Units of a stem end with norms, units of BiT start with one.
    if isinstance(config, configs.ResNetStem):
        return cost + (2 if has_projection else 1) * _norm(cells, wide)
    return cost + _norm(cells_before, inputs)


def _axial_attention(size, cells_after, channels, heads, strided) -> Cost:
    """Attention along rows and columns, then an average over 2x2 positions if strided."""
    cost = Cost()
    for lines, length in (size, size[::-1]):
        line = _self_attention(length, channels, heads)
        cost += _shared(lines, line + _relative_positions(length, channels, heads))
    if strided:
        cost += Cost(flops=AXIAL_POOL * cells_after * channels)
    return cost


def _strided(size, stride) -> tuple[int, int]:
    """The size of a map after a stride; a part of a stride counts as one."""
    return (-(-size[0] // stride), -(-size[1] // stride))


def _area(size) -> int:
    return size[0] * size[1]


def _shared(times, cost) -> Cost:
    """The cost of calling something several times with the same weights."""
    return Cost(cost.parameters, times * cost.flops, times * cost.activations)


def _dense(positions, inputs, outputs) -> Cost:
    return Cost(
        parameters=(inputs + 1) * outputs,
        flops=(2 * inputs + 1) * positions * outputs,
        activations=positions * outputs,
    )


def _standardized_conv(cells, kernel_size, inputs, outputs) -> Cost:
    weights = kernel_size**2 * inputs * outputs
    return Cost(
        parameters=weights,
        flops=(2 * cells + STANDARDIZATION) * weights,
        activations=cells * outputs,
    )


def _norm(positions, channels) -> Cost:
    return Cost(parameters=2 * channels, flops=NORM * positions * channels)


def _head(width, classes) -> Cost:
    return _dense(1, width, classes) + Cost(flops=SOFTMAX * classes)
