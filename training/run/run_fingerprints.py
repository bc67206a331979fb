"""The facts that decide the numbers of a run: its images, first weights, packages and processor."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit.training import machine

from .data_record import DataRecord

# Packages that compute numbers; the versions of others are recorded too.
_PACKAGES = ("keras_vit", "tensorflow", "keras", "numpy", "pillow", "jax")
# Instructions that TensorFlow's kernels choose by, and that round differently.
_INSTRUCTIONS = ("avx2", "fma", "avx512f", "avx512_bf16", "avx_vnni", "amx_bf16", "asimd", "sve")
# Variables of the environment that change how numbers are computed.
_ENVIRONMENT = ("TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS", "TF_XLA_FLAGS", "NVIDIA_TF32_OVERRIDE")


def fingerprints(record: DataRecord, model: keras.Model) -> dict[str, Any]:
    """Returns the field `fingerprints` of `recipe.json`.

    Args:
        record: The images of the run.
        model: The model with its weights before the first step.
    """
    return {
        "data": record.to_json(),
        "weights": weights_hash(model),
        "processor": describe_processor(),
    }


def weights_hash(model: keras.Model) -> str:
    """Returns the SHA-256 of a model's weights: their shapes, types and values in their order."""
    digest = hashlib.sha256()
    for weight in model.weights:
        value = np.ascontiguousarray(keras.ops.convert_to_numpy(weight))
        digest.update(f"{value.dtype} {value.shape}\n".encode())
        digest.update(value.reshape(-1).view("uint8").data)
    return digest.hexdigest()


def describe_processor() -> dict[str, Any]:
    """Returns what rounds: processor, instructions, cores, accelerators and TensorFlow's flags."""
    flags: set[str] = set()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            listed = re.search(r"^(?:flags|Features)\s*:\s*(.+)", file.read(), re.MULTILINE)
        flags = set(listed[1].split()) if listed else set()
    devices = [
        tf.config.experimental.get_device_details(device).get("device_name", device.device_type)
        for device in tf.config.list_physical_devices()
        if device.device_type != "CPU"
    ]
    return {
        "name": machine.processor(),
        "machine": platform.machine(),
        "instructions": [name for name in _INSTRUCTIONS if name in flags],
        "cores": machine.usable_cores(),
        "accelerators": devices,
        "environment": {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        **_options_of_program(),
    }


def _options_of_program() -> dict[str, Any]:
    """What a program has set in TensorFlow: graphs that are optimised otherwise round otherwise."""
    found = {
        "graph_options": tf.config.optimizer.get_experimental_options(),
        "jit": tf.config.optimizer.get_jit(),
        "threads": tf.config.threading.get_intra_op_parallelism_threads(),
    }
    found["graph_options"] = {
        name: value for name, value in found["graph_options"].items() if value
    }
    return {name: value for name, value in found.items() if value}


def differing_versions(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Returns the packages that compute numbers and have other versions, each with both.

    Args:
        before: The versions by package, as in `recipe.json`.
        now: The present ones.
    """
    return _differing(_PACKAGES, before, now)


def differing_fields(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns the fields whose values differ, each with both values."""
    return _differing(sorted({*before, *now}), before, now)


def _differing(names: Iterable[str], before: Mapping[str, Any], now: Mapping[str, Any]):
    return [
        f"{name} {_shown(now.get(name))}, before {_shown(before.get(name))}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _shown(value):
    return "none" if value is None or value in ([], {}) else str(value)[:80]
