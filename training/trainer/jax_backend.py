"""Training on JAX: devices of `keras.distribution`, and the steps on any number of them."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pathlib
from typing import Any

import jax
import keras
import numpy as np
from jax import numpy as jnp
from jax.experimental import multihost_utils

from keras_vit.layers.fused_attention import compute_capability
from keras_vit.layers.random_numbers import examples_from

from .data_adapter import num_examples, single_batches, unpadded

_AGREE_EVERY = 10  # Steps between two looks at the signals of other processes.
HEARTBEAT = 30  # Seconds without a sign of life after which a process is lost.
_MOST_COMPILED = 2 * 2**30  # Bytes of compiled programs on disk.


def choose(name: str, tpu: str | None = None) -> tuple[str, keras.distribution.DataParallel, str]:
    """Returns what "auto" stands for, the distribution, and its human-readable devices.

    JAX finds the devices of the machine itself: TPU cores, else GPUs, else CPU devices.

    Args:
        name: A name of `STRATEGIES`.
        tpu: Must be None: JAX uses the TPU of the machine that it runs on.

    Raises:
        ValueError: If JAX has no such device, or the name is one of TensorFlow's.
    """
    kind = jax.default_backend()
    count, processes = jax.device_count(), jax.process_count()
    if name == "multiworker" or tpu is not None or (name == "cpu" and processes > 1):
        received = f"strategy={name!r}, tpu={tpu!r}, {processes} processes"
        raise ValueError(
            "On the JAX backend the strategy must be auto, cpu for one process, mirrored or tpu; "
            "several processes share a run after jax.distributed.initialize, or by --coordinator. "
            f"A TPU by name needs KERAS_BACKEND=tensorflow. Received: {received}"
        )
    if name == "auto":
        name = {"tpu": "tpu", "cpu": "mirrored" if count > 1 else "cpu"}.get(kind, "mirrored")
    if name == "tpu" and kind != "tpu":
        raise ValueError(
            'strategy "tpu" needs a TPU, and the JAX that is built for TPUs. '
            f"Received: {count} {kind.upper()} of JAX"
        )
    if name == "mirrored" and kind == "cpu" and count == 1:
        raise ValueError(
            'strategy "mirrored" needs GPUs, or several CPU devices (XLA_FLAGS='
            '--xla_force_host_platform_device_count=2); on one CPU take "cpu". '
            "Received: no GPU, 1 CPU device"
        )
    devices = keras.distribution.list_devices("cpu" if name == "cpu" else None)
    if name == "cpu":
        return name, keras.distribution.DataParallel(devices=devices[:1]), f"{os.cpu_count()} cores"
    words = f"{count} {kind.upper()}{'s' if count > 1 else ''}"
    if processes > 1:
        words += f" of {processes} processes, this one {jax.process_index()}"
    return name, keras.distribution.DataParallel(devices=devices), words


def join(coordinator: str | None, processes: int | None, process: int | None) -> bool:
    """Joins this process with others, and returns whether it is the first.

    A process that is lost ends the others after at most `HEARTBEAT` seconds.

    Raises:
        ValueError: If they do not meet.
    """
    try:
        jax.distributed.initialize(
            coordinator, processes, process, heartbeat_timeout_seconds=HEARTBEAT
        )
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            "The processes must meet: --coordinator HOST:PORT of process 0, the same in all, with "
            "--processes and --process; or auto under SLURM, Open MPI or on a TPU pod. "
            f"Received: {' '.join(str(error).split())[:200]}"
        ) from error
    keras.utils.set_random_seed(0)  # JAX refuses weights that differ, before a run sets its seed.
    return is_chief()


def replicas_of(distribution: keras.distribution.DataParallel) -> int:
    """Returns the devices that share a batch."""
    return distribution.num_model_replicas


def worker_of(distribution: keras.distribution.DataParallel | None) -> tuple[int, int]:
    """Returns the number of this process, from 0, and how many processes there are."""
    return jax.process_index(), jax.process_count()


def is_chief() -> bool:
    """Returns whether this process writes files: it is the only one, or JAX's first."""
    return jax.process_index() == 0


def predictor_of(trainer: keras.Model) -> keras.Model:
    """Returns the model: `predict_batch` predicts on the devices that its weights lie on."""
    return trainer.model


