"""Transfer to other classes (paper, section 3.2): weights, heads, replay, probes and LoRA."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit import configs
from keras_vit.checkpoints.repositories import cached_name, fixed_name
from keras_vit.configs.model_table import paper_name, without_hidden_layer
from keras_vit.description import Description, Labels
from keras_vit.description.class_labels import look_alikes
from keras_vit.description.recipe import Fact, Recipe
from keras_vit.hub.downloads import RepositoryName
from keras_vit.layers import SelfAttention
from keras_vit.opening import OpenedModel, open_model
from keras_vit.preprocessing import describe_range, describe_resize
from keras_vit.training.data import DataSpec, Source
from keras_vit.training.data.examples import MixedExamples
from keras_vit.training.data.parts import Drawing, with_validation
from keras_vit.training.data.spec import spec_of_run
from keras_vit.training.data.split_record import NEW, SplitRecord
from keras_vit.training.data.tfrecords import NotPrepared
from keras_vit.training.recipes import HYPER_RULE_NAME
from keras_vit.training.settings import HIGHER_RESOLUTION, FineTuning, Settings
from keras_vit.utils.fields import required

DEFAULT_MODEL = "ViT-B/16"

MAX_LISTED = 10  # Class weights in the printed plan.

HEAD_PATH = re.compile(rf"(?:^|/)(?:{'|'.join(configs.HEAD_LAYERS)})/")


def with_fixed_repositories(settings: Any, *, download: bool = True) -> Any:
    """Returns the settings of a run, in which a repository is named with its commit or version.

    The recipe holds it, so a run that is repeated or resumed starts from the same files.

    Args:
        settings: The settings.
        download: Whether a repository is downloaded.

    Raises:
        NotPrepared: If one is not in the cache and may not be downloaded.
        ValueError: If a repository has no weights that are read.
        OSError: If it cannot be downloaded.
    """
    fixed: dict[str, str] = {}
    for field in ("weights", "teacher"):
        name = getattr(settings, field, None)
        if RepositoryName.parse(name) is None:
            continue
        found = fixed_name(name) if download else cached_name(name)
        if found is None:
            raise NotPrepared(f"{name} would be downloaded")
        fixed[field] = found
    return dataclasses.replace(settings, **fixed)


def find_start(settings: Any) -> OpenedModel:
    """Returns what a run starts from, without downloading or building it.

    Args:
        settings: The settings of the run.

    Raises:
        ValueError: If the model or the weights are unknown, do not fit each other, or a fact
            about the weights was neither found nor given.
    """
    facts, weights = getattr(settings, "unknown_facts", {}), getattr(settings, "weights", None)
    if weights is None:
        opened = open_model("random", model=settings.model or DEFAULT_MODEL, **facts)
    else:
        size = settings.image_size
        if size is None and settings.recipe != HYPER_RULE_NAME:
            size = (HIGHER_RESOLUTION, HIGHER_RESOLUTION)
        opened = open_model(weights, model=settings.model, image_size=size, **facts)
    if opened.description.config is None:
        raise ValueError(
            "The weights must be of a model of keras_vit.build. "
            f"Received: {weights}, another Keras model"
        )
    opened.preprocessing_for()  # An unknown range is an error before the data are read.
    return opened


# Two of the paper's four rates, by benchmarks/field.py and defaults.py. At the higher one,
# weights that know the classes lose more than they learn.
NEW_HEAD_RATE, KEPT_HEAD_RATE = 0.03, 0.01


def settle(
    opened: OpenedModel, settings: Any, labels: Labels
) -> tuple[Description, tuple[int | None, ...] | None, Any]:
    """Fills in what a run takes from its weights, and where each value is from.

    Args:
        opened: The weights to start from.
        settings: Resolved settings; image size, way of resizing and learning rate may be None.
        labels: The classes of the data.

    Returns:
        The description of the model to train: with the data's classes, the preprocessing of
        evaluation, and without the hidden layer of pre-training unless the head is kept. For each
        class its number in the weights, or None for a class that is new there; None for a new
        head. And the settings with image size, way of resizing and learning rate.

    Raises:
        ValueError: If the head cannot be kept as the settings ask for.
    """
    known, rows = opened.description, None
    config = without_hidden_layer(known.config)
    name = known.name if opened.is_random else paper_name(known.config) or known.name
    size, size_from = _image_size(settings, opened)
    preprocessing = opened.preprocessing_for(size, settings.evaluation)
    origins = {**known.origins, "image_size": size_from}
    if settings.evaluation is not None:
        origins["evaluation"] = "the settings"
    if not opened.is_random:
        rows, origins["head"] = choose_head(opened, labels.names or (), settings.head)
        hidden = getattr(known.config, "representation_size", None)
        if rows is not None and hidden:
            config = dataclasses.replace(config, representation_size=hidden)
    grid = config.grid(size) if isinstance(config, configs.ViTConfig) else None
    if grid is not None and 0 in grid:
        grid = None  # The image is smaller than a patch, which is an error of the plan.
    description = dataclasses.replace(
        known,
        name=name,
        config=config,
        input_shape=(*size, 3),
        position_grid=grid,
        classes=len(labels.names) if labels.names else None,
        preprocessing=preprocessing,
        labels=labels,
        origins=origins,
    )
    rate = settings.learning_rate
    if rate is None:
        rate = NEW_HEAD_RATE if rows is None else KEPT_HEAD_RATE
    settings = dataclasses.replace(
        settings, image_size=size, evaluation=preprocessing.evaluation, learning_rate=rate
    )
    return description, rows, settings


def facts_of(description: Description, is_new: bool) -> dict[str, Fact]:
    """Returns by name what a run takes from its weights, and where it is from.

    Args:
        description: The description of the model to train.
        is_new: Whether its head is new.
    """
    preprocessing = required(description.preprocessing, "preprocessing")
    values = {
        "image_size": list(preprocessing.image_size),
        "pixels": preprocessing.value_range,
        "evaluation": describe_resize(preprocessing),
        "gelu": getattr(description.config, "gelu", None),
        "norm_epsilon": getattr(description.config, "norm_epsilon", None),
        "position_resize": description.position_resize,
        "head": "new" if is_new else "keep",
    }
    return {
        name: Fact(value, description.origins[name])
        for name, value in values.items()
        if value is not None and name in description.origins
    }


def _image_size(settings: Settings, weights: OpenedModel) -> tuple[Any, str]:
    """The pixels (height, width) of a run, and why."""
    if settings.image_size is not None:
        return settings.image_size, settings.recipe or "the settings"
    higher = (HIGHER_RESOLUTION, HIGHER_RESOLUTION)
    if weights.is_random or weights.image_size is None:
        return higher, "the paper's"
    if weights.image_size != weights.description.image_size:
        return weights.image_size, "as the image processor of the weights states"
    height, width = weights.image_size
    is_finetuned = Recipe.from_json(weights.recipe).job == FineTuning.command
    if {height, width} == {configs.DEFAULT_IMAGE_SIZE} and not is_finetuned:
        return higher, f"the paper's higher resolution, for weights of {height}x{width} pixels"
    return weights.image_size, "as in the weights"


def choose_head(
    weights: OpenedModel, class_names: Sequence[str], head: str | None = None
) -> tuple[tuple[int | None, ...] | None, str]:
    """Returns which rows of the weights' head are kept, and why.

    Args:
        weights: The weights.
        class_names: Names of the data's classes.
        head: "keep", "new", or None to keep the rows of the classes that the weights name.

    Returns:
        For each class of the data its number in the weights, or None for a new class; or
        None for a new head. And the human-readable reason.

    Raises:
        ValueError: If `head` is "keep" and no row can be kept.
    """
    known, classes = weights.class_names, weights.description.classes
    if head == "new":
        return None, "the settings"
    if head == "keep" and known is None and classes == len(class_names):
        return tuple(range(len(class_names))), (
            "the settings; the weights do not name their classes, so rows keep their order"
        )
    # If two classes have one name, the first counts.
    places = {name: row for row, name in reversed([*enumerate(known or ())])}
    rows = [places.get(name) for name in class_names] if known else []
    if classes is None:
        reason = "the weights have no head"
    elif known is None:
        reason = "the weights do not name their classes"
    elif not any(row is not None for row in rows):
        reason = f"none of the {len(known)} classes of the weights is in the data"
    else:
        return tuple(rows), _describe_rows(rows, known, class_names)
    if head == "keep":
        raise ValueError(
            "A head can be kept where the weights name a class of the data (--head new makes a "
            f"new one). Received: {weights.source}: {reason}"
        )
    return None, reason


def _describe_rows(rows, known, class_names):
    new = [name for name, row in zip(class_names, rows, strict=True) if row is None]
    left_out = len(known) + len(new) - len(rows)
    if not new and not left_out:
        return "the classes are the same" + ("" if rows == sorted(rows) else ", reordered by name")
    text = f"{len(rows) - len(new)} of {len(rows)} classes are in the weights"
    if new:
        shown = ", ".join(new[:5]) + (", ..." if len(new) > 5 else "")
        text += f"; {len(new)} start at zero ({shown})"
        text += "".join(f"; {line}" for line in look_alikes([*known, *class_names]))
    return text + (f"; {left_out} of the weights are left out" if left_out else "")


def extend(
    source: Source,
    weights: OpenedModel,
    settings: FineTuning,
    validation: Callable[[int], float],
    *,
    download: bool = True,
) -> Source:
    """Returns a source with all classes of the weights first, and the replayed images.

    Training images are mixed by the share of the settings. Validation and test images are from
    both data sets, so that the best weights are the best on old and new classes. The images that
    were held out when the weights were trained are held out again.

    Args:
        source: The new data.
        weights: The weights to start from.
        settings: The settings.
        validation: See `DataSpec.open`.
        download: Whether missing data are downloaded.

    Raises:
        ValueError: If the weights do not name their classes, or the replayed images have another
            class or task.
    """
    if not extends_head(settings):
        return source
    known = weights.class_names
    if known is None:
        raise ValueError(
            "To extend the head (--head extend, --replay) the weights must name their classes. "
            f"Received: weights={settings.weights}"
        )
    names = dict.fromkeys((*known, *source.class_names))
    extended = source.with_classes(tuple(names))
    if settings.replay is None:
        return extended
    given = DataSpec(settings.replay)
    spec = spec_of_run(Recipe.from_json(weights.recipe), given) or given
    record = SplitRecord.read(weights.folder)
    replayed = record and by_record(spec, record, validation, download=download)
    if replayed is None:
        replayed = spec.open(validation, download=download)
    unknown = [name for name in replayed.class_names if name not in names]
    if unknown or replayed.task != source.task:
        raise ValueError(
            "Replayed images must have classes of the weights or the data, and their task. "
            f"Received: {settings.replay}, with {', '.join(unknown[:10]) or replayed.task}"
        )
    old = replayed.with_classes(tuple(names)).splits
    splits = dict(extended.splits)
    for split in splits.keys() & old.keys():
        splits[split] = MixedExamples(splits[split], old[split], settings.replay_share)
    skipped = [*source.skipped, *replayed.skipped]
    notes = (*source.notes, *replayed.notes)
    return dataclasses.replace(extended, splits=splits, skipped=skipped, notes=notes)


def extends_head(settings: FineTuning) -> bool:
    """Returns whether a run adds the classes of its data to the classes of its weights."""
    return settings.head == "extend" or settings.replay is not None


def by_record(
    spec: DataSpec, record: SplitRecord, validation: Callable[[int], float], **how: Any
) -> Source | None:
    """Returns the images of data as a run split them; None for images that are not of the run.

    Images that are new to that run are trained on, if the data do not hold them out.

    Args:
        spec: The data.
        record: The record of the run.
        validation: See `DataSpec.open`.
        **how: See `DataSpec.open`.
    """
    source = spec.open(recorded=True, **how)
    part_of, train = {}, source.splits.get("train")
    for split, examples in source.splits.items():
        numbers = examples.fingerprints()
        if numbers is None:
            return None
        part_of[split] = record.part_of(numbers)
    if train is None or all((found == NEW).all() for found in part_of.values()):
        return None

    def taken(split, *parts):
        return source.splits[split].take(np.flatnonzero(np.isin(part_of[split], parts)))

    splits = {"train": taken("train", "train", NEW)}
    for split in ("validation", "calibration", "test"):
        is_own = split in source.splits
        splits[split] = taken(split, split, NEW) if is_own else taken("train", split)
    splits = {split: examples for split, examples in splits.items() if len(examples)}
    share = validation(len(splits["train"]))
    drawing = Drawing(source.class_names, spec.split_seed or 0, source.groups)
    splits = with_validation(splits, share, drawing)
    return dataclasses.replace(source, splits=splits)


def fact_lines(facts: Mapping[str, Fact]) -> dict[str, str]:
    """Returns the facts of a run, human-readable, by name."""
    lines = {}
    for name, fact in facts.items():
        value = fact.value
        if name in ("image_size", "photos"):
            value = "{}x{}".format(*value)
        elif name == "pixels":
            value = describe_range(value)
        elif name == "class_weights":
            shown = [f"{label} {weight:.3g}" for label, weight in value.items()]
            value = ", ".join(shown[:MAX_LISTED]) + (", ..." if len(shown) > MAX_LISTED else "")
        lines[name.replace("_", " ") if name in ("image_size", "head_start") else name] = (
            f"{value} ({fact.origin})"
        )
    return lines


@contextlib.contextmanager
def dtype_policy(name: str) -> Iterator[None]:
    """Sets Keras's dtype policy inside a `with` block.

    Args:
        name: "float32", "mixed_bfloat16" or "mixed_float16".
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def choose_trained(model: keras.Model, part: str = "all", lora_rank: int = 8) -> None:
    """Sets the trainable weights of a model; call it before the trainer is made.

    "head" trains the head alone, a linear probe. "lora" (arXiv 2106.09685) trains the head
    and a product of two small arrays that is added to the kernels of query and value,
    `(D, k, D_h)`, as in `keras.layers.EinsumDense.enable_lora`:

        W + A B,    A: (D, k, rank), B: (rank, D_h)

    B starts at zero, so that the outputs do not change before training. Saving adds the
    product to the kernel: the loaded model is a plain model.

    Args:
        model: A model of `keras_vit.build` with a head.
        part: "all", "head" or "lora".
        lora_rank: Columns of A for each head.

    Raises:
        ValueError: If the model has no self-attention.
    """
    if part == "all":
        return
    for weight in model.trainable_variables:
        weight.trainable = bool(HEAD_PATH.search(weight.path))
    if part == "lora":
        found = (getattr(layer, "attention", None) for layer in model.layers)
        attentions = [each for each in found if isinstance(each, SelfAttention)]
        if not attentions:
            raise ValueError(
                "LoRA needs the self-attention of a Vision Transformer. "
                f"Received: {model.name}, without any"
            )
        for attention in attentions:
            attention.query.enable_lora(lora_rank)
            attention.value.enable_lora(lora_rank)
