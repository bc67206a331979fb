"""Layouts of checkpoints: names and shapes of weights in the files of a code base.

A layout is a table with a row for each variable, used to read and to write files. A transform
converts between the array in a file and our variables.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from keras_vit.checkpoints.code_bases.files_beside import ReadImages, Stated, WeightFiles, found
from keras_vit.configs.resnet_configs import EpsilonIn
from keras_vit.description import Description
from keras_vit.preprocessing import Preprocessing

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


class Vector(Transform):
    """The variable with all its axes flattened into one."""

    def stored_shape(self, shapes):
        return (math.prod(shapes[0]),)

    def our_shape(self, stored):
        return None


@dataclasses.dataclass(frozen=True)
class Flat(Transform):
    """A kernel of attention as a matrix `(inputs, outputs)`, all heads in one axis.

    Args:
        num_inputs: Axes of our kernel that are inputs: 2 for attention's `out`, else 1.
    """

    num_inputs: int = 1

    def stored_shape(self, shapes):
        inputs, outputs = shapes[0][: self.num_inputs], shapes[0][self.num_inputs :]
        return (math.prod(inputs), math.prod(outputs))

    def our_shape(self, stored):
        return None


class PositionRows(Transform):
    """Positions `(rows, D)`; our variable is `(1, rows, D)`."""

    def stored_shape(self, shapes):
        return shapes[0][1:]

    def our_shape(self, stored):
        return (1, *stored)


class Convolution(Transform):
    """A kernel `(outputs, inputs, height, width)`, as in PyTorch."""

    def stored_shape(self, shapes):
        height, width, inputs, outputs = shapes[0]
        return (outputs, inputs, height, width)

    def ours(self, array, shapes):
        return [np.ascontiguousarray(array.transpose(2, 3, 1, 0))]

    def stored(self, values):
        return np.ascontiguousarray(values[0].transpose(3, 2, 0, 1))

    def our_shape(self, stored):
        return tuple(stored[axis] for axis in (2, 3, 1, 0)) if len(stored) == 4 else None


class ConvolutionOfPooled(Transform):
    """A matrix `(inputs, outputs)` as the kernel of a 1x1 convolution, as in PyTorch."""

    def stored_shape(self, shapes):
        inputs, outputs = shapes[0]
        return (outputs, inputs, 1, 1)

    def ours(self, array, shapes):
        return [np.ascontiguousarray(array[:, :, 0, 0].T)]

    def stored(self, values):
        return np.ascontiguousarray(values[0].T)[:, :, None, None]

    def our_shape(self, stored):
        return (stored[1], stored[0]) if stored[2:] == (1, 1) else None


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
CONVOLUTION = Convolution()
CONVOLUTION_OF_POOLED = ConvolutionOfPooled()
MATRIX = Matrix()
MATRIX_FROM_HEADS = Matrix(num_inputs=2)
VECTOR = Vector()
FLAT = Flat()
FLAT_FROM_HEADS = Flat(num_inputs=2)
POSITION_ROWS = PositionRows()
STACKED_MATRICES = Stacked(MATRIX)
STACKED_VECTORS = Stacked(VECTOR)
GROUP_NORM = LeadingOnes(3)
POINTWISE = LeadingOnes(2)  # A dense layer kept as a 1x1 convolution.


@dataclasses.dataclass(frozen=True)
class Rule:
    """A row of a layout: one array of a file and the variables that it holds.

    Args:
        stored: Name of the array.
        ours: Path of our variable, or of several that lie in one array.
        transform: How the values of the variables lie in the array.
        optional: Whether models of the code base may lack the array, as biases that are
            switched off; ours are then zeros.
    """

    stored: str
    ours: str | tuple[str, ...]
    transform: Transform = SAME
    optional: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of our variables."""
        return (self.ours,) if isinstance(self.ours, str) else self.ours


def nothing_stated(files: WeightFiles) -> Stated:
    """What a code base without a `config.json` states."""
    return {}, Description()


def no_images(files: WeightFiles, image_size: tuple[int, int], classes: int | None) -> Description:
    """What a code base without files beside weights states of images."""
    return found("the file holds weights alone")


