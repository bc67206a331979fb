"""Devices of training on TensorFlow: `tf.distribute` strategies, workers and GPUs."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vit._installation import install_command

from .data_adapter import pad_rows

# Device files of a machine with TPU cores.
TPU_DEVICES = ("dev/accel0", "dev/vfio/0")


def choose(name: str, tpu: str | None = None) -> tuple[str, tf.distribute.Strategy, str]:
    """Returns what "auto" stands for, the strategy, and its human-readable devices.

    Args:
        name: A name of `STRATEGIES`.
        tpu: Name or address of a TPU; see `keras_vit.training.strategy`.

    Raises:
        ValueError: If the device is not found; the error lists what was tried.
    """
    address = tpu or os.environ.get("TPU_NAME") or ("local" if _local_tpu() else None)
    chosen = _best(address) if name == "auto" else name
    if chosen == "tpu":
        return (chosen, *_tpu(address))
    if chosen == "multiworker":
        return (chosen, *_multiworker())
    if chosen == "mirrored":
        return (chosen, *_mirrored())
    return (chosen, *_cpu())


def _best(tpu_address):
    if tpu_address:
        return "tpu"
    if len(_workers()) > 1:
        return "multiworker"
    return "mirrored" if tf.config.list_logical_devices("GPU") else "cpu"


def _local_tpu(root="/"):
    return any((pathlib.Path(root) / device).exists() for device in TPU_DEVICES)


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
        others = cluster.keys() - {"chief", "worker", "evaluator"}
        workers = [*cluster.get("chief", []), *cluster.get("worker", [])]
    except (ValueError, AttributeError) as error:
        raise ValueError(
            "TF_CONFIG in the environment must be a JSON object with a cluster and a task. "
            f"Received: TF_CONFIG={os.environ['TF_CONFIG']!r}"
        ) from error
    if others:  # TensorFlow would wait for ever.
        raise ValueError(
            "The cluster of TF_CONFIG must have workers, and maybe a chief, alone: there is no "
            f"training with parameter servers. Received: {', '.join(sorted(others))}"
        )
    return workers


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


def worker_of(strategy: tf.distribute.Strategy | None) -> tuple[int, int]:
    """Returns the number of this worker, from 0, and how many workers there are."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 0, 1
    resolver = strategy.cluster_resolver
    jobs = resolver.cluster_spec().as_dict()
    chiefs = len(jobs.get("chief", ()))  # It is the first worker.
    number = (resolver.task_id or 0) + (chiefs if resolver.task_type == "worker" else 0)
    return number, chiefs + len(jobs.get("worker", ()))


def replicas_of(strategy: tf.distribute.Strategy) -> int:
    """Returns the devices that share a batch."""
    return strategy.num_replicas_in_sync


def leave(strategy: tf.distribute.Strategy) -> None:
    """Waits for the other workers, for which a process that exits early is an error."""
    strategy.reduce("SUM", strategy.run(lambda: tf.constant(1)), axis=None)


def predictor_of(trainer: Any) -> Any:
    """Returns the model, or on several replicas an object that predicts on all of them."""
    strategy = trainer.strategy
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
        parts = np.split(pad_rows(images, self.replicas), self.replicas)
        given = self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group % self.replicas])
        )
        outputs = self.strategy.experimental_local_results(self.predict(given))
        return np.concatenate([np.asarray(part) for part in outputs])[: len(images)]


def device_memory() -> int | None:
    """Returns the free bytes of the first GPU; None without one."""
    if not tf.config.list_physical_devices("GPU"):
        return None
    query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        return int(answer.split()[0]) * 2**20
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return 8 * 2**30  # Not an NVIDIA GPU, or not visible: a usual size.


def is_out_of_memory(error: Exception) -> bool:
    """Returns whether a device had no memory left for an operation."""
    return isinstance(error, tf.errors.ResourceExhaustedError)
