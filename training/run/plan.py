"""The plan of a run before the model is built, its memory and its expected time."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit.description import Description, Labels, describe
from keras_vit.description.class_labels import MULTILABEL
from keras_vit.description.recipe import Fact, Recipe
from keras_vit.images.samples import describe_samples, sample_count, spread
from keras_vit.images.transcoding import decode_file
from keras_vit.layers.fused_attention import compute_capability, fused_attention
from keras_vit.models.build import build
from keras_vit.opening import OpenedModel
from keras_vit.prediction import predict_batch
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import Examples, Source
from keras_vit.training.data.sources import describe_skipped
from keras_vit.training.settings import AUTO, Settings
from keras_vit.training.trainer.devices import backend_devices, split_batch
from keras_vit.utils.fields import field_info, required
from keras_vit.utils.files import REPORT
from keras_vit.utils.report import align_columns

from .distillation import Teacher
from .transfer import dtype_policy, fact_lines

# Bytes kept for the backward pass for each output element of a convolution or matrix product:
# itself, the values that norm, GELU, softmax and residual keep for it, and its gradients.
BYTES_PER_ACTIVATION = 12
# The same with attention in one kernel and GELU computed again, in half precision.
BYTES_BESIDE_KERNEL = 4
# Weights, gradients and momentum, and temporary copies during the update.
BYTES_PER_PARAMETER = 20
# Fraction of the free memory; the rest is for the data and other processes.
USABLE_FRACTION = 0.6

_DEPTH = 2  # Blocks of a model that shows the rate of this machine,
_OPERATIONS = 3e10  # and the operations of its answers.
# Operations of a step in units of an answer's: the backward pass takes two, for the gradients of
# activations and of weights.
_PASSES = {"all": 3, "lora": 2, "head": 1}
NUM_SAMPLES = 8
# The parts that samples are taken from, the first one that has images.
_SAMPLED = {
    "test": "of the test part",
    "validation": "of the validation part",
    "calibration": "of the calibration part",
    "train": "that are trained on",
}


@dataclasses.dataclass(frozen=True)
class ChosenSamples:
    """The photos that travel with a classifier.

    Args:
        line: The sentence that says so, for the plan.
        examples: The chosen images, or None.
        pictures: The images that `report.html` shows, at most, as augmented and again of the
            errors.
    """

    line: str
    examples: Examples | None = None
    pictures: int = 0

    def images(self) -> Iterator[np.ndarray]:
        """Yields their pixels, uint8 `(H, W, 3)`."""
        if self.examples is not None:
            for encoded, _ in self.examples.encoded():
                yield decode_file(encoded)


@dataclasses.dataclass
class TrainingPlan:
    """A run before its model is built.

    Args:
        opened: The weights to start from, or random ones.
        description: The model to train.
        head_rows: For each class its number in the weights, or None for a class that is new
            there; None for a new head.
        source: The images in splits: "train", and if there are any, "validation", by which
            the best weights are chosen, "calibration", which is held out, and "test".
        settings: Resolved settings.
        recipe: The content of `recipe.json`, which grows during the run.
        class_weights: The weight of each class in the loss; None for equal ones.
        teacher: The teacher that the model learns from, or None.
        samples: The photos that travel with the classifier; None without classes.
        fingerprints: The `read_fingerprints` of the images, once they are read.
        numbers: Their `job.image_numbers`.
    """

    opened: OpenedModel
    description: Description
    head_rows: tuple[int | None, ...] | None
    source: Source
    settings: Any
    recipe: Recipe
    class_weights: Sequence[float] | None = None
    teacher: Teacher | None = None
    samples: ChosenSamples | None = None
    fingerprints: Mapping[str, np.ndarray | None] = dataclasses.field(default_factory=dict)
    numbers: np.ndarray = dataclasses.field(default_factory=lambda: np.array([], "uint64"))

    @property
    def has_classes(self) -> bool:
        """Whether the model becomes a classifier; False for masked patches."""
        return bool(self.source.class_names)

    @property
    def labels(self) -> Labels:
        """The classes of the data."""
        return Labels(self.source.class_names or None, self.source.task)

    @property
    def config(self) -> Any:
        """The architecture to train."""
        return self.description.config

    @property
    def preprocessing(self) -> Preprocessing:
        """How an image becomes the model's input in evaluation."""
        return required(self.description.preprocessing, "preprocessing")

    @property
    def validation(self) -> Examples | None:
        """The images to choose the best weights by."""
        return self.source.splits.get("validation")

    @property
    def batches(self) -> dict[str, Any]:
        """Arguments of `training_batches`, without the images and the first step."""
        names = ("image_size", "batch_size", "seed", "augmentation", "flip", "mixup", "resize")
        return {
            **{name: getattr(self.settings, name) for name in (*names, "layers")},
            "micro_batches": self.settings.accumulate,
            "value_range": self.preprocessing.value_range,
            "num_classes": len(self.source.class_names),
        }


