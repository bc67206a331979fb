"""Training runs from data to a classifier's folder: fine-tuning and pre-training."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import keras

from keras_vit.classifier import Classifier, check_classifier, load_classifier, write_files
from keras_vit.description import Description, Labels
from keras_vit.files import RECIPE, SKIPPED, write_skipped
from keras_vit.models.rebuild import inference_model
from keras_vit.recognition import config_of
from keras_vit.tasks import ACTIVATIONS, DEFAULT_THRESHOLD, MULTILABEL, SCORES
from keras_vit.training.data import Examples, Source
from keras_vit.training.data.augmentations import check_augmentation
from keras_vit.training.data.class_balance import balanced, class_weights
from keras_vit.training.data.examples import typical_size
from keras_vit.training.data.outputs import check_output
from keras_vit.training.data.records import NotPrepared
from keras_vit.training.data.sources import describe_skipped
from keras_vit.training.data.spec import Data, DataSpec, data_spec
from keras_vit.training.data.split_record import SplitRecord
from keras_vit.training.evaluation import classification
from keras_vit.training.evaluation.results import versions
from keras_vit.training.recipes import HYPER_RULE_NAME
from keras_vit.training.settings import (
    HIGHER_RESOLUTION,
    FineTuning,
    PreTraining,
    Settings,
)
from keras_vit.training.trainer.devices import Place, predictor_of
from keras_vit.training.trainer.trainer import Trainer

from .distillation import DistillationTrainer, open_teacher
from .folder import RunFolder, unfinished_recipe
from .loop import Score, check_callbacks, train
from .model_card import model_card, write_samples
from .plan import TrainingPlan, choose_accumulation, describe_plan
from .replay import extend
from .trainer_setup import make_loss, make_metric, make_schedule, make_trainer, not_decayed
from .transfer import Start, build_model, choose_trained, dtype_policy, find_start, settle

_MAX_LISTED = 20  # Thresholds that are printed.
FEW_IMAGES = 10  # Fewer with a label, or without it, leave its threshold to chance.


def finetune(
    data: Data,
    output: str | os.PathLike,
    settings: FineTuning | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    command: str = "",
    log: Callable[[str], object] = print,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    **data_options: Any,
) -> Finished:
    """Fine-tunes a model on a data set and writes a classifier's folder; paper, section 3.2.

    The pre-training head is removed and a linear layer of zeros put in its place, except for
    the rows of classes that the weights name too; position embeddings are interpolated to
    the new resolution, and everything is trained: by default with SGD with momentum, cosine
    decay after a linear warm-up, gradients clipped at global norm 1. The weights, or their
    averages, with the best validation accuracy are kept, and evaluated on the test images,
    which are used for nothing else.

    Args:
        data: A folder `{train,test}/<class>/*` or `<class>/*`, a CSV file of paths and
            labels, or "tfds:NAME". None with `resume`. Arrays, a `tf.data.Dataset` or a
            `pandas.DataFrame`, see `open_source`; with `resume` the same again. Or a
            `DataSpec`, which has the `data_options` too.
        output: The folder to write. Until the end everything is in `OUTPUT.partial`.
        settings: The recipe; the paper's by default.
        overwrite: Whether to replace an existing classifier.
        resume: Whether to continue a stopped run, with its data and settings.
        command: The command to record in `recipe.json`.
        log: Receives the resolved recipe and the result.
        callbacks: Keras callbacks for `fit`, which is called once with one epoch of all steps.
            Their model is the `Trainer`, batches are optimizer steps, and logs have the mean
            loss and accuracy since the last row of the history, after a validation also
            `val_loss` and `val_accuracy`.
        **data_options: Fields of `DataSpec`, such as `holdout`, `exclude` and `class_names`.

    Returns:
        A `Finished`: the classifier, the report on the test images and the history.

    Raises:
        ValueError: If something does not fit, or the loss is not finite.
        TypeError: If one of the data options is no field of `DataSpec`.
        OSError: If there is no space, or no right to write.
        Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.

    Example:
    >>> done = finetune("photos", "runs/photos", FineTuning(model="ViT-S/16", steps=500))
    >>> done.report.top_1
    0.9731
    """
    return FineTune(
        data_spec(data, **data_options),
        output,
        settings,
        overwrite=overwrite,
        resume=resume,
        command=command,
        log=log,
        callbacks=callbacks,
    ).run()


def pretrain(
    data: Data,
    output: str | os.PathLike,
    settings: PreTraining | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    command: str = "",
    log: Callable[[str], object] = print,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    **data_options: Any,
) -> Finished:
    """Trains a model from random weights and writes a classifier's folder; paper, Table 3.

    By default with Adam and decoupled weight decay, clipping at global norm 1. `finetune`
    takes the folder as its `weights`.

    Args:
        data: As for `finetune`.
        output: The folder to write.
        settings: The recipe; Table 3's for ImageNet by default.
        overwrite: As for `finetune`.
        resume: As for `finetune`.
        command: As for `finetune`.
        log: As for `finetune`.
        callbacks: As for `finetune`.
        **data_options: As for `finetune`.

    Returns:
        A `Finished`: the classifier, the report on the test images and the history.

    Raises:
        ValueError: If something does not fit, or the loss is not finite.
        OSError: If there is no space, or no right to write.
        Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.
    """
    return Pretrain(
        data_spec(data, **data_options),
        output,
        settings,
        overwrite=overwrite,
        resume=resume,
        command=command,
        log=log,
        callbacks=callbacks,
    ).run()


@dataclasses.dataclass(frozen=True)
class Finished:
    """A finished run.

    Args:
        classifier: The best weights, as read back from the folder.
        report: The evaluation on the test images, a `ClassificationReport`, or of
            multi-label data a `MultilabelReport`; None if the data have none.
        history: The rows of `history.csv`.
    """

    classifier: Classifier
    report: Any
    history: list[dict[str, str]]


class Job:
    """A training run from data to a folder.

    A subclass has the class of its settings, `find_start` and `build`. By default it trains
    and writes a classifier.

    Args:
        data: The data. With `resume` the unfinished run's data are used instead; in-memory data
            must be passed again.
        output: The folder to write.
        settings: The recipe; the paper's by default. With `resume` the unfinished run's
            settings are used instead.
        overwrite: Whether to replace an existing output.
        resume: Whether to continue a stopped run.
        command: The command to record. Called again with the same one, an unfinished run
            continues even without `resume`.
        log: Receives messages.
        callbacks: Keras callbacks; see `finetune`.

    Raises:
        ValueError: If the output cannot be written, there is no run to resume, or a callback is
            none of Keras.
        ImportError: If a callback needs TensorBoard, and it is not installed.
    """

    settings_type: ClassVar[type[Settings]]

    def __init__(
        self,
        data: DataSpec,
        output: str | os.PathLike,
        settings: Settings | None = None,
        *,
        overwrite: bool = False,
        resume: bool = False,
        command: str = "",
        log: Callable[[str], object] = print,
        callbacks: Sequence[keras.callbacks.Callback] = (),
    ):
        self.callbacks = check_callbacks(callbacks)
        self.settings: Any = settings or self.settings_type()
        self.data = data
        self.command = command
        self.log = log
        self.unfinished: dict[str, Any] = {}  # The recipe of the unfinished run.
        # The same command again, as a restarted machine gives it, continues the run.
        unfinished_command = unfinished_recipe(output).get("command", "")
        resume = resume or (not overwrite and unfinished_command == command != "")
        self.folder = RunFolder(output, resume=resume, overwrite=overwrite)
        if resume:
            recipe = self.folder.recipe(self.settings_type.command)
            self.settings = self.settings_type.from_json(_settings_of(recipe))
            self.unfinished = recipe
            self.data = DataSpec.from_recipe_json(recipe, self.data)
            self.command = recipe["command"]
        else:
            check_output(output, self.data.data)
        if self.data.split_seed is None:
            self.data = dataclasses.replace(self.data, split_seed=self.settings.seed)

    def run(self) -> Any:
        """Trains the model and writes the folder.

        Returns:
            The result of `finish`.

        Raises:
            ValueError: If something does not fit, or the loss is not finite.
            OSError: If there is no space, or no right to write.
            Interrupted: On Ctrl-C or SIGTERM, after saving: a KeyboardInterrupt.
        """
        with self.folder.locked():
            return self._run()

    def _run(self):
        place = Place(self.settings.strategy)  # Before TensorFlow's first use: workers meet here.
        plan = self.plan(place.replicas)
        settings, num_classes = plan.settings, len(plan.source.class_names)

        keras.utils.set_random_seed(settings.seed)
        with dtype_policy(settings.precision), place.scope():
            model, weights = self.build(plan.start, settings, num_classes)
            trainer = self.make_trainer(model, plan)
        self.check(plan, model)
        start_step = self.folder.checkpoints.restore(trainer) if self.folder.resume else 0
        batches = place.batches(
            plan.source.splits["train"],
            image_size=settings.image_size,
            batch_size=settings.micro_batch_size,
            seed=settings.seed,
            augmentation=settings.augmentation,
            mixup=settings.mixup,
            resize=settings.resize,
            value_range=plan.start.preprocessing.value_range,
            start_step=start_step * settings.accumulate,
            num_classes=num_classes,
            data_service=settings.data_service,
        )
        if not self.folder.resume:
            self.folder.start(plan.recipe)  # The first write: all errors of the input are past.
        if self.folder.writes:
            record_split(self.folder.path, plan.source)
        lines = {"weights": weights}
        if settings.weight_decay:
            lines["not decayed"] = ", ".join(not_decayed(trainer))
        if start_step:
            lines["resumed"] = f"after step {start_step}"
        self.log(describe_plan(plan, lines))
        history = train(
            trainer,
            batches,
            self.folder,
            settings,
            start_step=start_step,
            validate=None if plan.validation is None else self.validation(trainer, plan),
            task=plan.source.task,
            callbacks=self.callbacks,
        )
        skipped = int(keras.ops.convert_to_numpy(trainer.skipped_steps))
        plan = dataclasses.replace(plan, recipe={**plan.recipe, "skipped_steps": skipped})
        finished = self.finish(plan, model, history)
        place.leave()
        return finished

    def dry_run(self) -> str:
        """Returns a human-readable description of the run; trains, writes and fetches nothing.

        Data that would have to be downloaded are described instead.

        Raises:
            ValueError: If something does not fit; weights are not read.
        """
        try:
            return describe_plan(self.plan(download=False))
        except NotPrepared as missing:
            return f"{missing}. A dry run fetches nothing; the rest of the plan needs the data"

    def plan(self, replicas: int = 1, *, download: bool = True) -> TrainingPlan:
        """Returns everything that is known before the model is built; writes nothing.

        Args:
            replicas: Devices that share a batch.
            download: Whether missing data are downloaded; see `open_source`.

        Raises:
            ValueError: If something does not fit; weights are not read.
        """
        settings = self.settings
        check_augmentation(settings.augmentation)
        start = self.find_start(settings)  # Before the data are read: a wrong name fails at once.
        source = self.open(start, download=download)
        counts = {
            name: len(source.splits.get(name, ())) for name in ("train", "validation", "test")
        }
        num_images = counts["train"] + counts["validation"]
        by_data = settings.recipe == HYPER_RULE_NAME and settings.image_size is None
        size = typical_size(source.splits["train"]) if by_data else None
        settings = settings.resolve(num_images, size, source.task)
        if settings.patience and not counts["validation"]:
            raise ValueError(
                "patience needs validation images, which show when there is nothing more to gain. "
                f"Received: patience={settings.patience}, none of them"
            )
        start, settings = settle(start, settings, Labels(source.class_names or None, source.task))
        facts, weights = start.facts, None
        if settings.class_weights is not None:
            weights = self.class_weights(settings.class_weights, source)
            by_name = dict(zip(source.class_names, weights, strict=True))
            facts["class_weights"] = {"value": by_name, "from": settings.class_weights}
        if settings.sampling == "classes":
            train = balanced(source.splits["train"], source.class_names, settings.seed)
            source = dataclasses.replace(source, splits={**source.splits, "train": train})
        teacher = None
        if name := getattr(settings, "teacher", None):
            known = self.unfinished.get("facts", {}).get("teacher")
            teacher = open_teacher(name, source.class_names, start.preprocessing, known)
            facts["teacher"] = teacher.fact
        make_schedule(settings)  # Raises if warm-up, cool-down or boundaries do not fit.
        settings = choose_accumulation(settings, start.config, replicas=replicas)
        description = start.description
        if "description" in self.unfinished:  # Where its facts were from at the start.
            before = Description.from_json(self.unfinished["description"], RECIPE)
            description = dataclasses.replace(description, origins=before.origins)
            start = dataclasses.replace(start, description=description)
        recipe = {
            "job": self.settings_type.command,
            "command": self.command,
            "description": description.to_json(),
            "model": description.name,
            "config": dataclasses.asdict(start.config),
            "settings": settings.to_json(),
            "facts": {**facts, **self.unfinished.get("facts", {})},
            "preprocessing": start.preprocessing.to_fields(),
            "data": self.data.to_json(),
            "overwrite": self.folder.overwrite,
            "classes": len(source.class_names),
            "task": source.task,
            "images": {**counts, "skipped": len(source.skipped)},
            "versions": versions(),
        }
        plan = TrainingPlan(start, source, settings, recipe, weights, teacher)
        self.check(plan)
        return plan

    def class_weights(self, balance: str, source: Source) -> list[float]:
        """Returns the weight of each class in the loss; a resumed run keeps its own.

        Args:
            balance: The setting `class_weights`.
            source: The images in splits.
        """
        if known := self.unfinished.get("facts", {}).get("class_weights"):
            return [known["value"][name] for name in source.class_names]
        return class_weights(balance, source.splits["train"].labels, source.class_names)

    def check(self, plan: TrainingPlan, model: keras.Model | None = None) -> None:
        """Raises ValueError where `finish` would, before the first step.

        Args:
            plan: The plan.
            model: The model to train, once it is built.
        """
        check_classifier(plan.source.class_names, model, plan.start.preprocessing)

    def find_start(self, settings: Any) -> Start:
        """Returns the weights to start from, and what the model to train is."""
        raise NotImplementedError

    def open(self, start: Start, *, download: bool = True) -> Source:
        """Returns the images in splits."""
        return self.data.open(self.settings.validation_share, download=download)

    def build(self, start: Start, settings: Any, num_classes: int) -> tuple[keras.Model, str]:
        """Returns the model to train, which gives logits, and a text on its weights' origin."""
        raise NotImplementedError

    def make_trainer(self, model: keras.Model, plan: TrainingPlan) -> Trainer:
        """Returns a compiled trainer."""
        loss = make_loss(plan.settings, plan.class_weights)
        metric = make_metric(plan.source.task)
        if plan.teacher is None:
            return make_trainer(model, plan.settings, loss=loss, metric=metric)
        names = ("distillation", "distillation_weight", "temperature")
        return make_trainer(
            model,
            plan.settings,
            DistillationTrainer,
            loss=loss,
            metric=metric,
            teacher=plan.teacher.build(),
            **{name: getattr(plan.settings, name) for name in names},
        )

    def validation(self, trainer: Trainer, plan: TrainingPlan) -> Callable[[], Score]:
        """Returns a function that evaluates the weights on the validation images.

        Its result has a `loss` and a `score`, by which the best weights are chosen.
        """
        predictor = predictor_of(trainer)
        return lambda: evaluate(plan, predictor, plan.validation, from_logits=True)

    def best(self, task: str) -> dict[str, float] | None:
        """Returns step, score and loss of the best validation; None without one."""
        best = self.folder.best_score()
        return best and {"step": best[0], SCORES[task]: best[1], "loss": best[2]}

    def finish(self, plan: TrainingPlan, model: keras.Model, history: list) -> Any:
        """Evaluates the model on the test images and writes the classifier's folder.

        Args:
            plan: The plan, with the number of skipped steps in its recipe.
            model: The model with its best weights.
            history: The rows of `history.csv`.
        """
        folder, source = self.folder, plan.source
        kept = inference_model(model, activation=ACTIVATIONS[source.task])
        thresholds, chosen = choose_thresholds(plan, kept)
        for line in chosen:
            self.log(line)
        test = source.splits.get("test")
        report = None
        if test is not None and len(test):
            options = {} if thresholds is None else {"thresholds": thresholds}
            report = evaluate(
                plan, kept, test, skipped=source.skipped, progress=folder.writes, **options
            )
            self.log(f"test    {report.summary}")
        test_json = report and report.to_json()
        recipe = {**plan.recipe, "best": self.best(source.task), "test": test_json}
        described = plan.start.description
        labels = dataclasses.replace(described.labels, thresholds=thresholds)
        described = dataclasses.replace(described, config=config_of(kept), labels=labels)
        recipe["description"] = described.to_json()
        classifier = Classifier.of(kept, described, recipe, folder.path)
        write_files(folder.path, classifier, history, model_card(recipe, source.class_names))
        write_samples(folder.path, test if report else source.splits["train"])
        self.publish(source)
        if folder.writes:
            self.log(f"written {folder.output}")
            classifier = load_classifier(folder.output)
        return Finished(classifier, report, history)

    def publish(self, source: Source) -> None:
        """Gives the finished folder its name, and reports the images that were skipped."""
        if source.skipped:
            write_skipped(self.folder.path, source.skipped)
        self.folder.publish()
        for line in describe_skipped(source.skipped):
            self.log(line)
        if source.skipped:
            self.log(f"all skipped files are in {self.folder.output / SKIPPED}")


