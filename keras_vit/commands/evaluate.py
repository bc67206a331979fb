"""`keras-vit evaluate`: accuracy of a classifier, every image counted once."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from keras_vit.commands import Command, shared_arguments
from keras_vit.commands.shared_arguments import ModelArguments, unknown_facts
from keras_vit.training.data.spec import EVALUATED_DATA, DataSpec, check_output
from keras_vit.training.evaluation.protocols import IMAGENET_PROTOCOLS
from keras_vit.training.evaluation.results import RESULT, Result, protocol_of, task_of
from keras_vit.utils.fields import changed, part, setting
from keras_vit.utils.files import SKIPPED


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Evaluate a classifier, every image counted once."""

    model: str = shared_arguments.classifier("; with --protocol also a name of keras-vit models")
    data: DataSpec = part(DataSpec, only=EVALUATED_DATA)
    batch_size: int = shared_arguments.batch_size()
    split: str | None = setting(
        None,
        "train, validation, calibration or test",
        unit="NAME",
        absent="test, or all images of data without splits",
    )
    protocol: str | None = setting(
        None,
        "evaluate an ImageNet classifier by the rules of this test set; --data is needed for "
        "objectnet, and for images that are not in TensorFlow Datasets",
        choices=tuple(IMAGENET_PROTOCOLS),
    )
    weights: str | None = setting(
        None,
        "with --protocol, for a model's name: such as imagenet",
        unit="NAME",
    )
    image_size: tuple[int, int] | None = changed(ModelArguments, "image_size")
    facts: dict[str, Any] = unknown_facts()
    output: str | None = setting(
        None,
        "write a page of confusion, calibration and errors, these and all answers as CSV, "
        f"metrics.json and {RESULT}",
        unit="DIR",
    )

    @property
    def needs_tensorflow(self) -> bool:
        """Whether TensorFlow is needed: not for image files and an export in another runtime."""
        if self.protocol or self.image_size or self.facts or self.data.data is None:
            return True
        from keras_vit.classifier import runs_without_tensorflow
        from keras_vit.training.data.sources import is_files

        return not (runs_without_tensorflow(self.model) and is_files(self.data.data))

    def run(self) -> int:
        """Evaluates and prints the report."""
        if self.protocol:
            return self._run_protocol(self.protocol)
        data = self.data
        data.check_given()
        if self.weights:
            raise ValueError("--weights goes with --protocol.")
        from keras_vit.training.evaluation.classification import evaluate_classifier
        from keras_vit.training.evaluation.predictions import evaluated_classifier

        check_output(self.output, data.data)
        classifier = self._open_classifier()
        report = evaluate_classifier(
            classifier,
            data,
            split=self.split,
            batch_size=self.batch_size,
            progress=True,
        )
        written = []
        if self.output:
            task = task_of(data.data)
            model = evaluated_classifier(classifier, task)
            written = report.write(self.output)
            written += self._write_result(model, protocol_of(report.to_json()), task, report)
        print(report)
        if report.skipped and not self.output:
            print(f"--output DIR writes all skipped files to DIR/{SKIPPED}")
        for path in written:
            print(f"written {path}")
        return 0

    def _open_classifier(self) -> Any:
        if not self.needs_tensorflow:
            from keras_vit.classifier import open_classifier

            return open_classifier(self.model)
        from keras_vit.models.opening import open_model

        opened = open_model(self.model, image_size=self.image_size, **self.facts)
        return opened.classifier(self.image_size)

    def _run_protocol(self, protocol: str) -> int:
        from keras_vit.training.evaluation import imagenet
        from keras_vit.training.evaluation.predictions import build_evaluated

        model = build_evaluated(
            self.model,
            weights=self.weights,
            image_size=self.image_size,
            classes=imagenet.NUM_CLASSES,
            **self.facts,
        )
        print(model.description.facts)
        takes_pixels = getattr(model.model, "takes_pixels", False)  # Only exports do.
        report = imagenet.evaluate(
            model.model,
            protocol,
            self.data.data,
            preprocessing=None if takes_pixels else model.preprocessing,
            data_dir=self.data.data_dir,
            batch_size=self.batch_size,
            progress=True,
        )
        written = self._write_result(model, protocol, report.title, report) if self.output else []
        print(report)
        for path in written:
            print(f"written {path}")
        return 0

    def _write_result(
        self, model: Any, protocol: str, task: str, report: Any
    ) -> list[pathlib.Path]:
        """Writes the result file; returns its path.

        Args:
            model: An `EvaluatedModel`.
            protocol: Field of the result file.
            task: Field of the result file.
            report: A `ClassificationReport`, a `MultilabelReport` or a report of
                `training.evaluation.imagenet`.
        """
        path = pathlib.Path(self.output or "") / RESULT
        settings = model.recipe.get("settings", {})
        Result(
            protocol=protocol,
            task=task,
            model=model.to_json(),
            data={
                "data": self.data.data,
                "split": self.split,
                "images": {"evaluated": report.count},
                "skipped": len(report.skipped),
                "trained_on": {"images": model.recipe.get("images")},
            },
            metrics=report.to_json(),
            images=report.count,
            recipe=settings,
            seed=settings.get("seed"),
            command=self.called_as,
        ).write(path)
        return [path]
