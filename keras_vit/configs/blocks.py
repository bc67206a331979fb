"""Configs of the encoder block and its parts; without Keras or TensorFlow.

A field stands with what it means, its default, its allowed values and its cost. The layers of
`keras_vit.layers` take these configs, or their fields as keyword arguments.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Literal, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from keras_vit.utils.json_files import DataclassInstance

Gelu = Literal["tanh", "exact", "quick", "relu", "swiglu"]

# Fields of a block that matter in training only.
TRAINING_FIELDS = ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate", "remat")
# Features of a block, see `BlockConfig.features`, that names of weights show: the sublayer.
BLOCK_LAYERS = {"layer_scale": "layer_scale_1", "qk_norm": "attention/query_norm"}
# Features that they do not show.
UNSEEN_FEATURES = ("rotary",)
# All fields of a block that they do not show, or not in every layout.
UNSEEN_BLOCK_FIELDS = ("gelu", "norm_epsilon", "num_heads", *UNSEEN_FEATURES)

Config = TypeVar("Config", bound="DataclassInstance")


def check_choices(config: DataclassInstance) -> None:
    """Raises ValueError if a field whose type is a `Literal` has none of its strings."""
    for field, choices in _choices(type(config)).items():
        value = getattr(config, field)
        if value not in choices:
            raise ValueError(f"{field} must be one of {choices}. Received: {field}={value!r}")


@functools.cache
def _choices(kind):
    """By field of a config whose type is a `Literal`, its strings."""
    hints = get_type_hints(kind)
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}


def check_rules(config: DataclassInstance, *rules: tuple[bool, str]) -> None:
    """Raises ValueError with the first rule that does not hold.

    Args:
        config: The config, for the message.
        *rules: Whether a rule holds, and what must hold.
    """
    for holds, rule in rules:
        if not holds:
            raise ValueError(f"{rule}. Received: {config}")


def part_of(kind: type[Config], whole: DataclassInstance) -> Config:
    """Returns the config of a part, from the fields of the same names in the config of a whole.

    Args:
        kind: The part's dataclass.
        whole: A config that has its fields.
    """
    return kind(**{field.name: getattr(whole, field.name) for field in dataclasses.fields(kind)})


@dataclasses.dataclass(frozen=True)
class AttentionConfig:
    """Multi-head self-attention; paper, equations 5 to 8.

    Args:
        num_heads: Attention heads, k. Divides the token size D.
        dropout_rate: Share of attention probabilities dropped, in [0, 1).
        qk_norm: Whether to normalise queries and keys, each head by itself: LayerNorm with one
            scale and shift `(D_h,)` for all heads (arXiv 2302.05442).
        norm_epsilon: Added to the variance of LayerNorm.
        rotary: Temperature of the rotary positions of queries and keys, 100 in DINOv3, see
            `keras_vit.layers.RotaryPositions`; or None.
    """

    num_heads: int
    dropout_rate: float = 0.0
    qk_norm: bool = False
    norm_epsilon: float = 1e-6
    rotary: float | None = None

    def cost(self, tokens: int, width: int) -> Cost:
        """Returns the cost for a sequence of tokens of size `width`."""
        cost = 4 * dense(tokens, width, width)  # Query, key, value and out.
        cost += attention_products(tokens, tokens, width, self.num_heads)
        if self.qk_norm:
            cost += 2 * Cost(2 * (width // self.num_heads), NORM * tokens * width)
        if self.rotary:
            # Two products and a sum for each unit of queries and keys.
            cost += Cost(flops=6 * tokens * width)
        return cost


@dataclasses.dataclass(frozen=True)
class MLPConfig:
    """Two dense layers with a nonlinearity between them; paper, section 3.1.

    Args:
        hidden_dim: Hidden units. With `gelu="swiglu"` the first layer has twice as many, half of
            which gate the others.
        dropout_rate: Share of units dropped after each dense layer, in [0, 1).
        gelu: The nonlinearity: GELU as "tanh", the approximation of the official code, "exact",
            Keras's default, or "quick", CLIP's x sigmoid(1.702 x); "relu"; or "swiglu" (arXiv
            2002.05202).

    Raises:
        ValueError: If `gelu` is unknown.
    """

    hidden_dim: int
    dropout_rate: float = 0.0
    gelu: Gelu = "tanh"

    def __post_init__(self):
        check_choices(self)

    @property
    def first_units(self) -> int:
        """Units of the first dense layer."""
        return 2 * self.hidden_dim if self.gelu == "swiglu" else self.hidden_dim

    def cost(self, tokens: int, width: int) -> Cost:
        """Returns the cost for a sequence of tokens of size `width`."""
        return (
            dense(tokens, width, self.first_units)
            + Cost(flops=ACTIVATION[self.gelu] * tokens * self.hidden_dim)
            + dense(tokens, self.hidden_dim, width)
        )


@dataclasses.dataclass(frozen=True)
class BlockConfig:
    """An encoder block; paper, equations 2 and 3.

    The fields of its attention and its MLP are described in `AttentionConfig` and `MLPConfig`.

    Args:
        mlp_dim: Hidden units of the MLP, see `MLPConfig.hidden_dim`.
        dropout_rate: Share of units dropped after each dense layer except query, key and value,
            in [0, 1).
        attention_dropout_rate: Share of attention probabilities dropped, in [0, 1).
        remat: Whether to keep only the input in training and recompute the rest in the backward
            pass, with the same dropout masks: less memory, about a third more time.
        stochastic_depth_rate: Share of examples that skip the attention in a training step, and
            as many the MLP, in [0, 1); the other branches are divided by 1 - rate (arXiv
            1603.09382).
        layer_scale: Whether each residual branch is multiplied by a learned vector (LayerScale,
            arXiv 2103.17239), as in DINOv2 and DeiT III.

    Raises:
        ValueError: If a value is out of range or unknown.
    """

    num_heads: int
    mlp_dim: int
    dropout_rate: float = 0.0
    attention_dropout_rate: float = AttentionConfig.dropout_rate
    gelu: Gelu = MLPConfig.gelu
    norm_epsilon: float = AttentionConfig.norm_epsilon
    remat: bool = False
    stochastic_depth_rate: float = 0.0
    layer_scale: bool = False
    qk_norm: bool = AttentionConfig.qk_norm
    rotary: float | None = AttentionConfig.rotary

    def __post_init__(self):
        check_choices(self)
        for field in ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate"):
            if not 0 <= getattr(self, field) < 1:
                raise ValueError(
                    f"{field} must be in [0, 1). Received: {field}={getattr(self, field)}"
                )
        if self.rotary is not None:
            object.__setattr__(self, "rotary", float(self.rotary))
            if not self.rotary > 0:
                raise ValueError(f"rotary must be positive or None. Received: {self.rotary}")

    @property
    def attention(self) -> AttentionConfig:
        """The config of the attention."""
        attention = part_of(AttentionConfig, self)
        return dataclasses.replace(attention, dropout_rate=self.attention_dropout_rate)

    @property
    def mlp(self) -> MLPConfig:
        """The config of the MLP."""
        return MLPConfig(self.mlp_dim, self.dropout_rate, self.gelu)

    @property
    def features(self) -> tuple[str, ...]:
        """Fields by which the block differs from the paper's, sizes and numerics aside."""
        names = (*BLOCK_LAYERS, *UNSEEN_FEATURES)
        return tuple(name for name in names if getattr(self, name) != getattr(BlockConfig, name))

    @property
    def reads_grid(self) -> bool:
        """Whether the block needs the grid of the patches at each call."""
        return self.rotary is not None

    @property
    def is_random(self) -> bool:
        """Whether the block draws random numbers in training."""
        rates = (self.dropout_rate, self.attention_dropout_rate, self.stochastic_depth_rate)
        return any(rates)

    def cost(self, tokens: int, width: int) -> Cost:
        """Returns the cost for a sequence of tokens of size `width`."""
        cost = 2 * norm(tokens, width)
        cost += self.attention.cost(tokens, width) + self.mlp.cost(tokens, width)
        cost += Cost(flops=2 * tokens * width)  # Residuals.
        if self.layer_scale:
            cost += 2 * Cost(parameters=width, flops=tokens * width)
        return cost


