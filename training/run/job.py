"""A training run from data to a folder: its plan, its training and its end."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_vit.description.class_labels import MULTILABEL, SCORES
from keras_vit.description.recipe import Fact, Recipe
from keras_vit.description.without_paths import command_hash, without_paths
from keras_vit.images.decoding import reading_error
from keras_vit.training.data import Source
from keras_vit.training.data.augmentations import check_augmentation, make_layers
from keras_vit.training.data.image_files import FileExamples, verify_files
from keras_vit.training.data.sources import describe_skipped
from keras_vit.training.data.spec import Data, DataSpec, check_output, data_spec
from keras_vit.training.data.split_record import SplitRecord, read_fingerprints
from keras_vit.training.data.tfrecords import NotPrepared
from keras_vit.training.data.things import InFirst, record_of
from keras_vit.training.evaluation.predictions import weights_hash
from keras_vit.training.evaluation.references import larger_size
from keras_vit.training.evaluation.results import pretraining_fields
from keras_vit.training.settings import MaskedPatches, RunOptions, Settings
from keras_vit.utils.fields import flag_of
from keras_vit.utils.files import RECIPE, SPLIT, atomic_write

from .card import describe_plan, write_run_page
from .decision import Answering, Thresholds
from .distillation import Teacher
from .folder import IMAGES, RunFolder, unfinished_recipe
from .head_start import HeadStart, SimpleReference
from .images import RunImages, find_start, image_numbers, open_images, with_fixed_repositories
from .machine import Machine
from .masked_patches import check_masked_patches
from .settle import Settled, Stage, settle

STAGES: tuple[type[Stage], ...] = (SimpleReference, HeadStart, Teacher, Thresholds, Answering)

CALIBRATION = 0.1  # The share of the training images for calibration that --max-error takes.


class Job:
    """A training run: its data, folder and settings, and those that a resumed run began with.

    Args:
        data: The data. With `resume` the unfinished run's data are used instead; in-memory data
            must be passed again.
        options: Where it writes, and whether it starts or continues.
        settings: The recipe, whose class says what is trained: `FineTuning`, `PreTraining` or
            `MaskedPatches`. With `resume` the unfinished run's settings are used instead.
        images_before: Images of a run of the same photos, whose things are not looked for again.

    Raises:
        ValueError: If the output cannot be written, there is no run to resume or it began with
            other settings or data.
    """

    def __init__(
        self,
        data: DataSpec,
        options: RunOptions,
        settings: Settings,
        images_before: RunImages | None = None,
    ):
        self.data = data
        self.images_before = images_before
        self.options = options
        self.settings = settings
        self.begun = Recipe()  # The recipe of the unfinished run.
        self.excluded: tuple[str, ...] = ()  # Images that a resumed run goes on without, from now.
        self.images: RunImages | None = None
        self.stages: list[Stage] = []
        self.recipe = Recipe()  # What is recorded; it grows.
        self.fingerprints: Mapping[str, np.ndarray | None] = {}  # `read_fingerprints`.
        self.numbers = np.array([], "uint64")  # Their `image_numbers`.
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
                if field.name in ("exclude", "checked"):  # Its files are in the other fields.
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
        """Keeps other processes from the folder.

        Raises:
            ValueError: If an image cannot be read any more, with its name.
        """
        with self.folder.locked():
            try:
                yield
            except Exception as error:
                if (reason := reading_error(error)) is not None:
                    raise ValueError(self._unreadable(reason)) from error
                raise

    def _unreadable(self, reason):
        parts = self.images.source.splits.values() if self.images else ()
        paths = [name for part in parts if isinstance(part, FileExamples) for name in part.names]
        damaged = [f"{paths[place]}: {why}" for place, why in verify_files(paths).reasons.items()]
        return (
            "The images must be whole while they are read: restore them, or leave them out with "
            "--resume --exclude LIST, a file with their paths. "
            f"Received: {'; '.join(damaged[:3]) or reason}"
        )

    def check_unchanged(self, plan: Settled, model: keras.Model) -> None:
        """Notes the hashes of images and first weights; a resumed run must have its own images.

        Args:
            plan: What was settled.
            model: The model before the first step.

        Raises:
            ValueError: If a resumed run has other images than it began with.
        """
        if not (self.folder.resume or self.folder.writes):
            return
        source = plan.source
        self.fingerprints = read_fingerprints(source.splits)
        self.numbers = image_numbers(source, self.fingerprints)
        digest = hashlib.sha256(repr(source.class_names).encode() + self.numbers.tobytes())
        hashes = {"images": digest.hexdigest(), "weights": weights_hash(model)}
        command = self.begun.hashes.get("command") or command_hash(self.options.command)
        hashes["command"] = command
        self.recipe = dataclasses.replace(self.recipe, hashes=hashes)
        if not self.folder.resume:
            return
        is_same = hashes["images"] == self.begun.hashes.get("images")
        if self.excluded:  # The others are the same, and no more are missing.
            before = np.load(self.folder.shared / IMAGES)
            missing = len(before) - len(self.numbers)
            is_same = np.isin(self.numbers, before).all() and missing <= len(self.excluded)
        if not is_same:
            record = SplitRecord.read(self.folder.shared)
            differences = [] if record is None else record.differences(source.splits)
            changes = "; ".join(differences) or "other bytes, names or classes, or another order"
            raise ValueError(
                "A resumed run must have the images that it began with: restore them, leave out "
                "those that are gone (--exclude LIST, their paths), or start another run. "
                f"Received: {changes}"
            )
        before = self.begun.versions
        if before != self.recipe.versions:
            self.recipe = dataclasses.replace(self.recipe, versions_before=before)
            self.options.log(
                "The run goes on with other packages than it began with, so its numbers may differ "
                "from a run without a stop; recipe.json has the versions_before"
            )

    def begin(self, plan: Settled, start_step: int = 0) -> None:
        """Writes the folder before the first step: recipe, split and the first page.

        Args:
            plan: The plan.
            start_step: Steps that were done before.
        """
        if self.excluded:
            origin = f"--exclude and --resume after step {start_step}"
            fact = Fact(", ".join(self.data.exclude), origin)
            self.recipe = self.recipe.with_facts(excluded=fact)
        if start_step:
            resumed = [*(self.begun.resumed or ()), start_step]
            self.recipe = dataclasses.replace(self.recipe, resumed=resumed)
        if not self.folder.resume:
            self.folder.start(self.recipe)
        if not self.folder.writes:
            return
        with atomic_write(self.folder.path / IMAGES) as path:
            np.save(path, self.numbers)
        if self.folder.resume:
            self.folder.write_recipe(self.recipe)
        # Images that a run goes on without stay in the record: it has seen them.
        is_recorded = (self.folder.path / SPLIT).is_file() or "excluded" in self.recipe.facts
        if not is_recorded:
            record = record_of(plan.source, self.fingerprints)
            if record is not None:
                record.write(self.folder.path)
        if not self.folder.resume and plan.has_classes:
            write_run_page(self.folder, plan, self.data, self.recipe)

    def dry_run(self) -> str:
        """Returns a human-readable description of the run; trains, writes and fetches nothing.

        Data or a repository that would have to be downloaded are named instead.

        Raises:
            ValueError: If something does not fit; weights are not read.
        """
        try:
            plan = self.settle(download=False)
        except NotPrepared as missing:
            return f"{missing}. A dry run fetches nothing; the other lines need it"
        lines = {}
        if larger := self.size_to_try(plan):
            side, times = larger
            longer = f"a step takes {times:.1f} times as long"
            lines["larger size"] = f"{side}x{side} is tried first by a linear probe; {longer}"
        return describe_plan(plan, lines)

    def size_to_try(self, plan: Settled) -> tuple[int, float] | None:
        """Returns the side of larger images, whose size is open, and how many times as long a step
        takes; None where the size is not open or no larger one is worth its time.

        Args:
            plan: What is settled without it.
        """
        given = self.settings
        is_open = given.image_size is None and given.recipe is None and not self.folder.resume
        has_probe = any(isinstance(stage, HeadStart) for stage in plan.stages)
        if not is_open or not has_probe or plan.source.task == MULTILABEL:
            return None
        return larger_size(plan.config, plan.preprocessing.image_size, plan.images.photo_size)

    def settle(
        self,
        replicas: int = 1,
        *,
        download: bool = True,
        size: tuple[tuple[int, int], str] | None = None,
        in_first: InFirst | None = None,
    ) -> Settled:
        """Returns everything that is known before the model is built; writes nothing.

        Args:
            replicas: Devices that share a batch.
            download: Whether missing data and repositories are downloaded; see `open_source`.
            size: Pixels (height, width) in place of the settings', and why.
            in_first: See `find_things`; needed when the images are read.

        Raises:
            ValueError: If something does not fit; weights are not read.
        """
        given, size_from = with_fixed_repositories(self.settings, download=download), None
        if size is not None:
            given, size_from = dataclasses.replace(given, image_size=size[0]), size[1]
        check_augmentation(given.augmentation or "none")
        make_layers(given.layers)

        # Start: before the images are read, so that a wrong name fails at once.
        weights = find_start(given)
        if isinstance(given, MaskedPatches):
            check_masked_patches(weights.description.config, given)

        # Images: read once, whatever sizes are tried.
        if self.images is None:
            goes_without = bool(self.excluded) or "excluded" in self.begun.facts
            record = SplitRecord.read(self.folder.shared) if goes_without else None
            self.images = open_images(
                self.data,
                weights,
                given,
                record=record,
                download=download,
                log=self.options.log,
                in_first=in_first,
                things=self.images_before and self.images_before.source.things,
            )
            prepared = [kind.prepare(weights, self.images, given, self.begun) for kind in STAGES]
            self.stages = [stage for stage in prepared if stage is not None]

        # Settle.
        recorded = Recipe(
            command=self.options.command,
            description=self.begun.description,
            facts=self.begun.facts,
            data=self.data.to_json(),
            overwrite=self.folder.overwrite,
        )
        machine = Machine.of(given, replicas)
        return settle(
            weights, self.images, self.stages, given, recorded, machine, size_from=size_from
        )

    def finished_recipe(self, plan: Settled, **more: Any) -> Recipe:
        """Returns the content of `recipe.json` in the finished folder, which leaves this machine.

        The folder of the unfinished run has the whole paths, which `--resume` needs.

        Args:
            plan: The plan.
            **more: Further fields.
        """
        best = self.folder.best_score()
        score = SCORES[plan.source.task]
        named = best and {"step": best[0], score: best[1], "loss": best[2]}
        recipe = dataclasses.replace(self.recipe, best=named, **more)
        if plan.weights.folder:  # Its recipe is not found by a path without its folders.
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


def job_of(
    data: Data, output: str | os.PathLike, settings: Settings, options: Mapping[str, Any]
) -> Job:
    """Returns the job of the arguments of `finetune`.

    Args:
        data: The data, or a `DataSpec`.
        output: The folder to write.
        settings: The settings.
        options: Fields of `RunOptions` and `DataSpec`.

    Raises:
        TypeError: If an option is a field of neither.
        ValueError: As `Job`, or if a `DataSpec` and options of the data are given.
    """
    of_run, of_data = (
        {field.name for field in dataclasses.fields(kind)} for kind in (RunOptions, DataSpec)
    )
    if unknown := options.keys() - of_run - of_data:
        raise TypeError(
            "Options must be of the run or of the data; settings are the third argument, such as "
            f"{type(settings).__name__}(steps=500). Received: {', '.join(sorted(unknown))}"
        )
    run_options = {name: value for name, value in options.items() if name in of_run}
    data_options = {name: value for name, value in options.items() if name not in of_run}
    return Job(data_spec(data, **data_options), RunOptions(output, **run_options), settings)
