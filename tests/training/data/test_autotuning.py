"""Pipelines without autotuning: they end at once and use every thread."""

import time

import tensorflow as tf

from keras_vit.training.data.examples import without_autotune

RUNNING, WAITING = 0.17, 0.05  # Seconds; TensorFlow's thread wakes 0.15 and 0.31 after the start.


def seconds_to_end(dataset):
    """Returns how long letting go of an iterator takes, after it has run for a while."""
    iterator = iter(dataset)
    end = time.monotonic() + RUNNING
    while time.monotonic() < end:
        next(iterator)
    began = time.monotonic()
    del iterator
    return time.monotonic() - began


def counting():
    numbers = tf.data.Dataset.range(2**60)
    return numbers.map(lambda number: number + 1, num_parallel_calls=tf.data.AUTOTUNE)


def test_no_iterator_waits_for_a_thread_that_sleeps():
    # Except for a moment in which others have the cores.
    assert sum(seconds_to_end(without_autotune(counting())) > WAITING for _ in range(12)) <= 2


def test_a_tuned_iterator_waits():
    # Two of three times. If it never waits, TensorFlow is mended, and most of
    # `without_autotune` can go.
    assert any(seconds_to_end(counting()) > WAITING for _ in range(24))
