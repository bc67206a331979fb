"""Preprocessing and class names in the files of this package and of other code bases.

Read from the files beside weights: a classifier's folder, Hugging Face's, timm's, KerasHub's.
Official, torchvision's and vit-keras's files have the preprocessing of their code base.
Whatever is in no file is None, never assumed.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_vit.checkpoints.checkpoint import Checkpoint
from keras_vit.checkpoints.config_json import read_json
from keras_vit.checkpoints.hdf5 import HUB_CLASSIFIERS
from keras_vit.checkpoints.keras_names import KERAS_HUB, KERAS_HUB_DEIT, VIT_KERAS
from keras_vit.checkpoints.layouts import KERAS
from keras_vit.checkpoints.official_names import BIT, OFFICIAL
from keras_vit.checkpoints.torch_names import (
    HUGGING_FACE,
    HUGGING_FACE_CLIP,
    HUGGING_FACE_DINOV2,
    HUGGING_FACE_DINOV3,
    TIMM,
    TIMM_BIT,
    TORCHVISION,
)
from keras_vit.description import Description, Labels
from keras_vit.description.description_texts import description_of_texts, read_texts
from keras_vit.description.licences import licence_in_card, licence_name
from keras_vit.description.tasks import MULTICLASS, MULTILABEL
from keras_vit.preprocessing import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Preprocessing,
    value_range,
)
from keras_vit.utils.files import CLASSES, DESCRIPTION
from keras_vit.utils.json_files import check_fields

PREPROCESSOR = "preprocessor_config.json"
PROCESSOR = "processor_config.json"
KERAS_HUB_PREPROCESSOR = "preprocessor.json"
# Pillow's numbers of the filters.
PILLOW_FILTERS = {"lanczos": 1, "bilinear": 2, "bicubic": 3}

# Defaults of Hugging Face's image processors, for fields missing in a file, by the start of their
# names; all others do as "ViT".
_CLIP_CROP: dict[str, Any] = {
    "resample": 3,
    "size": {"shortest_edge": 224},
    "crop_size": 224,
    "do_center_crop": True,
}
_PROCESSOR_DEFAULTS: dict[str, dict[str, Any]] = {
    "DeiT": {"resample": 3, "size": 256, "crop_size": 224, "do_center_crop": True},
    "CLIP": _CLIP_CROP,
    "Bit": _CLIP_CROP,
    "Siglip": {"resample": 3, "size": 224},
    "ViT": {"resample": 2, "size": 224},
}


def read_metadata(
    checkpoint: Checkpoint, image_size: tuple[int, int], classes: int | None
) -> Description:
    """Returns the preprocessing and class names in or beside a checkpoint.

    What is unknown is None, and the origin of "pixels" names the file that is missing.

    Args:
        checkpoint: The weights.
        image_size: Pixels (height, width) of the model's input.
        classes: Classes of their head, or None without a head.

    Raises:
        ValueError: If no `Preprocessing` prepares images in the same way.
    """
    found = _read_metadata(checkpoint, image_size, classes)
    if stated := _licence(checkpoint):
        found = dataclasses.replace(found, licence=stated)
    task = checkpoint.facts.task
    if task is None:
        return found
    return dataclasses.replace(found, labels=dataclasses.replace(found.labels, task=task))


def _found(
    origin: str,
    preprocessing: Preprocessing | None = None,
    labels: Labels | None = None,
    notes: Sequence[str] = (),
) -> Description:
    """The description from files beside weights; pixel range and resize have the same origin."""
    origins = {"pixels": origin, "evaluation": origin}
    return Description(
        preprocessing=preprocessing, labels=labels or Labels(), origins=origins, notes=tuple(notes)
    )


def described_in(checkpoint: Checkpoint) -> Description | None:
    """Returns the description that this package noted in a file of weights, or None.

    Raises:
        ValueError: If it is wrong.
    """
    noted = checkpoint.facts.noted.get("description")
    return None if noted is None else Description.from_json(noted, checkpoint.path)


def _read_metadata(checkpoint, image_size, classes):
    if checkpoint.layout is not KERAS and "description" in checkpoint.facts.noted:
        return _noted(checkpoint, classes)
    read = _READERS.get(checkpoint.layout.name)
    if read is None:
        return _found("the file holds weights alone")
    return read(checkpoint, image_size, classes)


def _licence(checkpoint):
    """The licence in the model card or timm's config.json beside weights of others, or None."""
    if "description" in checkpoint.facts.noted:
        return None
    configs = (checkpoint.config.get("pretrained_cfg"), checkpoint.config)
    stated = (config.get("license") for config in configs if isinstance(config, dict))
    of_config = next(filter(None, map(licence_name, stated)), None)
    return licence_in_card(checkpoint.folder) or of_config


