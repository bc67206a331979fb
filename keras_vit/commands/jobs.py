"""Arguments of the commands that train, and how a job is run from the shell."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from typing import Any

from keras_vit.fields import REQUIRED, setting
from keras_vit.files import RECIPE, named_disk_errors
from keras_vit.training.data.spec import DataSpec

SETTINGS_GROUP = "recipe, the paper's by default"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobArguments:
    """Where a job writes, and whether it starts, continues or is only planned."""

    output: str = setting(REQUIRED, "the classifier's folder to write", unit="DIR")
    overwrite: bool = setting(False, "replace an existing output")
    resume: bool = setting(False, "continue a stopped run; only --output is needed then")
    dry_run: bool = setting(
        False,
        "print the resolved recipe, the memory needed, steps, images seen and epochs; train "
        "nothing, write nothing",
    )


def run_job(
    job_type: Any, data: DataSpec, settings: Any, arguments: JobArguments, called_as: str
) -> int:
    """Runs a job; returns 130 or 143 if a signal stopped it, and prints how to continue.

    Args:
        job_type: A subclass of `keras_vit.training.run.job.Job`.
        data: The data.
        settings: The settings.
        arguments: The other arguments.
        called_as: The command, for the files that the job writes.
    """
    from keras_vit.training.run.loop import Interrupted

    job = job_type(
        data,
        arguments.output,
        settings,
        overwrite=arguments.overwrite,
        resume=arguments.resume,
        command=called_as,
    )
    if arguments.dry_run:
        print(job.dry_run())
        return 0
    output = os.fspath(arguments.output)
    command = shlex.join(["keras-vit", *settings.command.split(), "--output", output, "--resume"])

    def advice():
        again = command if (job.folder.path / RECIPE).is_file() else "the same command"
        return f"Free space there, and go on with: {again}"

    try:
        with named_disk_errors(job.folder.path, advice):
            job.run()
    except Interrupted as stop:
        return report_stop(stop, command)
    return 0


def report_stop(stop: Any, command: str) -> int:
    """Prints how to continue a run that a signal stopped; returns the exit code, 130 or 143.

    Args:
        stop: An `Interrupted`.
        command: The command that continues the run.
    """
    print(f"{stop} Go on with: {command}", file=sys.stderr)
    return 128 + stop.signal_number
