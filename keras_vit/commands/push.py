"""`keras-vit push`: a classifier as a repository of the Hugging Face Hub."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import shutil
import tempfile
import zipfile

from keras_vit.commands import Command
from keras_vit.utils import files
from keras_vit.utils.fields import REQUIRED, setting
from keras_vit.utils.report import align_columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Push(Command):
    """Push a classifier to the Hugging Face Hub, with a model card, in one commit.

    No photos, paths or names of training images are pushed. --dry-run prints every file and
    its size, and asks the Hub nothing.
    """

    folder: str = setting(
        REQUIRED,
        "the classifier's folder",
        unit="FOLDER",
        positional=True,
    )
    repository: str = setting(
        REQUIRED, "the repository, which is made if it is missing", unit="OWNER/NAME",
        positional=True,
    )  # fmt: skip
    private: bool = setting(False, "let nobody else see it")
    dry_run: bool = setting(False, "print every file and its size, and push nothing")

    def run(self) -> None:
        """Writes the files to a temporary folder, prints them, and pushes them."""
        from keras_vit.checkpoints.repositories import READ_FILES
        from keras_vit.hub.downloads import NAME
        from keras_vit.hub.uploads import upload

        if not re.fullmatch(NAME, self.repository):
            raise ValueError(f"The repository must be OWNER/NAME. Received: {self.repository}")
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            self._write(folder)
            sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
            print(f"{self.repository} ({'private' if self.private else 'public'})")
            rows = [*sizes.items(), (f"{len(sizes)} files", sum(sizes.values()))]
            print(align_columns([(name, f"{size:,} bytes") for name, size in rows]))
            if self.dry_run:
                print("Nothing was pushed (--dry-run).")
                return
            place = upload(self.repository, folder, private=self.private, replaced=READ_FILES)
            print(f"pushed {place}")

    def _write(self, folder):
        """Writes the classifier with its card; Keras reads `model.keras` from the Hub unpacked.

        Left out are the photos, names and hashes of the data and the page of the run, which belong
        to the folder.
        """
        from keras_vit.checkpoints.hdf5 import check_keras_archive
        from keras_vit.checkpoints.repositories import classifier_folder
        from keras_vit.description.description_texts import TEXTS, description_of_folder
        from keras_vit.description.without_paths import without_paths
        from keras_vit.training.run.card import hub_card
        from keras_vit.utils.json_files import read_json

        classifier = classifier_folder(self.folder)
        model = classifier / files.MODEL
        if not (model.is_file() and (classifier / files.CLASSES).is_file()):
            raise ValueError(f"A classifier's folder must be pushed. Received: {self.folder}")
        check_keras_archive(model)
        with zipfile.ZipFile(model) as archive:
            for name in files.UNPACKED_MODEL:
                (folder / name).write_bytes(archive.read(name))
        for name in (*TEXTS, files.HISTORY):
            if (classifier / name).is_file():
                shutil.copyfile(classifier / name, folder / name)
        if (classifier / files.RECIPE).is_file():
            recipe = without_paths(read_json(classifier / files.RECIPE))
            text = json.dumps(recipe, indent=2) + "\n"
            (folder / files.RECIPE).write_text(text, encoding="utf-8")
        card = classifier / files.CARD
        text = hub_card(
            description_of_folder(classifier),
            card.read_text(encoding="utf-8") if card.is_file() else "",
            repository=self.repository,
        )
        (folder / files.CARD).write_text(text, encoding="utf-8")