def origin_of_numerics(checkpoint: Checkpoint) -> str:
    """Returns where the form of GELU and LayerNorm's epsilon of a checkpoint are from."""
    return "config.json" if checkpoint.config else f"usual for {checkpoint.layout.name}"


def origin_of_positions(checkpoint: Checkpoint) -> str:
    """Returns where the rule of resizing positions of a checkpoint is from."""
    if "description" in checkpoint.facts.noted:
        return f"noted in {checkpoint.path.name}"
    return "assumed" if checkpoint.layout is KERAS else f"the rule of {checkpoint.layout.name}"


def _noted(checkpoint, classes):
    """What this package noted in a file of weights."""
    described = described_in(checkpoint)
    if described is None or described.preprocessing is None:
        return _found("the source did not hold it")
    labels = described.labels
    if labels.names is not None and len(labels.names) != classes:  # Names for another head.
        labels = Labels()
    origins = _found(f"noted in {checkpoint.path.name}").origins
    return dataclasses.replace(described, labels=labels, origins=origins, notes=())


def usual_resize(layout: str, image_size: tuple[int, int]) -> Preprocessing:
    """Returns the resize of most weights of a layout, for files that do not state it."""
    if layout.startswith(HUGGING_FACE.name):
        return _resize_of_processor({}, image_size)[0]
    if layout.startswith(TIMM.name):
        share = 0.9 if max(image_size) < 384 else 1.0
        return _resize_of_timm({"crop_pct": share}, image_size)[0]
    return Preprocessing(image_size)


def _official(checkpoint, image_size, classes):
    return _found("the official code", Preprocessing(image_size))


def _vit_keras(checkpoint, image_size, classes):
    return _found("vit-keras's preprocess_inputs", Preprocessing(image_size))


def _keras(checkpoint, image_size, classes):
    beside = read_folder(checkpoint.folder, classes)
    noted = _noted(checkpoint, classes)
    return noted if beside.preprocessing is None and noted.preprocessing else beside


def read_folder(folder: pathlib.Path, classes: int | None) -> Description:
    """Returns the preprocessing and class names in the folder of a model of this package.

    Args:
        folder: The folder of a classifier, or of a model that was pre-trained without classes.
        classes: Classes of the head, or None without a head.

    Raises:
        ValueError: If a file of the folder is wrong.
    """
    texts = read_texts(folder)
    if DESCRIPTION not in texts:
        return _found(f"no {DESCRIPTION}")
    count = len(texts.get(CLASSES, "").splitlines())
    notes: tuple[str, ...] = ()
    found = description_of_texts(texts, folder)
    if count != (classes or 0):  # Files of another model.
        found = Description(preprocessing=found.preprocessing)
        notes = (_other_count(CLASSES, count, classes),) if count and classes else ()
    origins = {**_found(DESCRIPTION).origins, **found.origins}
    return dataclasses.replace(found, origins=origins, notes=(*found.notes, *notes))


def _hugging_face(checkpoint, image_size, classes):
    is_multilabel = checkpoint.config.get("problem_type") == "multi_label_classification"
    names, notes = _class_names(checkpoint.config.get("id2label"), classes)
    labels = Labels(names, MULTILABEL if is_multilabel else MULTICLASS)
    found = _of_processor(checkpoint.folder, image_size, checkpoint.layout is HUGGING_FACE_DINOV2)
    return dataclasses.replace(found, labels=labels, notes=(*notes, *found.notes))


def _of_processor(folder, image_size, keeps_size=False):
    """Returns the description of a folder's image processor.

    Args:
        folder: The folder.
        image_size: Pixels (height, width) of the model.
        keeps_size: Whether the model takes images of any size, so that the processor's is kept.
    """
    # transformers 5 writes the image processor into the processor of texts and images, if any.
    wanted = read_json(folder / PROCESSOR).get("image_processor") or read_json(
        folder / PREPROCESSOR
    )
    if not wanted:
        return _found(f"no {PREPROCESSOR}")
    mean, std = wanted.get("image_mean", [0.5]), wanted.get("image_std", [0.5])
    if not wanted.get("do_normalize", True):
        mean, std = [0.0], [1.0]
    scale = wanted.get("rescale_factor", 1 / 255) if wanted.get("do_rescale", True) else 1.0
    values = _checked(value_range, mean, std, scale)
    preprocessing, notes = _resize_of_processor(wanted, image_size, keeps_size)
    preprocessing = dataclasses.replace(preprocessing, value_range=values)
    return _found(PREPROCESSOR, preprocessing, notes=notes)


