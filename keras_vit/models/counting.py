"""What a model costs, from its config alone: imports neither Keras nor TensorFlow.

A floating-point operation is one multiplication or one addition, as in the paper's
exaFLOPs. Counted as TensorFlow's profiler counts them, for a forward pass of one image:

    matrix product, convolution     2 for each product, 1 for each bias
    norm                            7 an element
    softmax                         5 an element
    GELU                            8 an element (tanh), 4 (exact)
    kernel standardisation          5 a weight: once a pass, so less in a batch
    pool                            9 an output (3x3), 4 (2x2)
    addition of two tensors, mean   1 an element

ReLU, copies and comparisons count nothing. Activations are the elements of the outputs of
all convolutions and matrix products (Radosavovic et al., 2020, arXiv 2003.13678), attention
logits among them; they tell memory traffic better than FLOPs do.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from keras_vit import configs
from keras_vit.models.recognition import config_of

NORM, SOFTMAX, STANDARDIZATION, POOL, AXIAL_POOL = 7, 5, 5, 9, 4
GELU = {"tanh": 8, "exact": 4}


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


@dataclasses.dataclass(frozen=True)
class Description:
    """A model and what it costs.

    Args:
        name: The model's name.
        input_shape: `(height, width, channels)` of the image that is counted for.
        parameters: Numbers that the model learns; `model.count_params()` of the built model.
        flops: Multiplications and additions of a forward pass of one image.
        activations: Elements of the outputs of convolutions and matrix products.
        sequence_length: Tokens, those in front of the patches among them; None of a ResNet.
    """

    name: str
    input_shape: tuple[int, int, int]
    parameters: int
    flops: int
    activations: int
    sequence_length: int | None

    def __str__(self) -> str:
        height, width, channels = self.input_shape
        return "\n".join(
            (
                f"{self.name}, {height}x{width} pixels, {channels} channels",
                f"  parameters       {self.parameters:,}",
                f"  FLOPs per image  {self.flops:,}",
                f"  activations      {self.activations:,}",
                f"  sequence length  {self.sequence_length or '-'}",
            )
        )


def describe(
    name_or_config_or_model: Any,
    *,
    input_shape: tuple[int, int, int] | None = None,
    include_top: bool = True,
    classes: int = 1000,
    **changes: Any,
) -> Description:
    """Returns what a model costs, without building it.

    Args:
        name_or_config_or_model: A name of `keras_vit.list_models()`, a config, or a model
            that `keras_vit.build` returned or that was loaded from a file; a model tells
            the other arguments itself.
        input_shape: `(height, width, channels)`; 224 pixels and 3 channels by default, also
            for a model of free image size.
        include_top: Whether the classification head counts.
        classes: Classes of the head.
        **changes: Fields of the config and their new values.

    Raises:
        ValueError: If the name is unknown, or the model is none of this package's.

    Example:
    >>> describe("ViT-B/16").parameters
    86567656
    """
    if hasattr(name_or_config_or_model, "count_params"):
        model = name_or_config_or_model
        if changes or input_shape or not include_top or classes != 1000:
            raise ValueError(
                "A model tells its own input shape, classes and config; leave them out. "
                f"Received: input_shape={input_shape}, include_top={include_top}, "
                f"classes={classes}, {changes}"
            )
        return _describe_model(model)
    config = configs.resolve(name_or_config_or_model, **changes)
    side = configs.default_image_size(name_or_config_or_model)
    name = (
        name_or_config_or_model if isinstance(name_or_config_or_model, str) else config.architecture
    )
    return _describe(name, config, input_shape or (side, side, 3), classes if include_top else None)


def _describe_model(model: Any) -> Description:
    config = config_of(model)
    side = configs.DEFAULT_IMAGE_SIZE
    layers = {layer.name: layer for layer in model.layers}
    # Not the model's own input: it may be resized before.
    images = layers["root_conv" if "root_conv" in layers else "patch_embedding"].input
    height, width, channels = images.shape[1:]
    classes = model.output_shape[-1] if "predictions" in layers else None
    described = _describe(model.name, config, (height or side, width or side, channels), classes)
    if described.parameters != model.count_params():
        raise ValueError(
            "Only models of keras_vit.build can be described, without layers of others. "
            f"Received: a model with {model.count_params():,} parameters, of which "
            f"{described.parameters:,} are {config.architecture}'s"
        )
    return described


def _describe(name, config, input_shape, classes) -> Description:
    height, width, channels = input_shape
    smallest = config.min_image_size
    if height < smallest[0] or width < smallest[1]:
        raise ValueError(
            f"The image must be at least {smallest[0]}x{smallest[1]} pixels. "
            f"Received: input_shape={tuple(input_shape)}"
        )
    cost, length = ARCHITECTURES[config.architecture](config, (height, width), channels, classes)
    return Description(
        name, tuple(input_shape), cost.parameters, cost.flops, cost.activations, length
    )


def _vit(config, size, channels, classes) -> tuple[Cost, int]:
    """`keras_vit.models.vit.build_vit`; `size` is that of the image, or of the features."""
    grid, tokens = _grid_and_tokens(config, size)
    cost = _patch_tokens(config, grid, channels)
    cost += config.depth * _encoder_block(config, tokens, grid[0] * grid[1])
    return cost + _read_tokens(config, tokens, classes), tokens


def _axial_vit(config, size, channels, classes) -> tuple[Cost, int]:
    """`keras_vit.models.axial_vit.build_axial_vit`: blocks on rows, blocks on columns."""
    cost = Cost()
    if config.resnet:
        cost, size, channels = _stem(config.resnet, size, channels)
    grid, tokens = _grid_and_tokens(config, size)
    prefix = config.num_prefix_tokens
    cost += _patch_tokens(config, grid, channels)
    for lines, length in (grid, grid[::-1]):
        block = _shared(lines, _encoder_block(config, prefix + length, length))
        mean_of_copies = Cost(flops=lines * prefix * config.width)
        cost += config.depth * (block + mean_of_copies)
    return cost + _read_tokens(config, tokens, classes), tokens


def _hybrid_vit(config, size, channels, classes) -> tuple[Cost, int]:
    """`keras_vit.models.vit.build_vit`: the ResNet, then a ViT on its features."""
    stem, size, channels = _stem(config.resnet, size, channels)
    trunk, tokens = _vit(config, size, channels, classes)
    return stem + trunk, tokens


def _grid_and_tokens(config, size):
    """Patches (down, across), and the length of the sequence."""
    grid = (size[0] // config.patch_sizes[0], size[1] // config.patch_sizes[1])
    return grid, grid[0] * grid[1] + config.num_prefix_tokens


def _patch_tokens(config, grid, channels) -> Cost:
    """The patch embedding, the learned tokens and the positions."""
    patch_height, patch_width = config.patch_sizes
    return (
        _dense(grid[0] * grid[1], patch_height * patch_width * channels, config.width)
        + Cost(parameters=config.num_prefix_tokens * config.width)
        + _position_embeddings(config, grid)
    )


def _read_tokens(config, tokens, classes) -> Cost:
    """The last norm and the head."""
    cost = _norm(tokens, config.width)
    if classes is None:
        return cost
    return cost + HEADS[config.classifier](config, tokens - config.num_prefix_tokens, classes)


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


def _encoder_block(config, tokens, patches) -> Cost:
    """A block on a sequence of tokens, of which so many are patches."""
    width, heads = config.width, config.num_heads
    cost = 2 * _norm(tokens, width) + _self_attention(tokens, width, heads) + _mlp(config, tokens)
    cost += Cost(flops=2 * tokens * width)  # Residuals.
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
    return (
        _dense(tokens, config.width, config.mlp_dim)
        + Cost(flops=GELU[config.gelu] * tokens * config.mlp_dim)
        + _dense(tokens, config.mlp_dim, config.width)
    )


def _token_head(config, patches, classes) -> Cost:
    width = config.width
    if config.representation_size:
        return _dense(1, width, config.representation_size) + _head(
            config.representation_size, classes
        )
    return _head(width, classes)


def _gap_head(config, patches, classes) -> Cost:
    return Cost(flops=patches * config.width) + _token_head(config, patches, classes)


def _map_head(config, patches, classes) -> Cost:
    width = config.width
    return (
        Cost(parameters=width)  # The probe.
        + 2 * _dense(1, width, width)  # Query, out.
        + 2 * _dense(patches, width, width)  # Key, value.
        + _attention(1, patches, width, config.num_heads)
        + _norm(1, width)
        + _mlp(config, 1)
        + Cost(flops=width)
        + _token_head(config, patches, classes)
    )


def _distillation_head(config, patches, classes) -> Cost:
    return 2 * _dense(1, config.width, classes) + Cost(flops=(2 + SOFTMAX) * classes)


HEADS = {
    "token": _token_head,
    "gap": _gap_head,
    "map": _map_head,
    "token+distillation": _distillation_head,
}


def _stem(stem, size, channels) -> tuple[Cost, tuple[int, int], int]:
    """`keras_vit.models.resnet.resnet_stem`, and the size and channels of its features."""
    cost = _root(stem, size, channels) + _norm(_area(_strided(size, 2)), stem.width)
    cost += _units(stem, size, _post_activation_unit)
    return cost, stem.feature_size(size), stem.channels


def _bit(config, size, channels, classes) -> tuple[Cost, None]:
    """`keras_vit.models.resnet.build_resnet`."""
    return _resnet(config, size, channels, classes, _pre_activation_unit), None


def _axial_resnet(config, size, channels, classes) -> tuple[Cost, None]:
    """`keras_vit.models.resnet.build_resnet`."""
    unit = functools.partial(_axial_unit, heads=config.num_heads)
    return _resnet(config, size, channels, classes, unit), None


def _resnet(config, size, channels, classes, unit_cost) -> Cost:
    positions = _area(config.feature_size(size))
    cost = _root(config, size, channels) + _units(config, size, unit_cost)
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


def _units(config, size, unit_cost) -> Cost:
    """All units; `unit_cost` takes map sizes before and after, input channels and filters."""
    cost, before, inputs = Cost(), _strided(size, 4), config.width
    for block, num_units in enumerate(config.num_blocks):
        after, filters = _strided(size, 4 * 2**block), config.width * 2**block
        for unit in range(num_units):
            strided = block > 0 and unit == 0
            cost += unit_cost(before, after, inputs, filters, strided)
            before, inputs = after, 4 * filters
    return cost


def _post_activation_unit(before, after, inputs, filters, strided) -> Cost:
    before, after, wide = _area(before), _area(after), 4 * filters
    cost = (
        _standardized_conv(before, 1, inputs, filters)
        + _norm(before, filters)
        + _standardized_conv(after, 3, filters, filters)
        + _norm(after, filters)
        + _standardized_conv(after, 1, filters, wide)
        + _norm(after, wide)
        + Cost(flops=wide * after)
    )
    if strided or inputs != wide:
        cost += _standardized_conv(after, 1, inputs, wide) + _norm(after, wide)
    return cost


def _pre_activation_unit(before, after, inputs, filters, strided) -> Cost:
    spatial = _standardized_conv(_area(after), 3, filters, filters)
    return _pre_activation(before, after, inputs, filters, strided, spatial)


def _axial_unit(before, after, inputs, filters, strided, heads) -> Cost:
    spatial = Cost()
    for lines, length in (before, before[::-1]):
        line = _self_attention(length, filters, heads)
        spatial += _shared(lines, line + _relative_positions(length, filters, heads))
    if strided:
        spatial += Cost(flops=AXIAL_POOL * _area(after) * filters)
    return _pre_activation(before, after, inputs, filters, strided, spatial)


def _pre_activation(before, after, inputs, filters, strided, spatial) -> Cost:
    before, after, wide = _area(before), _area(after), 4 * filters
    cost = (
        _norm(before, inputs)
        + _standardized_conv(before, 1, inputs, filters)
        + _norm(before, filters)
        + spatial
        + _norm(after, filters)
        + _standardized_conv(after, 1, filters, wide)
        + Cost(flops=wide * after)
    )
    if strided or inputs != wide:
        cost += _standardized_conv(after, 1, inputs, wide)
    return cost


def _strided(size, stride) -> tuple[int, int]:
    """The map of an image; a part of a stride counts as one."""
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


# A config's architecture, and the function that counts it as its builder builds it.
ARCHITECTURES: dict[str, Callable[..., tuple[Cost, int | None]]] = {
    "vit": _vit,
    "hybrid_vit": _hybrid_vit,
    "axial_vit": _axial_vit,
    "bit": _bit,
    "axial_resnet": _axial_resnet,
}
