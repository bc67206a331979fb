"""`keras-vit evaluate`: accuracy of a classifier, every image counted once."""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
from typing import TYPE_CHECKING

from keras_vit.commands import Command, shared_arguments
from keras_vit.commands.shared_arguments import ModelArguments, Processes, on_all_devices
from keras_vit.description.run_record import RunRecord
from keras_vit.training.data.spec import EVALUATED_DATA, DataSpec, check_output
from keras_vit.training.evaluation.results import (
    IMAGENET_PROTOCOLS,
    RESULT,
    Result,
    protocol_of,
    task_of,
)
from keras_vit.utils.fields import part, setting
from keras_vit.utils.files import REPORT

if TYPE_CHECKING:
    from keras_vit.training.evaluation.imagenet import ImageNetAccuracy
    from keras_vit.training.evaluation.reports import EvaluationReport


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Evaluate a classifier, every image counted once."""

    model: ModelArguments = part(ModelArguments)
    data: DataSpec = part(DataSpec, only=EVALUATED_DATA, group="data")
    batch_size: int = shared_arguments.batch_size()
    processes: Processes = part(Processes, group="processes")
    split: str | None = setting(
        None,
        "train, validation, calibration or test",
        unit="NAME",
        absent="test, or all images of data without splits",
    )
    protocol: str | None = setting(
        None,
        "evaluate an ImageNet classifier by the rules of this test set; --data is needed for "
        "images that are not in TensorFlow Datasets",
        choices=tuple(IMAGENET_PROTOCOLS),
    )
    output: str | None = setting(
        None,
        "write a page of confusion, calibration and errors, these and all answers as CSV, "
        f"metrics.json and {RESULT}",
        unit="DIR",
    )

    takes_data_of_run = True

    @property
    def models(self) -> tuple[str | None, ...]:
        """The classifier."""
        return self.model.at_rest

    def result(self) -> EvaluationReport | ImageNetAccuracy:
        """Evaluates, and writes the files of --output."""
        check_output(self.output, self.data.data)
        with on_all_devices(self.processes):
            report, model = self._by_protocol() if self.protocol else self._of_classifier()
        for path in self._write(report, model) if self.output else []:
            self.note(f"written {path}")
        return report

    def run(self) -> None:
        """Evaluates, and prints the report."""
        print(self.result())
        if not self.output:
            print(f"next    {self.called_as} --output evaluation")
        elif not self.protocol:
            print(f"report  {pathlib.Path(self.output, REPORT)}")
            print(f"next    keras-vit predict {shlex.quote(self.model.model)} PHOTOS")

    def _of_classifier(self):
        self.data.check_given()
        if self.model.weights:
            raise ValueError("--weights goes with --protocol.")
        from keras_vit.opening import open_model
        from keras_vit.training.evaluation.classification import evaluate_classifier

        size = self.model.image_size
        opened = open_model(self.model.model, image_size=size, **self.model.facts)
        classifier = opened.classifier(size)
        report = evaluate_classifier(
            classifier, self.data, split=self.split, batch_size=self.batch_size, progress=True
        )
        return report, classifier

    def _by_protocol(self):
        from keras_vit.training.evaluation import imagenet

        model = self.model.open(classes=imagenet.NUM_CLASSES)
        self.note(str(model.description.facts))
        report = imagenet.evaluate(
            model.model,
            self.protocol,
            self.data.data,
            preprocessing=model.preprocessing,
            data_dir=self.data.data_dir,
            batch_size=self.batch_size,
            progress=True,
        )
        return report, model

    def _write(self, report, model):
        """Writes the result file, and of a classifier the report's files; returns the paths."""
        from keras_vit.training.evaluation.predictions import model_fields

        path, recipe = pathlib.Path(self.output or "", RESULT), RunRecord.from_json(model.recipe)
        task = task_of(self.data.name)
        path.unlink(missing_ok=True)  # Written last: with it a folder is whole.
        written = [] if self.protocol else report.write(self.output)
        Result(
            protocol=self.protocol or protocol_of(report.to_json()),
            task=report.title if self.protocol else task,
            model=model_fields(model, None if self.protocol else task),
            data={
                "data": self.data.name,
                "split": self.split,
                "images": {"evaluated": report.count},
                "skipped": len(report.skipped),
                "trained_on": {"images": recipe.images or None},
            },
            metrics=report.to_json(),
            images=report.count,
            recipe=recipe.settings,
            seed=recipe.settings.get("seed"),
            command=self.called_as,
        ).write(path)
        return [*written, path]
