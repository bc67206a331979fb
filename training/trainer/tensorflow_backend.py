"""Training on TensorFlow: devices, strategies and workers, and the steps on any number of them."""

from __future__ import annotations

import itertools
import json
import os
import subprocess

import keras
import numpy as np
import tensorflow as tf

from keras_vit._installation import install_command
from keras_vit.keras_private import unscale_loss, without_gradient_summing
from keras_vit.layers.random_numbers import examples_from
from keras_vit.models.outputs import pad_rows

# Device files of a machine with TPU cores.
TPU_DEVICES = ("dev/accel0", "dev/vfio/0")


def choose(name: str, tpu: str | None = None) -> tuple[str, tf.distribute.Strategy, str]:
    """Returns what "auto" stands for, the strategy, and its human-readable devices.

    Args:
        name: A name of `STRATEGIES`.
        tpu: Name or address of a TPU; see `keras_vit.training.strategy`.

    Raises:
        ValueError: If the device is not found; the error lists what was tried.
    """
    is_local = any(os.path.exists(f"/{device}") for device in TPU_DEVICES)
    address = tpu or os.environ.get("TPU_NAME") or ("local" if is_local else None)
    chosen = _best(address) if name == "auto" else name
    if chosen == "tpu":
        return (chosen, *_tpu(address))
    makers = {"multiworker": _multiworker, "mirrored": _mirrored, "cpu": _cpu}
    return (chosen, *makers[chosen]())


def _best(tpu_address):
    if tpu_address:
        return "tpu"
    if len(_workers()) > 1:
        return "multiworker"
    return "mirrored" if tf.config.list_logical_devices("GPU") else "cpu"


