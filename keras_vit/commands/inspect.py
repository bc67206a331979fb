"""`keras-vit inspect`: figures of a model's attention, position embeddings and filters."""

from __future__ import annotations

import dataclasses

from keras_vit.commands import Command, shared_arguments
from keras_vit.commands.shared_arguments import ModelArguments
from keras_vit.preprocessing import imagenet_classes
from keras_vit.utils.fields import AT_LEAST_1, REQUIRED, part, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inspect(Command):
    """Draw what a model has learned and what it looks at.

    Writes PNG, SVG and numbers (NPZ) of all figures that apply, and index.html, a page with all
    of them.
    """

    model: ModelArguments = part(ModelArguments)
    images: tuple[str, ...] = setting(
        (), "image files and folders of images", unit="IMAGE", positional=True
    )
    output: str = setting(REQUIRED, "a new or empty folder", unit="DIR")
    num_pictures: int = setting(
        4, "most images whose attention is drawn", unit="N", limits=AT_LEAST_1
    )
    batch_size: int = shared_arguments.batch_size(8)

    @property
    def models(self) -> tuple[str | None, ...]:
        """The model."""
        return self.model.at_rest

    def check_data(self) -> None:
        """Raises ValueError if an image is missing."""
        from keras_vit.images.listing import image_files

        image_files(self.images)

    def run(self) -> None:
        """Writes the figures and prints the path of the page."""
        from keras_vit.inspection import write_report
        from keras_vit.training.evaluation.predictions import name_of_model

        opened = self.model.open()
        print(opened.description.facts)
        description = opened.description
        if description.labels.names is None and self.model.weights == "imagenet":
            names = tuple(name for _, name in imagenet_classes())
            labels = dataclasses.replace(description.labels, names=names)
            description = dataclasses.replace(description, labels=labels)
        written = write_report(
            self.output,
            opened.model,
            self.images,
            description=description,
            name=name_of_model(opened),
            num_pictures=self.num_pictures,
            batch_size=self.batch_size,
            progress=print,
        )
        print(f"{len(written)} files; open {self.output}/index.html")
