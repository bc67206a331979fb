"""Arguments of the commands that train, and how a job is run from the shell."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from typing import Any

from keras_vit.utils.fields import setting
from keras_vit.utils.files import RECIPE, named_disk_errors

SETTINGS_GROUP = "recipe, the paper's by default"


def dry_run() -> Any:
    """Returns the field of --dry-run."""
    return setting(
        False,
        "print the resolved recipe, the memory needed, steps, images seen and epochs; train "
        "nothing, write nothing",
        group="output",
    )


def run_job(job: Any, *, dry_run: bool) -> int:
    """Runs a job; returns 130 or 143 if a signal stopped it, and prints how to continue.

    Args:
        job: A `keras_vit.training.run.job.Job`.
        dry_run: Whether its plan is printed instead.
    """
    if dry_run:
        print(job.dry_run())
        return 0
    from keras_vit.training.run.finetune import run
    from keras_vit.training.run.loop import Interrupted

    output = os.fspath(job.options.output)
    parts = ["keras-vit", *job.settings.command.split(), "--output", output, "--resume"]
    command = shlex.join(parts)

    def advice():
        again = command if (job.folder.path / RECIPE).is_file() else "the same command"
        return f"Free space there, and go on with: {again}"

    try:
        with named_disk_errors(job.folder.path, advice):
            run(job)
    except Interrupted as stop:
        return report_stop(stop, command)
    return 0


def run_several(output: str | os.PathLike, command: str, run: Callable[[], Any]) -> int:
    """Trains several times and prints the result; returns 130 or 143 if a signal stopped it.

    Args:
        output: The folder of all runs.
        command: The command that continues them.
        run: Trains; its result has a `folder`.
    """
    from keras_vit.training.run.loop import Interrupted

    try:
        with named_disk_errors(output, lambda: f"Free space there, and go on with: {command}"):
            done = run()
    except Interrupted as stop:
        return report_stop(stop, command)
    print(f"\n{done}\n\nwritten {done.folder}")
    return 0


def report_stop(stop: Any, command: str) -> int:
    """Prints how to continue a run that a signal stopped; returns the exit code, 130 or 143.

    Args:
        stop: An `Interrupted`.
        command: The command that continues the run.
    """
    print(f"{stop} Go on with: {command}", file=sys.stderr)
    return 128 + stop.signal_number
