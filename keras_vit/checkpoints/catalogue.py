"""Weights by name: official ones with their download, and classifiers of the package."""

from __future__ import annotations

import csv
import dataclasses
import fnmatch
import functools
import math
import os
import pathlib
import socket
from typing import Any

from keras_vit import configs
from keras_vit.checkpoints.formats import check_npz
from keras_vit.configs import ModelConfig
from keras_vit.configs.model_table import paper_name
from keras_vit.utils.files import check_holds_one_model
from keras_vit.utils.synonyms import WEIGHTS, near_names, timm_name_of

NAMES = ("imagenet", "imagenet21k")

TIMEOUT = 60.0  # Seconds without a byte from the server.


@dataclasses.dataclass(frozen=True)
class OfficialWeights:
    """A row of the catalogue: one official file.

    Args:
        key: Value of `weights=`.
        model: Name of the model.
        pretrained_on: Data set of the pre-training.
        finetuned_on: Data set of the fine-tuning, or "".
        resolution: Pixels per side of the images in the last training.
        classes: Classes of the head.
        note: Remarks of the official README.
        imagenet_top1_percent: Accuracy that the official README gives, or None.
        sha256: Hash of the file; "" where it is unknown, and then not checked.
        url: Address of the file.
    """

    key: str
    model: str
    pretrained_on: str
    finetuned_on: str
    resolution: int
    classes: int
    note: str
    imagenet_top1_percent: float | None
    sha256: str
    url: str

    @property
    def is_regression(self) -> bool:
        """Whether the head gives numbers instead of scores of classes; see `Checkpoint`."""
        return False

    @property
    def name(self) -> str:
        """The name, "imagenet" or "imagenet21k", that may select it; "" if only the key does."""
        if "SAM" in self.pretrained_on:
            return ""
        if self.finetuned_on == "imagenet2012" or self.pretrained_on == "imagenet2012":
            return "imagenet"
        return self.pretrained_on


@functools.cache
def rows() -> tuple[OfficialWeights, ...]:
    """Returns the whole catalogue, in the order of the table."""
    table = pathlib.Path(__file__).with_name("official_checkpoints.csv")
    found = []
    for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines()):
        fields: dict[str, Any] = dict(row)
        fields |= {name: int(row[name]) for name in ("resolution", "classes")}
        fields["imagenet_top1_percent"] = float(row["imagenet_top1_percent"] or 0) or None
        found.append(OfficialWeights(**fields))
    return tuple(found)


def list_models(pattern: str | None = None, pretrained: bool | None = None) -> list[str]:
    """Returns the names for `keras_vit.build`, as printed in the paper.

    Args:
        pattern: What the names look like, with * for anything, such as "ViT-B/*" or "R50+*". If
            none matches as it is written, the names are compared without regard to case, and those
            of the functions, of Keras models and of timm too: "vit*", "ViTB16", "vit_b16" and
            "vit_base_patch16*" find ViT-B/16.
        pretrained: Whether models have weights to download or in the package, or have none; None
            for all.

    Returns:
        The names, such as "ViT-B/16", "R50+ViT-L/32", "BiT-R50x1"; [] if none matches.

    Example:
    >>> list_models("ViT-S/*", pretrained=True)
    ['ViT-S/16', 'ViT-S/32']
    """
    pattern = pattern or "*"
    names = [name for name in configs.MODELS if fnmatch.fnmatchcase(name, pattern)]
    if not names:  # The case matters: ViT-b/16 and ViT-B/16 are two models.
        names = [name for name in configs.MODELS if _matches_loosely(name, pattern.lower())]
    if pretrained is None:
        return names
    return [name for name in names if bool(names_of(name)) is pretrained]


def _matches_loosely(name, pattern):
    """Whether one of a model's names matches: the paper's, Keras's, timm's; in lower case."""
    keras_name = configs.layer_name(name)
    spellings = (name.lower(), keras_name, keras_name.replace("_", ""), timm_name_of(name))
    return any(fnmatch.fnmatchcase(spelling, pattern) for spelling in spellings)


def list_weights(model: str | None = None) -> list[str]:
    """Returns the values of `weights=`: keys of official files, and weights in the package.

    Args:
        model: Name of a model, whose list begins with "imagenet" and "imagenet21k" where there are
            such weights; or None for the keys of all.

    Raises:
        ValueError: If the model is unknown.

    Example:
    >>> list_weights("ViT-B/8")
    ['imagenet', 'imagenet21k', 'vit_b8_augreg_imagenet21k_to_imagenet_224', ...]
    """
    if model is None:
        return [row.key for row in rows()] + [*RELEASED_NAMES]
    all_rows: list[OfficialWeights | ReleasedClassifier] = [*rows(), *RELEASED]
    return names_of(model) + [row.key for row in all_rows if row.model == model]


