"""Transfer to another task (paper, section 3.2): pre-trained models, linear probes and LoRA."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import keras

from keras_vit import configs
from keras_vit.checkpoints import catalogue
from keras_vit.checkpoints.catalogue import classifier_folder
from keras_vit.checkpoints.checkpoint import open_checkpoint
from keras_vit.checkpoints.load import LoadReport, load_checkpoint
from keras_vit.checkpoints.official_weights import download
from keras_vit.classifier import CLASSES, MODEL, load_classifier, read_model
from keras_vit.layers import SelfAttention
from keras_vit.models.build import build
from keras_vit.models.rebuild import copy_weights
from keras_vit.recognition import config_of

DEFAULT_MODEL = "ViT-B/16"

# The pre-training head is not loaded.
HEAD = tuple(f"{name}/*" for name in configs.HEAD_LAYERS)
HEAD_PATH = re.compile(rf"(?:^|/)(?:{'|'.join(configs.HEAD_LAYERS)})/")


@dataclasses.dataclass(frozen=True)
class Body:
    """An architecture and the place of its weights, if any: one of the last three arguments.

    Args:
        name: The model's name, to print.
        config: Its config, without a hidden layer in the head.
        official: A row of the catalogue, or None.
        path: A checkpoint file, or None.
        model: A Keras model, or None.
    """

    name: str
    config: configs.ViTConfig
    official: catalogue.OfficialWeights | None = None
    path: pathlib.Path | None = None
    model: keras.Model | None = None


def find_body(
    model: str | configs.ViTConfig | None,
    weights: str | None,
    image_size: tuple[int | None, int | None] = (None, None),
) -> Body:
    """Returns a model's config and weights, without downloading or building it.

    Args:
        model: A name, a config, or None for the model of the weights, or ViT-B/16 without.
        weights: A name of `weights=`, a file, a classifier's folder, or None.
        image_size: Pixels (height, width), by which an official file is chosen.

    Raises:
        ValueError: If the model or the weights are unknown, or do not fit each other.
    """
    is_given = model is not None
    keys = {row.key: row.model for row in catalogue.rows()}
    if model is None:
        model = DEFAULT_MODEL if weights is None else keys.get(weights, DEFAULT_MODEL)
    if weights is None:
        return _body(model)
    if weights in keys or weights in catalogue.NAMES:
        if not isinstance(model, str):
            raise ValueError(
                "Official weights are for the models of keras_vit.list_models(); any other "
                f"config needs a path. Received: weights={weights!r} for {model}"
            )
        configs.resolve(model)
        return _body(model, official=catalogue.find(model, weights, image_size))
    path = classifier_folder(weights)
    if not path.exists():
        raise ValueError(
            "Weights must be imagenet21k, another name of keras_vit.list_weights(), a file or a "
            f"classifier's folder. Received: {weights}"
        )
    if path.is_dir() and (path / CLASSES).exists():
        source = load_classifier(path).model
    elif path.is_dir() and (path / MODEL).exists():  # Pre-trained without classes.
        source = read_model(path / MODEL)
    elif path.suffix == ".keras":
        source = read_model(path)
    else:
        open_checkpoint(path)  # Fails early if the file is damaged.
        return _body(model, path=path)
    config = _without_hidden_layer(config_of(source))
    if is_given and configs.for_inference(
        _without_hidden_layer(configs.resolve(model))
    ) != configs.for_inference(config):
        raise ValueError(
            "The weights must be of the given model; without a model, the weights' own is used. "
            f"Received: model={model}, weights={weights}, a model of {config}"
        )
    names = {_without_hidden_layer(configs.resolve(name)): name for name in configs.list_models()}
    return Body(names.get(configs.for_inference(config), source.name), config, model=source)


def build_model(
    body: Body, *, classes: int, image_size: tuple[int, int], **changes: Any
) -> tuple[keras.Model, LoadReport | None]:
    """Returns a model that gives logits, with a new head of zeros and another resolution.

    Args:
        body: The result of `find_body`.
        classes: Classes of the new head.
        image_size: Pixels (height, width); position embeddings are interpolated.
        **changes: New values of fields of the config.

    Returns:
        The `keras.Model`, and the `LoadReport` of its weights, or None if they are random.

    Raises:
        ValueError: If the weights do not fit, or the image is smaller than a patch.
        OSError: If a file cannot be downloaded.
    """
    fields = {field.name for field in dataclasses.fields(body.config)}
    # A ResNet's config has no dropout: 0 changes nothing, other rates raise an error.
    changes = {name: value for name, value in changes.items() if value or name in fields}
    model = build(
        configs.resolve(body.config, **changes),
        input_shape=(*image_size, 3),
        classes=classes,
        classifier_activation=None,
        name=configs.layer_name(body.name),
    )
    if body.official is not None:
        return model, load_checkpoint(model, download(body.official), skip=HEAD)
    if body.path is not None:
        return model, load_checkpoint(model, body.path, skip=HEAD)
    if body.model is not None:
        return model, copy_weights(body.model, model, skip=HEAD)
    return model, None


@contextlib.contextmanager
def dtype_policy(name: str) -> Iterator[None]:
    """Sets Keras's dtype policy inside a `with` block.

    Args:
        name: "float32", "mixed_bfloat16" or "mixed_float16".
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _body(model, **place):
    name = model if isinstance(model, str) else "ViT"
    return Body(name, _without_hidden_layer(configs.resolve(model)), **place)


def _without_hidden_layer(config):
    fields = {field.name for field in dataclasses.fields(config)}
    changes = {"representation_size": None, "head_bias": 0.0}
    return dataclasses.replace(config, **{k: v for k, v in changes.items() if k in fields})


def choose_trained(
    model: keras.Model, part: str = "all", *, lora_rank: int = 8, lora_alpha: float | None = None
) -> None:
    """Sets the trainable weights of a model; call it before the trainer is made.

    "head" trains the head alone, a linear probe. "lora" (arXiv 2106.09685) trains the head
    and a product of two small arrays that is added to the kernels of query and value,
    `(D, k, D_h)`, as in `keras.layers.EinsumDense.enable_lora`:

        W + alpha / rank * A B,    A: (D, k, rank), B: (rank, D_h)

    B starts at zero, so that the outputs do not change before training. Saving adds the
    product to the kernel: the loaded model is a plain model.

    Args:
        model: A model of `keras_vit.build` with a head.
        part: "all", "head" or "lora".
        lora_rank: Columns of A for each head; less than D_h.
        lora_alpha: Scale of the product, alpha; None for the rank.

    Raises:
        ValueError: If the model has no self-attention, or the rank is not smaller than D_h.
    """
    if part == "all":
        return
    for weight in model.trainable_variables:
        weight.trainable = bool(HEAD_PATH.search(weight.path))
    if part == "lora":
        projections = _query_and_value(model)
        if not projections:
            raise ValueError(
                "LoRA needs the self-attention of a Vision Transformer. "
                f"Received: {model.name}, without any"
            )
        for projection in projections:
            head_dim = projection.kernel.shape[-1]
            if lora_rank >= head_dim:
                raise ValueError(
                    "The rank of LoRA must be less than the units of a head. "
                    f"Received: lora_rank={lora_rank}, {head_dim} units"
                )
            projection.enable_lora(lora_rank, lora_alpha=lora_alpha)


def _query_and_value(model):
    attentions = [getattr(layer, "attention", None) for layer in model.layers]
    return [
        projection
        for attention in attentions
        if isinstance(attention, SelfAttention)
        for projection in (attention.query, attention.value)
    ]
