"""Private names of Keras and TensorFlow, all in this file.

Keras may change them in any release, so setup.cfg pins it below the next minor one until this
file has been tried on it. Each entry has its reason and the issue that it works around;
tests/test_keras_private.py and tests/training/trainer/test_replicas.py fail as soon as Keras
has mended one, and its workaround can go.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import random
from collections.abc import Iterator
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any

import keras
from keras.src.backend.common import global_state

# The class of all image preprocessing layers, which has no public name.
from keras.src.layers.preprocessing.image_preprocessing.base_image_preprocessing_layer import (
    BaseImagePreprocessingLayer as BaseImagePreprocessingLayer,
)
from keras.src.losses.loss import unscale_loss_for_distribution

# The class of a model that is a graph of layers, which `keras.Model(inputs, outputs)` makes.
from keras.src.models.functional import Functional as Functional
from keras.src.saving import saving_lib

# The guards of `load_model` against links, other files and arrays that are not stored.
from keras.src.saving.saving_lib import safe_get_h5_dataset as safe_get_h5_dataset

# `fit` counts batches, and an optimizer step may take several: the trainer wraps the adapter
# that Keras would choose for the data in one that counts steps.
from keras.src.trainers.data_adapters import (
    data_adapter_utils,
    get_data_adapter as get_data_adapter,
)

# What `fit` does with `validation_split`, before the trainer wraps the data.
from keras.src.trainers.data_adapters.array_slicing import (
    train_validation_split as train_validation_split,
)
from keras.src.trainers.data_adapters.data_adapter import DataAdapter as DataAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import (
    TFDatasetAdapter as TFDatasetAdapter,
)

# The batches of several steps, which Keras 3.16 spreads over JAX's devices one by one.
_OF_315 = type("PartialBatchList", (list,), {})  # Keras 3.15 asks for single batches.
PartialBatchList: type[list] = getattr(data_adapter_utils, "PartialBatchList", _OF_315)

if TYPE_CHECKING:
    from keras import Model as Mixin  # The class that the classes below are mixed into.
else:
    Mixin = object


class SymbolicBuild(Mixin):
    """Builds losses, metrics and optimizer from the shapes and dtypes of the data.

    `fit` takes the first batch instead and averages it over replicas, which fails where the
    replicas have batches of different sizes, and always with several workers (keras#20585,
    keras#19246). Without a strategy it leaves the building to the first step, which is inside
    a `tf.while_loop` here.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        if keras.backend.backend() == "jax":  # Keras 3.16; 3.15 calls the next method itself.
            return self._symbolic_build(iterator, data_batch)
        if iterator is not None:
            data_batch = _replica_specs(iterator.data_adapter.get_tf_dataset())
        with self.distribute_strategy.scope():
            super()._symbolic_build(data_batch=data_batch)

    def _symbolic_build(self, iterator=None, data_batch=None):
        if iterator is not None:  # On JAX.
            data_batch = next(iter(iterator.data_adapter.get_jax_iterator()))
            data_batch = getattr(data_batch, "batch", data_batch)
        super()._symbolic_build(data_batch=data_batch)


def _replica_specs(dataset):
    """Returns the tensor specs of a batch on one replica, None where it holds none."""
    import tensorflow as tf

    def replica_spec(spec):
        spec = getattr(spec, "_value_specs", (spec,))[0]
        return spec if isinstance(spec, (tf.TensorSpec, tf.RaggedTensorSpec)) else None

    return keras.tree.map_structure(replica_spec, dataset.element_spec)


class CompileWherePossible(Mixin):
    """Takes `jit_compile="auto"` for False where TensorFlow has no XLA for its device.

    Keras takes it for True as soon as TensorFlow lists a device that is not a CPU, as its
    build for TPUs does on a host without one; see `keras_vit.models.outputs.predict_batch`.
    """

    def _resolve_auto_jit_compile(self):
        return super()._resolve_auto_jit_compile() and xla_compiles()


@functools.cache
def xla_compiles() -> bool:
    """Returns whether the backend has XLA for its default device; TensorFlow tries it once."""
    if keras.backend.backend() != "tensorflow":
        return True
    import tensorflow as tf

    add = tf.function(lambda number: number + 1, autograph=False, jit_compile=True)
    with tf.init_scope():
        try:
            add(tf.constant(0.0))
        except tf.errors.NotFoundError:
            return False
    return True


def has_onednn() -> bool:
    """Returns whether TensorFlow computes with oneDNN, which no public function tells."""
    from tensorflow.python.util import _pywrap_util_port

    return bool(_pywrap_util_port.IsMklEnabled())


def needs_only_call(
    layer: keras.layers.Layer, inputs: tuple, kwargs: dict[str, keras.KerasTensor | bool | None]
) -> bool:
    """Returns whether `Layer.__call__` would do no more than `call`, on PyTorch.

    If so, `kwargs` gets the outer call's `training`, as Keras sets it, or loses it if the layer
    does not take it. A block that computes its activations again, in the backward pass, does so
    outside of any call and without the scope of its precision: then the answer is no.

    Args:
        layer: A layer whose `call` needs no mask and adds no loss.
        inputs: Its positional arguments.
        kwargs: Its other arguments.
    """
    outer_call = getattr(global_state.GLOBAL_STATE_TRACKER, "current_call_ctx", None)
    training = outer_call and outer_call.get_value("training")
    is_known = training is not None and kwargs.get("training", training) is training
    if not (inputs and is_known and layer.built) or _has_more(layer):
        return False
    if not _takes_tensors(layer, inputs):
        return False
    kwargs.pop("training", None)
    if "training" in layer.call_signature_parameters:
        kwargs["training"] = training
    return True


def _has_more(layer):
    """Whether `Layer.__call__` runs hooks, quantised kernels, a regulariser or a second pass."""
    import torch

    hooks = layer._forward_hooks or layer._forward_pre_hooks
    hooks = hooks or layer._backward_hooks or layer._backward_pre_hooks
    if hooks or torch.nn.modules.module._has_any_global_hook() or layer._compiled_call_impl:
        return True
    return bool(layer.quantization_mode or layer.activity_regularizer or layer._remat_mode)


def _takes_tensors(layer, inputs):
    """Whether all inputs are tensors without a mask, of the precision that a layer computes in."""
    import torch

    tensors = [x for x in inputs if isinstance(x, torch.Tensor) and not hasattr(x, "_keras_mask")]
    # This layer casts neither its input nor its variables.
    if not isinstance(layer, keras.layers.LayerNormalization):
        scope = getattr(global_state.GLOBAL_STATE_TRACKER, "autocast_scope", None)
        dtype = layer.compute_dtype
        if dtype != (scope.dtype if scope else layer.variable_dtype) or not layer.autocast:
            return False
        tensors = [x for x in tensors if x.dtype == getattr(torch, dtype)]
    return len(tensors) == len(inputs)


def unscale_loss(loss: keras.KerasTensor) -> keras.KerasTensor:
    """Returns a replica's mean loss; Keras divides it by the number of replicas."""
    return unscale_loss_for_distribution(loss)


@contextlib.contextmanager
def without_gradient_summing(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """Keeps an optimizer from summing gradients over replicas, within the context.

    Keras clips each replica's gradient and then sums, so that N replicas may take a step N
    times as long. The trainer sums first; a second sum would multiply by N.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    inner._all_reduce_sum_gradients = lambda gradients_and_variables: gradients_and_variables
    try:
        yield
    finally:
        del inner._all_reduce_sum_gradients  # The method of its class is there again.


def variable_index(optimizer: keras.optimizers.Optimizer, variable: keras.Variable) -> int:
    """Returns the index of a variable in the list that the optimizer was built with.

    The optimizer's slots are lists in the same order. `update_step` may get one replica's copy
    of a variable, which this method of Keras's own optimizers finds too.
    """
    return optimizer._get_variable_index(variable)


def loss_tracker(trainer: keras.Model) -> keras.metrics.Metric:
    """Returns the metric that `fit` reports as the loss."""
    return trainer._loss_tracker


def in_order(model: keras.Model, logs: dict[str, float]) -> list[float]:
    """Returns the values of a batch as `train_on_batch` does: the loss, then the metrics."""
    return model._flatten_metrics_in_order(logs)


def penalty(model: keras.Model) -> keras.KerasTensor:
    """Returns what regularizers and `add_loss` add to a model's loss; 0.0 for nothing."""
    return sum((model._aggregate_additional_loss(loss) for loss in model.losses), 0.0)


def all_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns a model and its layers, with the layers of layers; `model.layers` lacks these."""
    return model._flatten_layers()


def use_seeds(layer: keras.layers.Layer, seeds: keras.random.SeedGenerator) -> None:
    """Sets where an image layer, and each layer within it, draws the seeds of its operations.

    The attribute `generator` is read on TensorFlow alone: in a `tf.data` pipeline of another
    backend a layer makes another one, whose state no run could continue.
    """
    for part in all_layers(layer):
        part._get_seed_generator = lambda backend=None: seeds


@contextlib.contextmanager
def at_most(numbers: int) -> Iterator[None]:
    """Refuses to make variables of more numbers in all, in this thread and within the context.

    Each is refused before its values are made. No public function gives the size of a config.
    """
    initialize, thread, made = keras.Variable._initialize_with_initializer, get_ident(), 0

    def initialize_counted(variable, initializer):
        nonlocal made
        if get_ident() == thread:
            made += math.prod(variable.shape)
            if made > numbers:
                raise ValueError(
                    f"its config describes a model of {made:,} numbers or more, which the file "
                    "does not hold"
                )
        initialize(variable, initializer)

    with _ONE_AT_A_TIME:
        keras.Variable._initialize_with_initializer = initialize_counted
        try:
            yield
        finally:
            keras.Variable._initialize_with_initializer = initialize


_ONE_AT_A_TIME = RLock()


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Makes layers whose variables have a shape and no value, within the context.

    Keras would make their values after its next stateless scope, whatever that is for. The random
    numbers of Python, of which layers take their seeds, are the same afterwards.
    """
    waiting = list(global_state.get_global_attribute("uninitialized_variables") or ())
    numbers = random.getstate()
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        global_state.set_global_attribute("uninitialized_variables", waiting)
        random.setstate(numbers)


def load_keras_model(config: dict[str, Any], weights: str | io.BytesIO, most: int) -> keras.Model:
    """Returns the model of a `.keras` file in safe mode, as `keras.saving.load_model` does.

    That compiles the models within the model too, whose losses may be of a user, and takes the
    memory that a config asks for.

    Args:
        config: The content of `config.json`.
        weights: The file of the weights, or its content.
        most: Numbers that its weights may have in all.

    Raises:
        ValueError: If the config is no model or has more numbers, or the arrays do not fit it.
    """
    failed: dict[int, tuple[keras.layers.Layer, Exception]] = {}
    text = json.dumps(_without_compiling(config))
    with at_most(most):
        model = saving_lib._model_from_config(text, None, compile=False, safe_mode=True)
    with contextlib.closing(saving_lib.H5IOStore(weights)) as store:
        saving_lib._load_state(
            model,
            weights_store=store,
            assets_store=None,
            inner_path="",
            visited_saveables=set(),
            failed_saveables=set(),
            error_msgs=failed,
        )
    if failed:
        layer, error = next(iter(failed.values()))
        raise ValueError(
            f"{len(failed)} of its layers could not be loaded; {layer.name}: {error}"
        ) from error
    return model


def _without_compiling(config):
    """Returns a config without the losses, metrics and optimizers of its models.

    `compile=False` leaves out the outer model's only.
    """
    if isinstance(config, list):
        return [_without_compiling(value) for value in config]
    if not isinstance(config, dict):
        return config
    left_out = "compile_config" if "class_name" in config else None
    return {key: _without_compiling(value) for key, value in config.items() if key != left_out}
