"""The data of a run: where labelled images are and how they are split."""

from __future__ import annotations

import collections
import csv
import dataclasses
import io
import os
import pathlib
import posixpath
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from keras_vit.description.class_labels import TASKS, composed
from keras_vit.description.run_record import RunRecord
from keras_vit.description.without_paths import LEFT_OUT, is_place, without_paths
from keras_vit.utils.fields import (
    SEED,
    SHARE,
    check_fields,
    check_json,
    documented,
    setting,
)
from keras_vit.utils.files import TABLE_SUFFIXES
from keras_vit.utils.safe_text import for_csv
from keras_vit.utils.text_files import read_lines

if TYPE_CHECKING:
    from .in_memory import Labelled

TFDS, TFRECORDS = "tfds:", "tfrecords:"  # Before the name of a data set, and before a folder.
INDEX = "index.npz"  # The file by which a folder of TFRecord files is known.
FILES = ("folder", "table")  # Kinds of data whose images are files.
COLUMNS = {"split": "split", "labels": "label", "groups": "group"}  # By the flag, of values.
# What `--checked` takes from the folder of `keras-vit check`, by the field.
CHECKED = {
    "split": "split.csv",
    "groups": "groups.csv",
    "labels": "labels.csv",
    "exclude": "exclude.txt",
}
TOGETHER, IGNORED = COPIES = ("together", "ignore")  # Photos that show one thing.
NOT_LOOKED_FOR = f"copies were not looked for (--copies {IGNORED})"
INNERMOST = "innermost"  # The folder that an image lies in is its class.
FOLDERS = ("classes", "parts", INNERMOST)  # What the folders in the data may be.

# The fields of `DataSpec` that an evaluation takes from the run unless they are given.
OF_THE_RUN = (
    "labels",
    "group_by",
    "groups",
    "path_column",
    "label_column",
    "label_separator",
    "skip_unlabelled",
    "folders",
    "only",
    "label_by",
)
# The fields that evaluations read; the classifier and its run have the others.
EVALUATED_DATA = ("data", "data_dir", "strict", "follow_symlinks", "copies", *OF_THE_RUN)


def bit_depth_setting(absent: str) -> int | None:
    """Returns the field of the bit depth of 16-bit images, with the text of its default."""
    return setting(
        None,
        "bits of the values of 16-bit PNG and TIFF files, whose high 8 are read",
        unit="N",
        absent=absent,
        limits=("from 8 to 16", lambda bits: 8 <= bits <= 16),
    )


