"""Transforms between the array in a file and our variables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

Shape = tuple[int, ...]


class Transform:
    """How the array of a file holds one or several of our variables.

    Here a variable with its own shape or, in subclasses that give a `stored_shape` only, with
    its values in the same order. Shapes are compared before values are read, so every question
    is answered by shapes.
    """

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        """Returns the shape of the array that holds variables with these shapes."""
        return shapes[0]

    def accepts(self, stored: Shape, shapes: Sequence[Shape]) -> bool:
        """Whether an array of this shape holds variables with these shapes."""
        return stored == self.stored_shape(shapes)

    def ours(self, array: np.ndarray, shapes: Sequence[Shape]) -> list[np.ndarray]:
        """Returns the values of the variables from the array."""
        return [array.reshape(shapes[0])]

    def stored(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the array that holds the values of the variables."""
        return values[0].reshape(self.stored_shape([values[0].shape]))

    def our_shape(self, stored: Shape) -> Shape | None:
        """Returns the shape of the variable, or None if the shape of the array does not give it."""
        return stored


@dataclasses.dataclass(frozen=True)
class Reshaped(Transform):
    """The values of the variable in the same order, in an array of another shape.

    Args:
        shape: Returns the shape of the array for the shape of the variable.
        back: Returns the shape of the variable for the shape of the array, or None.
    """

    shape: Callable[[Shape], Shape]
    back: Callable[[Shape], Shape | None] = lambda stored: None

    def stored_shape(self, shapes):
        return self.shape(shapes[0])

    def our_shape(self, stored):
        return self.back(stored)


@dataclasses.dataclass(frozen=True)
class LeadingOnes(Transform):
    """The variable with leading axes of length one, which some files omit.

    Args:
        count: Leading axes in the files that we write.
    """

    count: int

    def stored_shape(self, shapes):
        return (1,) * self.count + shapes[0]

    def accepts(self, stored, shapes):
        return stored in (shapes[0], self.stored_shape(shapes))

    def our_shape(self, stored):
        return stored[self.count :] if stored[: self.count] == (1,) * self.count else stored


@dataclasses.dataclass(frozen=True)
class Matrix(Transform):
    """A matrix `(outputs, inputs)`, as in PyTorch.

    Args:
        num_inputs: Axes of our kernel that are inputs: 2 for attention's `out`,
            `(k, D_h, D)`, else 1.
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


class Convolution(Transform):
    """A kernel `(outputs, inputs, height, width)`, as in PyTorch.

    A dense layer on patches with the channels last, `(outputs, height width inputs)`, is read, too.
    """

    def stored_shape(self, shapes):
        return tuple(shapes[0][axis] for axis in (3, 2, 0, 1))

    def accepts(self, stored, shapes):
        outputs, *inputs = self.stored_shape(shapes)
        return stored in ((outputs, *inputs), (outputs, math.prod(inputs)))

    def ours(self, array, shapes):
        if array.ndim == 2:
            return [np.ascontiguousarray(array.T).reshape(shapes[0])]
        return [np.ascontiguousarray(array.transpose(2, 3, 1, 0))]

    def stored(self, values):
        return np.ascontiguousarray(values[0].transpose(3, 2, 0, 1))

    def our_shape(self, stored):
        if len(stored) == 2:  # Square patches of three channels.
            side = math.isqrt(stored[1] // 3)
            return (side, side, 3, stored[0]) if stored[1] == 3 * side * side else None
        return tuple(stored[axis] for axis in (2, 3, 1, 0)) if len(stored) == 4 else None


@dataclasses.dataclass(frozen=True)
class Stacked(Transform):
    """Several variables of equal shape, concatenated along the first axis.

    Args:
        part: The transform of each variable.
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
VECTOR = Reshaped(lambda shape: (math.prod(shape),))
# Kernels of attention, all heads in one axis.
FLAT = Reshaped(lambda shape: (shape[0], math.prod(shape[1:])))
FLAT_FROM_HEADS = Reshaped(lambda shape: (math.prod(shape[:-1]), shape[-1]))
# Positions `(rows, D)`; our variable is `(1, rows, D)`.
POSITION_ROWS = Reshaped(lambda shape: shape[1:], lambda stored: (1, *stored))
GROUP_NORM = LeadingOnes(3)
POINTWISE = LeadingOnes(2)  # A dense layer kept as a 1x1 convolution.

# How PyTorch holds the variables of our layers, by regular expressions of their paths.
TORCH_TRANSFORMS = {
    "^patch_embedding/kernel$": Convolution(),
    r"/out/kernel$": Matrix(num_inputs=2),
    r"/kernel$": Matrix(),
    r"/bias$": VECTOR,
}
