"""Loading weights of any known layout into a model, all of them or none.

Arrays are matched with variables by names and shapes, before any value is read.
"""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import functools
import os
import pathlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_vit.checkpoints.catalogue import OfficialWeights, download
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.code_bases.layouts import POSITIONS, Checkpoint, Layout, NameRule
from keras_vit.checkpoints.code_bases.transforms import Shape
from keras_vit.checkpoints.formats import StoredArray, computed_array, read_values
from keras_vit.checkpoints.resize import (
    Grid,
    adapt_input_channels,
    find_grid,
    resize_positions,
    with_folded_registers,
)
from keras_vit.configs import CLASSIFIER_LAYERS, HEAD_LAYERS, ViTConfig, classifier_layer
from keras_vit.configs.blocks import UNSEEN_BLOCK_FIELDS
from keras_vit.configs.model_table import LEVERAGE
from keras_vit.configs.position_resize import RULES
from keras_vit.configs.recognition import num_classes
from keras_vit.description import (
    Description,
    has_layers_in_front,
    set_description,
)

# Arrays at rest: an opened file, or an official file that is downloaded when it is loaded.
Arrays: TypeAlias = Checkpoint | OfficialWeights

# Arrays that an error names of each kind.
MAX_LISTED = 3


@dataclasses.dataclass(frozen=True)
class LoadOptions:
    """Arguments of `load_checkpoint`, which describes them, and `head`.

    By default positions are resized by the rule of the weights' code base. `head` is described in
    `Weights.load_into`, which alone gives it.

    Raises:
        ValueError: If a method is unknown.
    """

    skip: Sequence[str] = ()
    position_resize: str | None = None
    position_grid: Sequence[int] | None = None
    input_channels: str | None = None
    head: str | Sequence[int | None] = "keep"

    def __post_init__(self):
        if self.position_resize not in (None, *RULES):
            raise ValueError(
                f"position_resize must be one of {(*RULES,)} or None. "
                f"Received: {self.position_resize!r}"
            )

    def skips(self, names: Sequence[str]) -> bool:
        """Returns whether a pattern of `skip` matches a name."""
        return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in self.skip)


@dataclasses.dataclass(frozen=True)
class Assignment:
    """An array of a file and the variables that get its values.

    Args:
        array: The array.
        rule: Its row in the layout, which has the paths of the variables.
        shapes: Shapes of the variables in the file, before `adapt`.
        adapt: Converts the value to the model's grid, patch or channels; None if it is equal.
        grids: Patches (down, across) in the file and in the model, for position embeddings.
        note: A sentence about it for the report, or "".
    """

    array: StoredArray
    rule: NameRule
    shapes: Sequence[Shape]
    adapt: Callable[[np.ndarray], np.ndarray] | None = None
    grids: tuple[Grid, Grid] | None = None
    note: str = ""


