"""Experiment trackers: rows of the history, recipe, model card and pictures in W&B and others.

A tracker is a class with four methods, in the table `TRACKERS`: `add` a row, `text` and `pictures`
at the start and the end, `close`.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf
from PIL import Image

from keras_vit.images.pages import GridPicture
from keras_vit.utils.optional_packages import import_optional
from keras_vit.utils.safe_text import for_line

PROJECT = "keras-vit"  # The project or experiment in all trackers.


class Tracker(Protocol):
    """Where a run is recorded in addition to its folder."""

    run: str
    """The name by which a resumed run finds its record again."""

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Records a row of the history."""

    def text(self, name: str, content: str) -> None:
        """Records a text, such as `recipe.json`."""

    def pictures(self, name: str, pictures: Sequence[GridPicture]) -> None:
        """Records pictures with their captions."""

    def close(self) -> None:
        """Ends the record."""


class WandbTracker:
    """Weights & Biases: `WANDB_MODE=offline` keeps it on this machine."""

    def __init__(self, name: str, folder: pathlib.Path, run: str | None):
        wandb = import_optional("wandb", "--log-to wandb", "")
        self.wandb = wandb
        self.record = wandb.init(
            project=PROJECT, name=name, id=run, resume=None if run is None else "allow"
        )
        self.run = self.record.id

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        self.record.log(dict(numbers), step=step)

    def text(self, name: str, content: str) -> None:
        if name.endswith(".json"):
            self.record.config.update(json.loads(content), allow_val_change=True)
        else:
            self.record.notes = content

    def pictures(self, name: str, pictures: Sequence[GridPicture]) -> None:
        shown = [self.wandb.Image(_opened(p), caption=_caption(p)) for p in pictures]
        self.record.log({name: shown})

    def close(self) -> None:
        self.record.finish()


class MlflowTracker:
    """MLflow: its store is at `MLFLOW_TRACKING_URI`, by default on this machine."""

    def __init__(self, name: str, folder: pathlib.Path, run: str | None):
        mlflow = import_optional("mlflow", "--log-to mlflow", "")
        self.client = mlflow.MlflowClient()
        if run is None:
            found = self.client.get_experiment_by_name(PROJECT)
            place = self.client.create_experiment(PROJECT) if found is None else found.experiment_id
            run = self.client.create_run(place, run_name=name).info.run_id
        else:
            self.client.set_terminated(run, "RUNNING")
        self.run = str(run)

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self.client.log_metric(self.run, name, value, step=step)

    def text(self, name: str, content: str) -> None:
        self.client.log_text(self.run, content, name)

    def pictures(self, name: str, pictures: Sequence[GridPicture]) -> None:
        for number, picture in enumerate(pictures):
            file = f"{name.replace(' ', '_')}/{number:02}.png"
            self.client.log_image(self.run, _opened(picture), file)

    def close(self) -> None:
        self.client.set_terminated(self.run)


class TrackioTracker:
    """Trackio: a database on this machine, in `TRACKIO_DIR`."""

    def __init__(self, name: str, folder: pathlib.Path, run: str | None):
        self.trackio = import_optional("trackio", "--log-to trackio", "")
        self.run = run or name
        resume = "never" if run is None else "must"
        self.record = self.trackio.init(
            PROJECT, name=self.run, resume=resume, embed=False, auto_log_gpu=False,
            auto_log_cpu=False,
        )  # fmt: skip

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        self.record.log(dict(numbers), step=step)

    def text(self, name: str, content: str) -> None:
        shown = f"```json\n{content}\n```" if name.endswith(".json") else content
        self.record.log({name: self.trackio.Markdown(shown)})

    def pictures(self, name: str, pictures: Sequence[GridPicture]) -> None:
        for number, picture in enumerate(pictures):
            image = self.trackio.Image(_opened(picture), caption=_caption(picture))
            self.record.log({f"{name} {number}": image})

    def close(self) -> None:
        self.record.finish()


