"""`keras-vit push`: a classifier as a repository of the Hugging Face Hub."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
from typing import Any

from keras_vit.commands import Command
from keras_vit.export.export_format import BrowserFormat
from keras_vit.hub.forms import FORMS
from keras_vit.utils.fields import REQUIRED, part, setting


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
        completion=("classifiers",),
    )
    repository: str = setting(
        REQUIRED, "the repository, which is made if it is missing", unit="OWNER/NAME",
        positional=True,
    )  # fmt: skip
    form: str = setting(
        "folder",
        "the files: this package's, which Keras reads too, or another library's",
        flag="as",
        choices=tuple(FORMS),
    )
    private: bool = setting(False, "let nobody else see it")
    space: bool = setting(
        False, "also make the web page (--to html) a static Space of the same name"
    )
    dataset: tuple[str, ...] = setting(
        (), "the Hub's name of the data set; may be repeated", unit="NAME", repeated=True
    )
    samples: bool = setting(False, "push the photos in the classifier's folder too")
    dry_run: bool = setting(False, "print every file and its size, and push nothing")
    browser: dict[str, Any] = part(
        BrowserFormat,
        only=("check_images", "runtime"),
        make=dict,
        group="with --space and --as web",
    )

    def run(self) -> None:
        """Writes the files to a temporary folder, prints them, and pushes them."""
        from keras_vit.hub.uploads import check_name, check_token, upload
        from keras_vit.utils.files import named_disk_errors

        check_name(self.repository)
        if self.browser and not self.space and self.form != "web":
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in self.browser)
            raise ValueError(f"{flags} must be given with --space or --as web")
        if not self.dry_run:
            check_token()  # Before the work.
        advice = "Free space there, or set TMPDIR to another folder."
        with (
            named_disk_errors(tempfile.gettempdir(), lambda: advice),
            tempfile.TemporaryDirectory() as scratch,
        ):
            uploads = self._uploads(pathlib.Path(scratch))
            for given in uploads:
                print(given)
            if self.dry_run:
                print("Nothing was pushed (--dry-run).")
                return
            for given in uploads:
                print(f"pushed {upload(given)}")

    def _uploads(self, scratch):
        """Everything that is pushed, once all files of it are written."""
        from keras_vit.checkpoints.weight_sources import classifier_folder
        from keras_vit.description.description_texts import description_of_folder
        from keras_vit.description.licences import CARD
        from keras_vit.description.without_paths import without_paths
        from keras_vit.export.hub_files import PAGE, PUSHED_FILES, write_form, write_page
        from keras_vit.hub.uploads import Upload
        from keras_vit.training.run.hub_card import hub_card, space_card
        from keras_vit.utils.files import CLASSES, MODEL_CARD, RECIPE, model_in
        from keras_vit.utils.json_files import read_json

        classifier = classifier_folder(self.folder)
        if model_in(classifier) is None or not (classifier / CLASSES).is_file():
            raise ValueError(f"A classifier's folder must be pushed. Received: {self.folder}")
        description = description_of_folder(classifier)
        recipe = read_json(classifier / RECIPE) if (classifier / RECIPE).is_file() else {}
        card = next(
            (path for name in (MODEL_CARD, CARD) if (path := classifier / name).is_file()), None
        )
        model, title = scratch / "model", self.repository.partition("/")[2]
        browser = {"title": title, "samples": None if self.samples else "none", **self.browser}
        for note in write_form(self.form, classifier, model, self.samples, browser):
            print(f"note: {note}")
        text = hub_card(
            description,
            without_paths(recipe),
            card.read_text(encoding="utf-8") if card else "",
            repository=self.repository,
            form=self.form,
            datasets=self.dataset,
        )
        (model / CARD).write_text(text, encoding="utf-8")
        uploads = [Upload(self.repository, model, private=self.private, replaced=PUSHED_FILES)]
        if self.space:
            page = scratch / "page"
            page.mkdir()
            write_page(classifier, page, browser)
            text = space_card(description, title=title, repository=self.repository, page=PAGE)
            (page / CARD).write_text(text, encoding="utf-8")
            uploads.append(Upload(self.repository, page, "space", self.private))
        return uploads
