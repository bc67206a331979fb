"""Tables of parts, labels and groups, and lists of images to leave out, that change the data."""

from __future__ import annotations

from collections.abc import Sequence

from keras_vit.description.class_labels import MULTILABEL, SEPARATOR, composed, look_alikes
from keras_vit.utils.safe_text import first_names

from .by_path import group_of, texts_of_groups
from .examples import Examples
from .image_files import is_utf_8, printable
from .parts import SPLITS, shared_groups
from .spec import COLUMNS, find_name, normal_path
from .split_record import PARTS
from .tables import (
    LabelledFile,
    Reading,
    all_names,
    csv_table,
    distinct_labels,
)

NO_PART = "In no part by the table of --split."


def read_table(names: Sequence[str], lines: Sequence[str], flag: str) -> dict[str, str]:
    """Returns the value of each path in a table.

    Args:
        names: The images of the data; see `DataSpec.relative_names`.
        lines: The lines; the first has the columns `path` and the flag's, and maybe others.
        flag: One of `COLUMNS`.

    Raises:
        ValueError: If a column is missing, a path is missing or listed twice, or the data do not
            have an image.
    """
    column, title = COLUMNS[flag], f"The table of --{flag} ({flag}=)"
    columns, rows, first_row = csv_table("\n".join(lines), title)
    if not {"path", column} <= {*columns}:
        raise ValueError(f"{title} must have the columns path,{column}. Received: {columns}")
    values: dict[str, str] = {}
    images = {*names}
    for number, row in enumerate(rows, first_row):
        path = str(row["path"])
        name = find_name(path, images) or normal_path(path.strip())
        if name == "." or name in values:
            raise ValueError(
                f"{title} must have a path in each row, each once. "
                f"Received in row {number}: {path!r}"
            )
        values[name] = composed(str(row[column]).strip())
    others = sorted(values.keys() - images)
    if others and flag != "groups":  # These may be of images that are excluded or unreadable.
        raise ValueError(
            f"{title} must have images of the data, by their paths relative to it, such as "
            f"{[*names[:1]]}. Received: {first_names(others, 3)}, which the data do not have"
        )
    return values


def without_excluded(splits: dict[str, Examples], reading: Reading) -> dict[str, Examples]:
    """Returns the examples that are not excluded by name; raises as `corrected_files`."""
    names = [name for examples in splits.values() for name in examples.names]
    excluded = _excluded(names, names, reading)
    return {
        part: examples.take([n for n, name in enumerate(examples.names) if name not in excluded])
        for part, examples in splits.items()
    }


def corrected_files(
    files: list[LabelledFile], class_names: Sequence[str], reading: Reading
) -> list[LabelledFile]:
    """Returns the files that are not excluded, with the labels and parts of the tables.

    Args:
        files: The files as the data have them.
        class_names: The classes of the data.
        reading: Its `DataSpec` has the tables. It receives the files that are in no part.

    Raises:
        ValueError: If a table or list has an image that the data do not have, a part or label
            that is none of the data's, or the table of parts lacks an image.
    """
    spec = reading.spec
    if reading.one_part:
        files = [file._replace(split=None) for file in files]
    if not (spec.exclude or spec.split or spec.labels):
        return files
    paths = [file.path for file in files]
    names = spec.relative_names(paths)
    excluded = _excluded(names, paths, reading)
    words = read_table(names, spec.split, "split") if spec.split else {}
    labels = _labels_by_name(names, files, class_names, spec) if spec.labels else {}
    corrected, wrong = [], []
    for name, file in zip(names, files, strict=True):
        if file.path in excluded:
            continue
        file = file._replace(label=labels.get(name, file.label))
        word = words.get(name)
        if not spec.split or (word is None and not is_utf_8(name)):
            corrected.append(file)  # A name that is not UTF-8 is left out later, with a line.
        elif word is None:
            wrong.append(f"no row of {name}")
        elif word in SPLITS:
            corrected.append(file._replace(split=SPLITS[word]))
        elif word:
            wrong.append(f"{word!r} of {name}")
        else:
            reading.skipped.append((printable(file.path), NO_PART))
    if wrong:
        advice = f"; {spec.checked} is of other photos: run keras-vit check again"
        raise ValueError(
            f"The table of --split (split=) must have a part ({', '.join(PARTS)}) of every image. "
            f"Received: {first_names(wrong, 3)}{advice if spec.checked else ''}"
        )
    return corrected


def _excluded(names, paths, reading):
    """The paths that `exclude` has, relative to the data or whole; a run's images may be gone."""
    whole = [*map(normal_path, paths)]
    known = {*names, *whole}
    found = {line: find_name(line, known) for line in reading.spec.exclude}
    absent = sorted(line for line, name in found.items() if name is None)
    if absent and not reading.recorded:
        raise ValueError(
            f"Excluded images must be in the data. Received: {reading.spec.data}, without "
            f"{first_names(absent)}"
        )
    excluded = {*found.values()}
    forms = zip(paths, names, whole, strict=True)
    return {path for path, *forms_of_path in forms if not excluded.isdisjoint(forms_of_path)}


def _labels_by_name(names, files, class_names, spec):
    """The labels of the table of `--labels`; tuples for multi-label images."""
    is_multilabel = spec.task == MULTILABEL or any(isinstance(file.label, tuple) for file in files)
    labels: dict[str, str | tuple[str, ...]] = {}
    for name, text in read_table(names, spec.labels, "labels").items():
        labels[name] = distinct_labels(text.split(SEPARATOR)) if is_multilabel else text
        if not {*all_names([labels[name]])} <= {*class_names}:
            raise ValueError(
                "Labels of --labels (labels=) must be classes of the data "
                f"({first_names(class_names, 10)}). Received: {text!r} of {name}"
            )
    return labels


def find_groups(splits: dict[str, Examples], reading: Reading) -> dict[str, int] | None:
    """Returns the group of each image by its name; None where images are not grouped.

    Args:
        splits: The images in their parts.
        reading: Its `DataSpec` has `group_by` or the table of groups. It receives lines on them.
    """
    spec = reading.spec
    if spec.group_by is None and not spec.groups:
        return None
    origin = spec.group_by or "--groups"
    paths = [path for examples in splits.values() for path in examples.names]
    names = spec.relative_names(paths) if spec.has_paths else paths
    if spec.groups:
        by_name = read_table(names, spec.groups, "groups")
        texts = [by_name.get(name) or None for name in names]
    elif reading.group_texts:
        texts = [reading.group_texts.get(path) or None for path in paths]
    else:
        texts = texts_of_groups(origin, names)
    numbers, alone = group_of(origin, names, texts)
    groups = dict(zip(paths, numbers.tolist(), strict=True))
    line = f"{len({*groups.values()})} groups of {len(paths)} images"
    if alone:
        line += f", {alone} of one image without the information"
    alike = look_alikes(filter(None, texts))
    if alike:
        line += f"; look alike: {first_names(alike, 3)}"
    reading.notes += [line, *shared_groups(splits, groups)]
    return groups
