"""What code bases keep beside weights: JSON files, class names and settings of images."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_vit.configs import ViTConfig
from keras_vit.description import Description, Labels
from keras_vit.preprocessing import PILLOW_EVALUATIONS, Preprocessing
from keras_vit.utils.files import DESCRIPTION
from keras_vit.utils.json_files import Fields, read_json as read_any_json


@dataclasses.dataclass(frozen=True)
class WeightFiles:
    """What a code base reads of weights in addition to their arrays.

    Args:
        path: The file or folder of the weights.
        config: The object in the `config.json` in the file or beside it; {} without one.
        shapes: Shapes by layer; see `keras_vit.configs.recognition.layer_shapes`.
        names: Names of all arrays.
        wrapper: The key of a PyTorch file under which the state dict is, or "".
    """

    path: pathlib.Path
    config: Mapping[str, Any]
    shapes: Mapping[str, Any]
    names: Sequence[str] = ()
    wrapper: str = ""

    @property
    def folder(self) -> pathlib.Path:
        """The folder with the weights and what describes them."""
        return self.path if self.path.is_dir() else self.path.parent


# Fields of a config and what else is stated, and images and labels, by code base.
Stated = tuple[dict[str, Any], Description]
ReadImages = Callable[[WeightFiles, tuple[int, int], int | None], Description]


# Types of the fields that are read, in Hugging Face's `config.json`, timm's,
# the index of a checkpoint in parts, and `preprocessor_config.json`.
_MODEL_FIELDS = {
    "model_type": str,
    "hidden_act": str,
    "layer_norm_eps": float,
    "num_attention_heads": int,
    "image_size": (int, list),
    "patch_size": (int, list),
    "rope_theta": float,
    "use_gated_mlp": bool,
}
_FIELDS: Fields = {
    **_MODEL_FIELDS,
    "vision_config": _MODEL_FIELDS,
    "architecture": str,
    "id2label": (dict, list),
    "problem_type": str,
    "label_names": list,
    "global_pool": str,
    "model_args": {
        "act_layer": str,
        "embed_dim": int,
        "global_pool": str,
        "img_size": (int, list),
        "num_heads": int,
    },
    "pretrained_cfg": {
        "input_size": list,
        "mean": list,
        "std": list,
        "crop_pct": float,
        "crop_mode": str,
        "interpolation": str,
        "label_names": list,
    },
    "weight_map": dict,
    "image_mean": list,
    "image_std": list,
    "rescale_factor": float,
    "resample": int,
    "size": (int, dict),
    "crop_size": (int, dict),
    "class_name": str,
    "registered_name": str,
    "config": dict,
}


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Returns the object in a JSON file beside weights; {} if there is no such file.

    Raises:
        ValueError: If it holds no JSON object, or a field that is read has another type.
    """
    return read_any_json(path, _FIELDS) if path.is_file() else {}


def found(
    origin: str,
    preprocessing: Preprocessing | None = None,
    labels: Labels | None = None,
    notes: Sequence[str] = (),
) -> Description:
    """Returns a description whose pixel range and resize have the same origin."""
    origins = {"pixels": origin, "evaluation": origin}
    return Description(
        preprocessing=preprocessing, labels=labels or Labels(), origins=origins, notes=tuple(notes)
    )


def checked(compute: Callable[..., Any], *values: Any) -> Any:
    """Returns a normalisation that is computed from numbers in a file.

    Raises:
        ValueError: If they are no numbers.
    """
    try:
        return compute(*values)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ValueError(
            f"The normalisation must be numbers, one for each channel. Received: {values} ({error})"
        ) from error


def read_class_names(
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
        return None, (other_count("config.json", len(labels), classes),)
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


def other_count(file: str, count: int, classes: int | None) -> str:
    """Returns the note about class names that are of another head."""
    return f"class names in {file}: {count}, outputs of the head: {classes}; {NAMES_LEFT_OUT}"


NAMES_LEFT_OUT = "the names were left out"
_MAX_LISTED = 6  # Names in a note.


def by(size: Sequence[int]) -> str:
    """Returns a size as text, such as "224x224"."""
    return "x".join(map(str, size))


def differences(preprocessing: Preprocessing, library: str) -> list[str]:
    """Returns notes of how a library's antialiased resize and crop differ.

    Raises:
        ValueError: If they differ in more than a filter or a pixel.
    """
    evaluation, before = preprocessing.evaluation, preprocessing.resize_size
    if evaluation == "resize":
        return ["the resize there is antialiased, and was not here"]
    if evaluation not in PILLOW_EVALUATIONS:
        raise ValueError(
            'The way of resizing must be one of that library: "huggingface", "torchvision", or '
            f'nearly "resize" (evaluation in {DESCRIPTION}). Received: {evaluation!r}'
        )
    rests = {1, 3} if isinstance(before, int) else set()
    if isinstance(before, tuple):
        rests = {b - side for b, side in zip(before, preprocessing.image_size, strict=True)}
    if evaluation != library and any(rest // 2 != round(rest / 2) for rest in rests):
        return ["the crop there may start one pixel later or earlier"]
    return []


def mean_and_std(preprocessing: Preprocessing, channels: int) -> tuple[list, list]:
    """Returns the values of `(pixel / 255 - mean) / std`, by channel."""
    least, most = (np.broadcast_to(value, channels).tolist() for value in preprocessing.value_range)
    pairs = list(zip(least, most, strict=True))
    return [-low / (high - low) for low, high in pairs], [1 / (high - low) for low, high in pairs]


def differing_fields(config: ViTConfig, absent: Mapping[str, bool]) -> str:
    """Returns the fields of a config that have no counterpart, for a message."""
    return ", ".join(
        f"{name}={getattr(config, name)!r}" for name, is_absent in absent.items() if is_absent
    )