def _tpu(address):
    if address is None:
        raise ValueError(
            "No TPU was found. Looked for: the argument tpu, TPU_NAME in the environment, and "
            f"{' or '.join('/' + device for device in TPU_DEVICES)} on this machine. Received: "
            "none of them"
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
        if address != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        made = tf.distribute.TPUStrategy(resolver)
    except (ValueError, OSError, RuntimeError, tf.errors.OpError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"The TPU {address!r} does not answer, or this TensorFlow, {tf.__version__}, is not "
            f"built for TPUs ({install_command('tpu')}). Received: {reason}"
        ) from error
    return made, f"TPU {address!r}"


def _mirrored():
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if len(devices) == 1 and devices[0].device_type == "GPU":
        return tf.distribute.get_strategy(), "1 GPU"
    if len(devices) == 1:
        raise ValueError(
            'strategy "mirrored" needs GPUs, or several logical CPU devices (see '
            'tf.config.set_logical_device_configuration); on one CPU take "cpu". '
            "Received: no GPU, 1 CPU device"
        )
    made = tf.distribute.MirroredStrategy([device.name for device in devices])
    return made, f"{len(devices)} {devices[0].device_type}s"


def _multiworker():
    workers = _workers()
    if not workers:
        raise ValueError(
            'strategy "multiworker" needs TF_CONFIG in the environment of every worker, such as '
            '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
            '"task": {"type": "worker", "index": 0}}. '
            f"Received: TF_CONFIG={os.environ.get('TF_CONFIG')!r}"
        )
    made = tf.distribute.MultiWorkerMirroredStrategy()
    index = made.cluster_resolver.task_id
    return made, f"worker {index} of {len(workers)}, {', '.join(workers)}"


def _cpu():
    cores = os.cpu_count()
    if tf.config.list_logical_devices("GPU"):
        return tf.distribute.OneDeviceStrategy("/CPU:0"), f"{cores} cores"
    return tf.distribute.get_strategy(), f"{cores} cores"


def _workers():
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
        cluster = config.get("cluster", {})
        return [*cluster.get("chief", []), *cluster.get("worker", [])]
    except (ValueError, AttributeError) as error:
        raise ValueError(
            "TF_CONFIG in the environment must be a JSON object with a cluster and a task. "
            f"Received: TF_CONFIG={os.environ['TF_CONFIG']!r}"
        ) from error


def is_chief() -> bool:
    """Returns whether this process writes files: it is the only one, or TF_CONFIG's first.

    Raises:
        ValueError: If TF_CONFIG is not a JSON object.
    """
    if len(_workers()) < 2:
        return True
    config = json.loads(os.environ["TF_CONFIG"])
    task = config.get("task", {})
    has_chief = bool(config["cluster"].get("chief"))
    return task.get("type") == ("chief" if has_chief else "worker") and not task.get("index")


def worker_of(strategy: tf.distribute.Strategy | None) -> tuple[int, int]:
    """Returns the number of this worker, from 0, and how many workers there are."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 0, 1
    resolver = strategy.cluster_resolver
    jobs = resolver.cluster_spec().as_dict()
    chiefs = len(jobs.get("chief", ()))  # It is the first worker.
    number = (resolver.task_id or 0) + (chiefs if resolver.task_type == "worker" else 0)
    return number, chiefs + len(jobs.get("worker", ()))


def replicas_of(strategy: tf.distribute.Strategy) -> int:
    """Returns the devices that share a batch."""
    return strategy.num_replicas_in_sync


def from_first(strategy: tf.distribute.Strategy, numbers: np.ndarray) -> np.ndarray:
    """Returns the numbers of the first worker, in all workers; the others have zeros."""
    summed = strategy.reduce("SUM", strategy.run(lambda: tf.constant(numbers)), axis=None)
    return summed.numpy() // (strategy.num_replicas_in_sync // worker_of(strategy)[1])


def leave(strategy: tf.distribute.Strategy) -> None:
    """Waits for the other workers, for which a process that exits early is an error."""
    strategy.reduce("SUM", strategy.run(lambda: tf.constant(1)), axis=None)


def agreed_signal(number: int, step: int) -> int:
    """Returns the number: workers of TensorFlow do not agree on signals."""
    return number


def predictor_of(trainer: keras.Model) -> keras.Model | _ReplicaPredictor:
    """Returns the model, or on several replicas an object that predicts on all of them."""
    strategy = trainer.strategy
    if strategy.num_replicas_in_sync == 1:
        return trainer.model
    return _ReplicaPredictor(trainer.model, strategy)


class _ReplicaPredictor:
    """Prediction of a batch in parts, one on each replica of this process.

    Keras's `predict_on_batch` gives every replica the whole batch. Several workers do not
    wait for each other: each of them predicts the whole batch.
    """

    def __init__(self, model, strategy):
        self.strategy = strategy
        self.replicas = len(strategy.extended.worker_devices)
        self.predict = tf.function(
            lambda parts: strategy.run(lambda part: model(part, training=False), (parts,)),
            autograph=False,
        )

    def predict_on_batch(self, images):
        """Returns the outputs as an array, in order."""
        images = np.asarray(images)
        parts = np.split(pad_rows(images, self.replicas), self.replicas)
        given = self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group % self.replicas])
        )
        outputs = self.strategy.experimental_local_results(self.predict(given))
        return np.concatenate([np.asarray(part) for part in outputs])[: len(images)]


def device_memory() -> int | None:
    """Returns the free bytes of the first GPU; None without one."""
    if not tf.config.list_physical_devices("GPU"):
        return None
    query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        return int(answer.split()[0]) * 2**20
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return 8 * 2**30  # Not an NVIDIA GPU, or not visible: a usual size.


def has_bfloat16() -> bool:
    """Returns whether the first GPU computes in bfloat16; False without one."""
    found = tf.config.list_physical_devices("GPU")
    details = tf.config.experimental.get_device_details(found[0]) if found else {}
    return details.get("compute_capability", (0, 0)) >= (8, 0)


def is_out_of_memory(error: Exception) -> bool:
    """Returns whether a device had no memory left for an operation."""
    return isinstance(error, tf.errors.ResourceExhaustedError)


class TensorFlowSteps:
    """The train and test functions of a trainer.

    A train step has three parts:

    1. Each replica computes the mean gradient of its examples, times their number, and adds
       up its micro-batches (`_weighted_gradients`, `_accumulate`).
    2. The sums of all replicas are added and divided by the number of examples, so that
       neither the number of replicas nor the sizes of their batches matter
       (`_mean_gradients`).
    3. If everything is finite, each replica clips the same gradient and takes the same step
       (`_apply`).

    Batches are drawn inside the compiled function. At the end of the data a step takes the
    remaining batches.

    Args:
        trainer: A compiled `Trainer`.
    """

    def __init__(self, trainer):
        self.trainer = trainer
        self.strategy = trainer.distribute_strategy
        self.differentiate, self.predict = self._differentiate, self._predict
        if trainer.jit_compile:
            # Without the sum over replicas, which XLA does not compile on CPUs and GPUs.
            self.differentiate = tf.function(self._differentiate, autograph=False, jit_compile=True)
            self.predict = tf.function(self._predict, autograph=False, jit_compile=True)
        self.accumulators = []
        # Whether a batch is a whole step: its mean is then the step's and needs no weight.
        replicas = self.strategy.num_replicas_in_sync
        self.is_whole = replicas * trainer.gradient_accumulation_steps == 1

    def train_function(self):
        """Returns the function that `fit` calls, from a data iterator to logs."""
        if self.trainer.gradient_accumulation_steps > 1:
            self.accumulators = self._make_accumulators()
        return self._function(self._draw_and_train, self._train_on)

    def test_function(self):
        """Returns the function that `evaluate` calls, from a data iterator to logs."""
        return self._function(
            lambda iterator: self._draw(iterator, self._test), lambda data: self._test(data[0])
        )

    def _function(self, draw_and_run, run_on):
        def compiled(function):
            return function if self.trainer.run_eagerly else tf.function(function, autograph=False)

        executions = self.trainer.steps_per_execution

        @compiled
        def on_iterator(iterator):
            def repeat(steps, _):
                batches = draw_and_run(iterator)
                return steps + tf.minimum(batches, 1), batches > 0

            steps, _ = tf.while_loop(
                lambda steps, more: more & (steps < executions), repeat, (0, True)
            )
            return steps, self.trainer.get_metrics_result()

        @compiled
        def on_batches(batches):
            run_on([_without_optionals(batch) for batch in batches])
            return self.trainer.get_metrics_result()

        def function(iterator):
            if isinstance(iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)):
                steps, logs = on_iterator(iterator)
                if steps == 0:
                    raise StopIteration
                return logs
            batches = list(itertools.islice(iterator, self.trainer.gradient_accumulation_steps))
            return on_batches(
                keras.tree.map_structure(
                    lambda part: None if part is None else tf.convert_to_tensor(part), batches
                )
            )

        return function

    # Across replicas.

    def _draw(self, iterator, run):
        """Draws a batch and runs a function on it; returns the number of batches, 1 or 0."""
        batch = iterator.get_next_as_optional()

        def run_on_batch():
            run(_without_optionals(batch.get_value()))
            return 1

        return tf.cond(batch.has_value(), run_on_batch, lambda: 0)

    def _draw_and_train(self, iterator):
        if not self.accumulators:
            return self._draw(iterator, lambda batch: self._train_on([batch]))

        def accumulate(batches, _):
            drawn = self._draw(iterator, self._accumulate)
            return batches + drawn, drawn > 0

        wanted = self.trainer.gradient_accumulation_steps
        batches, _ = tf.while_loop(
            lambda batches, more: more & (batches < wanted), accumulate, (0, True)
        )
        tf.cond(batches > 0, self._update_from_accumulators, lambda: 0)
        return batches

    def _train_on(self, batches):
        if not self.accumulators:
            self._update(self.strategy.run(self._weighted_gradients, (batches[0],)))
            return
        for batch in batches:
            self._accumulate(batch)
        self._update_from_accumulators()

    def _accumulate(self, batch):
        def add(batch):
            totals = self._weighted_gradients(batch)
            for accumulator, total in zip(self.accumulators, totals, strict=True):
                accumulator.assign_add(tf.cast(total, accumulator.dtype))

        self.strategy.run(add, (batch,))

    def _update_from_accumulators(self):
        def take():
            totals = [accumulator.read_value() for accumulator in self.accumulators]
            with tf.control_dependencies(totals):
                for accumulator in self.accumulators:
                    accumulator.assign(tf.zeros_like(accumulator))
            return totals

        self._update(self.strategy.run(take))
        return 0

    def _update(self, totals):
        """Takes the optimizer's step, unless a value is not finite."""
        trainer = self.trainer
        skipped = tf.convert_to_tensor(trainer.skipped_steps)
        running = skipped <= trainer.skip_nonfinite_steps
        gradients, good = self.strategy.run(self._mean_gradients, (totals, skipped))
        good = self.strategy.experimental_local_results(good)[0]

        def step():
            with without_gradient_summing(trainer.optimizer):
                self.strategy.run(self._apply, (gradients,))
            for average, variable in zip(
                trainer.averages, trainer.trainable_variables, strict=False
            ):
                self.strategy.extended.update(
                    average.value, self._average, args=(variable.value,), group=False
                )
            return 0

        tf.cond(good, step, lambda: 0)
        trainer.step.assign_add(tf.cast(running, trainer.step.dtype))
        trainer.skipped_steps.assign_add(tf.cast(running & ~good, "int32"))

    def _average(self, average, variable):
        average.assign_sub((1 - self.trainer.ema_momentum) * (average - variable))

    def _test(self, batch):
        self.strategy.run(self._test_on_replica, (batch,))

    # On one replica.

    def _weighted_gradients(self, batch):
        """Returns sums for the step: gradients and loss times weight, the weight, examples."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        first = self._first_example(x)
        seeds = self.trainer.draw_seeds(replica, first)
        gradients, loss, y_pred, updates = self.differentiate(x, y, sample_weight, seeds, first)
        for variable, value in zip(self.trainer.stateful_variables(), updates, strict=True):
            if value is not None:
                variable.assign(value)
        self.trainer.compute_metrics(x, y, y_pred, sample_weight)
        weight = self.trainer.loss_weight(x, sample_weight)
        if not self.is_whole:
            gradients = [g * tf.cast(weight, g.dtype) for g in gradients]
        return [*gradients, loss * weight, weight, tf.cast(_num_examples(x), "float32")]

    def _first_example(self, x):
        """Returns the number of this replica's first example among the examples of the step."""
        before = self.accumulators[-1].read_value() if self.accumulators else tf.constant(0.0)
        replicas = self.strategy.num_replicas_in_sync
        if replicas > 1 and self.trainer.states_by_example:
            context = tf.distribute.get_replica_context()
            replica = context.replica_id_in_sync_group
            counts = tf.one_hot(replica, replicas) * tf.cast(_num_examples(x), "float32")
            before, counts = context.all_reduce(tf.distribute.ReduceOp.SUM, [before, counts])
            before += tf.reduce_sum(tf.where(tf.range(replicas) < replica, counts, 0.0))
        return tf.cast(before, "int32")

    def _differentiate(self, x, y, sample_weight, seeds, first_example):
        trainer = self.trainer
        mapping = list(zip(trainer.seed_states, seeds, strict=True))
        with _examples_from(first_example, x):  # Around the gradient too, which computes again.
            with (
                tf.GradientTape() as tape,
                keras.StatelessScope(mapping + _penalized(trainer), collect_losses=True) as scope,
            ):
                y_pred = self._outputs(x)
                loss = trainer.compute_loss(x, y, y_pred, sample_weight, training=True)
                loss = unscale_loss(loss)
                scaled = trainer.optimizer.scale_loss(loss)
            gradients = tape.gradient(
                scaled,
                [variable.value for variable in trainer.trainable_variables],
                unconnected_gradients=tf.UnconnectedGradients.ZERO,  # As in JAX.
            )
        updates = [scope.get_current_value(v) for v in trainer.stateful_variables()]
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        return gradients, tf.cast(loss, "float32"), y_pred, updates

    def _outputs(self, x):
        """Returns the model's outputs, which are empty on a replica without examples.

        Its model sees one example of zeros, whose outputs are cut off: on CPUs the gradient of
        a max pool (oneDNN) ends the process where there is no example.
        """
        if self.strategy.num_replicas_in_sync == 1 or self.trainer.jit_compile:
            return self.trainer(x, training=True)
        rows = _num_examples(x)

        def not_empty(part):
            one = tf.concat([[1], tf.shape(part)[1:]], axis=0)
            return tf.ensure_shape(
                tf.cond(rows > 0, lambda: part, lambda: tf.zeros(one, part.dtype)), part.shape
            )

        outputs = self.trainer(keras.tree.map_structure(not_empty, x), training=True)
        return keras.tree.map_structure(lambda part: part[:rows], outputs)

    def _mean_gradients(self, totals, skipped):
        """Returns the mean over all examples, and whether the step may be taken."""
        trainer = self.trainer
        weight_here = totals[-2]
        context = tf.distribute.get_replica_context()
        *gradients, loss, weight, _ = context.all_reduce(tf.distribute.ReduceOp.SUM, totals)
        loss = tf.math.divide_no_nan(loss, weight)
        if not self.is_whole:
            gradients = [tf.math.divide_no_nan(g, tf.cast(weight, g.dtype)) for g in gradients]
        finite = tf.math.is_finite(loss)
        if not isinstance(trainer.optimizer, keras.optimizers.LossScaleOptimizer):
            # LossScaleOptimizer skips a step with infinity itself, and lowers its scale.
            squares = [tf.reduce_sum(tf.square(tf.cast(g, "float32"))) for g in gradients]
            finite &= tf.math.is_finite(tf.add_n(squares))
        good = finite & (skipped <= trainer.skip_nonfinite_steps)
        stopped = skipped + tf.cast(~finite, "int32") > trainer.skip_nonfinite_steps
        trainer.track_loss(loss, weight_here, good, stopped)
        return gradients, good

    def _apply(self, gradients):
        self.trainer.optimizer.apply(gradients, self.trainer.trainable_variables)

    def _test_on_replica(self, batch):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        loss, y_pred = self.predict(x, y, sample_weight, self._first_example(x))
        weight = self.trainer.loss_weight(x, sample_weight)
        self.trainer.track_loss(loss, weight)
        self.trainer.compute_metrics(x, y, y_pred, sample_weight)

    def _predict(self, x, y, sample_weight, first_example):
        with _examples_from(first_example, x):
            y_pred = self.trainer(x, training=False)
            loss = self.trainer.compute_loss(x, y, y_pred, sample_weight, training=False)
        return tf.cast(unscale_loss(loss), "float32"), y_pred

    def _make_accumulators(self):
        trained = [(v.shape, v.dtype) for v in self.trainer.trainable_variables]
        with self.strategy.scope():
            return [
                tf.Variable(
                    tf.zeros(shape, dtype),
                    trainable=False,
                    synchronization=tf.VariableSynchronization.ON_READ,
                    aggregation=tf.VariableAggregation.SUM,
                )
                for shape, dtype in [*trained, *[((), "float32")] * 3]
            ]


def _penalized(trainer):
    """Returns the weights that have a regularizer, and their values.

    Keras passes a regularizer what the stateless scope holds, which is None for other weights.
    """
    return [(v, v.value) for v in trainer.trainable_variables if v.regularizer is not None]


def _num_examples(x):
    return tf.shape(keras.tree.flatten(x)[0])[0]


def _examples_from(first, x):
    return examples_from(first, tf.maximum(_num_examples(x), 1))  # A replica may have none.


def _without_optionals(batch):
    """Returns a batch with None instead of the empty optionals of tf.data."""
    return keras.tree.map_structure(
        lambda part: None if isinstance(part, tf.experimental.Optional) else part, batch
    )
