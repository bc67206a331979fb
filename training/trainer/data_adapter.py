"""Data of `fit` and `evaluate`, counted in optimizer steps, and its way to a GPU."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np

from keras_vit.keras_private import (
    DataAdapter,
    PartialBatchList,
    TFDatasetAdapter,
    get_data_adapter,
)
from keras_vit.models.outputs import is_sent, pad_rows, send

if TYPE_CHECKING:
    import jax

_AHEAD = 2  # Batches on their way to the device while it computes.


class StepAdapter(DataAdapter):
    """A Keras data adapter whose length is counted in steps of several batches.

    Keras counts batches; with accumulation an epoch has fewer steps than batches.

    Args:
        gradient_accumulation_steps: Batches of a step.
        compute_dtype: The type to which the model casts its inputs.
        data: `x`, `y` and `sample_weight` as `keras.Model.fit` takes them, the same in each of
            several processes; or `x` is an `OwnRows`.
        batch_size: As in `keras.Model.fit`.
        steps_per_epoch: Steps, as in `keras.Model.fit`.
        shuffle: As in `keras.Model.fit`.
        class_weight: As in `keras.Model.fit`.
    """

    def __init__(
        self,
        gradient_accumulation_steps,
        compute_dtype,
        data,
        *,
        batch_size=None,
        steps_per_epoch=None,
        shuffle=False,
        class_weight=None,
    ):
        x, y, sample_weight = data
        self.has_own_rows = isinstance(x, OwnRows)
        self.adapter = get_data_adapter(
            x=x.batches if self.has_own_rows else x,
            y=y,
            sample_weight=sample_weight,
            batch_size=batch_size,
            steps_per_epoch=steps_per_epoch,
            shuffle=shuffle and not self.has_own_rows,
            class_weight=class_weight,
        )
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.compute_dtype = compute_dtype

    def get_tf_dataset(self):
        """Returns the batches, one by one, of the same examples for any number of workers."""
        import tensorflow as tf

        from keras_vit.training.data.examples import without_autotune

        dataset = self.adapter.get_tf_dataset()
        if not isinstance(self.adapter, TFDatasetAdapter):
            # Keras made this pipeline; a user's keeps its options.
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

    def get_jax_iterator(self, super_batch=None):
        """Returns an iterator of batches, padded for the devices that they are spread over.

        Args:
            super_batch: Steps whose batches come in one list, or None for single batches.
        """
        batches = iter(self.adapter.get_jax_iterator())
        distribution = keras.distribution.distribution()
        if distribution is not None and not self.has_own_rows:
            batches = (_padded(batch, distribution) for batch in batches)
        batches = ahead(batches, self.compute_dtype)
        if super_batch is None:
            return batches
        length = super_batch * self.gradient_accumulation_steps
        return iter(lambda: PartialBatchList(itertools.islice(batches, length)), [])

    def get_torch_dataloader(self):
        """Returns the batches, for `predict` on PyTorch."""
        return self.adapter.get_torch_dataloader()

    @property
    def num_batches(self):
        """Steps of an epoch; the last may have fewer batches."""
        batches = self.adapter.num_batches
        return None if batches is None else math.ceil(batches / self.gradient_accumulation_steps)

    def on_epoch_begin(self):
        """Passes the call on."""
        self.adapter.on_epoch_begin()

    def on_epoch_end(self):
        """Passes the call on."""
        self.adapter.on_epoch_end()


class OwnRows(NamedTuple):
    """Batches that hold the rows of this JAX process alone, as many in each process."""

    batches: Iterable


def single_batches(iterator):
    """Yields the batches of `StepAdapter.get_jax_iterator` one by one."""
    for item in iterator:
        yield from item if isinstance(item, PartialBatchList) else [item]


def ahead(batches: Iterable, compute_dtype: str) -> Iterator:
    """Yields batches, whose next two are on their way to JAX's GPU; unchanged elsewhere.

    Keras sends one ahead, and none under a distribution. The inputs cross the bus in the type to
    which the model casts them first, which gives the same numbers from half the bytes.

    Args:
        batches: Inputs, or tuples that begin with them, or `Padded` ones.
        compute_dtype: The type to which the model casts its inputs.
    """
    if not is_sent():
        yield from batches
        return
    sent: collections.deque = collections.deque()
    for batch in batches:
        sent.append(_sent(batch, compute_dtype))
        if len(sent) > _AHEAD:
            yield sent.popleft()
    yield from sent


def _sent(batch, compute_dtype):
    if isinstance(batch, Padded):
        return batch._replace(batch=_sent(batch.batch, compute_dtype))
    inputs, *others = keras.utils.unpack_x_y_sample_weight(batch)
    inputs = keras.tree.map_structure(lambda part: send(part, compute_dtype), inputs)
    return keras.utils.pack_x_y_sample_weight(inputs, *others)


class Padded(NamedTuple):
    """A batch padded to a multiple of the devices, and its number of real rows.

    Keras cannot spread a batch of 7 over 4 devices. The number is the width of an array, so
    that it is known when a step is compiled.

    Args:
        batch: The batch, its last row repeated.
        rows: An array `(devices, real rows)`.
    """

    batch: Any
    rows: np.ndarray | jax.Array


def num_examples(batch):
    """Returns the number of real rows of a batch."""
    if isinstance(batch, Padded):
        return batch.rows.shape[1]
    return next(part for part in keras.tree.flatten(batch) if part is not None).shape[0]


def unpadded(batch):
    """Returns the real rows of a batch, inside a compiled step."""
    if not isinstance(batch, Padded):
        return batch
    rows = batch.rows.shape[1]
    return keras.tree.map_structure(lambda part: None if part is None else part[:rows], batch.batch)


def _padded(batch, distribution):
    """Returns a batch for all devices of a distribution, of which a process gets its rows."""
    import jax

    shards, processes = distribution.num_model_replicas, distribution.num_processes

    def own_rows(part):
        whole = pad_rows(part, shards)
        rows = len(whole) // processes
        return whole[jax.process_index() * rows :][:rows]

    padded = keras.tree.map_structure(lambda part: None if part is None else own_rows(part), batch)
    return Padded(padded, np.zeros((shards // processes, num_examples(batch)), "uint8"))


def on_each_device(outputs, distribution):
    """Returns outputs of a compiled step such that each process has all rows."""

    def whole(part):
        layout = keras.distribution.TensorLayout([None] * len(part.shape), distribution.device_mesh)
        return keras.distribution.distribute_tensor(part, layout)

    return keras.tree.map_structure(whole, outputs)
