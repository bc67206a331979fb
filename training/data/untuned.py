"""Pipelines whose parallelism TensorFlow does not tune while they run."""

from __future__ import annotations

import tensorflow as tf

# More than any machine has: as many calls at a time as it has cores, where 16 are the default.
_PARALLEL_CALLS = 1024


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the same data set, whose iterators end at once and on all cores from the start.

    TensorFlow (2.21) tunes a pipeline in a thread of its own, which may miss that it should
    stop: an iterator that is let go then waits until that thread next wakes by itself, about
    as long as it has run already and up to a minute. The thread also measures every element,
    which costs more than it gains where elements are small and all cores are wanted anyway.

    Args:
        dataset: What is iterated over; for all that it is made of too.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    options.autotune.initial_parallelism = _PARALLEL_CALLS
    return dataset.with_options(options)
