"""`keras-vit predict`: the most likely classes of images, or their labels."""

import csv
import json
import shlex
import sys

from keras_vit.commands.shared_arguments import add_classifier
from keras_vit.tasks import MULTICLASS, MULTILABEL, SEPARATOR

EPILOG = (
    "Exit code: 0 if every image was predicted, 1 if some could not be read (they are "
    "reported and the others predicted), 2 for wrong input or, with --strict, at the first "
    "image that cannot be read."
)


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.epilog = EPILOG
    add_classifier(parser)
    parser.add_argument(
        "images", metavar="IMAGE", nargs="+", help="image files and folders of images"
    )
    parser.add_argument(
        "--top", type=int, default=5, metavar="K", help="classes to print (default: 5)"
    )
    parser.add_argument(
        "--format", choices=tuple(WRITERS), default="text", help="(default: %(default)s)"
    )
    parser.add_argument("--batch-size", type=int, default=32, metavar="N")
    parser.add_argument(
        "--strict", action="store_true", help="stop at an image that cannot be read"
    )
    beam = parser.add_argument_group("many machines, with Apache Beam")
    beam.add_argument(
        "--beam-runner",
        metavar="NAME",
        help="run as a pipeline, such as on DirectRunner or DataflowRunner; MODEL and IMAGE may "
        "be URLs that Beam opens",
    )
    beam.add_argument(
        "--beam-options",
        metavar="OPTIONS",
        help='options of the runner, in one argument: --beam-options="--project=NAME '
        '--region=NAME"',
    )
    beam.add_argument(
        "--output",
        metavar="FILE",
        help="with --beam-runner: lines of JSON, one an image, in FILE-00000-of-00004 and so on, "
        "with the suffix of FILE at the end",
    )


def run(arguments):
    """Predicts; returns 1 if an image could not be read."""
    if arguments.top < 1 or arguments.batch_size < 1:
        raise ValueError(
            "--top and --batch-size must be at least 1. Received: "
            f"--top {arguments.top} --batch-size {arguments.batch_size}"
        )
    if arguments.beam_runner:
        return _with_beam(arguments)
    for option in ("beam_options", "output"):
        if getattr(arguments, option) is not None:
            raise ValueError(f"--{option.replace('_', '-')} goes with --beam-runner.")
    from keras_vit.export.artefacts import open_classifier
    from keras_vit.images.decoding import image_files

    files = image_files(arguments.images)
    classifier = open_classifier(arguments.model)
    predictions = classifier.stream(files, arguments.top, arguments.batch_size)
    failed: list = []
    several = classifier.task == MULTILABEL
    WRITERS[arguments.format](_checked(predictions, failed, arguments.strict), several)
    for prediction in failed:
        print(f"keras-vit: {prediction.path}: {prediction.error}", file=sys.stderr)
    return 1 if failed else 0


def _with_beam(arguments):
    if not arguments.output or arguments.strict or arguments.format != "text":
        raise ValueError("--beam-runner needs --output, and goes without --strict and --format.")
    from keras_vit.export.beam import ClassifyImages, predict_files
    from keras_vit.images.decoding import image_files

    urls = [path for path in arguments.images if "://" in path]
    files = [path for path in arguments.images if "://" not in path]
    handler = ClassifyImages(arguments.model, top=arguments.top, batch_size=arguments.batch_size)
    unreadable = predict_files(
        handler,
        [*urls, *image_files(files)],
        arguments.output,
        runner=arguments.beam_runner,
        options=shlex.split(arguments.beam_options or ""),
    )
    if unreadable:
        print(f"keras-vit: {unreadable} images could not be read", file=sys.stderr)
    return 1 if unreadable else 0


def _checked(predictions, failed, strict):
    """Yields predictions, and collects those of images that could not be read."""
    for prediction in predictions:
        if prediction.error is not None:
            if strict:
                raise ValueError(f"{prediction.path}: {prediction.error}")
            failed.append(prediction)
        yield prediction
        sys.stdout.flush()  # Of the prediction that the writer has just printed.


def _write_text(predictions, several):
    for prediction in predictions:
        print(prediction.path)
        if prediction.error is not None:
            print(f"  could not be read: {prediction.error}")
        elif several:
            print(f"  labels: {', '.join(prediction.labels) or 'none'}")
        for name, probability in prediction.top:
            print(f"  {probability:7.2%}  {name}")


def _write_json(predictions, several):
    """One array with a line for each image, so that lines can also be read one by one."""
    print("[", end="")
    for index, prediction in enumerate(predictions):
        entry = prediction.to_json(MULTILABEL if several else MULTICLASS)
        print(("," if index else "") + "\n" + json.dumps(entry, ensure_ascii=False), end="")
    print("\n]")


def _write_csv(predictions, several):
    """A row for each class; of several labels each row has all labels of the image."""
    from keras_vit.files import csv_row

    writer = csv.writer(sys.stdout, lineterminator="\n")
    last = ["labels"] if several else []
    writer.writerow(["path", "rank", "class", "probability", "error", *last])
    for prediction in predictions:
        if several:
            last = [SEPARATOR.join(prediction.labels)]
        if prediction.error is not None:
            writer.writerow(csv_row([prediction.path, "", "", "", prediction.error, *last]))
        for rank, (name, value) in enumerate(prediction.top, 1):
            writer.writerow(csv_row([prediction.path, rank, name, f"{value:.6f}", "", *last]))


WRITERS = {"text": _write_text, "json": _write_json, "csv": _write_csv}
