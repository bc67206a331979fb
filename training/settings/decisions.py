"""The bounds of a decision."""

from __future__ import annotations

import csv
import dataclasses
import os

from keras_vit.description.class_labels import Labels
from keras_vit.description.decision import FALSE, MISSED, UNKNOWN
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
    max_missed: float | None = setting(
        None,
        "multi-label: largest share of a label's images that are not given it, on average; sets "
        "the thresholds of the labels",
        unit="SHARE",
        absent="the thresholds stay",
        limits=_BETWEEN,
    )
    max_false: float | None = setting(
        None,
        "multi-label: largest share of the images without a label that are given it, on average",
        unit="SHARE",
        absent="the thresholds stay",
        limits=_BETWEEN,
    )
    parents: str | None = setting(  # Or the table, from class to parent.
        None,
        "a CSV file with the columns class and parent: where no class is certain enough, their "
        "parent is the answer if it is",
        unit="FILE",
    )

    def __post_init__(self):
        check_fields(self)

    @property
    def label_error(self) -> tuple[float | None, str | None]:
        """The bound for labels, and its kind; (None, None) without one."""
        if self.max_missed is not None:
            return self.max_missed, MISSED
        return (None, None) if self.max_false is None else (self.max_false, FALSE)

    @property
    def confidence_of_each(self) -> float:
        """The confidence of a bound: with parents there are two, which hold together."""
        return 1 - (1 - self.confidence) / 2 if self.parents else self.confidence

    @property
    def parent_of(self) -> dict[str, str]:
        """The parent of each class that has one.

        Raises:
            ValueError: If the file is no such table.
            OSError: If it cannot be read.
        """
        if not isinstance(self.parents, str | os.PathLike):
            return dict(self.parents or {})
        try:
            with open(self.parents, encoding="utf-8-sig", newline="") as file:
                rows = list(csv.DictReader(file))
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{self.parents} must be a CSV file in UTF-8. {error}") from error
        columns = set(rows[0]) if rows else set()
        if not columns >= {"class", "parent"}:
            raise ValueError(
                "A table of parents must have the columns class and parent. Received: "
                f"{self.parents} with {', '.join(sorted(map(str, columns))) or 'no rows'}"
            )
        pairs = [[(row[name] or "").strip() for name in ("class", "parent")] for row in rows]
        parents = dict(pairs)
        if len(parents) != len(rows):
            raise ValueError(f"A class must have one row in {self.parents}. Received: one twice")
        return parents

    def check(self, labels: Labels) -> None:
        """Raises ValueError for a bound of another task, and names that no answer can have."""
        if UNKNOWN in (labels.names or ()):
            raise ValueError(
                f'With a decision no class may have the name "{UNKNOWN}": images without an answer '
                "get it. Give the class another name, or the photos with --unknown."
            )
        own, others = ("max_missed", "max_false"), ("max_error", "parents")
        if not labels.is_multilabel:
            own, others = others, own
        given = [f"--{name.replace('_', '-')}" for name in others if getattr(self, name)]
        if given:
            wanted = " or ".join(f"--{name.replace('_', '-')}" for name in own)
            raise ValueError(
                f"The bound of a {labels.task} classifier must be {wanted}. "
                f"Received: {', '.join(given)}"
            )
        if None not in (self.max_missed, self.max_false):
            raise ValueError("One of --max-missed and --max-false must be given. Received: both")
        if self.parents:
            if self.max_error is None:
                raise ValueError("--parents needs a bound on the errors: --max-error.")
            self._check_parents(labels.names or ())

    def _check_parents(self, names):
        parents = self.parent_of
        unknown = sorted(set(parents) - set(names))
        if unknown:
            raise ValueError(
                f"The table of parents must name classes of the classifier ({', '.join(names[:5])}"
                f"{', ...' if len(names) > 5 else ''}). Received: {', '.join(unknown[:5])}"
            )
        without = [name for name, parent in parents.items() if not parent]
        if without:
            raise ValueError(
                f"Every class in the table must have a parent. Received: none for {without[0]}"
            )
        wrong = sorted({*parents.values()} & {*names, UNKNOWN})
        if wrong:
            raise ValueError(f"A parent must not be a class. Received: {', '.join(wrong[:5])}")