@dataclasses.dataclass(frozen=True)
class PoolingConfig:
    """Attention pooling with an MLP, the head "map".

    Args:
        num_heads: Attention heads, k. Divides the token size D.
        mlp_dim: Hidden units of the MLP, see `MLPConfig.hidden_dim`.
        norm_epsilon: Added to LayerNorm's variance.

    Raises:
        ValueError: If `gelu` is unknown.
    """

    num_heads: int
    mlp_dim: int
    gelu: Gelu = MLPConfig.gelu
    norm_epsilon: float = 1e-6

    def __post_init__(self):
        check_choices(self)

    @property
    def mlp(self) -> MLPConfig:
        """The config of the MLP, which drops nothing."""
        return MLPConfig(self.mlp_dim, gelu=self.gelu)

    def cost(self, tokens: int, width: int) -> Cost:
        """Returns the cost of pooling a sequence of tokens of size `width`."""
        return (
            Cost(parameters=width)  # The probe.
            + 2 * dense(1, width, width)  # Query, out.
            + 2 * dense(tokens, width, width)  # Key, value.
            + attention_products(1, tokens, width, self.num_heads)
            + norm(1, width)
            + self.mlp.cost(1, width)
            + Cost(flops=width)  # The residual.
        )


NORM, SOFTMAX, STANDARDIZATION, POOL, SMALL_POOL = 7, 5, 5, 9, 4
# By the nonlinearity of the MLP, for each of its hidden units.
ACTIVATION = {"tanh": 8, "exact": 4, "quick": 3, "relu": 0, "swiglu": 3}


@dataclasses.dataclass(frozen=True)
class Cost:
    """Parameters, FLOPs and activations; costs add, and a number times a cost repeats it.

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


def shared(times: int, cost: Cost) -> Cost:
    """Returns the cost of calling something several times with the same weights."""
    return Cost(cost.parameters, times * cost.flops, times * cost.activations)


def dense(positions: int, inputs: int, outputs: int) -> Cost:
    """Returns the cost of a dense layer on each position."""
    return Cost(
        parameters=(inputs + 1) * outputs,
        flops=(2 * inputs + 1) * positions * outputs,
        activations=positions * outputs,
    )


def norm(positions: int, channels: int) -> Cost:
    """Returns the cost of a normalisation with scale and shift."""
    return Cost(parameters=2 * channels, flops=NORM * positions * channels)


def attention_products(queries: int, keys: int, width: int, num_heads: int) -> Cost:
    """Returns the cost of logits, softmax and the weighted sum of the values."""
    pairs = queries * keys
    return Cost(
        flops=2 * pairs * width + SOFTMAX * num_heads * pairs + 2 * pairs * width,
        activations=num_heads * pairs + queries * width,
    )
