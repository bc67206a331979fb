"""Devices of training on JAX: `keras.distribution.DataParallel`, GPUs and TPU cores."""

from __future__ import annotations

import os
from typing import Any

import jax
import keras
import numpy as np

from .data_adapter import pad_rows


def choose(name: str, tpu: str | None = None) -> tuple[str, keras.distribution.DataParallel, str]:
    """Returns what "auto" stands for, the distribution, and its human-readable devices.

    JAX finds the devices of the machine itself: TPU cores, else GPUs, else CPU devices.

    Args:
        name: A name of `STRATEGIES`.
        tpu: Must be None: JAX uses the TPU of the machine that it runs on.

    Raises:
        ValueError: If JAX has no such device, or the name is one of TensorFlow's.
    """
    kind = jax.default_backend()
    count = jax.device_count()
    if name == "multiworker" or tpu is not None or jax.process_count() > 1:
        received = f"strategy={name!r}, tpu={tpu!r}, {jax.process_count()} processes"
        raise ValueError(
            "On the JAX backend a run uses the devices of one machine: the strategy must be auto, "
            "cpu, mirrored or tpu. Several machines, or a TPU by name, need "
            f"KERAS_BACKEND=tensorflow. Received: {received}"
        )
    if name == "auto":
        name = {"tpu": "tpu", "cpu": "mirrored" if count > 1 else "cpu"}.get(kind, "mirrored")
    if name == "tpu" and kind != "tpu":
        raise ValueError(
            'strategy "tpu" needs a TPU, and the JAX that is built for TPUs. '
            f"Received: {count} {kind.upper()} of JAX"
        )
    if name == "mirrored" and kind == "cpu" and count == 1:
        raise ValueError(
            'strategy "mirrored" needs GPUs, or several CPU devices (XLA_FLAGS='
            '--xla_force_host_platform_device_count=2); on one CPU take "cpu". '
            "Received: no GPU, 1 CPU device"
        )
    devices = keras.distribution.list_devices("cpu" if name == "cpu" else None)
    if name == "cpu":
        return name, keras.distribution.DataParallel(devices=devices[:1]), f"{os.cpu_count()} cores"
    words = f"{count} {kind.upper()}{'s' if count > 1 else ''}"
    return name, keras.distribution.DataParallel(devices=devices), words


def replicas_of(distribution: keras.distribution.DataParallel) -> int:
    """Returns the devices that share a batch."""
    return distribution.num_model_replicas


def worker_of(distribution: Any) -> tuple[int, int]:
    """Returns the number of this process, from 0, and how many processes there are."""
    return jax.process_index(), jax.process_count()


def is_chief() -> bool:
    """Returns whether this process writes files: it is the only one, or JAX's first."""
    return jax.process_index() == 0


def predictor_of(trainer: Any) -> Any:
    """Returns the model, or on several devices an object that predicts on all of them."""
    distribution = trainer.strategy
    if distribution is None or replicas_of(distribution) == 1:
        return trainer.model
    return _SpreadPredictor(trainer.model, distribution)


class _SpreadPredictor:
    """Prediction of a batch in equal parts, one on each device.

    Keras's `predict_on_batch` computes the whole batch on every device.
    """

    def __init__(self, model, distribution):
        self.model = model
        self.distribution = distribution

    def predict_on_batch(self, images):
        """Returns the outputs as an array, in order."""
        images = np.asarray(images)
        padded = pad_rows(images, replicas_of(self.distribution))
        layout = self.distribution.get_data_layout(padded.shape)
        with self.distribution.scope():
            spread = keras.distribution.distribute_tensor(padded, layout)
            return np.asarray(self.model.predict_on_batch(spread))[: len(images)]


def device_memory() -> int | None:
    """Returns the bytes that JAX has left on the first GPU or TPU core; None on a CPU.

    JAX takes most of the memory of a GPU when it starts, so the driver reports little as free.
    """
    memory = jax.local_devices()[0].memory_stats()
    return memory and memory["bytes_limit"] - memory["bytes_in_use"]


def is_out_of_memory(error: Exception) -> bool:
    """Returns whether a device had no memory left for an operation."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
