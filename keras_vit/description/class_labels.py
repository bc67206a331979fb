"""The classes of a classifier: the two tasks, multi-class and multi-label, and the names."""

from __future__ import annotations

import collections
import dataclasses
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from keras_vit.utils.json_files import check_fields

MULTICLASS, MULTILABEL = "multiclass", "multilabel"
TASKS = (MULTICLASS, MULTILABEL)

# Activations of the model's last layer.
ACTIVATIONS = {MULTICLASS: "softmax", MULTILABEL: "sigmoid"}

# The score on validation images by which the best weights are chosen: in history.csv, recipe.json.
SCORES = {MULTICLASS: "accuracy", MULTILABEL: "mAP"}

SEPARATOR = ";"  # Between the labels of an image in a CSV file; in no class name.

DEFAULT_THRESHOLD = 0.5  # Probability over which an image has a label.

UNKNOWN = "unknown"  # The output that stands for no answer, behind the classes.

_MAX_LISTED = 3  # Names in an error.
_MAX_LETTERS = 4096  # In a name; a path of Linux has as many.
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?")


@dataclasses.dataclass(frozen=True)
class Labels:
    """The classes of a classifier, and how many of them an image may have.

    Args:
        names: The K names, in the order of the model's outputs; None if they are not known.
        task: "multiclass" if an image has one class, "multilabel" if it may have several.
        thresholds: Multi-label only: the probability above which an image has each label, K
            numbers in [0, 1); None stands for 0.5 each.
        abstains: Whether the model has one output more, the last, for "unknown".

    Raises:
        ValueError: If the task is unknown, thresholds or `abstains` do not fit it or the names,
            or a name of a label holds the separator of labels.
    """

    names: tuple[str, ...] | None = None
    task: str = MULTICLASS
    thresholds: tuple[float, ...] | None = None
    abstains: bool = False

    @classmethod
    def of_names(
        cls,
        names: Sequence[str] | Mapping[str, int],
        task: str = MULTICLASS,
        thresholds: Sequence[float] | None = None,
    ) -> Labels:
        """Returns labels of names, or of Keras's `class_indices`, a number for each name.

        Raises:
            ValueError: If the numbers are not 0 to K - 1, or as `Labels`.
        """
        if isinstance(names, Mapping):
            if sorted(names.values()) != list(range(len(names))):
                raise ValueError(
                    "A mapping of class names must give each its number, from 0. "
                    f"Received: {dict(names)}"
                )
            names = sorted(names, key=names.__getitem__)
        return cls(tuple(names), task, None if thresholds is None else tuple(thresholds))

    @classmethod
    def of_activation(
        cls, activation: str | Callable | None, otherwise: str = MULTICLASS
    ) -> Labels:
        """Returns labels without names, of the task that the activation of a last layer shows.

        Args:
            activation: The activation, by its name or function.
            otherwise: The task for other activations.
        """
        name = getattr(activation, "__name__", activation)
        return cls(task=next((task for task in TASKS if ACTIVATIONS[task] == name), otherwise))

    def __post_init__(self):
        names, thresholds = self.names, self.thresholds
        if self.task not in TASKS:
            raise ValueError(f"task must be one of {TASKS}. Received: task={self.task!r}")
        if self.task == MULTICLASS and thresholds is not None:
            raise ValueError(
                f"Thresholds are for task={MULTILABEL!r}. Received: {len(thresholds)} of them"
            )
        if self.is_multilabel and self.abstains:
            raise ValueError(
                f'The answer "{UNKNOWN}" is for one class an image. Received: task={self.task!r}'
            )
        if names is not None:
            one_form = (composed(name) if isinstance(name, str) else name for name in names)
            object.__setattr__(self, "names", tuple(one_form))
            if self.is_multilabel:
                check_label_names(names)
        if thresholds is not None:
            values = tuple(float(value) for value in thresholds)
            if len(values) != len(names or ()) or not all(0 <= value < 1 for value in values):
                raise ValueError(
                    "Thresholds must be probabilities in [0, 1), one for each of the "
                    f"{len(names or ())} classes. Received: {list(values)[:10]}"
                )
            object.__setattr__(self, "thresholds", values)

    @property
    def is_multilabel(self) -> bool:
        """Whether an image may have several of the labels."""
        return self.task == MULTILABEL

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of all outputs: the classes, and "unknown" if there is this answer."""
        return (*(self.names or ()), *([UNKNOWN] if self.abstains else []))

    @property
    def activation(self) -> str:
        """Activation of the model's last layer."""
        return ACTIVATIONS[self.task]

    @property
    def limits(self) -> tuple[float, ...] | None:
        """The threshold of each label, 0.5 where none was chosen; None for one class an image."""
        if not self.is_multilabel or self.names is None:
            return None
        return self.thresholds or (DEFAULT_THRESHOLD,) * len(self.names)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Labels:
        """Returns the labels whose fields are given."""
        fields = {"names": list, "task": str, "thresholds": list, "abstains": bool}
        check_fields(content, fields, "labels")
        return cls(**content)


def composed(text: str) -> str:
    """Returns a name in Unicode's composed form (NFC): macOS and archives decompose letters.

    Raises:
        ValueError: If it has more than `_MAX_LETTERS` letters, as the time grows with the square.
    """
    if len(text) > _MAX_LETTERS:
        raise ValueError(
            f"A name of a class or a file must have at most {_MAX_LETTERS} letters. "
            f"Received: {len(text)}, {text[:60]!r}..."
        )
    return unicodedata.normalize("NFC", text)


def look_alikes(names: Iterable[str]) -> list[str]:
    """Returns a text for each of the different names that look alike; see `alike_names`."""
    return [f"{' and '.join(map(repr, alike))} are different" for alike in alike_names(names)]


def alike_names(names: Iterable[str]) -> list[list[str]]:
    """Returns the groups of different names that look alike.

    They differ by case, by Unicode's form, by spaces, invisible characters or quotation marks
    around them only, or are the same number, as 1 and 1.0.
    """
    groups = collections.defaultdict(list)
    for name in dict.fromkeys(names):
        folded = unicodedata.normalize("NFKC", name).casefold()
        visible = "".join(c for c in folded if unicodedata.category(c) != "Cf")
        text = " ".join(visible.split()).strip("\"'")
        groups[str(float(text)) if _NUMBER.fullmatch(text) else text].append(name)
    return [group for group in groups.values() if len(group) > 1]


def check_class_names(class_names: Sequence[str]) -> None:
    """Raises ValueError if a class name cannot be a line of text, or there is one twice."""
    wrong = [
        name
        for name in class_names
        if not isinstance(name, str) or not name.strip() or not _is_line(name)
    ]
    twice = (
        [] if wrong else [n for n, count in collections.Counter(class_names).items() if count > 1]
    )
    if wrong or twice or not class_names:
        raise ValueError(
            "Class names must be one line of text each and differ from each other; rename the "
            f"folder or label. Received: {(wrong or twice)[:_MAX_LISTED] or 'none'}"
        )


def _is_line(name):
    # Bytes of a file name that are no UTF-8 are surrogates.
    return len(name.splitlines()) == 1 and not any("\ud800" <= c <= "\udfff" for c in name)


def check_label_names(class_names: Sequence[str]) -> None:
    """Raises ValueError if the name of a label holds the character between two labels."""
    wrong = [name for name in class_names if SEPARATOR in name]
    if wrong:
        raise ValueError(
            f'A class name must not hold "{SEPARATOR}", which separates the labels of an image. '
            f"Received: {wrong[0]!r}"
        )
