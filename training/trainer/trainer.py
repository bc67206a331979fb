"""The `Trainer`: `compile` and `fit` with the same numbers on any hardware."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from keras_vit.keras_private import (
    CompileWherePossible,
    SymbolicBuild,
    all_layers,
    in_order,
    loss_tracker,
    train_validation_split,
)
from keras_vit.layers.base_layers import arguments
from keras_vit.layers.random_numbers import DrawsByExample, philox
from keras_vit.utils.json_files import with_present_names

from .data_adapter import StepAdapter, on_each_device, unpadded

if TYPE_CHECKING:
    import tensorflow as tf

MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")


class NonFiniteError(ValueError):
    """Training stopped at a loss or gradient that is NaN or infinite.

    The model keeps its weights from before the failed step.

    Args:
        step: The failed step, counted from 1.
        learning_rate: The learning rate of that step.
        checkpoint: The last saved state, or None.
    """

    def __init__(self, step, learning_rate, checkpoint=None):
        self.step = step
        self.learning_rate = learning_rate
        self.checkpoint = checkpoint
        saved = f"; the last good checkpoint is {checkpoint}" if checkpoint else ""
        super().__init__(
            "The loss and its gradients must be finite: try a lower learning rate, a longer "
            f"warm-up or gradient clipping. The weights from before the step are kept{saved}. "
            f"Received: NaN or infinity in step {step}, at learning rate {learning_rate:.3g}"
        )


@keras.saving.register_keras_serializable(package="keras_vit")
class Trainer(SymbolicBuild, CompileWherePossible, keras.Model):
    """Trains a model with `compile`, `fit`, `evaluate` and `predict`, exactly.

    For the same seed, data and global batch, the losses and weights are the same to float32
    rounding on one device, several replicas, several workers and the JAX backend. It differs
    from `keras.Model.fit`: the gradient is the mean over all examples of the step, however
    they are split into batches, micro-batches and replicas, and is clipped after that;
    dropout masks of this package's layers depend on the example's place in the step, not on
    its replica; evaluation counts every example once.

    A step is one update of the optimizer: schedules, averages, `steps_per_epoch` and
    `steps_per_execution` count steps. Under a `tf.distribute` strategy, or on JAX a
    `keras.distribution`, build model, trainer and optimizer in its scope; `fit`, `evaluate` and
    `predict` then use its devices.

    The given model is trained in place: save and predict with `trainer.model`.

    Args:
        model: A `keras.Model`.
        gradient_accumulation_steps: Batches of a step, k. k batches give the same step as one batch
            with all their examples; the last step of an epoch takes the remaining batches.
        ema_momentum: Factor d of Polyak averaging, 0.9999 in the paper, or None. After each
            step average <- d * average + (1 - d) * weight, from the weights before the
            first step; see `averaged_weights`.
        skip_nonfinite_steps: Number of steps with NaN or infinity in the loss or gradients
            that are skipped before training stops. The optimizer does not count them.
        seed: Seed of the dropout masks. They depend on it, on the step and on the example's
            place in it alone, so that a resumed run draws the same masks. Layers of Keras's
            own draw other masks on each replica and in each micro-batch.
        **kwargs: Passed to `keras.Model`.

    Raises:
        ValueError: If a value is out of range; in `fit`, if the optimizer averages or
            accumulates by itself, the loss is not a mean over examples or the backend is
            PyTorch.
        NonFiniteError: In `fit`, a ValueError that names the step and its learning rate.

    Example:
    >>> trainer = Trainer(keras_vit.build("ViT-S/16", classes=10), gradient_accumulation_steps=4)
    >>> trainer.compile(SGD(0.03), "sparse_categorical_crossentropy", metrics=["accuracy"])
    """

    # Keras assigns None without a type.
    train_function: Callable[..., Any] | None
    test_function: Callable[..., Any] | None

    def __init__(
        self,
        model: keras.Model,
        *,
        gradient_accumulation_steps: int = 1,
        ema_momentum: float | None = None,
        skip_nonfinite_steps: int = 0,
        seed: int = 0,
        **kwargs: object,
    ):
        super().__init__(**kwargs)
        self.distribution = keras.distribution.distribution()  # JAX's; None on TensorFlow.
        if gradient_accumulation_steps < 1:
            raise ValueError(
                "gradient_accumulation_steps must be at least 1. "
                f"Received: gradient_accumulation_steps={gradient_accumulation_steps}"
            )
        if ema_momentum is not None and not 0 < ema_momentum < 1:
            raise ValueError(
                f"ema_momentum must be in (0, 1). Received: ema_momentum={ema_momentum}"
            )
        if skip_nonfinite_steps < 0:
            raise ValueError(
                "skip_nonfinite_steps must not be negative. "
                f"Received: skip_nonfinite_steps={skip_nonfinite_steps}"
            )
        self.model = model
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.ema_momentum = ema_momentum
        self.skip_nonfinite_steps = skip_nonfinite_steps
        self.seed = seed
        self.last_checkpoint = None
        counter = {
            "shape": (),
            "initializer": "zeros",
            "dtype": "int32",
            "trainable": False,
            "aggregation": "only_first_replica",
        }
        self.step = self.add_weight(name="step", **counter)
        self.skipped_steps = self.add_weight(name="skipped_steps", **counter)
        self.averages = [
            self.add_weight(
                shape=variable.shape,
                initializer="zeros",
                dtype=variable.dtype,
                trainable=False,
                name=f"average_{index}",
            )
            for index, variable in enumerate(model.trainable_variables if ema_momentum else [])
        ]
        self.built = True

    def call(self, inputs, training=False):
        return self.model(inputs, training=training)

    def fit(
        self,
        x=None,
        y=None,
        batch_size=None,
        epochs=1,
        verbose="auto",
        callbacks=None,
        validation_split=0.0,
        validation_data=None,
        shuffle=True,
        class_weight=None,
        sample_weight=None,
        **kwargs,
    ):
        """Trains the model as `keras.Model.fit` does, counting in optimizer steps.

        Args:
            x: Data as in Keras.
            y: Targets, if `x` does not hold them.
            batch_size: Examples of a micro-batch, for arrays.
            epochs: Epochs.
            verbose: As in Keras.
            callbacks: As in Keras.
            validation_split: Fraction at the end of the arrays to validate on.
            validation_data: As in Keras.
            shuffle: Whether to shuffle arrays.
            class_weight: As in Keras.
            sample_weight: As in Keras.
            **kwargs: The other arguments of `keras.Model.fit`; `steps_per_epoch` counts
                optimizer steps.

        Returns:
            A `keras.callbacks.History`.

        Raises:
            NonFiniteError: If a loss or gradient is not finite.
        """
        if validation_split and validation_data is None:
            arrays = (x, y, sample_weight)
            (x, y, sample_weight), validation_data = train_validation_split(
                arrays, validation_split
            )
        data = StepAdapter(
            self.gradient_accumulation_steps,
            self.compute_dtype,
            (x, y, sample_weight),
            batch_size=batch_size,
            steps_per_epoch=kwargs.get("steps_per_epoch"),
            # Not for a tf.data pipeline or a generator, which have their own order.
            shuffle=shuffle and not (hasattr(x, "element_spec") or hasattr(x, "__next__")),
            class_weight=class_weight,
        )
        before: list[dict[str, float]] = []

        def check_step_before(batch, logs):
            # So the next step is on its way when the loss of this one is waited for. A step after
            # one that is not finite changes nothing.
            before.append(logs or {})
            if len(before) > 1:
                self.check_finite(before.pop(0))

        stop = keras.callbacks.LambdaCallback(
            on_train_batch_end=check_step_before,
            on_epoch_end=lambda epoch, logs: self.check_finite(before.pop() if before else {}),
        )
        callbacks = [*keras.tree.flatten(callbacks or []), stop]
        if validation_data is not None:
            validation_data = StepAdapter(
                1,
                self.compute_dtype,
                keras.utils.unpack_x_y_sample_weight(validation_data),
                batch_size=kwargs.pop("validation_batch_size", None) or batch_size,
                steps_per_epoch=kwargs.get("validation_steps"),
            )
        with self._on_its_devices():
            return super().fit(
                data,
                epochs=epochs,
                verbose=verbose,
                callbacks=callbacks,
                validation_data=validation_data,
                **kwargs,
            )

    def train_on_batch(self, *args, return_dict=False, **kwargs):
        """Takes one step on one batch, as `keras.Model.train_on_batch` does.

        Raises:
            NonFiniteError: If a loss or gradient is not finite.
        """
        with self._on_its_devices():
            logs = super().train_on_batch(*args, return_dict=True, **kwargs)
        self.check_finite(logs)
        return logs if return_dict else in_order(self, logs)

    def evaluate(
        self,
        x=None,
        y=None,
        batch_size=None,
        verbose="auto",
        sample_weight=None,
        steps=None,
        use_averages=False,
        **kwargs,
    ):
        """Evaluates the model as `keras.Model.evaluate` does, each example exactly once.

        Args:
            x: Data as in Keras.
            y: Targets, if `x` does not hold them.
            batch_size: Examples of a batch, for arrays.
            verbose: As in Keras.
            sample_weight: As in Keras.
            steps: Batches, or None for all.
            use_averages: Whether to evaluate the averages instead of the weights.
            **kwargs: `callbacks`, `return_dict` and what Keras's `fit` passes.

        Returns:
            The loss and the metrics.
        """
        if not isinstance(x, StepAdapter):  # `fit` has made one of its validation data.
            x = StepAdapter(
                1,
                self.compute_dtype,
                (x, y, sample_weight),
                batch_size=batch_size,
                steps_per_epoch=steps,
            )
        weights = self.averaged_weights() if use_averages else contextlib.nullcontext()
        with weights, self._on_its_devices():
            return super().evaluate(x, verbose=verbose, steps=steps, **kwargs)

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        """Predicts as `keras.Model.predict` does.

        Args:
            x: Data as in Keras.
            batch_size: Examples of a batch, for arrays.
            verbose: As in Keras.
            steps: Batches, or None for all.
            callbacks: As in Keras.

        Returns:
            Arrays of the model's outputs, in order.
        """
        data = StepAdapter(
            1, self.compute_dtype, (x, None, None), batch_size=batch_size, steps_per_epoch=steps
        )
        with self._on_its_devices():
            return super().predict(data, verbose=verbose, steps=steps, callbacks=callbacks)

    def predict_on_batch(self, x):
        """Predicts a batch; `keras.Model` returns it once for each replica."""
        return self.predict(x, batch_size=len(keras.tree.flatten(x)[0]), verbose=0)

    def make_train_function(self, force=False):
        """Makes the function that `fit` calls for `steps_per_execution` steps."""
        if self.train_function is None or force:
            self._check_compiled()
            self.train_function = backend_steps(self).train_function()
        if self.averages and int(ops.convert_to_numpy(self.step)) == 0:
            # Not in the constructor: weights may be loaded after it.
            for average, variable in zip(self.averages, self.trainable_variables, strict=True):
                average.assign(ops.convert_to_numpy(variable))
        return self.train_function

    def make_test_function(self, force=False):
        """Makes the function that `evaluate` calls."""
        if self.test_function is None or force:
            self._check_compiled()
            self.test_function = backend_steps(self).test_function()
        return self.test_function

    def predict_step(self, *arguments):
        """Predicts a batch; on JAX the first argument is the state."""
        *state, batch = arguments
        outputs = super().predict_step(*state, unpadded(batch))
        if self.distribution is None or self.distribution.num_processes == 1:
            return outputs
        return on_each_device(outputs, self.distribution)

    @property
    def strategy(self) -> tf.distribute.Strategy | keras.distribution.DataParallel | None:
        """What it was built under: a `tf.distribute` strategy, or on JAX a distribution or None."""
        return getattr(self, "distribute_strategy", self.distribution)

    def _on_its_devices(self):
        return self.distribution.scope() if self.distribution else contextlib.nullcontext()

    def _check_compiled(self):
        backend = keras.backend.backend()
        if backend not in ("tensorflow", "jax"):  # Its files are opened on any.
            raise ValueError(
                "The Trainer must run on Keras's TensorFlow or JAX backend; keras.Model.fit takes "
                f"the models on this one. Received: KERAS_BACKEND={backend}"
            )
        optimizer = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        for argument in ("gradient_accumulation_steps", "use_ema"):
            if getattr(optimizer, argument, None):
                raise ValueError(
                    "The Trainer accumulates gradients and averages weights itself, by its "
                    "gradient_accumulation_steps and ema_momentum. Received: an optimizer with "
                    f"{argument}={getattr(optimizer, argument)}"
                )
        reductions = {getattr(loss, "reduction", "mean") for loss in keras.tree.flatten(self.loss)}
        if not reductions <= set(MEANS) or (
            "mean_with_sample_weight" in reductions and len(reductions) > 1
        ):
            raise ValueError(
                "The loss must be a mean over examples, the same for every output: its "
                f"reduction one of {MEANS}. Received: {sorted(map(str, reductions))}"
            )
        if self.averages and len(self.averages) != len(self.trainable_variables):
            raise ValueError(
                "Set the trainable weights before building the Trainer, which keeps an average "
                f"of each. Received: {len(self.trainable_variables)} trainable weights and "
                f"{len(self.averages)} averages"
            )

    # Parts of a step, used by TensorFlowSteps and JAXSteps.

    @property
    def seed_states(self):
        """States of the model's random number generators."""
        weights = {id(weight) for weight in self.model.weights}
        return [v for v in self.model.variables if id(v) not in weights]

    @property
    def states_by_example(self):
        """The ids of the states whose layers draw by example, see `DrawsByExample`."""
        return {
            id(layer.seed_generator.state)
            for layer in all_layers(self.model)
            if isinstance(layer, DrawsByExample) and hasattr(layer, "seed_generator")
        }

    def draw_seeds(self, replica, first_example):
        """Returns a state for each generator, new in each step.

        A layer of this package gets the same on all replicas and in all micro-batches, and
        draws by example; another layer gets one for each of them.

        Args:
            replica: Number of the replica.
            first_example: Number of its first example among the examples of the step.
        """
        states = self.seed_states
        if not states:
            return []
        step = ops.stack([np.uint32(self.seed % 2**32), ops.cast(self.step, "uint32")])
        *shared, place = ops.unstack(philox((len(states) + 1, 2), step), len(states) + 1)
        place = place + ops.cast(ops.stack([replica, first_example]), "uint32")
        own = ops.unstack(philox((len(states), 2), place), len(states))
        by_example = self.states_by_example
        return [
            ops.cast(by_step if id(state) in by_example else by_place, state.dtype)
            for state, by_step, by_place in zip(states, shared, own, strict=True)
        ]

    def stateful_variables(self):
        """Returns the variables that a forward pass may change: statistics and metrics."""
        return [*self.model.non_trainable_weights, *self.metrics_variables]

    def loss_weight(self, x, sample_weight):
        """Returns the weight of a batch's mean loss: its examples, or the sum of their weights."""
        losses = keras.tree.flatten(self.loss)
        by_weight = getattr(losses[0], "reduction", None) == "mean_with_sample_weight"
        if by_weight and sample_weight is not None:
            return ops.cast(ops.sum(sample_weight), "float32")
        return ops.cast(ops.shape(keras.tree.flatten(x)[0])[0], "float32")

    def track_loss(self, loss, weight, good=True, stopped=False):
        """Adds a step to the epoch's mean loss.

        Args:
            loss: The mean loss of the step.
            weight: Its weight on this replica.
            good: Whether the step was taken; a skipped step does not count.
            stopped: Whether training must stop; the loss is then NaN.
        """
        loss = ops.where(stopped, math.nan, ops.where(good, loss, 0.0))
        weight = ops.where(ops.logical_or(good, stopped), weight, 0.0)
        loss_tracker(self).update_state(loss, sample_weight=weight)

    def check_finite(self, logs):
        """Raises `NonFiniteError` if the logs of a step have a loss that is not finite."""
        if "loss" in logs and not math.isfinite(float(logs["loss"])):
            self.synchronize()
            learning_rate = ops.convert_to_numpy(self.optimizer.learning_rate)
            step = int(ops.convert_to_numpy(self.step))
            raise NonFiniteError(step, float(learning_rate), self.last_checkpoint)

    # Averages and state.

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[keras.Model]:
        """Replaces the weights by their averages inside a `with` block.

        The weights are restored bit for bit, so that training continues unchanged.

        Yields:
            The model.

        Raises:
            ValueError: If the trainer keeps no averages.

        Example:
        >>> with trainer.averaged_weights() as model:
        ...     model.save("averaged.keras")
        """
        if not self.averages:
            raise ValueError(
                "There are no averages: build the trainer with ema_momentum=0.9999. "
                f"Received: ema_momentum={self.ema_momentum}"
            )
        self.synchronize()
        trained = [ops.convert_to_numpy(variable) for variable in self.trainable_variables]
        for variable, average in zip(self.trainable_variables, self.averages, strict=True):
            variable.assign(ops.convert_to_numpy(average))
        try:
            yield self.model
        finally:
            for variable, value in zip(self.trainable_variables, trained, strict=True):
                variable.assign(value)

    def state_variables(self) -> list[keras.Variable]:
        """Returns every variable that the next steps depend on."""
        if not self.optimizer.built:
            with self.strategy.scope() if self.strategy else contextlib.nullcontext():
                self.optimizer.build(self.trainable_variables)
        return [*self.weights, *self.optimizer.variables]

    def synchronize(self) -> None:
        """Updates the variables; on JAX `fit` keeps their values outside of them."""
        getattr(self, "jax_state_sync", lambda: None)()

    def get_config(self):
        names = ("gradient_accumulation_steps", "ema_momentum", "skip_nonfinite_steps", "seed")
        model = keras.saving.serialize_keras_object(self.model)
        return {**super().get_config(), "model": model, **arguments(self, *names)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Returns the trainer that `get_config` described."""
        model = keras.saving.deserialize_keras_object(
            config["model"], custom_objects=custom_objects
        )
        return cls(**{**with_present_names(config), "model": model})


def backend_steps(trainer):
    """Returns the train and test functions of the backend."""
    if keras.backend.backend() == "jax":
        from .jax_backend import JAXSteps

        return JAXSteps(trainer)
    from .tensorflow_backend import TensorFlowSteps

    return TensorFlowSteps(trainer)
