"""Official weights: `weights=` of the models, and the download into Keras's cache."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import pathlib
import tempfile
import warnings

import keras

from keras_vit import configs
from keras_vit.checkpoints import catalogue
from keras_vit.checkpoints.catalogue import RELEASED_NAMES, OfficialWeights, find_released
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.fetching import fetch
from keras_vit.checkpoints.formats import check_npz
from keras_vit.checkpoints.layouts import KERAS
from keras_vit.checkpoints.load import LoadReport, load_opened
from keras_vit.checkpoints.match import LoadOptions, weights_by_path
from keras_vit.checkpoints.metadata import origin_of_numerics, origin_of_positions, read_metadata
from keras_vit.checkpoints.resize import Grid, find_grid
from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.description import Description, held_description, set_description
from keras_vit.files import MODEL, atomic_write, remove_leftovers, write_text
from keras_vit.preprocessing import describe_range
from keras_vit.recognition import layer_shapes, num_classes

TIMEOUT = 60  # Seconds without a byte from the server.
FOLDER = "models"  # Below `$KERAS_HOME` or ~/.keras, as for all Keras applications.
_MAX_PAUSE = 24 * 60 * 60  # Seconds; downloads that paused for longer have ended.
_NOTED = ".sha256"  # The hash of a file that was read as a whole.
_ASIDE = ".damaged"

_SUFFIXES = (".npz", ".h5", ".safetensors", ".bin", ".pth", ".pt")
_FIRST_LAYERS = ("root_conv", "patch_embedding")


def load_pretrained(
    model: keras.Model,
    name_or_config: str | ViTConfig | BiTConfig,
    weights: str | os.PathLike,
    *,
    include_top: bool = True,
    position_resize: str | None = None,
) -> LoadReport:
    """Loads official weights or a file into a model that was just built.

    Unlike `load_checkpoint` this allows the changes of a transfer. If the file's head has other
    classes, the model's head is not changed: it is zero. The hidden layer of pre-training is
    left out with the head if the model has none (paper, section 3.2: the whole prediction head
    is removed). Both are left out for a model without the head. Position embeddings are
    resized to the model's grid. All else is strict. The report lists what was left out; it is
    also logged by the logger "keras_vit".

    Args:
        model: A model of `keras_vit.build`.
        name_or_config: The name or config that it was built from.
        weights: "imagenet", "imagenet21k", a key of `list_weights()`, a path, or "cifar10"
            (for R14+ViT-Micro/16 and ViT-Mini/4; comes with the package).
        include_top: Whether the model has the head.
        position_resize: A key of `keras_vit.position_resize.RULES`; by default the rule of the
            weights' code base.

    Returns:
        A `LoadReport`.

    Raises:
        ValueError: If there are no such weights for the model, or they do not fit.
        OSError: If the file cannot be read or downloaded.
    """
    paths = weights_by_path(model)
    path = _path(name_or_config, weights)
    first = next((name for name in _FIRST_LAYERS if f"{name}/kernel" in paths), None)
    if path is None:
        images = model.get_layer(first).input.shape[1:]
        row = catalogue.find(_name(name_or_config, weights), os.fspath(weights), images[:2])
        _check_channels(row.key, 3, images[2])
        path = download(row)
    checkpoint = open_checkpoint(path)
    kernel = checkpoint.shapes.get(first or "")
    if kernel and len(kernel) == 4:
        _check_channels(path, kernel[2], paths[f"{first}/kernel"].shape[2])
    shapes = layer_shapes({path: tuple(variable.shape) for path, variable in paths.items()})
    skip = _skipped_heads(checkpoint.shapes, shapes, include_top, weights == "imagenet")
    report = load_opened(checkpoint, model, LoadOptions(skip, position_resize))
    logging.getLogger("keras_vit").info("%s", report)
    _describe(model, checkpoint, report, position_resize)
    return report


def grid_of_weights(
    name_or_config: str | ViTConfig | BiTConfig, weights: str | os.PathLike
) -> Grid | None:
    """Returns the grid of positions that a model of free image size is built for.

    Other code bases resize the table of the file once, to the grid of the image. None for weights
    of the official rule, whose models have the grid of their default image size.

    Args:
        name_or_config: As for `load_pretrained`.
        weights: As for `load_pretrained`.
    """
    path = _path(name_or_config, weights)
    checkpoint = None if path is None else open_checkpoint(path)
    if checkpoint is None or checkpoint.position_rule() == ViTConfig.position_resize:
        return None
    table = checkpoint.shapes.get("position_embedding")
    if table is None or len(table) != 3:
        return None
    known = checkpoint.facts.get("position_grid")
    return find_grid(table[1], checkpoint.prefix_row_counts, known)[1]


def _describe(model, checkpoint, report, position_resize):
    """Makes a model hold what is known of the images and classes of its new weights.

    Warns of weights whose images are not in [-1, 1], as `preprocess_input` gives them.
    """
    held = held_description(model)
    side = configs.DEFAULT_IMAGE_SIZE
    try:
        found = read_metadata(checkpoint, held.image_size or (side, side), held.classes)
    except ValueError as error:  # Weights are right also where images are prepared otherwise.
        found = Description(origins={"pixels": str(error)})
    if found.preprocessing is not None and held.image_size is not None:
        resized = found.preprocessing.with_image_size(held.image_size)
        found = dataclasses.replace(found, preprocessing=resized)
    numerics = dict.fromkeys(("gelu", "norm_epsilon"), origin_of_numerics(checkpoint))
    positions = "given" if position_resize else origin_of_positions(checkpoint)
    has_head = held.classes and not any(path.startswith("predictions/") for path in report.kept)
    if held.channels not in (None, 3):
        found = dataclasses.replace(found, preprocessing=None)
    set_description(
        model,
        dataclasses.replace(
            held,
            preprocessing=found.preprocessing,
            labels=found.labels if has_head else held.labels,
            origins={**numerics, "position_resize": positions, **found.origins},
            notes=found.notes,
        ),
    )
    preprocessing, origin = found.preprocessing, found.origins["pixels"]
    if preprocessing is None:
        if checkpoint.layout is KERAS:  # Weights that were saved by hand, without a folder.
            return
        text = f"does not state the range of its pixels ({origin})"
    elif preprocessing.value_range == (-1.0, 1.0):
        return
    else:
        text = f"needs pixels of {describe_range(preprocessing.value_range)} ({origin})"
    warnings.warn(
        f"{checkpoint.path} {text}. keras_vit.preprocess_input(x) gives -1 to 1; with "
        'mode="torch" it gives ImageNet\'s mean and standard deviation.',
        stacklevel=4,
    )


def _path(name_or_config, weights):
    """The file that `weights` names, in the package or any other; None for an official one."""
    if not isinstance(weights, (str, os.PathLike)):
        raise ValueError(
            "weights must be None, a path, or a name of keras_vit.list_weights(). "
            f"Received: weights={weights!r}"
        )
    if isinstance(weights, str):
        if find_released(weights, name_or_config):
            return catalogue.classifier_folder(weights, name_or_config) / MODEL
        if others := find_released(weights):
            models = " or ".join(row.model for row in others)
            raise ValueError(f"weights={weights!r} are of {models}. Received: {name_or_config}")
        is_path = weights.endswith(_SUFFIXES) or os.path.exists(weights)
        if catalogue.is_official(weights) or not is_path:
            return None
    return pathlib.Path(weights)


def _name(name_or_config, weights):
    for name, config in configs.MODELS.items():
        if name_or_config in (name, config):
            return name
    raise ValueError(
        "Official weights are for the models of keras_vit.list_models(); another config "
        f"needs a path. Received: weights={weights!r} for {name_or_config}"
    )


def _check_channels(weights, channels, images):
    if channels != images:
        raise ValueError(
            f"The weights {weights} are for images with {channels} channels; build with "
            'weights=None, then keras_vit.load_checkpoint(model, path, input_channels="adapt") '
            f"adapts the first kernel of a file. Received: images with {images}"
        )


def _skipped_heads(in_file, in_model, include_top, keep_head):
    """Patterns of the layers behind the encoder that are not loaded.

    Args:
        in_file: Layer shapes of the file.
        in_model: Layer shapes of the model.
        include_top: Whether the model has a head.
        keep_head: Whether a head of other classes is an error.
    """
    heads = tuple(f"{name}/*" for name in configs.CLASSIFIER_LAYERS)
    if not include_top:
        has_pooling = any(layer.startswith("map_head") for layer in in_model)
        return (*heads, "pre_logits/*", *(() if has_pooling else ("map_head/*",)))
    if "pre_logits" in in_file and "pre_logits" not in in_model:
        return (*heads, "pre_logits/*")
    return () if keep_head or num_classes(in_file) == num_classes(in_model) else heads


def download(weights: OfficialWeights) -> pathlib.Path:
    """Returns the path of an official file, downloaded if the cache has no whole copy.

    The file is downloaded to a temporary name, into the folder of `keras.utils.get_file`. It gets
    its own name when all of it has been read and compared with the hashes that are known: the
    catalogue's and the server's. Its SHA-256 is then kept beside it and compared at every use; a
    copy that has changed, or cannot be read, is moved aside and downloaded once more. An
    interrupted download starts again from the beginning.

    Args:
        weights: A row of the catalogue.

    Raises:
        OSError: If the file cannot be downloaded; the message names the URL and the path for
            a file that was fetched by other means.
    """
    final = _place(f"{weights.key}.npz")
    noted = final.with_name(f"{final.name}{_NOTED}")
    if final.exists():
        try:
            known = noted.read_text(encoding="utf-8").strip() if noted.exists() else ""
            _note(noted, known, _check(final, weights, known))
            return final
        except ValueError as error:
            aside = final.with_name(f"{final.name}{_ASIDE}")
            os.replace(final, aside)
            print(f"{final} is damaged and will be downloaded again: {error} It is now {aside}.")
    try:
        remove_leftovers(final.parent, _MAX_PAUSE)
        with atomic_write(final) as partial:
            fetch(weights.url, partial, TIMEOUT)
            _note(noted, "", _check(partial, weights))
    except Exception as error:
        raise OSError(
            f"The weights {weights.key} could not be downloaded: fetch {weights.url} by other "
            f"means and put it at {final}. (In the package: {', '.join(RELEASED_NAMES)}.) "
            f"Received: {' '.join(str(error).split())}"
        ) from None  # All of it is in the message.
    return final


def _check(path, weights, known=""):
    """The SHA-256 of a file that is whole.

    Args:
        path: The file.
        weights: Its row of the catalogue.
        known: The hash of the same file when it was read as a whole, or "".

    Raises:
        ValueError: If it is damaged.
    """
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    for expected in (weights.sha256, known):
        if expected and digest != expected:
            raise ValueError(
                f"The SHA-256 of {weights.key} must be {expected}. Received: {digest}."
            )
    if not known:
        check_npz(path)
    return digest


def _note(path, known, digest):
    """Keeps the hash of a file, where the cache may be written."""
    if digest != known:
        with contextlib.suppress(OSError):
            write_text(path, f"{digest}\n")


def _place(name):
    """The path of a file in the cache of `keras.utils.get_file`."""
    home = os.environ.get("KERAS_HOME") or os.path.join("~", ".keras")
    folders = [
        pathlib.Path(base).expanduser() / FOLDER
        for base in (home, pathlib.Path(tempfile.gettempdir()) / ".keras")
    ]
    for folder in folders:
        with contextlib.suppress(OSError):
            if (folder / name).exists():
                return folder / name
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder / name
    return folders[0] / name
