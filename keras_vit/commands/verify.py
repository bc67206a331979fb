"""`keras-vit verify`: an export's probabilities in its own runtime, on this machine."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from keras_vit.commands import Command
from keras_vit.export.formats.export_format import VERIFY_SECONDS
from keras_vit.utils.fields import POSITIVE_NUMBER, REQUIRED, setting

if TYPE_CHECKING:
    from keras_vit.export import ExportReport


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verify(Command):
    """Check an export in its own runtime, on this machine.

    Its parts must have the SHA-256 that they had when they were written, and its golden samples,
    a few images, the probabilities that it gave then.

    Exit code: 0 if all agree, 2 if not, with one line that says what differs.
    """

    artefact: str = setting(REQUIRED, "what keras-vit export wrote", unit="EXPORT", positional=True)
    time_limit: float = setting(
        VERIFY_SECONDS,
        "time in which the export must answer the images",
        unit="SECONDS",
        limits=POSITIVE_NUMBER,
    )

    @property
    def needs_tensorflow(self) -> bool:
        """Whether TensorFlow is needed: not for an export in another runtime."""
        from keras_vit.export.formats.table import runs_without_tensorflow

        return not runs_without_tensorflow(self.artefact)

    def result(self) -> ExportReport:
        """Verifies."""
        import keras_vit.export

        return keras_vit.export.verify(self.artefact, time_limit=self.time_limit)

    def run(self) -> None:
        """Verifies and prints the report."""
        print(self.result())
