"""The bounds of a decision."""

from __future__ import annotations

import dataclasses

from keras_vit.description.class_labels import UNKNOWN, Labels
from keras_vit.utils.fields import check_fields, documented, setting

_BETWEEN = ("in (0, 1)", lambda value: 0 < value < 1)


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class DecisionSettings:
    """When a classifier may answer.

    Raises:
        ValueError: If a value is out of range.
    """

    max_error: float | None = setting(
        None,
        "largest share of wrong answers, such as 0.02; other images are answered with unknown",
        unit="SHARE",
        absent="no bound: only strange images are refused",
        limits=_BETWEEN,
    )
    confidence: float = setting(
        0.95,
        "probability with which the bound of --max-error holds",
        unit="SHARE",
        limits=_BETWEEN,
    )
    strange: float = setting(
        0.01,
        "largest share of known images that are refused as strange",
        unit="SHARE",
        limits=_BETWEEN,
    )

    def __post_init__(self):
        check_fields(self)

    def check(self, labels: Labels) -> None:
        """Raises ValueError for multi-label classifiers and a class that is named "unknown"."""
        if labels.is_multilabel:
            raise ValueError(
                "A bound on the errors is for classifiers with one class an image; the thresholds "
                "of multi-label ones stay. Received: a multi-label classifier"
            )
        if UNKNOWN in (labels.names or ()):
            raise ValueError(
                f'With a decision no class may have the name "{UNKNOWN}": images without an answer '
                "get it. Give the class another name, or the photos with --unknown."
            )
