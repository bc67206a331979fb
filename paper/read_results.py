"""Results in folders: result files, and classifiers that were evaluated after their training."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Iterator

from keras_vit.training.evaluation.results import FORMAT, RESULT, Result
from keras_vit.utils.files import MODEL, RECIPE
from keras_vit.utils.json_files import read_json


def read_result(path: str | os.PathLike) -> Result:
    """Returns the result in a file of `Result.write`, or in the `recipe.json` of a training run.

    Raises:
        ValueError: If the file is not a result.
    """
    path = pathlib.Path(path)
    try:
        if path.name == RECIPE:
            return Result.of_run(path.parent)
        content = read_json(path)
        if content.pop("format") != FORMAT:
            raise ValueError("unknown format")
        return Result(**content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} must be a result file: {error!r}") from error


def find_results(folders: Iterable[str | os.PathLike]) -> Iterator[tuple[pathlib.Path, Result]]:
    """Yields the results in folders and their subfolders, ordered by path.

    Results are files named result.json or result_*.json, and folders of classifiers that
    were evaluated on test images at the end of their training.

    Raises:
        ValueError: If a folder does not exist, or a file is not a result.
    """
    for folder in map(pathlib.Path, folders):
        if not folder.exists():
            raise ValueError(f"Results must be in folders. No such folder: {folder}")
        files = [folder] if folder.is_file() else sorted(folder.rglob("*.json"))
        for path in files:
            if path.name == RECIPE:
                # The trials of a sweep have no weights, and are no results.
                is_result = _has_test(path) and path.with_name(MODEL).exists()
            else:
                is_result = path.name == RESULT or path.name.startswith("result_")
            if is_result or path == folder:
                yield path, read_result(path)


def read_results(
    folders: Iterable[str | os.PathLike], tasks: Iterable[str] = ()
) -> list[tuple[pathlib.Path, Result]]:
    """Returns the results in folders, with the names of their tasks in tables.

    Args:
        folders: As for `find_results`.
        tasks: Texts "DATA=TASK", from the name of a data set to its name in tables.

    Raises:
        ValueError: As `find_results`; if a text has another form, or there are no results.
    """
    folders = list(folders)
    wrong = [text for text in tasks if not all(text.partition("="))]
    if wrong:
        raise ValueError(f"--task must be DATA=TASK. Received: {wrong[0]!r}")
    names = dict(text.split("=", 1) for text in tasks)
    results = [
        (path, dataclasses.replace(found, task=names.get(found.task, found.task)))
        for path, found in find_results(folders)
    ]
    if not results:
        raise ValueError(
            "There must be results: files result.json, or classifiers' folders with a test "
            f"result. Received: {', '.join(map(str, folders))}, without results"
        )
    return results


def _has_test(path):
    try:
        return bool(read_json(path).get("test"))
    except (ValueError, AttributeError):
        return False  # Written by another program.
