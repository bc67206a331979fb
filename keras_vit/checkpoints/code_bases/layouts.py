"""Layouts of checkpoints: names and shapes of weights in the files of a code base.

A layout is a table with a row for each variable, used to read and to write files.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import pathlib
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from keras_vit.checkpoints.code_bases.files_beside import found
from keras_vit.checkpoints.code_bases.transforms import SAME, Stacked, Transform
from keras_vit.checkpoints.formats import StoredArray
from keras_vit.configs import ViTConfig
from keras_vit.configs.recognition import layer_shapes
from keras_vit.description import Description


@dataclasses.dataclass(frozen=True)
class NameRule:
    """A row of a layout: one array of a file and the variables that it holds.

    Args:
        stored: Name of the array.
        paths: Path of our variable, or of several that lie in one array.
        transform: How the values of the variables lie in the array.
        optional: Whether models of the code base may lack the array, as biases that are
            switched off; ours are then zeros.
    """

    stored: str
    paths: tuple[str, ...]
    transform: Transform = SAME
    optional: bool = False


# What a code base states of weights: fields of a config with a description of their grid and image
# size; and how images of a size are prepared for them, with the labels of a number of classes.
Stated = tuple[dict[str, Any], Description]


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
        aliases: Regular expressions and their replacements, applied one after another, which
            turn other spellings of the layout into the rules' spelling.
        left_out: Regular expressions of arrays that the image encoder does not use, each with
            a name for them.
        gates: Parts of the names of a gate in an MLP and of the layer that it gates, where the
            code base may have them apart; the rules' name for both in one array is the latter.
        gelu: The form of GELU that the weights were trained with, or None.
        norm_epsilon: LayerNorm's epsilon that the weights were trained with, or None.
        models_vary: Whether models of the code base differ in heads and GELU, so that a file
            without a description shows neither; `gelu` is then the usual form.
        position_resize: How the code base resizes tables of positions to another grid, a key of
            `keras_vit.configs.position_resize.RULES`.
        prefix_rows: Tokens in front of the patches with rows in position tables, the most
            likely case first: "class" tokens, "all" (registers, too) or "none".
        stated: Returns what the `config.json` of the code base states: fields of `ViTConfig`, and
            a description with the grid and the image size.
        images: Returns how images are prepared and the labels, from the files beside weights.
    """

    name: str
    rules: tuple[NameRule, ...] = ()
    numbered: bool = False
    marks: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ("",)
    whole_prefix: bool = False
    stacked: tuple[str, str] | None = None
    aliases: tuple[tuple[str, str | Callable[[re.Match], str]], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    gates: tuple[str, str] | None = None
    gelu: str | None = None
    norm_epsilon: float | None = None
    models_vary: bool = False
    position_resize: str = "official"
    prefix_rows: tuple[str, ...] = ("class",)
    stated: Callable[[Checkpoint], Stated] = lambda checkpoint: ({}, Description())
    images: Callable[[Checkpoint, tuple[int, int], int | None], Description] = (
        lambda checkpoint, image_size, classes: found("the file holds weights alone")
    )

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

    def rules_of_model(self, paths: Iterable[str]) -> dict[str, NameRule]:
        """Returns the rule of each variable path that has one, its fields filled in."""
        if self.numbered:
            return _numbered_rules(paths)
        rules = {}
        for path in paths:
            for rule in self.rules:
                matches = (_fields(ours, path) for ours in rule.paths)
                fields = next((match for match in matches if match is not None), None)
                if fields is not None:
                    rules[path] = _filled(rule, fields)
                    break
        return rules

    def rule_of_array(self, name: str) -> NameRule | None:
        """Returns the rule of an array by its canonical name, its fields filled in.

        None if no rule has the name; a numbered layout has no rules without a model.
        """
        for rule in self.rules:
            fields = _fields(rule.stored, name)
            if fields is not None:
                return _filled(rule, fields)
        return None

    def stored_name(self, path: str) -> str:
        """Returns the canonical name of the array with a variable; "" without one."""
        return next((rule.stored for rule in self.rules if path in rule.paths), "")

    def with_unread_tokens(self, arrays: dict[str, StoredArray]) -> dict[str, StoredArray]:
        """Returns the arrays of a file with a distillation token that no head reads as a register.

        Args:
            arrays: The arrays by their canonical names, which are changed.
        """
        stored = self.stored_name
        token, head = stored("distillation_token/token"), stored("predictions/kernel")
        others = {stored(REGISTERS), stored("distillation_token_head/kernel")}
        if {token, head} <= arrays.keys() and not others & arrays.keys():
            arrays[stored(REGISTERS)] = arrays.pop(token)
        return arrays

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

    def canonical_name(self, name: str) -> str:
        """Returns the spelling of a name without prefix in the rules."""
        for pattern, replacement in self.aliases:
            name = re.sub(pattern, replacement, name)
        return name


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A file of weights whose layout is known; no value has been read.

    Args:
        path: The file or folder.
        layout: The layout of its names.
        arrays: Its arrays by canonical name.
        fields: Fields of `ViTConfig` that the file, its config and its code base state.
        stated: What else they state: the description that this package noted in the file, or
            the grid and the image size in the config.
        config: The object in the `config.json` in the file or beside it; {} without one.
        assumed: Names of the fields that the code base's models usually have, while the file
            does not state it.
        class_token_has_row: Whether the class token has a row in the position table.
        notes: Sentences for a report.
    """

    path: pathlib.Path
    layout: Layout
    arrays: dict[str, StoredArray]
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stated: Description = Description()
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    class_token_has_row: bool = True
    notes: tuple[str, ...] = ()

    def states(self, field: str) -> bool:
        """Returns whether the file or its code base determines a field of the config."""
        return field in self.fields and field not in self.assumed

    @property
    def position_rule(self) -> str:
        """How the file's code base resizes positions, a key of `RULES`."""
        return self.fields.get("position_resize") or ViTConfig.position_resize

    @property
    def folder(self) -> pathlib.Path:
        """The folder with the weights and what describes them."""
        return self.path if self.path.is_dir() else self.path.parent

    @property
    def is_regression(self) -> bool:
        """Whether the head gives numbers instead of scores of classes."""
        return self.config.get("problem_type") == "regression"

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...] | None]:
        """Shape of the first variable of each of our layers in the file; None if unknown."""
        if self.layout.numbered:
            return layer_shapes({name: array.shape for name, array in self.arrays.items()})
        shapes: dict[str, tuple[int, ...] | None] = {}
        for name, array in self.arrays.items():
            if rule := self.layout.rule_of_array(name):
                shapes.update(dict.fromkeys(rule.paths, rule.transform.our_shape(array.shape)))
        return layer_shapes(shapes)

    @property
    def width(self) -> int:
        """The token size, D; 0 if the file does not show it."""
        return (self.shapes.get("patch_embedding") or (0,))[-1]

    @property
    def channels(self) -> int | None:
        """Channels of the images; None if the file does not show them."""
        kernel = self.shapes.get("root_conv") or self.shapes.get("patch_embedding")
        return kernel[2] if kernel else None

    @property
    def num_class_tokens(self) -> int:
        """Class and distillation tokens."""
        return len({"class_token", "distillation_token"} & self.shapes.keys())

    @property
    def prefix_row_counts(self) -> tuple[int, ...]:
        """Possible numbers of rows in front of the patches' in the position table."""
        tokens = self.num_class_tokens if self.class_token_has_row else 0
        registers = (self.shapes.get("registers") or (0, 0))[1]
        counts = {"class": tokens, "all": tokens + registers, "none": 0}
        return tuple(dict.fromkeys(counts[rows] for rows in self.layout.prefix_rows))