def describe_plan(plan: TrainingPlan, lines: Mapping[str, Any] | None = None) -> str:
    """Returns the resolved recipe, human-readable.

    Args:
        plan: The plan.
        lines: More lines, by name; a name of a setting replaces its line.
    """
    recipe, settings, images = plan.recipe, plan.settings, plan.recipe.images
    seen = settings.steps * settings.batch_size
    height, width = required(settings.image_size, "image_size")
    micro_batches = f" ({settings.accumulate} micro-batches)" if settings.accumulate > 1 else ""
    line = "the defaults"
    if settings.recipe is not None:
        scaled = f", scaled by {settings.scale:g}" if settings.scale != 1 else ""
        line = f"{settings.recipe} ({settings.recipe_source}){scaled}"
    memory = step_memory(settings, plan.config, settings.micro_batch_size)
    skipped = describe_skipped(plan.source.skipped, names=3)
    notes = plan.description.notes
    table = {
        "model": f"{recipe.model} at {height}x{width}, {recipe.classes or 'no'} classes",
        **({"classes": plan.source.class_line} if recipe.classes else {}),
        **({"task": "multi-label"} if plan.source.task == MULTILABEL else {}),
        "recipe": line,
        "weights": getattr(settings, "weights", None) or "random",
        **fact_lines(recipe.facts),
        **({"notes": "; ".join(notes)} if notes else {}),
        "data": f"{recipe.data_name}: {images['train']} images to train, "
        f"{images['validation']} to validate, "
        + (f"{images['calibration']} to calibrate, " if images["calibration"] else "")
        + f"{images['test']} to test"
        + (f", {images['skipped']} skipped" if images["skipped"] else ""),
        "steps": f"{settings.steps} of {settings.batch_size} images{micro_batches}: "
        f"{seen:,} images seen, {seen / max(images['train'], 1):.1f} epochs",
        "memory": f"about {memory / 2**30:.2g} GiB for {settings.micro_batch_size} images at once",
    }
    shown = {field.name: field_info(field).line for field in dataclasses.fields(settings)}
    for name, value in settings.in_use().items():
        if name not in table and shown[name] is None:
            table[name] = value
    if plan.samples is not None:
        table["samples"], count = plan.samples.line, plan.samples.pictures or "no"
        table[REPORT] = f"curves, numbers, {count} augmented images and up to {count} errors, small"
    if plan.source.notes:
        table["images"] = "; ".join(plan.source.notes)
    if skipped:
        table["skipped"] = "; ".join(line.removeprefix("skipped ") for line in skipped)
    table |= lines or {}
    return align_columns([(name, str(value)) for name, value in table.items()])


def step_memory(settings: Settings, config, num_images: int) -> int:
    """Returns an estimate of the bytes of a step with a number of images at once."""
    cost = describe(config, input_shape=(*required(settings.image_size, "image_size"), 3))
    activations: float = cost.activations
    element = BYTES_PER_ACTIVATION / (1 if settings.precision == "float32" else 2)
    if attention_kernel(settings, config) is not None:  # Logits and probabilities are not kept.
        activations -= config.depth * config.num_heads * required(cost.sequence_length, "N") ** 2
        element = BYTES_BESIDE_KERNEL
    if settings.remat:
        # Only the inputs of the blocks are kept, and the activations of one block at a time.
        activations *= 2 / max(getattr(config, "depth", 1), 1)
    return round(BYTES_PER_PARAMETER * cost.parameters + element * activations * num_images)


def choose_precision(settings: Settings) -> Settings:
    """Returns settings with the dtype policy that "auto" stands for on this machine."""
    if settings.precision != AUTO:
        return settings
    has_half = settings.strategy not in ("cpu", "tpu") and backend_devices().has_bfloat16()
    return dataclasses.replace(settings, precision="mixed_bfloat16" if has_half else "float32")


def attention_kernel(settings: Settings, config: Any) -> str | None:
    """Returns the name of the kernel that computes a model's attention; None for the plain path."""
    relative = getattr(config, "position_embedding", "relative") == "relative"
    if keras.backend.backend() != "jax" or settings.precision == "float32" or relative:
        return None
    shape = (*required(settings.image_size, "image_size"), 3)
    length = describe(config, input_shape=shape).sequence_length
    tokens = keras.KerasTensor((1, length, config.width), settings.precision.removeprefix("mixed_"))
    return None if fused_attention(tokens, config.num_heads) is None else "cuDNN's kernel"


