"""A classifier as a repository of the Hugging Face Hub."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import tempfile
import zipfile

from keras_vit.checkpoints.hdf5 import check_keras_archive
from keras_vit.classifier_saving import copy_classifier
from keras_vit.description import Description
from keras_vit.description.description_texts import (
    TEXTS,
    describe_license,
    license_in_card,
    read_texts,
)
from keras_vit.description.without_paths import without_paths
from keras_vit.export.formats.table import is_export
from keras_vit.hub.repositories import (
    LIBRARY,
    NAME,
    READ_FILES,
    classifier_folder,
    import_hugging_face,
    one_line_errors,
)
from keras_vit.opening import open_predictor
from keras_vit.predictor import AnyClassifier
from keras_vit.reports.report import align_columns
from keras_vit.training.run.card import hub_card
from keras_vit.utils import files
from keras_vit.utils.json_files import read_json
from keras_vit.utils.progress import Log


@dataclasses.dataclass(frozen=True)
class Pushed:
    """A repository that was pushed.

    Args:
        repository: OWNER/NAME.
        private: Whether nobody else sees it.
        sizes: Bytes by the name of the file.
        license: The license in words; "" if none is known.
        url: The address of the commit; None of a dry run, which pushes nothing.
    """

    repository: str
    private: bool
    sizes: dict[str, int]
    license: str = ""
    url: str | None = None

    @property
    def files(self) -> str:
        """The repository, its files with their sizes and its license, a line each."""
        rows = [*self.sizes.items(), (f"{len(self.sizes)} files", sum(self.sizes.values()))]
        lines = [
            f"{self.repository} ({'private' if self.private else 'public'})",
            align_columns([(name, f"{size:,} bytes") for name, size in rows]),
        ]
        return "\n".join([*lines, *filter(None, [self.license])])


def push_classifier(
    classifier: AnyClassifier,
    repository: str,
    *,
    private: bool = False,
    dry_run: bool = False,
    log: Log | None = print,
) -> Pushed:
    """Pushes a classifier with its card in one commit.

    Args:
        classifier: A `Classifier`, or anything that `keras_vit.load_classifier` takes, except for
            exports. A folder is pushed with its own files.
        repository: "OWNER/NAME", which is made if it is missing.
        private: Whether nobody else may see it.
        dry_run: Whether to push nothing, and to ask the Hub nothing.
        log: Receives every file and its size before they are pushed; None for no lines.

    Raises:
        ValueError: If the repository's name is wrong or it is public, or the classifier cannot be
            opened or is an export.
        OSError: If it cannot be pushed.
    """
    if not re.fullmatch(NAME, repository):
        raise ValueError(f"The repository must be OWNER/NAME. Received: {repository}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = _folder_of(classifier, pathlib.Path(scratch, "classifier"))
        copy = pathlib.Path(scratch, "repository")
        copy.mkdir()
        _write(copy, folder, repository)
        license = license_in_card(copy)
        found = Pushed(
            repository=repository,
            private=private,
            sizes={path.name: path.stat().st_size for path in sorted(copy.iterdir())},
            license=describe_license(license) if license else "",
        )
        if log is not None:
            log(found.files)
        if dry_run:
            return found
        return dataclasses.replace(found, url=_upload(copy, repository, private))


def _folder_of(anything, scratch):
    """Returns the folder of a classifier, which is written if it is in memory or elsewhere."""
    if isinstance(anything, (str, os.PathLike)):
        folder = classifier_folder(anything)
        if (folder / files.MODEL).is_file() and (folder / files.CLASSES).is_file():
            return folder
        if folder.is_dir() and not is_export(folder):
            raise ValueError(f"A classifier's folder must be pushed. Received: {anything}")
    predictor = open_predictor(anything)
    if predictor.is_export:
        raise ValueError(
            "An export holds no Keras model to push: load the classifier that it was made of. "
            f"Received: {predictor.source}"
        )
    copy_classifier(scratch, predictor)
    return scratch


def _write(folder, classifier, repository):
    """Writes the classifier with its card; Keras reads `model.keras` from the Hub unpacked.

    Left out are the photos, names and hashes of the data and the page of the run, which belong
    to the folder.
    """
    model = classifier / files.MODEL
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
        Description.stored(read_texts(classifier), classifier),
        card.read_text(encoding="utf-8") if card.is_file() else "",
        repository=repository,
    )
    (folder / files.CARD).write_text(text, encoding="utf-8")


def _upload(folder, repository, private):
    """Pushes the files of a folder in one commit and returns its address.

    Until the commit nothing changes. Files of the names `READ_FILES` that the folder does not
    have are removed; what a call that broke off uploaded is not uploaded again.
    """
    api = import_hugging_face().HfApi(library_name=LIBRARY)
    with one_line_errors(f"{repository} cannot be pushed"):
        api.create_repo(repository, private=private or None, exist_ok=True)
        found = api.repo_info(repository)
        if private and not found.private:
            raise ValueError(
                "The repository must be private: change it in its settings, or push without "
                f"--private. Received: {repository}, which everybody may see"
            )
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            delete_patterns=list(READ_FILES),
            commit_message="Push of keras-vit",
            parent_commit=found.sha,
        )
    return commit.commit_url
