"""Inference and training steps of a model at any batch size, timed, with their peak memory."""

from __future__ import annotations

import gc
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.models.build import build
from keras_vit.training.data.examples import without_autotune
from keras_vit.training.machine import peak_memory, seconds_of
from keras_vit.training.run.trainer_setup import make_trainer
from keras_vit.training.run.transfer import dtype_policy
from keras_vit.training.settings import FineTuning
from keras_vit.training.trainer.devices import backend_devices

CLASSES = 1000
LONG = 4  # Warm-up hardly changes a step that takes this many times a run's seconds.


class CostSteps:
    """Steps of a model at any batch size, with one compiled function for all.

    Inference is a forward pass to probabilities. Training is a step of the paper's
    fine-tuning (`keras_vit.training.run`): forward, backward, clipping, SGD with
    momentum.

    Args:
        model: A config, or a name of `keras_vit.list_models()`.
        image_size: Pixels per side.
        mode: "inference" or "training".
        precision: "float32", "mixed_bfloat16" or "mixed_float16".
        classes: Classes of the head.

    Raises:
        MemoryError: If there is no memory for one image.
    """

    def __init__(
        self,
        model: str | ViTConfig | BiTConfig,
        image_size: int,
        mode: str = "inference",
        precision: str = "float32",
        *,
        classes: int = CLASSES,
    ):
        self.model, self.classes = model, classes
        self.image_size, self.precision = image_size, precision
        self.devices = backend_devices()
        with dtype_policy(precision):
            make = self._inference if mode == "inference" else self._training
            self.step_of: Callable[[int], Callable[[], object]] = make()
        try:
            self.step_of(1)()  # Compiles.
        except Exception as error:
            if not self.devices.is_out_of_memory(error):
                raise
            raise MemoryError(str(error)) from error

    def time(
        self, batch_size: int, runs: int, min_seconds: float
    ) -> tuple[list[float], int] | None:
        """Returns the images per second of each run, and the peak memory.

        The first step warms up; if one run is wanted and the step is long, it is the run.
        Otherwise a run has as many steps as fill `min_seconds`.

        Args:
            batch_size: Images per step.
            runs: Timed runs; 0 runs only the first step.
            min_seconds: Duration of a run.

        Returns:
            The rates and bytes, or None if there is not enough memory.
        """
        step: Callable[[], object] | None = None
        try:
            step = self.step_of(batch_size)
            if runs and keras.backend.backend() == "jax":
                step()  # Compiles for this batch size.
            once = seconds_of(step)
            if runs == 1 and once >= LONG * min_seconds:
                rates = [batch_size / once]
            else:
                rates = self._rates(step, batch_size, runs, min_seconds)
        except Exception as error:
            if not self.devices.is_out_of_memory(error):
                raise
            return None
        finally:
            step = None
            gc.collect()
        return rates, self._peak_memory()

    def _rates(self, step, batch_size, runs, min_seconds):
        if not runs:
            return []
        count = max(1, round(min_seconds / seconds_of(step)))
        return [
            batch_size * count / seconds_of(lambda: [step() for _ in range(count)])
            for _ in range(runs)
        ]

    def _peak_memory(self):
        if self.devices.device_name() != "CPU":
            return self.devices.peak_device_memory()
        return peak_memory() * 2**20

    def _inference(self):
        shape = (self.image_size, self.image_size, 3)
        model = build(self.model, input_shape=shape, classes=self.classes)
        if keras.backend.backend() == "jax":
            from keras_vit.training.trainer.jax_steps import inference_function

            call = inference_function(model)
        else:
            call = tf.function(
                lambda images: model(images, training=False),
                input_signature=[tf.TensorSpec((None, *shape))],
                autograph=False,
            )

        def step_of(batch_size):
            images = keras.random.uniform((batch_size, *shape))
            return lambda: np.asarray(call(images))

        return step_of

    def _training(self):
        size = self.image_size
        # A tiny learning rate: training on noise must not diverge.
        settings = FineTuning(
            model=self.model,
            image_size=size,
            precision=self.precision,
            learning_rate=1e-6,
            accumulate=1,
        ).resolve(num_images=1)
        model = build(
            self.model,
            input_shape=(size, size, 3),
            classes=self.classes,
            classifier_activation=None,
        )
        trainer = make_trainer(model, settings)
        example = tf.random.uniform((size, size, 3)), tf.constant(0, "int64")
        if keras.backend.backend() == "jax":
            from keras_vit.training.trainer.jax_steps import training_function

            train = training_function(trainer, *(part[tf.newaxis].numpy() for part in example))
        else:
            train = trainer.make_train_function()

        def step_of(batch_size):
            # As in `fit`, the batch size is unknown to the compiled function of TensorFlow.
            batches = tf.data.Dataset.from_tensors(example).repeat().batch(batch_size)
            batches = without_autotune(batches)
            is_jax = keras.backend.backend() == "jax"
            drawn = batches.as_numpy_iterator() if is_jax else iter(batches)
            return lambda: [np.asarray(value) for value in train(drawn).values()]

        return step_of
