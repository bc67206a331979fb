"""`keras-vit pretrain`: a model from random weights, by the paper's recipe."""

import dataclasses

from keras_vit.commands import training_arguments
from keras_vit.training.settings import OBJECTIVE, MaskedPatches, PreTraining

CLASSES = "classes"  # The objective with labels.
WITH_CLASSES = [field.name for field in dataclasses.fields(PreTraining)]


def add_arguments(parser):
    """Declares the command's arguments."""
    training_arguments.add_job(parser, PreTraining)
    objective = parser.add_argument_group("objective")
    objective.add_argument(
        "--objective",
        choices=(CLASSES, OBJECTIVE),
        default=CLASSES,
        help="predict classes; or without any labels the colours of corrupted patches, which "
        "gives weights to fine-tune (default: %(default)s)",
    )
    training_arguments.add_fields(
        parser.add_argument_group(f"--objective {OBJECTIVE}"), MaskedPatches, without=WITH_CLASSES
    )


def run(arguments):
    """Pre-trains; returns 130 or 143 if a signal stopped it."""
    if arguments.objective == OBJECTIVE:
        settings = training_arguments.settings(arguments, MaskedPatches)
        from keras_vit.training.paper.masked_patches import PretrainMaskedPatches

        return training_arguments.run_job(PretrainMaskedPatches, settings, arguments)
    for name in training_arguments.given_fields(arguments, MaskedPatches):
        if name not in WITH_CLASSES:
            raise ValueError(
                f"--{name} needs --objective {OBJECTIVE}. "
                f"Received: --objective {arguments.objective}"
            )
    settings = training_arguments.settings(arguments, PreTraining)
    from keras_vit.training.run.job import Pretrain

    return training_arguments.run_job(Pretrain, settings, arguments)
