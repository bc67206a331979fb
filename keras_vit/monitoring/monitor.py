"""The monitor of a server: counts of its answers and martingales, kept over restarts."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pathlib
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

from keras_vit.classifier import Classifier
from keras_vit.description.drift_reference import ALARM_LEVEL, CLASS, DriftReference
from keras_vit.utils.files import check_output_file, write_text
from keras_vit.utils.json_files import read_json

from .martingales import Martingales, cell
from .signals import FAMILIARITY, SIGNALS, MeasuredClassifier

_SAVE_SECONDS = 10  # Between two writings of the state.
_STATE = {"reference": str, "answers": dict, "martingales": dict}


def required_reference(classifier: Classifier) -> DriftReference:
    """Returns the reference of a classifier.

    Raises:
        ValueError: If it has none.
    """
    decision = classifier.description.decision
    if decision is None or decision.reference is None:
        raise ValueError(
            "A classifier must have the reference that keras-vit calibrate keeps: run "
            "keras-vit calibrate FOLDER --data DATA, and export again what was exported. "
            f"Received: {classifier.folder or 'a classifier'} without it"
        )
    largest = max(decision.reference.counts.get(CLASS, {0: 0}))
    if largest >= len(classifier.known_classes):
        raise ValueError(
            "A reference must be of the classes of its model: calibrate again (keras-vit "
            f"calibrate). Received: class {largest} of {len(classifier.known_classes)}"
        )
    return decision.reference


class Monitor:
    """A classifier for a server's batches, which watches the photos that it answers.

    It keeps counts and no photo. `input_of` and `probabilities` are the classifier's.

    Args:
        classifier: A folder's or an export's, with its reference.
        state: The file that keeps the martingales over restarts; None keeps them in memory only.
        alarm_level: The largest probability of a false alarm ever, of all signals together.

    Raises:
        ValueError: If there is no reference, or the state is of another one.
    """

    def __init__(
        self,
        classifier: Classifier,
        state: str | os.PathLike | None = None,
        alarm_level: float = ALARM_LEVEL,
    ):
        check_alarm_level(alarm_level)
        self.reference, self.alarm_level = required_reference(classifier), alarm_level
        self.classifier = classifier.answering
        self._measured = MeasuredClassifier(classifier)
        self.input_of = self.classifier.input_of
        self.answers: Counter[str] = Counter()
        self.seconds = 0.0  # Time of the monitor alone.
        self._path = None if state is None else pathlib.Path(state)
        signals = signals_of(self.reference, self._measured)
        self._hash = _reference_hash(classifier, signals)
        if self._path is not None and self._path.exists():
            self._read(self._path)
        else:
            self.martingales = Martingales.of(
                self.reference, signals, len(self.classifier.known_classes)
            )
            if self._path is not None:
                check_output_file(self._path)
                self.save()
        self._saved = time.monotonic()
        self._reported = set(self.martingales.alarms(alarm_level))

    def probabilities(self, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the outputs `(B, K)` for B inputs of `input_of`, and counts them."""
        rows, leverages = self._measured.answers(inputs)
        began = time.perf_counter()
        is_finite = np.isfinite(rows).all(axis=1)
        places = np.flatnonzero(is_finite).tolist()
        if len(places) == len(rows):
            self._count(inputs, rows, leverages)
        elif len(places):
            kept = [inputs[place] for place in places]
            self._count(kept, rows[places], None if leverages is None else leverages[places])
        if self._path is not None and time.monotonic() - self._saved >= _SAVE_SECONDS:
            self.save()
        self.seconds += time.perf_counter() - began
        return rows

    def warm_up(self, inputs: Sequence[np.ndarray]) -> None:
        """Runs the model on a batch that is not counted, which compiles it."""
        self._measured.answers(inputs)

    def save(self) -> None:
        """Writes the state, if it has a file; a disk error is logged and stops no answer."""
        if self._path is None:
            return
        content = {
            "reference": self._hash,
            "answers": dict(self.answers),
            "martingales": self.martingales.to_json(),
        }
        self._saved = time.monotonic()
        try:
            write_text(self._path, json.dumps(content) + "\n")
        except OSError as error:
            _LOGGER.warning("The monitor's state is not written: %s", error)

    def _count(self, inputs, rows, leverages):
        names, limits = self.classifier.class_names, self.classifier.thresholds
        # A further answer has the highest output of its row.
        given = rows.argmax(axis=1) if limits is None else np.nonzero(rows > np.array(limits))[1]
        self.answers.update(names[number] for number in given.tolist())
        signals = self._measured.signals(inputs, rows, leverages)
        columns = [signals[name].tolist() for name in self.martingales.bags]
        for numbers in zip(*columns, strict=True):
            self.martingales.add(dict(zip(self.martingales.bags, numbers, strict=True)))
        for name in set(self.martingales.alarms(self.alarm_level)) - self._reported:
            self._reported.add(name)
            _LOGGER.warning("drift of the %s after %d photos", name, self.martingales.photos)

    def _read(self, path):
        content = read_json(path, _STATE)
        if content.get("reference") != self._hash:
            raise ValueError(
                "A monitor's state must be of this classifier and its reference: give another "
                f"file, or remove this one. Received: {path} of another one"
            )
        answers = content.get("answers", {})
        try:
            if any(type(count) is not int for count in answers.values()):
                raise ValueError(f"answers must be counts by class. Received: {answers!r:.80}")
            self.answers.update(answers)
            self.martingales = Martingales.from_json(content.get("martingales", {}))
        except ValueError as error:
            raise ValueError(f"{path} must hold a monitor's state. {error}") from error

    def stream_counts(self, signal: str) -> dict[int, int]:
        """Returns how often each number of a signal occurred in the stream, ascending."""
        bag = self.martingales.bags[signal].copy()
        for number, count in self.reference.counts[signal].items():
            bag[cell(number, signal)] -= count
        offset = cell(0, signal)
        return {int(place) - offset: int(bag[place]) for place in np.flatnonzero(bag)}


def signals_of(reference: DriftReference, measured: MeasuredClassifier) -> tuple[str, ...]:
    """Returns the signals that both a reference and the answers of a classifier have."""
    absent = set() if measured.has_familiarity else {FAMILIARITY}
    return tuple(name for name in SIGNALS if name in reference.counts and name not in absent)


def check_alarm_level(level: float) -> None:
    """Raises ValueError unless a level is between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(
            f"alarm_level (--alarm-level) must be between 0 and 1, such as 0.01. Received: {level}"
        )


def _reference_hash(classifier, signals):
    decision = classifier.description.decision
    content = [decision.sha256, decision.reference.to_json(), signals]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


_LOGGER = logging.getLogger(__name__)