def match_checkpoint(
    checkpoint: Checkpoint, model: keras.Model, options: LoadOptions
) -> tuple[list[Assignment], dict[str, Any]]:
    """Returns which array of a checkpoint goes to which variable, and fields of the report.

    Raises:
        ValueError: If an array is missing, unused or misshapen; one error lists all of them.
    """
    variables = weights_by_path(model)
    if options.position_grid is not None:
        down, across = options.position_grid
        stated = dataclasses.replace(checkpoint.stated, position_grid=(down, across))
        checkpoint = dataclasses.replace(checkpoint, stated=stated)
    if POSITIONS in variables:
        checkpoint = with_folded_registers(checkpoint, layer_of(model, POSITIONS).grid)
    skip = (*options.skip, *_heads_left_out(checkpoint, model, options.head))
    options = dataclasses.replace(options, skip=skip)
    layout, arrays = checkpoint.layout, checkpoint.arrays
    rules = layout.rules_of_model(variables)
    absent = layout.absent_paths(arrays, variables)
    assignments: list[Assignment] = []
    kept: list[str] = []
    used: set[str] = set()
    missing: list[str] = []
    misshapen: list[str] = []
    for path in variables:
        rule = rules.get(path)
        if options.skips([rule.stored, *rule.paths] if rule else [path]):
            kept.append(path)
        elif rule is None:
            missing.append(f"{path} ({layout.name} files have no name for it)")
        elif rule.stored not in arrays and path not in absent:
            missing.append(f"{rule.stored} ({path})")
        elif rule.stored not in used:  # The first variable of an array stands for all of them.
            used.add(rule.stored)
            try:
                assignments.append(_assign(checkpoint, rule, model, variables, options))
            except ValueError as error:
                name = arrays[rule.stored].name if rule.stored in arrays else rule.stored
                misshapen.append(f"{name}: {error}")

    rules_by_name = {rule.stored: rule for rule in rules.values()}
    skipped: list[str] = []
    unused: list[str] = []
    for name, array in arrays.items():
        if name not in used:
            rule = rules_by_name.get(name) or layout.rule_of_array(name)
            is_skipped = options.skips([name, array.name, *(rule.paths if rule else ())])
            (skipped if is_skipped else unused).append(array.name)
    problems = {
        "missing in the file": missing,
        "in the file but not in the model": unused,
        "of another shape": misshapen,
    }
    _check_fits(checkpoint.path, problems)
    notes = [*checkpoint.notes]
    if absent:
        layers = sorted({re.sub(r"_\d+/", "_*/", path) for path in absent})
        notes.append(f"not in the file, so zeros: {', '.join(layers)}")
    notes += [f"{a.rule.paths[0]}: {a.note}" for a in assignments if a.note]
    return assignments, {"skipped": tuple(skipped), "kept": tuple(kept), "notes": tuple(notes)}


def _check_fits(path, problems):
    """Raises ValueError with the arrays that do not fit, if there are any, by what is wrong."""
    lines = [
        f"{title} ({len(names)}): {'; '.join(names[:MAX_LISTED])}"
        + ("; ..." if len(names) > MAX_LISTED else "")
        for title, names in problems.items()
        if names
    ]
    if lines:
        raise ValueError(
            "A checkpoint must fit the model; skip= leaves arrays out by pattern. "
            f"Received: {path}\n  " + "\n  ".join(lines)
        )


def _heads_left_out(checkpoint, model, head):
    """Patterns of the layers behind the encoder that are not loaded; see `LoadOptions`.

    If the head has other classes, the model's is not changed: it is zero. The hidden layer of
    pre-training is left out with the head if the model has none (paper, section 3.2: the whole
    prediction head is removed). Both are left out for a model without the head. All else is strict.
    """
    layers = {layer.name: layer for layer in model.layers}
    own_head = classifier_layer(layers)
    left_out: tuple[str, ...] = HEAD_LAYERS
    if head == "fitting" and own_head is None and "map_head" not in layers:
        left_out = (*HEAD_LAYERS, "map_head")
    elif head == "fitting" and own_head is not None:
        if "pre_logits" in layers or "pre_logits" not in checkpoint.shapes:
            is_kept = num_classes(checkpoint.shapes) == own_head.units
            left_out = () if is_kept else CLASSIFIER_LAYERS
    elif head not in ("new", "fitting"):
        left_out = ()
    return [f"{layer}/*" for layer in left_out]