@contextlib.contextmanager
def attention_as_it_began(unfinished: Recipe) -> Iterator[None]:
    """Keeps the plain path of attention, inside a `with` block, for a run that began with it.

    Args:
        unfinished: The recipe of the run that goes on; empty for a new one.
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


def facts_of_computation(settings: Settings, config: Any) -> dict[str, Fact]:
    """Returns how a run computes on this machine, where that is a choice: on a GPU of JAX."""
    facts, kernel = {}, attention_kernel(settings, config)
    if kernel is not None:
        facts["attention"] = Fact(kernel, "JAX on this GPU")
    if keras.backend.backend() == "jax" and compute_capability() is not None:
        source = "a process chooses the kernels of a GPU anew, and some sum in any order"
        facts["resumes"] = Fact("to rounding, not bit for bit", source)
    return facts


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
    sharing = replicas if backend_devices().device_memory() is None else 1
    for accumulate in range(1, settings.batch_size // replicas + 1):
        if settings.batch_size % (accumulate * replicas):
            continue
        images = settings.batch_size // (accumulate * replicas)
        if sharing * step_memory(settings, config, images) <= USABLE_FRACTION * available:
            break
    return dataclasses.replace(settings, accumulate=accumulate)


def free_memory() -> int:
    """Returns the free bytes of the first GPU, or of this machine if it has none."""
    if (memory := backend_devices().device_memory()) is not None:
        return memory
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # What needs no swapping.
            return 1024 * int(re.findall(r"MemAvailable:\s*(\d+) kB", file.read())[0])
    except (OSError, IndexError):  # Not Linux.
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def expected_time(plan: TrainingPlan) -> str:
    """Returns the expected time of a run on one device, as "about 12 min 5 s: ...".

    It is the time of the operations at the rate of the model's first blocks.

    Args:
        plan: The plan.
    """
    settings, images, config = plan.settings, plan.recipe.images, plan.config
    shape = (*required(settings.image_size, "image_size"), 3)
    validations = settings.steps // settings.evaluate_every * (2 if settings.averaging else 1)
    evaluated = images["validation"] * validations + images["test"]
    passes = _PASSES[getattr(settings, "train", "all")] + int(settings.remat)
    answers = passes * settings.steps * settings.batch_size + evaluated
    operations = answers * describe(config, input_shape=shape).flops
    rate = answer_rate(config, shape, settings)
    minutes, seconds = divmod(round(operations / rate), 60)
    hours = f"{minutes // 60} h {minutes % 60} min"
    return (
        f"about {hours if minutes >= 60 else f'{minutes} min {seconds} s'}: {operations:.2g} "
        f"operations at {rate / 1e9:.2g} GFLOP/s, measured on the model's first blocks; more for "
        "reading, compiling and augmentation"
    )


def answer_rate(config: Any, shape: tuple[int, int, int], settings: Settings) -> float:
    """Returns the operations per second of a model's answers on the first device.

    A model of at most two of its blocks, with random weights, answers a few images.

    Args:
        config: The model's config.
        shape: `(H, W, 3)`.
        settings: Resolved settings.
    """
    if getattr(config, "depth", 0) > _DEPTH:
        config = dataclasses.replace(config, depth=_DEPTH)
    flops = describe(config, input_shape=shape).flops
    with dtype_policy(settings.precision):
        model = build(config, weights=None, input_shape=shape)
    count = max(1, min(settings.micro_batch_size, round(_OPERATIONS / flops)))
    images = np.zeros((count, *shape), "float32")
    predict_batch(model, images)  # Compiles.
    times = [time.perf_counter()]
    for _ in range(3):
        predict_batch(model, images)
        times.append(time.perf_counter())
    return count * flops / np.diff(times).min()


def choose_samples(
    samples: str | None, source: Source, image_size: tuple[int, int]
) -> ChosenSamples:
    """Returns the photos that travel with a classifier.

    By default they are test images. Images that are trained on are taken only if a number is
    asked for and no image is held out, and the line says it.

    Args:
        samples: The setting.
        source: The images in splits.
        image_size: Pixels (height, width) of the model.
    """
    where = "with the classifier and its exports"
    count = NUM_SAMPLES if samples is None else sample_count(samples)
    parts = [part for part in _SAMPLED if len(source.splits.get(part, ()))]
    if not count or (samples is None and "test" not in parts):
        missing = "; --samples takes some, for there is no test part" if count and parts else ""
        return ChosenSamples(describe_samples(0, "", image_size, where) + missing)
    examples = source.splits[parts[0]]
    chosen = examples.take(spread(len(examples), count))
    line = describe_samples(len(chosen), _SAMPLED[parts[0]], image_size, where)
    return ChosenSamples(line, chosen, count)
