"""Uploads to the Hugging Face Hub: a repository of a model, in one commit."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Collection

from keras_vit.hub.downloads import NAME, import_hugging_face, one_line_errors
from keras_vit.utils.report import align_columns


def list_files(name: str, folder: pathlib.Path, private: bool) -> str:
    """Returns the repository and all files of a folder with their sizes, human-readable."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
    rows = [*sizes.items(), (f"{len(sizes)} files", sum(sizes.values()))]
    visible = "private" if private else "public"
    return f"{name} ({visible})\n" + align_columns([(file, f"{n:,} bytes") for file, n in rows])


def check_name(name: str) -> None:
    """Raises ValueError unless a name is "owner/name"."""
    if not re.fullmatch(NAME, name) or not 3 <= len(name) <= 96 or ".." in name:
        raise ValueError(f"The repository must be OWNER/NAME. Received: {name}")


def upload(name: str, folder: pathlib.Path, *, private: bool, replaced: Collection[str]) -> str:
    """Pushes the files of a folder in one commit and returns its address.

    The repository is made if it is missing. Until the commit nothing of it changes; what was
    uploaded by a call that broke off is not uploaded again.

    Args:
        name: "owner/name".
        folder: The folder with all files, and nothing else.
        private: Whether only its owner may see the repository.
        replaced: Names of files that are removed from the repository unless the folder has them.

    Raises:
        OSError: If there is no token, or it has no rights.
        ValueError: If the repository is public and a private one is asked for.
    """
    hub = import_hugging_face()
    api = hub.HfApi(library_name="keras-vit")
    with one_line_errors(f"{name} cannot be pushed"):
        api.create_repo(name, private=private or None, exist_ok=True)
        found = api.repo_info(name)
        if private and not found.private:
            raise ValueError(
                "The repository must be private: change it in its settings, or push without "
                f"--private. Received: {name}, which everybody may see"
            )
        commit = api.upload_folder(
            repo_id=name,
            folder_path=folder,
            delete_patterns=list(replaced),
            commit_message="Push of keras-vit",
            parent_commit=found.sha,
        )
    return str(commit.commit_url)
