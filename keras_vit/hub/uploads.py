"""Uploads to the Hugging Face Hub: a repository of a model, in one commit."""

from __future__ import annotations

import pathlib
from collections.abc import Collection

from keras_vit.hub.downloads import import_hugging_face, one_line_errors


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
