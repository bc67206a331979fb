"""`keras-vit pretrain`: a model from random weights, by the paper's recipe."""

import argparse

from keras_vit.commands import training_arguments
from keras_vit.training.masked_patch_settings import OBJECTIVE, TARGETS, MaskedPatches
from keras_vit.training.settings import PreTraining

CLASSES = "classes"  # The objective with labels.


def add_arguments(parser):
    """Declares the command's arguments."""
    training_arguments.add(parser, PreTraining)
    objective = parser.add_argument_group("objective")
    objective.add_argument(
        "--objective",
        choices=(CLASSES, OBJECTIVE),
        default=CLASSES,
        help="predict classes; or without any labels the colours of corrupted patches, which "
        "gives weights to fine-tune (default: %(default)s)",
    )
    objective.add_argument(
        "--target",
        choices=TARGETS,
        default=argparse.SUPPRESS,
        help=f"what {OBJECTIVE} predicts of a patch: its mean colour, the colours of its 4x4 "
        f"version, or all its pixels (default: {MaskedPatches.target})",
    )
    objective.add_argument(
        "--corruption",
        type=float,
        default=argparse.SUPPRESS,
        metavar="SHARE",
        help=f"of the patches, for {OBJECTIVE} (default: {MaskedPatches.corruption})",
    )


def run(arguments):
    """Pre-trains; returns 130 or 143 if a signal stopped it."""
    if arguments.objective == OBJECTIVE:
        settings = training_arguments.settings(arguments, MaskedPatches)
        from keras_vit.training.paper.masked_patches import MASKED_PATCHES

        return training_arguments.start(MASKED_PATCHES, settings, arguments)
    for name in ("target", "corruption"):
        if hasattr(arguments, name):
            raise ValueError(
                f"--{name} needs --objective {OBJECTIVE}. "
                f"Received: --objective {arguments.objective}"
            )
    settings = training_arguments.settings(arguments, PreTraining)
    from keras_vit.training.run.pretraining import PRETRAIN

    return training_arguments.start(PRETRAIN, settings, arguments)
