"""The folder of an unfinished run, and the training states in it."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_vit.classifier import MODEL, RECIPE
from keras_vit.files import atomic_write, check_folder, publish_folder
from keras_vit.training.trainer.devices import is_chief

PARTIAL = ".partial"
STATES = "states"
BEST = "best.npz"
LAST_MODEL = "last.keras"
TENSORBOARD = "tensorboard"


def command_of_unfinished(output: str | os.PathLike) -> str:
    """Returns the command that started the unfinished run of an output, or ""."""
    output = pathlib.Path(output).absolute()
    try:
        path = output.with_name(output.name + PARTIAL) / RECIPE
        return str(json.loads(path.read_text(encoding="utf-8")).get("command", ""))
    except (OSError, ValueError, AttributeError):
        return ""


class RunFolder:
    """`OUTPUT.partial`, beside the output that the finished run will be renamed to.

    It holds the recipe, the history, TensorBoard's logs, the newest checkpoints and the
    best weights. Files are written under another name and renamed, so a stop at any moment
    leaves those before.

    Of the workers that TF_CONFIG names the first writes; the others have a folder of their
    own that goes with their process, and read states from the first one's.

    Args:
        output: The folder of the finished run.
        resume: Whether to go on with a run that was stopped.
        overwrite: Whether to replace a classifier, and an unfinished run, that are there.

    Raises:
        ValueError: If the output is not empty and may not be replaced, if there is an
            unfinished run and no word what to do with it, or none to go on with.
        OSError: If the folder cannot be made.
    """

    def __init__(self, output: str | os.PathLike, *, resume: bool = False, overwrite: bool = False):
        self.output = pathlib.Path(output).absolute()
        self.path = self.shared = self.output.with_name(self.output.name + PARTIAL)
        self.checkpoints = Checkpoints(self.shared / STATES)
        self.resume = resume
        self.overwrite = overwrite
        self.writes = is_chief()
        if resume and not (self.path / RECIPE).is_file():
            raise ValueError(
                "There must be an unfinished run to resume; start one without --resume. "
                f"Not found: {self.path}"
            )
        if not self.writes:
            self.own = tempfile.TemporaryDirectory()
            self.path = pathlib.Path(self.own.name)
            if resume and (self.shared / BEST).exists():
                shutil.copy(self.shared / BEST, self.path)
            return  # Where the first worker writes is its concern.
        check_folder(self.output, marker=MODEL, overwrite=overwrite)
        if not resume and not overwrite and (self.path / RECIPE).is_file():
            raise ValueError(
                "The output must have no unfinished run: go on with --resume, or start anew "
                f"with --overwrite. Received: {self.path}"
            )

    def start(self, recipe: Mapping[str, Any]) -> None:
        """Makes the folder of a new run.

        Args:
            recipe: Everything needed to repeat the run.
        """
        if not self.writes:
            return
        if self.path.exists():
            shutil.rmtree(self.path)
        self.path.mkdir(parents=True)
        with atomic_write(self.path / RECIPE) as path:
            path.write_text(json.dumps(recipe, indent=2) + "\n", encoding="utf-8")

    def recipe(self, job: str) -> dict[str, Any]:
        """Returns the recipe of the run that is resumed.

        Args:
            job: The job's name, which must be the recipe's.

        Raises:
            ValueError: If the file cannot be read, or is of another job.
        """
        path = self.shared / RECIPE
        try:
            recipe = json.loads(path.read_text(encoding="utf-8"))
            found = {name: recipe[name] for name in ("job", "data", "settings", "command")}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} must be the recipe of a run. {error!r}") from error
        if found["job"] != job:
            raise ValueError(
                f"The run must be resumed by the command that started it, {found['job']}. "
                f"Received: {job}"
            )
        return recipe

    def save_best(self, model, step: int, accuracy: float, loss: float) -> None:
        """Writes the best weights, with their step and what they reached."""
        arrays: dict[str, Any] = {
            f"{index:05}": np.asarray(weight) for index, weight in enumerate(model.weights)
        }
        with atomic_write(self.path / BEST) as path:
            np.savez(path, **arrays, score=np.array([step, accuracy, loss]))

    def best_score(self) -> tuple[int, float, float] | None:
        """Returns step, accuracy and loss of the best weights; None if there are none."""
        if not (self.path / BEST).exists():
            return None
        with np.load(self.path / BEST, allow_pickle=False) as arrays:
            step, accuracy, loss = arrays["score"].tolist()
        return int(step), accuracy, loss

    def load_best(self, model) -> None:
        """Gives a model the best weights."""
        with np.load(self.path / BEST, allow_pickle=False) as arrays:
            model.set_weights([arrays[f"{index:05}"] for index in range(len(model.weights))])

    def publish(self, overwrite: bool = False) -> None:
        """Gives the folder its name.

        Args:
            overwrite: Whether to replace a classifier that is there.
        """
        if self.writes:
            publish_folder(self.path, self.output, marker=MODEL, overwrite=overwrite)

    def remove_states(self) -> None:
        """Removes what only an unfinished run needs."""
        shutil.rmtree(self.path / STATES, ignore_errors=True)
        (self.path / BEST).unlink(missing_ok=True)


STATE = re.compile(r"state-(\d{9})\.npz")
# What a file that was cut short or changed raises when it is read.
DAMAGE = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile)


class Checkpoints:
    """States of a `Trainer` in a folder: weights, optimizer, averages, step.

    A run that is restored and goes on with the batches after its step has the losses and
    weights of one that never stopped, bit for bit on the same device: dropout depends on
    seed and step alone, and the data on where they start. A state is written under another
    name, flushed and renamed, so that a stop at any moment leaves the one before. The
    newest `keep` are kept, older ones are removed once a newer one is written. With several
    workers the first writes, into a folder that all can read.

    Args:
        folder: Where `state-<step>.npz` are; made if needed.
        keep: How many states to keep.

    Raises:
        ValueError: If `keep` is less than 1.

    Example:
    >>> checkpoints = Checkpoints("run")
    >>> start = checkpoints.restore(trainer)
    >>> trainer.fit(
    ...     batches_from(start * trainer.accumulation_steps),
    ...     steps_per_epoch=steps - start,
    ...     callbacks=[checkpoints.callback(every=500)],
    ... )
    """

    def __init__(self, folder, keep=2):
        if keep < 1:
            raise ValueError(f"At least one state must be kept. Received: keep={keep}")
        self.folder = pathlib.Path(folder)
        self.keep = keep

    def paths(self):
        """Returns the states that are there, the newest first."""
        found = [path for path in self.folder.glob("state-*.npz") if STATE.fullmatch(path.name)]
        return sorted(found, reverse=True)

    def save(self, trainer):
        """Writes the state of a trainer and returns its path.

        Raises:
            OSError: If it cannot be written; then nothing has changed.
        """
        trainer.synchronise()
        values = [keras.ops.convert_to_numpy(v) for v in trainer.state_variables()]
        path = self.folder / f"state-{int(keras.ops.convert_to_numpy(trainer.step)):09}.npz"
        if _writes(trainer):
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as partial, open(partial, "wb") as file:
                np.savez(file, **{f"{index:05}": value for index, value in enumerate(values)})
                file.flush()
                os.fsync(file.fileno())
            for old in self.paths()[self.keep :]:
                old.unlink()
        trainer.last_checkpoint = path
        return path

    def restore(self, trainer):
        """Puts a compiled trainer where the newest good state is; returns its step, or 0.

        A damaged state is named in a warning and skipped.

        Raises:
            ValueError: If a state is that of another model or optimizer.
        """
        variables = trainer.state_variables()
        for path in self.paths():
            try:
                with np.load(path, allow_pickle=False) as arrays:
                    values = [arrays[name] for name in sorted(arrays.files)]
            except DAMAGE as error:
                warnings.warn(f"Skipped {path}, which is damaged: {error}", stacklevel=2)
                continue
            _assign(path, variables, values)
            trainer.last_checkpoint = path
            return int(keras.ops.convert_to_numpy(trainer.step))
        return 0

    def callback(self, every):
        """Returns a Keras callback that saves after every so many steps, and at the end.

        Args:
            every: Optimizer steps.

        Raises:
            ValueError: If `every` is less than 1.
        """
        if every < 1:
            raise ValueError(f"every must be at least 1. Received: every={every}")
        return _Save(self, every)


class _Save(keras.callbacks.Callback):
    def __init__(self, checkpoints, every):
        super().__init__()
        self.checkpoints = checkpoints
        self.every = every

    def on_train_begin(self, logs=None):
        self.step = self.saved = int(keras.ops.convert_to_numpy(self.model.step))

    def on_train_batch_end(self, batch, logs=None):
        if not np.isfinite(float((logs or {}).get("loss", 0.0))):
            return  # The trainer stops at this step; the state before it is the good one.
        # One execution may be several steps, fewer at the end of the data.
        self.step += self.model.steps_per_execution
        if self.step // self.every > self.saved // self.every:
            self._save()

    def on_epoch_end(self, epoch, logs=None):
        if self.step > self.saved:
            self._save()

    def _save(self):
        self.checkpoints.save(self.model)
        self.step = self.saved = int(keras.ops.convert_to_numpy(self.model.step))


def _assign(path, variables, values):
    shapes = [tuple(v.shape) for v in variables]
    if shapes != [value.shape for value in values]:
        different = [
            v.path
            for v, value in zip(variables, values, strict=False)
            if tuple(v.shape) != value.shape
        ]
        raise ValueError(
            f"{path} must be a state of the same model and optimizer. Received: {len(values)} "
            f"arrays for {len(variables)} variables; other shapes: {different[:5]}"
        )
    for variable, value in zip(variables, values, strict=True):
        if value.dtype.kind == "V":  # bfloat16, of which NumPy's files keep the bytes alone.
            value = value.view(keras.ops.convert_to_numpy(variable).dtype)
        variable.assign(value)


def _writes(trainer):
    """Whether this process is the one of its job that writes."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.process_index() == 0
    resolver = trainer.distribute_strategy.cluster_resolver
    return resolver is None or not resolver.task_id
