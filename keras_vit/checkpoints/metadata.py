"""Preprocessing and class names in the files of this package and of other code bases.

Read from the files beside weights: those of a classifier's folder, Hugging Face, timm, KerasHub.
Official files and those of torchvision and vit-keras have the preprocessing of their code base.
Whatever is in no file is None, never assumed.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from keras_vit.checkpoints.checkpoint import Checkpoint
from keras_vit.checkpoints.config_json import read_json
from keras_vit.checkpoints.hdf5 import HUB_CLASSIFIER
from keras_vit.checkpoints.keras_names import KERAS_HUB, VIT_KERAS
from keras_vit.checkpoints.layouts import KERAS
from keras_vit.checkpoints.official_names import BIT, OFFICIAL
from keras_vit.checkpoints.torch_names import HUGGING_FACE, TIMM, TORCHVISION
from keras_vit.files import CLASSES, PREPROCESSING
from keras_vit.preprocessing import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Preprocessing,
    value_range,
)

PREPROCESSOR = "preprocessor_config.json"
BILINEAR = 2  # Pillow's number of the filter.


class Metadata(NamedTuple):
    """Preprocessing and class names that belong to weights; None for what is unknown.

    Args:
        preprocessing: How an image becomes the model's input.
        class_names: The names of the classes.
        origin: Where the preprocessing is from, or which file is missing, for people.
        notes: A sentence for each difference between the source and what is read.
    """

    preprocessing: Preprocessing | None = None
    class_names: tuple[str, ...] | None = None
    origin: str = "the file holds weights alone"
    notes: tuple[str, ...] = ()


def read_metadata(
    checkpoint: Checkpoint, image_size: tuple[int, int], classes: int | None
) -> Metadata:
    """Returns the preprocessing and class names in or beside a checkpoint.

    Args:
        checkpoint: The weights.
        image_size: Pixels (height, width) of the model's input.
        classes: Classes of their head, or None without a head.

    Raises:
        ValueError: If no `Preprocessing` prepares images in the same way.
    """
    if "preprocessing" in checkpoint.facts:  # Noted by `convert`; None if it was unknown there.
        noted = checkpoint.facts["preprocessing"]
        if noted is None:
            return Metadata(origin="the source did not hold it")
        preprocessing = Preprocessing.from_json(json.dumps(noted))
        return Metadata(preprocessing, origin=f"noted in {checkpoint.path.name}")
    read = _READERS.get(checkpoint.layout.name)
    return read(checkpoint, image_size, classes) if read else Metadata()


def _official(checkpoint, image_size, classes):
    return Metadata(Preprocessing(image_size), origin="the official code")


def _vit_keras(checkpoint, image_size, classes):
    return Metadata(Preprocessing(image_size), origin="vit-keras's preprocess_inputs")


def _keras(checkpoint, image_size, classes):
    return read_folder(checkpoint.folder, classes)


def read_folder(folder: pathlib.Path, classes: int | None) -> Metadata:
    """Returns the preprocessing and class names in the folder of a model of this package.

    Args:
        folder: The folder of a classifier, or of a model that was pre-trained without classes.
        classes: Classes of the head, or None without a head.

    Raises:
        ValueError: If `preprocessing.json` is not one.
    """
    path, names = folder / PREPROCESSING, None
    if not path.is_file():
        return Metadata(origin=f"no {PREPROCESSING}")
    if classes is not None and (folder / CLASSES).is_file():
        lines = (folder / CLASSES).read_text(encoding="utf-8").splitlines()
        names = _names(lines, classes)
    preprocessing = Preprocessing.from_json(path.read_text(encoding="utf-8"))
    return Metadata(preprocessing, names, PREPROCESSING)


def _hugging_face(checkpoint, image_size, classes):
    return _of_processor(checkpoint.folder, image_size)._replace(
        class_names=class_names_of(checkpoint.config, classes)
    )


def _of_processor(folder, image_size):
    wanted = read_json(folder / PREPROCESSOR)
    if not wanted:
        return Metadata(origin=f"no {PREPROCESSOR}")
    mean, std = wanted.get("image_mean", [0.5]), wanted.get("image_std", [0.5])
    if not wanted.get("do_normalize", True):
        mean, std = [0.0], [1.0]
    scale = wanted.get("rescale_factor", 1 / 255) if wanted.get("do_rescale", True) else 1.0
    values = _checked(value_range, mean, std, scale)
    notes = []
    if wanted.get("resample", BILINEAR) != BILINEAR:
        notes.append(f"resample={wanted['resample']} became bilinear")
    evaluation = "resize"
    if wanted.get("do_center_crop", False):
        size = wanted.get("size", {})
        is_short = isinstance(size, int) or "shortest_edge" in size
        evaluation = "resize_small_central_crop" if is_short else "resize_central_crop"
        notes.append(f"size={size} before the crop became {evaluation!r}'s")
    preprocessing = Preprocessing(image_size, evaluation, values)
    return Metadata(preprocessing, origin=PREPROCESSOR, notes=tuple(notes))


def _timm(checkpoint, image_size, classes):
    config = checkpoint.config
    wanted = config.get("pretrained_cfg")
    if not isinstance(wanted, dict):
        return Metadata(origin="no config.json of timm")
    mean, std = wanted.get("mean", IMAGENET_MEAN), wanted.get("std", IMAGENET_STD)
    share = wanted.get("crop_pct", 0.875)
    notes = []
    if wanted.get("interpolation", "bicubic") != "bilinear":
        notes.append(f"interpolation={wanted.get('interpolation', 'bicubic')!r} became bilinear")
    if share != 1:
        notes.append(f"crop_pct={share} became 'resize_small_central_crop'")
    labels = config.get("label_names") or wanted.get("label_names")
    is_squashed = share == 1 and wanted.get("crop_mode") == "squash"
    evaluation = "resize" if is_squashed else "resize_small_central_crop"
    return Metadata(
        Preprocessing(image_size, evaluation, _checked(value_range, mean, std)),
        _names(labels, classes),
        "config.json",
        tuple(notes),
    )


def _torchvision(checkpoint, image_size, classes):
    return Metadata(
        Preprocessing(
            image_size, "resize_small_central_crop", value_range(IMAGENET_MEAN, IMAGENET_STD)
        ),
        origin="torchvision's own weights",
        notes=("torchvision's antialiased resize became an area average",),
    )


def _keras_hub(checkpoint, image_size, classes):
    if checkpoint.config.get("class_name") == HUB_CLASSIFIER:  # A `.keras` holds all of it.
        file, preprocessor = "config.json", checkpoint.config["config"].get("preprocessor")
    else:
        file = "preprocessor.json"
        preprocessor = read_json(checkpoint.folder / file)
    converter: dict[str, Any] = {}
    if isinstance(preprocessor, dict):
        converter = (preprocessor.get("config", {}).get("image_converter") or {}).get("config", {})
    if not converter:
        return Metadata(origin="no image converter of KerasHub")
    notes = []
    if converter.get("interpolation", "bilinear") != "bilinear":
        notes.append(f"interpolation={converter['interpolation']!r} became bilinear")
    if converter.get("pad_to_aspect_ratio"):
        raise ValueError(
            "Images must be resized or cropped, not padded. "
            f"Received: pad_to_aspect_ratio=True in {checkpoint.path}"
        )
    crops = converter.get("crop_to_aspect_ratio", True)
    if crops:
        notes.append("crop_to_aspect_ratio=True became 'resize_small_central_crop'")
    values = _checked(_affine, converter.get("scale"), converter.get("offset"))
    evaluation = "resize_small_central_crop" if crops else "resize"
    preprocessing = Preprocessing(image_size, evaluation, values)
    return Metadata(preprocessing, origin=file, notes=tuple(notes))


def _affine(scale, offset):
    """`value_range` for `pixel * scale + offset`, numbers or lists by channel."""
    scale, offset = 1.0 if scale is None else scale, 0.0 if offset is None else offset
    count = max(len(value) if isinstance(value, list) else 1 for value in (scale, offset))
    scales, offsets = (
        value if isinstance(value, list) else [value] * count for value in (scale, offset)
    )
    mean = [-o / (255 * s) for s, o in zip(scales, offsets, strict=True)]
    return value_range(mean, [1 / (255 * s) for s in scales])


def _checked(compute, *values):
    try:
        return compute(*values)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ValueError(
            f"The normalisation must be numbers, one for each channel. Received: {values} ({error})"
        ) from error


def _names(labels, count):
    if not isinstance(labels, list) or len(labels) != count or len(set(map(str, labels))) != count:
        return None
    return tuple(map(str, labels))


def class_names_of(config: dict, count: int | None) -> tuple[str, ...] | None:
    """Returns the class names in `config.json`; None if their number is not `count`."""
    try:
        labels = config["id2label"]
        names = tuple(str(labels[str(index)]) for index in range(count or 0))
    except (KeyError, TypeError):
        return None
    return names if count and len(set(names)) == len(labels) == count else None


_READERS: dict[str, Callable[[Checkpoint, tuple[int, int], int | None], Metadata]] = {
    OFFICIAL.name: _official,
    BIT.name: _official,
    VIT_KERAS.name: _vit_keras,
    KERAS.name: _keras,
    HUGGING_FACE.name: _hugging_face,
    TIMM.name: _timm,
    TORCHVISION.name: _torchvision,
    KERAS_HUB.name: _keras_hub,
}
