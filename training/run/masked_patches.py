"""The paper's self-supervised pre-training by masked patch prediction, section 4.6 and B.1.2."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit import configs
from keras_vit.layers import PatchCorruption
from keras_vit.models.build import build
from keras_vit.training.data import evaluation_batches
from keras_vit.training.data.augmentations import MIXUP, mixup_parameter
from keras_vit.training.evaluation.predictions import NonFiniteScores
from keras_vit.training.settings import MaskedPatches
from keras_vit.training.trainer.trainer import Trainer
from keras_vit.utils.fields import required

from .loop import Score
from .patch_targets import CELLS, TARGETS, cut_patches
from .plan import TrainingPlan
from .trainer_setup import make_trainer


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskedPatchTrainer(Trainer):
    """Trains a model of `masked_patch_model`; the targets are made from the images.

    Args:
        model: A model from images to "predictions" and "places".
        target: A name of `TARGETS`.
        patch_size: Pixels (height, width) of a patch.
        **kwargs: See `Trainer`.

    Example:
    >>> model = masked_patch_model(keras_vit.ViTConfig(4, 64, 6, 128, 4), image_size=(32, 32))
    >>> trainer = MaskedPatchTrainer(model, patch_size=(4, 4))
    >>> objective = trainer.objective
    >>> trainer.compile(Adam(2e-4), objective.make_loss(), [objective.make_metric()])
    """

    def __init__(self, model, *, target="mean-colour", patch_size, **kwargs):
        super().__init__(model, **kwargs)
        self.target = target
        self.patch_size = tuple(patch_size)
        self.objective = TARGETS[target]

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        targets = self._targets(x, y_pred)
        return super().compute_loss(x, targets, y_pred["predictions"], sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return super().compute_metrics(
            x, self._targets(x, y_pred), y_pred["predictions"], sample_weight
        )

    def _targets(self, images: Any, y_pred: dict[str, Any]) -> Any:
        """The targets of the corrupted patches."""
        targets = self.objective.of_patches(cut_patches(images, self.patch_size))
        return ops.take_along_axis(targets, y_pred["places"][..., None], axis=1)

    def get_config(self):
        return {**super().get_config(), "target": self.target, "patch_size": self.patch_size}


def masked_patch_model(
    config: configs.ViTConfig,
    *,
    image_size: tuple[int, int],
    target: str = "mean-colour",
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

    Raises:
        ValueError: If the architecture, the image size or the corruption does not fit.
    """
    _check_fit(config, target)
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
    shape = TARGETS[target].outputs(config.patch_sizes)
    predictions = keras.layers.Dense(
        int(np.prod(shape)), kernel_initializer="zeros", dtype="float32", name="patch_predictions"
    )(tokens)
    predictions = keras.layers.Reshape((places.shape[1], *shape), dtype="float32")(predictions)
    outputs = {"predictions": predictions, "places": places}
    return keras.Model(corrupted.input, outputs, name="masked_patches")


def make_masked_patch_trainer(model: keras.Model, settings: MaskedPatches) -> MaskedPatchTrainer:
    """Returns a compiled trainer with the paper's objective.

    Args:
        model: A model of `masked_patch_model`.
        settings: Resolved settings.
    """
    objective = TARGETS[settings.target]
    return make_trainer(
        model,
        settings,
        MaskedPatchTrainer,
        loss=objective.make_loss(),
        metric=objective.make_metric(),
        target=settings.target,
        patch_size=model.get_layer("patch_embedding").kernel_size,
    )


def check_masked_patches(config: Any, settings: MaskedPatches) -> None:
    """Raises ValueError unless an architecture and the settings fit masked patches."""
    if mixup_parameter(settings.augmentation, settings.mixup):
        raise ValueError(
            "Masked patches need images without mixup: mixup=0, or an augmentation other than "
            f"{', '.join(MIXUP)}. Received: augmentation={settings.augmentation!r}, "
            f"mixup={settings.mixup}"
        )
    _check_fit(config, settings.target)


def _check_fit(config: Any, target: str) -> None:
    has_stem = not isinstance(config, configs.ViTConfig) or config.resnet
    if has_stem or config.classifier == "map" or config.final_norm != "tokens":
        raise ValueError(
            "Masked patches need a Vision Transformer or Axial-ViT without a ResNet, which would "
            "mix patches, without a head that pools by attention, which would stay untrained, and "
            'with final_norm="tokens". '
            f"Received: {config}"
        )
    if target == "downsized" and min(config.patch_sizes) < CELLS:
        raise ValueError(
            f'target="downsized" needs patches of at least {CELLS}x{CELLS} pixels. '
            f"Received: patch_size={config.patch_size}"
        )


def masked_patch_validation(trainer: Trainer, plan: TrainingPlan) -> Callable[[], Score]:
    """Returns a function that evaluates the predictions on the validation images.

    Args:
        trainer: A `MaskedPatchTrainer`.
        plan: The run.
    """
    batches = evaluation_batches(
        required(plan.validation, "validation"),
        preprocessing=plan.start.preprocessing,
        batch_size=min(plan.settings.micro_batch_size, 64),
    )

    def validate():
        scores = trainer.evaluate(batches, verbose=0, return_dict=True)
        if not math.isfinite(scores["loss"]):
            raise NonFiniteScores("The loss of the validation images must be finite.")
        return types.SimpleNamespace(loss=scores["loss"], score=scores["accuracy"])

    return validate
