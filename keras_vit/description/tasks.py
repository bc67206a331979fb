"""The names and numbers of the two tasks of a classifier: multi-class and multi-label.

The names are scikit-learn's. Imports neither Keras nor NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MULTICLASS, MULTILABEL = "multiclass", "multilabel"
TASKS = (MULTICLASS, MULTILABEL)

# Activations of the model's last layer.
ACTIVATIONS = {MULTICLASS: "softmax", MULTILABEL: "sigmoid"}

# The score on validation images by which the best weights are chosen: in history.csv, recipe.json.
SCORES = {MULTICLASS: "accuracy", MULTILABEL: "mAP"}

SEPARATOR = ";"  # Between the labels of an image in a CSV file; in no class name.

DEFAULT_THRESHOLD = 0.5  # Probability over which an image has a label.


def check_label_names(class_names: Sequence[str]) -> None:
    """Raises ValueError if the name of a label holds the character between two labels."""
    wrong = [name for name in class_names if SEPARATOR in name]
    if wrong:
        raise ValueError(
            f'A class name must not hold "{SEPARATOR}", which separates the labels of an image. '
            f"Received: {wrong[0]!r}"
        )


def task_of_model(model: Any) -> str:
    """Returns the task of a Keras model by the activation of its last layer."""
    activation = getattr(model.layers[-1], "activation", None)
    name = getattr(activation, "__name__", None)
    return MULTILABEL if name == ACTIVATIONS[MULTILABEL] else MULTICLASS
