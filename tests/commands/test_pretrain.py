"""`keras-vit pretrain --objective masked-patches`, then `finetune` in each of its ways."""

import json
import os
import shlex
import signal

import keras
import pytest

import keras_vit
from keras_vit.classifier_folder import load_classifier
from keras_vit.training.settings import MaskedPatches
from keras_vit.utils.progress import ProgressBar
from makers import tiny_config

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


TARGET = ("--target", "downsized", "--corruption", "0.15")


@pytest.mark.slow
def test_a_body_is_pretrained_refused_for_prediction_and_fine_tuned(
    command, refused, pretrain, small, colors, tmp_path
):
    done = command(*pretrain(*TARGET))
    assert done.code == 0, done.err
    body = tmp_path / "body"
    assert "finetune --weights" in done.out
    recipe = json.loads((body / "recipe.json").read_text())
    assert recipe["settings"]["target"] == "downsized"
    assert recipe["settings"]["corruption"] == 0.15
    assert recipe["images"]["train"] == 12

    assert "fine-tune it first" in refused("predict", body, colors / "test")
    check_tuned(command, body, colors, tmp_path / "lora", "lora")


def check_tuned(command, body, colors, output, part):
    """Fine-tunes a part of the body, and checks which weights of it changed."""
    more = ("--stochastic-depth", 0.2, "--layer-decay", 0.75) if part == "lora" else ()
    tuned = command(
        "finetune", "--data", colors, "--weights", body, "--output", output, *FAST.split(),
        "--train", part, "--lora-rank", 2, "--validation", 0, *more,
    )  # fmt: skip
    assert tuned.code == 0, tuned.err
    kept = load_classifier(output).model
    plain = keras.saving.load_model(body / "model.keras", compile=False)
    kernel = kept.get_layer("encoder_block_1").attention.query.kernel
    before = plain.get_layer("encoder_block_1").attention.query.kernel
    assert (kernel.numpy() == before.numpy()).all() == (part == "head")
    assert len(kept.weights) == len(plain.weights) + 2
    assert kept.get_layer("encoder_block_1").stochastic_depth_rate == 0


@pytest.mark.slow
def test_pretraining_is_stopped_and_resumed_and_a_probe_of_the_body_trained(
    command, pretrain, small, colors, tmp_path, monkeypatch
):
    update = ProgressBar.update

    def interrupt_at_1(self, n=1):
        if getattr(self, "unit", "") == " steps" and self.n + n == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return update(self, n)

    with monkeypatch.context() as patch:
        patch.setattr(ProgressBar, "update", interrupt_at_1)
        stopped = command(*pretrain(*TARGET))
    assert stopped.code == 130
    resume_command = stopped.err.rpartition("Go on with: keras-vit ")[2]
    done = command(*shlex.split(resume_command))
    assert done.code == 0, done.err
    check_tuned(command, tmp_path / "body", colors, tmp_path / "head", "head")


def test_the_defaults_are_those_of_the_objective(command, pretrain, small):
    done = command(*pretrain("--dry-run", "--steps", 100))
    assert done.code == 0, done.err
    lines = dict(line.split(maxsplit=1) for line in done.out.splitlines() if " " in line)
    assert lines["target"] == MaskedPatches.target
    assert lines["corruption"] == "0.5"
    assert lines["warmup_steps"] == "20"
    assert "no classes" in lines["model"]


def test_options_of_another_objective_are_refused(refused, pretrain, small):
    line = refused(*pretrain("--target", "patch", objective="classes"))
    assert "--target needs --objective masked-patches" in line
    assert "without mixup" in refused(*pretrain("--augmentation", "light2"))
    assert "without a ResNet" in refused(*pretrain("--model", "R50+ViT-B/16"))
