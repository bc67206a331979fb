"""A short run on two devices of JAX; started by tests/test_backends.py."""

import os
import shlex
import signal

import keras
import numpy as np
import pytest

from keras_vit.opening import open_predictor
from keras_vit.training import SGD, SoftmaxCrossentropy, Trainer, strategy
from keras_vit.utils.progress import ProgressBar

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="a run on JAX")
RECIPE = (
    "--image-size 8 --batch-size 4 --accumulate 1 --steps 4 --evaluate-every 4 --warmup-steps 1 "
    "--learning-rate 0.05 --validation 0.25 --ema-momentum 0.5 --dropout-rate 0.1 "
    "--augmentation jitter --strategy mirrored"
)
UPDATE = ProgressBar.update


def interrupt_at_2(self, n=1):
    if getattr(self, "unit", "") == " steps" and self.n + n == 2:
        os.kill(os.getpid(), signal.SIGINT)  # Noticed after step 3.
    return UPDATE(self, n)


@pytest.fixture
def finetune(command, tiny, colors):
    """Returns a function that trains to an output, stopped after step 3 or not."""

    def call(output, *more, stop=False):
        given = ["finetune", "--data", colors, "--weights", tiny, "--output", output]
        with pytest.MonkeyPatch.context() as patch:
            if stop:
                patch.setattr(ProgressBar, "update", interrupt_at_2)
            outcome = command(*given, *RECIPE.split(), *more)
        assert outcome.code == (130 if stop else 0), outcome.err
        return outcome

    return call


@pytest.mark.any_backend
def test_a_run_is_stopped_continued_and_evaluated_and_predicts(command, finetune, colors, tmp_path):
    folder = tmp_path / "colors"
    stopped = finetune(folder, stop=True)
    assert "strategy: mirrored, 2 CPUs; replicas: 2" in stopped.out
    again = command(*shlex.split(stopped.err.rpartition("Go on with: keras-vit ")[2]))
    assert again.code == 0, again.err
    assert "after step 3" in again.out

    evaluated = command("evaluate", folder, "--data", colors)
    classifier = open_predictor(folder)
    top_1 = classifier.recipe["test"]["top_1"]
    assert f"top-1   {100 * top_1:.1f}%" in evaluated.out, evaluated.err
    assert "jax" in classifier.recipe["versions"]
    files = sorted((colors / "test").rglob("*.png"))
    predicted = command("predict", folder, *files, "--top", 3, "--format", "json")
    assert predicted.code == 0, predicted.err
    # For tests/test_backends.py, which compares it with TensorFlow's.
    (folder / "predicted.txt").write_text(f"{folder}\n{predicted.out}")


@pytest.mark.any_backend
def test_what_jax_has_not_is_refused_in_one_line(refused, tiny, colors, tmp_path):
    line = refused("export", tiny, "--output", tmp_path / "export", "--to", "saved_model")
    assert "backend tensorflow" in line
    given = ["finetune", "--data", colors, "--weights", tiny, "--output", tmp_path / "out"]
    assert "strategy must be auto" in refused(*given, "--strategy", "multiworker")
    assert "needs a TPU" in refused(*given, "--strategy", "tpu")


@pytest.mark.any_backend_slow
def test_a_resumed_run_ends_bit_for_bit_the_same(command, finetune, tmp_path):
    everything = ("--accumulate", 2, "--remat", "--weight-decay", 0.1, "--mixup", 0.2)
    stopped = finetune(tmp_path / "stopped", *everything, stop=True)
    again = command(*shlex.split(stopped.err.rpartition("Go on with: keras-vit ")[2]))
    assert again.code == 0, again.err
    finetune(tmp_path / "whole", *everything)
    one, other = (open_predictor(tmp_path / name).model for name in ("whole", "stopped"))
    for weight, expected in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), expected.numpy())


@pytest.mark.any_backend_slow
def test_fit_spreads_a_batch_over_the_devices_that_the_trainer_was_built_on():
    with strategy("auto", verbose=False).scope():
        layers = [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(3)]
        trainer = Trainer(keras.Sequential(layers))
        trainer.compile(SGD(0.1), SoftmaxCrossentropy(), metrics=["accuracy"])
    images, labels = np.ones((7, 8, 8, 3), "float32"), np.arange(7) % 3
    trainer.fit(images, labels, verbose=0)
    step, shapes = trainer.train_function, []

    def recorded(state, iterator):
        padded = next(iterator)
        shapes.extend(shard.data.shape[0] for shard in padded.batch[0].addressable_shards)
        return step(state, iter([padded]))

    trainer.train_function = recorded
    trainer.fit(images, labels, verbose=0)
    assert shapes == [4, 4]  # One row is padding.
    assert len(trainer.trainable_variables[0].value.sharding.device_set) == 2