@documented
@dataclasses.dataclass(frozen=True)
class DataSpec:
    """Where labelled images are, and what of them is held out.

    The flags of the commands, the data of a job and `recipe.json` are this one object.

    Raises:
        ValueError: If a value is out of range.

    Example:
    >>> source = open_source(DataSpec("photos", holdout=0.1), validation=0.05)
    >>> len(source.splits["train"]), len(source.splits["validation"])
    (1710, 90)
    """

    data: Any = setting(  # `Labelled` or None; anything else than a path is kept as `InMemory`.
        None,
        "a folder {train,test}/CLASS/* or CLASS/*, a CSV file of paths and labels, "
        "tfrecords:FOLDER or tfds:NAME; the flag itself may be left out",
        unit="DATA",
        python="Labelled | DataSpec | None",
    )
    data_dir: str | os.PathLike | None = setting(
        None, "the folder of tfds, or of the relative paths in a CSV file", unit="DIR"
    )
    holdout: float = setting(
        0.2,
        "share of the images for testing where the data have no test part; 0 for none",
        unit="SHARE",
        limits=SHARE,
    )
    strict: bool = setting(False, "stop at an image that cannot be read")
    exclude: tuple[str, ...] = setting(
        (),
        "images to leave out; the flag takes a file that lists them, one a line",
        unit="LIST",
        from_file=True,
    )
    split_seed: int | None = setting(
        None,
        "seed of the choice of images that are held out",
        unit="N",
        absent="the run's seed",
        limits=SEED,
    )
    test: bool = setting(True, "keep the test part", flag="")
    follow_symlinks: bool = setting(
        False, "read images that symbolic links lead to outside of the data's folder"
    )
    task: str | None = setting(
        None,
        "one class for each image, or multi-label",
        choices=TASKS,
        absent="as the data show it",
    )
    class_names: tuple[str, ...] | None = setting(
        None, "names of the classes of arrays, in the order of their numbers", flag=""
    )
    calibration: float = setting(
        0.0,
        "share of the training images that is held out for calibration where the data have no "
        "such part; 0 for none, or 0.1 with --max-error",
        unit="SHARE",
        limits=SHARE,
    )
    split: tuple[str, ...] = setting(
        (),
        "a CSV file path,split with the part of each image, by its path relative to the data",
        unit="TABLE",
        from_file=True,
    )
    labels: tuple[str, ...] = setting(
        (),
        "a CSV file path,label with other labels for some images; paths are relative to the data",
        unit="TABLE",
        from_file=True,
    )
    group_by: str | None = setting(
        None,
        "keep images of a group in the same part: a column of the CSV file, or a regular "
        "expression whose first capture group, or match, in the path relative to the data is the "
        "group",
        unit="COLUMN|REGEX",
    )
    path_column: str | None = setting(
        None,
        "the column of paths in a CSV file",
        unit="COLUMN",
        absent="path",
    )
    label_column: str | None = setting(
        None,
        "the column of labels, or the columns of 0 and 1 that are the classes, with commas between",
        unit="COLUMN",
        absent="label",
    )
    label_separator: str | None = setting(
        None,
        "what separates the labels of an image in a table's cell, such as ',' or '|'",
        unit="TEXT",
        absent=";",
    )
    skip_unlabelled: bool = setting(False, "leave out the rows of a table without a label")
    bit_depth: int | None = bit_depth_setting("8, 10, 12, 14 or 16, as the largest value needs")
    folders: str | None = setting(
        None,
        "what the folders in the data folder are: classes, even one called train; parts, also "
        "with names such as Training; or innermost, where the folder that an image lies in is its "
        "class, at whatever depth",
        choices=FOLDERS,
        absent="as their names show it",
    )

    only: str | None = setting(
        None,
        "of a data folder, read the images alone whose name matches a pattern, such as '*.jpg'",
        unit="PATTERN",
        absent="all images",
    )
    label_by: str | None = setting(
        None,
        "of a data folder, a regular expression whose first capture group, or match, in the path "
        "relative to the data is the class, such as '_(\\w+)\\.' for 12_cat.jpg",
        unit="REGEX",
        absent="the folder of an image is its class",
    )

    copies: str = setting(
        TOGETHER,
        "whether photos that show one thing (copies and bursts) are kept in the same part, and "
        "counted together by intervals",
        choices=COPIES,
        group="photos that belong together",
    )

    groups: tuple[str, ...] = setting(
        (),
        "a CSV file path,group, such as groups.csv of keras-vit check: images of a group are kept "
        "in the same part; an image without a row is a group of one",
        unit="TABLE",
        from_file=True,
    )
    checked: str | None = setting(
        None,
        "a folder of keras-vit check: its parts and groups, and the decisions that its page saved "
        "(labels.csv and exclude.txt, moved there)",
        unit="FOLDER",
    )

    def __post_init__(self):
        if self.checked is not None:
            self._take_checked()
        if self.data_dir is not None:
            object.__setattr__(self, "data_dir", os.fspath(self.data_dir))
        if isinstance(self.data, os.PathLike):
            object.__setattr__(self, "data", os.fspath(self.data))
        elif not isinstance(self.data, str | None):
            from .in_memory import InMemory  # Imports NumPy, which --help does not need.

            data = self.data if isinstance(self.data, InMemory) else InMemory(self.data)
            object.__setattr__(self, "data", data)
        for table in COLUMNS:
            object.__setattr__(self, table, table_lines(getattr(self, table), table))
        if isinstance(self.exclude, str | os.PathLike):
            object.__setattr__(self, "exclude", read_lines(self.exclude))
        for name in ("exclude", "class_names"):
            if (values := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(values))
        if self.groups and self.group_by is not None:
            raise ValueError(
                "Groups must come from --groups (groups=) or from --group-by (group_by=), not both."
            )
        check_fields(self)

    def _take_checked(self):
        """Takes the files of a folder of `keras-vit check` for the fields that are not given."""
        folder = pathlib.Path(self.checked or "")
        files = [name for name in CHECKED.values() if (folder / name).is_file()]
        if CHECKED["split"] not in files:
            raise ValueError(
                "--checked (checked=) must be a folder that keras-vit check wrote, with "
                f"{CHECKED['split']}. Received: {self.checked}"
            )
        for field, name in CHECKED.items():
            if name in files and not getattr(self, field):
                object.__setattr__(self, field, str(folder / name))

    @property
    def checked_line(self) -> str | None:
        """What was taken from the folder of `keras-vit check`, and what was not there."""
        if self.checked is None:
            return None
        has = [name for field, name in CHECKED.items() if getattr(self, field)]
        line = f"from {self.checked}: {', '.join(has)}"
        if missing := [name for name in CHECKED.values() if name not in has]:
            line += (
                f"; no {' and no '.join(missing)}: check.html saves decisions where the browser "
                "puts downloads, move them there"
            )
        return line

    @property
    def name(self) -> str | None:
        """The data in `recipe.json`: their path or name, or a hash of in-memory data."""
        return self.data if isinstance(self.data, str | None) else self.data.name

    @property
    def root(self) -> str:
        """The folder that paths of images are relative to; "" for the working directory."""
        root = self.data_dir or (self.data if isinstance(self.data, str) else "")
        return os.path.dirname(root) if os.path.isfile(root) else os.fspath(root)

    @property
    def kind(self) -> str:
        """What the data are: "folder", "table", "arrays", `TFDS` or `TFRECORDS`.

        Raises:
            ValueError: For in-memory data of which only the name is known.
        """
        if not isinstance(self.data, str):
            return "arrays"
        from .in_memory import MEMORY  # Imports NumPy, which --help does not need.

        if self.data.startswith(MEMORY):
            raise ValueError(
                f"Data in memory must be passed again by the program. Received: {self.data}"
            )
        for prefix in (TFDS, TFRECORDS):
            if self.data.startswith(prefix):
                return prefix
        if os.path.isfile(os.path.join(self.data, INDEX)):
            return TFRECORDS
        is_table = self.data.lower().endswith(TABLE_SUFFIXES) or os.path.isfile(self.data)
        return "table" if is_table else "folder"

    @property
    def has_paths(self) -> bool:
        """Whether the images are files, which tables of parts and groups name."""
        return self.kind in FILES

    @property
    def ignores_copies(self) -> bool:
        """Whether photos that show one thing are not looked for."""
        return self.copies == IGNORED

    def check_given(self) -> None:
        """Raises ValueError if there are no data."""
        if self.data is None:
            text = "Data must be given: a folder, a CSV file or tfds:NAME (--data)."
            if self.data_dir is not None:
                text += (
                    f" Received: --data-dir {self.data_dir}, the folder of a CSV file or of tfds; "
                    f"photos are --data {self.data_dir}"
                )
            raise ValueError(text)

    def relative(self, path: str) -> str:
        """Returns the path of an image relative to the folder of the data, or its last part."""
        return self.relative_names([path])[0]

    def relative_names(self, paths: Iterable[str]) -> list[str]:
        """Returns the path of each of all images relative to the folder, as tables have it.

        An image outside of the folder has the last part of its path, if no other image has this
        name.
        """
        names = [normal_path(os.path.relpath(path, self.root or ".")) for path in paths]
        last = [posixpath.basename(name) if name.startswith("../") else name for name in names]
        counts = collections.Counter(last)
        return [
            short if counts[short] == 1 else name for short, name in zip(last, names, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON can hold them."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        lists = {name: list(value) for name, value in fields.items() if type(value) is tuple}
        return {**fields, **lists, "data": self.name}

    @classmethod
    def of_recipe(cls, recipe: RunRecord, given: DataSpec | None = None) -> Self:
        """Returns the data of a run.

        Args:
            recipe: Its record.
            given: The data that were passed again, needed for in-memory data.

        Raises:
            ValueError: If a field is unknown or its value is wrong, or other in-memory data
                were passed.
        """
        # Runs that do not record `copies` did not look for them. What was taken from the folder of
        # a check is in the other fields.
        values = {"copies": IGNORED, **recipe.data, "checked": None}
        check_json(cls, values, "the recipe")
        if given is not None and not isinstance(given.data, str | None):
            if given.name != values["data"]:
                raise ValueError(
                    f"The data must match the run's, {values['data']}. Received: {given.name}"
                )
            values["data"] = given.data
        return cls(**values)


def check_tables(begun: RunRecord, data: DataSpec, output: str | os.PathLike) -> None:
    """Raises ValueError if the tables of a repeated command are not those that its run began with.

    Args:
        begun: The run's record.
        data: The data of the command now.
        output: The folder of the run, for the message.
    """
    # A finished run has its tables without the folders of this machine.
    was, now = (without_paths({"data": each})["data"] for each in (begun.data, data.to_json()))
    changed = [name for name in CHECKED if name in was and set(now[name]) - set(was[name] or ())]
    if changed:
        raise ValueError(
            "A command that is given again must have the tables that its run began with: "
            "--overwrite trains with the new ones, another --output keeps both. "
            f"Received: {os.fspath(output)}, begun with other {', '.join(changed)}"
        )


def spec_of_run(recipe: RunRecord, given: DataSpec) -> DataSpec | None:
    """Returns the data of a run with what it held out, or None for other data.

    Whether links are followed out of the folder, the caller alone says: a record that somebody
    else wrote opens no other folder.

    Args:
        recipe: The record of the run, which may be empty.
        given: The data to compare with it.
    """
    if not is_place(recipe, given.name or ""):
        return None
    spec = DataSpec.of_recipe(recipe, given)
    own = None if f"{spec.data_dir}".startswith(LEFT_OUT) else spec.data_dir
    return dataclasses.replace(
        spec,
        data=given.data,
        data_dir=given.data_dir or own,
        follow_symlinks=given.follow_symlinks,
    )


Data: TypeAlias = "Labelled | DataSpec | None"


def data_spec(data: Data, options: Mapping[str, Any] | None = None) -> DataSpec:
    """Returns the data of a job from the arguments of `finetune`.

    Args:
        data: The data, or a `DataSpec`.
        options: Other fields of `DataSpec` by name.

    Raises:
        TypeError: If an option is no field of `DataSpec`.
        ValueError: If a `DataSpec` and other options are given.
    """
    spec = DataSpec(None, **(options or {}))
    if not isinstance(data, DataSpec):
        return dataclasses.replace(spec, data=data)
    if spec != DataSpec():
        raise ValueError(f"With a DataSpec, the data options must be in it. Received: {options}")
    return data


def table_lines(
    table: str | os.PathLike | Mapping[str, str] | Iterable[str], flag: str
) -> tuple[str, ...]:
    """Returns the lines of a table, as a run records it and `check` writes it.

    A path that a spreadsheet would run as a formula is quoted and begins with "./".

    Args:
        table: A CSV file, its lines, or a mapping from paths to values.
        flag: One of `COLUMNS`.

    Raises:
        ValueError: If a file is no text; see `read_text`.
    """
    if isinstance(table, Mapping):
        text = io.StringIO()
        formulas = {path for path in table if for_csv(path) != path}
        rows = [(f"./{path}" if path in formulas else path, table[path]) for path in table]
        writer = csv.writer(
            text, lineterminator="\n", quoting=csv.QUOTE_ALL if formulas else csv.QUOTE_MINIMAL
        )
        writer.writerows([("path", COLUMNS[flag]), *rows])
        return tuple(text.getvalue().splitlines())
    if isinstance(table, str | os.PathLike):
        return tuple(read_lines(table))
    return tuple(line for line in table if line.strip())


def normal_path(path: str) -> str:
    """Returns a path as it is compared: with slashes, without "./", in composed form."""
    return composed(posixpath.normpath(path.replace(os.sep, "/")))


def path_forms(text: str) -> list[str]:
    """Returns what a path in a list or table may stand for; the first that exists is meant.

    That is the text itself, the text without the spaces around it, and with slashes in place of
    the backslashes that Windows writes. Each is there once.
    """
    stripped = text.strip()
    return [*dict.fromkeys((text, stripped, stripped.replace("\\", "/")))]


def find_name(text: str, names: Container[str]) -> str | None:
    """Returns the name that a path in a list or table stands for; None if there is none.

    Args:
        text: The path; see `path_forms`.
        names: The names, as `normal_path` has them.
    """
    forms = map(normal_path, path_forms(text))
    return next((form for form in forms if form in names), None)


def check_output(output: str | os.PathLike | None, data: Data) -> None:
    """Raises unless an output lies outside of the folder of the data.

    Args:
        output: The folder to write, or None.
        data: The data; anything but an existing folder has no outputs in it.

    Raises:
        ValueError: If the pictures in the output would be a class of the data the next time.
    """
    if output is None or not isinstance(data, str | os.PathLike) or not os.path.isdir(data):
        return
    if (os.path.realpath(output) + os.sep).startswith(os.path.join(os.path.realpath(data), "")):
        raise ValueError(
            "The output must lie outside of the data's folder, where its pictures would become "
            f"images of a class. Received: {os.fspath(output)}, in {os.fspath(data)}"
        )
