"""What other code bases say beside their weights: preprocessing and class names.

What the files leave open is assumed and said in a note.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras_vit.checkpoints.checkpoint import BuildArguments, Checkpoint
from keras_vit.checkpoints.description import read_json
from keras_vit.checkpoints.hdf5 import HUB_CLASSIFIER
from keras_vit.checkpoints.keras_names import KERAS_HUB
from keras_vit.checkpoints.torch_names import HUGGING_FACE, TIMM, TORCHVISION
from keras_vit.preprocessing import Preprocessing

from . import hugging_face

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # Of pixels in [0, 1], by channel.
IMAGENET_STD = (0.229, 0.224, 0.225)


class Carried(NamedTuple):
    """What is carried along with the weights.

    Args:
        preprocessing: How an image becomes the model's input.
        class_names: The names of its classes, or None.
        notes: What was assumed or is not the same, a sentence each.
    """

    preprocessing: Preprocessing
    class_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


def carried(checkpoint: Checkpoint, inferred: BuildArguments) -> Carried:
    """Returns what lies beside the weights at a path.

    Args:
        checkpoint: The weights.
        inferred: Their model.

    Raises:
        ValueError: If images are prepared in a way that no `Preprocessing` says.
    """
    read = _READERS.get(checkpoint.layout.name)
    return read(checkpoint, inferred) if read else Carried(Preprocessing(inferred.image_size))


def value_range(mean: Sequence[float], std: Sequence[float], scale: float = 1 / 255):
    """Returns what pixels 0 and 255 become by `(scale * pixel - mean) / std`.

    Args:
        mean: By channel.
        std: By channel.
        scale: What a pixel is multiplied by first.

    Returns:
        Two numbers if the channels are alike, else two tuples of them.
    """
    pairs = list(zip(mean, std, strict=True))
    least = tuple(-m / s for m, s in pairs)
    most = tuple((255 * scale - m) / s for m, s in pairs)
    return (least[0], most[0]) if len(set(pairs)) == 1 else (least, most)


def _hugging_face(checkpoint, inferred):
    preprocessing, preprocessing_notes = _of_processor(checkpoint.folder, inferred.image_size)
    class_names = hugging_face.class_names_of(checkpoint.config, inferred.classes)
    return Carried(preprocessing, class_names, preprocessing_notes)


def _of_processor(folder, image_size):
    wanted = read_json(folder / hugging_face.PREPROCESSOR)
    if not wanted:
        note = f"no {hugging_face.PREPROCESSOR}: values from -1 to 1 were assumed"
        return Preprocessing(image_size), (note,)
    mean, std = wanted.get("image_mean", [0.5]), wanted.get("image_std", [0.5])
    if not wanted.get("do_normalize", True):
        mean, std = [0.0], [1.0]
    scale = wanted.get("rescale_factor", 1 / 255) if wanted.get("do_rescale", True) else 1.0
    values = _checked(value_range, mean, std, scale)
    notes = []
    if wanted.get("resample", hugging_face.BILINEAR) != hugging_face.BILINEAR:
        notes.append(f"resample={wanted['resample']} became bilinear")
    evaluation = "resize"
    if wanted.get("do_center_crop", False):
        size = wanted.get("size", {})
        is_short = isinstance(size, int) or "shortest_edge" in size
        evaluation = "resize_small_central_crop" if is_short else "resize_central_crop"
        notes.append(f"size={size} before the crop became that of {evaluation!r}")
    return Preprocessing(image_size, evaluation, values), tuple(notes)


def _timm(checkpoint, inferred):
    config = checkpoint.config
    wanted = config.get("pretrained_cfg")
    if not isinstance(wanted, dict):
        note = (
            "no config.json: values from -1 to 1 were assumed, those of timm's vit_*; deit_* "
            "want mean and standard deviation of ImageNet (--normalization imagenet)"
        )
        return Carried(Preprocessing(inferred.image_size), None, (note,))
    mean, std = wanted.get("mean", IMAGENET_MEAN), wanted.get("std", IMAGENET_STD)
    share = wanted.get("crop_pct", 0.875)
    notes = []
    if wanted.get("interpolation", "bicubic") != "bilinear":
        notes.append(f"interpolation={wanted.get('interpolation', 'bicubic')!r} became bilinear")
    if share != 1:
        notes.append(f"crop_pct={share} became that of 'resize_small_central_crop'")
    labels = config.get("label_names") or wanted.get("label_names")
    return Carried(
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
        "mean and standard deviation of ImageNet were assumed, those of torchvision's own "
        "weights; its antialiased resize became an area average"
    )
    return Carried(preprocessing, None, (note,))


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
        return Carried(Preprocessing(inferred.image_size), None, (note,))
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
    return Carried(Preprocessing(inferred.image_size, evaluation, values), None, tuple(notes))


def _affine(scale, offset):
    """What pixels 0 and 255 become by `pixel * scale + offset`, each perhaps by channel."""
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


_READERS: dict[str, Callable[..., Carried]] = {
    HUGGING_FACE.name: _hugging_face,
    TIMM.name: _timm,
    TORCHVISION.name: _torchvision,
    KERAS_HUB.name: _keras_hub,
}
