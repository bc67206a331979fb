"""Devices of training: strategies, precision, batch splits and the data of each worker."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pathlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit.optional_packages import install_command
from keras_vit.training.data import Examples, training_batches
from keras_vit.training.data.augmentations import mixup_parameter
from keras_vit.training.settings import STRATEGIES

from .trainer import Trainer

PRECISIONS = {None: None, "float32": "float32", "bfloat16": "mixed_bfloat16", "auto": None}
# Device files of a machine with TPU cores.
TPU_DEVICES = ("dev/accel0", "dev/vfio/0")
# Flags of processors that multiply bfloat16 in hardware.
BFLOAT16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")


def strategy(
    name: str = "auto",
    *,
    tpu: str | None = None,
    precision: str | None = None,
    verbose: bool = True,
) -> tf.distribute.Strategy:
    """Returns the strategy to build model, trainer and optimizer under.

    Args:
        name: "tpu"; "mirrored", all GPUs of this machine or its logical CPUs; "multiworker",
            the machines of TF_CONFIG; "cpu"; or "auto", the first available of a TPU, the
            machines of TF_CONFIG, all GPUs, and the CPU.
        tpu: Name or address (grpc://...) of a TPU, or "local" on a TPU machine. By default
            TPU_NAME of the environment, then the machine's own TPU.
        precision: None does not change Keras's dtype policy. "float32"; "bfloat16", float32
            weights and bfloat16 products; "auto", bfloat16 if the hardware has it, else
            float32.
        verbose: Whether to print the chosen strategy.

    Returns:
        A `tf.distribute.Strategy`. On one device this is TensorFlow's default strategy, so
        that Keras compiles with XLA where it would.

    Raises:
        ValueError: If the device is not found, or the hardware has no bfloat16; the error
            lists what was tried.

    Example:
    >>> with strategy("auto").scope():
    ...     trainer = Trainer(keras_vit.build("ViT-B/16"))
    ...     trainer.compile(SGD(0.03), "sparse_categorical_crossentropy")
    """
    if name not in STRATEGIES:
        raise ValueError(f"The strategy must be one of {STRATEGIES}. Received: {name!r}")
    if precision not in PRECISIONS:
        raise ValueError(
            f"precision must be one of {tuple(PRECISIONS)}. Received: precision={precision!r}"
        )
    address = tpu or os.environ.get("TPU_NAME") or ("local" if _local_tpu() else None)
    chosen = _best(address) if name == "auto" else name
    if chosen == "tpu":
        made, devices = _tpu(address)
    elif chosen == "multiworker":
        made, devices = _multiworker()
    elif chosen == "mirrored":
        made, devices = _mirrored()
    else:
        made, devices = _cpu()
    if precision is not None:
        _set_precision(chosen, precision)
    if verbose:
        policy = keras.config.dtype_policy().name
        replicas = made.num_replicas_in_sync
        print(f"strategy: {chosen}, {devices}; replicas: {replicas}; precision: {policy}")
    return made


def _best(tpu_address):
    if tpu_address:
        return "tpu"
    if len(_workers()) > 1:
        return "multiworker"
    return "mirrored" if tf.config.list_logical_devices("GPU") else "cpu"


def _tpu(address):
    if address is None:
        raise ValueError(
            "No TPU was found. Looked for: the argument tpu, TPU_NAME in the environment, and "
            f"{' or '.join('/' + device for device in TPU_DEVICES)} on this machine. Received: "
            "none of them"
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
        if address != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        made = tf.distribute.TPUStrategy(resolver)
    except (ValueError, OSError, RuntimeError, tf.errors.OpError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"The TPU {address!r} does not answer, or this TensorFlow, {tf.__version__}, is not "
            f"built for TPUs ({install_command('tpu')}). Received: {reason}"
        ) from error
    return made, f"TPU {address!r}"


def _mirrored():
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if len(devices) == 1 and devices[0].device_type == "GPU":
        return tf.distribute.get_strategy(), "1 GPU"
    if len(devices) == 1:
        raise ValueError(
            'strategy "mirrored" needs GPUs, or several logical CPU devices (see '
            'tf.config.set_logical_device_configuration); on one CPU take "cpu". '
            "Received: no GPU, 1 CPU device"
        )
    made = tf.distribute.MirroredStrategy([device.name for device in devices])
    return made, f"{len(devices)} {devices[0].device_type}s"


def _multiworker():
    workers = _workers()
    if not workers:
        raise ValueError(
            'strategy "multiworker" needs TF_CONFIG in the environment of every worker, such as '
            '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
            '"task": {"type": "worker", "index": 0}}. '
            f"Received: TF_CONFIG={os.environ.get('TF_CONFIG')!r}"
        )
    made = tf.distribute.MultiWorkerMirroredStrategy()
    index = made.cluster_resolver.task_id
    return made, f"worker {index} of {len(workers)}, {', '.join(workers)}"


def _cpu():
    cores = os.cpu_count()
    if tf.config.list_logical_devices("GPU"):
        return tf.distribute.OneDeviceStrategy("/CPU:0"), f"{cores} cores"
    return tf.distribute.get_strategy(), f"{cores} cores"


def _workers():
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        cluster = config.get("cluster", {})
        return [*cluster.get("chief", []), *cluster.get("worker", [])]
    except (ValueError, AttributeError) as error:
        raise ValueError(
            "TF_CONFIG in the environment must be a JSON object with a cluster and a task. "
            f"Received: TF_CONFIG={os.environ['TF_CONFIG']!r}"
        ) from error


def is_chief() -> bool:
    """Returns whether this process writes files: it is the only one, or TF_CONFIG's first.

    Raises:
        ValueError: If TF_CONFIG is not a JSON object.
    """
    if len(_workers()) < 2:
        return True
    config = json.loads(os.environ["TF_CONFIG"])
    task = config.get("task", {})
    has_chief = bool(config["cluster"].get("chief"))
    return task.get("type") == ("chief" if has_chief else "worker") and not task.get("index")


def _local_tpu(root="/"):
    return any((pathlib.Path(root) / device).exists() for device in TPU_DEVICES)


def _set_precision(chosen, precision):
    has_bfloat16 = chosen == "tpu" or _has_bfloat16(chosen)
    if precision == "bfloat16" and not has_bfloat16:
        raise ValueError(
            "bfloat16 needs hardware support, or it is slower than float32: a TPU, a GPU of "
            f"compute capability 8 or a CPU with one of {BFLOAT16_FLAGS}. Received: none of them"
        )
    policy = PRECISIONS[precision]
    if precision == "auto":
        policy = "mixed_bfloat16" if has_bfloat16 else "float32"
    keras.config.set_dtype_policy(policy)


def _has_bfloat16(chosen):
    gpus = [] if chosen == "cpu" else tf.config.list_physical_devices("GPU")
    if gpus:
        details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
        return all(detail.get("compute_capability", (0, 0))[0] >= 8 for detail in details)
    try:
        flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return not set(BFLOAT16_FLAGS).isdisjoint(flags)


@dataclasses.dataclass(frozen=True)
class BatchSplit:
    """The split of a step's examples into micro-batches and replicas.

    Args:
        batch_size: Examples of a step.
        accumulation_steps: Micro-batches of a step.
        replicas: Devices that split a micro-batch.
    """

    batch_size: int
    accumulation_steps: int
    replicas: int

    @property
    def micro_batch_size(self) -> int:
        """Examples of a batch of the data; `accumulation_steps` of them are a step."""
        return self.batch_size // self.accumulation_steps

    @property
    def per_replica(self) -> int:
        """Examples that a device holds at a time."""
        return self.micro_batch_size // self.replicas

    def __str__(self):
        return (
            f"batch {self.batch_size} = {self.accumulation_steps} micro-batches x "
            f"{self.replicas} replicas x {self.per_replica} examples"
        )


def split_batch(
    batch_size: int,
    *,
    replicas: int = 1,
    accumulation_steps: int | None = None,
    most_per_replica: int | None = None,
) -> BatchSplit:
    """Returns an even split of a batch over replicas, for static shapes.

    Args:
        batch_size: Examples of an optimizer step, over all replicas.
        replicas: `strategy.num_replicas_in_sync`.
        accumulation_steps: Micro-batches of a step; by default the fewest with which a
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
    if accumulation_steps is None:
        each = math.ceil(batch_size / replicas)
        accumulation_steps = 1
        while most_per_replica and (
            math.ceil(each / accumulation_steps) > most_per_replica
            or (each % accumulation_steps and accumulation_steps < each)
        ):
            accumulation_steps += 1
    parts = replicas * accumulation_steps
    if batch_size < 1 or batch_size % parts:
        below = max(batch_size // parts, 1) * parts
        raise ValueError(
            "The batch must be split evenly over the replicas and micro-batches; nearest: "
            f"{below} and {below + parts}. Received: batch_size={batch_size}, "
            f"replicas={replicas}, accumulation_steps={accumulation_steps}"
        )
    return BatchSplit(batch_size, accumulation_steps, replicas)


def worker_of(strategy: tf.distribute.Strategy | None) -> tuple[int, int]:
    """Returns the number of this worker, from 0, and how many workers there are."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 0, 1
    resolver = strategy.cluster_resolver
    jobs = resolver.cluster_spec().as_dict()
    chiefs = len(jobs.get("chief", ()))  # It is the first worker.
    number = (resolver.task_id or 0) + (chiefs if resolver.task_type == "worker" else 0)
    return number, chiefs + len(jobs.get("worker", ()))


class Place:
    """The devices of a run: a `tf.distribute` strategy or TensorFlow's default device.

    Args:
        name: A name for `strategy`, or None for TensorFlow's default device.

    Raises:
        ValueError: If the device is not found.
    """

    def __init__(self, name: str | None = None):
        self.strategy = None if name is None else strategy(name)
        self.replicas = 1 if self.strategy is None else self.strategy.num_replicas_in_sync
        self.worker, self.workers = worker_of(self.strategy)

    def scope(self) -> contextlib.AbstractContextManager:
        """Returns the scope to build model, trainer and optimizer in."""
        return contextlib.nullcontext() if self.strategy is None else self.strategy.scope()

    def batches(self, examples: Examples, *, batch_size: int, **options: Any):
        """Returns `training_batches` for `fit`, on each of several workers its own part.

        A worker decodes its own part alone. With mixup, which blends images of the whole
        batch, each worker decodes all of it.

        Args:
            examples: The images.
            batch_size: Images of a batch, over all replicas.
            **options: See `training_batches`.
        """
        mixup = mixup_parameter(options["augmentation"], options["mixup"])
        # A data service splits the batches of one pipeline: each worker must take its own rows.
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
        """Waits for the other workers, for which a process that exits early is an error."""
        if self.strategy is not None and self.workers > 1:
            self.strategy.reduce("SUM", self.strategy.run(lambda: tf.constant(1)), axis=None)


def predictor_of(trainer: Trainer) -> Any:
    """Returns an object whose `predict_on_batch` uses all devices of this process.

    Args:
        trainer: The trainer of the model that predicts.
    """
    strategy = trainer.distribute_strategy
    if strategy.num_replicas_in_sync == 1:
        return trainer.model
    return _ReplicaPredictor(trainer.model, strategy)


class _ReplicaPredictor:
    """Prediction of a batch in parts, one on each replica of this process.

    Keras's `predict_on_batch` gives every replica the whole batch. Several workers do not
    wait for each other: each of them predicts the whole batch.
    """

    def __init__(self, model, strategy):
        self.strategy = strategy
        self.replicas = len(strategy.extended.worker_devices)
        self.predict = tf.function(
            lambda parts: strategy.run(lambda part: model(part, training=False), (parts,)),
            autograph=False,
        )

    def predict_on_batch(self, images):
        """Returns the outputs as an array, in order."""
        images = np.asarray(images)
        missing = -len(images) % self.replicas
        padded = np.concatenate([images, np.repeat(images[-1:], missing, axis=0)])
        parts = np.split(padded, self.replicas)
        given = self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group % self.replicas])
        )
        outputs = self.strategy.experimental_local_results(self.predict(given))
        return np.concatenate([np.asarray(part) for part in outputs])[: len(images)]