def _resize_of_processor(wanted, image_size, keeps_size=False):
    """Returns the preprocessing of a `preprocessor_config.json` without the values, and notes."""
    kind = str(wanted.get("image_processor_type") or wanted.get("feature_extractor_type") or "ViT")
    default = next((d for k, d in _PROCESSOR_DEFAULTS.items() if kind.startswith(k)), {})
    wanted = _PROCESSOR_DEFAULTS["ViT"] | default | wanted
    padding = [name for name in ("do_pad", "crop_pct") if wanted.get(name)]
    filters = {number: name for name, number in PILLOW_FILTERS.items()}
    if padding or wanted["resample"] not in filters:
        raise ValueError(
            f"An image processor must resize with a filter of {filters} and may crop the middle. "
            f"Received: { {name: wanted[name] for name in ('resample', *padding)} } of {kind}"
        )
    notes = []
    if not wanted.get("do_resize", True):
        notes.append("do_resize=False: images of another size are resized nevertheless")
    size, crop = wanted["size"], wanted.get("crop_size")
    if isinstance(size, int) and default is _CLIP_CROP:
        size = {"shortest_edge": size}
    is_short = isinstance(size, dict) and "shortest_edge" in size and "longest_edge" not in size
    before = size["shortest_edge"] if is_short else _sides(size)
    if wanted.get("do_center_crop"):
        size = _sides(crop)
    elif is_short:
        size = (before, before)
        notes.append(f"size={wanted['size']} without a crop: the middle is cropped")
    else:
        size, before = before, None
    preprocessing = Preprocessing(
        size, "huggingface", interpolation=filters[wanted["resample"]], resize_size=before
    )
    if keeps_size:
        return preprocessing, notes
    if preprocessing.image_size != tuple(image_size):
        notes.append(
            f"the processor's images of {_by(size)} pixels became the model's {_by(image_size)}"
        )
    return preprocessing.with_image_size(image_size), notes


