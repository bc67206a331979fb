"""Parameters, FLOPs and activations of the operations that models are made of; without Keras.

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

NORM, SOFTMAX, STANDARDIZATION, POOL, SMALL_POOL = 7, 5, 5, 9, 4
# By the nonlinearity of the MLP, for each of its hidden units.
ACTIVATION = {"tanh": 8, "exact": 4, "quick": 3, "relu": 0, "swiglu": 3}


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
