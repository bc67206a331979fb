"""Arguments that several commands share, and how a job is run from the shell."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from keras_vit.configs import FEATURES
from keras_vit.training.data.spec import DataSpec, check_tables
from keras_vit.training.settings import UNKNOWN_FACTS, FineTuning, RunOptions, Settings
from keras_vit.utils.fields import AT_LEAST_1, REQUIRED, part, setting
from keras_vit.utils.files import named_disk_errors, output_place

if TYPE_CHECKING:
    from keras_vit.predictor import Predictor
    from keras_vit.training.run.finetune import Finished


# What Python takes for the path of a classifier.
OR_CLASSIFIER = "str | os.PathLike[str] | Classifier"


def classifier() -> str:
    """Returns the field of MODEL, which `load_classifier` opens."""
    return setting(
        REQUIRED,
        "a classifier's folder or export, cifar10, imagenet (1,000 classes, downloaded at first "
        "use), a key of keras-vit models with these classes, or hf:OWNER/NAME",
        unit="MODEL",
        positional=True,
    )


def batch_size(default: int = 32) -> int:
    """Returns the field of --batch-size."""
    return setting(default, "images at once", unit="N", limits=AT_LEAST_1)


def feature() -> str:
    """Returns the field of --feature."""
    return setting(
        FEATURES[0],
        "input of the head, class token, or mean of the patch tokens",
        choices=FEATURES,
    )


def unknown_facts() -> dict[str, Any]:
    """Returns the field of what a file of weights may not hold; see `keras_vit.load_classifier`."""
    return part(FineTuning, make=dict, only=UNKNOWN_FACTS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelArguments:
    """MODEL, and the flags for a model's name and for weights of others."""

    model: str = setting(
        REQUIRED,
        "a classifier's folder or export, other weights, or a name of keras-vit models",
        unit="MODEL",
        python=OR_CLASSIFIER,
        positional=True,
    )
    weights: str | None = setting(
        None,
        "for a model's name: imagenet21k, imagenet, a key of the catalogue, a file, or "
        "none for random values",
        unit="NAME",
    )
    image_size: tuple[int, int] | None = setting(
        None,
        "images of another size, 384 or 384x512 (height x width)",
        unit="PIXELS",
        absent="the weights', or 224",
    )
    facts: dict[str, Any] = unknown_facts()

    @property
    def at_rest(self) -> tuple[str, ...]:
        """What is opened: the weights where they are given, else the model."""
        return (self.weights or self.model,)

    def open(self, *, evaluation: str | None = None, classes: int | None = None) -> Predictor:
        """Returns the opened model, whose classes may have no names.

        Args:
            evaluation: See `build_evaluated`.
            classes: See `build_evaluated`.
        """
        from keras_vit.training.evaluation.predictions import build_evaluated

        return build_evaluated(
            self.model,
            weights=self.weights,
            image_size=self.image_size,
            evaluation=evaluation,
            classes=classes,
            **self.facts,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Processes:
    """Several processes of JAX that run one command together, on one machine or many."""

    coordinator: str | None = setting(
        None,
        "run with other processes of JAX, all started with the same command: the HOST:PORT of "
        "process 0; or auto, where SLURM, Open MPI or a TPU pod says which they are",
        unit="HOST:PORT",
    )
    processes: int | None = setting(
        None, "how many processes there are", unit="N", limits=AT_LEAST_1
    )
    process: int | None = setting(None, "the number of this process, from 0", unit="I")

    @contextlib.contextmanager
    def started(self) -> Iterator[bool]:
        """Joins the processes and yields whether this is the first, which alone prints.

        Raises:
            ValueError: If the flags or the backend do not fit, or the processes do not meet.
        """
        numbers = self.processes, self.process
        is_by_hand = self.coordinator not in (None, "auto")
        if (None in numbers) if is_by_hand else numbers != (None, None):
            raise ValueError(
                "--processes and --process must both be given with --coordinator HOST:PORT, and "
                f"only with it. Received: --coordinator {self.coordinator}, --processes "
                f"{self.processes}, --process {self.process}"
            )
        if self.coordinator is None:
            yield True
            return
        import keras

        if (backend := keras.backend.backend()) != "jax":
            raise ValueError(
                "--coordinator joins processes of JAX: set KERAS_BACKEND=jax; workers of "
                f"TensorFlow are named by TF_CONFIG. Received: KERAS_BACKEND={backend}"
            )
        from keras_vit.training.trainer.jax_backend import HEARTBEAT, join

        # JAX's own message of a lost process comes with an abort: nothing can be printed then.
        print(
            f"If a process is lost, JAX aborts the others within {HEARTBEAT} s. Start the command "
            "again, in any number of processes: a run goes on from its last state.",
            file=sys.stderr,
        )
        if join(self.coordinator if is_by_hand else None, *numbers):
            yield True
            return
        with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
            yield False


def on_all_devices(processes: Processes) -> contextlib.AbstractContextManager:
    """Returns the scope in which a model is opened that all processes predict with."""
    if processes.coordinator is None:
        return contextlib.nullcontext()
    from keras_vit.training.trainer.devices import strategy

    return strategy("auto", verbose=False).scope()


def dry_run() -> bool:
    """Returns the field of --dry-run."""
    return setting(
        False,
        "print the resolved recipe, the memory needed, steps, images seen and epochs; train "
        "nothing, write nothing",
        group="output",
    )


def result_of_job(
    data: DataSpec, options: RunOptions, settings: Settings, *, log: Callable[[str], None]
) -> Finished:
    """Returns the finished run of a job.

    Args:
        data: The `DataSpec`.
        options: The `RunOptions`.
        settings: The settings, whose class says what is trained.
        log: Receives the lines about the work.
    """
    from keras_vit.training.run.finetune import run
    from keras_vit.training.run.start import start

    return run(start(data, dataclasses.replace(options, log=log), settings))


def run_job(data: DataSpec, options: RunOptions, settings: Settings, *, dry_run: bool) -> int:
    """Runs a job; returns 130 or 143 if a signal stopped it, and prints how to continue.

    Args:
        data: The `DataSpec`.
        options: The `RunOptions`, with the command.
        settings: The settings, whose class says what is trained.
        dry_run: Whether the plan is printed instead.
    """
    from keras_vit.training.run.folder import clear_finished, finished_record, unfinished_record
    from keras_vit.training.run.start import start

    output, command = os.fspath(options.output), options.command
    if not (dry_run or options.overwrite):
        finished = finished_record(output, command, settings.command, resume=options.resume)
        begun = finished or unfinished_record(output)
        if not options.resume and (finished or begun.command == command):
            check_tables(begun, data, output)
        if finished:
            clear_finished(output_place(output))
            print(
                f"finished {output}, by this command; --overwrite trains again, as for new photos"
            )
            return 0
    started = start(data, options, settings)
    from keras_vit.training.run import finetune

    if dry_run:
        print(finetune.dry_run(started))
        return 0
    words = ["keras-vit", *started.settings.command.split(), "--output", output, "--resume"]
    return run_advised(started.folder.path, shlex.join(words), lambda: finetune.run(started))


def run_advised(output: str | os.PathLike, again: str, run: Callable[[], Finished | None]) -> int:
    """Runs; a full disk and a signal print the command that continues.

    Args:
        output: What is written.
        again: The command.
        run: Trains.
    """
    from keras_vit.training.run.loop import Interrupted

    try:
        with named_disk_errors(output, lambda: f"Free space there, and go on with: {again}"):
            run()
    except Interrupted as stop:
        print(f"{stop} Go on with: {again}", file=sys.stderr)
        return 128 + stop.signal_number
    return 0
