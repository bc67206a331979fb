"""The layer in which a model holds what it is."""

import json

import keras


@keras.saving.register_keras_serializable(package="keras_vit")
class ModelDescription(keras.layers.Layer):
    """Holds the description of the model that it is the first layer of; computes nothing.

    So a model that was saved, cloned, quantised, converted to another precision or cut out of
    another one still says what it is; see `keras_vit.describe`. A subclass of `keras.Model` would
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

    def call(self, inputs):
        return inputs

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(inputs.shape, inputs.dtype)

    def get_config(self):
        return {**super().get_config(), "content": self.content}
