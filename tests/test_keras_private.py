"""Private names of Keras: each defect that they work around is still there."""

import ast
import pathlib
import types

import keras
import numpy as np
import pytest

from keras_vit.keras_private import loss_tracker, unscale_loss, variable_index

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


@pytest.fixture(scope="module")
def trained():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"])
    model.fit(np.ones((4, 3)), np.zeros((4, 1)), verbose=0)
    return model


def test_the_tracker_is_of_the_loss_that_fit_reports(trained):
    report = trained.evaluate(np.ones((4, 3)), np.zeros((4, 1)), verbose=0, return_dict=True)
    tracker = loss_tracker(trained)
    assert tracker.name == "loss"
    assert float(tracker.result()) == pytest.approx(report["loss"])
    # Where Keras gives it under a public name, loss_tracker can go.
    assert all(metric is tracker for metric in trained.metrics if metric.name == "loss")
    assert not hasattr(trained, "loss_tracker")


def test_the_index_of_a_variable_is_that_of_its_slot(trained):
    optimizer = trained.optimizer
    for index, variable in enumerate(trained.trainable_variables):
        assert variable_index(optimizer, variable) == index
        assert optimizer.momentums[index].shape == variable.shape
    assert not hasattr(optimizer, "variable_index")  # Else `variable_index` can go.


def test_keras_still_divides_a_loss_by_the_number_of_replicas(trained, monkeypatch):
    tf = pytest.importorskip("tensorflow")
    targets, predicted = np.zeros((4, 1), "float32"), np.full((4, 1), 3, "float32")
    monkeypatch.setattr(
        tf.distribute, "get_strategy", lambda: types.SimpleNamespace(num_replicas_in_sync=2)
    )
    loss = trained.compute_loss(y=targets, y_pred=predicted)
    assert float(loss) == 4.5  # Where it is 9, unscale_loss can go.
    assert float(unscale_loss(loss)) == 9


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
