"""Uploads to the Hugging Face Hub: a repository of a model, in one commit."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Collection

from keras_vit.hub.downloads import NAME, RepositoryError, import_hugging_face, one_line_errors
from keras_vit.utils.report import align_columns


@dataclasses.dataclass(frozen=True)
class Upload:
    """What is pushed to a repository.

    Args:
        name: "owner/name".
        folder: The folder with all files, and nothing else.
        private: Whether only its owner may see the repository.
        replaced: Names of files that are removed from the repository unless the folder has them.
    """

    name: str
    folder: pathlib.Path
    private: bool = False
    replaced: Collection[str] = ()

    @property
    def files(self) -> dict[str, int]:
        """The bytes of each file, by its path in the repository."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path.stat().st_size for path in paths}

    def __str__(self) -> str:
        """The files with their sizes, human-readable."""
        visible = "private" if self.private else "public"
        rows = [(name, f"{size:,} bytes") for name, size in self.files.items()]
        rows.append((f"{len(rows)} files", f"{sum(self.files.values()):,} bytes"))
        return f"{self.name} ({visible})\n{align_columns(rows)}"


def check_name(name: str) -> None:
    """Raises ValueError unless a name is "owner/name"."""
    if not re.fullmatch(NAME, name) or not 3 <= len(name) <= 96 or ".." in name:
        raise ValueError(f"The repository must be OWNER/NAME. Received: {name}")


def check_token() -> None:
    """Raises RepositoryError without a token of the Hub."""
    if not import_hugging_face().get_token():
        raise RepositoryError(
            "A push needs a token with the right to write: log in with `hf auth login`, or set "
            "HF_TOKEN; the tokens are on https://huggingface.co/settings/tokens"
        )


def upload(given: Upload) -> str:
    """Pushes the files in one commit and returns its address.

    The repository is made if it is missing. Until the commit nothing of it changes; what was
    uploaded by a call that broke off is not uploaded again.

    Raises:
        OSError: If there is no token, or it has no rights.
        ValueError: If the repository is public and a private one is asked for.
    """
    check_token()
    hub = import_hugging_face()
    api = hub.HfApi(library_name="keras-vit")
    with one_line_errors(f"{given.name} cannot be pushed"):
        api.create_repo(given.name, private=given.private or None, exist_ok=True)
        found = api.repo_info(given.name)
        if given.private and not found.private:
            raise ValueError(
                "The repository must be private: change it in its settings, or push without "
                f"--private. Received: {given.name}, which everybody may see"
            )
        commit = api.upload_folder(
            repo_id=given.name,
            folder_path=given.folder,
            delete_patterns=list(given.replaced),
            commit_message="Push of keras-vit",
            parent_commit=found.sha,
        )
    return str(commit.commit_url)