def _numbered_rules(paths):
    """Rules for variables that are counted in each layer, in the order of the model."""
    counts: collections.Counter[str] = collections.Counter()
    rules = {}
    for path in paths:
        layer = path.rpartition("/")[0]
        rules[path] = NameRule(f"{layer}/{counts[layer]}", (path,))
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


def _filled(rule, fields):
    """A rule with numbers instead of fields."""
    paths = tuple(path.format(**fields) for path in rule.paths)
    return dataclasses.replace(rule, stored=rule.stored.format(**fields), paths=paths)


# Paths of our layers.
BLOCK = "encoder_block_{block}"
UNIT = "block_{block}_unit_{unit}"
QKV = ("query", "key", "value")
POSITIONS, REGISTERS = "position_embedding/embedding", "registers/tokens"

# Ends of the names of variables in files, by our name.
TORCH = {"kernel": ".weight", "bias": ".bias", "gamma": ".weight", "beta": ".bias"}
FLAX = {"kernel": "/kernel", "bias": "/bias", "gamma": "/scale", "beta": "/bias"}
KERAS_2 = {"kernel": "/kernel", "bias": "/bias", "gamma": "/gamma", "beta": "/beta"}
NUMBERED = {"kernel": "/0", "bias": "/1", "gamma": "/0", "beta": "/1"}

_VARIABLES = {"kernel", "gamma", "token", "tokens", "probe", "embedding"}
# Projections that lie in one array.
_STACKS = {"qkv": QKV, "kv": ("key", "value")}


def rules_of(
    names: Mapping[str, str],
    ends: Mapping[str, str],
    transforms: Mapping[str, Transform] = types.MappingProxyType({}),
    optional: str = "$^",
) -> tuple[NameRule, ...]:
    """Returns the rules of a code base from its names of layers.

    Args:
        names: By the path of our layer or variable, the name in a file. "attention/qkv" stands
            for query, key and value, stacked in one array.
        ends: What follows the names of layers: `TORCH`, `FLAX`, `KERAS_2` or `NUMBERED`.
        transforms: By a regular expression of our path, how its values lie in the array; the first
            that fits counts.
        optional: A regular expression of our biases that files may lack.
    """
    rules = []
    for path, stored in names.items():
        layer, _, last = path.rpartition("/")
        variables = ("gamma", "beta") if re.search(r"norm(_\w+)?$", path) else ("kernel", "bias")
        for variable in ("",) if last in _VARIABLES else variables:
            paths = tuple(f"{layer}/{part}/{variable}" for part in _STACKS.get(last, ()))
            paths = paths or (f"{path}/{variable}" if variable else path,)
            fitting = (way for mark, way in transforms.items() if re.search(mark, paths[0]))
            transform = next(fitting, SAME)
            if len(paths) > 1:
                transform = Stacked(transform)
            is_optional = variable == "bias" and re.search(optional, paths[0]) is not None
            rules.append(NameRule(stored + ends.get(variable, ""), paths, transform, is_optional))
    return tuple(rules)


@contextlib.contextmanager
def readable_files(checkpoint: Checkpoint) -> Iterator[None]:
    """Raises ValueError where arrays or the JSON beside them are not as their code base's."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(
            f"Weights and the JSON next to them must be as {checkpoint.layout.name} writes them. "
            f"Received: {checkpoint.path} ({error!r:.200})"
        ) from error
