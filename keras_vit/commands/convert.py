"""`keras-vit convert`: weights from one code base to another."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_vit.commands import Command
from keras_vit.commands.shared_arguments import OR_CLASSIFIER, unknown_facts
from keras_vit.export.formats.export_format import CONVERSION_FORMATS
from keras_vit.utils.fields import REQUIRED, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Convert(Command):
    """Convert weights from and to other code bases."""

    source: str = setting(
        REQUIRED,
        "a classifier's folder; an .npz, .h5, .safetensors or PyTorch file of the official code, "
        "Hugging Face, timm, torchvision, KerasHub or vit-keras; a folder of Hugging Face, timm "
        "or KerasHub",
        unit="SOURCE",
        python=OR_CLASSIFIER,
        positional=True,
    )
    destination: str = setting(
        REQUIRED, "the file or folder to write", unit="DEST", positional=True
    )
    to: str | None = setting(
        None,
        "by default official where DEST ends in .npz, and a classifier's folder elsewhere",
        choices=tuple(CONVERSION_FORMATS),
    )
    image_size: tuple[int, int] | None = setting(
        None,
        "the images of the source's position embeddings, 224 or 160x224 (height x width), where "
        "the file does not show it",
        unit="PIXELS",
    )
    facts: dict[str, Any] = unknown_facts()
    samples: str | None = setting(
        None,
        "photos that a classifier's folder holds, without metadata and at the model's size: a "
        "number of SOURCE's samples, a folder of others, or none",
        unit="N|FOLDER|none",
        absent="all samples of SOURCE",
    )
    overwrite: bool = setting(False, "replace an existing DEST")

    def result(self) -> list[str]:
        """Converts; returns a note for each assumption and each part that was left out."""
        from keras_vit.export import convert

        return convert(
            self.source,
            self.destination,
            to=self.to,
            image_size=self.image_size,
            **self.facts,
            samples=self.samples,
            overwrite=self.overwrite,
        )

    def run(self) -> None:
        """Converts, and prints the notes."""
        for note in self.result():
            print(f"note: {note}")
        print(self.destination)
