"""`keras-vit verify`: an export's probabilities in its own runtime, on this machine."""


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.epilog = (
        "Without --classifier the export's own golden samples are used: images with the "
        "probabilities that the Keras model gave. Exit code: 0 if they agree, 2 if not."
    )
    parser.add_argument("artefact", metavar="EXPORT", help="what keras-vit export wrote")
    parser.add_argument(
        "--classifier", metavar="FOLDER", help="compare with this classifier's Keras model instead"
    )
    parser.add_argument(
        "--check-images",
        nargs="+",
        metavar="PATH",
        help="with --classifier: images, files or folders; by default the classifier's samples",
    )


def run(arguments):
    """Verifies and prints the report."""
    import keras_vit.export

    print(
        keras_vit.export.verify(
            arguments.artefact, arguments.classifier, check_images=arguments.check_images
        )
    )
