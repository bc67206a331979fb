"""The folder of several runs that belong together, which the same call continues."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from keras_vit.training.data.spec import DataSpec
from keras_vit.training.evaluation.results import check_same_settings
from keras_vit.training.settings import FineTuning
from keras_vit.utils.files import write_text
from keras_vit.utils.json_files import read_json

from .finetune import FineTune
from .run_options import RunOptions

# Fields of the data that several runs must have in common with earlier ones to continue them.
_SAME_DATA = (
    "data",
    "data_dir",
    "holdout",
    "calibration",
    "exclude",
    "split_seed",
    "task",
    "split",
    "labels",
    "group_by",
    "path_column",
    "label_column",
    "label_separator",
    "folders",
)


def start_or_continue(
    folder: pathlib.Path,
    data: DataSpec,
    settings: FineTuning,
    *,
    name: str,
    varied: Sequence[str],
    validated: bool = False,
    **more: Any,
) -> None:
    """Makes the folder of several new runs, or checks that it is of the same runs.

    Args:
        folder: The output of the runs.
        data: The data, with the seed of their split.
        settings: Settings of all runs.
        name: Name of the file that records settings and data.
        varied: Settings in which the runs differ.
        validated: Whether the runs are compared by their validation images.
        **more: More fields of the file.

    Raises:
        ValueError: If the folder is of other runs, or the data have no test images, or none for
            the validation.
    """
    in_data = data.to_json()
    fields = {**more, **settings.to_json(), **{field: in_data[field] for field in _SAME_DATA}}
    for field in varied:
        fields.pop(field)
    fields = json.loads(json.dumps(fields))
    path = folder / name
    if path.exists():
        known = read_json(path)
        known.pop("result", None)
        check_same_settings(path, known, fields)
        return
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(
            "The output folder must be new, empty or of the same "
            f"{name.removesuffix('.json')}. Received: {folder}"
        )
    plan = FineTune(data, RunOptions(folder / "plan"), settings).plan()
    images = plan.recipe["images"]
    if not images["test"]:
        raise ValueError(f"There must be test images to report on. Received: {data.data}")
    if validated and not images["validation"]:
        raise ValueError(
            "A sweep is scored on images kept out of training: validation must leave some, or "
            f"there must be folds. Received: validation={plan.settings.validation}, none of "
            f"{images['train']} images"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(fields, indent=2) + "\n")
