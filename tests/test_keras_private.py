"""Private names of Keras: each defect that they work around is still there."""

import ast
import pathlib

import keras
import numpy as np
import pytest

from keras_vit.keras_private import FixedSeed

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASES = (
    keras.Model,
    keras.callbacks.Callback,
    keras.layers.Layer,
    keras.losses.Loss,
    keras.metrics.Metric,
    keras.optimizers.Optimizer,
    keras.optimizers.schedules.LearningRateSchedule,
)


def test_keras_still_takes_no_tensor_for_a_seed():
    seed = keras.ops.convert_to_tensor(np.array([1, 2], "uint32"))
    images = np.ones((4, 4), "float32")
    with pytest.raises((ValueError, TypeError)):  # Where Keras takes it, FixedSeed can go.
        keras.random.dropout(images, 0.5, seed=seed)
    masks = [keras.random.dropout(images, 0.5, seed=FixedSeed(seed)) for _ in range(2)]
    np.testing.assert_array_equal(*masks)


def test_no_class_replaces_a_private_method_of_keras_by_accident():
    for folder in ("keras_vit", "training", "export"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.name == "keras_private.py":
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.ClassDef) or not node.bases:
                    continue
                for method in node.body:
                    name = getattr(method, "name", "")
                    if name.startswith("_") and not name.endswith("__"):
                        assert not any(hasattr(base, name) for base in BASES), (path, name)