def _read(path, assignments, variables):
    """Returns the new value of each variable by its path; all are finite numbers."""
    values: dict[str, np.ndarray] = {}
    arrays = [assignment.array for assignment in assignments]
    for assignment, value in zip(assignments, read_values(arrays), strict=True):
        parts = assignment.rule.transform.ours(value, assignment.shapes)
        if assignment.adapt is not None:
            parts = [assignment.adapt(part) for part in parts]
        with np.errstate(over="ignore"):  # Infinity is an error below.
            parts = [
                part.astype(variables[name].dtype)
                for name, part in zip(assignment.rule.paths, parts, strict=True)
            ]
        values.update(zip(assignment.rule.paths, parts, strict=True))
    bad = [name for name, value in values.items() if not np.isfinite(value).all()]
    if bad:
        raise ValueError(
            "Weights must be finite numbers. "
            f"Received: {path} with NaN or infinity, or a number beyond "
            f"{variables[bad[0]].dtype}, in {', '.join(bad[:MAX_LISTED])}"
        )
    return values


def weights_by_path(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns a model's weights by path, such as "encoder_block_0/mlp/dense_1/kernel".

    The weights of the class "unknown" belong to no checkpoint and are left out.

    Raises:
        ValueError: If two weights have the same path.
    """
    named = [weight for weight in model.weights if not weight.path.startswith(f"{LEVERAGE}/")]
    weights = {weight.path: weight for weight in named}
    if len(weights) < len(named):
        counts = collections.Counter(weight.path for weight in named).most_common(MAX_LISTED)
        raise ValueError(f"The layers of a model must have different names. Received: {counts}")
    return weights


def layer_of(model: keras.Model, path: str) -> Any:
    """Returns the layer that has the variable of a path, or None if it cannot be found."""
    first, *parts = path.split("/")[:-1]
    layer = next((layer for layer in _layers(model) if layer.name == first), None)
    for part in parts:
        layer = getattr(layer, part, None)
    return layer


def _layers(model) -> Iterator[keras.layers.Layer]:
    """The layers of a model and of the models within it."""
    for layer in model.layers:
        yield layer
        if hasattr(layer, "layers"):
            yield from _layers(layer)


def position_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers of a model whose tables of positions have a rule of resizing."""
    return [layer for layer in _layers(model) if hasattr(layer, "resize")]


def set_position_rule(model: keras.Model, rule: str) -> None:
    """Makes a model resize its tables of positions by a rule, and its description say so."""
    layers, held = position_layers(model), Description.of_model(model)
    for layer in layers:
        layer.resize = rule
    if layers and isinstance(held.config, ViTConfig):
        changes: dict[str, Any] = {"position_resize": rule}
        config = dataclasses.replace(held.config, **changes)
        set_description(model, dataclasses.replace(held, config=config))


def unseen_fields(model: keras.Model) -> dict[str, Any]:
    """Returns the fields of a model's config that weights do not show; {} without a config."""
    config = Description.of_model(model).config
    names = (*UNSEEN_BLOCK_FIELDS, "position_embedding_at")
    return {name: getattr(config, name) for name in names if hasattr(config, name)}


def _assign(checkpoint, rule, model, variables, options):
    """The assignment of an array by its rule.

    Raises:
        ValueError: If the array does not fit, or could be adapted and no option asks for it.
    """
    absent = [path for path in rule.paths if path not in variables]
    if absent:
        raise ValueError(f"the array also holds {', '.join(absent)}, not in the model")
    path = rule.paths[0]
    wanted = [tuple(variables[path].shape) for path in rule.paths]
    array = checkpoint.arrays.get(rule.stored)
    if array is None:  # An absent bias.
        shape = rule.transform.stored_shape(wanted)
        array = computed_array(rule.stored, shape, lambda: np.zeros(shape, "float32"))
    stored = rule.transform.our_shape(array.shape)
    if not isinstance(options.head, str) and path.partition("/")[0] in CLASSIFIER_LAYERS:
        return _assign_head(array, rule, wanted, variables, options.head)
    if stored is not None and len(stored) == len(wanted[0]):
        layer = layer_of(model, path)
        adapted = None
        if path.endswith("/embedding") and hasattr(layer, "grid"):
            adapted = _adapt_table(checkpoint, stored, variables[path], layer, options)
        elif path in ("patch_embedding/kernel", "root_conv/kernel"):
            adapted = _adapt_kernel(stored, wanted[0], options)
        if adapted is not None:
            return Assignment(array, rule, [stored], **adapted)
    is_other_grid = False
    if path.endswith("/offset_embedding") and (grid := tuple(layer_of(model, path).grid))[0] > 1:
        is_other_grid = checkpoint.stated.position_grid not in (None, grid)
    if is_other_grid or not rule.transform.accepts(array.shape, wanted):
        only = "; only learned_1d positions are resized" * path.endswith("_embedding")
        raise ValueError(f"file {array.shape}, model {rule.transform.stored_shape(wanted)}{only}")
    return Assignment(array, rule, wanted)


def _assign_head(array, rule, wanted, variables, rows):
    """The assignment of a kernel or bias of the head, whose classes are in another order."""
    (shape,), (path,) = wanted, rule.paths
    stored = rule.transform.our_shape(array.shape) or array.shape
    known = [(new, old) for new, old in enumerate(rows) if old is not None]
    if stored[:-1] != shape[:-1] or len(rows) != shape[-1]:
        raise ValueError(f"file {stored}, model {shape}")

    def adapt(value):
        result = np.array(variables[path])
        for new, old in known:
            result[..., new] = value[..., old]
        return result

    return Assignment(array, rule, [stored], adapt)


# Each function returns the fields of an `Assignment` that adapts a variable, or None if its
# other axes differ, too.


def _adapt_table(checkpoint, stored, variable, layer, options):
    """Positions `(1, rows, D)` for another grid or with other rows in front of the patches."""
    if stored[0] != 1 or stored[2] != variable.shape[2]:
        return None
    new, num_prefix = tuple(layer.grid), layer.num_prefix_tokens
    known = checkpoint.stated.position_grid
    count, old = find_grid(stored[1], checkpoint.prefix_row_counts, known, new)
    rule = options.position_resize or checkpoint.position_rule

    def adapt(table):
        patches = resize_positions(table[0, count:], old, new, rule)
        more = np.asarray(variable)[0, count:num_prefix]
        if checkpoint.num_class_tokens:
            # Positions were added before the class token, which got none.
            more = np.zeros_like(more)
        return np.concatenate([table[0, : min(count, num_prefix)], more, patches])[None]

    note = "the row of the class token was left out" if count > num_prefix else ""
    return {"adapt": adapt, "grids": (old, new), "note": note}


def _adapt_kernel(stored, wanted, options):
    """A first kernel `(height, width, C, D)` for another number of channels."""
    if stored == wanted or (*stored[:2], stored[3]) != (*wanted[:2], wanted[3]):
        return None
    if options.input_channels != "adapt":
        raise ValueError(
            f'file {stored}, model {wanted}; input_channels="adapt" converts the channels'
        )
    return {
        "adapt": lambda kernel: adapt_input_channels(kernel, wanted[2]),
        "note": f"from {stored[2]} to {wanted[2]} channels",
    }


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """The result of `load_checkpoint`; `str()` gives a readable summary.

    Args:
        path: The file.
        layout: Name of the code base that its names belong to.
        loaded: Paths of the variables that got values of the file.
        resized: The grids (down, across) before and after of the position embeddings that
            were resized, by path.
        skipped: Names of the arrays that were not loaded.
        kept: Paths of the variables that were not changed.
        zero_head: Whether the head was loaded and is all zeros: the model predicts the same
            for every image until it is fine-tuned.
        notes: Other remarks, a sentence each.
    """

    path: str
    layout: str
    loaded: tuple[str, ...]
    resized: dict[str, tuple[tuple[int, int], tuple[int, int]]]
    skipped: tuple[str, ...]
    kept: tuple[str, ...]
    zero_head: bool
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.path}: {len(self.loaded)} variables loaded ({self.layout} names)"]
        lines += [
            f"resized: {path} from {old[0]}x{old[1]} to {new[0]}x{new[1]} patches"
            for path, (old, new) in self.resized.items()
        ]
        for title, names in (("not loaded", self.skipped), ("not changed", self.kept)):
            if names:
                lines.append(f"{title}: {', '.join(names)}")
        if self.zero_head:
            lines.append("the head is all zeros; fine-tune before predicting")
        return "\n  ".join([*lines, *self.notes])


