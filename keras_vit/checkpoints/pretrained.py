"""What `weights=` of the models does."""

from __future__ import annotations

import logging
import os
import pathlib

from keras_vit import configs
from keras_vit.checkpoints import catalogue
from keras_vit.checkpoints.download import download
from keras_vit.checkpoints.load import LoadReport, load_source
from keras_vit.checkpoints.source import Source, open_source
from keras_vit.checkpoints.variables import weights_by_path
from keras_vit.released import MODEL, RELEASED

_SUFFIXES = (".npz", ".h5", ".safetensors", ".bin", ".pth", ".pt")
_FIRST = ("root_conv", "patch_embedding")
_HEADS = ("predictions", "class_token_head", "distillation_token_head")
_REPRESENTATIONS = ("pre_logits", "map_head")


def load_pretrained(model, name_or_config, weights, *, include_top: bool = True) -> LoadReport:
    """Loads official weights or a file into a model that was just built.

    Unlike `load_checkpoint` this makes room for what a transfer changes. Where the file's head
    has other classes, the model's stays as it is: zero. With the head goes the hidden layer of
    pre-training if the model has none (paper, section 3.2: the whole prediction head is
    removed). A model without the head takes neither. Position embeddings are resized to the
    model's grid. All else is strict; what was left out is in the report, which also goes to
    the log "keras_vit".

    Args:
        model: A model of `keras_vit.build`.
        name_or_config: What it was built of.
        weights: "imagenet", "imagenet21k", a key of `list_weights()`, a path, or "cifar10"
            (of ViT-Mini/4; comes with the package).
        include_top: Whether the model has the head.

    Returns:
        A `LoadReport`.

    Raises:
        ValueError: If there are no such weights for the model, or they do not fit.
        OSError: If the file cannot be read or downloaded.
    """
    paths = weights_by_path(model)
    path = _released(name_or_config, weights) or _path(weights)
    first = next((name for name in _FIRST if f"{name}/kernel" in paths), None)
    if path is None:
        images = model.get_layer(first).input.shape[1:]
        row = catalogue.find(_name(name_or_config, weights), weights, images[:2])
        _check_channels(row.key, 3, images[2])
        path = download(row)
    source = open_source(path, paths)
    kernel = source.shapes.get(f"{first}/kernel")
    if kernel and len(kernel) == 4:
        _check_channels(path, kernel[2], paths[f"{first}/kernel"].shape[2])
    skip = _heads(source, paths, include_top, keep_all=weights == "imagenet")
    report = load_source(source, model, skip)
    logging.getLogger("keras_vit").info("%s", report)
    return report


def _released(name_or_config, weights):
    """The file that comes with the package, or None if `weights` is no name of one."""
    released = RELEASED.get(weights) if isinstance(weights, str) else None
    if released is None:
        return None
    if name_or_config not in (released.model, configs.MODELS[released.model]):
        raise ValueError(f"weights={weights!r} are of {released.model}. Received: {name_or_config}")
    return released.folder / MODEL


def _path(weights):
    """The path that `weights` is, or None if it is a name."""
    if not isinstance(weights, (str, os.PathLike)):
        raise ValueError(
            "weights must be None, a path, or a name of keras_vit.list_weights(). "
            f"Received: weights={weights!r}"
        )
    if isinstance(weights, str):
        if weights in catalogue.NAMES or weights in catalogue.list_weights():
            return None
        if not weights.endswith(_SUFFIXES) and not os.path.exists(weights):
            return None
    return pathlib.Path(weights)


def _name(name_or_config, weights):
    for name, config in configs.MODELS.items():
        if name_or_config in (name, config):
            return name
    raise ValueError(
        "Official weights are for the models of keras_vit.list_models(); a config of one's own "
        f"takes a path. Received: weights={weights!r} for {name_or_config}"
    )


def _check_channels(weights, channels, images):
    if channels != images:
        raise ValueError(
            f"The weights {weights} are for images with {channels} channels; build with "
            'weights=None, then keras_vit.load_checkpoint(model, path, input_channels="adapt") '
            f"adapts the first kernel of a file. Received: images with {images}"
        )


def _heads(source: Source, paths, include_top, keep_all):
    """Patterns of the layers behind the encoder that stay in the file."""
    in_file = {path.partition("/")[0] for path in source.shapes}
    in_model = {path.partition("/")[0] for path in paths}
    heads = tuple(f"{name}/*" for name in _HEADS)
    if not include_top:
        return (*heads, *(f"{name}/*" for name in _REPRESENTATIONS))
    if "pre_logits" in in_file - in_model:
        return (*heads, "pre_logits/*")
    if not keep_all and _classes(source.shapes) != _classes(
        {path: tuple(variable.shape) for path, variable in paths.items()}
    ):
        return heads
    return ()


def _classes(shapes):
    kernels = (shapes.get(f"{name}/kernel") for name in _HEADS)
    return next((kernel[-1] for kernel in kernels if kernel), None)
