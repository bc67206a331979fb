"""How many images a training step can hold, estimated from the model's config."""

from __future__ import annotations

import dataclasses
import os

import tensorflow as tf

from keras_vit.models.counting import describe
from keras_vit.training.fields import required
from keras_vit.training.settings import Settings
from keras_vit.training.trainer.devices import split_batch

# Bytes kept for the backward pass for each element that a convolution or product gives:
# itself, what norm, GELU, softmax and residual keep beside it, and the gradients in flight.
BYTES_PER_ACTIVATION = 12
# Weights, gradients, momentum, and as much again while a step is taken.
BYTES_PER_PARAMETER = 20
# Of the memory that is free; the rest is for the data and for others.
SHARE = 0.6


def step_memory(settings: Settings, config, num_images: int) -> int:
    """Returns an estimate of the bytes that a step with some images needs."""
    cost = describe(config, input_shape=(*required(settings.image_size, "image_size"), 3))
    activations: float = cost.activations
    if settings.remat:
        # Inputs of the blocks, and one block's activations at a time.
        activations *= 2 / max(getattr(config, "depth", 1), 1)
    element = BYTES_PER_ACTIVATION / (1 if settings.precision == "float32" else 2)
    return round(BYTES_PER_PARAMETER * cost.parameters + element * activations * num_images)


def choose_accumulation(
    settings: Settings, config, available: int | None = None, replicas: int = 1
) -> Settings:
    """Returns settings with the fewest micro-batches that the memory allows.

    Args:
        settings: Those of the run; an `accumulate` that is set stays.
        config: The model's.
        available: Bytes; what is free on this machine by default.
        replicas: Devices that share a micro-batch evenly, each with this memory but for the
            CPU's, which have it together.

    Raises:
        ValueError: If the replicas cannot share the batch evenly.
    """
    split_batch(settings.batch_size, replicas=replicas, accumulation_steps=settings.accumulate or 1)
    if settings.accumulate is not None:
        return settings
    available = free_memory() if available is None else available
    sharing = 1 if tf.config.list_physical_devices("GPU") else replicas
    for accumulate in range(1, settings.batch_size // replicas + 1):
        if settings.batch_size % (accumulate * replicas):
            continue
        images = settings.batch_size // (accumulate * replicas)
        if sharing * step_memory(settings, config, images) <= SHARE * available:
            break
    return dataclasses.replace(settings, accumulate=accumulate)


def free_memory() -> int:
    """Returns the bytes that are free on the first GPU, or on this machine without one."""
    if tf.config.list_physical_devices("GPU"):
        import subprocess

        query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
        try:
            answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
            return int(answer.split()[0]) * 2**20
        except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
            return 8 * 2**30  # Not NVIDIA's, or hidden: a usual size.
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            sizes = dict(line.split(":", 1) for line in file)
        return int(sizes["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