def load_checkpoint(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    skip: Iterable[str] = (),
    position_resize: str | None = None,
    position_grid: Sequence[int] | None = None,
    input_channels: str | None = None,
) -> LoadReport:
    """Loads a checkpoint into a model, strictly.

    Reads every layout of the official files (published, linen and big_vision names, with
    any prefix, stacked or separate blocks, bfloat16), BiT's, files of `save_checkpoint` and
    Keras's `.weights.h5`, and files of Hugging Face and timm (`.safetensors`, `.bin`, a folder
    with one of them). The layout is recognised from the content. Either every variable gets
    its value, or the model is not changed.

    Position embeddings are resized if their grid is not the model's, and the model keeps the
    rule for its own resizes. The grid of the file is
    the one stored in it (by `save_checkpoint` and Hugging Face); else it is square, as in the
    official code; else it is the model's, if the number of patches is the same. If this is
    ambiguous, as with 144 patches for a model of 24x6, it must be given. Positions in two
    dimensions and relative ones are of one grid: another one is an error.

    Args:
        model: A model of `keras_vit.build`, or one that was saved and loaded again.
        path: The file.
        skip: Patterns such as "head/*" of weights to leave out, by name in the file or by path
            in the model; variables that match are not changed.
        position_resize: A key of `keras_vit.configs.position_resize.RULES`, such as "official"
            (linear, corners aligned); None for the rule of the file's code base, as in `build`.
        position_grid: Patches (down, across) of the file's position embeddings, if they are
            not stored in the file.
        input_channels: "adapt" to convert a first kernel for other channels
            (`keras_vit.checkpoints.resize.adapt_input_channels`); None to refuse it.

    Returns:
        A `LoadReport`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is of no known format, damaged, or does not fit: one error
            lists every missing, unused and misshapen array.
        ImportError: If reading the format needs a package that is not installed.

    Example:
    >>> model = keras_vit.build("ViT-B/16", classes=10, input_shape=(384, 384, 3))
    >>> print(load_checkpoint(model, "ViT-B_16.npz", skip=("head/*", "pre_logits/*")))
    """
    skip = (skip,) if isinstance(skip, str) else tuple(skip)
    options = LoadOptions(skip, position_resize, position_grid, input_channels)
    return load_opened(open_checkpoint(path), model, options)


