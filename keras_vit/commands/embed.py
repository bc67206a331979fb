"""`keras-vit embed`: features of images, and the images nearest to one."""

import argparse
import pathlib
import sys

from keras_vit.commands.shared_arguments import (
    add_batch_size,
    add_model,
    add_unknown_facts,
    check_batch_size,
    unknown_facts,
)
from keras_vit.configs import FEATURES
from keras_vit.files import check_writable

EPILOG = (
    "Exit code: 0 if every image was read, 1 if some could not be (they are reported and left "
    "out), 2 for wrong input."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's arguments."""
    parser.epilog = EPILOG
    add_model(parser)
    parser.add_argument(
        "images",
        metavar="IMAGE",
        nargs="+",
        help="image files and folders of images, or a file that --output wrote before",
    )
    add_unknown_facts(parser)
    add_batch_size(parser)
    parser.add_argument(
        "--feature",
        choices=FEATURES,
        default=FEATURES[0],
        help="input of the head, class token, or mean of the patch tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="write names and features, as .npz or .parquet"
    )
    parser.add_argument(
        "--like", metavar="IMAGE", help="print the images nearest to this one, by the cosine"
    )
    parser.add_argument(
        "--top", type=int, default=10, metavar="N", help="images to print (default: %(default)s)"
    )
    parser.add_argument(
        "--page", metavar="FILE", help="with --like, write an HTML page with their pictures"
    )


def run(arguments: argparse.Namespace) -> int:
    """Computes or reads features; returns 1 if an image could not be read."""
    check_batch_size(arguments)
    if not arguments.output and not arguments.like:
        raise ValueError("A result must be asked for: --output FILE, --like IMAGE or both.")
    if arguments.top < 1:
        raise ValueError(f"--top must be at least 1. Received: --top {arguments.top}")
    if arguments.page and not arguments.like:
        raise ValueError("--page goes with --like IMAGE.")
    for output in filter(None, (arguments.output, arguments.page)):
        check_writable(output)
    from keras_vit.images.decoding import image_files
    from keras_vit.models.rebuild import feature_model
    from keras_vit.training.evaluation.embeddings import (
        SUFFIXES,
        check_suffix,
        embed,
        read_embeddings,
    )
    from keras_vit.training.evaluation.predictions import build_evaluated

    if arguments.output:
        check_suffix(arguments.output)
    known = None
    if len(arguments.images) == 1 and arguments.images[0].lower().endswith(SUFFIXES):
        known = read_embeddings(arguments.images[0])
    files = [] if known else image_files(arguments.images)
    like = image_files(arguments.like) if arguments.like else []
    model = build_evaluated(
        arguments.model,
        weights=arguments.weights,
        image_size=arguments.image_size,
        **unknown_facts(arguments),
    )
    print(model.description.facts)
    feature_model(model.model, arguments.feature)  # An error here comes before images are read.
    options = {"feature": arguments.feature, "batch_size": arguments.batch_size}
    skipped: list[tuple[str, str]] = []
    if known is None:
        known, skipped = embed(model, files, **options, progress=True)
    if arguments.output:
        known.write(arguments.output)
        number, size = known.values.shape
        print(f"written {arguments.output}: {size} features of each of {number} images")
    if like:
        asked, _ = embed(model, like[:1], **options)
        if asked.facts != known.facts:
            raise ValueError(
                "The features must be of this model. "
                f"Received: {arguments.images[0]} of {known.facts}, {asked.facts}"
            )
        _show_nearest(arguments, known, asked)
    for path, reason in skipped:
        print(f"keras-vit: {path}: {reason}", file=sys.stderr)
    return 1 if skipped else 0


def _show_nearest(arguments, known, asked):
    from keras_vit.pages import GridPicture, paragraph, picture_grid, write_page
    from keras_vit.training.evaluation.nearest import nearest

    numbers, cosines = nearest(known.values, asked.values, min(arguments.top, len(known.names)))
    found = [(known.names[n], c) for n, c in zip(numbers[0], cosines[0], strict=True)]
    for name, cosine in found:
        print(f"{cosine:7.4f}  {name}")
    if arguments.page:
        pictures = [
            GridPicture(name, pathlib.Path(name).read_bytes(), {line: ""})
            for name, line in [
                (arguments.like, "the image asked for"),
                *((name, f"cosine {cosine:.4f}") for name, cosine in found),
            ]
        ]
        text = (
            f"The {len(found)} nearest of {len(known.names):,} images, by {known.facts['model']}."
        )
        write_page(arguments.page, "Nearest images", paragraph(text), picture_grid(pictures))
        print(f"written {arguments.page}")
