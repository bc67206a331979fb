"""The machine of a run: its precision, the micro-batches that fit its memory, its kernels."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping

import keras

from keras_vit import keras_private
from keras_vit.configs import ModelConfig, ViTConfig
from keras_vit.description import Description
from keras_vit.description.run_record import Fact, RunRecord
from keras_vit.layers.fused_attention import compute_capability, fused_attention
from keras_vit.training.evaluation.results import versions
from keras_vit.training.settings import AUTO, Settings
from keras_vit.training.trainer.devices import backend_devices, split_batch
from keras_vit.utils.fields import required
from keras_vit.utils.quiet_tensorflow import ONEDNN, ONEDNN_VARIABLE, has_turned_on_onednn

# Bytes kept for the backward pass for each output element of a convolution or matrix product:
# itself, the values that norm, GELU, softmax and residual keep for it, and its gradients.
BYTES_PER_ACTIVATION = 12
# The same with attention in one kernel and GELU computed again, in half precision.
BYTES_BESIDE_KERNEL = 4
# Weights, gradients and momentum, and temporary copies during the update.
BYTES_PER_PARAMETER = 20
# Fraction of the free memory; the rest is for the data and other processes.
USABLE_FRACTION = 0.6


@dataclasses.dataclass(frozen=True)
class Machine:
    """What a run may use.

    Args:
        replicas: Devices that split a micro-batch evenly.
        memory: Bytes for each of them. A GPU has its own, the logical CPU devices share it.
        has_half: Whether "auto" is half precision.
    """

    replicas: int
    memory: int
    has_half: bool

    @classmethod
    def of(cls, settings: Settings, replicas: int = 1) -> Machine:
        """Returns what a run with these settings may use now."""
        devices = backend_devices()
        is_shared = devices.device_memory() is None
        is_open = settings.precision == AUTO and settings.strategy not in ("cpu", "tpu")
        memory = free_memory() // (replicas if is_shared else 1)
        return cls(replicas, memory, is_open and devices.has_bfloat16())


def free_memory() -> int:
    """Returns the free bytes of the first GPU, or of this machine if it has none."""
    if (memory := backend_devices().device_memory()) is not None:
        return memory
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # What needs no swapping.
            return 1024 * int(re.findall(r"MemAvailable:\s*(\d+) kB", file.read())[0])
    except (OSError, IndexError):  # Not Linux.
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def choose_precision(settings: Settings, machine: Machine) -> Settings:
    """Returns settings with the dtype policy that "auto" stands for on a machine."""
    if settings.precision != AUTO:
        return settings
    name = "mixed_bfloat16" if machine.has_half else "float32"
    return dataclasses.replace(settings, precision=name)


def choose_accumulation(
    settings: Settings, config: ModelConfig, available: int, replicas: int = 1
) -> Settings:
    """Returns settings with the fewest micro-batches that the memory allows.

    Args:
        settings: Settings of the run. If `accumulate` is set, it stays.
        config: The model's config.
        available: Free bytes of each replica.
        replicas: Devices that split a micro-batch evenly.

    Raises:
        ValueError: If the batch cannot be split evenly over the replicas.
    """
    split_batch(
        settings.batch_size, replicas=replicas, gradient_accumulation_steps=settings.accumulate or 1
    )
    if settings.accumulate is not None:
        return settings
    for accumulate in range(1, settings.batch_size // replicas + 1):
        if settings.batch_size % (accumulate * replicas):
            continue
        images = settings.batch_size // (accumulate * replicas)
        if step_memory(settings, config, images) <= USABLE_FRACTION * available:
            break
    return dataclasses.replace(settings, accumulate=accumulate)


def step_memory(settings: Settings, config: ModelConfig, num_images: int) -> int:
    """Returns an estimate of the bytes of a step with a number of images at once."""
    cost = _cost(settings, config)
    activations: float = cost.activations
    element = BYTES_PER_ACTIVATION / (1 if settings.precision == "float32" else 2)
    kernel = attention_kernel(settings, config)
    if isinstance(config, ViTConfig) and kernel:  # Logits and probabilities are not kept.
        activations -= config.depth * config.num_heads * (cost.sequence_length or 0) ** 2
        element = BYTES_BESIDE_KERNEL
    if settings.remat:
        # Only the inputs of the blocks are kept, and the activations of one block at a time.
        activations *= 2 / max(getattr(config, "depth", 1), 1)
    return round(BYTES_PER_PARAMETER * cost.parameters + element * activations * num_images)


def _cost(settings, config):
    """What the model costs at the image size of resolved settings."""
    size = required(settings.image_size, "image_size")
    return Description(config=config, input_shape=(*size, 3), classes=1000)


def attention_kernel(settings: Settings, config: ModelConfig) -> str | None:
    """Returns the name of the kernel that computes a model's attention; None for the plain path."""
    if keras.backend.backend() != "jax" or settings.precision == "float32":
        return None
    if not isinstance(config, ViTConfig) or config.position_embedding == "relative":
        return None
    length = _cost(settings, config).sequence_length
    tokens = keras.KerasTensor((1, length, config.width), settings.precision.removeprefix("mixed_"))
    return None if fused_attention(tokens, config.num_heads) is None else "cuDNN's kernel"


