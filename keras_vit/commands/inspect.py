"""`keras-vit inspect`: figures of a model's attention, position embeddings and filters."""

from keras_vit.commands.shared_arguments import add_unknown_facts, unknown_facts

EPILOG = (
    "Writes PNG, SVG and numbers (NPZ) of all figures that apply, and index.html, a page with "
    "all of them."
)


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument(
        "model", metavar="MODEL", help="a classifier's folder, other weights, or a model's name"
    )
    add_unknown_facts(parser)
    parser.add_argument(
        "images", metavar="IMAGE", nargs="*", help="image files and folders of images"
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="a new or empty folder")
    parser.add_argument(
        "--weights",
        metavar="WEIGHTS",
        help="with a model's name: imagenet21k, imagenet, a key of the catalogue, a file, or "
        "random",
    )
    parser.add_argument(
        "--image-size",
        type=int,
        nargs="+",
        metavar="PIXELS",
        help="with a model's name: one number, or height and width (default: 224)",
    )
    parser.add_argument(
        "--figures",
        nargs="+",
        metavar="NAME",
        help="filters, position_similarity, attention_distance, rollout, heads (default: all "
        "that apply)",
    )
    parser.add_argument(
        "--query",
        choices=("token", "patches"),
        help="attention from the class token, or from the mean over patches (default: the class "
        "token if the model has one)",
    )
    parser.add_argument(
        "--num-images",
        type=int,
        default=128,
        metavar="N",
        help="most images for the attention distance (default: 128)",
    )
    parser.add_argument(
        "--num-pictures",
        type=int,
        default=4,
        metavar="N",
        help="most images whose attention is drawn (default: 4)",
    )
    parser.add_argument("--batch-size", type=int, default=8, metavar="N")


def run(arguments):
    """Writes the figures and prints the path of the page."""
    size = arguments.image_size
    if size is not None and (len(size) > 2 or min(size) < 1):
        raise ValueError(
            "--image-size must be one positive number, or height and width. "
            f"Received: {' '.join(map(str, size))}"
        )
    from keras_vit.images.decoding import image_files
    from keras_vit.inspection import write_report
    from keras_vit.preprocessing import imagenet_classes
    from keras_vit.training.evaluation.predictions import build_evaluated

    # Before the model is read, so that a wrong path is reported at once.
    if arguments.images:
        image_files(arguments.images)
    opened = build_evaluated(
        arguments.model,
        weights=arguments.weights,
        image_size=size and (size[0], size[-1]),
        **unknown_facts(arguments),
    )
    print(opened.description.facts)
    class_names = opened.description.labels.names
    if class_names is None and arguments.weights == "imagenet":
        class_names = [name for _, name in imagenet_classes()]
    written = write_report(
        arguments.output,
        opened.model,
        opened.preprocessing,
        arguments.images,
        class_names=class_names,
        thresholds=opened.description.labels.limits,
        name=opened.name,
        figures=arguments.figures,
        query=arguments.query,
        num_images=arguments.num_images,
        num_pictures=arguments.num_pictures,
        batch_size=arguments.batch_size,
        progress=print,
    )
    print(f"{len(written)} files; open {arguments.output}/index.html")
