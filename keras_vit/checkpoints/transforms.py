"""How one array of a file holds one or several of our variables, in both directions.

All of it is decided by shapes, so that a file is judged before its values are read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

Shape = tuple[int, ...]


class Transform:
    """The array of the file is the variable."""

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        """Returns the shape in a file of variables with these shapes."""
        return shapes[0]

    def accepts(self, stored: Shape, shapes: Sequence[Shape]) -> bool:
        """Whether an array of this shape is one of those variables."""
        return stored == self.stored_shape(shapes)

    def ours(self, array: np.ndarray, shapes: Sequence[Shape]) -> list[np.ndarray]:
        """Returns the values of the variables."""
        return [array]

    def stored(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the array of the file."""
        return values[0]

    def our_shape(self, stored: Shape) -> Shape | None:
        """Returns the variable's shape if the file's is enough to know it."""
        return stored


@dataclasses.dataclass(frozen=True)
class LeadingOnes(Transform):
    """The variable behind axes of length one, which some files have and some have not.

    Args:
        count: Axes, where we write them.
    """

    count: int

    def stored_shape(self, shapes):
        return (1,) * self.count + shapes[0]

    def accepts(self, stored, shapes):
        return stored in (shapes[0], self.stored_shape(shapes))

    def ours(self, array, shapes):
        return [array.reshape(shapes[0])]

    def stored(self, values):
        return values[0].reshape(self.stored_shape([values[0].shape]))

    def our_shape(self, stored):
        return stored[self.count :] if stored[: self.count] == (1,) * self.count else stored


@dataclasses.dataclass(frozen=True)
class Matrix(Transform):
    """A matrix `(outputs, inputs)` as PyTorch has it.

    Args:
        num_inputs: How many axes of our kernel are inputs: 1 but for attention's `out`,
            `(k, D_h, D)`.
    """

    num_inputs: int = 1

    def stored_shape(self, shapes):
        inputs, outputs = shapes[0][: self.num_inputs], shapes[0][self.num_inputs :]
        return (math.prod(outputs), math.prod(inputs))

    def ours(self, array, shapes):
        return [np.ascontiguousarray(array.T).reshape(shapes[0])]

    def stored(self, values):
        rows = math.prod(values[0].shape[: self.num_inputs])
        return np.ascontiguousarray(values[0].reshape(rows, -1).T)

    def our_shape(self, stored):
        return stored[::-1]


class Vector(Transform):
    """All axes of the variable in one."""

    def stored_shape(self, shapes):
        return (math.prod(shapes[0]),)

    def ours(self, array, shapes):
        return [array.reshape(shapes[0])]

    def stored(self, values):
        return values[0].reshape(-1)

    def our_shape(self, stored):
        return None


@dataclasses.dataclass(frozen=True)
class Flat(Transform):
    """A kernel of attention as a matrix `(inputs, outputs)`, the heads in one axis.

    Args:
        num_inputs: How many axes of our kernel are inputs: 1, or 2 for attention's `out`.
    """

    num_inputs: int = 1

    def stored_shape(self, shapes):
        inputs, outputs = shapes[0][: self.num_inputs], shapes[0][self.num_inputs :]
        return (math.prod(inputs), math.prod(outputs))

    def ours(self, array, shapes):
        return [array.reshape(shapes[0])]

    def stored(self, values):
        return values[0].reshape(self.stored_shape([values[0].shape]))

    def our_shape(self, stored):
        return None


class Table(Transform):
    """Positions `(rows, D)`, where ours have an axis of length one in front."""

    def stored_shape(self, shapes):
        return shapes[0][1:]

    def ours(self, array, shapes):
        return [array[None]]

    def stored(self, values):
        return values[0][0]

    def our_shape(self, stored):
        return (1, *stored)


class Convolution(Transform):
    """A kernel `(outputs, inputs, height, width)` as PyTorch has it."""

    def stored_shape(self, shapes):
        height, width, inputs, outputs = shapes[0]
        return (outputs, inputs, height, width)

    def ours(self, array, shapes):
        return [np.ascontiguousarray(array.transpose(2, 3, 1, 0))]

    def stored(self, values):
        return np.ascontiguousarray(values[0].transpose(3, 2, 0, 1))

    def our_shape(self, stored):
        return tuple(stored[axis] for axis in (2, 3, 1, 0)) if len(stored) == 4 else None


@dataclasses.dataclass(frozen=True)
class Stacked(Transform):
    """Several variables of equal shape one below the other, each as `part` holds it.

    Args:
        part: The transform of each.
    """

    part: Transform

    def stored_shape(self, shapes):
        rows, *rest = self.part.stored_shape(shapes[:1])
        return (rows * len(shapes), *rest)

    def ours(self, array, shapes):
        return [
            self.part.ours(part, [shape])[0]
            for part, shape in zip(np.split(array, len(shapes)), shapes, strict=True)
        ]

    def stored(self, values):
        return np.concatenate([self.part.stored([value]) for value in values])

    def our_shape(self, stored):
        return None


SAME = Transform()
CONVOLUTION = Convolution()
MATRIX = Matrix()
MATRIX_FROM_HEADS = Matrix(num_inputs=2)
VECTOR = Vector()
FLAT = Flat()
FLAT_FROM_HEADS = Flat(num_inputs=2)
TABLE = Table()
STACKED_MATRICES = Stacked(MATRIX)
STACKED_VECTORS = Stacked(VECTOR)
GROUP_NORM = LeadingOnes(3)
POINTWISE = LeadingOnes(2)  # A dense layer kept as a 1x1 convolution.
