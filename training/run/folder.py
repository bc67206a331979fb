"""Folder of an unfinished run, and the checkpoints to resume it from."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from filelock import FileLock, Timeout

from keras_vit.checkpoints.formats import load_arrays
from keras_vit.description.run_record import RunRecord
from keras_vit.description.without_paths import command_hash
from keras_vit.training.trainer.devices import backend_devices
from keras_vit.training.trainer.trainer import Trainer
from keras_vit.utils.files import (
    MODEL,
    PARTIAL,
    RECIPE,
    SPLIT,
    STATES,
    UNFINISHED,
    atomic_write,
    check_folder,
    output_place,
    partial_of,
    publish_folder,
    remove_leftovers,
    write_text,
)
from keras_vit.utils.json_files import read_json

LOCK = ".lock"  # Held by the process that writes; the system frees it when the process ends.
BEST = f"{STATES}/best.npz"
IMAGES = f"{STATES}/images.npy"  # A number for each image, see `images.image_numbers`.

# Fields that a resumed run reads; the others are information for the reader.
_RECIPE = {
    "job": str,
    "command": str,
    "data": dict,
    "settings": dict,
    "facts": dict,
    "overwrite": bool,
}


def unfinished_record(output: str | os.PathLike) -> RunRecord:
    """Returns the record of an unfinished run; it is empty if there is none to read."""
    try:
        return RunRecord.from_json(read_json(partial_of(output_place(output)) / UNFINISHED))
    except (OSError, ValueError):
        return RunRecord()


def finished_record(
    output: str | os.PathLike, command: str, job: str, *, resume: bool = False
) -> RunRecord | None:
    """Returns the record of a command that has been run to its end; None of any other.

    Its output is then a finished folder. Whoever starts a command again until it succeeds may be
    killed between the two.

    Args:
        output: The folder of the run.
        command: The command as it was typed, here and now.
        job: The name of the job.
        resume: Whether it goes on with whatever run of this job the output has.
    """
    folder = output_place(output)
    if (partial_of(folder) / UNFINISHED).is_file() or not (folder / MODEL).is_file():
        return None
    try:
        record = RunRecord.from_json(read_json(folder / RECIPE))
    except (OSError, ValueError):
        return None
    is_same = record.hashes.get("command") == command_hash(command)
    return record if record.job == job and (is_same or resume) else None


def clear_finished(output: pathlib.Path) -> None:
    """Removes what a run leaves with its finished folder: the older classifier, and its states.

    A run does it at its end. The next one does it again, as the first may have been killed there.

    Args:
        output: The folder of the run, see `output_place`.
    """
    if not (output / STATES).is_dir():
        return
    if not (partial_of(output) / STATES).exists():  # The older classifier, after the exchange.
        shutil.rmtree(partial_of(output), ignore_errors=True)
    (output / LOCK).unlink(missing_ok=True)
    shutil.rmtree(output / STATES, ignore_errors=True)


def open_folder(
    output: str | os.PathLike, *, resume: bool = False, overwrite: bool = False
) -> RunFolder:
    """Returns the folder of a run, after removing what a killed run left of a finished one.

    Args:
        output: The folder of the finished run.
        resume: Whether to continue a stopped run.
        overwrite: Whether to replace an existing classifier and an unfinished run. A resumed
            run that was started with it replaces the classifier too.

    Raises:
        ValueError: If the output is not empty and may not be replaced; if there is an
            unfinished run, with neither `resume` nor `overwrite`; if there is none to
            resume; if `OUTPUT.partial` has files and is no unfinished run; or if another
            process writes to it.
        OSError: If the folder cannot be made.
    """
    place = output_place(output)
    shared = partial_of(place)
    replaces = overwrite or (resume and unfinished_record(output).overwrite)
    writes = backend_devices().is_chief()
    if writes:
        clear_finished(place)
    is_unfinished = (shared / UNFINISHED).is_file()
    if resume and not is_unfinished:
        raise ValueError(
            "There must be an unfinished run to resume; start one without --resume. "
            f"Not found: {shared}"
        )
    if not writes:  # The first worker checks its output.
        return RunFolder(
            place, _folder_of_worker(shared, resume), resume=resume, overwrite=replaces
        )
    check_folder(place, marker=MODEL, overwrite=replaces)
    if is_unfinished and not resume and not overwrite:
        raise ValueError(
            "The output must have no unfinished run: continue it with --resume, or start "
            f"again with --overwrite. Received: {shared}"
        )
    names = set(os.listdir(shared) if shared.is_dir() else ())
    if names - {STATES} and LOCK not in names and not is_unfinished:
        raise ValueError(
            f"OUTPUT{PARTIAL}, which a run writes to, must be new, empty or an unfinished run: "
            f"choose another output. Received: {shared}, with {min(names)}"
        )
    return RunFolder(place, shared, resume=resume, overwrite=replaces)


def _folder_of_worker(shared, resume):
    """A temporary folder with the best weights so far, which is removed with the process."""
    path = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    (path / STATES).mkdir()
    if resume and (shared / BEST).exists():
        shutil.copy(shared / BEST, path / BEST)
    return path


class RunFolder:
    """`OUTPUT.partial`, which is renamed to the output when the run has finished.

    It holds the files of the finished folder as they come, such as the history, and in `STATES`
    what the unfinished run needs: its recipe, the newest checkpoints and the best weights. Files
    are written atomically: if the run stops at any moment, the files before are still complete.

    With several workers (TF_CONFIG) only the first writes to this folder. The others write to
    a temporary folder and read checkpoints from the first worker's.

    Args:
        output: The folder of the finished run, see `output_place`.
        resume: Whether it continues a stopped run.
        overwrite: Whether it replaces an existing classifier.
        path: Where this process writes: `OUTPUT.partial`, or a temporary folder.
    """

    def __init__(self, output: pathlib.Path, path: pathlib.Path, *, resume: bool, overwrite: bool):
        self.output = output
        self.path = path
        self.shared = partial_of(output)
        self.checkpoints = Checkpoints(self.shared / STATES)
        self.resume = resume
        self.overwrite = overwrite
        self.writes = path == self.shared
        # One object for each path in a process, which takes its own lock again.
        self.lock = FileLock(path / LOCK, blocking=False, thread_local=False, is_singleton=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from the folder, from the start of a new run or now, for a block.

        Raises:
            ValueError: If another process writes to it.
        """
        try:
            if self.writes and self.resume:
                self._acquire()
                if not (self.path / UNFINISHED).is_file():
                    raise ValueError(f"The run has ended meanwhile. Received: {self.output}")
                remove_leftovers(self.path)
            yield
        finally:
            if self.writes:
                self._release()

    def _acquire(self):
        try:
            self.lock.acquire()
        except Timeout:
            raise ValueError(
                "Only one run may write to an output; choose another one, or wait. "
                f"Received: {self.path}, taken by another process"
            ) from None

    def _release(self):
        if self.lock.is_locked:
            with contextlib.suppress(PermissionError):  # Windows removes no open file.
                (self.path / LOCK).unlink(missing_ok=True)
            self.lock.release(force=True)

    def start(self, record: RunRecord) -> None:
        """Makes the folder of a new run.

        Args:
            record: Everything needed to repeat the run.

        Raises:
            ValueError: If another process has made it.
        """
        if not self.writes:
            return
        self.path.mkdir(parents=True, exist_ok=True)
        self._acquire()
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
        # First: a folder with anything else would be no run that can go on, or start again.
        self.write_record(record)

    def write_record(self, record: RunRecord) -> None:
        """Writes the record of the unfinished run, with whole paths."""
        write_text(self.path / UNFINISHED, json.dumps(record.to_json(), indent=2) + "\n")

    def write_images(self, numbers: np.ndarray) -> None:
        """Writes a number for each image of the run, uint64 `(N,)`; see `images.image_numbers`."""
        with atomic_write(self.path / IMAGES) as path:
            np.save(path, numbers)

    def images(self) -> np.ndarray:
        """Returns the numbers that `write_images` wrote when the run began."""
        return np.load(self.shared / IMAGES)

    @property
    def has_split(self) -> bool:
        """Whether it has the record of the parts of the images."""
        return (self.path / SPLIT).is_file()

    def record(self, *jobs: str) -> RunRecord:
        """Returns the record of the unfinished run.

        Args:
            *jobs: Names of the jobs that read it, of which one must be the record's.

        Raises:
            ValueError: If the file cannot be read, or is from another job.
        """
        path = self.shared / UNFINISHED
        fields = read_json(path, _RECIPE)
        for name in ("job", "data", "settings", "command"):
            if fields.get(name) is None:
                raise ValueError(f"{path} must be the recipe of a run. Received: no {name}")
        record = RunRecord.from_json(fields)
        if record.job not in jobs:
            raise ValueError(
                f"The run must be resumed by the command that started it, {record.job}. "
                f"Received: {', '.join(jobs)}"
            )
        return record

    def save_best(self, model, step: int, accuracy: float, loss: float) -> None:
        """Writes the best weights with their step, accuracy and loss."""
        with atomic_write(self.path / BEST) as path:
            np.savez(path, **_numbered(model.weights), score=np.array([step, accuracy, loss]))

    def best_score(self) -> tuple[int, float, float] | None:
        """Returns step, accuracy and loss of the best weights; None if there are none."""
        path = self.path / BEST
        if not path.exists():
            return None
        step, accuracy, loss = load_arrays(path)["score"].tolist()
        return int(step), accuracy, loss

    def load_best(self, model) -> None:
        """Sets the weights of a model to the best ones."""
        arrays = load_arrays(self.path / BEST)
        values = [arrays[name] for name in sorted(arrays.keys() - {"score"})]
        _assign(self.path / BEST, model.weights, values)

    def publish(self) -> None:
        """Renames the folder to the output, then removes what only an unfinished run needs.

        Raises:
            ValueError: If the output may not be replaced any more.
            OSError: If the folder cannot be renamed. It is complete, and the run can be resumed.
        """
        if not self.writes:
            return
        if os.name == "nt":
            self._release()  # Windows renames no folder with an open file.
        publish_folder(self.path, self.output, marker=MODEL, overwrite=self.overwrite)
        clear_finished(self.output)
        self._release()


