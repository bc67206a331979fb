"""`keras-vit deduplicate`: copies of test images in a training set."""

import os
import pathlib
import time

from keras_vit.commands.training_arguments import add_data
from keras_vit.training.evaluation.protocols import DUPLICATE_DISTANCE, DUPLICATE_SIMILARITY


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.add_argument(
        "--train",
        required=True,
        metavar="DATA",
        help="a folder (its train folder if it has one), a CSV file or tfds:NAME",
    )
    parser.add_argument(
        "--test",
        required=True,
        metavar="DATA",
        help="a folder (its test folder if it has one), a CSV file or tfds:NAME",
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="LIST",
        help="the training images to leave out, for --exclude; beside it LIST_pairs.csv and "
        "the picture LIST_pairs.png",
    )
    add_data(parser, ["data_dir", "strict"])
    parser.add_argument(
        "--distance",
        type=int,
        default=DUPLICATE_DISTANCE,
        metavar="BITS",
        help="bits of 64 in which perceptual hashes may differ, 0 to 15 (default: %(default)s)",
    )
    parser.add_argument(
        "--similarity",
        type=float,
        default=DUPLICATE_SIMILARITY,
        metavar="SHARE",
        help="smallest correlation of the thumbnails (default: %(default)s)",
    )
    parser.add_argument(
        "--num-pictures",
        type=int,
        default=48,
        metavar="N",
        help="pairs to draw, the least similar first (default: %(default)s)",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: all cores)")
    parser.add_argument(
        "--runner", metavar="NAME", help="run as an Apache Beam pipeline, such as on DirectRunner"
    )
    parser.add_argument(
        "--runner-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="an option of the runner, such as --runner-option=--project=NAME; may be repeated",
    )
    parser.add_argument(
        "--runner-dir", metavar="DIR", help="a folder or URL that all Beam workers can access"
    )


def run(arguments):
    """Finds the pairs and writes the list, the table and the picture."""
    from keras_vit.progress import progress_bar
    from keras_vit.training.data.sources import describe_skipped
    from keras_vit.training.paper import duplicates

    if arguments.workers is not None and arguments.workers < 1:
        raise ValueError(f"--workers must be at least 1. Received: --workers {arguments.workers}")
    folder = pathlib.Path(arguments.output).absolute().parent
    if not folder.is_dir():
        raise ValueError(f"The list must be in a folder that exists. Received: {folder}")
    workers = arguments.workers or os.cpu_count()
    train = duplicates.ImageList(arguments.train, "train", arguments.data_dir)
    test = duplicates.ImageList(arguments.test, "test", arguments.data_dir)
    skipped: list[duplicates.SkippedImage] | None = None if arguments.strict else []
    began = time.monotonic()
    index = duplicates.index_test_images(
        test,
        distance=arguments.distance,
        similarity=arguments.similarity,
        workers=workers,
        skipped=skipped,
    )
    if arguments.runner:
        pairs = _with_beam(arguments, train, index, skipped)
    else:
        with progress_bar(len(train), "deduplicate") as bar:
            pairs = list(
                duplicates.find_duplicates(
                    train, index, workers=workers, skipped=skipped, progress=bar.update
                )
            )
    seconds = time.monotonic() - began
    written = duplicates.write_results(
        arguments.output, pairs, train.read, test.read, num_pictures=arguments.num_pictures
    )
    copies, copied = {pair.train for pair in pairs}, {pair.test for pair in pairs}
    print(
        f"{len(train)} training and {len(test)} test images in {seconds:.0f} s\n"
        f"{len(copies)} training images are copies of {len(copied)} test images "
        f"({len(pairs)} pairs, {sum(pair.kind == 'exact' for pair in pairs)} exact)"
    )
    for line in describe_skipped(skipped or ()):
        print(line)
    for path in written:
        print(f"written {path}")


def _with_beam(arguments, train, index, skipped):
    from keras_vit.training.paper import duplicates_beam

    if train.paths is None:
        raise ValueError(
            "A Beam pipeline needs a folder of image files; use tfds:NAME without --runner. "
            f"Received: --train {arguments.train}"
        )
    pairs, unread = duplicates_beam.run_pipeline(
        train.paths,
        index,
        runner=arguments.runner,
        options=arguments.runner_option,
        work_dir=arguments.runner_dir,
    )
    if unread and skipped is None:
        raise ValueError(f"{unread[0].name}: {unread[0].reason}")
    if skipped is not None:
        skipped += unread
    return pairs
