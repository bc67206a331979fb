"""The private names of Keras that exact training cannot do without, and nothing else.

Each has its reason; tests/training/trainer/test_replicas.py holds a test for each defect that
fails when Keras mends it, and its workaround can go.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np
from keras.src.losses.loss import unscale_loss_for_distribution
from keras.src.trainers.data_adapters import get_data_adapter
from keras.src.trainers.data_adapters.data_adapter import DataAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

from keras_vit.layers.compiled_gradient import xla_compiles

if TYPE_CHECKING:
    from keras import Model as Mixed  # What the classes below are mixed into.
else:
    Mixed = object


class SymbolicBuild(Mixed):
    """Builds losses, metrics and optimizer from the data's description, not its first batch.

    `fit` takes a batch for it and averages it over replicas, which fails where the replicas'
    shares differ in size, and always with several workers (keras#20585, keras#19246). With
    no strategy it leaves the building to the first step, which is inside a loop here.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        if iterator is not None:
            data_batch = _description(iterator.data_adapter.get_tf_dataset())
        with self.distribute_strategy.scope():
            super()._symbolic_build(data_batch=data_batch)

    def _symbolic_build(self, iterator=None, data_batch=None):
        if iterator is not None:  # On JAX.
            data_batch = next(iter(iterator.data_adapter.get_jax_iterator()))
            data_batch = getattr(data_batch, "batch", data_batch)
        super()._symbolic_build(data_batch=data_batch)


class CompileWherePossible(Mixed):
    """Takes `jit_compile="auto"` for False where TensorFlow has no XLA for its device.

    Keras takes it for True as soon as TensorFlow lists a device that is not a CPU; see
    `keras_vit.classifier.predict_batch`.
    """

    def _resolve_auto_jit_compile(self):
        return super()._resolve_auto_jit_compile() and xla_compiles()


def _description(dataset):
    import tensorflow as tf

    def local(spec):
        # Of a distributed data set: what one replica sees.
        spec = getattr(spec, "_value_specs", (spec,))[0]
        # The rest stands for None.
        return spec if isinstance(spec, (tf.TensorSpec, tf.RaggedTensorSpec)) else None

    return keras.tree.map_structure(local, dataset.element_spec)


def adapt(accumulation_steps, **data):
    """Returns data as `fit` and `evaluate` take it, counted in optimizer steps.

    Keras counts batches; with accumulation an epoch has fewer steps than batches.

    Args:
        accumulation_steps: Batches of a step.
        **data: `x`, `y`, `sample_weight`, `batch_size`, `steps_per_epoch`, `shuffle` and
            `class_weight` as `keras.Model.fit` takes them.
    """
    return StepAdapter(get_data_adapter(**data), accumulation_steps)


class StepAdapter(DataAdapter):
    """Another adapter, whose length is counted in steps of several batches.

    Args:
        adapter: The other adapter.
        accumulation_steps: Batches of a step.
    """

    def __init__(self, adapter, accumulation_steps):
        self.adapter = adapter
        self.accumulation_steps = accumulation_steps

    def get_tf_dataset(self):
        """Returns the batches, one by one, of the same examples for any number of workers."""
        import tensorflow as tf

        from keras_vit.training.data.examples import without_autotune

        dataset = self.adapter.get_tf_dataset()
        if not isinstance(self.adapter, TFDatasetAdapter):
            # Keras's own pipeline; what a user's options say stays as it is.
            dataset = without_autotune(dataset)
        policies = tf.data.experimental.AutoShardPolicy
        if (
            isinstance(dataset, tf.data.Dataset)
            and dataset.options().experimental_distribute.auto_shard_policy == policies.AUTO
        ):
            # TensorFlow's own choice is to give each worker other files.
            options = tf.data.Options()
            options.experimental_distribute.auto_shard_policy = policies.DATA
            dataset = dataset.with_options(options)
        return dataset

    def get_jax_iterator(self):
        """Returns the batches, one by one, fit for the devices they are spread over."""
        shards = _shards()
        for batch in self.adapter.get_jax_iterator():
            yield batch if shards is None else _padded(batch, shards)

    @property
    def num_batches(self):
        """Steps of an epoch; the last may have fewer batches."""
        batches = self.adapter.num_batches
        return None if batches is None else math.ceil(batches / self.accumulation_steps)

    @property
    def batch_size(self):
        """Examples of a batch."""
        return self.adapter.batch_size

    @property
    def has_partial_batch(self):
        """Whether the last batch is smaller."""
        return self.adapter.has_partial_batch

    @property
    def partial_batch_size(self):
        """Examples of the last batch, if it is smaller."""
        return self.adapter.partial_batch_size

    def on_epoch_begin(self):
        """Passes the call on."""
        self.adapter.on_epoch_begin()

    def on_epoch_end(self):
        """Passes the call on."""
        self.adapter.on_epoch_end()


class Padded(NamedTuple):
    """A batch with as many rows as its devices can share, and how many are real.

    Keras cannot spread a batch of 7 over 4 devices. The number is the width of an array, so
    that it is known when a step is compiled.

    Args:
        batch: The batch, its last row repeated.
        rows: An array `(devices, real rows)`.
    """

    batch: Any
    rows: Any


def rows_of(batch):
    """Returns the real rows of a batch, inside a compiled step."""
    if not isinstance(batch, Padded):
        return batch
    rows = batch.rows.shape[1]
    return keras.tree.map_structure(lambda part: None if part is None else part[:rows], batch.batch)


def _padded(batch, shards):
    rows = len(next(part for part in keras.tree.flatten(batch) if part is not None))
    missing = -rows % shards

    def pad(part):
        if part is None or not missing:
            return part
        return np.concatenate([part, np.repeat(part[-1:], missing, axis=0)])

    return Padded(keras.tree.map_structure(pad, batch), np.zeros((shards, rows), "uint8"))


def _shards():
    """Devices that a batch is spread over by this process alone, or None."""
    distribution = keras.distribution.distribution()
    if distribution is None or getattr(distribution, "_is_multi_process", False):
        return None
    mesh = distribution.device_mesh
    return mesh.shape[mesh.axis_names.index(distribution.batch_dim_name)]


def leave_summing_to_the_trainer(optimizer):
    """Stops an optimizer from summing gradients over replicas.

    Keras clips each replica's gradient and then sums, so that N replicas may take a step N
    times as long. The trainer sums first; a second sum would multiply by N.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    inner._all_reduce_sum_gradients = lambda gradients_and_variables: gradients_and_variables


def unscaled_loss(loss):
    """Returns a replica's mean loss; Keras divides it by the number of replicas."""
    return unscale_loss_for_distribution(loss)


def loss_tracker(trainer):
    """Returns the metric that `fit` shows as the loss."""
    return trainer._loss_tracker
