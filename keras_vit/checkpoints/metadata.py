"""Preprocessing and class names in the files of other code bases.

Read from the files of Hugging Face, timm, torchvision and KerasHub. Whatever the files leave open
is assumed, with a note.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keras_vit.checkpoints.checkpoint import BuildArguments, Checkpoint
from keras_vit.checkpoints.config_json import read_json
from keras_vit.checkpoints.hdf5 import HUB_CLASSIFIER
from keras_vit.checkpoints.keras_names import KERAS_HUB
from keras_vit.checkpoints.torch_names import HUGGING_FACE, TIMM, TORCHVISION
from keras_vit.preprocessing import IMAGENET_MEAN, IMAGENET_STD, Preprocessing, value_range

PREPROCESSOR = "preprocessor_config.json"
BILINEAR = 2  # Pillow's number of the filter.


class ForeignMetadata(NamedTuple):
    """Preprocessing and class names that belong to weights of another code base.

    Args:
        preprocessing: How an image becomes the model's input.
        class_names: The names of its classes, or None.
        notes: A sentence for each assumption and each difference.
    """

    preprocessing: Preprocessing
    class_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


def read_metadata(checkpoint: Checkpoint, inferred: BuildArguments) -> ForeignMetadata:
    """Returns the preprocessing and class names in or beside a checkpoint.

    Args:
        checkpoint: The weights.
        inferred: Their model.

    Raises:
        ValueError: If no `Preprocessing` prepares images in the same way.
    """
    read = _READERS.get(checkpoint.layout.name)
    return (
        read(checkpoint, inferred) if read else ForeignMetadata(Preprocessing(inferred.image_size))
    )


def _hugging_face(checkpoint, inferred):
    preprocessing, preprocessing_notes = _preprocessing_of_processor(
        checkpoint.folder, inferred.image_size
    )
    class_names = class_names_of(checkpoint.config, inferred.classes)
    return ForeignMetadata(preprocessing, class_names, preprocessing_notes)


def _preprocessing_of_processor(folder, image_size):
    wanted = read_json(folder / PREPROCESSOR)
    if not wanted:
        note = f"no {PREPROCESSOR}: values from -1 to 1 were assumed"
        return Preprocessing(image_size), (note,)
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
    return Preprocessing(image_size, evaluation, values), tuple(notes)


def _timm(checkpoint, inferred):
    config = checkpoint.config
    wanted = config.get("pretrained_cfg")
    if not isinstance(wanted, dict):
        note = (
            "no config.json: values from -1 to 1 were assumed, as for timm's vit_*; its deit_* "
            "need the mean and standard deviation of ImageNet (--normalization imagenet)"
        )
        return ForeignMetadata(Preprocessing(inferred.image_size), None, (note,))
    mean, std = wanted.get("mean", IMAGENET_MEAN), wanted.get("std", IMAGENET_STD)
    share = wanted.get("crop_pct", 0.875)
    notes = []
    if wanted.get("interpolation", "bicubic") != "bilinear":
        notes.append(f"interpolation={wanted.get('interpolation', 'bicubic')!r} became bilinear")
    if share != 1:
        notes.append(f"crop_pct={share} became 'resize_small_central_crop'")
    labels = config.get("label_names") or wanted.get("label_names")
    return ForeignMetadata(
        Preprocessing(
            inferred.image_size,
            "resize" if share == 1 and wanted.get("crop_mode") == "squash"
            else "resize_small_central_crop",
            _checked(value_range, mean, std),
        ),
        _names(labels, inferred.classes),
        tuple(notes),
    )  # fmt: skip


def _torchvision(checkpoint, inferred):
    preprocessing = Preprocessing(
        inferred.image_size,
        "resize_small_central_crop",
        value_range(IMAGENET_MEAN, IMAGENET_STD),
    )
    note = (
        "the mean and standard deviation of ImageNet were assumed, as for torchvision's own "
        "weights; its antialiased resize became an area average"
    )
    return ForeignMetadata(preprocessing, None, (note,))


def _keras_hub(checkpoint, inferred):
    if checkpoint.config.get("class_name") == HUB_CLASSIFIER:  # A `.keras` holds all of it.
        preprocessor = checkpoint.config["config"].get("preprocessor")
    else:
        preprocessor = read_json(checkpoint.folder / "preprocessor.json")
    converter: dict[str, Any] = {}
    if isinstance(preprocessor, dict):
        converter = (preprocessor.get("config", {}).get("image_converter") or {}).get("config", {})
    if not converter:
        note = "no image converter of KerasHub: values from -1 to 1 were assumed"
        return ForeignMetadata(Preprocessing(inferred.image_size), None, (note,))
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
    return ForeignMetadata(
        Preprocessing(inferred.image_size, evaluation, values), None, tuple(notes)
    )


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


_READERS: dict[str, Callable[..., ForeignMetadata]] = {
    HUGGING_FACE.name: _hugging_face,
    TIMM.name: _timm,
    TORCHVISION.name: _torchvision,
    KERAS_HUB.name: _keras_hub,
}
