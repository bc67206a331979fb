"""The decision of a classifier: which images it answers, as `keras-vit calibrate` finds it.

The arrays by which an image is recognised as strange lie beside the model, in `decision.npz`.
Imports neither NumPy nor Keras.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from keras_vit.utils.json_files import changed_fields, check_fields

UNKNOWN = "unknown"  # The class that stands for no answer, behind the others.


@dataclasses.dataclass(frozen=True)
class Decision:
    """When a classifier answers, and what it was found by on calibration images.

    An image is answered if its calibrated probability is at least `threshold` and its leverage at
    most `largest_leverage`. The model of an export has a further output, "unknown", which is not
    zero where the image is not answered.

    Args:
        temperature: T; probabilities are softmax(z / T).
        threshold: The least probability of an answer; 0 where only strange images are refused.
        largest_leverage: The leverage above which an image is strange; None where none is.
        max_error: The bound on the share of wrong answers, or None.
        confidence: The probability with which the bound holds; None without a bound.
        images: Calibration images that the bound was tested on.
        answered: Those that are answered.
        wrong: Wrong answers among these.
        strange: Images that are not answered as their leverage is too large.
        calibration_errors: Expected calibration error before and after the temperature.
        in_outputs: Whether the model has the further output already, as in an export.
        sha256: Checksum of the head and the arrays that it belongs to.
    """

    temperature: float = 1.0
    threshold: float = 0.0
    largest_leverage: float | None = None
    max_error: float | None = None
    confidence: float | None = None
    images: int = 0
    answered: int = 0
    wrong: int = 0
    strange: int = 0
    calibration_errors: tuple[float, float] | None = None
    in_outputs: bool = False
    sha256: str = ""

    def __post_init__(self):
        if self.calibration_errors is not None:
            object.__setattr__(self, "calibration_errors", tuple(self.calibration_errors))
        shares = (self.threshold, self.max_error, self.confidence)
        if not self.temperature > 0 or not all(0 <= n <= 1 for n in shares if n is not None):
            raise ValueError(
                "A decision must have a positive temperature, and numbers from 0 to 1 for "
                f"threshold, max_error and confidence. Received: {self.temperature}; "
                f"{', '.join(map(str, shares))}"
            )

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as types of JSON, those with their default left out."""
        return changed_fields(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Returns the decision that `to_json` wrote."""
        check_fields(content, _FIELDS, "a decision")
        return cls(**content)


_NUMBER = (int, float)
_FIELDS = {
    "temperature": _NUMBER,
    "threshold": _NUMBER,
    "largest_leverage": _NUMBER,
    "max_error": _NUMBER,
    "confidence": _NUMBER,
    "images": int,
    "answered": int,
    "wrong": int,
    "strange": int,
    "calibration_errors": list,
    "in_outputs": bool,
    "sha256": str,
}