def evaluate(plan: TrainingPlan, model: Any, examples: Examples | None, **options: Any) -> Any:
    """Returns the report of a model on images of a run's data, by the task of the data.

    Args:
        plan: The run.
        model: The model, or its predictor.
        examples: The images.
        **options: More arguments of `classification.evaluate`.
    """
    return classification.evaluate(
        model,
        examples,
        plan.source.class_names,
        preprocessing=plan.start.preprocessing,
        batch_size=min(plan.settings.micro_batch_size, 64),
        **options,
    )


def record_split(folder: pathlib.Path, source: Source) -> None:
    """Writes which images a run trains on, chooses by and holds out, before its first step.

    Args:
        folder: The folder of the run. If it has a record, the run continues: what it trained on
            before the stop stays in the record, also where the data have changed.
        source: The images in splits.
    """
    record, before = SplitRecord.of(source.splits), SplitRecord.read(folder)
    if record is not None:
        (record if before is None else record.with_parts(before)).write(folder)


def with_note_of_seen(source: Source, record: SplitRecord | None) -> Source:
    """Returns a run's images with a line if the run of its weights has seen held-out ones.

    Args:
        source: The images in splits.
        record: What the run of the weights trained on; None if it is not known.
    """
    test = source.splits.get("test")
    numbers = None if record is None or test is None else test.fingerprints()
    if record is None or numbers is None:
        return source
    seen = int((record.has("train", numbers) | record.has("validation", numbers)).sum())
    if not seen:
        return source
    note = (
        f"{seen} of the {len(numbers)} test images were trained on, or chosen by, in the run of "
        "the weights: new images may have a lower accuracy"
    )
    return dataclasses.replace(source, notes=(*source.notes, note))


