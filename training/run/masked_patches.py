"""The paper's self-supervised pre-training by masked patch prediction, section 4.6 and B.1.2."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit import configs
from keras_vit.classifier_folder import write_history
from keras_vit.configs.recognition import config_of
from keras_vit.description import description_text, set_description
from keras_vit.layers import PatchCorruption
from keras_vit.models.build import build
from keras_vit.models.rebuild import inference_model
from keras_vit.training.data import Source, evaluation_batches
from keras_vit.training.data.augmentations import MIXUP, mixup_parameter
from keras_vit.training.data.spec import Data
from keras_vit.training.evaluation.predictions import NonFiniteScores
from keras_vit.training.run import trainer_setup
from keras_vit.training.run.card import recipe_lines
from keras_vit.training.run.job import Job
from keras_vit.training.run.plan import TrainingPlan
from keras_vit.training.run.run_options import run_arguments
from keras_vit.training.run.transfer import Start, find_start
from keras_vit.training.settings import OBJECTIVE, MaskedPatches
from keras_vit.training.trainer.trainer import Trainer
from keras_vit.utils.fields import required
from keras_vit.utils.files import CARD, DESCRIPTION, HISTORY, MODEL, RECIPE, write_text

from .patch_targets import CELLS, TARGETS, cut_patches


def pretrain_masked_patches(
    data: Data,
    output: str | os.PathLike,
    settings: MaskedPatches | None = None,
    **options: Any,
) -> Pretrained:
    """Trains a Vision Transformer without labels to predict what hidden patches show.

    Half of the patch embeddings are corrupted (`keras_vit.layers.PatchCorruption`). A linear
    layer predicts the target of each corrupted patch (`patch_targets.py`) from its output
    representation; other patches do not count. `finetune` takes the written folder as its
    `weights`. The folder has no classes, so it cannot predict before fine-tuning.

    Args:
        data: As for `finetune`, but labels are not read: a folder may have images only.
        output: The folder to write: `model.keras`, without a head, recipe, history and model
            card. Until the end everything is in `OUTPUT.partial`.
        settings: The settings; the paper's by default.
        **options: As for `finetune`.

    Returns:
        A `Pretrained`.

    Raises:
        ValueError: If data and settings do not fit, or the loss is not finite.
        OSError: If the output cannot be written.
        Interrupted: On Ctrl-C or SIGTERM, after saving; a KeyboardInterrupt.

    Example:
    >>> settings = MaskedPatches(model="ViT-S/16", steps=10_000, batch_size=512)
    >>> pretrain_masked_patches("photos", "runs/body", settings)
    >>> finetune("pets", "runs/pets", FineTuning(weights="runs/body"))
    """
    return PretrainMaskedPatches(
        *run_arguments(data, output, options, MaskedPatches), settings
    ).run()


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A finished pre-training without classes.

    Args:
        model: The model without a head, as saved.
        folder: The folder.
        history: The rows of `history.csv`: the loss of the objective, and as "accuracy" the
            share of correct colours.
    """

    model: keras.Model
    folder: pathlib.Path
    history: list[dict[str, str]]


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


def make_trainer(model: keras.Model, settings: MaskedPatches) -> MaskedPatchTrainer:
    """Returns a compiled trainer with the paper's objective.

    Args:
        model: A model of `masked_patch_model`.
        settings: Resolved settings.
    """
    objective = TARGETS[settings.target]
    return trainer_setup.make_trainer(
        model,
        settings,
        MaskedPatchTrainer,
        loss=objective.make_loss(),
        metric=objective.make_metric(),
        target=settings.target,
        patch_size=model.get_layer("patch_embedding").kernel_size,
    )


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


class PretrainMaskedPatches(Job):
    """The job of `keras-vit pretrain --objective masked-patches`; see `Job`."""

    settings_type = MaskedPatches

    def find_start(self, settings: MaskedPatches) -> Start:
        if mixup_parameter(settings.augmentation, settings.mixup):
            raise ValueError(
                "Masked patches need images without mixup: mixup=0, or an augmentation other than "
                f"{', '.join(MIXUP)}. Received: augmentation={settings.augmentation!r}, "
                f"mixup={settings.mixup}"
            )
        start = find_start(settings.model, None)
        _check_fit(start.config, settings.target)
        return start

    def open(self, start: Start, *, download: bool = True) -> Source:
        share = self.settings.validation_share
        return self.data.open(share, labelled=False, download=download)

    def build(self, start, settings, num_classes):
        config = configs.resolve(
            start.config,
            dropout_rate=settings.dropout_rate,
            stochastic_depth_rate=settings.stochastic_depth_rate,
            remat=settings.remat,
        )
        model = masked_patch_model(
            config,
            image_size=settings.image_size,
            target=settings.target,
            corruption=settings.corruption,
        )
        return model, "random"

    def make_trainer(self, model: keras.Model, plan: TrainingPlan) -> MaskedPatchTrainer:
        return make_trainer(model, plan.settings)

    def validation(self, trainer: Trainer, plan: TrainingPlan) -> Callable[[], Any]:
        batches = evaluation_batches(
            required(plan.validation, "validation"),
            preprocessing=plan.start.preprocessing,
            batch_size=min(plan.settings.micro_batch_size, 64),
        )

        def validate():
            scores = trainer.evaluate(batches, verbose=0, return_dict=True)
            if not math.isfinite(scores["loss"]):
                raise NonFiniteScores("The loss of the validation images must be finite.")
            return _Score(scores["loss"], scores["accuracy"])

        return validate

    def finish(self, plan: TrainingPlan, model: keras.Model, history: list) -> Pretrained:
        """Writes the folder of a model without classes; see `Job.finish`."""
        folder = self.folder
        best = self.best(plan.source.task)
        recipe = self.finished_recipe(plan, objective=OBJECTIVE, best=best)
        name = configs.layer_name(plan.start.description.name)
        plain = inference_model(model, include_top=False, name=name)
        described = dataclasses.replace(plan.start.description, config=config_of(plain))
        set_description(plain, described)
        plain.save(folder.path / MODEL)
        write_text(folder.path / DESCRIPTION, description_text(described))
        write_text(folder.path / RECIPE, json.dumps(recipe, indent=2) + "\n")
        write_history(folder.path / HISTORY, history)
        write_text(folder.path / CARD, _card(recipe, history))
        self.publish(plan.source)
        if folder.writes:
            self.options.log(
                f"written {folder.output}; give it classes with keras-vit finetune --weights "
                f"{folder.output}"
            )
        return Pretrained(plain, folder.output, history)


@dataclasses.dataclass(frozen=True)
class _Score:
    """The scores of a validation."""

    loss: float
    score: float


def _card(recipe, history):
    settings, images = recipe["settings"], recipe["images"]
    height, width = settings["image_size"]
    last = f", colour accuracy {float(history[-1]['accuracy']):.4f}" if history else ""
    return "\n".join(
        [
            f"# {recipe['model']}, pre-trained without labels",
            "",
            f"The body of a Vision Transformer for images of {height}x{width} pixels, trained by "
            f"masked patch prediction (target `{settings['target']}`, {settings['corruption']:.0%} "
            f"of the patches corrupted) for {settings['steps']} steps of {settings['batch_size']} "
            f"images{last}. It has no classes: fine-tune it.",
            "",
            "    keras-vit finetune --weights THIS_FOLDER --data IMAGES --output CLASSIFIER",
            "",
            f"Data: `{recipe['data']['data']}`, {images['train']} images to train, "
            f"{images['validation']} to validate, {images['skipped']} skipped as unreadable.",
            "",
            *recipe_lines(recipe),
        ]
    )
