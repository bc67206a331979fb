"""A training run: what it began with, its folder and its record, from its start to its end."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_vit.description.class_labels import SCORES
from keras_vit.description.run_record import Fact, RunRecord
from keras_vit.description.without_paths import command_hash, without_paths
from keras_vit.images.decoding import reading_error
from keras_vit.training.data import Source
from keras_vit.training.data.image_files import damaged_files
from keras_vit.training.data.labelled_files import describe_skipped
from keras_vit.training.data.labelled_images import Things
from keras_vit.training.data.spec import Data, DataSpec, check_output, data_spec
from keras_vit.training.data.split_record import SplitRecord
from keras_vit.training.data.things import record_of
from keras_vit.training.evaluation.predictions import weights_hash
from keras_vit.training.evaluation.results import pretraining_fields
from keras_vit.training.settings import RunOptions, Settings
from keras_vit.utils.fields import flag_of
from keras_vit.utils.files import RECIPE

from .folder import RunFolder, open_folder, unfinished_record
from .images import ImageContents, RunImages
from .machine import attention_as_it_began, changes_of_versions
from .plan import Plan

# Callbacks of Keras that act at the end of an epoch, and the setting that does so in a run.
_INSTEAD_OF_CALLBACKS = {
    keras.callbacks.EarlyStopping: "give patience=5, validations without a better one,",
    keras.callbacks.LearningRateScheduler: "give learning_rate, warmup_steps and decay",
    keras.callbacks.ReduceLROnPlateau: "give learning_rate, warmup_steps and decay",
}
CALIBRATION = 0.1  # The share of the training images for calibration that --max-error takes.


@dataclasses.dataclass
class Run:
    """A training run; see `start`. Its record grows, and it gets its images when they are open.

    Args:
        data: The data.
        options: Where it writes, and whether it starts or continues.
        settings: The settings, whose class says what is trained.
        folder: The folder that it writes.
        begun: The record that a resumed run began with; an empty one of a new run.
        excluded: Images that a resumed run goes on without, from now.
        things: The things of the same photos, which are not looked for again; None to look.
        record: What is recorded so far.
        images: The images; None until they are open.
    """

    data: DataSpec
    options: RunOptions
    settings: Settings
    folder: RunFolder
    begun: RunRecord
    excluded: tuple[str, ...]
    things: Things | None
    record: RunRecord
    images: RunImages | None = None

    def add(self, more: RunRecord) -> None:
        """Adds the values of another record to the run's."""
        self.record = self.record.add(more)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Keeps other processes from the folder, and attention on the path that it began with.

        Raises:
            ValueError: If an image cannot be read any more, with its name.
        """
        with self.folder.locked(), attention_as_it_began(self.begun):
            try:
                yield
            except Exception as error:
                if (reason := reading_error(error)) is not None:
                    raise ValueError(self._unreadable(reason)) from error
                raise

    def _unreadable(self, reason):
        damaged = damaged_files(self.images.source.splits.values() if self.images else ())
        return (
            "The images must be whole while they are read: restore them, or leave them out with "
            "--resume --exclude LIST, a file with their paths. "
            f"Received: {'; '.join(damaged[:3]) or reason}"
        )

    def check_unchanged(self, source: Source, model: keras.Model) -> ImageContents:
        """Records the hashes of images and first weights; a resumed run must have its own images.

        Args:
            source: The images in parts.
            model: The model before the first step.

        Raises:
            ValueError: If a resumed run has other images than it began with.
        """
        if not (self.folder.resume or self.folder.writes):
            return ImageContents({}, np.array([], "uint64"))
        contents = ImageContents.of(source)
        digest = hashlib.sha256(repr(source.class_names).encode() + contents.numbers.tobytes())
        hashes = {"images": digest.hexdigest(), "weights": weights_hash(model)}
        command = self.begun.hashes.get("command") or command_hash(self.options.command)
        hashes["command"] = command
        self.add(RunRecord(hashes=hashes))
        if self.folder.resume:
            self._check_same(source, hashes["images"], contents.numbers)
        return contents

    def _check_same(self, source, digest, numbers):
        """Raises ValueError for other images than it began with; notes other packages."""
        is_same = digest == self.begun.hashes.get("images")
        if self.excluded:  # The others are the same, and no more are missing.
            before = self.folder.images()
            missing = len(before) - len(numbers)
            is_same = np.isin(numbers, before).all() and missing <= len(self.excluded)
        if not is_same:
            record = SplitRecord.read(self.folder.shared)
            differences = [] if record is None else record.differences(source.splits)
            changes = "; ".join(differences) or "other bytes, names or classes, or another order"
            raise ValueError(
                "A resumed run must have the images that it began with: restore them, leave out "
                "those that are gone (--exclude LIST, their paths), or start another run. "
                f"Received: {changes}"
            )
        lines = changes_of_versions(self.begun.versions, self.record.versions)
        if lines:
            self.add(RunRecord(versions_before=self.begun.versions))
        for line in lines:
            self.options.log(line)

    def begin(self, source: Source, contents: ImageContents, start_step: int = 0) -> None:
        """Writes the folder before the first step: the record and the parts of the images.

        Args:
            source: The images in parts.
            contents: Their content.
            start_step: Steps that were done before.
        """
        folder = self.folder
        if self.excluded:
            origin = f"--exclude and --resume after step {start_step}"
            fact = Fact(", ".join(self.data.exclude), origin)
            self.add(RunRecord(facts={"excluded": fact}))
        if start_step:
            self.add(RunRecord(resumed=[*(self.begun.resumed or ()), start_step]))
        if not folder.resume:
            folder.start(self.record)
        if not folder.writes:
            return
        folder.write_images(contents.numbers)
        if folder.resume:
            folder.write_record(self.record)
        # Images that a run goes on without stay in the record: it has seen them.
        is_recorded = folder.has_split or "excluded" in self.record.facts
        if not is_recorded:
            split = record_of(source, contents.fingerprints)
            if split is not None:
                split.write(folder.path)

    def finished_record(self, plan: Plan, more: RunRecord) -> RunRecord:
        """Returns the content of `recipe.json` in the finished folder, which leaves this machine.

        The folder of the unfinished run has the whole paths, which `--resume` needs.

        Args:
            plan: The plan.
            more: What the end of the run adds.
        """
        best = self.folder.best_score()
        score = SCORES[plan.source.task]
        named = best and {"step": best[0], score: best[1], "loss": best[2]}
        record = self.record.add(more).add(RunRecord(best=named))
        if plan.weights.folder:  # Its record is not found by a path without its folders.
            record = record.add(RunRecord(pretraining=pretraining_fields(record)))
        skipped = [[self.data.relative(path), reason] for path, reason in plan.source.skipped]
        reduced = RunRecord.from_json(without_paths(record.to_json()))
        return reduced.add(RunRecord(skipped=skipped or None))

    def publish(self, source: Source) -> None:
        """Gives the finished folder its name, and reports the images that were skipped."""
        self.folder.publish()
        for line in describe_skipped(source.skipped):
            self.options.log(line)
        if source.skipped:
            self.options.log(f"all skipped files are in {self.folder.output / RECIPE}")


def start(
    data: DataSpec, options: RunOptions, settings: Settings, things: Things | None = None
) -> Run:
    """Returns a run, which has read no image and written nothing.

    Args:
        data: The data. With `resume` the unfinished run's data are used instead; in-memory data
            must be passed again.
        options: Where it writes, and whether it starts or continues.
        settings: The recipe, whose class says what is trained: `FineTuning`, `PreTraining` or
            `MaskedPatches`. With `resume` the unfinished run's settings are used instead.
        things: The things of the same photos in another run, which are not looked for again.

    Raises:
        ValueError: If the output cannot be written, there is no run to resume or it began with
            other settings or data.
    """
    for callback in options.callbacks:
        for kind, advice in _INSTEAD_OF_CALLBACKS.items():
            if isinstance(callback, kind):
                raise ValueError(
                    f"A run has one epoch, and its rate is a schedule: {advice} instead. "
                    f"Received: {type(callback).__name__} among the callbacks"
                )
    output, overwrite, command = options.output, options.overwrite, options.command
    # The same command again, as a restarted machine gives it, continues the run.
    is_repeated = command != "" and command == unfinished_record(output).command
    resume = options.resume or (is_repeated and not overwrite)
    folder = open_folder(output, resume=resume, overwrite=overwrite)
    begun, excluded = RunRecord(), ()
    if resume:
        begun = folder.record(settings.command)
        given_settings, given_data = settings, data
        settings = type(settings).from_json(begun.settings)
        data = DataSpec.of_recipe(begun, given_data)
        if options.resume:
            excluded = tuple(name for name in given_data.exclude if name not in data.exclude)
            data = dataclasses.replace(data, exclude=(*data.exclude, *excluded))
            _check_options(
                begun, {**vars(data), **vars(settings)}, options.given, (given_settings, given_data)
            )
        options = dataclasses.replace(options, command=begun.command)
    else:
        check_output(output, data.data)
    if settings.decision is not None and not data.calibration:
        data = dataclasses.replace(data, calibration=CALIBRATION)
    if data.split_seed is None:
        data = dataclasses.replace(data, split_seed=settings.seed)
    record = RunRecord(
        command=options.command,
        description=begun.description,
        facts=begun.facts,
        data=data.to_json(),
        overwrite=folder.overwrite,
    )
    return Run(data, options, settings, folder, begun, excluded, things, record)


def _check_options(begun, before_by_name, given, asked):
    """Raises ValueError if a resumed run was given other options than it began with.

    Args:
        begun: The record that it began with.
        before_by_name: The settings and data options that it began with.
        given: Names of the given ones; None: those whose values are not the defaults.
        asked: The settings and the data that were given.
    """
    changed = []
    if "epochs" in begun.facts:
        before_by_name["epochs"] = begun.facts["epochs"].value
    for options in asked:
        for field in dataclasses.fields(options):
            if field.name in ("exclude", "checked"):  # Its files are in the other fields.
                continue
            value, before = getattr(options, field.name), before_by_name[field.name]
            was_given = value != field.default if given is None else field.name in given
            # A repository is recorded with its commit.
            if was_given and value != before and not f"{before}".startswith(f"{value}@"):
                changed.append(f"{flag_of(field)} {value!s:.80}, begun with {before!s:.80}")
    if changed:
        raise ValueError(
            "A resumed run must have the options that it began with: leave these out, or start "
            f"a run with another output. Received: {'; '.join(changed)}"
        )


def start_of(
    data: Data, output: str | os.PathLike, settings: Settings, options: Mapping[str, Any]
) -> Run:
    """Returns the run of the arguments of `finetune`.

    Args:
        data: The data, or a `DataSpec`.
        output: The folder to write.
        settings: The settings.
        options: Fields of `RunOptions` and `DataSpec`.

    Raises:
        TypeError: If an option is a field of neither.
        ValueError: As `start`, or if a `DataSpec` and options of the data are given.
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
    return start(data_spec(data, data_options), RunOptions(output, **run_options), settings)
