"""`keras-vit finetune`: a pre-trained model on one's own images, by the paper's recipe."""

import argparse

from keras_vit.commands import training_arguments
from keras_vit.training.settings import TRAINED, FineTuning


def add_arguments(parser):
    """Declares the command's arguments."""
    training_arguments.add(parser, FineTuning)
    add_starting_point(parser)


def add_starting_point(parser):
    """Declares what to start from and what of it to train."""
    parser.add_argument(
        "--weights",
        default=argparse.SUPPRESS,
        metavar="WEIGHTS",
        help="what to start from: imagenet21k, imagenet, a name of the catalogue, a file, a "
        f"classifier's folder, or none (default: {FineTuning.weights})",
    )
    parser.add_argument(
        "--train",
        choices=TRAINED,
        default=argparse.SUPPRESS,
        help="all; the head alone, a linear probe; or lora, the head and small additions to the "
        f"attention (default: {FineTuning.train})",
    )
    parser.add_argument(
        "--lora-rank",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help=f"columns that --train lora adds for each head (default: {FineTuning.lora_rank})",
    )
    parser.add_argument(
        "--lora-alpha",
        type=float,
        default=argparse.SUPPRESS,
        metavar="STRENGTH",
        help="of what --train lora adds (default: the rank)",
    )


def settings(arguments):
    """Returns the settings that the arguments stand for."""
    is_random = getattr(arguments, "weights", None) == "none"
    return training_arguments.settings(
        arguments, FineTuning, {"weights": None} if is_random else None
    )


def run(arguments):
    """Fine-tunes; returns 130 or 143 if a signal stopped it."""
    chosen = settings(arguments)
    from keras_vit.training.run.finetuning import FINETUNE

    return training_arguments.start(FINETUNE, chosen, arguments)
