"""A training run from data to a folder: its plan, its training and its end."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_vit.description import Description, Labels, check_class_names
from keras_vit.description.class_labels import SCORES
from keras_vit.description.recipe import Fact, Recipe
from keras_vit.description.without_paths import without_paths
from keras_vit.images.decoding import reading_error
from keras_vit.opening import OpenedModel
from keras_vit.training.data import Source
from keras_vit.training.data.augmentations import check_augmentation, make_layers
from keras_vit.training.data.examples import class_weights, typical_size
from keras_vit.training.data.image_files import FileExamples, undecodable
from keras_vit.training.data.sources import describe_skipped
from keras_vit.training.data.spec import DataSpec, check_output
from keras_vit.training.data.split_record import (
    PARTS,
    SplitRecord,
    fingerprint,
    notes_of_seen,
    read_fingerprints,
)
from keras_vit.training.data.tfrecords import NotPrepared
from keras_vit.training.evaluation.predictions import weights_hash
from keras_vit.training.evaluation.references import describe_seen
from keras_vit.training.evaluation.results import pretraining_fields, versions
from keras_vit.training.evaluation.scores import counted
from keras_vit.training.recipes import HYPER_RULE_NAME
from keras_vit.training.settings import FineTuning, MaskedPatches
from keras_vit.training.trust.calibration_bound import check_counts
from keras_vit.utils.fields import flag_of, required
from keras_vit.utils.files import RECIPE, atomic_write
from keras_vit.utils.json_files import changed_fields

from .card import write_run_page
from .distillation import open_teacher
from .folder import IMAGES, RunFolder, unfinished_recipe
from .head_start import starts_with_probe
from .loop import make_schedule
from .masked_patches import check_masked_patches
from .plan import (
    TrainingPlan,
    choose_accumulation,
    choose_precision,
    choose_samples,
    describe_plan,
    expected_time,
    facts_of_computation,
)
from .run_options import RunOptions
from .transfer import (
    by_record,
    extend,
    extends_head,
    facts_of,
    find_start,
    settle,
    with_fixed_repositories,
)

CALIBRATION = 0.1  # The share of the training images for calibration that --max-error takes.
_DROPPED = "the bound of the weights does not hold for other weights; "
_UNWEIGHTED = (
    "class weights are in the loss of training alone; the head's start and the choice of the best "
    "weights count each image once"
)


class Job:
    """A training run: its data, folder and settings, and those that a resumed run began with.

    Args:
        data: The data. With `resume` the unfinished run's data are used instead; in-memory data
            must be passed again.
        options: Where it writes, and whether it starts or continues.
        settings: The recipe, whose class says what is trained: `FineTuning`, `PreTraining` or
            `MaskedPatches`. With `resume` the unfinished run's settings are used instead.

    Raises:
        ValueError: If the output cannot be written, there is no run to resume or it began with
            other settings or data.
    """

    def __init__(self, data: DataSpec, options: RunOptions, settings: Any):
        self.data = data
        self.options = options
        self.settings = settings
        self.begun = Recipe()  # The recipe of the unfinished run.
        self.excluded: tuple[str, ...] = ()  # Images that a resumed run goes on without, from now.
        self.source: Source | None = None
        # The image size in place of the settings', and why.
        self.chosen_size: tuple[tuple[int, int], str] | None = None
        output, overwrite, command = options.output, options.overwrite, options.command
        # The same command again, as a restarted machine gives it, continues the run.
        is_repeated = command != "" and command == unfinished_recipe(output).command
        resume = options.resume or (is_repeated and not overwrite)
        self.folder = RunFolder(output, resume=resume, overwrite=overwrite)
        if resume:
            recipe = self.folder.recipe(settings.command)
            self.settings = type(settings).from_json(recipe.settings)
            self.begun = recipe
            self.data = DataSpec.of_recipe(recipe, self.data)
            if options.resume:
                begun = self.data.exclude
                self.excluded = tuple(name for name in data.exclude if name not in begun)
                self.data = dataclasses.replace(self.data, exclude=(*begun, *self.excluded))
                self._check_options(settings, data)
            self.options = dataclasses.replace(options, command=recipe.command)
        else:
            check_output(output, self.data.data)
        if self.settings.decision is not None and not self.data.calibration:
            self.data = dataclasses.replace(self.data, calibration=CALIBRATION)
        if self.data.split_seed is None:
            self.data = dataclasses.replace(self.data, split_seed=self.settings.seed)

    def _check_options(self, settings, data):
        """Raises ValueError if a resumed run was given other options than it began with."""
        begun, given, changed = {**vars(self.data), **vars(self.settings)}, self.options.given, []
        if "epochs" in self.begun.facts:
            begun["epochs"] = self.begun.facts["epochs"].value
        for options in (settings, data):
            for field in dataclasses.fields(options):
                if field.name == "exclude":
                    continue
                value, before = getattr(options, field.name), begun[field.name]
                was_given = value != field.default if given is None else field.name in given
                # A repository is recorded with its commit.
                if was_given and value != before and not f"{before}".startswith(f"{value}@"):
                    changed.append(f"{flag_of(field)} {value!s:.80}, begun with {before!s:.80}")
        if changed:
            raise ValueError(
                "A resumed run must have the options that it began with: leave these out, or start "
                f"a run with another output. Received: {'; '.join(changed)}"
            )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Keeps other processes from the folder; an error says what the run is good for.

        Raises:
            ValueError: If an image cannot be read any more, with its name.
        """
        with self.folder.locked():
            try:
                yield
            except Exception as error:
                if (reason := reading_error(error)) is not None:
                    raise ValueError(self._unreadable(reason) + self.folder.advice()) from error
                if isinstance(error, ValueError):
                    error.args = (f"{error}{self.folder.advice()}",)
                raise

    def _unreadable(self, reason):
        parts = self.source.splits.values() if self.source else ()
        paths = [name for part in parts if isinstance(part, FileExamples) for name in part.names]
        found = [f"{paths[place]}: {why}" for place, why in undecodable(paths)]
        return (
            "The images must be whole while they are read: restore them, or leave them out with "
            "--resume --exclude LIST, a file with their paths. "
            f"Received: {'; '.join(found[:3]) or reason}"
        )

    def check_unchanged(self, plan: TrainingPlan, model: keras.Model) -> None:
        """Notes the hashes of images and first weights; a resumed run must have its own images.

        Args:
            plan: The plan, whose recipe gets the hashes.
            model: The model before the first step.

        Raises:
            ValueError: If a resumed run has other images than it began with.
        """
        if not (self.folder.resume or self.folder.writes):
            return
        source = plan.source
        plan.fingerprints = read_fingerprints(source.splits)
        plan.numbers = image_numbers(source, plan.fingerprints)
        digest = hashlib.sha256(repr(source.class_names).encode() + plan.numbers.tobytes())
        hashes = {"images": digest.hexdigest(), "weights": weights_hash(model)}
        plan.recipe = dataclasses.replace(plan.recipe, hashes=hashes)
        if not self.folder.resume:
            return
        is_same = hashes["images"] == self.begun.hashes.get("images")
        if self.excluded:  # The others are the same, and no more are missing.
            before = np.load(self.folder.shared / IMAGES)
            missing = len(before) - len(plan.numbers)
            is_same = np.isin(plan.numbers, before).all() and missing <= len(self.excluded)
        if not is_same:
            record = SplitRecord.read(self.folder.shared)
            found = [] if record is None else record.differences(source.splits)
            changes = "; ".join(found) or "other bytes, names or classes, or another order"
            raise ValueError(
                "A resumed run must have the images that it began with: restore them, leave out "
                "those that are gone (--exclude LIST, their paths), or start another run. "
                f"Received: {changes}"
            )
        now = facts_of_computation(plan.settings, plan.config)
        if now.keys() != self.begun.facts.keys() & {"attention", "resumes"}:
            self.options.log(
                "The run goes on on another device than it began on, so its numbers differ from a "
                "run without a stop by rounding"
            )
        versions_before, versions_now = self.begun.versions, plan.recipe.versions
        if versions_before != versions_now:
            plan.recipe = dataclasses.replace(plan.recipe, versions_before=versions_before)
            changed = [
                f"{name} {versions_now.get(name)}, before {versions_before.get(name)}"
                for name in sorted({*versions_before, *versions_now})
                if versions_before.get(name) != versions_now.get(name)
            ]
            self.options.log(
                "The run goes on with other packages than it began with, so its numbers may "
                f"differ from a run without a stop: {'; '.join(changed)}"
            )

    def begin(self, plan: TrainingPlan, start_step: int = 0) -> None:
        """Writes the folder before the first step: recipe, split and the first page.

        Args:
            plan: The plan.
            start_step: Steps that were done before.
        """
        if self.excluded:
            origin = f"--exclude and --resume after step {start_step}"
            fact = Fact(", ".join(self.data.exclude), origin)
            plan.recipe = plan.recipe.with_facts(excluded=fact)
        if not self.folder.resume:
            self.folder.start(plan.recipe)
        if not self.folder.writes:
            return
        with atomic_write(self.folder.path / IMAGES) as path:
            np.save(path, plan.numbers)
        if self.excluded:
            self.folder.write_recipe(plan.recipe)
        record = SplitRecord.of(plan.fingerprints)
        # Images that a run goes on without stay in the record: it has seen them.
        if record is not None and "excluded" not in plan.recipe.facts:
            record.write(self.folder.path)
        if not self.folder.resume and plan.has_classes:
            write_run_page(self.folder.path, plan, self.data)

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
        if self.chosen_size is not None:
            settings = dataclasses.replace(settings, image_size=self.chosen_size[0])
        check_augmentation(settings.augmentation or "none")
        make_layers(settings.layers)
        opened = find_start(settings)  # Before the data are read: a wrong name fails at once.
        if isinstance(settings, MaskedPatches):
            check_masked_patches(opened.description.config, settings)

        # The data, and the steps that follow from their number.
        source = self.source or self._open(opened, download)
        counts = {name: len(source.splits.get(name, ())) for name in PARTS}
        num_images = counts["train"] + counts["validation"]
        by_data = settings.recipe == HYPER_RULE_NAME and settings.image_size is None
        size = typical_size(source.splits["train"]) if by_data else None
        epochs, settings = settings.epochs, settings.with_epochs(counts["train"])
        steps = settings.steps
        settings = choose_precision(settings.resolve(num_images, size, source.task))
        if settings.patience and not counts["validation"]:
            raise ValueError(
                "patience needs validation images, which show when there is nothing more to gain. "
                f"Received: patience={settings.patience}, none of them"
            )

        # What the model takes from the weights, and where each fact is from.
        labels = Labels(source.class_names or None, source.task)
        description, rows, settings = settle(opened, settings, labels)
        make_schedule(settings)  # Raises if warm-up, cool-down or boundaries do not fit.
        preprocessing = required(description.preprocessing, "preprocessing")
        if self.chosen_size is not None:
            origins = {**description.origins, "image_size": self.chosen_size[1]}
            description = dataclasses.replace(description, origins=origins)
        if self.begun.description:  # Where its facts were from at the start.
            before = Description.from_json(self.begun.description, RECIPE)
            description = dataclasses.replace(description, origins=before.origins)
        facts = facts_of(description, rows is None)
        photo = typical_size(source.splits["train"], 20)
        seen = describe_seen(description.config, preprocessing.image_size, photo)
        facts["photos"] = Fact(list(photo), seen)
        if opened.description.labels.abstains:
            bound = settings.decision and f"a new one of {settings.max_error:.1%} is looked for"
            origin = _DROPPED + (bound or "--max-error finds a new one")
            facts["unknown"] = Fact("dropped", origin)
        if epochs is not None:
            images = f"{counts['train']} images in batches of {settings.batch_size}"
            facts["epochs"] = Fact(epochs, f"{steps} steps: {images}")

        # Classes of unequal size, the teacher, and the memory.
        weights = teacher = samples = None
        if settings.class_weights is not None:
            if "class_weights" in self.begun.facts:
                by_class = self.begun.facts["class_weights"].value
                weights = [by_class[name] for name in source.class_names]
            else:
                numbers = source.splits["train"].labels
                weights = class_weights(numbers, source.class_names)
            by_name = dict(zip(source.class_names, weights, strict=True))
            facts["class_weights"] = Fact(by_name, settings.class_weights)
            source = dataclasses.replace(source, notes=(*source.notes, _UNWEIGHTED))
        if name := getattr(settings, "teacher", None):
            fact = self.begun.facts.get("teacher")
            teacher = open_teacher(name, source.class_names, preprocessing, fact)
            facts["teacher"] = teacher.fact
        facts |= facts_of_computation(settings, description.config)
        settings = choose_accumulation(settings, description.config, replicas=replicas)
        if source.class_names:  # What would be an error at the end is one now.
            check_class_names(labels.output_names)
            samples = choose_samples(settings.samples, source, preprocessing.image_size)

        recipe = Recipe(
            job=settings.command,
            command=self.options.command,
            description=description.to_json(),
            model=description.name,
            config=changed_fields(description.config),
            settings=settings.to_json(),
            facts={**facts, **self.begun.facts},
            preprocessing=preprocessing.to_fields(),
            data=self.data.to_json(),
            overwrite=self.folder.overwrite,
            classes=len(source.class_names),
            task=source.task,
            images={**counts, "skipped": len(source.skipped)},
            versions=versions(),
        )
        self.source = source
        plan = TrainingPlan(
            opened, description, rows, source, settings, recipe, weights, teacher, samples
        )
        if settings.decision is not None:  # Too few for a bound is an error before the first step.
            held_out, _ = counted(source.splits["calibration"], source.groups, lambda line: None)
            check_counts(held_out.labels, labels, settings.decision)
        if starts_with_probe(plan):
            start = Fact("linear probe", "solved before the first step")
            facts = {"head_start": start, **recipe.facts}
            plan.recipe = dataclasses.replace(recipe, facts=facts)
        return plan

    def _open(self, weights: OpenedModel, download: bool) -> Source:
        """Returns the images in splits, with the classes and images of the weights to extend."""
        settings, share = self.settings, self.settings.validation_share
        how: dict[str, Any] = {"download": download}
        if isinstance(settings, MaskedPatches):
            how["labelled"] = False
        elif isinstance(settings, FineTuning) and extends_head(settings):
            how["min_classes"] = 1  # The weights have other classes.
        else:
            how["trained"] = True
        if self.excluded or "excluded" in self.begun.facts:
            # Each of the others is in the part that it had, whatever a new choice would be.
            record = SplitRecord.read(self.folder.shared)
            source = record and by_record(self.data, record, share, **how)
            if source is None:
                raise ValueError(
                    "A run goes on without some of its images where they are files. Received: "
                    f"{self.data.name}"
                )
        else:
            source = self.data.open(share, **how)
        if not isinstance(settings, FineTuning):
            return source
        source = extend(source, weights, settings, share, download=download)
        record = SplitRecord.read(weights.folder)
        notes = notes_of_seen(source.splits, record, "in the run of the weights")
        return dataclasses.replace(source, notes=(*source.notes, *notes))

    def finished_recipe(self, plan: TrainingPlan, **more: Any) -> Recipe:
        """Returns the content of `recipe.json` in the finished folder, which leaves this machine.

        The folder of the unfinished run has the whole paths, which `--resume` needs.

        Args:
            plan: The plan.
            **more: Further fields.
        """
        best = self.folder.best_score()
        score = SCORES[plan.source.task]
        named = best and {"step": best[0], score: best[1], "loss": best[2]}
        recipe = dataclasses.replace(plan.recipe, best=named, **more)
        if plan.opened.folder:  # Its recipe is not found by the last part of its path.
            recipe = dataclasses.replace(recipe, pretraining=pretraining_fields(recipe))
        skipped = [[self.data.relative(path), reason] for path, reason in plan.source.skipped]
        reduced = Recipe.from_json(without_paths(recipe.to_json()))
        return dataclasses.replace(reduced, skipped=skipped or None)

    def publish(self, source: Source) -> None:
        """Gives the finished folder its name, and reports the images that were skipped."""
        self.folder.publish()
        for line in describe_skipped(source.skipped):
            self.options.log(line)
        if source.skipped:
            self.options.log(f"all skipped files are in {self.folder.output / RECIPE}")


def image_numbers(source: Source, fingerprints: Mapping[str, np.ndarray | None]) -> np.ndarray:
    """Returns a number for each image of a run with its class and part, uint64 `(N,)`, in order.

    Images in record files are known by their names, all others by their bytes.

    Args:
        source: The images in splits.
        fingerprints: Their `read_fingerprints`.
    """
    numbers = []
    for part, examples in source.splits.items():
        known = fingerprints[part]
        read = np.zeros(len(examples), "uint64") if known is None else known
        for name, label, image in zip(examples.names, examples.labels, read, strict=True):
            what = image.tobytes() if image else name.encode("utf-8", "surrogateescape")
            numbers.append(fingerprint(f"{part} ".encode() + np.asarray(label).tobytes() + what))
    return np.array(numbers, "uint64")
