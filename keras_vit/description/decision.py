"""The decision of a classifier: which images it answers, as `keras-vit calibrate` finds it.

The arrays by which an image is recognised as strange lie beside the model, in `decision.npz`.
Imports neither NumPy nor Keras.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from keras_vit.description.drift_reference import DriftReference
from keras_vit.utils.json_files import changed_fields, check_fields

UNKNOWN = "unknown"  # The class that stands for no answer, behind the others.

MISSED, FALSE = "missed", "false"  # Errors of a label that is not given, or given wrongly.


@dataclasses.dataclass(frozen=True)
class Decision:
    """When a classifier answers, and what it was found by on calibration images.

    An image is answered if its calibrated probability is at least `threshold` and its leverage at
    most `largest_leverage`. The model of an export has a further output for each of `classes`, of
    which at most one is not zero: the last, "unknown", where the image is not answered.

    Args:
        temperature: T; probabilities are softmax(z / T), or multi-label sigmoid(z / T).
        threshold: The least probability of an answer; 0 where only strange images are refused.
            Multi-label classifiers have their thresholds in `Labels`.
        largest_leverage: The leverage above which an image is strange; None where none is.
        leverages: The leverages of known images, in ascending order.
        max_error: The bound on the share of wrong answers, or None. Of a multi-label classifier,
            on the share of a label's images that lack it in the answer (`error="missed"`), or of
            the other images that have it (`error="false"`).
        error: None, "missed" or "false".
        confidence: The probability with which the bound holds; None where it holds on average.
        images: Calibration images that the bound was tested on.
        answered: Those that are answered.
        wrong: Wrong answers among these.
        strange: Images that are not answered as their leverage is too large.
        calibration_errors: Expected calibration error before and after the temperature.
        parents: The parent of each class that has one, by its name.
        parent_threshold: The least sum of probabilities of an answer with a parent.
        in_outputs: Whether the model has the further outputs already, as in an export.
        sha256: Checksum of the head and the arrays that it belongs to.
        reference: Counts of the calibration images, for `keras-vit drift` and `serve --monitor`;
            None of a decision of an earlier version.
    """

    temperature: float = 1.0
    threshold: float = 0.0
    largest_leverage: float | None = None
    leverages: tuple[float, ...] = ()
    max_error: float | None = None
    error: str | None = None
    confidence: float | None = None
    images: int = 0
    answered: int = 0
    wrong: int = 0
    strange: int = 0
    calibration_errors: tuple[float, float] | None = None
    parents: Mapping[str, str] = dataclasses.field(default_factory=dict)
    parent_threshold: float | None = None
    in_outputs: bool = False
    sha256: str = ""
    reference: DriftReference | None = None

    def __post_init__(self):
        for field in ("leverages", "calibration_errors"):
            value = getattr(self, field)
            object.__setattr__(self, field, None if value is None else tuple(value))
        shares = (self.threshold, self.max_error, self.confidence, self.parent_threshold)
        if not self.temperature > 0 or not all(0 <= n <= 1 for n in shares if n is not None):
            raise ValueError(
                "A decision must have a positive temperature, and numbers from 0 to 1 for "
                "threshold, max_error, confidence and parent_threshold. Received: "
                f"{self.temperature}; {', '.join(map(str, shares))}"
            )

    @property
    def classes(self) -> tuple[str, ...]:
        """The further answers: the parents in the order of their first class, and "unknown"."""
        parents = () if self.parent_threshold is None else self.parents.values()
        return (*dict.fromkeys(parents), UNKNOWN)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as types of JSON, those with their default left out."""
        reference = {} if self.reference is None else {"reference": self.reference.to_json()}
        return {**changed_fields(self), **reference}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Returns the decision that `to_json` wrote."""
        check_fields(content, _FIELDS, "a decision")
        fields = dict(content)
        if fields.get("reference") is not None:
            fields["reference"] = DriftReference.from_json(fields["reference"])
        return cls(**fields)


_NUMBER = (int, float)
_FIELDS = {
    "temperature": _NUMBER,
    "threshold": _NUMBER,
    "largest_leverage": _NUMBER,
    "leverages": list,
    "max_error": _NUMBER,
    "error": str,
    "confidence": _NUMBER,
    "images": int,
    "answered": int,
    "wrong": int,
    "strange": int,
    "calibration_errors": list,
    "parents": dict,
    "parent_threshold": _NUMBER,
    "in_outputs": bool,
    "sha256": str,
    "reference": dict,
}
