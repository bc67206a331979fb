"""`keras-vit convert`: weights from one code base to another."""

from keras_vit.commands.shared_arguments import add_unknown_facts, image_size, unknown_facts
from keras_vit.export.options import CONVERSION_FORMATS


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a classifier's folder; an .npz, .h5, .safetensors or PyTorch file of the official "
        "code, Hugging Face, timm, torchvision, KerasHub or vit-keras; a folder of Hugging Face, "
        "timm or KerasHub",
    )
    parser.add_argument("destination", metavar="DEST", help="the file or folder to write")
    parser.add_argument(
        "--to",
        choices=CONVERSION_FORMATS,
        help="by default the format of DEST's suffix (.npz, .weights.h5, .safetensors), and a "
        "classifier's folder without one; timm without a suffix is a folder with class names and "
        "preprocessing",
    )
    parser.add_argument(
        "--image-size",
        type=image_size,
        metavar="PIXELS",
        help="the images of the source's position embeddings, 224 or 160x224 (height x width), "
        "where the file does not show it",
    )
    add_unknown_facts(parser)
    parser.add_argument("--overwrite", action="store_true", help="replace an existing DEST")


def run(arguments):
    """Converts, and prints a note for each assumption and each part that was left out."""
    from keras_vit.export import convert

    notes = convert(
        arguments.source,
        arguments.destination,
        to=arguments.to,
        image_size=arguments.image_size,
        **unknown_facts(arguments),
        overwrite=arguments.overwrite,
    )
    for note in notes:
        print(f"note: {note}")
    print(arguments.destination)
