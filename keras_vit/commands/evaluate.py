"""`keras-vit evaluate`: how good a classifier is, every image counted once."""

PROTOCOLS = (
    "imagenet",
    "imagenet-real",
    "imagenet-v2",
    "imagenet-a",
    "imagenet-r",
    "objectnet",
)


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="the classifier's folder; with --protocol also a name of keras-vit models",
    )
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="a folder {train,test}/CLASS/* or CLASS/*, a CSV file of paths and labels, or "
        "tfds:NAME",
    )
    parser.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        help="evaluate an ImageNet classifier as these data sets ask; --data is needed for "
        "objectnet, and where the images are not in tfds",
    )
    parser.add_argument(
        "--weights", metavar="NAME", help="of a model's name, with --protocol: such as imagenet"
    )
    parser.add_argument(
        "--image-size", type=int, metavar="PIXELS", help="of a model's name (default: 224)"
    )
    parser.add_argument(
        "--data-dir", metavar="DIR", help="of tfds, or that paths in a CSV file start from"
    )
    parser.add_argument(
        "--split",
        default=None,
        metavar="NAME",
        help="train, validation or test (default: test; all images of data without parts)",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        help="write the confusion matrix and the calibration (CSV and picture), a table by "
        "class, metrics.json and result.json, which keras-vit report takes",
    )
    parser.add_argument("--batch-size", type=int, default=32, metavar="N")
    parser.add_argument(
        "--strict", action="store_true", help="stop at an image that cannot be read"
    )


def run(arguments):
    """Evaluates and prints the report."""
    if arguments.batch_size < 1:
        raise ValueError(
            f"--batch-size must be at least 1. Received: --batch-size {arguments.batch_size}"
        )
    if arguments.protocol:
        return _run_protocol(arguments)
    if arguments.data is None:
        raise ValueError("Data must be given: a folder, a CSV file or tfds:NAME (--data).")
    if arguments.weights or arguments.image_size:
        raise ValueError("--weights and --image-size go with --protocol and a model's name.")
    from keras_vit.classifier import load_classifier
    from keras_vit.training.evaluation import classification, results, subject

    classifier = load_classifier(arguments.folder)
    report = classification.evaluate_classifier(
        classifier,
        arguments.data,
        data_dir=arguments.data_dir,
        split=arguments.split,
        strict=arguments.strict,
        batch_size=arguments.batch_size,
        progress=True,
    )
    print(report)
    if arguments.output:
        for path in report.write(arguments.output):
            print(f"written {path}")
        task = results.task_of(arguments.data)
        opened = subject.of_classifier(classifier, task)
        _write_result(arguments, opened, "classification", task, report)
        if not classification.picture_is_possible():
            print("no picture of the confusion matrix: pip install 'keras-vit[plots]'")
    return 0


def _run_protocol(arguments):
    from keras_vit.training.evaluation import subject
    from keras_vit.training.paper import imagenet

    opened = subject.open_subject(
        arguments.folder,
        weights=arguments.weights,
        image_size=arguments.image_size,
        classes=imagenet.NUM_CLASSES,
    )
    hits = imagenet.evaluate(
        opened.model,
        arguments.protocol,
        arguments.data,
        preprocessing=opened.preprocessing,
        data_dir=arguments.data_dir,
        batch_size=arguments.batch_size,
        progress=True,
    )
    print(hits)
    if arguments.output:
        _write_result(arguments, opened, arguments.protocol, hits.title, hits)
    return 0


def _write_result(arguments, opened, protocol, task, report):
    import pathlib

    from keras_vit.training.evaluation.results import RESULT, Result

    path = pathlib.Path(arguments.output) / RESULT
    recipe = opened.recipe.get("settings", {})
    Result(
        protocol=protocol,
        task=task,
        model=opened.to_json(),
        data={
            "data": arguments.data,
            "split": arguments.split,
            "images": {"evaluated": report.count},
            "skipped": len(report.skipped),
            "trained_on": {"images": opened.recipe.get("images")},
        },
        metrics=report.to_json(),
        images=report.count,
        recipe=recipe,
        seed=recipe.get("seed"),
        command=arguments.called_as,
    ).write(path)
    print(f"written {path}")
