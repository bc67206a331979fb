"""The weights that a run starts from, and the model that it makes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import keras

from keras_vit import configs
from keras_vit.checkpoints.load import LoadReport
from keras_vit.configs.model_table import paper_name, without_hidden_layer
from keras_vit.description import Description, Labels
from keras_vit.description.class_labels import look_alikes
from keras_vit.description.run_record import Fact, RunRecord
from keras_vit.hub.repositories import RepositoryName, cached_name, fixed_name
from keras_vit.model_weights import Weights
from keras_vit.models.build import build
from keras_vit.opening import open_model
from keras_vit.preprocessing import Preprocessing, describe_resize
from keras_vit.training.data.tfrecords import NotPrepared
from keras_vit.training.settings import (
    HIGHER_RESOLUTION,
    FineTuning,
    ResolvedSettings,
    Settings,
)

DEFAULT_MODEL = "ViT-B/16"

# "new", or for each class of the data its row in the weights' head, None for a class that is new.
Head: TypeAlias = Literal["new"] | tuple[int | None, ...]

# Two of the four rates of the paper, by benchmarks/field.py and defaults.py: at the higher one
# weights that know the classes lose more than they learn.
NEW_HEAD_RATE, KEPT_HEAD_RATE = 0.03, 0.01


def with_fixed_repositories(settings: FineTuning, *, download: bool = True) -> FineTuning:
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
    for field, name in (("weights", settings.weights), ("teacher", settings.teacher)):
        if name is None or RepositoryName.parse(name) is None:
            continue
        with_commit = fixed_name(name) if download else cached_name(name)
        if with_commit is None:
            raise NotPrepared(f"{name} would be downloaded")
        fixed[field] = with_commit
    return dataclasses.replace(settings, **fixed)


def find_start(settings: FineTuning) -> Weights:
    """Returns the weights that a run starts from, without downloading or building them.

    Args:
        settings: The settings of the run.

    Raises:
        ValueError: If the model or the weights are unknown, do not fit each other, or a fact
            about the weights was neither found nor given.
    """
    if settings.weights is None:
        return random_start(settings, settings.unknown_facts)
    size = settings.image_size or (HIGHER_RESOLUTION, HIGHER_RESOLUTION)
    opened = open_model(
        settings.weights, model=settings.model, image_size=size, **settings.unknown_facts
    )
    if opened.description.config is None:
        raise ValueError(
            "The weights must be of a model of keras_vit.build. "
            f"Received: {settings.weights}, another Keras model"
        )
    opened.preprocessing_for()  # An unknown range is an error before the data are read.
    return opened.without_preprocessing()


def random_start(settings: Settings, facts: Mapping[str, Any]) -> Weights:
    """Returns the random weights of a run's model.

    Args:
        settings: The settings of the run.
        facts: What weights may not hold, see `open_model`.

    Raises:
        ValueError: If the model is unknown.
    """
    opened = open_model("none", model=settings.model or DEFAULT_MODEL, **facts)
    opened.preprocessing_for()
    return opened.without_preprocessing()


def describe_model(
    weights: Weights, settings: Settings, labels: Labels, bit_depth: int | None = None
) -> tuple[Description, Preprocessing, Head]:
    """Returns what the model to train is, and where each fact is from.

    It has the data's classes, the preprocessing of evaluation, and the hidden layer of
    pre-training only if the head is kept.

    Args:
        weights: The weights to start from.
        settings: Settings; image size and way of resizing may be None.
        labels: The classes of the data.
        bit_depth: Bits of the values of 16-bit images; None: as of the weights.

    Raises:
        ValueError: If the head cannot be kept as the settings ask for.
    """
    start = weights.description
    before = cast(configs.ModelConfig, start.config)  # `find_start`.
    config = without_hidden_layer(before)
    name = start.name if weights.is_random else paper_name(start.config) or start.name
    size, size_from = _image_size(settings, weights)
    preprocessing = weights.preprocessing_for(size, settings.evaluation, bit_depth)
    origins = {**start.origins, "image_size": size_from}
    if settings.evaluation is not None:
        origins["evaluation"] = "the settings"
    head: Head = "new"
    if not weights.is_random:
        head, origins["head"] = choose_head(weights, labels.names or (), settings.head)
        hidden = getattr(start.config, "representation_size", None)
        if head != "new" and hidden:
            config = dataclasses.replace(config, representation_size=hidden)
    grid = config.grid(size) if isinstance(config, configs.ViTConfig) else None
    if grid is not None and 0 in grid:
        grid = None  # The image is smaller than a patch, which is an error of the plan.
    description = dataclasses.replace(
        start,
        name=name,
        config=config,
        input_shape=(*size, 3),
        position_grid=grid,
        classes=len(labels.names) if labels.names else None,
        preprocessing=preprocessing,
        labels=labels,
        origins=origins,
    )
    return description, preprocessing, head


def _image_size(settings: Settings, weights: Weights) -> tuple[tuple[int, int], str]:
    """The pixels (height, width) of a run, and why."""
    if settings.image_size is not None:
        return settings.image_size, settings.recipe or "the settings"
    higher = (HIGHER_RESOLUTION, HIGHER_RESOLUTION)
    if weights.is_random or weights.image_size is None:
        return higher, "the paper's"
    if weights.image_size != weights.description.image_size:
        return weights.image_size, "as the image processor of the weights states"
    height, width = weights.image_size
    is_finetuned = RunRecord.from_json(weights.recipe).job == FineTuning.command
    if {height, width} == {configs.DEFAULT_IMAGE_SIZE} and not is_finetuned:
        return higher, f"the paper's higher resolution, for weights of {height}x{width} pixels"
    return weights.image_size, "as in the weights"


def choose_head(
    weights: Weights, class_names: Sequence[str], head: str | None = None
) -> tuple[Head, str]:
    """Returns which rows of the weights' head are kept, and why.

    Args:
        weights: The weights.
        class_names: Names of the data's classes.
        head: "keep", "new", or None to keep the rows of the classes that the weights name.

    Returns:
        For each class of the data its number in the weights, or None for a new class; or
        "new". And the human-readable reason.

    Raises:
        ValueError: If `head` is "keep" and no row can be kept.
    """
    names, classes = weights.class_names, weights.description.classes
    if head == "new":
        return "new", "the settings"
    if head == "keep" and names is None and classes == len(class_names):
        return tuple(range(len(class_names))), (
            "the settings; the weights do not name their classes, so rows keep their order"
        )
    # If two classes have one name, the first counts.
    places = {name: row for row, name in reversed([*enumerate(names or ())])}
    rows = [places.get(name) for name in class_names] if names else []
    if classes is None:
        reason = "the weights have no head"
    elif names is None:
        reason = "the weights do not name their classes"
    elif not any(row is not None for row in rows):
        reason = f"none of the {len(names)} classes of the weights is in the data"
    else:
        return tuple(rows), _describe_rows(rows, names, class_names)
    if head == "keep":
        raise ValueError(
            "A head can be kept where the weights name a class of the data (--head new makes a "
            f"new one). Received: {weights.source}: {reason}"
        )
    return "new", reason


def _describe_rows(rows, names, class_names):
    new = [name for name, row in zip(class_names, rows, strict=True) if row is None]
    left_out = len(names) + len(new) - len(rows)
    if not new and not left_out:
        return "the classes are the same" + ("" if rows == sorted(rows) else ", reordered by name")
    text = f"{len(rows) - len(new)} of {len(rows)} classes are in the weights"
    if new:
        shown = ", ".join(new[:5]) + (", ..." if len(new) > 5 else "")
        text += f"; {len(new)} start at zero ({shown})"
        text += "".join(f"; {line}" for line in look_alikes([*names, *class_names]))
    return text + (f"; {left_out} classes of the weights are left out" if left_out else "")


def rate_of(settings: Settings, head: Head) -> float:
    """Returns the learning rate, which is lower where the head of the weights is kept."""
    if settings.learning_rate is not None:
        return settings.learning_rate
    return NEW_HEAD_RATE if head == "new" else KEPT_HEAD_RATE


def facts_of_weights(
    description: Description, preprocessing: Preprocessing, head: Head
) -> dict[str, Fact]:
    """Returns what a run takes from its weights, by name, and where it is from.

    Args:
        description: The model to train.
        preprocessing: How an image becomes its input in evaluation.
        head: What its head begins with.
    """
    values = {
        "image_size": list(preprocessing.image_size),
        "pixels": preprocessing.value_range,
        "evaluation": describe_resize(preprocessing),
        "gelu": getattr(description.config, "gelu", None),
        "norm_epsilon": getattr(description.config, "norm_epsilon", None),
        "position_resize": description.position_resize,
        "head": "new" if head == "new" else "keep",
    }
    return {
        name: Fact(value, description.origins[name])
        for name, value in values.items()
        if value is not None and name in description.origins
    }


def config_to_train(config: configs.ModelConfig, settings: ResolvedSettings) -> configs.ModelConfig:
    """Returns an architecture with the settings' dropout, stochastic depth and remat."""
    changes = {
        "dropout_rate": settings.dropout_rate,
        "stochastic_depth_rate": settings.stochastic_depth_rate,
        "remat": settings.remat,
        "head_bias": settings.head_bias,
    }
    # A ResNet's config has no dropout: 0 changes nothing, other rates raise an error.
    changes = {name: value for name, value in changes.items() if value or hasattr(config, name)}
    return configs.resolve(config, changes)


def loaded_classifier(
    weights: Weights,
    description: Description,
    head: Head,
    config: configs.ModelConfig,
) -> tuple[keras.Model, LoadReport | None]:
    """Returns a classifier that gives logits, with the weights that a run starts from.

    Args:
        weights: The weights.
        description: The classifier.
        head: What its head begins with.
        config: Its architecture, as it is trained.

    Returns:
        The model, and the report of its weights; None for random ones.
    """
    model = build(
        config,
        input_shape=description.input_shape,
        classes=description.classes,
        classifier_activation=None,
        name=configs.layer_name(description.name),
    )
    return model, weights.load_into(model, head)
