"""Devices of training: strategies, precision, batch splits and the data of each worker."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import types
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from keras_vit.training.data import Examples, TrainingBatches, training_batches
from keras_vit.training.settings import STRATEGIES

from . import tensorflow_backend
from .data_adapter import OwnRows


def strategy(
    name: str = "auto", *, tpu: str | None = None, verbose: bool = True
) -> tf.distribute.Strategy | keras.distribution.DataParallel:
    """Returns the strategy to build model, trainer and optimizer under.

    Args:
        name: "tpu"; "mirrored", all GPUs of this machine or its logical CPUs; "multiworker",
            the machines of TF_CONFIG; "cpu"; or "auto", the first available of a TPU, the
            machines of TF_CONFIG, all GPUs, and the CPU. On JAX not "multiworker": "auto" takes
            all devices of all processes of `jax.distributed.initialize`, several CPU ones too;
            call `keras.utils.set_random_seed` in all of them before models are built.
        tpu: Name or address (grpc://...) of a TPU, or "local" on a TPU machine. By default
            TPU_NAME of the environment, then the machine's own TPU. Not on JAX.
        verbose: Whether to print the chosen strategy.

    Returns:
        A `tf.distribute.Strategy`; on one device TensorFlow's default strategy, so that Keras
        compiles with XLA where it would. On JAX a `keras.distribution.DataParallel`.

    Raises:
        ValueError: If the device is not found; the error lists what was tried.

    Example:
    >>> with strategy("auto").scope():
    ...     trainer = Trainer(keras_vit.build("ViT-B/16"))
    ...     trainer.compile(SGD(0.03), "sparse_categorical_crossentropy")
    """
    made, line = _chosen_strategy(name, tpu)
    if verbose:
        print(line)
    return made


def _chosen_strategy(name, tpu=None):
    """The strategy, and a line about it."""
    if name not in STRATEGIES:
        raise ValueError(f"The strategy must be one of {STRATEGIES}. Received: {name!r}")
    chosen, made, devices = backend_devices().choose(name, tpu)
    policy = keras.config.dtype_policy().name
    replicas = backend_devices().replicas_of(made)
    return made, f"strategy: {chosen}, {devices}; replicas: {replicas}; precision: {policy}"


def backend_devices() -> types.ModuleType:
    """Returns the module about the devices of Keras's backend; both have the same functions."""
    if keras.backend.backend() == "jax":
        from . import jax_backend

        return jax_backend
    return tensorflow_backend


@dataclasses.dataclass(frozen=True)
class BatchSplit:
    """The split of a step's examples into micro-batches and replicas.

    Args:
        batch_size: Examples of a step.
        gradient_accumulation_steps: Micro-batches of a step.
        replicas: Devices that split a micro-batch.
    """

    batch_size: int
    gradient_accumulation_steps: int
    replicas: int

    @property
    def micro_batch_size(self) -> int:
        """Examples of a batch of the data; `gradient_accumulation_steps` of them are a step."""
        return self.batch_size // self.gradient_accumulation_steps

    @property
    def per_replica(self) -> int:
        """Examples that a device holds at a time."""
        return self.micro_batch_size // self.replicas

    def __str__(self):
        return (
            f"batch {self.batch_size} = {self.gradient_accumulation_steps} micro-batches x "
            f"{self.replicas} replicas x {self.per_replica} examples"
        )


def split_batch(
    batch_size: int,
    *,
    replicas: int = 1,
    gradient_accumulation_steps: int | None = None,
    most_per_replica: int | None = None,
) -> BatchSplit:
    """Returns an even split of a batch over replicas, for static shapes.

    Args:
        batch_size: Examples of an optimizer step, over all replicas.
        replicas: `strategy.num_replicas_in_sync`.
        gradient_accumulation_steps: Micro-batches of a step; by default the fewest with which a
            replica holds at most `most_per_replica` examples.
        most_per_replica: Largest number of examples on a device; None for no limit.

    Returns:
        A `BatchSplit`.

    Raises:
        ValueError: If the batch cannot be split evenly; the error has the nearest sizes
            that can.

    Example:
    >>> print(split_batch(512, replicas=4, most_per_replica=32))
    batch 512 = 4 micro-batches x 4 replicas x 32 examples
    """
    if gradient_accumulation_steps is None:
        each = math.ceil(batch_size / replicas)
        gradient_accumulation_steps = 1
        while most_per_replica and (
            math.ceil(each / gradient_accumulation_steps) > most_per_replica
            or (each % gradient_accumulation_steps and gradient_accumulation_steps < each)
        ):
            gradient_accumulation_steps += 1
    parts = replicas * gradient_accumulation_steps
    if batch_size < 1 or batch_size % parts:
        below = max(batch_size // parts, 1) * parts
        raise ValueError(
            "The batch must be split evenly over the replicas and micro-batches; nearest: "
            f"{below} and {below + parts}. Received: batch_size={batch_size}, "
            f"replicas={replicas}, gradient_accumulation_steps={gradient_accumulation_steps}"
        )
    return BatchSplit(batch_size, gradient_accumulation_steps, replicas)


class Place:
    """The devices of a run: a strategy's, or the backend's default device.

    Args:
        name: A name for `strategy`, or None for the default device.
        log: Receives a line about the strategy.

    Raises:
        ValueError: If the device is not found.
    """

    def __init__(self, name: str | None = None, log: Callable[[str], None] = print):
        devices = backend_devices()
        is_alone = devices.worker_of(None)[1] == 1
        self.strategy = None
        if name is not None or not is_alone:
            self.strategy, line = _chosen_strategy(name or "auto")
            log(line)
        self.replicas = 1 if self.strategy is None else devices.replicas_of(self.strategy)
        self.worker, self.workers = devices.worker_of(self.strategy)

    def scope(self) -> contextlib.AbstractContextManager:
        """Returns the scope to build model, trainer and optimizer in."""
        return contextlib.nullcontext() if self.strategy is None else self.strategy.scope()

    def batches(self, examples: Examples, given: TrainingBatches):
        """Returns `training_batches` for `fit`, on each of several workers its own part.

        A worker decodes its own part alone. With mixup or CutMix, which mix images of the
        whole batch, each worker decodes all of it. The workers are TensorFlow's, or processes of
        JAX.

        Args:
            examples: The images.
            given: The batches of a step, over all replicas; `micro_batches` of them are a step.
        """
        is_shared = self.workers > 1 and not given.mixes
        if is_shared:
            given = dataclasses.replace(given, shard=(self.worker, self.workers))
        made = training_batches(examples, given)
        if not is_shared or self.strategy is None:
            return made
        if keras.backend.backend() == "jax":
            return OwnRows(made)
        local = made.rebatch(given.batch_size // (given.micro_batches * self.replicas))
        return self.strategy.distribute_datasets_from_function(lambda _: local)

    def from_first(self, compute: Callable[[], np.ndarray], count: int) -> np.ndarray:
        """Returns what the first of several workers computes, in all of them.

        Args:
            compute: Returns numbers below 2**31, int64 `(count,)`; called by the first alone.
            count: How many numbers.
        """
        if self.workers == 1:
            return compute()
        own = compute() if self.worker == 0 else np.zeros(count, "int64")
        return backend_devices().from_first(self.strategy, own)

    def leave(self) -> None:
        """Waits for the other workers, for which a process that exits early is an error."""
        if self.strategy is not None and self.workers > 1:
            backend_devices().leave(self.strategy)