def choose_thresholds(
    plan: TrainingPlan, model: keras.Model
) -> tuple[tuple[float, ...] | None, list[str]]:
    """Returns the threshold of each class of multi-label data, and lines that print them.

    They are chosen on the validation images; without any, each is 0.5.

    Args:
        plan: The run.
        model: The model with its best weights, giving probabilities.
    """
    names = plan.source.class_names
    if plan.source.task != MULTILABEL:
        return None, []
    if plan.validation is None:
        thresholds: tuple[float, ...] = (DEFAULT_THRESHOLD,) * len(names)
        return thresholds, [f"labels  probability above {DEFAULT_THRESHOLD}, no validation images"]
    report = evaluate(plan, model, plan.validation)
    thresholds = report.best_thresholds
    shown = [f"{name} {value:.3g}" for name, value in zip(names, thresholds, strict=True)]
    lines = [f"labels  probability above (best F1 in validation): {_first(shown)}"]
    absent = [name for name, n in zip(names, report.counts.images, strict=True) if not n]
    if absent:
        chosen = f"labels  {DEFAULT_THRESHOLD} where no validation image has the label"
        lines.append(f"{chosen}: {_first(absent)}")
    counts = [(int(n), report.count - int(n)) for n in report.counts.images]
    few = [
        f"{name} {present} with, {without} without"
        for name, (present, without) in zip(names, counts, strict=True)
        if present and min(present, without) < FEW_IMAGES
    ]
    if few:
        chosen = f"labels  warning: chosen from fewer than {FEW_IMAGES} validation images with or"
        lines.append(f"{chosen} without the label, so it may be far off: {_first(few)}")
    return thresholds, lines


