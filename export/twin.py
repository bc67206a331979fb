"""The same weights in another model: in float32, or for another image size."""

import keras
import numpy as np

from keras_vit.checkpoints.resize import resize_positions
from keras_vit.layers import PositionEmbedding


def computes_in_float32(model: keras.Model) -> bool:
    """Returns whether every layer of a model computes in float32."""
    return all(
        layer.compute_dtype == "float32"
        for layer in _layers(model)
        if not isinstance(layer, keras.layers.InputLayer)
    )


def float32_twin(model: keras.Model) -> keras.Model:
    """Returns a model with the same weights that computes in float32.

    A mixed-precision graph has operations in bfloat16 or float16 that the converters to
    TFLite and ONNX do not know.

    Args:
        model: A functional or sequential model.

    Returns:
        The model itself if it computes in float32.
    """
    if computes_in_float32(model):
        return model

    def in_float32(operation):
        config = operation.get_config()
        if isinstance(operation, keras.layers.Layer):  # A slice is an operation, not a layer.
            config["dtype"] = "float32"
        return type(operation).from_config(config)

    twin = keras.models.clone_model(model, clone_function=in_float32, recursive=True)
    twin.set_weights(model.get_weights())
    return twin


def resized_twin(model: keras.Model, image_size) -> keras.Model:
    """Returns a model for another image size that shares the layers of the first.

    Only the position embeddings are its own: resized by grid as the official loader does;
    paper, section 3.2.

    Args:
        model: A functional model of this package with position embeddings at its input.
        image_size: Pixels (height, width).

    Raises:
        ValueError: If the model is another.
    """
    layers = {layer.name: layer for layer in model.layers}
    patches, positions = layers.get("patch_embedding"), layers.get("position_embedding")
    if patches is None or type(positions) is not PositionEmbedding:
        raise ValueError(
            "Another image size needs a model of this package with learned_1d position "
            f"embeddings at its input. Received: {model.name}"
        )
    images = keras.Input((*image_size, model.input_shape[-1]), name="images")
    upstream = keras.Model(model.input, patches.output)
    grid = _rewired(upstream, images, {}).output.shape[1:3]
    if 0 in grid:
        raise ValueError(
            f"The image must be larger than a patch. Received: image_size={tuple(image_size)}"
        )
    resized = PositionEmbedding(
        grid, positions.num_prefix_tokens, dtype=positions.dtype_policy, name=positions.name
    )
    twin = _rewired(model, images, {positions.name: resized})
    table = keras.ops.convert_to_numpy(positions.embedding)[0]
    prefix, cells = np.split(table, [positions.num_prefix_tokens])
    cells = resize_positions(cells, positions.grid, grid)
    resized.embedding.assign(np.concatenate([prefix, cells])[None])
    return twin


def _rewired(model, images, replacements):
    """Returns a model of the same layers, some replaced by name, on another input."""
    return keras.models.clone_model(
        model, images, clone_function=lambda layer: replacements.get(layer.name, layer)
    )


def _layers(model):
    for layer in model.layers:
        yield from _layers(layer) if isinstance(layer, keras.Model) else (layer,)
