"""`keras-vit check`: wrong labels, copies and shortcuts among labelled photos."""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
from typing import TYPE_CHECKING

from keras_vit.commands import Command, shared_arguments
from keras_vit.commands.shared_arguments import OR_CLASSIFIER
from keras_vit.training.data.spec import CHECKED, DataSpec, check_output
from keras_vit.utils.fields import REQUIRED, flag_of, part, setting

if TYPE_CHECKING:
    from keras_vit.training.trust import CheckReport

_DATA = (
    "data_dir",
    "exclude",
    "follow_symlinks",
    "task",
    "split",
    "labels",
    "group_by",
    "path_column",
    "label_column",
    "label_separator",
    "skip_unlabelled",
    "folders",
    "only",
    "label_by",
    "bit_depth",
)

# The fields that say how the data are read, which the command that trains needs too.
_READ_AGAIN = [name for name in _DATA if name not in ("exclude", "split", "labels", "group_by")]

FEW = 2000  # Images, of which 100 small steps are enough for a first run.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check(Command):
    """Check labelled photos before training: labels, copies, shortcuts, unreadable files.

    It changes and deletes nothing. check.html shows the findings and saves labels.csv and
    exclude.txt; findings.csv has them for programs; split.csv keeps copies and groups together, and
    groups.csv names the group of each photo.

    With --strict the exit code is 1 if a file cannot be read, copies lie in different parts of the
    data or have different labels, or there is a shortcut.
    """

    photos: str = setting(
        REQUIRED,
        "a folder {train,test}/CLASS/* or CLASS/*, a CSV file of paths and labels, "
        "tfrecords:FOLDER or tfds:NAME",
        unit="PHOTOS",
        python="Labelled | DataSpec",
        positional=True,
    )
    data: DataSpec = part(DataSpec, only=_DATA, group="data")
    weights: str = setting(
        "imagenet21k",
        "the weights whose features are used, best those that will be fine-tuned: imagenet21k, a "
        "name of the catalogue, a file, or a classifier's folder",
        unit="NAME",
        python=OR_CLASSIFIER,
    )
    model: str | None = setting(
        None,
        "a model's name, see keras-vit models",
        unit="NAME",
        absent="the model of the weights, or ViT-B/16",
    )
    image_size: tuple[int, int] | None = setting(
        None,
        "what the model sees of a photo, 384 or 384x512 (height x width)",
        unit="PIXELS",
        absent="the weights'",
    )
    batch_size: int = shared_arguments.batch_size()
    output: str = setting("check", "the folder of the files", unit="DIR")
    strict: bool = setting(False, "end with exit code 1 if there are findings above the levels")

    @property
    def models(self) -> tuple[str | None, ...]:
        """The weights whose features are used."""
        return (self.weights,)

    def result(self) -> CheckReport:
        """Checks the photos and writes the files."""
        from keras_vit.training.trust import check_photos

        check_output(self.output, self.photos)
        return check_photos(
            dataclasses.replace(self.data, data=self.photos),
            weights=self.weights,
            model=self.model,
            image_size=self.image_size,
            batch_size=self.batch_size,
            output=self.output,
            progress=True,
        )

    def run(self) -> int:
        """Checks the photos, prints the summary and the files."""
        report = self.result()
        print(report)
        for path in report.written:
            print(f"written {path}")
        for field in ("labels", "exclude"):
            saved = pathlib.Path(self.output) / CHECKED[field]
            if saved.is_file() and not getattr(self.data, field):
                print(f"saved   {saved} is for finetune; --{field} {saved} checks with it")
        print(f"next    {self._next(len(report.names))}")
        exceeded = report.exceeded() if self.strict else []
        for line in exceeded:
            print(f"strict  {line}")
        return int(bool(exceeded))

    def _next(self, images: int) -> str:
        """The command that trains with the parts, the groups and the decisions of this check."""
        flags = ["--weights", self.weights]
        if dataclasses.replace(self.data, data=self.photos).has_paths:
            flags = ["--checked", self.output, *flags]
        for field in dataclasses.fields(self.data):
            value = getattr(self.data, field.name)
            if field.name in _READ_AGAIN and value != field.default:
                flags += [flag_of(field)] + ([] if value is True else [str(value)])
        if images < FEW:
            flags += ["--steps", "100", "--batch-size", "32"]
        output = f"runs/{pathlib.PurePath(self.photos).stem}"
        return shlex.join(["keras-vit", "finetune", self.photos, *flags, "--output", output])