def _sides(size):
    """Returns Hugging Face's `size` as (height, width)."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, dict) and size.keys() >= {"height", "width"}:
        return size["height"], size["width"]
    raise ValueError(
        "The size of an image processor must have height and width, or the shortest edge. "
        f"Received: {size!r}"
    )


def _by(size):
    return "x".join(map(str, size))


def _timm(checkpoint, image_size, classes):
    config = checkpoint.config
    wanted = config.get("pretrained_cfg")
    if not isinstance(wanted, dict):
        wanted = {}
    names, more_notes = _class_names(
        config.get("label_names") or wanted.get("label_names"), classes
    )
    if not wanted:
        return _found("no config.json of timm", labels=Labels(names), notes=more_notes)
    mean, std = wanted.get("mean", IMAGENET_MEAN), wanted.get("std", IMAGENET_STD)
    preprocessing, notes = _resize_of_timm(wanted, image_size)
    return _found(
        "config.json",
        dataclasses.replace(preprocessing, value_range=_checked(value_range, mean, std)),
        Labels(names),
        (*more_notes, *notes),
    )


def _resize_of_timm(wanted, image_size):
    """Returns the preprocessing of a `pretrained_cfg` without the values, and notes.

    What it leaves open is as in timm's `resolve_data_config`.
    """
    mode, share = wanted.get("crop_mode") or "center", wanted.get("crop_pct") or 0.875
    if (
        mode not in ("center", "squash")
        or not isinstance(share, (int, float))
        or not 0 < share <= 1
    ):
        raise ValueError(
            "Images must be resized and their middle cropped, not padded. "
            f"Received: crop_mode={mode!r}, crop_pct={share!r}"
        )
    height, width = (math.floor(side / share) for side in image_size)
    notes = []
    if mode == "center" and height != width:
        notes.append(f"crop_mode='center' for images of {_by(image_size)} pixels became 'squash'")
        mode = "squash"
    return Preprocessing(
        image_size,
        "torchvision",
        interpolation=wanted.get("interpolation") or "bicubic",
        resize_size=height if mode == "center" else None if share == 1 else (height, width),
    ), notes


def _torchvision(checkpoint, image_size, classes):
    shapes = checkpoint.shapes
    is_large, is_huge = (f"encoder_block_{last}" in shapes for last in (23, 31))
    is_first = image_size == (224, 224) and not is_huge
    side = 242 if is_large and shapes["patch_embedding"][0] == 16 else 256
    preprocessing = Preprocessing(
        image_size,
        "torchvision",
        value_range(IMAGENET_MEAN, IMAGENET_STD),
        "bilinear" if is_first else "bicubic",
        side if is_first else max(image_size),
    )
    note = (
        f"the short side of {side} pixels and the bilinear filter of IMAGENET1K_V1 were assumed; "
        "IMAGENET1K_SWAG_LINEAR_V1 has 224 and bicubic (resize_size and interpolation in "
        f"{DESCRIPTION})"
    )
    return _found("torchvision's own weights", preprocessing, notes=[note] if is_first else [])


# Fields of KerasHub's image converter.
_CONVERTER = {
    "pad_to_aspect_ratio": bool,
    "crop_to_aspect_ratio": bool,
    "antialias": bool,
    "interpolation": str,
    "scale": (float, list),
    "offset": (float, list),
}


def _keras_hub(checkpoint, image_size, classes):
    if checkpoint.config.get("class_name") in HUB_CLASSIFIERS:  # A `.keras` holds all of it.
        file, preprocessor = "config.json", checkpoint.config["config"].get("preprocessor")
    else:
        file = KERAS_HUB_PREPROCESSOR
        preprocessor = read_json(checkpoint.folder / file)
    converter: dict[str, Any] = {}
    if isinstance(preprocessor, dict):
        check_fields(preprocessor, {"config": {"image_converter": {"config": _CONVERTER}}}, file)
        for name in ("config", "image_converter", "config"):
            preprocessor = preprocessor.get(name) or {}
        converter = preprocessor
    if not converter:
        return _found("no image converter of KerasHub")
    if converter.get("pad_to_aspect_ratio"):
        raise ValueError(
            "Images must be resized or cropped, not padded. "
            f"Received: pad_to_aspect_ratio=True in {checkpoint.path}"
        )
    crops, antialias = converter.get("crop_to_aspect_ratio", True), converter.get("antialias")
    preprocessing = Preprocessing(
        image_size,
        "keras_hub" if crops else "huggingface" if antialias else "resize",
        _checked(_affine, converter.get("scale"), converter.get("offset")),
        (converter.get("interpolation") or "bilinear").removesuffix("3"),  # "lanczos3".
    )
    note = "antialias=True was left out, as the image is cropped first"
    return _found(file, preprocessing, notes=[note] if crops and antialias else [])


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


def _class_names(
    labels: Mapping[str, Any] | Sequence[Any] | None, classes: int | None
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Returns the class names in a `config.json`, or None, and a sentence for what was changed.

    Args:
        labels: Names by number, a list or `id2label`.
        classes: Classes of the head, or None without a head.
    """
    if not labels or not classes:
        return None, ()
    if len(labels) != classes:
        return None, (_other_count("config.json", len(labels), classes),)
    by_number = labels if isinstance(labels, Mapping) else dict(enumerate(labels))
    by_text = {str(number): str(name) for number, name in by_number.items()}
    missing = [number for number in range(classes) if str(number) not in by_text]
    if missing:
        note = f"config.json has no name for class {missing[0]}; {NAMES_LEFT_OUT}"
        return None, (note,)
    given = names = tuple(by_text[str(number)] for number in range(classes))
    while len(set(names)) < classes:  # A name with a number may be the name of another class.
        counts = collections.Counter(names)
        names = tuple(
            f"{name} ({number})" if counts[name] > 1 else name for number, name in enumerate(names)
        )
    changed = [name for name, before in zip(names, given, strict=True) if name != before]
    if not changed:
        return names, ()
    more = f" and {len(changed) - _MAX_LISTED} more" if len(changed) > _MAX_LISTED else ""
    listed = ", ".join(changed[:_MAX_LISTED])
    return names, (f"classes of the same name got their numbers: {listed}{more}",)


def _other_count(file, count, classes):
    return f"class names in {file}: {count}, outputs of the head: {classes}; {NAMES_LEFT_OUT}"


NAMES_LEFT_OUT = "the names were left out"
_MAX_LISTED = 6  # Names in a note.

_READERS: dict[str, Callable[[Checkpoint, tuple[int, int], int | None], Description]] = {
    OFFICIAL.name: _official,
    BIT.name: _official,
    VIT_KERAS.name: _vit_keras,
    KERAS.name: _keras,
    HUGGING_FACE.name: _hugging_face,
    HUGGING_FACE_DINOV2.name: _hugging_face,
    HUGGING_FACE_CLIP.name: _hugging_face,
    HUGGING_FACE_DINOV3.name: _hugging_face,
    TIMM.name: _timm,
    TIMM_BIT.name: _timm,
    TORCHVISION.name: _torchvision,
    KERAS_HUB.name: _keras_hub,
    KERAS_HUB_DEIT.name: _keras_hub,
}
