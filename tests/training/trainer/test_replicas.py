import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # tests/training/trainer/test_exactness.py trains on two replicas.

PROGRAM = pathlib.Path(__file__).parent / "programs" / "replicas.py"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What the program printed, run in a process that has two devices."""
    command = [sys.executable, str(PROGRAM), str(tmp_path_factory.mktemp("states"))]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_replicas_draw_other_masks_in_layers_of_keras_and_repeat_them(outcomes):
    (one, other), again, later = outcomes["masks"]
    assert one != other
    assert again == [one, other]
    assert later[0] not in (one, other)
    assert outcomes["training repeats"]


def test_keras_fit_on_replicas_draws_the_masks_of_one_device(outcomes):
    one, two = outcomes["plain fit with dropout"]
    assert one == pytest.approx(two, abs=1e-6)


def test_not_a_number_on_one_replica_stops_all(outcomes):
    step, learning_rate, finite = outcomes["stop at nan"]
    assert step == 2
    assert learning_rate == pytest.approx(0.1)
    assert finite


def test_half_precision_scales_the_loss_and_learns(outcomes):
    first, last, steps = outcomes["half precision"]
    assert 20 <= steps < 24  # The first of 24 overflow, and lower the scale.
    assert last < first - 0.02


def test_a_state_restores_every_replica(outcomes):
    assert outcomes["resumed"] == [4, True]


def test_a_hybrid_trains_where_a_replica_has_no_example(outcomes):
    assert outcomes["hybrid without examples"] < 1e-5  # float32, 3 steps.


def test_distillation_in_micro_batches_on_replicas_gives_the_weights_of_one_device(outcomes):
    assert outcomes["distillation"] < 1e-5  # float32, 4 steps.


def test_tensorflow_still_aborts_in_the_gradient_of_an_empty_max_pool():
    code = """
import tensorflow as tf

@tf.function(input_signature=[tf.TensorSpec((None, 8, 8, 4))])
def gradient(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = tf.reduce_sum(tf.nn.max_pool2d(x, 3, 2, "SAME"))
    return tape.gradient(total, x)

gradient(tf.zeros((0, 8, 8, 4)))
"""
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert done.returncode < 0, mended("TensorFlowSteps._outputs", done.returncode)


def mended(what, outcome):
    return f"Keras has mended it, remove the workaround: {what}. Received: {outcome}"


def test_keras_still_clips_each_replica_alone(outcomes):
    keras = outcomes["keras"]
    difference = max(
        abs(one - two)
        for one, two in zip(keras["clipped, one"], keras["clipped, two"], strict=True)
    )
    assert difference > 1e-3, mended("without_gradient_summing", difference)


def test_keras_still_averages_the_first_batch_over_replicas(outcomes):
    outcome = outcomes["keras"]["uneven"]
    assert isinstance(outcome, str), mended("SymbolicBuild", outcome)


def test_keras_still_takes_one_step_at_a_time_on_replicas(outcomes):
    outcome = outcomes["keras"]["steps_per_execution"]
    assert isinstance(outcome, str), mended("TensorFlowSteps' own loop", outcome)


def test_keras_still_cannot_accumulate_on_replicas(outcomes):
    outcome = outcomes["keras"]["accumulation"]
    assert isinstance(outcome, str), mended("TensorFlowSteps' own accumulators", outcome)


@pytest.mark.slow
def test_keras_still_cannot_spread_an_uneven_batch_over_jax_devices():
    code = """
import keras, numpy as np
keras.distribution.set_distribution(keras.distribution.DataParallel())
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
try:
    model.evaluate(np.ones((7, 3)), np.ones(7), batch_size=7, verbose=0)
except ValueError as error:
    print("refused")
"""
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "refused\n", mended("Padded", done.stdout)
