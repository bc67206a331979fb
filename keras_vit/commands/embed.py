"""`keras-vit embed`: features of images, and the images nearest to one."""

from __future__ import annotations

import dataclasses
import sys

from keras_vit.commands import Command, shared_arguments
from keras_vit.commands.shared_arguments import ModelArguments
from keras_vit.utils.fields import AT_LEAST_1, REQUIRED, part, setting
from keras_vit.utils.safe_text import for_line


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embed(Command):
    """Write features of images, and find the images nearest to one.

    Exit code: 0 if every image was read, 1 if some could not be (they are reported and left out),
    2 for wrong input.
    """

    model: ModelArguments = part(ModelArguments)
    images: tuple[str, ...] = setting(
        REQUIRED,
        "image files and folders of images, or a file that --output wrote before",
        unit="IMAGE",
        positional=True,
    )
    batch_size: int = shared_arguments.batch_size()
    feature: str = shared_arguments.feature()
    output: str | None = setting(None, "write names and features, as .npz", unit="FILE")
    like: str | None = setting(
        None, "print the images nearest to this one, by the cosine", unit="IMAGE"
    )
    top: int = setting(10, "images to print", unit="N", limits=AT_LEAST_1)

    def run(self) -> int:
        """Computes or reads features; returns 1 if an image could not be read."""
        if not self.output and not self.like:
            raise ValueError("A result must be asked for: --output FILE, --like IMAGE or both.")
        from keras_vit.images.listing import image_files
        from keras_vit.opening import features
        from keras_vit.training.evaluation.embeddings import (
            SUFFIX,
            check_suffix,
            embed,
            nearest,
            read_embeddings,
        )

        if self.output:
            check_suffix(self.output)
        is_written = len(self.images) == 1 and self.images[0].lower().endswith(SUFFIX)
        files = [] if is_written else image_files(self.images)
        like = image_files(self.like) if self.like else []
        model = self.model.open()
        print(model.description.facts)
        features(model.model, self.feature)  # An error here comes before images are read.
        options = {"feature": self.feature, "batch_size": self.batch_size}
        if is_written:
            known, skipped = read_embeddings(self.images[0]), []
        else:
            known, skipped = embed(model, files, **options, progress=True)
        if self.output:
            known.write(self.output)
            number, size = known.values.shape
            print(f"written {self.output}: {size} features of each of {number} images")
        if like:
            asked, _ = embed(model, like[:1], **options)
            if asked.facts != known.facts:
                raise ValueError(
                    "The features must be of this model. "
                    f"Received: {self.images[0]} of {known.facts}, {asked.facts}"
                )
            count = min(self.top, len(known.names))
            numbers, cosines = nearest(known.values, asked.values, count)
            for number, cosine in zip(numbers[0], cosines[0], strict=True):
                print(for_line(f"{cosine:7.4f}  {known.names[number]}"))
        for path, reason in skipped:
            print(for_line(f"keras-vit: {path}: {reason}"), file=sys.stderr)
        return 1 if skipped else 0
