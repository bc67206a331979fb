"""The plan of a run, before its model is built: from weights, images and settings, no file.

`make_plan` gives a `Plan`, which `--dry-run` prints.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import keras
import numpy as np

from keras_vit import configs
from keras_vit.configs.model_table import paper_name, without_hidden_layer
from keras_vit.description import Description, Labels, check_class_names
from keras_vit.description.class_labels import look_alikes
from keras_vit.description.run_record import Fact, RunRecord
from keras_vit.images.pixels import FULL_DEPTH
from keras_vit.images.samples import describe_samples, sample_count, spread
from keras_vit.images.transcoding import decode_file
from keras_vit.model_weights import Weights
from keras_vit.preprocessing import Preprocessing, describe_resize
from keras_vit.training.data import Examples, Source, TrainingBatches
from keras_vit.training.data.examples import balanced_class_weight
from keras_vit.training.data.spec import IGNORED
from keras_vit.training.data.things import FOUND_BY, unit_numbers
from keras_vit.training.evaluation.classification import evaluate
from keras_vit.training.evaluation.references import describe_seen
from keras_vit.training.evaluation.reports import EvaluationReport
from keras_vit.training.evaluation.results import versions
from keras_vit.training.settings import (
    HIGHER_RESOLUTION,
    FineTuning,
    ResolvedSettings,
    Settings,
)
from keras_vit.training.trainer.trainer import Trainer
from keras_vit.utils.files import RECIPE
from keras_vit.utils.json_files import changed_fields
from keras_vit.utils.progress import Log

from .images import RunImages
from .loop import make_schedule
from .machine import (
    Machine,
    choose_accumulation,
    choose_precision,
    facts_of_computation,
    version_of_kernels,
)

# "new", or for each class of the data its row in the weights' head, None for a class that is new.
Head: TypeAlias = Literal["new"] | tuple[int | None, ...]

NUM_SAMPLES = 8
# The parts that samples are taken from, the first one that has images.
_SAMPLED = {
    "test": "of the test part",
    "validation": "of the validation part",
    "calibration": "of the calibration part",
    "train": "that are trained on",
}
# Two of the four rates of the paper, by benchmarks/field.py and defaults.py: at the higher one
# weights that know the classes lose more than they learn.
NEW_HEAD_RATE, KEPT_HEAD_RATE = 0.03, 0.01

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
class ChosenSamples:
    """The photos that travel with a classifier.

    Args:
        line: The sentence that says so, for the plan.
        examples: The chosen images, or None.
        pictures: The images that `report.html` shows, at most, as augmented and again of the
            errors.
        bit_depth: Bits of the values of 16-bit images.
    """

    line: str = ""
    examples: Examples | None = None
    pictures: int = 0
    bit_depth: int = FULL_DEPTH

    def images(self) -> Iterator[np.ndarray]:
        """Yields their pixels, uint8 `(H, W, 3)`."""
        if self.examples is not None:
            for encoded, _ in self.examples.encoded():
                yield decode_file(encoded, self.bit_depth)


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
    config: configs.ModelConfig
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
            versions=versions() | version_of_kernels(),
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
    config = cast(configs.ModelConfig, description.config)  # `find_start`.
    filled = choose_accumulation(by_weights, config, start.machine.memory, start.machine.replicas)
    settings = ResolvedSettings.of(filled)

    # What the run found by itself; a resumed run keeps what it began with.
    balanced = _class_weight(settings, source, begun.facts)
    facts = {
        **_facts_of_weights(description, preprocessing, head),
        **_facts_of_images(start, description, filled),
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
        samples=choose_samples(settings.samples, source, preprocessing),
        facts={**facts, **begun.facts},
        known_features={} if size is None else size.features,
    )


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


def describe_model(
    weights: Weights, settings: Settings, labels: Labels, bit_depth: int | None = None
) -> tuple[Description, Preprocessing, Head]:
    """Returns what the model to train is, and where each fact is from.

    It has the data's classes, the preprocessing of evaluation, and the hidden layer of
    pre-training only if the head is kept.

    Args:
        weights: The weights to start from.
        settings: Settings; image size and way of resizing may be None.
        labels: The classes of the data.
        bit_depth: Bits of the values of 16-bit images; None: as of the weights.

    Raises:
        ValueError: If the head cannot be kept as the settings ask for.
    """
    start = weights.description
    before = cast(configs.ModelConfig, start.config)  # `find_start`.
    config = without_hidden_layer(before)
    name = start.name if weights.is_random else paper_name(start.config) or start.name
    size, size_from = _image_size(settings, weights)
    preprocessing = weights.preprocessing_for(size, settings.evaluation, bit_depth)
    origins = {**start.origins, "image_size": size_from}
    if settings.evaluation is not None:
        origins["evaluation"] = "the settings"
    head: Head = "new"
    if not weights.is_random:
        head, origins["head"] = choose_head(weights, labels.names or (), settings.head)
        hidden = getattr(start.config, "representation_size", None)
        if head != "new" and hidden:
            config = dataclasses.replace(config, representation_size=hidden)
    grid = config.grid(size) if isinstance(config, configs.ViTConfig) else None
    if grid is not None and 0 in grid:
        grid = None  # The image is smaller than a patch, which is an error of the plan.
    description = dataclasses.replace(
        start,
        name=name,
        config=config,
        input_shape=(*size, 3),
        position_grid=grid,
        classes=len(labels.names) if labels.names else None,
        preprocessing=preprocessing,
        labels=labels,
        origins=origins,
    )
    return description, preprocessing, head


def rate_of(settings: Settings, head: Head) -> float:
    """Returns the learning rate, which is lower where the head of the weights is kept."""
    if settings.learning_rate is not None:
        return settings.learning_rate
    return NEW_HEAD_RATE if head == "new" else KEPT_HEAD_RATE


def _facts_of_weights(description, preprocessing, head):
    """What a run takes from its weights, by name, and where it is from."""
    values = {
        "image_size": list(preprocessing.image_size),
        "pixels": preprocessing.value_range,
        "evaluation": describe_resize(preprocessing),
        "gelu": getattr(description.config, "gelu", None),
        "norm_epsilon": getattr(description.config, "norm_epsilon", None),
        "position_resize": description.position_resize,
        "head": "new" if head == "new" else "keep",
    }
    return {
        name: Fact(value, description.origins[name])
        for name, value in values.items()
        if value is not None and name in description.origins
    }


def _facts_of_images(start, description, settings):
    """What is lost of the photos, what of the weights is dropped, and the steps of epochs."""
    images, epochs = start.images, start.given.epochs
    seen = describe_seen(description.config, settings.image_size, images.photo_size)
    facts = {"photos": Fact(list(images.photo_size), seen)}
    if images.source.things is not None:
        facts["things"] = Fact(images.source.things.line, FOUND_BY)
    elif images.ignores_copies:
        facts["things"] = Fact("not looked for", f"--copies {IGNORED}")
    if start.weights.description.labels.abstains:
        bound = "--max-error finds a new one"
        if settings.decision is not None:
            bound = f"a new one of {settings.decision.max_error:.1%} is looked for"
        facts["unknown"] = Fact("dropped", _DROPPED + bound)
    if epochs is not None:
        seen_by = f"{images.counts['train']} images in batches of {settings.batch_size}"
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


def _image_size(settings: Settings, weights: Weights) -> tuple[tuple[int, int], str]:
    """The pixels (height, width) of a run, and why."""
    if settings.image_size is not None:
        return settings.image_size, settings.recipe or "the settings"
    higher = (HIGHER_RESOLUTION, HIGHER_RESOLUTION)
    if weights.is_random or weights.image_size is None:
        return higher, "the paper's"
    if weights.image_size != weights.description.image_size:
        return weights.image_size, "as the image processor of the weights states"
    height, width = weights.image_size
    is_finetuned = RunRecord.from_json(weights.recipe).job == FineTuning.command
    if {height, width} == {configs.DEFAULT_IMAGE_SIZE} and not is_finetuned:
        return higher, f"the paper's higher resolution, for weights of {height}x{width} pixels"
    return weights.image_size, "as in the weights"


def choose_head(
    weights: Weights, class_names: Sequence[str], head: str | None = None
) -> tuple[Head, str]:
    """Returns which rows of the weights' head are kept, and why.

    Args:
        weights: The weights.
        class_names: Names of the data's classes.
        head: "keep", "new", or None to keep the rows of the classes that the weights name.

    Returns:
        For each class of the data its number in the weights, or None for a new class; or
        "new". And the human-readable reason.

    Raises:
        ValueError: If `head` is "keep" and no row can be kept.
    """
    names, classes = weights.class_names, weights.description.classes
    if head == "new":
        return "new", "the settings"
    if head == "keep" and names is None and classes == len(class_names):
        return tuple(range(len(class_names))), (
            "the settings; the weights do not name their classes, so rows keep their order"
        )
    # If two classes have one name, the first counts.
    places = {name: row for row, name in reversed([*enumerate(names or ())])}
    rows = [places.get(name) for name in class_names] if names else []
    if classes is None:
        reason = "the weights have no head"
    elif names is None:
        reason = "the weights do not name their classes"
    elif not any(row is not None for row in rows):
        reason = f"none of the {len(names)} classes of the weights is in the data"
    else:
        return tuple(rows), _describe_rows(rows, names, class_names)
    if head == "keep":
        raise ValueError(
            "A head can be kept where the weights name a class of the data (--head new makes a "
            f"new one). Received: {weights.source}: {reason}"
        )
    return "new", reason


def _describe_rows(rows, names, class_names):
    new = [name for name, row in zip(class_names, rows, strict=True) if row is None]
    left_out = len(names) + len(new) - len(rows)
    if not new and not left_out:
        return "the classes are the same" + ("" if rows == sorted(rows) else ", reordered by name")
    text = f"{len(rows) - len(new)} of {len(rows)} classes are in the weights"
    if new:
        shown = ", ".join(new[:5]) + (", ..." if len(new) > 5 else "")
        text += f"; {len(new)} start at zero ({shown})"
        text += "".join(f"; {line}" for line in look_alikes([*names, *class_names]))
    return text + (f"; {left_out} classes of the weights are left out" if left_out else "")


def choose_samples(
    samples: str | None, source: Source, preprocessing: Preprocessing
) -> ChosenSamples:
    """Returns the photos that travel with a classifier.

    By default they are test images. Images that are trained on are taken only if a number is
    asked for and no image is held out, and the line says it.

    Args:
        samples: The setting.
        source: The images in splits.
        preprocessing: The model's.
    """
    if not source.class_names:
        return ChosenSamples()
    image_size = preprocessing.image_size
    where = "with the classifier and its exports"
    count = NUM_SAMPLES if samples is None else sample_count(samples)
    parts = [part for part in _SAMPLED if len(source.splits.get(part, ()))]
    if not count or (samples is None and "test" not in parts):
        missing = "; --samples takes some, for there is no test part" if count and parts else ""
        return ChosenSamples(describe_samples(0, "", image_size, where) + missing)
    examples = source.splits[parts[0]]
    chosen = examples.take(spread(len(examples), count))
    line = describe_samples(len(chosen), _SAMPLED[parts[0]], image_size, where)
    return ChosenSamples(line, chosen, count, preprocessing.bit_depth)