@dataclasses.dataclass(frozen=True)
class Layout:
    """Names and shapes of the weights in the files of a code base.

    Names are patterns: fields in braces, such as `{block}`, are numbers that the name of an
    array and the path of our variable share.

    Args:
        name: Name of the code base, for messages.
        rules: The table.
        numbered: Whether arrays have the number of the variable in its layer instead of a
            name, as in Keras's `.weights.h5`. There are no rules then; the variables of the
            model give them.
        marks: Regular expressions; a file of this layout has an array for each.
        prefixes: Prefixes that names may have.
        whole_prefix: Whether all weights have the same prefix, and arrays without it, such as
            the state of an optimizer, are not weights.
        stacked: The part of the names that stands for all blocks where their arrays are
            stacked along a first axis, and the part for one block.
        joined: Arrays of the rules that a file may hold in parts: the name of the array, and the
            names of its parts in the order of its first axis; None is a part of zeros.
        aliases: Regular expressions and their replacements, applied one after another, which
            turn other spellings of the layout into the rules' spelling.
        left_out: Regular expressions of arrays that the image encoder does not use, each with
            a name for them.
        gelu: The form of GELU that the weights were trained with, or None.
        norm_epsilon: LayerNorm's epsilon that the weights were trained with, or None.
        epsilon_in: How the code base standardises the kernels of a hybrid's ResNet.
        models_vary: Whether models of the code base differ in heads and GELU, so that a file
            without a description shows neither; `gelu` is then the usual form.
        refusals: Regular expressions of names in files of models that no model here equals,
            and the feature that those have.
        position_resize: How the code base resizes tables of positions to another grid, a key of
            `keras_vit.configs.position_resize.RULES`.
        prefix_rows: Tokens in front of the patches with rows in position tables, the most
            likely case first: "class" tokens, "all" (registers, too) or "none".
        first_block: Number of the first block.
        fixed_positions: A regular expression of the names in files whose positions are sines and
            cosines, which they leave out.
        gap_note: A note for classifiers on the mean over patches.
        needed: A regular expression of names, and the field of the config that must be stated
            for files with them.
        stated: Returns what the `config.json` of the code base states: fields of `ViTConfig`, and
            a description with the grid and the image size.
        images: Returns how images are prepared and the labels, from the files beside weights.
        usual_resize: Returns the resize of most weights, for files that do not state it.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    numbered: bool = False
    marks: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ("",)
    whole_prefix: bool = False
    stacked: tuple[str, str] | None = None
    joined: tuple[tuple[str, tuple[str | None, ...]], ...] = ()
    aliases: tuple[tuple[str, str | Callable[[re.Match], str]], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    gelu: str | None = None
    norm_epsilon: float | None = None
    epsilon_in: EpsilonIn = "deviation"
    models_vary: bool = False
    refusals: tuple[tuple[str, str], ...] = ()
    position_resize: str = "official"
    prefix_rows: tuple[str, ...] = ("class",)
    first_block: int = 0
    fixed_positions: str | None = None
    gap_note: str = ""
    needed: tuple[str, str] | None = None
    stated: Callable[[WeightFiles], Stated] = nothing_stated
    images: ReadImages = no_images
    usual_resize: Callable[[tuple[int, int]], Preprocessing] = Preprocessing

    def canonical_names(self, names: Iterable[str]) -> dict[str, str] | None:
        """Returns each name of a weight in a file with its spelling in the rules.

        Returns:
            A dict from names in the file to canonical names, or None if the file has another
            layout.
        """
        names = list(names)
        for prefix in sorted(self.prefixes, key=len, reverse=True):
            spelled = {
                name: self.canonical_name(name.removeprefix(prefix))
                for name in names
                if name.startswith(prefix) or not self.whole_prefix
            }
            if all(any(re.search(mark, name) for name in spelled.values()) for mark in self.marks):
                return spelled
        return None

    def rules_of_model(self, paths: Iterable[str]) -> dict[str, Rule]:
        """Returns the rule of each variable path that has one, its fields filled in."""
        if self.numbered:
            return _numbered_rules(paths)
        rules = {}
        for path in paths:
            for rule in self.rules:
                matches = (_fields(ours, path) for ours in rule.paths)
                fields = next((match for match in matches if match is not None), None)
                if fields is not None:
                    rules[path] = _filled(rule, fields, _shifted(fields, self.first_block))
                    break
        return rules

    def rule_of_array(self, name: str) -> Rule | None:
        """Returns the rule of an array by its canonical name, its fields filled in.

        None if no rule has the name; a numbered layout has no rules without a model.
        """
        for rule in self.rules:
            fields = _fields(rule.stored, name)
            if fields is not None:
                return _filled(rule, _shifted(fields, -self.first_block), fields)
        return None

    def stored_name(self, path: str) -> str:
        """Returns the canonical name of the array with a variable; "" without one."""
        return next((rule.stored for rule in self.rules if path in rule.paths), "")

    def parts_of_arrays(self, names: Iterable[str]) -> dict[str, tuple[str | None, ...]]:
        """Returns the arrays that a file holds in parts, and the names of their parts.

        Args:
            names: Canonical names of a file's arrays.
        """
        wholes = {}
        for name in names:
            for whole, parts in self.joined:
                fields = _fields(parts[0], name)
                if fields is not None:
                    filled = (part and part.format(**fields) for part in parts)
                    wholes[whole.format(**fields)] = tuple(filled)
        return wholes

    def absent_paths(self, names: Iterable[str], paths: Iterable[str]) -> set[str]:
        """Returns the variable paths of optional rules that no array of a file belongs to.

        An array that some blocks have and others lack is missing, not absent.

        Args:
            names: Canonical names of a file's arrays.
            paths: Paths of a model's variables.
        """
        names = tuple(names)
        absent = [
            ours
            for rule in self.rules
            if rule.optional and all(_fields(rule.stored, name) is None for name in names)
            for ours in rule.paths
        ]
        return {path for path in paths if any(_fields(ours, path) is not None for ours in absent)}

    def refused_feature(self, names: Iterable[str]) -> str | None:
        """Returns the feature of `refusals` that a file has by the names in it, or None."""
        return next(
            (
                feature
                for pattern, feature in self.refusals
                if any(re.search(pattern, name) for name in names)
            ),
            None,
        )

    def canonical_name(self, name: str) -> str:
        """Returns the spelling of a name without prefix in the rules."""
        for pattern, replacement in self.aliases:
            name = re.sub(pattern, replacement, name)
        return name


def _numbered_rules(paths):
    """Rules for variables that are counted in each layer, in the order of the model."""
    counts: collections.Counter[str] = collections.Counter()
    rules = {}
    for path in paths:
        layer = path.rpartition("/")[0]
        rules[path] = Rule(f"{layer}/{counts[layer]}", path)
        counts[layer] += 1
    return rules


@functools.cache
def _compiled(pattern):
    parts = re.split(r"\{(\w+)(?::\w+)?\}", pattern)
    literals, fields = parts[::2], parts[1::2]
    expression = re.escape(literals[0])
    for field, literal in zip(fields, literals[1:], strict=True):
        expression += rf"(?P<{field}>\d+)" + re.escape(literal)
    return re.compile(expression)


def _fields(pattern, text):
    """Numbers by field if a text matches a pattern, else None."""
    match = _compiled(pattern).fullmatch(text)
    return None if match is None else {field: int(n) for field, n in match.groupdict().items()}


def _shifted(fields, count):
    return {field: n + count if field == "block" else n for field, n in fields.items()}


def _filled(rule, ours, stored):
    """A rule with numbers instead of fields."""
    paths = tuple(path.format(**ours) for path in rule.paths)
    return dataclasses.replace(rule, stored=rule.stored.format(**stored), ours=paths)


def rows(
    stored: str,
    ours: str,
    names: Iterable[tuple[str, str]],
    transform: Transform = SAME,
    optional_bias: bool = False,
) -> tuple[Rule, ...]:
    """Returns a rule for each variable of a layer.

    Args:
        stored: Name of the layer in the file.
        ours: Path of our layer.
        names: Pairs of the variable's name in the file and in our layer.
        transform: The transform of all of them.
        optional_bias: Whether files may lack the bias.
    """
    return tuple(
        Rule(f"{stored}/{a}", f"{ours}/{b}", transform, optional_bias and b == "bias")
        for a, b in names
    )


DENSE = (("kernel", "kernel"), ("bias", "bias"))
NORM = (("scale", "gamma"), ("bias", "beta"))
PROJECTIONS = ("query", "key", "value", "out")

BLOCK = "encoder_block_{block}"
UNIT = "block_{block}_unit_{unit}"
QKV = ("query", "key", "value")


def torch_dense(
    stored: str, ours: str, transform: Transform = MATRIX, optional_bias: bool = False
) -> tuple[Rule, ...]:
    """Returns the rules of a dense layer or convolution in PyTorch."""
    return (
        Rule(f"{stored}.weight", f"{ours}/kernel", transform),
        Rule(f"{stored}.bias", f"{ours}/bias", VECTOR, optional_bias),
    )


def torch_norm(stored: str, ours: str) -> tuple[Rule, ...]:
    """Returns the rules of a normalisation in PyTorch."""
    return (Rule(f"{stored}.weight", f"{ours}/gamma"), Rule(f"{stored}.bias", f"{ours}/beta"))


def torch_qkv(weight: str, bias: str, ours: str = f"{BLOCK}/attention") -> tuple[Rule, ...]:
    """Returns the rules of the projections of an attention, stacked in one array."""
    return tuple(
        Rule(
            stored,
            tuple(f"{ours}/{part}/{variable}" for part in QKV),
            transform,
            optional=variable == "bias",
        )
        for stored, variable, transform in (
            (weight, "kernel", STACKED_MATRICES),
            (bias, "bias", STACKED_VECTORS),
        )
    )


def joined_gates(mlp: str, whole: str, gate: str, value: str) -> Any:
    """Returns the halves of SwiGLU's first layer, for `Layout.joined`."""
    return tuple(
        (f"{mlp}.{whole}.{variable}", (f"{mlp}.{gate}.{variable}", f"{mlp}.{value}.{variable}"))
        for variable in ("weight", "bias")
    )
