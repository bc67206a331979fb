"""`keras-vit demo`: pre-train, transfer, predict and export on handwritten digits."""


def add_arguments(parser):
    """Declares the command's arguments."""
    parser.add_argument("--output", default="demo", metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier demonstration")


def run(arguments):
    """Runs the demonstration and prints its closing table."""
    from keras_vit.training.demo import demo

    result = demo(arguments.output, seed=arguments.seed, overwrite=arguments.overwrite)
    print(f"\n{result}")
