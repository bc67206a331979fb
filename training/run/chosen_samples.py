"""The photos that travel with the classifier of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from keras_vit.description.without_paths import last_part
from keras_vit.images.listing import image_files
from keras_vit.images.samples import describe_samples, read_images, sample_count, spread
from keras_vit.images.transcoding import decode_file
from keras_vit.training.data import Examples, Source
from keras_vit.utils.fields import required

NUM_SAMPLES = 8
_ORDER = ("test", "validation", "calibration", "train")
_WORDS = {
    "test": "of the test part",
    "validation": "of the validation part",
    "calibration": "of the calibration part",
    "train": "that are trained on",
}
_WITH = "with the classifier and its exports"


@dataclasses.dataclass(frozen=True)
class ChosenSamples:
    """The photos that travel with a classifier.

    Args:
        line: The sentence that says so, for the plan.
        examples: The chosen images of the data, or None.
        files: The files of the folder that was given.
        pictures: The images of the data that `report.html` shows, at most, as augmented and again
            of the errors. 0 where a folder of other photos travels instead.
    """

    line: str
    examples: Examples | None = None
    files: tuple[str, ...] = ()
    pictures: int = 0

    @property
    def page_line(self) -> str:
        """The sentence about the pictures of `report.html`, for the plan."""
        if not self.pictures:
            return "curves and numbers, no photos; stays in the classifier's folder"
        return (
            f"curves, numbers, {self.pictures} augmented images that are trained on and up to "
            f"{self.pictures} errors, small and without metadata; stays in the classifier's "
            "folder; --samples none leaves the pictures out"
        )

    def images(self) -> Iterator[np.ndarray]:
        """Yields their pixels, uint8 `(H, W, 3)`.

        Raises:
            ValueError: If one cannot be read.
        """
        yield from read_images(self.files)
        if self.examples is not None:
            for encoded, _ in self.examples.encoded():
                yield decode_file(encoded)


def choose_samples(
    samples: str | None, source: Source, image_size: tuple[int, int] | None
) -> ChosenSamples:
    """Returns the photos that travel with a classifier.

    By default they are held-out images. Images that are trained on are taken only if a number is
    asked for and no image is held out, and the line says it.

    Args:
        samples: The setting.
        source: The images in splits.
        image_size: Pixels (height, width) of the model.

    Raises:
        ValueError: If a folder does not exist or has no images.
    """
    size = required(image_size, "image_size")
    count = NUM_SAMPLES if samples is None else sample_count(samples)
    if count is None:
        files = tuple(image_files(samples or ""))
        line = describe_samples(len(files), f"of {last_part(samples or '')}", size, _WITH)
        return ChosenSamples(line, None, files)
    parts = [part for part in _ORDER if len(source.splits.get(part, ()))]
    if samples is None and "test" not in parts:
        missing = "; --samples takes some, for there is no test part" if parts else ""
        return ChosenSamples(describe_samples(0, "", size, _WITH) + missing)
    if not count:
        return ChosenSamples(describe_samples(0, "", size, _WITH))
    examples = source.splits[parts[0]]
    chosen = examples.take(spread(len(examples), count))
    line = describe_samples(len(chosen), _WORDS[parts[0]], size, _WITH)
    return ChosenSamples(line, chosen, pictures=count)
