"""Names of repositories: `hf:owner/name@revision`, `kaggle:owner/model/framework/variation/3`."""

from __future__ import annotations

import dataclasses
import re
from typing import Self

HUGGING_FACE, KAGGLE = "hf:", "kaggle:"
SCHEMES = (HUGGING_FACE, KAGGLE)

_PART = r"[A-Za-z0-9][\w.-]*"
_FORMS = {
    HUGGING_FACE: (
        re.compile(rf"({_PART}/{_PART})(?:@([\w.-]+(?:/[\w.-]+)*))?"),
        "hf:OWNER/NAME, or hf:OWNER/NAME@REVISION with a branch, a tag or a commit",
    ),
    KAGGLE: (
        re.compile(rf"({_PART}/{_PART}/{_PART}/{_PART})(?:/([1-9]\d*))?"),
        "kaggle:OWNER/MODEL/FRAMEWORK/VARIATION, or with /VERSION at the end",
    ),
}
_COMMIT = re.compile("[0-9a-f]{40}")


@dataclasses.dataclass(frozen=True)
class RepositoryName:
    """The name of a repository.

    Args:
        scheme: "hf:" or "kaggle:".
        name: Such as "google/vit-base-patch16-224", or Kaggle's handle without a version.
        revision: A branch, tag, commit or version; None for the newest.
    """

    scheme: str
    name: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: object) -> Self | None:
        """Returns the name in a text; None for a text without a scheme.

        "hf://owner/name" is read as "hf:owner/name", as Keras and KerasHub write it.

        Raises:
            ValueError: If the text has a scheme and another form than a name.
        """
        scheme = next((s for s in SCHEMES if isinstance(text, str) and text.startswith(s)), None)
        if scheme is None:
            return None
        form, described = _FORMS[scheme]
        found = form.fullmatch(str(text).removeprefix(scheme).removeprefix("//"))
        if found is None or ".." in str(text):
            raise ValueError(f"A repository's name must be {described}. Received: {text}")
        return cls(scheme, found[1], found[2])

    @property
    def is_fixed(self) -> bool:
        """Whether the revision always means the same files: a commit, or a version of Kaggle."""
        if self.revision is None:
            return False
        return self.scheme == KAGGLE or _COMMIT.fullmatch(self.revision) is not None

    def at(self, revision: str) -> Self:
        """Returns the name with another revision."""
        return dataclasses.replace(self, revision=revision)

    def __str__(self) -> str:
        """The text that `parse` reads."""
        sign = "@" if self.scheme == HUGGING_FACE else "/"
        return self.scheme + self.name + (f"{sign}{self.revision}" if self.revision else "")
