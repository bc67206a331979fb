"""The folder of a run that is not finished: what it needs to go on after a stop."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_vit.classifier import MODEL, RECIPE
from keras_vit.files import atomic_write, check_folder, publish_folder
from keras_vit.training.trainer.distribution import is_chief

from .state import Checkpoints

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
