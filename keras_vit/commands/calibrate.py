"""`keras-vit calibrate`: when a classifier answers, with a bound on its errors."""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING

from keras_vit.commands import Command, shared_arguments
from keras_vit.commands.shared_arguments import OR_CLASSIFIER, Processes, on_all_devices
from keras_vit.description.class_labels import UNKNOWN
from keras_vit.training.data.spec import EVALUATED_DATA, DataSpec
from keras_vit.training.settings import DecisionSettings
from keras_vit.utils.fields import REQUIRED, part, setting

if TYPE_CHECKING:
    from keras_vit.classifier import Classifier


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrate(Command):
    """Find when a classifier answers and when it answers "unknown", from held-out images.

    "unknown" becomes the last output of the model in the folder, and of its exports.
    """

    model: str = setting(
        REQUIRED,
        "a classifier's folder",
        unit="MODEL",
        python=OR_CLASSIFIER,
        positional=True,
    )
    data: DataSpec = part(DataSpec, only=EVALUATED_DATA, group="data")
    bounds: DecisionSettings = part(DecisionSettings)
    split: str | None = setting(
        None,
        "the calibration images: a part of the run or of the data",
        unit="NAME",
        absent="calibration if the run has it, else test, or all images of data without splits",
    )
    training_data: str | None = setting(
        None,
        "the data that the run trained on, by which strange images are recognised",
        unit="DATA",
        python="Labelled | DataSpec | None",
        absent="the data",
    )
    unknown: str | None = setting(
        None, "images of none of the classes, to report how many are refused", unit="FOLDER"
    )
    batch_size: int = shared_arguments.batch_size()
    processes: Processes = part(Processes, group="processes")

    takes_data_of_run = True

    @property
    def models(self) -> tuple[str | None, ...]:
        """The classifier."""
        return (self.model,)

    def result(self) -> Classifier:
        """Calibrates, and reports what holds."""
        self.data.check_given()
        from keras_vit.images.listing import image_files
        from keras_vit.training.trust.calibrated_classifier import calibrate

        others = image_files(self.unknown) if self.unknown else []
        with on_all_devices(self.processes):
            classifier = calibrate(
                self.model,
                self.data,
                self.bounds,
                split=self.split,
                training_data=self.training_data,
                batch_size=self.batch_size,
                progress=True,
                log=self.note,
            )
        if others:
            predictions = classifier.predict(others, batch_size=self.batch_size)
            answers = [prediction.label for prediction in predictions if not prediction.error]
            line = f"{answers.count(UNKNOWN)} of {len(answers)} images are answered with unknown"
            unread = len(predictions) - len(answers)
            note = f"none of the classes: {line}"
            self.note(f"{note}; {unread} could not be read" if unread else note)
        self.note(f"written {classifier.folder}")
        return classifier

    def run(self) -> None:
        """Calibrates and prints what holds."""
        self.result()
        name = shlex.quote(self.model)
        print(
            f"next    keras-vit export {name}, again if you did before: an export keeps its answers"
        )