def _first(texts):
    return ", ".join(texts[:_MAX_LISTED]) + (", ..." if len(texts) > _MAX_LISTED else "")


class FineTune(Job):
    """The job of `keras-vit finetune`; see `Job`."""

    settings_type = FineTuning

    def find_start(self, settings: FineTuning) -> Start:
        size = settings.image_size
        if size is None and settings.recipe != HYPER_RULE_NAME:
            size = (HIGHER_RESOLUTION, HIGHER_RESOLUTION)
        return find_start(
            settings.model,
            settings.weights,
            size,
            num_heads=settings.num_heads,
            gelu=settings.gelu,
            normalization=settings.normalization,
            position_resize=settings.position_resize,
        )

    def open(self, start: Start, *, download: bool = True) -> Source:
        source = super().open(start, download=download)
        share = self.settings.validation_share
        source = extend(source, start.opened, self.settings, share, download=download)
        return with_note_of_seen(source, SplitRecord.read(start.opened.folder))

    def build(self, start, settings, num_classes):
        model, report = _build_classifier(start, settings, num_classes)
        choose_trained(
            model, settings.train, lora_rank=settings.lora_rank, lora_alpha=settings.lora_alpha
        )
        if report is None:
            return model, "random"
        origin = str(settings.weights) + (
            ", a new head of zeros" if start.head_rows is None else ""
        )
        if report.resized:
            grids = {f"{a}x{b} to {c}x{d}" for (a, b), (c, d) in report.resized.values()}
            origin += f", positions interpolated from {', '.join(sorted(grids))} patches"
        return model, origin


class Pretrain(Job):
    """The job of `keras-vit pretrain`; see `Job`."""

    settings_type = PreTraining

    def find_start(self, settings: PreTraining) -> Start:
        return find_start(settings.model, None)

    def build(self, start, settings, num_classes):
        model, _ = _build_classifier(start, settings, num_classes)
        return model, "random"


def _settings_of(recipe):
    """The settings of an unfinished run, also of one from before facts were read."""
    settings = recipe["settings"]
    if "facts" in recipe or recipe["job"] != FineTuning.command:
        return settings
    gelu = recipe.get("config", {}).get("gelu")
    return {**settings, "normalization": "half", "head": "new", "gelu": gelu}


def _build_classifier(start, settings, num_classes):
    return build_model(
        start,
        classes=num_classes,
        image_size=settings.image_size,
        dropout_rate=settings.dropout_rate,
        stochastic_depth_rate=settings.stochastic_depth_rate,
        remat=settings.remat,
        head_bias=settings.head_bias,
    )