STATE = re.compile(r"state-(\d{9})\.npz")


class Checkpoints:
    """States of a `Trainer` in a folder, to resume it: weights, optimizer, averages, step.

    Files of weights alone are read by `keras_vit.load_checkpoint`.

    A restored run that continues with the batches after its step has the same losses and
    weights as a run without the stop, bit for bit on the same CPU: dropout depends on
    seed and step alone, and the data on their first step. A state is written atomically: if
    the run stops at any moment, the state before is still complete. Older states than the
    newest `keep` are removed. With several workers the first writes, to a folder that all
    can read.

    Args:
        folder: Folder of the files `state-<step>.npz`; made if needed.
        keep: Number of states to keep.

    Example:
    >>> checkpoints = Checkpoints("run")
    >>> start = checkpoints.restore(trainer)
    >>> trainer.fit(
    ...     batches_from(start * trainer.gradient_accumulation_steps),
    ...     steps_per_epoch=steps - start,
    ...     callbacks=[checkpoints.callback(every=500)],
    ... )
    """

    def __init__(self, folder: str | os.PathLike, keep: int = 2):
        self.folder = pathlib.Path(folder)
        self.keep = keep

    def paths(self) -> list[pathlib.Path]:
        """Returns the paths of the states, the newest first."""
        found = [path for path in self.folder.glob("state-*.npz") if STATE.fullmatch(path.name)]
        return sorted(found, reverse=True)

    def save(self, trainer: Trainer) -> pathlib.Path:
        """Writes the state of a trainer and returns its path.

        Raises:
            OSError: If it cannot be written; the older states are then unchanged.
        """
        trainer.synchronize()
        values = _numbered(trainer.state_variables())
        path = self.folder / f"state-{int(keras.ops.convert_to_numpy(trainer.step)):09}.npz"
        if backend_devices().worker_of(trainer.strategy)[0] == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as partial, open(partial, "wb") as file:
                np.savez(file, **values)
                file.flush()
                os.fsync(file.fileno())
            for old in self.paths()[self.keep :]:
                old.unlink()
        trainer.last_checkpoint = path
        return path

    def restore(self, trainer: Trainer) -> int:
        """Sets a compiled trainer to the newest state and returns its step; 0 without a state.

        A damaged state is skipped with a warning.

        Raises:
            ValueError: If a state is from another model or optimizer.
        """
        variables = trainer.state_variables()
        for path in self.paths():
            try:
                arrays = load_arrays(path)
            except (OSError, ValueError) as error:
                warnings.warn(f"Skipped {path}, which is damaged: {error}", stacklevel=2)
                continue
            _assign(path, variables, [arrays[name] for name in sorted(arrays)])
            trainer.last_checkpoint = path
            return int(keras.ops.convert_to_numpy(trainer.step))
        return 0

    def callback(self, every: int) -> keras.callbacks.Callback:
        """Returns a Keras callback that saves every few steps and at the end of an epoch.

        Args:
            every: Optimizer steps between two saves.
        """
        return _SaveCallback(self, every)


