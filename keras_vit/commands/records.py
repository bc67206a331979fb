"""`keras-vit records`: labelled images as sharded TFRecord files."""


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.add_argument(
        "--data",
        required=True,
        metavar="DATA",
        help="a folder {train,test}/CLASS/* or CLASS/*, a CSV file of paths and labels, "
        "tfrecords:FOLDER or tfds:NAME",
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="a new folder to write")
    parser.add_argument(
        "--data-dir", metavar="DIR", help="of tfds, or that paths in a CSV file start from"
    )
    parser.add_argument(
        "--holdout",
        type=float,
        default=0.2,
        metavar="SHARE",
        help="share kept for testing where the data have no test part; 0 for none "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--exclude",
        metavar="LIST",
        help="a file with the images to leave out, one a line, as keras-vit deduplicate writes",
    )
    parser.add_argument(
        "--shard-size",
        type=float,
        default=128,
        metavar="MIB",
        help="at which a file is closed (default: %(default)s MiB)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the order, and of what is held out (default: 0)"
    )
    parser.add_argument(
        "--strict", action="store_true", help="stop at an image that cannot be read"
    )


def run(arguments):
    """Writes the files, reads them back, and prints how many there are."""
    from keras_vit.commands.training_arguments import read_list
    from keras_vit.training.data import open_source, write_records

    source = open_source(
        arguments.data,
        data_dir=arguments.data_dir,
        seed=arguments.seed,
        holdout=arguments.holdout,
        strict=arguments.strict,
        exclude=read_list(arguments.exclude),
    )
    for path, reason in source.skipped:
        print(f"skipped {path}: {reason}")
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
