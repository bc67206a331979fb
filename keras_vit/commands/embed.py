"""`keras-vit embed`: features of images."""

from __future__ import annotations

import dataclasses
import functools
import sys

from keras_vit.commands import Command, shared_arguments
from keras_vit.commands.shared_arguments import ModelArguments
from keras_vit.training.data.spec import bit_depth_setting
from keras_vit.utils.fields import REQUIRED, part, setting
from keras_vit.utils.safe_text import for_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embed(Command):
    """Write features of images.

    Exit code: 0 if every image was read, 1 if some could not be (they are reported and left out),
    2 for wrong input.
    """

    model: ModelArguments = part(ModelArguments)
    images: tuple[str, ...] = setting(
        REQUIRED,
        "image files and folders of images",
        unit="IMAGE",
        python="str | os.PathLike[str] | Sequence[str | os.PathLike[str]]",
        positional=True,
    )
    batch_size: int = shared_arguments.batch_size()
    feature: str = shared_arguments.feature()
    bit_depth: int | None = bit_depth_setting("as the model's")
    output: str = setting(REQUIRED, "the file of names and features to write, an .npz", unit="FILE")

    @property
    def models(self) -> tuple[str | None, ...]:
        """The model."""
        return self.model.at_rest

    @functools.cached_property
    def files(self) -> list[str]:
        """The image files; a ValueError if one is missing."""
        from keras_vit.images.listing import image_files

        return image_files(self.images)

    def check_data(self) -> None:
        """Raises ValueError if an image is missing."""
        _ = self.files

    def result(self) -> tuple[dict, list[tuple[str, str]]]:
        """Computes and writes features; also returns the images that could not be read."""
        from keras_vit.representations import features
        from keras_vit.training.evaluation.embeddings import check_suffix, embed, write_features

        check_suffix(self.output)
        model = self.model.open().at_bit_depth(self.bit_depth)
        self.note(str(model.description.facts))
        features(model.model, self.feature)  # An error here comes before images are read.
        arrays, skipped = embed(
            model, self.files, feature=self.feature, batch_size=self.batch_size, progress=True
        )
        write_features(self.output, arrays)
        number, size = arrays["features"].shape
        self.note(f"written {self.output}: {size} features of each of {number} images")
        return arrays, skipped

    def run(self) -> int:
        """Computes and writes features; returns 1 if an image could not be read."""
        _, skipped = self.result()
        for path, reason in skipped:
            print(for_line(f"keras-vit: {path}: {reason}"), file=sys.stderr)
        return 1 if skipped else 0
