"""`keras-vit records`: labelled images as sharded TFRecord files."""

from __future__ import annotations

import dataclasses
import pathlib

from keras_vit.commands import Command
from keras_vit.training.data.spec import DataSpec, check_output
from keras_vit.utils.fields import REQUIRED, SEED, part, setting
from keras_vit.utils.files import SKIPPED, write_csv


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordsCommand(Command):
    """Write images as sharded TFRecord files, for several machines."""

    data: DataSpec = part(DataSpec, without=("split_seed",), group="data")
    output: str = setting(REQUIRED, "a new folder to write", unit="DIR")
    seed: int = setting(0, "seed of the order and of the test images", limits=SEED)

    def run(self) -> None:
        """Writes the files, reads them back, and prints how many there are."""
        from keras_vit.training.data import open_source, write_records
        from keras_vit.training.data.labelled_files import describe_skipped
        from keras_vit.training.data.things import lines_of_things

        check_output(self.output, self.data.data)
        source = open_source(dataclasses.replace(self.data, split_seed=self.seed))
        things = lines_of_things(source, self.data)
        notes = (*source.class_notes, *source.notes, *things, *describe_skipped(source.skipped))
        for line in notes:
            print(line)
        written = write_records(source, self.output, seed=self.seed, progress=True)
        if source.skipped:
            path = pathlib.Path(self.output, SKIPPED)
            write_csv(path, [("path", "reason"), *source.skipped])
            print(f"all skipped files are in {path}")
        for split, (images, files) in written.items():
            print(f"{split}: {images} images in {files} files")
        print(f"written {self.output}")
