"""Memory of a training step, estimated from the model's config."""

from __future__ import annotations

import dataclasses
import os
import subprocess

import tensorflow as tf

from keras_vit.models.counting import describe
from keras_vit.training.fields import required
from keras_vit.training.machine import available_memory
from keras_vit.training.settings import Settings
from keras_vit.training.trainer.devices import split_batch

# Bytes kept for the backward pass for each output element of a convolution or matrix product:
# itself, the values that norm, GELU, softmax and residual keep for it, and its gradients.
BYTES_PER_ACTIVATION = 12
# Weights, gradients and momentum, and temporary copies during the update.
BYTES_PER_PARAMETER = 20
# Fraction of the free memory; the rest is for the data and other processes.
USABLE_FRACTION = 0.6


def step_memory(settings: Settings, config, num_images: int) -> int:
    """Returns an estimate of the bytes of a step with a number of images at once."""
    cost = describe(config, input_shape=(*required(settings.image_size, "image_size"), 3))
    activations: float = cost.activations
    if settings.remat:
        # Only the inputs of the blocks are kept, and the activations of one block at a time.
        activations *= 2 / max(getattr(config, "depth", 1), 1)
    element = BYTES_PER_ACTIVATION / (1 if settings.precision == "float32" else 2)
    return round(BYTES_PER_PARAMETER * cost.parameters + element * activations * num_images)


def choose_accumulation(
    settings: Settings, config, available: int | None = None, replicas: int = 1
) -> Settings:
    """Returns settings with the fewest micro-batches that the memory allows.

    Args:
        settings: Settings of the run. If `accumulate` is set, it stays.
        config: The model's config.
        available: Bytes; by default the free memory of this machine.
        replicas: Devices that split a micro-batch evenly. Each GPU has this memory; the
            logical CPU devices share it.

    Raises:
        ValueError: If the batch cannot be split evenly over the replicas.
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
        if sharing * step_memory(settings, config, images) <= USABLE_FRACTION * available:
            break
    return dataclasses.replace(settings, accumulate=accumulate)


def free_memory() -> int:
    """Returns the free bytes of the first GPU, or of this machine if it has none."""
    if tf.config.list_physical_devices("GPU"):
        query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
        try:
            answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
            return int(answer.split()[0]) * 2**20
        except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
            return 8 * 2**30  # Not an NVIDIA GPU, or not visible: a usual size.
    try:
        return available_memory()
    except OSError:  # Not Linux.
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
