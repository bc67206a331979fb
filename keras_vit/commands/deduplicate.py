"""`keras-vit deduplicate`: copies of test images in a training set."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time

from keras_vit.commands import Command
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.evaluation.protocols import DUPLICATE_DISTANCE, DUPLICATE_SIMILARITY
from keras_vit.utils.fields import AT_LEAST_1, REQUIRED, changed, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deduplicate(Command):
    """Find copies of test images in a training set."""

    train: str = setting(
        REQUIRED, "a folder (its train folder if it has one), a CSV file or tfds:NAME", unit="DATA"
    )
    test: str = setting(
        REQUIRED, "a folder (its test folder if it has one), a CSV file or tfds:NAME", unit="DATA"
    )
    output: str = setting(
        REQUIRED,
        "the training images to leave out, for --exclude; beside it LIST_pairs.csv and the "
        "picture LIST_pairs.png",
        unit="LIST",
    )
    data_dir: str | None = changed(DataSpec, "data_dir")
    strict: bool = changed(DataSpec, "strict")
    distance: int = setting(
        DUPLICATE_DISTANCE,
        "bits of 64 in which perceptual hashes may differ, 0 to 15",
        unit="BITS",
    )
    similarity: float = setting(
        DUPLICATE_SIMILARITY, "smallest correlation of the thumbnails", unit="SHARE"
    )
    num_pictures: int = setting(48, "pairs to draw, the least similar first", unit="N")
    workers: int | None = setting(
        None, "processes", unit="N", absent="all cores", limits=AT_LEAST_1
    )
    without_tensorflow = True

    def run(self) -> None:
        """Finds the pairs and writes the list, the table and the picture."""
        from keras_vit.training.data.sources import describe_skipped
        from keras_vit.training.paper import duplicates
        from keras_vit.utils.progress import progress_bar

        folder = pathlib.Path(self.output).absolute().parent
        if not folder.is_dir():
            raise ValueError(f"The list must be in a folder that exists. Received: {folder}")
        workers = self.workers or os.cpu_count()
        train = duplicates.ImageList(self.train, "train", self.data_dir)
        test = duplicates.ImageList(self.test, "test", self.data_dir)
        skipped: list[duplicates.SkippedImage] | None = None if self.strict else []
        began = time.monotonic()
        index = duplicates.index_test_images(
            test,
            distance=self.distance,
            similarity=self.similarity,
            workers=workers,
            skipped=skipped,
        )
        with progress_bar(len(train), "deduplicate") as bar:
            pairs = list(
                duplicates.find_duplicates(
                    train, index, workers=workers, skipped=skipped, progress=bar.update
                )
            )
        seconds = time.monotonic() - began
        written = duplicates.write_results(
            self.output, pairs, train.read, test.read, num_pictures=self.num_pictures
        )
        copies, copied = {pair.train for pair in pairs}, {pair.test for pair in pairs}
        print(
            f"{len(train)} training and {len(test)} test images in {seconds:.0f} s\n"
            f"{len(copies)} training images are copies of {len(copied)} test images "
            f"({len(pairs)} pairs, {sum(pair.kind == 'exact' for pair in pairs)} exact)"
        )
        for line in describe_skipped(skipped or ()):
            print(line)
        for path in written:
            print(f"written {path}")
