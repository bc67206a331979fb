"""`keras-vit sign`: a signature of a classifier's folder or an export with a key."""

from __future__ import annotations

import dataclasses

from keras_vit.commands import Command
from keras_vit.utils.fields import REQUIRED, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sign(Command):
    """Sign all files of a classifier's folder or an export with a key, without a network.

    keras-vit verify PATH --signature --key pub.pem then finds a changed, added or missing file.
    """

    path: str = setting(
        REQUIRED, "a classifier's folder, or what keras-vit export wrote", unit="PATH",
        positional=True,
    )  # fmt: skip
    key: str = setting(REQUIRED, "private elliptic-curve key in PEM", unit="FILE")
    output: str | None = setting(
        None, "the signature to write", unit="FILE", absent="PATH.sig, beside the folder or file"
    )
    overwrite: bool = setting(False, "replace an older signature")

    without_tensorflow = True

    def run(self) -> None:
        """Signs and prints where the signature is."""
        from keras_vit.utils.signing import sign

        print(f"written {sign(self.path, self.key, self.output, overwrite=self.overwrite)}")
