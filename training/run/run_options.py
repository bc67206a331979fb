"""The options of a run: its folder, start or continuation, log and callbacks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_vit.training.data.spec import Data, DataSpec, data_spec
from keras_vit.utils.fields import REQUIRED, documented, setting


@documented
@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Where a run writes, whether it starts or continues, and what it calls.

    The flags of the commands and the keyword arguments of `finetune` are this one object.
    """

    output: str | os.PathLike = setting(
        REQUIRED,
        "the classifier's folder to write; until the end everything is in OUTPUT.partial",
        unit="DIR",
    )
    overwrite: bool = setting(False, "replace an existing output")
    resume: bool = setting(False, "continue a stopped run; only --output is needed then")
    command: str = setting(
        "",
        "the command to record in recipe.json; with the same one an unfinished run continues even "
        "without resume",
        flag="",
    )
    log: Callable[[str], object] = setting(
        print, "receives the resolved recipe and the result", flag=""
    )
    callbacks: Sequence[Any] = setting(
        (),
        "Keras callbacks for fit, which is called once with one epoch of all steps: their model is "
        "the Trainer, batches are optimizer steps, and logs have the mean loss and accuracy since "
        "the last row of the history, after a validation also val_loss and val_accuracy",
        flag="",
    )
    given: tuple[str, ...] | None = setting(
        None,
        "names of the settings and data options that were given, whose values a resumed run must "
        "have begun with",
        absent="those whose values are not the defaults",
        flag="",
    )


def run_arguments(
    data: Data, output: str | os.PathLike, options: Mapping[str, Any], settings_type: Any
) -> tuple[DataSpec, RunOptions]:
    """Returns the data and the options of a run from the arguments of `finetune`.

    Args:
        data: The data, or a `DataSpec`.
        output: The folder to write.
        options: Other fields of `RunOptions` and `DataSpec`.
        settings_type: The dataclass of the settings, the third argument of `finetune`.

    Raises:
        TypeError: If an option is a field of neither.
        ValueError: If a `DataSpec` and options of the data are given.
    """
    of_run, of_settings = (
        {field.name for field in dataclasses.fields(kind)} for kind in (RunOptions, settings_type)
    )
    unknown = set(options) - of_run - {field.name for field in dataclasses.fields(DataSpec)}
    if meant := unknown & of_settings:
        given = ", ".join(f"{name}=..." for name in sorted(meant))
        raise TypeError(
            f"{settings_type.__name__}({given}) is the third argument. "
            f"Received: {', '.join(sorted(unknown))}"
        )
    of_data = {name: value for name, value in options.items() if name not in of_run}
    return data_spec(data, **of_data), RunOptions(
        output, **{name: value for name, value in options.items() if name in of_run}
    )
