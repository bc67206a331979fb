"""`keras-vit records`: labelled images as sharded TFRecord files."""

import dataclasses

from keras_vit.commands import training_arguments
from keras_vit.training.data.spec import DataSpec


def add_arguments(parser):
    """Declares the command's arguments."""
    training_arguments.add_fields(parser, DataSpec, without=("split_seed",))
    parser.add_argument("--output", required=True, metavar="DIR", help="a new folder to write")
    parser.add_argument(
        "--shard-size",
        type=float,
        default=128,
        metavar="MIB",
        help="size at which a file is closed (default: %(default)s MiB)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the order and of the test images (default: 0)"
    )


def run(arguments):
    """Writes the files, reads them back, and prints how many there are."""
    from keras_vit.training.data import write_records
    from keras_vit.training.data.sources import describe_skipped

    spec = training_arguments.data(arguments)
    source = dataclasses.replace(spec, split_seed=arguments.seed).open()
    for line in describe_skipped(source.skipped):
        print(line)
    written = write_records(
        source,
        arguments.output,
        seed=arguments.seed,
        shard_mebibytes=arguments.shard_size,
        progress=True,
    )
    for split, shards in written.items():
        print(f"{split}: {shards.counts.sum()} images in {len(shards.files)} files")
    print(f"written {arguments.output}")