@contextlib.contextmanager
def attention_as_it_began(unfinished: RunRecord) -> Iterator[None]:
    """Keeps the plain path of attention, inside a `with` block, for a run that began with it.

    Args:
        unfinished: The record of the run that goes on; empty for a new one.
    """
    enabled = keras.config.is_flash_attention_enabled() is not False  # None stands for enabled.
    plain = bool(unfinished.job) and "attention" not in unfinished.facts
    if plain:
        keras.config.disable_flash_attention()
    try:
        yield
    finally:
        if plain and enabled:
            keras.config.enable_flash_attention()


def facts_of_computation(settings: Settings, config: ModelConfig) -> dict[str, Fact]:
    """Returns how a run computes on this machine, where that is a choice."""
    facts, kernel = {}, attention_kernel(settings, config)
    if keras.backend.backend() == "tensorflow" and has_turned_on_onednn():
        source = "this command: TensorFlow leaves it off on this processor, where it is faster"
        facts[ONEDNN] = Fact("on", source)
    if kernel is not None:
        facts["attention"] = Fact(kernel, "JAX on this GPU")
    if keras.backend.backend() == "jax" and compute_capability() is not None:
        source = "a process chooses the kernels of a GPU anew, and some sum in any order"
        facts["resumes"] = Fact("to rounding, not bit for bit", source)
    return facts


def versions_of_run() -> dict[str, str]:
    """Returns the versions of packages, and which kernels compute on the CPU: the bits differ."""
    if keras.backend.backend() != "tensorflow":
        return versions()
    return {**versions(), ONEDNN: "on" if keras_private.has_onednn() else "off"}


def changes_of_versions(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Returns lines on the versions that a resumed run does not have any more.

    Args:
        before: The `versions_of_run` that it began with.
        now: The present ones.
    """
    changed, lines = {name for name, _ in now.items() ^ before.items()}, []
    if ONEDNN not in before:  # As older runs.
        changed.discard(ONEDNN)
    if ONEDNN in changed:
        lines.append(
            f"The run began with oneDNN {before[ONEDNN]}, so its numbers differ in the last "
            "bits from a run without a stop. TensorFlow asks for it as it is imported: set "
            f"{ONEDNN_VARIABLE}={int(before[ONEDNN] == 'on')} before"
        )
    if changed - {ONEDNN}:
        lines.append(
            "The run goes on with other packages than it began with, so its numbers may differ "
            "from a run without a stop; recipe.json has the versions_before"
        )
    return lines


@contextlib.contextmanager
def dtype_policy(name: str) -> Iterator[None]:
    """Sets Keras's dtype policy inside a `with` block.

    Args:
        name: "float32", "mixed_bfloat16" or "mixed_float16".
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
