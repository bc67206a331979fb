"""The paper's self-supervised pre-training by masked patch prediction, section 4.6 and B.1.2."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, cast

import keras
import numpy as np
from keras import ops

from keras_vit import configs
from keras_vit.classifier_folder import write_history, write_model
from keras_vit.configs.recognition import config_of
from keras_vit.description import set_description
from keras_vit.description.run_record import RunRecord
from keras_vit.layers import PatchCorruption
from keras_vit.model_weights import Weights
from keras_vit.models.build import build
from keras_vit.models.rebuild import inference_model
from keras_vit.training.data.augmentations import MIXUP, mixes_batches
from keras_vit.training.settings import (
    OBJECTIVE,
    TARGETS as PATCH_TARGETS,
    MaskedPatches,
    ResolvedSettings,
    Settings,
)
from keras_vit.training.trainer.trainer import Trainer

from .card import masked_patch_card
from .loop import make_trainer
from .objective import Finished, Objective
from .plan import Plan
from .start_weights import config_to_train

COLORS = 512  # Three bits for each of red, green and blue.
CELLS = 4  # Per side of a downsized patch.


def cut_patches(images: keras.KerasTensor, patch_sizes: tuple[int, int]) -> keras.KerasTensor:
    """Returns the pixels of each patch, in the order of the tokens.

    Args:
        images: `(B, H, W, 3)`. Incomplete patches at the right and bottom are cut off, as in
            the patch embedding.
        patch_sizes: Pixels (height, width) of a patch.

    Returns:
        A tensor `(B, N, height, width, 3)`.
    """
    height, width = patch_sizes
    down, across = images.shape[1] // height, images.shape[2] // width
    images = images[:, : down * height, : across * width]
    patches = ops.reshape(images, (-1, down, height, across, width, 3))
    patches = ops.transpose(patches, (0, 1, 3, 2, 4, 5))
    return ops.reshape(patches, (-1, down * across, height, width, 3))


def colour_classes(pixels: keras.KerasTensor) -> keras.KerasTensor:
    """Returns 3-bit colours: the upper three bits of each channel.

    The class is `64 r + 8 g + b`, each of r, g and b in 0 .. 7.

    Args:
        pixels: `(..., 3)` in [-1, 1], for the bytes 0 to 255.

    Returns:
        int32 `(...)` in 0 .. 511.
    """
    # A thousandth of a byte, so that scaling to [-1, 1] and back never rounds down.
    bits = ops.floor(((pixels + 1) * 127.5 + 1e-3) / 32)
    bits = ops.clip(ops.cast(bits, "int32"), 0, 7)
    return bits[..., 0] * 64 + bits[..., 1] * 8 + bits[..., 2]


def mean_color(patches: keras.KerasTensor) -> keras.KerasTensor:
    """Returns the colour of the mean of each patch, int32 `(B, N, 1)`."""
    return colour_classes(ops.mean(patches, axis=(2, 3)))[..., None]


def downsized(patches: keras.KerasTensor) -> keras.KerasTensor:
    """Returns the colours of 4x4 cells of each patch, int32 `(B, N, 16)`.

    A cell is the mean of its area. If 4 does not divide the patch size, cells share pixels.
    """
    height, width = patches.shape[2:4]
    # Not a matrix product, which some GPUs compute with 10 bits.
    rows = ops.sum(_areas(height)[:, :, None, None] * patches[:, :, None], axis=3)
    cells = ops.sum(_areas(width)[:, :, None] * rows[:, :, :, None], axis=4)  # (B, N, 4, 4, 3)
    return ops.reshape(colour_classes(cells), (-1, patches.shape[1], CELLS * CELLS))


def whole_patch(patches: keras.KerasTensor) -> keras.KerasTensor:
    """Returns every value of each patch, `(B, N, 3 * height * width)`."""
    return ops.reshape(patches, (-1, patches.shape[1], int(np.prod(patches.shape[2:]))))


def _areas(size):
    """Returns the share of each pixel in each cell, `(4, size)`; rows sum to 1."""
    edges = np.arange(CELLS + 1)[:, None] * size / CELLS
    pixels = np.arange(size)
    covered = np.minimum(edges[1:], pixels + 1) - np.maximum(edges[:-1], pixels)
    return (np.clip(covered, 0, 1) * CELLS / size).astype("float32")


def has_mean_color(y_true: keras.KerasTensor, y_pred: keras.KerasTensor) -> keras.KerasTensor:
    """Returns 1 for each predicted patch whose mean has the correct 3-bit colour, else 0.

    It makes a regression on pixels comparable to predictions of colours.
    """

    def mean_of(values):
        pixels = ops.reshape(values, (-1, values.shape[1], values.shape[2] // 3, 3))
        return colour_classes(ops.mean(pixels, axis=2))

    return ops.cast(ops.equal(mean_of(y_true), mean_of(y_pred)), "float32")


MEAN_COLOR, DOWNSIZED, PATCH = PATCH_TARGETS  # The paper's three, in its order.
# The targets of pixels `(B, N, height, width, 3)` in [-1, 1], and the shape of one patch's
# prediction from the patch sizes.
TARGETS: dict[str, tuple[Callable, Callable]] = {
    MEAN_COLOR: (mean_color, lambda sizes: (1, COLORS)),
    DOWNSIZED: (downsized, lambda sizes: (CELLS * CELLS, COLORS)),
    PATCH: (whole_patch, lambda sizes: (3 * sizes[0] * sizes[1],)),
}


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskedPatchTrainer(Trainer):
    """Trains a model of `masked_patch_model`; the targets are made from the images.

    Args:
        model: A model from images to "predictions" and "places".
        target: A name of `TARGETS`.
        patch_size: Pixels (height, width) of a patch.
        **kwargs: See `Trainer`.
    """

    def __init__(self, model, *, target="mean-color", patch_size, **kwargs):
        super().__init__(model, **kwargs)
        self.target = target
        self.patch_size = tuple(patch_size)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        targets = self._targets(x, y_pred)
        return super().compute_loss(x, targets, y_pred["predictions"], sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return super().compute_metrics(
            x, self._targets(x, y_pred), y_pred["predictions"], sample_weight
        )

    def _targets(self, images, y_pred):
        """The targets of the corrupted patches."""
        targets = TARGETS[self.target][0](cut_patches(images, self.patch_size))
        return ops.take_along_axis(targets, y_pred["places"][..., None], axis=1)

    def get_config(self):
        return {**super().get_config(), "target": self.target, "patch_size": self.patch_size}


def masked_patch_model(
    config: configs.ViTConfig,
    *,
    image_size: tuple[int, int],
    target: str = "mean-color",
    corruption: float = 0.5,
) -> keras.Model:
    """Returns a model that predicts the targets of corrupted patches.

    Args:
        config: The architecture, a Vision Transformer or an Axial-ViT without a ResNet.
        image_size: Pixels (height, width).
        target: A name of `TARGETS`.
        corruption: Share of corrupted patches.

    Returns:
        A `keras.Model` from images `(B, H, W, 3)` in [-1, 1] to a dictionary: "predictions"
        of the corrupted patches, `(B, n, T, 512)` logits of colours or `(B, n, 3 P P)` pixels,
        and "places", their numbers, int32 `(B, n)`.

    """
    body = build(config, input_shape=(*image_size, 3), include_top=False)
    corruption_layer = PatchCorruption(corruption, name="corruption")
    places: Any = None  # Set by `call`.

    def call(layer, *args, **kwargs):
        nonlocal places
        outputs = layer(*args, **kwargs)
        if layer.name == "patch_tokens":  # (B, N, D), before positions and learned tokens.
            outputs, places = corruption_layer(outputs)
        return outputs

    corrupted = keras.models.clone_model(
        keras.Model(body.input, body.get_layer("encoder_norm").output), call_function=call
    )
    tokens = corrupted.output[:, config.num_prefix_tokens :]
    tokens = ops.take_along_axis(tokens, places[..., None], axis=1)  # (B, n, D)
    shape = TARGETS[target][1](config.patch_sizes)
    predictions = keras.layers.Dense(
        int(np.prod(shape)), kernel_initializer="zeros", dtype="float32", name="patch_predictions"
    )(tokens)
    predictions = keras.layers.Reshape(
        (places.shape[1], *shape), dtype="float32", name="predictions_by_patch"
    )(predictions)
    outputs = {"predictions": predictions, "places": places}
    return keras.Model(corrupted.input, outputs, name="masked_patches")


def make_masked_patch_trainer(
    model: keras.Model, settings: ResolvedSettings, target: str
) -> MaskedPatchTrainer:
    """Returns a compiled trainer with the paper's objective.

    Args:
        model: A model of `masked_patch_model`.
        settings: The settings of the run.
        target: A name of `TARGETS`.
    """
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metric = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    if target == PATCH:
        loss = keras.losses.MeanSquaredError()
        metric = keras.metrics.MeanMetricWrapper(has_mean_color, name="accuracy")
    return make_trainer(
        model,
        settings,
        functools.partial(
            MaskedPatchTrainer,
            target=target,
            patch_size=model.get_layer("patch_embedding").kernel_size,
        ),
        loss=loss,
        metric=metric,
    )


def check_masked_patches(config: configs.ModelConfig | None, settings: MaskedPatches) -> None:
    """Raises ValueError unless an architecture and the settings fit masked patches."""
    if mixes_batches(settings.augmentation or "none", settings.mixup, settings.layers):
        raise ValueError(
            "Masked patches need images without mixup: mixup=0, or an augmentation other than "
            f"{', '.join(MIXUP)}, and no layer that mixes images. Received: "
            f"augmentation={settings.augmentation!r}, mixup={settings.mixup}, "
            f"layers={settings.layers}"
        )
    if (
        not isinstance(config, configs.ViTConfig)
        or config.resnet
        or config.classifier == "map"
        or config.final_norm != "tokens"
    ):
        raise ValueError(
            "Masked patches need a Vision Transformer or Axial-ViT without a ResNet, without a "
            f'head that pools by attention and with final_norm="tokens". Received: {config}'
        )
    if settings.target == DOWNSIZED and min(config.patch_sizes) < CELLS:
        raise ValueError(
            f'target="downsized" needs patches of at least {CELLS}x{CELLS} pixels. '
            f"Received: patch_size={config.patch_size}"
        )


class HiddenPatches(Objective):
    """What hidden patches of images show; paper, section 4.6."""

    settings: MaskedPatches

    @property
    def reading(self) -> dict[str, bool | int]:
        return {"labelled": False}

    def weights(self, given: Settings) -> Weights:
        weights = super().weights(given)
        check_masked_patches(weights.description.config, self.settings)
        return weights

    def build(self, plan: Plan) -> tuple[keras.Model, str]:
        model = masked_patch_model(
            cast(
                configs.ViTConfig, config_to_train(plan.config, plan.settings)
            ),  # `check_masked_patches`.
            image_size=plan.settings.image_size,
            target=self.settings.target,
            corruption=self.settings.corruption,
        )
        return model, "random"

    def trainer(self, model: keras.Model, plan: Plan) -> Trainer:
        return make_masked_patch_trainer(model, plan.settings, self.settings.target)

    def finish(self, run, plan, model, history, contents):
        folder = run.folder
        record = run.finished_record(plan, RunRecord(objective=OBJECTIVE))
        name = configs.layer_name(plan.description.name)
        plain = inference_model(model, include_top=False, name=name)
        described = dataclasses.replace(plan.description, config=config_of(plain))
        card = masked_patch_card(record, history)
        set_description(plain, described)
        write_model(folder.path, plain, described, record.to_json())
        write_history(folder.path, history, card)
        run.publish(plan.source)
        if folder.writes:
            command = f"keras-vit finetune --weights {folder.output}"
            run.options.log(f"written {folder.output}; give it classes with {command}")
        return Finished(folder.output, history, plain)
