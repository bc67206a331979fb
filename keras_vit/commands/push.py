"""`keras-vit push`: a classifier as a repository of the Hugging Face Hub."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from keras_vit.commands import Command
from keras_vit.commands.shared_arguments import OR_CLASSIFIER
from keras_vit.utils.fields import REQUIRED, setting

if TYPE_CHECKING:
    from keras_vit.pushing import Pushed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Push(Command):
    """Push a classifier to the Hugging Face Hub, with a model card, in one commit.

    No photos, absolute paths or names of training images are pushed. --dry-run prints every file
    and its size, and asks the Hub nothing.
    """

    folder: str = setting(
        REQUIRED,
        "the classifier: its folder, or what keras-vit predict takes, except for exports",
        unit="FOLDER",
        python=OR_CLASSIFIER,
        positional=True,
    )
    repository: str = setting(
        REQUIRED,
        "the repository, which is made if it is missing",
        unit="OWNER/NAME",
        positional=True,
    )
    private: bool = setting(False, "let nobody else see it")
    dry_run: bool = setting(False, "print every file and its size, and push nothing")

    def result(self) -> Pushed:
        """Prints the files and pushes them."""
        from keras_vit.pushing import push_classifier

        return push_classifier(
            self.folder, self.repository, private=self.private, dry_run=self.dry_run, log=self.log
        )

    def run(self) -> None:
        """Prints the files, and pushes them."""
        url = self.result().url
        print(f"pushed {url}" if url else "Nothing was pushed (--dry-run).")
