"""`keras-vit pretrain --objective masked-patches`, then `finetune` in each of its ways."""

import json
import os
import shlex
import signal

import keras
import pytest

import keras_vit
from keras_vit.opening import open_predictor
from keras_vit.utils.progress import ProgressBar
from makers import tiny_config

LORA = "--train lora --lora-rank 2 --validation 0 --stochastic-depth-rate 0.2 --layer-decay 0.75"
FAST = "--image-size 12 --batch-size 4 --accumulate 1 --steps 3 --learning-rate 0.01"


@pytest.fixture(scope="module")
def small():
    """Makes ViT-Ti/16 a model that trains in a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(keras_vit.configs.MODELS, "ViT-Ti/16", tiny_config(depth=2))
        yield


@pytest.fixture(scope="module")
def body(command, small, colors, tmp_path_factory):
    """The folder of a pretrained body, whose run was stopped by Ctrl-C and resumed as printed."""
    output, update = tmp_path_factory.mktemp("runs") / "body", ProgressBar.update

    def interrupt_at_1(self, n=1):
        if getattr(self, "unit", "") == " steps" and self.n + n == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return update(self, n)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProgressBar, "update", interrupt_at_1)
        stopped = command(
            "pretrain", "--objective", "masked-patches", "--data", colors / "train", "--output",
            output, "--model", "ViT-Ti/16", *FAST.split(), "--target", "downsized", "--corruption",
            "0.15",
        )  # fmt: skip
    assert stopped.code == 130
    done = command(*shlex.split(stopped.err.rpartition("Go on with: keras-vit ")[2]))
    assert done.code == 0, done.err
    assert "finetune --weights" in done.out
    return output


@pytest.mark.slow
def test_the_recipe_of_a_body_has_its_objective(body):
    recipe = json.loads((body / "recipe.json").read_text())
    assert recipe["settings"]["target"] == "downsized"
    assert recipe["settings"]["corruption"] == 0.15
    assert recipe["images"]["train"] == 12


@pytest.mark.slow
def test_a_body_is_refused_for_prediction(body, refused, colors):
    assert "fine-tune it first" in refused("predict", body, colors / "test")


@pytest.mark.slow
def test_a_body_is_fine_tuned_by_lora(body, command, colors, tmp_path):
    output = tmp_path / "lora"
    tuned = command(
        "finetune", "--data", colors, "--weights", body, "--output", output, *FAST.split(),
        *LORA.split(),
    )  # fmt: skip
    assert tuned.code == 0, tuned.err
    kept = open_predictor(output).model
    plain = keras.saving.load_model(body / "model.keras", compile=False)
    kernel = kept.get_layer("encoder_block_1").attention.query.kernel
    assert (kernel.numpy() != plain.get_layer("encoder_block_1").attention.query.kernel).any()
    assert len(kept.weights) == len(plain.weights) + 2
    assert kept.get_layer("encoder_block_1").stochastic_depth_rate == 0