def load_opened(
    checkpoint: Checkpoint, model: keras.Model, options: LoadOptions | None = None
) -> LoadReport:
    """Loads an opened checkpoint into a model; raises the errors of `load_checkpoint`."""
    options = options or LoadOptions()
    assignments, found = match_checkpoint(checkpoint, model, options)
    variables = weights_by_path(model)
    values = _read(checkpoint.path, assignments, variables)
    for path, value in values.items():
        variables[path].assign(value)
    tables = {weight.path for layer in position_layers(model) for weight in layer.weights}
    if tables.isdisjoint(found["kept"]):
        set_position_rule(model, options.position_resize or checkpoint.position_rule)
    report = LoadReport(
        path=str(checkpoint.path),
        layout=checkpoint.layout.name,
        loaded=tuple(values),
        resized={
            a.rule.paths[0]: a.grids for a in assignments if a.grids and a.grids[0] != a.grids[1]
        },
        zero_head=not values.get("predictions/kernel", np.ones(1)).any(),
        **found,
    )
    _warn(report, checkpoint, model)
    return report


def _warn(report, checkpoint, model):
    """Warns of weights that fit, while their model computes something else."""
    warned = []
    if report.zero_head:
        warned.append(
            f"The head of {checkpoint.path} is all zeros, as in the first official ImageNet-21k "
            "files: the model predicts the same for every image until it is fine-tuned. The "
            "AugReg files have trained heads."
        )
    ours, theirs = unseen_fields(model), checkpoint.fields
    differ = [fact for fact in ours if fact in theirs and theirs[fact] != ours[fact]]
    if differ:
        of_file = ", ".join(f"{fact}={theirs[fact]!r}" for fact in differ)
        of_model = ", ".join(f"{fact}={ours[fact]!r}" for fact in differ)
        warned.append(
            f"{checkpoint.path} was trained with {of_file}; the model has {of_model}. Its outputs "
            f"will differ; to have them equal, give keras_vit.build {of_file}."
        )
    for text in warned:
        warnings.warn(text, stacklevel=4)


