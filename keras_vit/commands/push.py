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

    No photos, absolute paths or names of training images are pushed. --dry-run prints every file
    and its size, and asks the Hub nothing.
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
        from keras_vit.description.description_texts import describe_license, license_in_card
        from keras_vit.hub.repositories import NAME, READ_FILES

        if not re.fullmatch(NAME, self.repository):
            raise ValueError(f"The repository must be OWNER/NAME. Received: {self.repository}")
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            self._write(folder)
            sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
            print(f"{self.repository} ({'private' if self.private else 'public'})")
            rows = [*sizes.items(), (f"{len(sizes)} files", sum(sizes.values()))]
            print(align_columns([(name, f"{size:,} bytes") for name, size in rows]))
            if license := license_in_card(folder):
                print(describe_license(license))
            if self.dry_run:
                print("Nothing was pushed (--dry-run).")
                return
            print(f"pushed {self._upload(folder, READ_FILES)}")

    def _write(self, folder):
        """Writes the classifier with its card; Keras reads `model.keras` from the Hub unpacked.

        Left out are the photos, names and hashes of the data and the page of the run, which belong
        to the folder.
        """
        from keras_vit.checkpoints.hdf5 import check_keras_archive
        from keras_vit.description.description_texts import TEXTS, description_of_folder
        from keras_vit.description.without_paths import without_paths
        from keras_vit.hub.repositories import classifier_folder
        from keras_vit.training.run.card import hub_card
        from keras_vit.utils.json_files import read_json

        classifier = classifier_folder(self.folder)
        model = classifier / files.MODEL
        if not (model.is_file() and (classifier / files.CLASSES).is_file()):
            raise ValueError(f"A classifier's folder must be pushed. Received: {self.folder}")
        files.check_own_files(classifier)
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

    def _upload(self, folder, replaced):
        """Pushes the files of a folder in one commit and returns its address.

        Until the commit nothing changes. Files of the names `replaced` that the folder does not
        have are removed; what a call that broke off uploaded is not uploaded again.
        """
        from keras_vit.hub.repositories import LIBRARY, import_hugging_face, one_line_errors

        api = import_hugging_face().HfApi(library_name=LIBRARY)
        with one_line_errors(f"{self.repository} cannot be pushed"):
            api.create_repo(self.repository, private=self.private or None, exist_ok=True)
            found = api.repo_info(self.repository)
            if self.private and not found.private:
                raise ValueError(
                    "The repository must be private: change it in its settings, or push without "
                    f"--private. Received: {self.repository}, which everybody may see"
                )
            commit = api.upload_folder(
                repo_id=self.repository,
                folder_path=folder,
                delete_patterns=list(replaced),
                commit_message="Push of keras-vit",
                parent_commit=found.sha,
            )
        return commit.commit_url
