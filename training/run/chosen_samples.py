"""The photos that travel with a classifier."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Self

import numpy as np

from keras_vit.images.pixels import FULL_DEPTH
from keras_vit.images.samples import describe_samples, sample_count, spread
from keras_vit.images.transcoding import decode_file
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import Examples, Source

NUM_SAMPLES = 8
# The parts that samples are taken from, the first one that has images.
_SAMPLED = {
    "test": "of the test part",
    "validation": "of the validation part",
    "calibration": "of the calibration part",
    "train": "that are trained on",
}


@dataclasses.dataclass(frozen=True)
class ChosenSamples:
    """The photos that travel with a classifier.

    Args:
        line: The sentence that says so, for the plan.
        examples: The chosen images, or None.
        pictures: The images that `report.html` shows, at most, as augmented and again of the
            errors.
        bit_depth: Bits of the values of 16-bit images.
    """

    line: str = ""
    examples: Examples | None = None
    pictures: int = 0
    bit_depth: int = FULL_DEPTH

    def images(self) -> Iterator[np.ndarray]:
        """Yields their pixels, uint8 `(H, W, 3)`."""
        if self.examples is not None:
            for encoded, _ in self.examples.encoded():
                yield decode_file(encoded, self.bit_depth)

    @classmethod
    def of(cls, samples: str | None, source: Source, preprocessing: Preprocessing) -> Self:
        """Returns the photos that travel with a classifier.

        By default they are test images. Images that are trained on are taken only if a number is
        asked for and no image is held out, and the line says it.

        Args:
            samples: The setting.
            source: The images in splits.
            preprocessing: The model's.
        """
        if not source.class_names:
            return cls()
        image_size = preprocessing.image_size
        where = "with the classifier and its exports"
        count = NUM_SAMPLES if samples is None else sample_count(samples)
        parts = [part for part in _SAMPLED if len(source.splits.get(part, ()))]
        if not count or (samples is None and "test" not in parts):
            missing = "; --samples takes some, for there is no test part" if count and parts else ""
            return cls(describe_samples(0, "", image_size, where) + missing)
        examples = source.splits[parts[0]]
        chosen = examples.take(spread(len(examples), count))
        line = describe_samples(len(chosen), _SAMPLED[parts[0]], image_size, where)
        return cls(line, chosen, count, preprocessing.bit_depth)
