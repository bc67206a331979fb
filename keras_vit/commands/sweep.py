"""`keras-vit sweep`: the learning rate found on a development split, then several seeds."""

import sys

from keras_vit.commands import finetune, training_arguments
from keras_vit.training.settings import FineTuning


def add_arguments(parser):
    """Declares the command's arguments."""
    training_arguments.add_data(parser)
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="the folder of all runs; called again with the same, a stopped sweep goes on",
    )
    parser.add_argument(
        "--learning-rates",
        type=float,
        nargs="+",
        metavar="RATE",
        help="what to try (default: those of the recipe, else 0.001 0.003 0.01 0.03)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[0, 1, 2],
        metavar="SEED",
        help="of the final runs (default: 0 1 2)",
    )
    training_arguments.add_recipe(parser, FineTuning, without=("learning_rate", "seed", "patience"))
    finetune.add_starting_point(parser)


def run(arguments):
    """Sweeps and prints the tables; returns 130 or 143 if a signal stopped it."""
    settings = finetune.settings(arguments)
    if arguments.data is None:
        raise ValueError("Data must be given: a folder, a CSV file or tfds:NAME (--data).")
    from keras_vit.training.run.loop import Interrupted
    from keras_vit.training.run.sweep import sweep

    try:
        done = sweep(
            arguments.data,
            arguments.output,
            settings,
            learning_rates=arguments.learning_rates,
            seeds=arguments.seeds,
            **training_arguments.where(arguments),
        )
    except Interrupted as stop:
        print(f"{stop} Go on with: {arguments.called_as}", file=sys.stderr)
        return 128 + stop.signal_number
    print(f"\n{done}\n\nwritten {done.folder}")
    return 0
