"""Files beside weights: the JSON of code bases, class names and settings of images."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from keras_vit.configs import ViTConfig
from keras_vit.configs.recognition import Shape, sizes_of_shapes
from keras_vit.description import Description, Labels
from keras_vit.description.description_texts import read_texts
from keras_vit.preprocessing import Preprocessing
from keras_vit.utils.files import CLASSES, DESCRIPTION
from keras_vit.utils.json_files import read_json as read_object

# Names of activations in `transformers` and timm.
_ACTIVATIONS = {
    "gelu": "exact",
    "gelu_python": "exact",
    "gelu_pytorch_tanh": "tanh",
    "gelu_new": "tanh",
    "gelu_fast": "tanh",
    "gelu_tanh": "tanh",
    "gelu_approximate": "tanh",
    "gated silu": "swiglu",
    "quick_gelu": "quick",
    "quickgelu": "quick",
    "relu": "relu",
}


_TOO_WIDE = 4096


def activation_of(field: str, name: str, path: pathlib.Path) -> str:
    """Returns our word for the activation in a field; raises ValueError for one unknown here."""
    if name not in _ACTIVATIONS:
        raise ValueError(
            f"{field} must be one of {tuple(_ACTIVATIONS)}. "
            f"Received: {field}={name!r} next to {path}"
        )
    return _ACTIVATIONS[name]


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Returns the object in a JSON file beside weights; {} if there is no such file.

    Raises:
        ValueError: If it holds no JSON object.
    """
    return read_object(path) if path.is_file() else {}


def check_sizes(
    shapes: Mapping[str, Shape | None],
    path: pathlib.Path,
    stated: Mapping[str, int | tuple[int, int] | None],
) -> None:
    """Raises ValueError if sizes that a config states are not the arrays', or beyond this package.

    Args:
        shapes: What `layer_shapes` returns.
        path: The file of the arrays.
        stated: Fields of `ViTConfig` by name; None where the config leaves one open.
    """
    width = stated.get("width")
    if isinstance(width, int) and width >= _TOO_WIDE:
        raise ValueError(
            f"A model must have a width below {_TOO_WIDE}: the 7B of DINOv3 needs 27 GB for its "
            f"weights alone. Received: width={width} next to {path}"
        )
    shown = sizes_of_shapes(shapes)
    for name, value in stated.items():
        if value is not None and shown.get(name, value) != value:
            raise ValueError(
                f"The config of weights must match their arrays. Received: {name}={value} in the "
                f"config, {shown[name]} in the arrays of {path}"
            )


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
        return found(f"no {DESCRIPTION}")
    notes: tuple[str, ...] = ()
    described = Description.stored(texts, folder)
    count = len(described.labels.names or ())
    if count != (classes or 0):  # Files of another model.
        described = Description(preprocessing=described.preprocessing)
        notes = (other_count(CLASSES, count, classes),) if count and classes else ()
    origins = {**found(DESCRIPTION).origins, **described.origins}
    return dataclasses.replace(described, origins=origins, notes=(*described.notes, *notes))


def read_class_names(
    labels: Mapping[str, str] | Sequence[str] | None, classes: int | None
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Returns the class names in a `config.json`, or None, and a sentence for what was changed.

    Args:
        labels: Names by number, a list or `id2label`.
        classes: Classes of the head, or None without a head.
    """
    if not labels or not classes:
        return None, ()
    numbered = labels if isinstance(labels, Mapping) else dict(enumerate(labels))
    by_text = {str(number): str(name) for number, name in numbered.items()}
    if by_text.keys() != set(map(str, range(classes))):
        return None, (other_count("config.json", len(labels), classes),)
    names = tuple(by_text[str(number)] for number in range(classes))
    counts = collections.Counter(names)
    unique = tuple(f"{name} ({n})" if counts[name] > 1 else name for n, name in enumerate(names))
    if len(set(unique)) < classes:
        return None, (f"classes of config.json have the same name; {NAMES_LEFT_OUT}",)
    changed = sorted(set(unique) - set(names), key=unique.index)
    if not changed:
        return names, ()
    some = ", ".join(changed[:6])
    return unique, (f"classes of the same name got their numbers ({len(changed)}): {some}",)


def other_count(file: str, count: int, classes: int | None) -> str:
    """Returns the note about class names that are of another head."""
    return f"class names in {file}: {count}, outputs of the head: {classes}; {NAMES_LEFT_OUT}"


NAMES_LEFT_OUT = "the names were left out"


def check_expressible(config: ViTConfig, counterpart: str, fields: Mapping[str, bool]) -> None:
    """Raises ValueError unless a code base has a model that computes what a config does.

    Args:
        config: The config.
        counterpart: What a model there must be, for the message.
        fields: By name of a field, whether the code base can have its value.
    """
    others = [
        f"{name}={getattr(config, name)!r}" for name, is_there in fields.items() if not is_there
    ]
    if others:
        raise ValueError(f"{counterpart}. Received: {', '.join(others)}")