def from_first(
    distribution: keras.distribution.DataParallel | None, numbers: np.ndarray
) -> np.ndarray:
    """Returns the numbers of the first process, in all processes."""
    sent = multihost_utils.broadcast_one_to_all(numbers.astype("int32"))
    return np.asarray(sent).astype("int64")


def leave(distribution: keras.distribution.DataParallel | None) -> None:
    """Waits for the other processes, for which a process that exits early is an error."""
    multihost_utils.sync_global_devices("the end of a run")


def agreed_signal(number: int, step: int) -> int:
    """Returns a signal of any process, the same in all of them; 0 for none.

    Every tenth step, as each of them waits for all others.

    Args:
        number: The signal that this process received, or 0.
        step: The step, in all processes.
    """
    if jax.process_count() == 1:
        return number
    if step % _AGREE_EVERY:
        return 0
    return int(multihost_utils.process_allgather(np.int32(number)).max())


def device_memory() -> int | None:
    """Returns the bytes that JAX has left on the first GPU or TPU core; None on a CPU.

    JAX takes most of the memory of a GPU when it starts, so the driver reports little as free.
    """
    memory = jax.local_devices()[0].memory_stats()
    return memory and memory["bytes_limit"] - memory["bytes_in_use"]


def keep_compiled_programs() -> None:
    """Keeps what JAX compiles for a GPU on disk, so that the next process need not compile it.

    By JAX's own options; a folder of the user's choice (JAX_COMPILATION_CACHE_DIR) stays, and
    JAX_ENABLE_COMPILATION_CACHE=false turns it off. The package `filelock` bounds the size.
    """
    config: Any = jax.config
    if compute_capability() is None or config.jax_compilation_cache_dir is not None:
        return
    place = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    folder = place / "keras_vit" / "compiled"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:  # No home to write to: the command compiles each time.
        return
    if importlib.util.find_spec("filelock") is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_compilation_cache_max_size", _MOST_COMPILED)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def has_bfloat16() -> bool:
    """Returns whether JAX computes on an NVIDIA GPU that has bfloat16."""
    return (compute_capability() or 0) >= 8


def is_out_of_memory(error: Exception) -> bool:
    """Returns whether a device had no memory left for an operation."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


def compiler_options() -> dict[str, bool] | None:
    """Returns XLA's options of a training step on a GPU; None elsewhere."""
    if compute_capability() is None:
        return None
    # cuBLAS's products of matrices are faster than XLA's own at the sizes of these models.
    return {"xla_gpu_enable_triton_gemm": False}


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
            if trainer.gradient_accumulation_steps == 1:
                return whole(state, batches[0])
            totals, state = first(state, batches[0], 0)
            examples = num_examples(batches[0])
            for batch in batches[1:]:
                totals, state = further(state, totals, batch, examples)
                examples += num_examples(batch)
            return last(state, totals)

        return self._function(step, trainer.gradient_accumulation_steps)

    def test_function(self):
        """Returns the function that `evaluate` calls, from state and data to logs and state."""
        test = self._compiled(self._test, self._variables())
        return self._function(lambda state, batches: test(state, batches[0]), 1)

    def _function(self, step, num_batches):
        def function(state, iterator):
            logs, iterator = None, single_batches(iterator)
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
        return jax.jit(
            function, donate_argnums=0, out_shardings=shardings, compiler_options=compiler_options()
        )

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

        gradients_of = jax.value_and_grad(mean_loss, has_aux=True)
        (_, (loss, y_pred, new, metrics)), gradients = gradients_of(trainable)
        seeds = {id(v) for v in trainer.seed_states}
        changes = zip(trainer.non_trainable_variables, non_trainable, new, strict=True)
        non_trainable = [before if id(v) in seeds else after for v, before, after in changes]
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
            rate = jnp.where(good, 1 - trainer.ema_momentum, 0.0)
            for average, weight in zip(trainer.averages, trainable, strict=True):
                old = non_trainable[place[id(average)]]
                change = (rate * (old - weight)).astype(old.dtype)
                non_trainable[place[id(average)]] = old - change
        return logs, (trainable, non_trainable, optimizer, metrics)

    def _test(self, state, batch):
        trainer = self.trainer
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(unpadded(batch))
        with (
            keras.StatelessScope(_mapping(self._variables(), state), collect_losses=True) as scope,
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
