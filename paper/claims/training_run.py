"""One training of the study, in a separate process."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from claims import BASE, config_of
from trainings import model_file

import keras_vit
from keras_vit.checkpoints.find import weights_of
from keras_vit.configs import BiTConfig
from keras_vit.inspection import mean_attention_distance
from keras_vit.models.rebuild import feature_model, inference_model
from keras_vit.preprocessing import Preprocessing
from keras_vit.training import MaskedPatches, NonFiniteError, PreTraining
from keras_vit.training.data import (
    DataSpec,
    TrainingBatches,
    evaluation_batches,
    open_source,
    training_batches,
)
from keras_vit.training.data.in_memory import ArrayExamples
from keras_vit.training.evaluation import few_shot
from keras_vit.training.run import masked_patches
from keras_vit.training.run.loop import make_trainer

VALIDATION = 0.1  # Share of the training images, the same for all trainings.
SHOTS = 10
DISTANCE_IMAGES = 128  # As in the paper.


def decode(data: str, file: pathlib.Path) -> None:
    """Writes the pixels and labels of a folder of images as one file of arrays."""
    source = open_source(DataSpec(data), VALIDATION, verify=False)
    arrays = {}
    for split in ("train", "validation", "test"):
        pairs = evaluation_batches(
            source.splits[split], preprocessing=Preprocessing((1, 1)), batch_size=1, as_pixels=True
        )
        images, labels = zip(*pairs.as_numpy_iterator(), strict=True)
        arrays[f"{split}_images"] = np.concatenate(images)
        arrays[f"{split}_labels"] = np.concatenate(labels)
    np.savez(file, **arrays)


@functools.cache
def _arrays(file):
    with np.load(file) as arrays:
        return dict(arrays)


@functools.cache
def _inputs(file, split, side):
    """All images of a split as a model takes them, float32."""
    examples = ArrayExamples(*(_arrays(file)[f"{split}_{what}"] for what in ("images", "labels")))
    return _preprocessed(examples, side)


def _preprocessed(examples, side):
    preprocessing = Preprocessing((side, side))
    batches = evaluation_batches(examples, preprocessing=preprocessing, batch_size=500)
    return np.concatenate([images for images, _ in batches.as_numpy_iterator()])


class Images:
    """The images of a training.

    Args:
        file: What `decode` wrote.
        run: The training.
    """

    def __init__(self, file: pathlib.Path, run: dict[str, Any]):
        self.arrays, self.file, self.run = _arrays(file), file, run
        self.classes = run["classes"] or range(int(self.arrays["test_labels"].max()) + 1)

    def labels(self, split: str, classes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the places of the images of some classes, and their labels, numbered anew."""
        labels = self.arrays[f"{split}_labels"]
        places = np.flatnonzero(np.isin(labels, classes))
        return places, np.searchsorted(classes, labels[places])

    def training(self, classes: Sequence[int], count: int | None, seed: int) -> ArrayExamples:
        """Returns training images of some classes: all, or as many of each, drawn by the seed."""
        places, labels = self.labels("train", classes)
        if count:
            drawn = few_shot.choose(labels, shots=count // len(classes), seed=seed)
            places, labels = places[drawn], labels[drawn]
        return ArrayExamples(self.arrays["train_images"][places], labels)

    def evaluation(self, split: str, classes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Returns inputs and labels of all images of some classes."""
        places, labels = self.labels(split, classes)
        return _inputs(self.file, split, self.run["image_size"])[places], labels


def train(
    changes: dict[str, Any], file: pathlib.Path, models: pathlib.Path, keep: bool
) -> dict[str, Any]:
    """Trains and evaluates a model.

    Args:
        changes: The training, as changes of `BASE`, with learning rate and seed; "start" is
            another one, whose model was kept.
        file: What `decode` wrote.
        models: Folder of kept models.
        keep: Whether to keep the model.

    Returns:
        Accuracies, and what else was measured.
    """
    began = time.process_time()
    run = BASE | changes
    images = Images(file, run)
    keras.backend.clear_session()
    keras.utils.set_random_seed(run["seed"])
    model, trainer = _model_and_trainer(run, len(images.classes))
    if run["start"]:
        start = keras.saving.load_model(model_file(models, run["start"]), compile=False)
        weights_of(start).load_into(model, "new")
    given = TrainingBatches(
        image_size=(run["image_size"],) * 2,
        batch_size=run["batch_size"],
        seed=run["seed"],
        augmentation=run["augmentation"],
    )
    examples = images.training(images.classes, run["images"], run["seed"])
    batches = training_batches(examples, given)
    try:
        trainer.fit(batches, steps_per_epoch=run["steps"], verbose=0)
        result = _measured(run, images, model, trainer)
    except NonFiniteError as error:
        result = {"validation": 0.0, "test": 0.0, "diverged": error.step}
    if keep:
        inference_model(model, include_top="target" not in run).save(model_file(models, changes))
    return {**result, "cpu_seconds": round(time.process_time() - began, 1)}


def _model_and_trainer(run, num_classes):
    kind = MaskedPatches if "target" in run else PreTraining
    fields = {field.name for field in dataclasses.fields(kind)}
    settings = kind(**{name: value for name, value in run.items() if name in fields}).resolve(
        run["images"] or 0
    )
    size = settings.image_size
    if "target" in run:
        model = masked_patches.masked_patch_model(
            config_of(run), image_size=size, target=settings.target
        )
        return model, masked_patches.make_masked_patch_trainer(model, settings, settings.target)
    model = keras_vit.build(
        config_of(run),
        input_shape=(*size, 3),
        classes=num_classes,
        classifier_activation=None,
    )
    return model, make_trainer(model, settings)


def _measured(run, images, model, trainer):
    result = {}
    for split in ("validation", "test"):
        inputs, labels = images.evaluation(split, images.classes)
        scores = trainer.evaluate(
            inputs,
            labels,
            batch_size=500,
            verbose=0,
            return_dict=True,
            use_averages=bool(run.get("ema_momentum")),
        )
        result[split] = round(scores["accuracy"], 5)
    if run["few_shot"]:
        result["few_shot"] = round(_few_shot(run, images, feature_model(model)), 5)
    if "target" not in run and not isinstance(config_of(run), BiTConfig):
        distances = mean_attention_distance(model, inputs[:DISTANCE_IMAGES], batch_size=128)
        # Not a number where a head attends to no patch: it is not JSON.
        result["attention_distance"] = [
            [None if np.isnan(distance) else round(distance, 3) for distance in layer]
            for layer in distances.tolist()
        ]
    return result


def _few_shot(run, images, features):
    """The accuracy of a linear map for other classes; the mean of three choices of images."""
    inputs, labels = images.evaluation("test", run["few_shot"])
    values = features.predict(inputs, batch_size=500, verbose=0)
    accuracies = []
    for seed in range(3):
        few = images.training(run["few_shot"], SHOTS * len(run["few_shot"]), seed)
        few_values = features.predict(_preprocessed(few, run["image_size"]), verbose=0)
        accuracies.append(few_shot.accuracy(few_values, few.labels, values, labels))
    return float(np.mean(accuracies))
