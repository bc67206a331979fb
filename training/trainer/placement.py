"""Where a job runs: its devices' share of the data, of a prediction and of the writing."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit.training.data import Examples, training_batches
from keras_vit.training.data.augmentations import mixup_parameter

from .distribution import strategy
from .trainer import Trainer


class Place:
    """One device, or those of a `tf.distribute` strategy.

    Args:
        name: A name that `strategy` takes, or None for TensorFlow's own device.

    Raises:
        ValueError: If what was asked for is not there.
    """

    def __init__(self, name: str | None = None):
        self.strategy = None if name is None else strategy(name)
        self.replicas = 1 if self.strategy is None else self.strategy.num_replicas_in_sync
        self.workers, self.worker = 1, 0
        if isinstance(self.strategy, tf.distribute.MultiWorkerMirroredStrategy):
            resolver = self.strategy.cluster_resolver
            jobs = resolver.cluster_spec().as_dict()
            chiefs = len(jobs.get("chief", ()))  # It is the first worker.
            self.workers = chiefs + len(jobs.get("worker", ()))
            self.worker = resolver.task_id + (chiefs if resolver.task_type == "worker" else 0)

    def scope(self) -> contextlib.AbstractContextManager:
        """Returns the scope to build model, trainer and optimizer in."""
        return contextlib.nullcontext() if self.strategy is None else self.strategy.scope()

    def batches(self, examples: Examples, *, batch_size: int, **options: Any):
        """Returns `training_batches` for `fit`: on each of several workers its share of them.

        A worker decodes its share alone, except with mixup, which blends across all of it.

        Args:
            examples: The images.
            batch_size: Images of a batch, of all replicas together.
            **options: See `training_batches`.
        """
        mixup = mixup_parameter(options["augmentation"], options["mixup"])
        # The workers share what a service gives: each may take its own rows only.
        if (
            self.strategy is None
            or self.workers == 1
            or (mixup and not options.get("data_service"))
        ):
            return training_batches(examples, batch_size=batch_size, **options)
        share = (self.worker, self.workers)
        local = training_batches(examples, batch_size=batch_size, shard=share, **options)
        local = local.rebatch(batch_size // self.replicas)
        return self.strategy.distribute_datasets_from_function(lambda _: local)

    def leave(self) -> None:
        """Waits for the other workers, which would take one that is gone for a failure."""
        if self.strategy is not None and self.workers > 1:
            self.strategy.reduce("SUM", self.strategy.run(lambda: tf.constant(1)), axis=None)


def predictor_of(trainer: Trainer) -> Any:
    """Returns what predicts as the trainer's model does, on all devices of this process.

    Returns:
        An object with `predict_on_batch`.
    """
    strategy = trainer.distribute_strategy
    if strategy.num_replicas_in_sync == 1:
        return trainer.model
    return _ReplicaPredictor(trainer.model, strategy)


class _ReplicaPredictor:
    """Predicts each batch on the replicas of this process, each a part.

    Keras's `predict_on_batch` gives every replica the whole batch. The workers do not wait
    for each other here: each of them predicts all of the batch.
    """

    def __init__(self, model, strategy):
        self.strategy = strategy
        self.replicas = len(strategy.extended.worker_devices)
        self.predict = tf.function(
            lambda parts: strategy.run(lambda part: model(part, training=False), (parts,)),
            autograph=False,
        )

    def predict_on_batch(self, images):
        """Returns the outputs, an array, in order."""
        images = np.asarray(images)
        missing = -len(images) % self.replicas
        padded = np.concatenate([images, np.repeat(images[-1:], missing, axis=0)])
        parts = np.split(padded, self.replicas)
        given = self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group % self.replicas])
        )
        outputs = self.strategy.experimental_local_results(self.predict(given))
        return np.concatenate([np.asarray(part) for part in outputs])[: len(images)]
