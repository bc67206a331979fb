"""Train and test steps on JAX, on one device or under `keras.distribution`."""

from __future__ import annotations

import itertools

import jax
import keras
from jax import numpy as jnp

from keras_vit.layers.random_numbers import examples_from

from .data_adapter import num_examples, unpadded


class JAXSteps:
    """The train and test functions of a trainer; `TensorFlowSteps` describes a step.

    XLA sums over devices: a batch is one array, whatever its sharding. The state is the
    lists of values that Keras's JAX trainer passes: trainable variables, non-trainable
    variables, optimizer variables (in training) and metrics variables.

    Args:
        trainer: A compiled `Trainer`.
    """

    def __init__(self, trainer):
        self.trainer = trainer

    def train_function(self):
        """Returns the function that `fit` calls, from state and data to logs and state."""
        trainer = self.trainer
        variables = self._variables(trainer.optimizer.variables)
        whole = self._compiled(self._train, variables)
        first = self._compiled(self._gradients, variables)
        further = self._compiled(self._add_gradients, variables)
        last = self._compiled(self._update, variables)

        def step(state, batches):
            if trainer.accumulation_steps == 1:
                return whole(state, batches[0])
            totals, state = first(state, batches[0], 0)
            examples = num_examples(batches[0])
            for batch in batches[1:]:
                totals, state = further(state, totals, batch, examples)
                examples += num_examples(batch)
            return last(state, totals)

        return self._function(step, trainer.accumulation_steps)

    def test_function(self):
        """Returns the function that `evaluate` calls, from state and data to logs and state."""
        test = self._compiled(self._test, self._variables())
        return self._function(lambda state, batches: test(state, batches[0]), 1)

    def _function(self, step, num_batches):
        def function(state, iterator):
            logs = None
            for _ in range(self.trainer.steps_per_execution):
                batches = list(itertools.islice(iterator, num_batches))
                if not batches:
                    break
                logs, state = step(state, batches)
            if logs is None:
                raise StopIteration
            return logs, state

        return function

    def _variables(self, optimizer_variables=None):
        lists = [self.trainer.trainable_variables, self.trainer.non_trainable_variables]
        if optimizer_variables is not None:
            lists.append(optimizer_variables)
        return [*lists, self.trainer.metrics_variables]

    def _compiled(self, function, variables):
        if self.trainer.run_eagerly or not self.trainer.jit_compile:
            return function
        shardings = None
        if keras.distribution.distribution() is not None:
            # Without this XLA may leave a weight on one device.
            shardings = (None, tuple([v.value.sharding for v in part] for part in variables))
        return jax.jit(function, donate_argnums=0, out_shardings=shardings)

    def _train(self, state, batch):
        totals, state = self._gradients(state, batch, 0)
        return self._update(state, totals)

    def _add_gradients(self, state, totals, batch, first_example):
        more, state = self._gradients(state, batch, first_example)
        return jax.tree.map(jnp.add, totals, more), state

    def _gradients(self, state, batch, first_example):
        """Returns the gradients times the weight, the loss times the weight, the weight."""
        trainer = self.trainer
        trainable, non_trainable, optimizer, metrics = state
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(unpadded(batch))
        variables = self._variables(trainer.optimizer.variables)

        with keras.StatelessScope(_mapping(variables, state)):
            seeds = trainer.draw_seeds(0, first_example)
            drawn = list(zip(trainer.seed_states, seeds, strict=True))

        def mean_loss(trainable):
            mapping = _mapping(variables, (trainable, *state[1:])) + drawn
            with (
                keras.StatelessScope(mapping, collect_losses=True) as scope,
                examples_from(first_example, num_examples(batch)),
            ):
                y_pred = trainer(x, training=True)
                loss = trainer.compute_loss(x, y, y_pred, sample_weight, training=True)
                scaled = trainer.optimizer.scale_loss(loss)
            changed = [
                [scope.get_current_value(v) for v in part]
                for part in (trainer.non_trainable_variables, trainer.metrics_variables)
            ]
            return scaled, (loss, y_pred, *changed)

        (_, (loss, y_pred, new, metrics)), gradients = jax.value_and_grad(mean_loss, has_aux=True)(
            trainable
        )
        seeds = {id(v) for v in trainer.seed_states}
        non_trainable = [
            before if id(v) in seeds else after
            for v, before, after in zip(
                trainer.non_trainable_variables, non_trainable, new, strict=True
            )
        ]
        state = (trainable, non_trainable, optimizer, metrics)
        with keras.StatelessScope(_mapping(variables, state)) as scope:
            trainer.compute_metrics(x, y, y_pred, sample_weight)
            weight = trainer.loss_weight(x, sample_weight)
        metrics = [scope.get_current_value(v) for v in trainer.metrics_variables]
        weighted = [gradient * weight.astype(gradient.dtype) for gradient in gradients]
        totals = (weighted, loss.astype("float32") * weight, weight)
        return totals, (trainable, non_trainable, optimizer, metrics)

    def _update(self, state, totals):
        """Takes the optimizer's step, unless a value is not finite; returns logs and state."""
        trainer = self.trainer
        trainable, non_trainable, optimizer, metrics = state
        gradients, loss, weight = totals
        divisor = jnp.where(weight == 0, 1, weight)
        loss = loss / divisor
        gradients = [gradient / divisor.astype(gradient.dtype) for gradient in gradients]
        finite = jnp.isfinite(loss)
        if not isinstance(trainer.optimizer, keras.optimizers.LossScaleOptimizer):
            # LossScaleOptimizer skips a step with infinity itself, and lowers its scale.
            finite &= jnp.isfinite(sum(jnp.sum(jnp.square(g.astype("float32"))) for g in gradients))
        variables = self._variables(trainer.optimizer.variables)
        with keras.StatelessScope(_mapping(variables, state)) as scope:
            limit = trainer.skip_nonfinite_steps
            skipped = keras.ops.convert_to_tensor(trainer.skipped_steps)
            running = skipped <= limit
            good = finite & running
            trainer.track_loss(loss, weight, good, skipped + (~finite).astype("int32") > limit)
            trainer.step.assign_add(running.astype("int32"))
            trainer.skipped_steps.assign_add((running & ~finite).astype("int32"))
            logs = trainer.get_metrics_result()
        non_trainable = [scope.get_current_value(v) for v in trainer.non_trainable_variables]
        metrics = [scope.get_current_value(v) for v in trainer.metrics_variables]

        stepped = trainer.optimizer.stateless_apply(optimizer, gradients, trainable)
        trainable, optimizer = jax.tree.map(
            lambda after, before: jnp.where(good, after, before), stepped, (trainable, optimizer)
        )
        if trainer.averages:
            # The same difference as on TensorFlow; a skipped step changes nothing.
            place = {id(v): i for i, v in enumerate(trainer.non_trainable_variables)}
            rate = jnp.where(good, 1 - trainer.averaging, 0.0)
            for average, weight in zip(trainer.averages, trainable, strict=True):
                old = non_trainable[place[id(average)]]
                change = (rate * (old - weight)).astype(old.dtype)
                non_trainable[place[id(average)]] = old - change
        return logs, (trainable, non_trainable, optimizer, metrics)

    def _test(self, state, batch):
        trainer = self.trainer
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(unpadded(batch))
        with (
            keras.StatelessScope(_mapping(self._variables(), state)) as scope,
            examples_from(0, num_examples(batch)),
        ):
            y_pred = trainer(x, training=False)
            loss = trainer.compute_loss(x, y, y_pred, sample_weight, training=False)
            weight = trainer.loss_weight(x, sample_weight)
            trainer.track_loss(loss, weight)
            trainer.compute_metrics(x, y, y_pred, sample_weight)
            logs = trainer.get_metrics_result()
        metrics = [scope.get_current_value(v) for v in trainer.metrics_variables]
        return logs, (*state[:2], metrics)


def _mapping(variables, state):
    return [
        (variable, value)
        for part, values in zip(variables, state, strict=True)
        for variable, value in zip(part, values, strict=True)
    ]
