"""Layouts: tables that join the names of a code base to our variables."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence

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


@dataclasses.dataclass(frozen=True)
class Rule:
    """A row of a layout.

    Args:
        stored: Name in the file.
        ours: Path of our variable, or of those that the array holds.
        transform: How they lie in the array.
    """

    stored: str
    ours: str | tuple[str, ...]
    transform: Transform = SAME

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of our variables."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours


@dataclasses.dataclass(frozen=True)
class Layout:
    """The names that a code base gives to the weights, and what it computes with them.

    Args:
        name: Of the code base, for messages.
        rules: The table.
        marks: Patterns; a file of this layout has a name for each.
        prefixes: What may stand in front of names.
        whole_prefix: Whether one prefix stands in front of all weights; what lies beside
            it, such as the state of an optimizer, is none.
        stacked: What stands for all blocks where their arrays are stacked along a first
            axis, and for one of them.
        aliases: Patterns and what replaces them, one after another.
        gelu: The form of GELU that the weights were trained with, or None.
        norm_epsilon: LayerNorm's epsilon there, or None.
        cubic_antialias: Whether its own code antialiases bicubic position embeddings.
        first_block: What the first block is numbered.
    """

    name: str
    rules: tuple[Rule, ...]
    marks: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ("",)
    whole_prefix: bool = False
    stacked: tuple[str, str] | None = None
    aliases: tuple[tuple[str, str | Callable[[re.Match], str]], ...] = ()
    gelu: str | None = None
    norm_epsilon: float | None = None
    cubic_antialias: bool = True
    first_block: int = 0

    def canonical(self, name: str) -> str:
        """Returns a name without prefix as the rows spell it."""
        for pattern, replacement in self.aliases:
            name = re.sub(pattern, replacement, name)
        return name

    def recognised(self, names: Iterable[str]) -> dict[str, str] | None:
        """Returns the canonical names in a file of this layout by those it has.

        What lies beside the prefix of all weights is left out. None if the file is of
        another layout.
        """
        names = list(names)
        for prefix in sorted(self.prefixes, key=len, reverse=True):
            found = {
                name: self.canonical(name.removeprefix(prefix))
                for name in names
                if name.startswith(prefix) or not self.whole_prefix
            }
            if all(any(re.search(mark, name) for name in found.values()) for mark in self.marks):
                return found
        return None

    def entries(self, paths: Iterable[str]) -> dict[str, Rule]:
        """Returns the row of each path that has one, with its fields filled in."""
        found = {}
        for path in paths:
            for rule in self.rules:
                for pattern in rule.paths:
                    fields = _match(pattern, path)
                    if fields is not None:
                        found[path] = _filled(rule, fields, _shifted(fields, self.first_block))
                        break
                if path in found:
                    break
        return found

    def our_paths(self, name: str) -> tuple[str, ...]:
        """Returns the paths that an array of a file may hold, from its canonical name."""
        for rule in self.rules:
            fields = _match(rule.stored, name)
            if fields is not None:
                return _filled(rule, _shifted(fields, -self.first_block), fields).paths
        return ()

    def our_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Returns our variable's shape for an array of a file, if that can be known."""
        for rule in self.rules:
            if _match(rule.stored, name) is not None:
                return rule.transform.our_shape(shape)
        return None


@functools.cache
def _compiled(pattern):
    parts = re.split(r"\{(\w+)(?::\w+)?\}", pattern)
    literals, fields = parts[::2], parts[1::2]
    expression = re.escape(literals[0])
    for field, literal in zip(fields, literals[1:], strict=True):
        expression += rf"(?P<{field}>\d+)" + re.escape(literal)
    return re.compile(expression)


def _match(pattern, text):
    match = _compiled(pattern).fullmatch(text)
    return None if match is None else {field: int(n) for field, n in match.groupdict().items()}


def _shifted(fields, count):
    return {field: n + count if field == "block" else n for field, n in fields.items()}


def _filled(rule, ours, stored):
    """A row with the numbers of our paths and those of the name in the file."""
    paths = tuple(path.format(**ours) for path in rule.paths)
    return Rule(rule.stored.format(**stored), paths, rule.transform)


def rows(stored, ours, names, transform=SAME):
    """A row for each variable of a layer: `names` pairs its name in the file with ours."""
    return tuple(Rule(f"{stored}/{a}", f"{ours}/{b}", transform) for a, b in names)


DENSE = (("kernel", "kernel"), ("bias", "bias"))
NORM = (("scale", "gamma"), ("bias", "beta"))
PROJECTIONS = ("query", "key", "value", "out")

BLOCK = "encoder_block_{block}"
UNIT = "block_{block}_unit_{unit}"


def keras_layout(paths: Iterable[str]) -> Layout:
    """Returns the layout of a `.weights.h5` for the variables of a model.

    There a variable is a number in its layer, in the order of the layer's variables.
    """
    count: dict[str, int] = {}
    rules = []
    for path in paths:
        layer = path.rpartition("/")[0]
        rules.append(Rule(f"{layer}/{count.get(layer, 0)}", path))
        count[layer] = count.get(layer, 0) + 1
    return Layout("Keras", tuple(rules))