def open_arrays(place: OfficialWeights | pathlib.Path) -> Arrays:
    """Returns the arrays at a place that `find_weights` has found, without reading values."""
    return place if isinstance(place, OfficialWeights) else open_checkpoint(place)


def arrays_of_model(model: keras.Model) -> Checkpoint:
    """Returns the weights of a Keras model by path, with what they state.

    Raises:
        ValueError: If layers stand in front of the model of `keras_vit.build`.
    """
    if has_layers_in_front(model):
        raise ValueError(
            "Weights must be from a model of keras_vit.build without layers in front of it, "
            f"which would be lost; its inner model has none. Received: {model.name}"
        )
    weights = weights_by_path(model)
    description = Description.of_model(model).including(None)  # All that the weights need.
    return Checkpoint(
        path=pathlib.Path(model.name),
        layout=Layout("Keras", tuple(NameRule(path, (path,)) for path in weights)),
        arrays={
            path: computed_array(
                path, weight.shape, functools.partial(keras.ops.convert_to_numpy, weight)
            )
            for path, weight in weights.items()
        },
        fields={**unseen_fields(model), "position_resize": description.position_resize},
        stated=description,
    )


def load_arrays(
    arrays: Arrays,
    description: Description,
    model: keras.Model,
    head: str | Sequence[int | None] = "keep",
    position_resize: str | None = None,
) -> LoadReport:
    """Loads arrays into a model, which then holds their description.

    Args:
        arrays: The arrays; an official file is downloaded first.
        description: What their model is.
        model: A model of `keras_vit.build`.
        head: "keep"; "new" for a head that keeps its initial values; "fitting" to keep it where
            the model has the classes of the weights; or for each class of the model its number
            in the weights, None for a class that keeps its initial values.
        position_resize: A rule for tables of positions; by default the description's.

    Raises:
        ValueError: As `keras_vit.load_checkpoint`.
        OSError: If an official file cannot be downloaded.
    """
    rule = position_resize or description.position_resize
    options = LoadOptions((), rule, description.position_grid, head=head)
    checkpoint = arrays if isinstance(arrays, Checkpoint) else open_checkpoint(download(arrays))
    report = load_opened(checkpoint, model, options)
    # How the file was read is in the report, and is no fact about the model.
    notes = [note for note in description.notes if note not in checkpoint.notes]
    known = dataclasses.replace(description, notes=tuple(notes))
    set_description(model, _description_with_weights(model, known))
    return report


def _description_with_weights(model, known):
    """The description of a model with weights that are known, perhaps of another size or head."""
    held = Description.of_model(model)
    known = known.including(held.included)
    preprocessing = known.preprocessing
    if preprocessing is not None and held.image_size is not None:
        preprocessing = preprocessing.with_image_size(held.image_size)
    labels = known.labels if held.classes == known.classes else held.labels
    labels = dataclasses.replace(labels, abstains=False)
    loaded = dataclasses.replace(known, config=None, preprocessing=preprocessing, labels=labels)
    return loaded.merged(held)