class TensorBoardTracker:
    """TensorBoard's folder of the run, which has the numbers of every run anyway."""

    def __init__(self, name: str, folder: pathlib.Path, run: str | None):
        self.run = name
        self.folder = folder / "tensorboard"
        # Opened with the first content, as a new run begins with an empty folder.
        self.writer: Any = None

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Does nothing: the loop has written them."""

    def text(self, name: str, content: str) -> None:
        self._write(name, "text", [f"    {line}" for line in content.splitlines()], "\n")

    def pictures(self, name: str, pictures: Sequence[GridPicture]) -> None:
        if not pictures:
            return
        width, height = _opened(pictures[0]).size
        encoded = [picture.encoded for picture in pictures]
        self._write(name, "images", [str(width), str(height), *encoded])

    def _write(self, name, plugin, values, joined=None):
        content = values if joined is None else [joined.join(values)]
        kind = tf.compat.v1.SummaryMetadata.PluginData(plugin_name=plugin)
        metadata = tf.compat.v1.SummaryMetadata(plugin_data=kind, data_class="DATA_CLASS_TENSOR")
        if plugin == "images":
            metadata.data_class = tf.compat.v1.SummaryMetadata(
                data_class="DATA_CLASS_BLOB_SEQUENCE"
            ).data_class
        if self.writer is None:
            self.writer = tf.summary.create_file_writer(
                os.fspath(self.folder), filename_suffix=".texts"
            )
        with self.writer.as_default():
            tf.summary.write(name, tf.constant(content), 0, metadata)
        self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()


# The class of each tracker, and the module that it needs.
TRACKERS: dict[str, tuple[Any, str]] = {
    "wandb": (WandbTracker, "wandb"),
    "mlflow": (MlflowTracker, "mlflow"),
    "trackio": (TrackioTracker, "trackio"),
    "tensorboard": (TensorBoardTracker, "tensorflow"),
}


def check_tracker(name: str | None) -> None:
    """Raises an error before a run if its tracker is unknown or not installed.

    Raises:
        ValueError: If there is no such tracker.
        ImportError: If its package is missing; the message has the command that installs it.
    """
    if name is None:
        return
    if name not in TRACKERS:
        raise ValueError(f"log_to must be one of {', '.join(TRACKERS)}. Received: {name!r}")
    import_optional(TRACKERS[name][1], f"--log-to {name}", "")


class SafeTracker:
    """A tracker whose failures do not stop a run: the first one is a warning, and it is closed.

    Args:
        name: A key of `TRACKERS`.
        title: The name of the run.
        folder: The folder of the unfinished run.
        run: What `run` was before a resumed run was stopped.

    Raises:
        ValueError: If the tracker cannot be opened.
    """

    def __init__(self, name: str, title: str, folder: pathlib.Path, run: str | None = None):
        self.name = name
        try:
            self.tracker: Tracker | None = TRACKERS[name][0](title, folder, run)
        except Exception as error:  # The packages raise many types.
            reason = " ".join(str(error).split())[:300]
            raise ValueError(
                f"{name} must be ready to record the run (--log-to). Received: {reason}"
            ) from error
        self.run = self.tracker.run

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Records a row of the history."""
        self._call("add", step, numbers)

    def text(self, name: str, content: str) -> None:
        """Records a text."""
        self._call("text", name, content)

    def pictures(self, name: str, pictures: Sequence[GridPicture]) -> None:
        """Records pictures, if there are any."""
        if pictures:
            self._call("pictures", name, pictures)

    def close(self) -> None:
        """Ends the record."""
        self._call("close")
        self.tracker = None

    def _call(self, method, *arguments):
        if self.tracker is None:
            return
        try:
            getattr(self.tracker, method)(*arguments)
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            warnings.warn(
                f"{self.name} has failed, and the run goes on without it: {reason}", stacklevel=3
            )
            self.tracker = None


def _opened(picture):
    return Image.open(io.BytesIO(picture.encoded))


def _caption(picture):
    parts = (f"{text} {value}".strip() for text, value in picture.caption.items())
    return for_line("; ".join(parts))
