"""The state of a run on disk, so that it goes on as if it had never stopped."""

from __future__ import annotations

import os
import pathlib
import re
import warnings
import zipfile

import keras
import numpy as np

from keras_vit.files import atomic_write

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
