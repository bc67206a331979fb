"""`keras-vit push`: a classifier as a repository of the Hugging Face Hub."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import tempfile
import zipfile

from keras_vit.commands import Command
from keras_vit.utils.fields import REQUIRED, setting


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
    dataset: tuple[str, ...] = setting((), "the Hub's names of the data sets", unit="NAME")
    samples: bool = setting(False, "push the photos in the classifier's folder too")
    dry_run: bool = setting(False, "print every file and its size, and push nothing")

    def run(self) -> None:
        """Writes the files to a temporary folder, prints them, and pushes them."""
        from keras_vit.checkpoints.repositories import READ_FILES
        from keras_vit.hub.uploads import Upload, check_name, check_token, upload
        from keras_vit.utils.files import named_disk_errors

        check_name(self.repository)
        if not self.dry_run:
            check_token()  # Before the work.
        advice = "Free space there, or set TMPDIR to another folder."
        with (
            named_disk_errors(tempfile.gettempdir(), lambda: advice),
            tempfile.TemporaryDirectory() as scratch,
        ):
            folder = pathlib.Path(scratch)
            self._write(folder)
            pushed = Upload(self.repository, folder, private=self.private, replaced=READ_FILES)
            print(pushed)
            print("Nothing was pushed (--dry-run)." if self.dry_run else f"pushed {upload(pushed)}")

    def _write(self, folder):
        """Writes the classifier with its card; Keras reads `model.keras` from the Hub unpacked.

        Left out are the photos, names and hashes of the data and the page of the run, which belong
        to the folder.
        """
        from keras_vit.checkpoints.hdf5 import check_keras_archive
        from keras_vit.checkpoints.repositories import classifier_folder
        from keras_vit.description.description_texts import TEXTS, description_of_folder
        from keras_vit.description.without_paths import without_paths
        from keras_vit.images.listing import image_files
        from keras_vit.training.run.card import hub_card
        from keras_vit.utils.files import (
            CARD,
            CLASSES,
            HISTORY,
            RECIPE,
            SAMPLES,
            UNPACKED_MODEL,
            model_in,
        )
        from keras_vit.utils.json_files import read_json

        classifier = classifier_folder(self.folder)
        model = model_in(classifier)
        if model is None or not (classifier / CLASSES).is_file():
            raise ValueError(f"A classifier's folder must be pushed. Received: {self.folder}")
        check_keras_archive(model)
        if model.is_dir():
            for name in UNPACKED_MODEL:
                shutil.copyfile(model / name, folder / name)
        else:
            with zipfile.ZipFile(model) as archive:
                for name in UNPACKED_MODEL:
                    with archive.open(name) as entry, (folder / name).open("wb") as file:
                        shutil.copyfileobj(entry, file)
        for name in (*TEXTS, HISTORY):
            if (classifier / name).is_file():
                shutil.copyfile(classifier / name, folder / name)
        if (classifier / RECIPE).is_file():
            recipe = without_paths(read_json(classifier / RECIPE))
            (folder / RECIPE).write_text(json.dumps(recipe, indent=2) + "\n", encoding="utf-8")
        if self.samples and (classifier / SAMPLES).is_dir():
            (folder / SAMPLES).mkdir()
            for photo in image_files(classifier / SAMPLES):
                shutil.copyfile(photo, folder / SAMPLES / pathlib.Path(photo).name)
        card = classifier / CARD
        text = hub_card(
            description_of_folder(classifier),
            card.read_text(encoding="utf-8") if card.is_file() else "",
            repository=self.repository,
            datasets=self.dataset,
        )
        (folder / CARD).write_text(text, encoding="utf-8")
