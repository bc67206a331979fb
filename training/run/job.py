"""A training run from data to a folder: its plan, its training and its end."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import keras
import numpy as np

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
from keras_vit.training.evaluation.predictions import weights_hash
from keras_vit.training.evaluation.results import pretraining_fields, versions
from keras_vit.training.recipes import HYPER_RULE_NAME
from keras_vit.training.settings import Settings
from keras_vit.training.trainer.devices import Place
from keras_vit.training.trainer.trainer import Trainer
from keras_vit.utils.files import RECIPE, write_text
from keras_vit.utils.json_files import changed_fields

from .distillation import open_teacher
from .folder import RunFolder, unfinished_recipe
from .loop import Score, check_callbacks, train
from .plan import TrainingPlan, choose_accumulation, describe_plan, expected_time
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
        contents = None
        if self.folder.resume or self.folder.writes:
            contents = read_contents(plan.source.splits)
            hashes = {
                "images": images_hash(plan.source, contents),
                "weights": weights_hash(model),  # Before the first step.
            }
            plan = dataclasses.replace(plan, recipe={**plan.recipe, "hashes": hashes})
        if self.folder.resume:
            self._check_data(plan)
            plan = self._with_versions(plan)
        start_step = self.folder.checkpoints.restore(trainer) if self.folder.resume else 0
        batches = _batches(plan, place, start_step)
        if not self.folder.resume:
            self.folder.start(plan.recipe)  # The first write: all errors of the input are past.
        if contents is not None and self.folder.writes:
            record_split(self.folder.path, contents)
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

    def _check_data(self, plan):
        """Raises ValueError if a resumed run has other images than it began with."""
        hashes, source = plan.recipe["hashes"], plan.source
        if hashes["images"] == self.unfinished["hashes"]["images"]:
            return
        record = SplitRecord.read(self.folder.shared)
        found = [] if record is None else record.differences(source.splits)
        changes = "; ".join(found) or "other bytes, names or classes, or another order"
        if not self.options.changed_data:
            raise ValueError(
                "A resumed run must have the images that it began with; with --changed-data "
                f"(changed_data=True) it goes on with the present ones. Received: {changes}"
            )
        self.options.log(f"The images have changed since the run began: {changes}")
        for line in notes_of_seen(source.splits, record, "before the run was stopped"):
            self.options.log(line)
        if self.folder.writes:  # The run may be stopped and resumed again.
            self.unfinished["hashes"]["images"] = hashes["images"]
            text = json.dumps(self.unfinished, indent=2) + "\n"
            write_text(self.folder.path / RECIPE, text)

    def _with_versions(self, plan):
        """The plan with the versions at the start of a resumed run, if there are others now."""
        before, now = self.unfinished["versions"], plan.recipe["versions"]
        changed = [
            f"{name} {now.get(name)}, before {before.get(name)}"
            for name in sorted({*before, *now})
            if before.get(name) != now.get(name)
        ]
        if not changed:
            return plan
        self.options.log(
            "The run goes on with other packages than it began with, so its numbers may "
            f"differ from a run without a stop: {'; '.join(changed)}"
        )
        return dataclasses.replace(plan, recipe={**plan.recipe, "versions_before": before})

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
        skipped = [[self.data.relative(path), reason] for path, reason in plan.source.skipped]
        return {**without_paths(recipe), **({"skipped": skipped} if skipped else {})}

    def publish(self, source: Source) -> None:
        """Gives the finished folder its name, and reports the images that were skipped."""
        self.folder.publish()
        for line in describe_skipped(source.skipped):
            self.options.log(line)
        if source.skipped:
            self.options.log(f"all skipped files are in {self.folder.output / RECIPE}")


def images_hash(source: Source, contents: Mapping[str, Contents | None]) -> str:
    """Returns the SHA-256 of the images of a run in their order, with class and part.

    Images in record files are known by their names, all others by their bytes.

    Args:
        source: The images in splits.
        contents: Their `read_contents`.
    """
    digest = hashlib.sha256(repr(source.class_names).encode())
    for part, examples in source.splits.items():
        known = contents[part]
        read = np.zeros((len(examples), 32), "uint8") if known is None else known.sha256
        for name, label, image in zip(examples.names, examples.labels, read, strict=True):
            what = image.tobytes() if image.any() else name.encode("utf-8", "surrogateescape")
            digest.update(f"\n{part} ".encode() + np.asarray(label).tobytes() + what)
    return digest.hexdigest()


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
