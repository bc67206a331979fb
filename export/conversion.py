"""Conversion of weights between this package and other code bases."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

from keras_vit.checkpoints.code_bases.files_beside import NAMES_LEFT_OUT
from keras_vit.classifier_saving import write_classifier
from keras_vit.description import Labels
from keras_vit.description.class_labels import DEFAULT_THRESHOLD
from keras_vit.images.samples import describe_samples, read_images, sample_files
from keras_vit.model_weights import Weights
from keras_vit.models.saving import save_checkpoint
from keras_vit.opening import open_model
from keras_vit.predictor import Predictor
from keras_vit.utils.files import (
    MODEL,
    SAFETENSORS,
    check_file,
    check_folder,
)

from .formats.export_format import CONVERSION_FORMATS
from .hugging_face_folder import write_hugging_face

# Files by which an older folder is recognised, before it is overwritten.
_MARKERS = {"classifier": MODEL, "huggingface": SAFETENSORS}

_WITHOUT_NAMES = "class names have no place in the output; only keras-vit reads its preprocessing"


def convert(
    source,
    destination,
    *,
    to: str | None = None,
    samples: str | int | None = None,
    overwrite: bool = False,
    **facts: Any,
) -> list[str]:
    """Converts weights, class names and preprocessing from one form to another.

    The source is recognised from its content: the folder of a classifier or of a
    pre-trained model, or anything that `keras_vit.load_checkpoint` reads. Its model is
    recognised from names and shapes.

    Args:
        source: A file or folder.
        destination: The file or folder to write, atomically.
        to: A key of `formats.CONVERSION_FORMATS`; by default it follows from the suffix of the
            destination, and is a classifier's folder without one.
        samples: The photos that a classifier's folder holds, without metadata and at the model's
            size: a number of the source's samples, a folder of others, or "none"; by default
            the source's.
        overwrite: Whether to replace an existing destination.
        **facts: What the source does not say: `num_heads`, `gelu`, `normalization` ("half":
            values from -1 to 1, or "imagenet": ImageNet's mean and deviation by channel) and
            `image_size`, pixels (height, width), for positions without a square grid.

    Returns:
        A sentence for each assumption and each part that was not converted.

    Raises:
        ValueError: If source or destination do not fit, or the conversion cannot be exact.
        OSError: If a file cannot be read or written.
    """
    destination = pathlib.Path(destination)
    name = _format(destination, to)
    if CONVERSION_FORMATS[name]:
        check_file(destination, CONVERSION_FORMATS[name], overwrite=overwrite)
    else:
        check_folder(destination, marker=_MARKERS[name], overwrite=overwrite)
    if samples is not None and name != "classifier":
        raise ValueError(
            "samples are for a classifier's folder, other formats have no place for them. "
            f"Received: samples={samples!r}, to={name!r}"
        )
    opened, notes = read(source, **facts)
    if name != "classifier" and opened.description.included is not None:
        opened = opened.without_preprocessing()  # Other code bases have no place for the layer.
        opened = _with_model(opened, opened.model())
    if name == "classifier":
        notes += _write_classifier(opened, destination, overwrite, samples)
    else:
        notes += _WRITERS[name](opened, destination, overwrite)
    labels = opened.description.labels
    if labels.names and labels.is_multilabel:
        if name != "classifier":
            notes.append("the thresholds of the labels have no place in the output")
        if name == "classifier" and labels.thresholds is None:
            notes.append(
                f"the source is multi-label and has no thresholds; each is {DEFAULT_THRESHOLD}"
            )
    return notes


def read(
    source,
    *,
    image_size: tuple[int, int] | None = None,
    num_heads: int | None = None,
    gelu: str | None = None,
    normalization: str | None = None,
) -> tuple[Weights, list[str]]:
    """Returns the model of a source, built, with a name or a number for each class.

    Its recipe is the one of a classifier that was converted. Arguments and errors as for
    `convert`.

    Returns:
        The model, and a sentence for each assumption and each part that was left out.
    """
    if source == "none":
        raise ValueError(
            "Random weights are nothing to convert: give a file, a folder or a name of "
            "keras_vit.list_weights(). Received: 'none'"
        )
    opened = open_model(
        source,
        image_size=image_size,
        num_heads=num_heads,
        gelu=gelu,
        normalization=normalization,
    )
    if image_size not in (None, opened.description.image_size):
        raise ValueError(
            "image_size is for weights that do not hold it. Received: "
            f"image_size={image_size} for {source}, which has {opened.description.image_size}"
        )
    model, more_notes = opened.model_with_notes()
    notes, names = [*opened.description.notes, *more_notes], opened.class_names
    if opened.description.labels.abstains:
        opened = opened.without_unknown()
        notes.append(
            'the answer "unknown" is left out, and probabilities are without the temperature of '
            "keras-vit calibrate"
        )
    if opened.image_size != opened.description.image_size:
        notes.append(
            f"the processor's images of {opened.image_size} pixels became the model's "
            f"{opened.description.image_size}, as its positions are"
        )
    if opened.description.classes is None:
        notes.append("the source has no head, nor has the output")
    elif names is None:
        names = tuple(str(index) for index in range(opened.description.classes))
        is_told = any(note.endswith(NAMES_LEFT_OUT) for note in notes)
        reason = "" if is_told else "the source has no class names; "
        notes.append(f"{reason}numbers were written")
    labels = dataclasses.replace(opened.description.labels, names=names)
    recipe = {"converted": True, "notes": [*notes]}
    description = dataclasses.replace(opened.description, labels=labels)
    opened = dataclasses.replace(opened, description=description, recipe=recipe)
    return _with_model(opened, model), notes


def _with_model(weights, model):
    """Weights whose model is one that was built."""
    return dataclasses.replace(weights, whole=lambda: model)


def _format(destination, to):
    if to is None:
        for name, suffix in CONVERSION_FORMATS.items():
            if suffix and destination.name.endswith(suffix):
                return name
        if destination.suffix in (".safetensors", ".h5", ".keras"):
            raise ValueError(
                "The destination must end in .npz, for the official layout, or be a folder; "
                f"--to huggingface writes model.safetensors into it. Received: {destination}"
            )
        return "classifier"
    if to not in CONVERSION_FORMATS:
        raise ValueError(f"`to` must be one of {tuple(CONVERSION_FORMATS)}. Received: to={to!r}")
    return to


def _write_classifier(opened, destination, overwrite, samples):
    labels = opened.description.labels
    if labels.names is None:
        raise ValueError(
            "A classifier must have a head; without one, convert to official or huggingface."
        )
    preprocessing = opened.preprocessing_for(opened.model().input_shape[1:3])
    photos = read_images(sample_files(samples, opened.folder), preprocessing.bit_depth)
    predictor = Predictor(
        opened.model(),
        labels.names,
        preprocessing,
        opened.recipe,
        task=labels.task,
        thresholds=labels.thresholds,
    )
    write_classifier(destination, predictor, samples=photos, overwrite=overwrite)
    where = "with the output and its exports"
    size = preprocessing.image_size
    return [describe_samples(len(photos), "of the source", size, where)] if photos else []


def _write_official(opened, destination, overwrite):
    # Without class names, what only this package reads in a file of weights.
    labels = Labels(task=opened.description.labels.task)
    save_checkpoint(
        opened.model(), destination, dataclasses.replace(opened.description, labels=labels)
    )
    return [_WITHOUT_NAMES]


_WRITERS: dict[str, Callable[[Weights, pathlib.Path, bool], list[str]]] = {
    "official": _write_official,
    "huggingface": write_hugging_face,
}
