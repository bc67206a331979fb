"""Names of repositories on the Hugging Face Hub: `hf:owner/name@revision`."""

from __future__ import annotations

import dataclasses
import re
from typing import Self

HUGGING_FACE = "hf:"

_PART = r"[A-Za-z0-9][\w.-]*"
NAME = f"{_PART}/{_PART}"
_FORM = re.compile(rf"({NAME})(?:@([\w.-]+(?:/[\w.-]+)*))?")
COMMIT = re.compile("[0-9a-f]{40}")


@dataclasses.dataclass(frozen=True)
class RepositoryName:
    """The name of a repository.

    Args:
        name: Such as "google/vit-base-patch16-224".
        revision: A branch, tag or commit; None for the newest.
    """

    name: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: object) -> Self | None:
        """Returns the name in a text; None for a text without "hf:".

        "hf://owner/name" is read as "hf:owner/name", as Keras and KerasHub write it.

        Raises:
            ValueError: If the text begins so and is no name.
        """
        if not isinstance(text, str) or not text.startswith(HUGGING_FACE):
            return None
        found = _FORM.fullmatch(text.removeprefix(HUGGING_FACE).removeprefix("//"))
        if found is None or ".." in text:
            raise ValueError(
                "A repository's name must be hf:OWNER/NAME, or hf:OWNER/NAME@REVISION with a "
                f"branch, a tag or a commit. Received: {text}"
            )
        return cls(found[1], found[2])

    @property
    def is_fixed(self) -> bool:
        """Whether the revision always means the same files: a commit."""
        return self.revision is not None and COMMIT.fullmatch(self.revision) is not None

    def at(self, revision: str) -> Self:
        """Returns the name with another revision."""
        return dataclasses.replace(self, revision=revision)

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return HUGGING_FACE + self.name + (f"@{self.revision}" if self.revision else "")
