import types

import pytest
import tensorflow as tf

from keras_vit.training import split_batch, strategy
from keras_vit.training.trainer import tensorflow_backend


@pytest.fixture(autouse=True)
def _plain_machine(monkeypatch):
    for name in ("TF_CONFIG", "TPU_NAME"):
        monkeypatch.delenv(name, raising=False)


class FakeTPU:
    """Stands in for the resolver and records what happens to it."""

    def __init__(self, monkeypatch, error=None):
        self.calls = []

        def resolver(tpu):
            self.calls.append(("resolve", tpu))
            if error:
                raise error
            return "resolver"

        monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolver)
        for module, name in (
            (tf.config, "experimental_connect_to_cluster"),
            (tf.tpu.experimental, "initialize_tpu_system"),
        ):
            monkeypatch.setattr(module, name, lambda r, name=name: self.calls.append((name, r)))
        made = types.SimpleNamespace(num_replicas_in_sync=8)
        monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda resolver: made)


def test_auto_is_the_cpu_where_there_is_nothing_else(capsys):
    assert strategy("auto") is tf.distribute.get_strategy()
    assert capsys.readouterr().out.startswith("strategy: cpu, ")


def test_a_named_tpu_is_connected_and_initialised(monkeypatch, capsys):
    fake = FakeTPU(monkeypatch)
    monkeypatch.setenv("TPU_NAME", "my-tpu")
    assert strategy("auto").num_replicas_in_sync == 8
    assert fake.calls == [
        ("resolve", "my-tpu"),
        ("experimental_connect_to_cluster", "resolver"),
        ("initialize_tpu_system", "resolver"),
    ]
    assert capsys.readouterr().out == (
        "strategy: tpu, TPU 'my-tpu'; replicas: 8; precision: float32\n"
    )


@pytest.mark.parametrize(
    ("name", "environment", "message"),
    [
        ("tpu", None, "TPU_NAME .*/dev/accel0"),
        ("mirrored", None, "logical CPU"),
        ("multiworker", None, "TF_CONFIG"),
        ("auto", "{worker}", "JSON object"),
        ("pod", None, "multiworker"),
    ],
)
def test_devices_that_are_missing_are_named(name, environment, message, monkeypatch):
    if environment:
        monkeypatch.setenv("TF_CONFIG", environment)
    elif name == "mirrored" and len(tf.config.list_logical_devices("CPU")) > 1:
        pytest.skip("this process has several logical devices")
    with pytest.raises(ValueError, match=message):
        strategy(name)


def test_a_tpu_that_does_not_answer_is_one_clear_line(monkeypatch):
    FakeTPU(monkeypatch, error=tf.errors.NotFoundError(None, None, "No OpKernel\nregistered"))
    with pytest.raises(ValueError, match="'my-tpu' .*No OpKernel"):
        strategy("tpu", tpu="my-tpu")


def test_a_batch_is_shared_in_the_fewest_micro_batches():
    split = split_batch(512, replicas=4, most_per_replica=30)
    # 128 examples each: 5 micro-batches would do, 8 share them evenly.
    assert (split.gradient_accumulation_steps, split.per_replica, split.micro_batch_size) == (
        8,
        16,
        64,
    )
    assert split_batch(512, replicas=4).per_replica == 128


def test_a_batch_that_cannot_be_shared_names_the_nearest():
    with pytest.raises(ValueError, match="504 and 528"):
        split_batch(512, replicas=8, gradient_accumulation_steps=3)


@pytest.mark.parametrize(
    ("jobs", "job", "index", "expected"),
    [
        ({"worker": ["a:1", "b:1"]}, "worker", 1, (1, 2)),
        ({"chief": ["a:1"], "worker": ["b:1"]}, "chief", 0, (0, 2)),
        ({"chief": ["a:1"], "worker": ["b:1"]}, "worker", 0, (1, 2)),
    ],
)
def test_the_chief_is_the_first_worker(jobs, job, index, expected):
    class TwoWorkers(tf.distribute.MultiWorkerMirroredStrategy):
        cluster_resolver = types.SimpleNamespace(
            task_type=job, task_id=index, cluster_spec=lambda: tf.train.ClusterSpec(jobs)
        )

        def __init__(self):
            pass

    assert tensorflow_backend.worker_of(TwoWorkers()) == expected
    assert tensorflow_backend.worker_of(tf.distribute.get_strategy()) == (0, 1)
