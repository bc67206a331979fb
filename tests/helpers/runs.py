"""Plans of training runs, for all tests."""

from keras_vit.training.data.spec import data_spec
from keras_vit.training.run.job import Job
from keras_vit.training.run.run_options import RunOptions


def silent(text):
    """Prints nothing."""


def job_of(data, output, settings, **options):
    """Returns the job that `finetune` would run.

    Args:
        data: As for `finetune`.
        output: The folder to write.
        settings: The settings.
        **options: Fields of `RunOptions`.
    """
    return Job(data_spec(data), RunOptions(output, **{"log": silent, **options}), settings)


def plan_of(data, output, settings):
    """Returns the plan of the job that `finetune` would run."""
    return job_of(data, output, settings).plan()
