"""`keras-vit pretrain --objective masked-patches`, then `finetune` in each of its ways."""

import json
import os
import shlex
import signal

import keras
import pytest

import keras_vit
from keras_vit.classifier_folder import load_classifier
from keras_vit.utils.progress import ProgressBar
from makers import tiny_config

LORA = "--train lora --lora-rank 2 --validation 0 --stochastic-depth 0.2 --layer-decay 0.75"
FAST = "--image-size 12 --batch-size 4 --accumulate 1 --steps 3 --learning-rate 0.01"


@pytest.fixture
def small(monkeypatch):
    """Makes ViT-Ti/16 a model that trains in a second."""
    config = tiny_config(depth=2)
    monkeypatch.setitem(keras_vit.configs.MODELS, "ViT-Ti/16", config)


@pytest.fixture
def pretrain(colors, tmp_path):
    def arguments(*more, objective="masked-patches"):
        given = ["pretrain", "--objective", objective, "--data", colors / "train"]
        given += ["--output", tmp_path / "body", "--model", "ViT-Ti/16", *FAST.split()]
        return [*given, *more]

    return arguments


@pytest.mark.slow
def test_a_body_is_pretrained_stopped_resumed_refused_for_prediction_and_fine_tuned(
    command, refused, pretrain, small, colors, tmp_path, monkeypatch
):
    update = ProgressBar.update

    def interrupt_at_1(self, n=1):
        if getattr(self, "unit", "") == " steps" and self.n + n == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return update(self, n)

    with monkeypatch.context() as patch:
        patch.setattr(ProgressBar, "update", interrupt_at_1)
        stopped = command(*pretrain("--target", "downsized", "--corruption", "0.15"))
    assert stopped.code == 130
    done = command(*shlex.split(stopped.err.rpartition("Go on with: keras-vit ")[2]))
    assert done.code == 0, done.err
    assert "finetune --weights" in done.out
    body, output = tmp_path / "body", tmp_path / "lora"
    recipe = json.loads((body / "recipe.json").read_text())
    assert recipe["settings"]["target"] == "downsized"
    assert recipe["settings"]["corruption"] == 0.15
    assert recipe["images"]["train"] == 12
    assert "fine-tune it first" in refused("predict", body, colors / "test")

    tuned = command(
        "finetune", "--data", colors, "--weights", body, "--output", output, *FAST.split(),
        *LORA.split(),
    )  # fmt: skip
    assert tuned.code == 0, tuned.err
    kept = load_classifier(output).model
    plain = keras.saving.load_model(body / "model.keras", compile=False)
    kernel = kept.get_layer("encoder_block_1").attention.query.kernel
    assert (kernel.numpy() != plain.get_layer("encoder_block_1").attention.query.kernel).any()
    assert len(kept.weights) == len(plain.weights) + 2
    assert kept.get_layer("encoder_block_1").stochastic_depth_rate == 0
