"""The plan of a run, before its model is built: from weights, images and settings, no file.

`make_plan` gives a `Plan`, which `--dry-run` prints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import keras
import numpy as np

from keras_vit.configs import ModelConfig
from keras_vit.description import Description, Labels
from keras_vit.description.run_record import Fact, RunRecord
from keras_vit.model_weights import Weights
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import Examples, Source, TrainingBatches
from keras_vit.training.data.examples import balanced_class_weight
from keras_vit.training.data.things import unit_numbers
from keras_vit.training.evaluation.classification import evaluate
from keras_vit.training.evaluation.reports import EvaluationReport
from keras_vit.training.settings import (
    ResolvedSettings,
    Settings,
)
from keras_vit.training.trainer.trainer import Trainer
from keras_vit.utils.files import RECIPE
from keras_vit.utils.json_files import changed_fields
from keras_vit.utils.progress import Log

from .chosen_samples import ChosenSamples
from .images import RunImages
from .machine import (
    Machine,
    choose_accumulation,
    facts_of_computation,
    versions_of_run,
)
from .start_weights import Head, describe_model, facts_of_weights, rate_of

_DROPPED = "its bound was found for the weights before this run; "


@dataclasses.dataclass
class Outcome:
    """What a run has trained, as the stages after training change it.

    Args:
        model: The model with its best weights, giving probabilities.
        labels: Its classes.
        fingerprints: The content of the images, by part; see `read_fingerprints`.
        log: Receives the lines of the stages.
        sections: Sections that the model card gets.
        decision: What the bound of "unknown" was found by, for the recipe.
    """

    model: keras.Model
    labels: Labels
    fingerprints: Mapping[str, np.ndarray | None]
    log: Log
    sections: list[str] = dataclasses.field(default_factory=list)
    decision: dict[str, Any] | None = None


class Stage:
    """A stage; a run has those whose `prepare` gives one."""

    facts: Mapping[str, Fact] = {}  # What it adds to the plan, unless the run began with it.

    @classmethod
    def prepare(
        cls, weights: Weights, images: RunImages, settings: Settings, begun: RunRecord
    ) -> Stage | None:
        """Returns the stage, or None for a run without it.

        Args:
            weights: The weights to start from.
            images: The images of the run.
            settings: The settings that the user gave.
            begun: The record of a run to resume.

        Raises:
            ValueError: If something does not fit: before anything is trained.
        """
        raise NotImplementedError

    def trainer(self, plan: Plan) -> Callable[..., Trainer] | None:
        """Returns what makes a trainer from the arguments of `Trainer`; None leaves that to it."""
        return None

    def before(
        self, plan: Plan, model: keras.Model, facts: Mapping[str, Fact], *, progress: bool
    ) -> dict[str, Fact]:
        """Changes the model before its first step, not of a resumed run; returns new facts.

        Args:
            plan: The run.
            model: Its model.
            facts: The facts so far.
            progress: Whether to show a line while it computes.
        """
        return {}

    def after(self, plan: Plan, outcome: Outcome) -> None:
        """Changes the trained model before it is tested and written."""

    def tested(self, plan: Plan, report: EvaluationReport, log: Log) -> None:
        """Logs what it has to say of the report on the test images."""


@dataclasses.dataclass(frozen=True)
class Start:
    """What a run has read and knows before its plan.

    Args:
        given: The settings that the user gave, with the commits of repositories.
        settings: The same with what follows from the number of the images.
        weights: The weights to start from, or random ones.
        images: The images in their parts.
        stages: What the run does before and after training.
        machine: The devices and their memory.
    """

    given: Settings
    settings: Settings
    weights: Weights
    images: RunImages
    stages: tuple[Stage, ...]
    machine: Machine

    @property
    def labels(self) -> Labels:
        """The classes of the data."""
        return Labels(self.images.source.class_names or None, self.images.source.task)

    def described(
        self, size: tuple[int, int] | None = None
    ) -> tuple[Description, Preprocessing, Head]:
        """Returns what the model to train is; see `describe_model`.

        Args:
            size: Pixels (height, width) in place of the settings'.
        """
        settings = self.settings
        if size is not None:
            settings = dataclasses.replace(settings, image_size=size)
        return describe_model(self.weights, settings, self.labels, self.images.source.bit_depth)


class ChosenSize(NamedTuple):
    """An image size that a probe has chosen.

    Args:
        image_size: Pixels (height, width).
        reason: Why.
        features: The features `(D,)` at this size of the images that it looked at, by name.
    """

    image_size: tuple[int, int]
    reason: str
    features: Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Plan:
    """A run before its model is built.

    Args:
        start: The weights, the images and the stages.
        settings: The settings that all commands share, with every value that was open.
        all_settings: The settings of the command, filled in, as the record has them.
        description: The model to train.
        config: Its architecture.
        preprocessing: How an image becomes its input in evaluation.
        head: What its head begins with.
        class_weight: The weight of each class in the loss; () for equal ones.
        samples: The photos that travel with the classifier.
        facts: What the run found by itself so far, by name.
        known_features: Features `(D,)` of training images by name, which were computed already.
    """

    start: Start
    settings: ResolvedSettings
    all_settings: Settings
    description: Description
    config: ModelConfig
    preprocessing: Preprocessing
    head: Head
    class_weight: tuple[float, ...]
    samples: ChosenSamples
    facts: dict[str, Fact]
    known_features: Mapping[str, np.ndarray]

    @property
    def weights(self) -> Weights:
        """The weights to start from, or random ones."""
        return self.start.weights

    @property
    def images(self) -> RunImages:
        """The images in their parts."""
        return self.start.images

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What the run does before and after training."""
        return self.start.stages

    @property
    def labels(self) -> Labels:
        """The classes of the data."""
        return self.start.labels

    @property
    def record(self) -> RunRecord:
        """The plan as the record of the run has it."""
        return RunRecord(
            job=self.all_settings.command,
            description=self.description.to_json(),
            model=self.description.name,
            config=changed_fields(self.config),
            settings=self.all_settings.to_json(),
            facts=self.facts,
            preprocessing=self.preprocessing.to_fields(),
            classes=len(self.source.class_names),
            task=self.source.task,
            images={**self.images.counts, "skipped": len(self.source.skipped)},
            versions=versions_of_run(),
        )

    @property
    def source(self) -> Source:
        """The images: "train", and if there are any, "validation", "calibration" and "test"."""
        return self.images.source

    def batches(self, start_step: int = 0) -> TrainingBatches:
        """Returns the batches that the model is trained on.

        Args:
            start_step: Steps that were done before.
        """
        settings = self.settings
        return TrainingBatches(
            image_size=settings.image_size,
            batch_size=settings.batch_size,
            seed=settings.seed,
            augmentation=settings.augmentation,
            flip=settings.flip,
            mixup=settings.mixup,
            layers=settings.layers,
            micro_batches=settings.accumulate,
            value_range=self.preprocessing.value_range,
            bit_depth=self.preprocessing.bit_depth,
            num_classes=len(self.source.class_names),
            start_step=start_step,
        )

    def evaluate(
        self,
        model: keras.Model,
        examples: Examples,
        labels: Labels | None = None,
        *,
        from_logits: bool = False,
        progress: bool = False,
    ) -> EvaluationReport:
        """Returns the report of a model on images of the run's data, by their task.

        Args:
            model: The model, or its predictor.
            examples: The images.
            labels: What the outputs are; by default the classes of the run.
            from_logits: Whether the model's outputs are logits.
            progress: Whether to show a line with the rate and the time left.
        """
        report = evaluate(
            model,
            examples,
            labels or self.labels,
            preprocessing=self.preprocessing,
            batch_size=min(self.settings.micro_batch_size, 64),
            from_logits=from_logits,
            progress=progress,
        )
        return dataclasses.replace(report, units=unit_numbers(examples, self.source))


