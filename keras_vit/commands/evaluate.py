"""`keras-vit evaluate`: accuracy of a classifier, every image counted once."""

import argparse
import pathlib
from typing import Any

from keras_vit.commands.shared_arguments import (
    add_batch_size,
    add_classifier,
    add_unknown_facts,
    check_batch_size,
    unknown_facts,
)
from keras_vit.commands.training_arguments import add_data
from keras_vit.optional_packages import install_command
from keras_vit.tasks import MULTICLASS
from keras_vit.training.evaluation.protocols import IMAGENET_PROTOCOLS
from keras_vit.training.evaluation.results import RESULT, Result, protocol_of, task_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    add_classifier(parser, "; with --protocol also a name of keras-vit models")
    add_data(parser)
    add_batch_size(parser)
    parser.add_argument(
        "--split",
        metavar="NAME",
        help="train, validation or test (default: test, or all images of data without splits)",
    )
    parser.add_argument(
        "--protocol",
        choices=tuple(IMAGENET_PROTOCOLS),
        help="evaluate an ImageNet classifier by the rules of this test set; --data is needed for "
        "objectnet, and for images that are not in TensorFlow Datasets",
    )
    parser.add_argument(
        "--weights",
        metavar="NAME",
        help="with --protocol, for a model's name: such as imagenet",
    )
    parser.add_argument(
        "--image-size",
        type=int,
        metavar="PIXELS",
        help="with --protocol, for a model's name (default: 224)",
    )
    add_unknown_facts(parser)
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="write the confusion matrix and the calibration (CSV and PNG), accuracy by class, "
        f"metrics.json and {RESULT}, which keras-vit report reads",
    )


def run(arguments: argparse.Namespace) -> int:
    """Evaluates and prints the report."""
    check_batch_size(arguments)
    if arguments.protocol:
        return _run_protocol(arguments)
    if arguments.data is None:
        raise ValueError("Data must be given: a folder, a CSV file or tfds:NAME (--data).")
    given = unknown_facts(arguments).values()
    if arguments.weights or arguments.image_size or any(given):
        raise ValueError(
            "--weights, --image-size, --num-heads, --gelu and --normalization go with --protocol."
        )
    from keras_vit.export.artefacts import open_classifier
    from keras_vit.training.evaluation.classification import evaluate_classifier
    from keras_vit.training.evaluation.predictions import evaluated_classifier

    classifier = open_classifier(arguments.model)
    report = evaluate_classifier(
        classifier,
        arguments.data,
        data_dir=arguments.data_dir,
        split=arguments.split,
        strict=arguments.strict,
        follow_symlinks=arguments.follow_symlinks,
        batch_size=arguments.batch_size,
        progress=True,
    )
    print(report)
    if arguments.output:
        written = report.write(arguments.output)
        for path in written:
            print(f"written {path}")
        task = task_of(arguments.data)
        model = evaluated_classifier(classifier, task)
        _write_result(arguments, model, protocol_of(report.to_json()), task, report)
        if classifier.task == MULTICLASS and not any(path.suffix == ".png" for path in written):
            print(f"The confusion matrix was not drawn: {install_command('plots')}")
    return 0


def _run_protocol(arguments: argparse.Namespace) -> int:
    from keras_vit.export.artefacts import is_artefact, load_artefact
    from keras_vit.training.evaluation.predictions import build_evaluated, evaluated_classifier
    from keras_vit.training.paper import imagenet

    given = {
        "weights": arguments.weights,
        "image_size": arguments.image_size,
        **unknown_facts(arguments),
    }
    if not is_artefact(arguments.model):
        model = build_evaluated(arguments.model, classes=imagenet.NUM_CLASSES, **given)
        preprocessing: Any = model.preprocessing
        print(model.description.facts)
    elif any(given.values()):
        raise ValueError(
            "--weights, --image-size, --num-heads, --gelu and --normalization are for weights; an "
            f"export has them inside. Received: {arguments.model}"
        )
    else:
        classifier = load_artefact(arguments.model)
        model, preprocessing = evaluated_classifier(classifier), classifier.input_preprocessing
    report = imagenet.evaluate(
        model.model,
        arguments.protocol,
        arguments.data,
        preprocessing=preprocessing,
        data_dir=arguments.data_dir,
        batch_size=arguments.batch_size,
        progress=True,
    )
    print(report)
    if arguments.output:
        _write_result(arguments, model, arguments.protocol, report.title, report)
    return 0


def _write_result(
    arguments: argparse.Namespace, model: Any, protocol: str, task: str, report: Any
) -> None:
    """Writes the result file.

    Args:
        arguments: The command's arguments.
        model: An `EvaluatedModel`.
        protocol: Field of the result file.
        task: Field of the result file.
        report: A `ClassificationReport`, a `MultilabelReport` or a report of
            `training.paper.imagenet`.
    """
    path = pathlib.Path(arguments.output) / RESULT
    settings = model.recipe.get("settings", {})
    Result(
        protocol=protocol,
        task=task,
        model=model.to_json(),
        data={
            "data": arguments.data,
            "split": arguments.split,
            "images": {"evaluated": report.count},
            "skipped": len(report.skipped),
            "trained_on": {"images": model.recipe.get("images")},
        },
        metrics=report.to_json(),
        images=report.count,
        recipe=settings,
        seed=settings.get("seed"),
        command=arguments.called_as,
    ).write(path)
    print(f"written {path}")