def names_of(model: str) -> list[str]:
    """Returns the names, other than keys, of the weights of a model.

    Raises:
        ValueError: If the model is unknown.
    """
    configs.resolve(model)
    all_rows: list[OfficialWeights | ReleasedClassifier] = [*rows(), *RELEASED]
    of_model = {row.name for row in all_rows if row.model == model}
    return [name for name in (*NAMES, *RELEASED_NAMES) if name in of_model]


def find(
    model: str, weights: str, image_size: tuple[int | None, int | None] = (None, None)
) -> OfficialWeights:
    """Returns the official file that `weights` selects for a model.

    "imagenet" and "imagenet21k" select the file with the resolution nearest to the image size.
    Ties go to AugReg files, then to files pre-trained on ImageNet-21k, then to those that the
    official README recommends. Files trained with SAM are selected by their key only.

    Args:
        model: Name of the model.
        weights: "imagenet", "imagenet21k" or a key.
        image_size: Pixels (height, width); None stands for 224.

    Returns:
        An `OfficialWeights`.

    Raises:
        ValueError: If there is no such file for the model; the message lists the known ones.
    """
    if not model:
        raise ValueError(
            "Official weights are for the models of keras_vit.list_models(); another config needs "
            f"a path. Received: weights={weights!r}"
        )
    candidates = [row for row in rows() if row.model == model and weights in (row.name, row.key)]
    if not candidates:
        raise ValueError(
            f"weights must be None, a path, or official ones of {model}: "
            f"{', '.join(list_weights(model)) or 'there are none'}. "
            f"Received: weights={weights!r}"
        )
    side = math.sqrt(math.prod(pixels or configs.DEFAULT_IMAGE_SIZE for pixels in image_size))
    return min(
        candidates,
        key=lambda row: (
            abs(math.log(row.resolution / side)),
            "AugReg" not in row.note,
            row.pretrained_on != "imagenet21k",
            "recommended" not in row.note,
        ),
    )


_WEIGHTS = pathlib.Path(__file__).parent.parent / "weights"


@dataclasses.dataclass(frozen=True)
class ReleasedClassifier:
    """A classifier's folder in the package.

    Args:
        key: Value of `weights=` and name of its folder.
        name: The data set of the training: another value, which classifiers share.
        model: Name of its model.
        classes: Classes of its head.
    """

    key: str
    name: str
    model: str
    classes: int

    @property
    def names(self) -> tuple[str, str]:
        """The values of `weights=` and of the commands' folders that mean it."""
        return self.name, self.key

    @property
    def folder(self) -> pathlib.Path:
        """The folder."""
        return _WEIGHTS / self.key


# For each data set, the most accurate first.
RELEASED = (
    ReleasedClassifier("r7_vit_nano8_cifar10", "cifar10", "R7+ViT-Nano/8", 10),
    ReleasedClassifier("r14_vit_micro16_cifar10", "cifar10", "R14+ViT-Micro/16", 10),
    ReleasedClassifier("vit_mini4_cifar10", "cifar10", "ViT-Mini/4", 10),
)
RELEASED_NAMES = tuple(dict.fromkeys(name for row in RELEASED for name in row.names))


def find_released(name: str | os.PathLike | None) -> list[ReleasedClassifier]:
    """Returns the classifiers in the package that a name means, the most accurate first.

    Args:
        name: Any value of `weights=`; only a name of `RELEASED_NAMES` means some.
    """
    return [row for row in RELEASED if name in row.names]


def check_is_no_weights(name: str | ModelConfig | None) -> None:
    """Raises ValueError if the name of a model is one of weights, a repository or a path."""
    is_text = isinstance(name, str) and name not in configs.MODELS
    if not is_text:
        return
    if name in _names() or str(name).startswith("hf:") or os.path.exists(str(name)):
        raise ValueError(
            f"The model must be one of keras_vit.list_models(), and {name!r} is weights: "
            f"keras_vit.build(weights={name!r}), or keras_vit.load_classifier({name!r}). "
            f"Received: {name!r} as the model"
        )


def check_unambiguous(name: str | os.PathLike | None) -> None:
    """Raises ValueError if a file or folder also has a name that means something here."""
    if os.path.exists(str(name)):
        raise ValueError(
            f"{name!r} is a name of this package, and there is a file or folder of that name: "
            f"write {os.path.join(os.curdir, str(name))} for the latter, or rename it. "
            f"Received: {name}"
        )


def released_folder(
    folder_or_name: str | os.PathLike,
    model: str | ModelConfig | None = None,
) -> pathlib.Path:
    """Returns the folder of a classifier in the package; any other path is returned.

    Args:
        folder_or_name: A path, or a name of `RELEASED_NAMES`. A `pathlib.Path` is a path.
        model: Selects among the classifiers of that name; by default the most accurate one.

    Raises:
        ValueError: If it is a name, and a file or folder of that name exists, or no classifier of
            that name is of the model.
    """
    released = find_released(folder_or_name)
    if not released:
        return pathlib.Path(folder_or_name)
    of_model = [row for row in released if model in (None, row.model, configs.MODELS[row.model])]
    if not of_model:
        models = " or ".join(row.model for row in released)
        raise ValueError(f"weights={folder_or_name!r} are of {models}. Received: {model}")
    check_unambiguous(folder_or_name)
    return of_model[0].folder