def make_plan(start: Start, begun: RunRecord, size: ChosenSize | None = None) -> Plan:
    """Returns everything that is known before the model is built.

    Args:
        start: What the run has read.
        begun: The record that a resumed run began with, for its facts and its description.
        size: The image size that a probe has chosen; None for the settings', or the weights'.

    Raises:
        ValueError: If something does not fit.
    """
    source = start.images.source
    description, preprocessing, head = start.described(size and size.image_size)
    if size is not None:
        origins = {**description.origins, "image_size": size.reason}
        description = dataclasses.replace(description, origins=origins)
    if begun.description:  # Where its facts were from at the start.
        before = Description.from_json(begun.description, RECIPE)
        description = dataclasses.replace(description, origins=before.origins)
    by_weights = dataclasses.replace(
        start.settings,
        image_size=preprocessing.image_size,
        evaluation=preprocessing.evaluation,
        learning_rate=rate_of(start.settings, head),
    )
    config = cast(ModelConfig, description.config)  # `find_start`.
    filled = choose_accumulation(by_weights, config, start.machine.memory, start.machine.replicas)
    settings = ResolvedSettings.of(filled)

    # What the run found by itself; a resumed run keeps what it began with.
    balanced = _class_weight(settings, source, begun.facts)
    facts = {
        **facts_of_weights(description, preprocessing, head),
        **start.images.facts(description.config, preprocessing.image_size),
        **_facts_of_start(start, filled),
    }
    if balanced:
        by_name = dict(zip(source.class_names, balanced, strict=True))
        facts["class_weight"] = Fact(by_name, str(settings.class_weight))
    for stage in start.stages:
        facts |= stage.facts
    facts |= facts_of_computation(settings, config)
    return Plan(
        start=start,
        settings=settings,
        all_settings=filled,
        description=description,
        config=config,
        preprocessing=preprocessing,
        head=head,
        class_weight=balanced,
        samples=ChosenSamples.of(settings.samples, source, preprocessing),
        facts={**facts, **begun.facts},
        known_features={} if size is None else size.features,
    )


def _facts_of_start(start, settings):
    """What of the weights is dropped, and the steps of epochs."""
    facts, epochs = {}, start.given.epochs
    if start.weights.description.labels.abstains:
        bound = "--max-error finds a new one"
        if settings.decision is not None:
            bound = f"a new one of {settings.decision.max_error:.1%} is looked for"
        facts["unknown"] = Fact("dropped", _DROPPED + bound)
    if epochs is not None:
        seen_by = f"{start.images.counts['train']} images in batches of {settings.batch_size}"
        facts["epochs"] = Fact(epochs, f"{settings.steps} steps: {seen_by}")
    return facts


def _class_weight(settings, source, begun):
    """The weight of each class in the loss, of a resumed run as it began; () for equal ones."""
    if settings.class_weight is None:
        return ()
    if "class_weight" in begun:
        by_name = begun["class_weight"].value
        return tuple(by_name[name] for name in source.class_names)
    return balanced_class_weight(source.splits["train"].labels, source.class_names)
