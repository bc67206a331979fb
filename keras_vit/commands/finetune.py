"""`keras-vit finetune`: a pre-trained model on one's own images, by the paper's recipe."""

from keras_vit.commands import training_arguments
from keras_vit.training.settings import FineTuning


def add_arguments(parser):
    """Declares the command's arguments."""
    training_arguments.add_job(parser, FineTuning)


def run(arguments):
    """Fine-tunes; returns 130 or 143 if a signal stopped it."""
    settings = training_arguments.settings(arguments, FineTuning)
    from keras_vit.training.run.job import FineTune

    return training_arguments.run_job(FineTune, settings, arguments)
