import json
import os
import pathlib
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_vit.training import SGD, Adam, Checkpoints, NonFiniteError, Trainer, warmup_schedule

PROGRAM = pathlib.Path(__file__).parent / "programs" / "resumable.py"
RNG = np.random.default_rng(0)
IMAGES = RNG.standard_normal((12, 4, 8, 8, 3)).astype("float32")
LABELS = RNG.integers(0, 4, (12, 4))


def build(optimizer=None, width=16):
    keras.utils.set_random_seed(0)
    hidden = [keras.layers.Flatten(), keras.layers.Dense(width, "relu"), keras.layers.Dropout(0.1)]
    layers = [keras.Input((8, 8, 3)), *hidden, keras.layers.Dense(4)]
    trainer = Trainer(keras.Sequential(layers), ema_momentum=0.9)
    schedule = warmup_schedule(0.01, steps=12, warmup_steps=2)
    trainer.compile(
        optimizer or Adam(schedule, weight_decay=0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return trainer


def fit(trainer, start, end, **options):
    def batches():
        yield from zip(IMAGES[start:], LABELS[start:], strict=True)

    trainer.fit(batches(), steps_per_epoch=end - start, verbose=0, **options)
    return trainer


def state(trainer):
    return [np.asarray(v) for v in trainer.state_variables()]


def assert_equal(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with the states of steps 4, 8 and 12, and what the run ended with."""
    folder = tmp_path_factory.mktemp("run")
    trainer = fit(build(), 0, 12, callbacks=[Checkpoints(folder, keep=3).callback(every=4)])
    return folder, state(trainer)


@pytest.fixture
def folder(run, tmp_path):
    for path in run[0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def names(folder):
    return [path.name for path in Checkpoints(folder).paths()]


def test_a_restored_run_ends_bit_for_bit_the_same(run, folder):
    for path in Checkpoints(folder).paths()[:2]:
        path.unlink()
    trainer = build()
    assert Checkpoints(folder).restore(trainer) == 4
    assert_equal(state(fit(trainer, 4, 12)), run[1])


def test_saving_changes_nothing(run):
    assert_equal(state(fit(build(), 0, 12)), run[1])


@pytest.mark.parametrize("damage", ["cut", "flipped", "not an archive"])
def test_a_damaged_state_is_named_and_the_one_before_is_taken(folder, damage):
    newest = Checkpoints(folder).paths()[0]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(
        {
            "cut": content[: len(content) // 2],
            "flipped": content,
            "not an archive": b"nonsense",
        }[damage]
    )
    with pytest.warns(UserWarning, match=newest.name):
        assert Checkpoints(folder).restore(build()) == 8


def test_a_state_of_another_model_is_refused(folder):
    with pytest.raises(ValueError, match="same model"):
        Checkpoints(folder).restore(build(width=32))
    with pytest.raises(ValueError, match="same model"):
        Checkpoints(folder).restore(build(SGD(0.1)))


def test_the_newest_are_kept(run, folder):
    assert names(folder) == ["state-000000012.npz", "state-000000008.npz", "state-000000004.npz"]
    trainer = build()
    checkpoints = Checkpoints(folder, keep=2)
    checkpoints.restore(trainer)
    trainer.step.assign(13)
    checkpoints.save(trainer)
    assert names(folder) == ["state-000000013.npz", "state-000000012.npz"]


def test_not_a_number_names_the_last_good_state(tmp_path):
    trainer = build(SGD(1e20, global_clipnorm=None))
    with pytest.raises(NonFiniteError, match="state-00000000[1-9].npz") as error:
        fit(trainer, 0, 12, callbacks=[Checkpoints(tmp_path).callback(every=1)])
    copy = build(SGD(1e20, global_clipnorm=None))
    assert Checkpoints(tmp_path).restore(copy) == error.value.step - 1
    assert_equal(
        [np.asarray(v) for v in copy.trainable_variables],
        [np.asarray(v) for v in trainer.trainable_variables],
    )


def test_bfloat16_weights_come_back(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, dtype="bfloat16")])
    trainer = Trainer(model)
    trainer.compile(SGD(0.1), "mse")
    expected = state(trainer)
    Checkpoints(tmp_path).save(trainer)
    for variable in trainer.trainable_variables:
        variable.assign(keras.ops.ones_like(variable))
    Checkpoints(tmp_path).restore(trainer)
    assert_equal(state(trainer), expected)


def start(folder, pause, **environment):
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", **environment}
    command = [sys.executable, str(PROGRAM), str(folder), "9", pause]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def finish(*processes):
    for process in processes:
        _, error = process.communicate(timeout=600)
        assert process.returncode == 0, error[-2000:]


def assert_same_end(one, other):
    with np.load(one / "final.npz") as a, np.load(other / "final.npz") as b:
        assert_equal(a.values(), b.values())


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_killed_run_ends_bit_for_bit_the_same(tmp_path, backend):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(whole, "none", KERAS_BACKEND=backend))
    process = start(killed, "step", KERAS_BACKEND=backend)
    assert process.stdout.readline() == "here\n"
    process.kill()
    process.communicate()
    assert names(killed)[0] == "state-000000004.npz"
    finish(start(killed, "none", KERAS_BACKEND=backend))
    assert_same_end(whole, killed)


@pytest.mark.slow
def test_a_worker_that_dies_ends_the_others_and_the_job_goes_on(tmp_path):
    def workers(folder, *pauses):
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in pauses]
        ports = [one.getsockname()[1] for one in sockets]
        for one in sockets:
            one.close()
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
        return [
            start(
                folder,
                pause,
                TF_CONFIG=json.dumps(
                    {"cluster": cluster, "task": {"type": "worker", "index": index}}
                ),
            )
            for index, pause in enumerate(pauses)
        ]

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(*workers(whole, "none", "none"))
    first, second = workers(killed, "none", "step")
    assert second.stdout.readline() == "here\n"
    second.kill()
    second.communicate()
    first.communicate(timeout=300)
    assert first.returncode != 0
    finish(*workers(killed, "none", "none"))
    assert_same_end(whole, killed)