class _SaveCallback(keras.callbacks.Callback):
    def __init__(self, checkpoints, every):
        super().__init__()
        self.checkpoints = checkpoints
        self.every = every

    def on_train_begin(self, logs=None):
        self.step = self.saved = int(keras.ops.convert_to_numpy(self.model.step))

    def on_train_batch_end(self, batch, logs=None):
        # One execution may be several steps, fewer at the end of the data.
        step = self.step + self.model.steps_per_execution
        saves = step // self.every > self.saved // self.every
        if saves and not _is_finite(logs):  # Waits for the step.
            return  # The trainer stops at this step: the state before it stays the newest.
        self.step = step
        if saves:
            self._save()

    def on_epoch_end(self, epoch, logs=None):
        if self.step > self.saved and _is_finite(logs):
            self._save()

    def _save(self):
        self.checkpoints.save(self.model)
        self.step = self.saved = int(keras.ops.convert_to_numpy(self.model.step))


def _numbered(variables) -> dict[str, Any]:
    """The values of variables by their number."""
    return {f"{n:05}": keras.ops.convert_to_numpy(v) for n, v in enumerate(variables)}


def _assign(path, variables, values):
    values = list(values)
    wrong = [
        v.path for v, value in zip(variables, values, strict=False) if tuple(v.shape) != value.shape
    ]
    for place, (variable, value) in enumerate(zip(variables, values, strict=False)):
        dtype = keras.ops.convert_to_numpy(variable).dtype
        if value.dtype.kind == "V" and value.dtype.itemsize == dtype.itemsize:
            values[place] = value.view(dtype)  # bfloat16, which NumPy's files store as bytes.
        elif value.dtype != dtype and not np.can_cast(value.dtype, dtype, "same_kind"):
            wrong.append(variable.path)
    if wrong or len(values) != len(variables):
        raise ValueError(
            f"{path} must be a state of the same model and optimizer. Received: {len(values)} "
            f"arrays for {len(variables)} variables; other shapes or types: {wrong[:5]}"
        )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _is_finite(logs):
    return bool(np.isfinite(float((logs or {}).get("loss", 0.0))))
