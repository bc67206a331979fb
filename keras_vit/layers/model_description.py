"""The layer in which a model holds what it is."""

import json

import keras
import numpy as np

from keras_vit.configs.blocks import UNSEEN_FEATURES, BlockConfig

ENTRY = "description"  # In a file of weights.
_GRID = "position_grid"


@keras.saving.register_keras_serializable(package="keras_vit")
class ModelDescription(keras.layers.Layer):
    """Holds the description of the model that it is the first layer of; computes nothing.

    So a model that was saved, cloned, quantised, converted to another precision or cut out of
    another one keeps its description; see `keras_vit.describe`. A subclass of `keras.Model` would
    lose it where Keras makes a plain functional model of its layers.

    Args:
        content: The JSON object of `keras_vit.description.Description.to_json`.
        **kwargs: Passed to `keras.layers.Layer`.

    Input shape:
        Any.

    Output shape:
        The input's.
    """

    def __init__(self, content, **kwargs):
        # The images keep their dtype; the layer behind this one converts them.
        super().__init__(**{"autocast": False, **kwargs})
        self.content = content
        self.built = True

    @property
    def content(self):
        """The JSON object; a copy of it."""
        return json.loads(self.text)

    @content.setter
    def content(self, content):
        self.text = json.dumps(content)  # Keras would track the variables in a dictionary.

    def save_own_variables(self, store):
        """Saves the description beside the weights; files of weights hold nothing else."""
        store[ENTRY] = np.frombuffer(self.text.encode(), "uint8")

    def load_own_variables(self, store):
        """Takes over what belongs to the weights: preprocessing, classes, origins.

        Raises:
            ValueError: If they were saved for other positions or blocks.
        """
        saved, own = json.loads(bytes(np.asarray(store[ENTRY]))), self.content
        has_tables = (own.get("config") or {}).get("position_embedding") != "none"
        for fact in (*([_GRID] if has_tables else []), *UNSEEN_FEATURES):
            theirs, ours = _fact(saved, fact), _fact(own, fact)
            if theirs != ours:
                raise ValueError(
                    "The blocks and positions of the weights must match the model "
                    f"({fact}); keras_vit.load_checkpoint resizes tables of positions. "
                    f"Received: {theirs}, the model has {ours}"
                )
        of_weights = {k: value for k, value in saved.items() if k not in _OF_THE_MODEL}
        self.content = {**of_weights, **{name: own[name] for name in _OF_THE_MODEL & own.keys()}}

    def call(self, inputs):
        return inputs

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(inputs.shape, inputs.dtype)

    def get_config(self):
        return {**super().get_config(), "content": self.content}


# Facts that a model does not take from weights.
_OF_THE_MODEL = {"name", "config", "input_shape", "classes", "position_grid"}


def _fact(content, name):
    """The grid of positions, or a field of the config; the default where there is none."""
    default = getattr(BlockConfig, name, None)
    return content.get(name) or (content.get("config") or {}).get(name, default)
