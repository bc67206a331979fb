"""A training run from data to a folder: its plan, its training and its end."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import keras

from keras_vit.description import Description, Labels
from keras_vit.description.tasks import SCORES
from keras_vit.description.without_paths import without_paths
from keras_vit.training.data import Source
from keras_vit.training.data.augmentations import check_augmentation
from keras_vit.training.data.class_balance import balanced, class_weights
from keras_vit.training.data.examples import typical_size
from keras_vit.training.data.outputs import check_output
from keras_vit.training.data.record_examples import NotPrepared
from keras_vit.training.data.sources import describe_skipped
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.data.split_record import (
    PARTS,
    Contents,
    SplitRecord,
    notes_of_seen,
    read_contents,
)
from keras_vit.training.evaluation.results import pretraining_fields, versions
from keras_vit.training.recipes import HYPER_RULE_NAME
from keras_vit.training.settings import Settings
from keras_vit.training.trainer.devices import Place
from keras_vit.training.trainer.trainer import Trainer
from keras_vit.utils.files import RECIPE, SKIPPED, write_skipped
from keras_vit.utils.json_files import changed_fields

from .data_record import DataRecord
from .distillation import open_teacher
from .folder import RunFolder, unfinished_recipe
from .loop import Score, check_callbacks, train
from .plan import TrainingPlan, choose_accumulation, describe_plan, expected_time
from .run_fingerprints import differing_versions, fingerprints
from .run_options import RunOptions, changed_options
from .trainer_setup import make_schedule, not_decayed
from .transfer import Start, dtype_policy, settle, with_fixed_repositories


class Job:
    """A training run from data to a folder.

    A subclass has the class of its settings, `find_start`, `build`, `make_trainer`, `validation`
    and `finish`.

    Args:
        data: The data. With `resume` the unfinished run's data are used instead; in-memory data
            must be passed again.
        options: Where it writes, and whether it starts or continues.
        settings: The recipe; the paper's by default. With `resume` the unfinished run's
            settings are used instead.

    Raises:
        ValueError: If the output cannot be written, there is no run to resume or it began with
            other settings or data, or a callback is none of Keras.
    """

    settings_type: ClassVar[type[Settings]]

    def __init__(self, data: DataSpec, options: RunOptions, settings: Settings | None = None):
        check_callbacks(options.callbacks)
        self.data = data
        self.options = options
        self.settings: Any = settings or self.settings_type()
        self.unfinished: dict[str, Any] = {}  # The recipe of the unfinished run.
        output, overwrite, command = options.output, options.overwrite, options.command
        # The same command again, as a restarted machine gives it, continues the run.
        unfinished_command = unfinished_recipe(output).get("command", "")
        resume = options.resume or (not overwrite and unfinished_command == command != "")
        self.folder = RunFolder(output, resume=resume, overwrite=overwrite)
        if resume:
            recipe = self.folder.recipe(self.settings_type.command)
            self.settings = self.settings_type.from_json(recipe["settings"])
            self.unfinished = recipe
            self.data = DataSpec.from_recipe_json(recipe, self.data)
            if options.resume:
                self._check_options(settings, data)
            self.options = dataclasses.replace(options, command=recipe["command"])
        else:
            check_output(output, self.data.data)
        if self.data.split_seed is None:
            self.data = dataclasses.replace(self.data, split_seed=self.settings.seed)

    def _check_options(self, settings, data):
        """Raises ValueError if a resumed run was given other options than it began with."""
        begun = {**vars(self.data), **vars(self.settings)}
        if epochs := (self.unfinished.get("facts") or {}).get("epochs"):
            begun["epochs"] = epochs["value"]
        changed = [
            text
            for options in (settings, data)
            if options is not None
            for text in changed_options(options, begun, self.options.given)
        ]
        if changed:
            raise ValueError(
                "A resumed run must have the options that it began with: leave these out, or start "
                f"a run with another output. Received: {'; '.join(changed)}"
            )

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
        settings = plan.settings
        keras.utils.set_random_seed(settings.seed)
        with dtype_policy(settings.precision), place.scope():
            model, weights = self.build(plan.start, settings, len(plan.source.class_names))
            trainer = self.make_trainer(model, plan)
        self.check(plan, model)
        contents = record = None
        if self.folder.resume or self.folder.writes:
            contents = read_contents(plan.source.splits)
            record = DataRecord.of(plan.source, contents, self.data)
            plan = self._with_fingerprints(plan, record, model)
        if self.folder.resume:
            self._check_data(record, plan.source)
            self._report_versions(plan.recipe)
        start_step = self.folder.checkpoints.restore(trainer) if self.folder.resume else 0
        batches = _batches(plan, place, start_step)
        if not self.folder.resume:
            self.folder.start(plan.recipe)  # The first write: all errors of the input are past.
        if record is not None and contents is not None and self.folder.writes:
            record_split(self.folder.path, contents)
            record.write(self.folder.path)
        if not self.folder.resume and self.folder.writes:
            self.started(plan)
        lines = {"weights": weights}
        if settings.weight_decay:
            lines["not decayed"] = ", ".join(not_decayed(trainer))
        if start_step:
            lines["resumed"] = f"after step {start_step}"
        self.options.log(describe_plan(plan, lines))
        history = train(
            trainer,
            batches,
            self.folder,
            settings,
            start_step=start_step,
            validate=None if plan.validation is None else self.validation(trainer, plan),
            task=plan.source.task,
            callbacks=self.options.callbacks,
        )
        skipped = int(keras.ops.convert_to_numpy(trainer.skipped_steps))
        plan = dataclasses.replace(plan, recipe={**plan.recipe, "skipped_steps": skipped})
        finished = self.finish(plan, model, history)
        place.leave()
        return finished

    def _with_fingerprints(self, plan, record, model):
        """The plan whose recipe says what decides the numbers; of a resumed run what it began with.

        A run that is resumed with other packages has the versions of both in its recipe.
        """
        found = fingerprints(record, model)
        before = self.unfinished.get("fingerprints", {})
        more: dict[str, Any] = {"fingerprints": {**found, **before, "data": found["data"]}}
        if self.folder.resume and "fingerprints" not in self.unfinished:
            more = {}  # Begun by an earlier version: the first weights are not known any more.
        versions_before = self.unfinished.get("versions", {})
        if versions_before and differing_versions(versions_before, plan.recipe["versions"]):
            more["versions_before"] = versions_before
        return dataclasses.replace(plan, recipe={**plan.recipe, **more})

    def _report_versions(self, recipe):
        """Prints which packages have other versions than when the run began."""
        if "versions_before" in recipe:
            found = differing_versions(recipe["versions_before"], recipe["versions"])
            self.options.log(
                "The run goes on with other packages than it began with, so its numbers may "
                f"differ from a run without a stop: {'; '.join(found)}"
            )

    def _check_data(self, record, source):
        """Raises ValueError if a resumed run has other images than it began with."""
        before = DataRecord.read(self.folder.shared)
        changes = "; ".join([] if before is None else before.differences(record))
        if changes and not self.options.changed_data:
            raise ValueError(
                "A resumed run must have the images that it began with; with --changed-data "
                f"(changed_data=True) it goes on with the present ones. Received: {changes}"
            )
        if changes:
            self.options.log(f"The images have changed since the run began: {changes}")
            recorded = SplitRecord.read(self.folder.shared)
            for line in notes_of_seen(source.splits, recorded, "before the run was stopped"):
                self.options.log(line)

    def dry_run(self) -> str:
        """Returns a human-readable description of the run; trains, writes and fetches nothing.

        Data or a repository that would have to be downloaded are named instead.

        Raises:
            ValueError: If something does not fit; weights are not read.
        """
        try:
            plan = self.plan(download=False)
            return describe_plan(plan, {"time": expected_time(plan)})
        except NotPrepared as missing:
            return f"{missing}. A dry run fetches nothing; the rest of the plan needs it"

    def plan(self, replicas: int = 1, *, download: bool = True) -> TrainingPlan:
        """Returns everything that is known before the model is built; writes nothing.

        Args:
            replicas: Devices that share a batch.
            download: Whether missing data and repositories are downloaded; see `open_source`.

        Raises:
            ValueError: If something does not fit; weights are not read.
        """
        settings = with_fixed_repositories(self.settings, download=download)
        check_augmentation(settings.augmentation)
        start = self.find_start(settings)  # Before the data are read: a wrong name fails at once.
        source = self.open(start, download=download)
        counts = {name: len(source.splits.get(name, ())) for name in PARTS}
        num_images = counts["train"] + counts["validation"]
        by_data = settings.recipe == HYPER_RULE_NAME and settings.image_size is None
        size = typical_size(source.splits["train"]) if by_data else None
        epochs, settings = settings.epochs, settings.with_epochs(counts["train"])
        steps = settings.steps
        settings = settings.resolve(num_images, size, source.task)
        if settings.patience and not counts["validation"]:
            raise ValueError(
                "patience needs validation images, which show when there is nothing more to gain. "
                f"Received: patience={settings.patience}, none of them"
            )
        start, settings = settle(start, settings, Labels(source.class_names or None, source.task))
        facts, weights = start.facts, None
        if epochs is not None:
            images = f"{counts['train']} images in batches of {settings.batch_size}"
            facts["epochs"] = {"value": epochs, "from": f"{steps} steps: {images}"}
        if settings.class_weights is not None:
            weights = self.weigh_classes(settings.class_weights, source)
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
            "command": self.options.command,
            "description": description.to_json(),
            "model": description.name,
            "config": changed_fields(start.config),
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

    def weigh_classes(self, balance: str, source: Source) -> list[float]:
        """Returns the weight of each class in the loss; a resumed run keeps its own.

        Args:
            balance: The setting `class_weights`.
            source: The images in splits.
        """
        if known := self.unfinished.get("facts", {}).get("class_weights"):
            return [known["value"][name] for name in source.class_names]
        return class_weights(balance, source.splits["train"].labels, source.class_names)

    def find_start(self, settings: Any) -> Start:
        """Returns the weights to start from, and what the model to train is."""
        raise NotImplementedError

    def open(self, start: Start, *, download: bool = True) -> Source:
        """Returns the images in splits."""
        share = self.settings.validation_share
        return self.data.open(share, trained=True, download=download)

    def check(self, plan: TrainingPlan, model: keras.Model | None = None) -> None:
        """Raises ValueError where `finish` would, before the first step.

        Args:
            plan: The plan.
            model: The model to train, once it is built.
        """

    def build(self, start: Start, settings: Any, num_classes: int) -> tuple[keras.Model, str]:
        """Returns the model to train, which gives logits, and a text on its weights' origin."""
        raise NotImplementedError

    def make_trainer(self, model: keras.Model, plan: TrainingPlan) -> Trainer:
        """Returns a compiled trainer."""
        raise NotImplementedError

    def validation(self, trainer: Trainer, plan: TrainingPlan) -> Callable[[], Score]:
        """Returns a function that evaluates the weights on the validation images.

        Its result has a `loss` and a `score`, by which the best weights are chosen.
        """
        raise NotImplementedError

    def started(self, plan: TrainingPlan) -> None:
        """Writes what one may look at while the model trains, before the first step.

        Args:
            plan: The plan.
        """

    def finish(self, plan: TrainingPlan, model: keras.Model, history: list) -> Any:
        """Writes the folder and gives it its name.

        Args:
            plan: The plan, with the number of skipped steps in its recipe.
            model: The model with its best weights.
            history: The rows of `history.csv`.
        """
        raise NotImplementedError

    def best(self, task: str) -> dict[str, float] | None:
        """Returns step, score and loss of the best validation; None without one."""
        best = self.folder.best_score()
        return best and {"step": best[0], SCORES[task]: best[1], "loss": best[2]}

    def finished_recipe(self, plan: TrainingPlan, **more: Any) -> dict[str, Any]:
        """Returns the content of `recipe.json` in the finished folder, which leaves this machine.

        The folder of the unfinished run has the whole paths, which `--resume` needs.

        Args:
            plan: The plan.
            **more: Further fields.
        """
        recipe = {**plan.recipe, **more}
        if plan.start.opened.folder:  # Its recipe is not found by the last part of its path.
            recipe["pretraining"] = pretraining_fields(recipe)
        return without_paths(recipe)

    def publish(self, source: Source) -> None:
        """Gives the finished folder its name, and reports the images that were skipped."""
        if source.skipped:
            named = [(self.data.relative(path), reason) for path, reason in source.skipped]
            write_skipped(self.folder.path, named)
        self.folder.publish()
        for line in describe_skipped(source.skipped):
            self.options.log(line)
        if source.skipped:
            self.options.log(f"all skipped files are in {self.folder.output / SKIPPED}")


def record_split(folder: pathlib.Path, contents: Mapping[str, Contents | None]) -> None:
    """Writes which images a run trains on, chooses by and holds out, before its first step.

    Args:
        folder: The folder of the run. If it has a record, the run continues: what it trained on
            before the stop stays in the record, also where the data have changed.
        contents: The images' `read_contents`.
    """
    fingerprints = {part: known and known.fingerprints for part, known in contents.items()}
    record, before = SplitRecord.of(fingerprints), SplitRecord.read(folder)
    if record is not None:
        (record if before is None else record.with_parts(before)).write(folder)


def _batches(plan, place, start_step=0):
    """The training batches of a plan from a step on."""
    settings = plan.settings
    return place.batches(
        plan.source.splits["train"],
        image_size=settings.image_size,
        batch_size=settings.batch_size,
        micro_batches=settings.accumulate,
        seed=settings.seed,
        augmentation=settings.augmentation,
        flip=settings.flip,
        evaluation=plan.start.preprocessing.evaluation,
        mixup=settings.mixup,
        resize=settings.resize,
        value_range=plan.start.preprocessing.value_range,
        start_step=start_step,
        num_classes=len(plan.source.class_names),
        data_service=settings.data_service,
    )
