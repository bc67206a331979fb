"""`keras-vit sweep`: the learning rate found on a development split, then several seeds."""

from keras_vit.commands import training_arguments
from keras_vit.files import named_disk_errors
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.settings import FineTuning


def add_arguments(parser):
    """Declares the command's arguments."""
    training_arguments.add_fields(
        parser.add_argument_group("data"), DataSpec, without=("split_seed",)
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="the folder of all runs; the same command again continues a stopped sweep",
    )
    parser.add_argument(
        "--learning-rates",
        type=float,
        nargs="+",
        metavar="RATE",
        help="the rates to try (default: the recipe's, else 0.001 0.003 0.01 0.03)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[0, 1, 2],
        metavar="SEED",
        help="seeds of the final runs (default: 0 1 2)",
    )
    training_arguments.add_fields(
        parser.add_argument_group(training_arguments.SETTINGS_GROUP),
        FineTuning,
        without=("learning_rate", "seed", "patience"),
    )


def run(arguments):
    """Sweeps and prints the tables; returns 130 or 143 if a signal stopped it."""
    settings = training_arguments.settings(arguments, FineTuning)
    from keras_vit.training.run.loop import Interrupted
    from keras_vit.training.run.sweep import sweep

    try:
        with named_disk_errors(
            arguments.output, lambda: f"Free space there, and go on with: {arguments.called_as}"
        ):
            done = sweep(
                training_arguments.data(arguments),
                arguments.output,
                settings,
                learning_rates=arguments.learning_rates,
                seeds=arguments.seeds,
                command=arguments.called_as,
            )
    except Interrupted as stop:
        return training_arguments.report_stop(stop, arguments.called_as)
    print(f"\n{done}\n\nwritten {done.folder}")
    return 0
