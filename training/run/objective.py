"""Objectives of training runs, and the weights and images that each of them opens."""

from __future__ import annotations

import abc
import dataclasses
import pathlib
from collections.abc import Callable
from typing import ClassVar

import keras

from keras_vit.description import Labels, check_class_names
from keras_vit.model_weights import Weights
from keras_vit.predictor import Predictor
from keras_vit.training.data import Source
from keras_vit.training.data.augmentations import check_augmentation, make_layers
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.data.split_record import SplitRecord
from keras_vit.training.data.things import InFirst
from keras_vit.training.evaluation.reports import EvaluationReport
from keras_vit.training.settings import Settings
from keras_vit.training.trainer.trainer import Trainer

from .images import ImageContents, RunImages, open_images
from .loop import make_schedule
from .machine import Machine, choose_precision
from .plan import Plan, Stage, Start
from .start import Run
from .start_weights import random_start, rate_of


@dataclasses.dataclass(frozen=True, repr=False)
class Finished:
    """A finished run.

    Args:
        folder: The folder.
        history: The rows of `history.csv`; of masked patches, "accuracy" is the share of correct
            colours.
        model: The model with its best weights, as saved; of masked patches without a head.
        classifier: It as read back from the folder; None of masked patches.
        report: The evaluation on the test images, a `ClassificationReport`, or of
            multi-label data a `MultilabelReport`; None if the data have none.
    """

    folder: pathlib.Path
    history: list[dict[str, str]]
    model: keras.Model
    classifier: Predictor | None = None
    report: EvaluationReport | None = None

    def __repr__(self) -> str:
        summary = self.report.summary if self.report else "no test images"
        return f"<Finished: {self.folder}, {summary}; print(finished.report) shows all>"


class Objective(abc.ABC):
    """What a run trains a model for.

    Args:
        settings: The settings of the run.
    """

    stages: ClassVar[tuple[type[Stage], ...]] = ()

    def __init__(self, settings: Settings):
        self.settings = settings

    def start(
        self,
        run: Run,
        replicas: int = 1,
        *,
        download: bool = True,
        in_first: InFirst | None = None,
    ) -> Start:
        """Opens weights and images of a run; writes nothing.

        Args:
            run: The run, which gets the images.
            replicas: Devices that share a batch.
            download: Whether missing data and repositories are downloaded; see `open_source`.
            in_first: See `find_things`; needed when the images are read.

        Raises:
            ValueError: If something does not fit; weights are not read.
        """
        check_augmentation(self.settings.augmentation or "none")
        make_layers(self.settings.layers)
        given = self.with_repositories(download=download)
        # Before the images are read, so that a wrong name fails at once.
        weights = self.weights(given)
        goes_without = bool(run.excluded) or "excluded" in run.begun.facts
        record = SplitRecord.read(run.folder.shared) if goes_without else None
        how = {"log": run.options.log, "in_first": in_first, "things": run.things}
        how |= {"download": download, **self.reading}
        source = open_images(run.data, given.validation_share, record, how)
        source = self.completed(source, run.data, weights, download=download)
        run.images = RunImages.of(source, ignores_copies=run.data.ignores_copies)
        prepared = [stage.prepare(weights, run.images, given, run.begun) for stage in self.stages]
        stages = tuple(stage for stage in prepared if stage is not None)
        machine = Machine.of(given, replicas)
        by_images = settings_by_images(given, run.images, machine)
        return Start(given, by_images, weights, run.images, stages, machine)

    def with_repositories(self, *, download: bool) -> Settings:
        """Returns the settings, in which a repository is named with its commit."""
        return self.settings

    @property
    @abc.abstractmethod
    def reading(self) -> dict[str, bool | int]:
        """Arguments of `open_source`: what the labels of the images must be."""

    def weights(self, given: Settings) -> Weights:
        """Returns the weights to start from, which are not read yet."""
        return random_start(given, {})

    def completed(
        self, source: Source, data: DataSpec, weights: Weights, *, download: bool
    ) -> Source:
        """Returns the images, with the images that are replayed and with notes."""
        return source

    @abc.abstractmethod
    def build(self, plan: Plan) -> tuple[keras.Model, str]:
        """Returns the model to train, and a text on the origin of its weights."""

    @abc.abstractmethod
    def trainer(self, model: keras.Model, plan: Plan) -> Trainer:
        """Returns the compiled trainer of the model."""

    def validation(self, trainer: Trainer, plan: Plan) -> Callable[[], EvaluationReport] | None:
        """Returns a function that evaluates the weights, with a `loss` and a `score`; or None."""
        return None

    def begin(self, run: Run, plan: Plan, contents: ImageContents, start_step: int) -> None:
        """Writes the folder before the first step.

        Args:
            run: The run.
            plan: Its plan.
            contents: The images by their content.
            start_step: Steps that were done before.
        """
        run.begin(plan.source, contents, start_step)

    def facts(self, plan: Plan) -> dict[str, str]:
        """Returns what the plan lists of the objective, by name."""
        return {}

    @abc.abstractmethod
    def finish(
        self, run: Run, plan: Plan, model: keras.Model, history: list, contents: ImageContents
    ) -> Finished:
        """Evaluates the model if it has classes, and writes the folder.

        Args:
            run: The run.
            plan: Its plan.
            model: The model with its best weights.
            history: The rows of `history.csv`.
            contents: The images by their content.
        """


def settings_by_images(given: Settings, images: RunImages, machine: Machine) -> Settings:
    """Returns the settings with what follows from the number of the images.

    Args:
        given: The settings that the user gave.
        images: The images of the run.
        machine: The devices and their memory.

    Raises:
        ValueError: If something does not fit.
    """
    if names := images.source.class_names:  # What would be an error at the end is one now.
        check_class_names(Labels(names, images.source.task).output_names)
    counts = images.counts
    num_images = counts["train"] + counts["validation"]
    with_steps = given.with_epochs(counts["train"])
    resolved = with_steps.resolve(num_images, images.source.task)
    if resolved.patience and not counts["validation"]:
        raise ValueError(
            "patience needs validation images, which show when there is nothing more to gain. "
            f"Received: patience={resolved.patience}, none of them"
        )
    # Raises if the warm-up does not fit, whatever the rate.
    make_schedule(dataclasses.replace(resolved, learning_rate=rate_of(resolved, "new")))
    return choose_precision(resolved, machine)