def name_of_folder(folder: str | os.PathLike | None) -> str:
    """Returns the name of a classifier in the package by its folder; any other path is returned."""
    path = pathlib.Path(folder or "").absolute()
    names = (row.key for row in RELEASED if path == row.folder.absolute())
    return next(names, os.fspath(folder or ""))


def find_weights(
    weights: str | os.PathLike,
    model: str | ModelConfig | None = None,
    image_size: tuple[int | None, int | None] = (None, None),
) -> OfficialWeights | pathlib.Path:
    """Returns what a value of `weights=` means: a row of the catalogue, or a file or folder.

    A name is a name and a path is a path; if both exist, the error shows how to write each.

    Args:
        weights: A path, or a name of the catalogue or of a classifier of the package.
        model: The name or config of the weights' model; by default the key's, or ViT-B/16.
        image_size: Pixels (height, width), by which an official file is chosen.

    Raises:
        ValueError: If there are no such weights, or none for the model.
    """
    if not isinstance(weights, (str, os.PathLike)):
        raise ValueError(
            "weights must be None, a path (classifier.save(folder) writes one), or a name of "
            f"keras_vit.list_weights(). Received: weights={weights!r}"
        )
    official = {**dict.fromkeys(NAMES, "ViT-B/16"), **{row.key: row.model for row in rows()}}
    if isinstance(weights, str) and weights in official:
        check_unambiguous(weights)
        if model is None:
            model = official[weights]
        elif not isinstance(model, str):
            model = paper_name(model)
        return find(model, weights, image_size)
    path = released_folder(weights, model)
    _check_path(path)
    check_holds_one_model(path)
    return path


def check_exists(weights: str | os.PathLike | None) -> None:
    """Raises ValueError for a text that names no model or weights, and no path; without Keras.

    Args:
        weights: Anything that is opened; what is in memory, and repositories, are not looked for.
    """
    if not isinstance(weights, (str, os.PathLike)) or ":" in os.fspath(weights):
        return
    if weights not in {"none", *configs.MODELS, *_names()}:
        _check_path(pathlib.Path(weights))


def check_is_data(data: str) -> None:
    """Raises ValueError if what was given as data is a name of weights, and no path."""
    if data in _names() and not os.path.exists(data):
        raise ValueError(
            "The data must be photos, and the weights another argument: keras-vit finetune PHOTOS "
            f"--weights {data}, keras-vit evaluate {data} PHOTOS. Received: {data} as the data"
        )


def _names():
    return {*NAMES, *RELEASED_NAMES, *(row.key for row in rows())}


def _check_path(path):
    if not path.exists():
        answer = ""
        if (synonym := WEIGHTS.get(str(path))) is not None:
            answer = f"{synonym.answer()}. "
        elif near := near_names(str(path), _names()):
            answer = f"Nearest: {', '.join(near)}. "
        raise ValueError(
            f"No such folder or file: {path}. {answer}A model is a classifier's folder, a file of "
            f"weights, an export, {', '.join(RELEASED_NAMES)}, imagenet, imagenet21k, a name of "
            "keras_vit.list_weights(), or hf:OWNER/NAME"
        )


def download(weights: OfficialWeights) -> pathlib.Path:
    """Returns the path of an official file, downloaded if the cache has no whole copy.

    It is in the folder of `keras.utils.get_file`. At every use it is read to its end with the
    checksums of its arrays, and compared with the catalogue's hash where that is known. A copy
    that is damaged, as by a download that was killed, is removed and downloaded once more.

    Args:
        weights: A row of the catalogue.

    Raises:
        OSError: If the file cannot be downloaded; the message names the URL and the cache, for a
            file that was fetched by other means.
    """
    import keras  # Not by `keras-vit models`.

    name, reason = f"{weights.key}.npz", ""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)  # `get_file` has none.
    try:
        for _ in range(2):
            path = keras.utils.get_file(
                name,
                weights.url,
                cache_subdir="models",
                file_hash=weights.sha256 or None,
                cache_dir=os.environ.get("KERAS_HOME"),
            )
            try:
                check_npz(path)
                return pathlib.Path(path)
            except ValueError as error:
                reason = str(error)
                os.unlink(path)
    except Exception as error:  # `get_file` raises bare ones.
        reason = str(error)
    finally:
        socket.setdefaulttimeout(before)
    raise OSError(
        f"The weights {weights.key} could not be downloaded: fetch {weights.url} by other means "
        f"and put it at ~/.keras/models/{name} (or below KERAS_HOME). "
        'Weights of the package need no download: weights="r14_vit_micro16_cifar10" (--weights), '
        "of R14+ViT-Micro/16. "
        f"Received: {' '.join(reason.split())}"
    )
