"""The reference of a classifier: what its held-out photos are like, as counts without images.

Imports neither NumPy nor Keras.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from keras_vit.utils.json_files import check_fields

ALARM_LEVEL = 0.01  # The largest probability of a false alarm.
MAX_IMAGES = 10_000  # Photos of a reference; more of them are drawn from.
CLASS = "class"  # The signal whose numbers are classes.
LARGEST_STEP = 400  # The numbers of a signal are from -400 to 400, and of classes from 0.


@dataclasses.dataclass(frozen=True)
class DriftReference:
    """Counts of the signals of held-out photos, as `keras-vit calibrate` finds them.

    It is a part of the decision, whose checksum says which head it belongs to.

    Args:
        counts: For each signal the photos of each of its numbers, in ascending order; see
            `keras_vit.monitoring.signals`.
        confusion: `(true class, most probable class, photos)`; () for multi-label classifiers.

    Raises:
        ValueError: If the signals are not of the same number of photos.
    """

    counts: Mapping[str, Mapping[int, int]]
    confusion: tuple[tuple[int, int, int], ...] = ()

    def __post_init__(self):
        for name, counts in self.counts.items():
            whole = all(type(n) is int for pair in counts.items() for n in pair)
            low, high = (0, float("inf")) if name == CLASS else (-LARGEST_STEP, LARGEST_STEP)
            if (
                not whole
                or not counts
                or min(counts.values()) < 1
                or not (low <= min(counts) <= max(counts) <= high)
            ):
                raise ValueError(
                    "A reference must have whole numbers of its scales and positive counts. "
                    f"Received: {str(counts)[:80]} for {name}"
                )
        images = {sum(counts.values()) for counts in self.counts.values()}
        images |= {sum(row[2] for row in self.confusion)} if self.confusion else set()
        if len(images) != 1:
            raise ValueError(
                "A reference must have the same number of photos for each signal. "
                f"Received: {sorted(images)}"
            )

    @property
    def images(self) -> int:
        """Photos that were counted."""
        return sum(next(iter(self.counts.values())).values())

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as types of JSON."""
        signals = {
            name: {"numbers": list(counts), "counts": list(counts.values())}
            for name, counts in self.counts.items()
        }
        confusion = [list(row) for row in self.confusion]
        return {"signals": signals, "confusion": confusion}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Returns the reference that `to_json` wrote."""
        check_fields(content, {"signals": dict, "confusion": list}, "a reference")
        counts = {}
        for name, signal in content["signals"].items():
            check_fields(signal, {"numbers": list, "counts": list}, f"a reference, {name}")
            counts[name] = dict(zip(signal["numbers"], signal["counts"], strict=True))
        confusion = tuple((true, given, count) for true, given, count in content["confusion"])
        return cls(counts, confusion)
