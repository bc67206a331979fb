import csv
import dataclasses
import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from runs import build_model, plan_of, run_of, silent, tiny_settings

import keras_vit
from keras_vit import configs
from keras_vit.models.rebuild import inference_model
from keras_vit.opening import open_predictor
from keras_vit.training.data import DataSpec
from keras_vit.training.data.content import file_fingerprints
from keras_vit.training.data.split_record import SplitRecord
from keras_vit.training.run.finetune import dry_run, finetune, plan_of as planned, pretrain
from keras_vit.training.run.machine import choose_accumulation, free_memory, step_memory
from keras_vit.training.settings import FineTuning, PreTraining
from makers import COLORS, tiny_config, write_classes

CONFIG = tiny_config(depth=2, representation_size=8)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Noisy pictures of three colours: ten of each to train with, four to test."""
    return write_classes(tmp_path_factory.mktemp("colors"), {"train": 10, "test": 4})


SETTINGS = tiny_settings(evaluate_every=5, samples=None)


@pytest.fixture(scope="module")
def done(data, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "colors"
    lines = []
    finished = finetune(data, output, SETTINGS, command="keras-vit finetune ...", log=lines.append)
    return finished, output, "\n".join(lines)


def test_a_classifier_that_learned_is_written(done, data):
    finished, output, _ = done
    assert finished.report.top_1 == 1.0
    assert finished.report.count == 12
    classifier = open_predictor(output)
    assert classifier.class_names == tuple(COLORS)
    prediction = classifier.predict(data / "test" / "red" / "0.png", top=1)[0]
    assert prediction.top[0][0] == "red"


def test_the_folder_has_its_nine_entries_and_the_working_folder_is_gone(done):
    _, output, _ = done
    inside = {path.name for path in output.iterdir()}
    assert inside == {
        *("model.keras", "description.json", "classes.txt", "recipe.json", "history.csv"),
        *("split.npz", "README.md", "samples", "report.html"),
    }
    assert not output.with_name("colors.partial").exists()
    assert len(list((output / "samples").iterdir())) == 8


def test_the_folder_has_the_content_of_the_images_by_part(done):
    finished, output, _ = done
    counts = {"train": 24, "validation": 6, "calibration": 0, "test": 12}
    assert finished.classifier.recipe["images"] == {**counts, "skipped": 0}
    record = SplitRecord.read(output)
    assert {name: len(numbers) for name, numbers in record.parts.items()} == counts
    tested = record.part_of(file_fingerprints(finished.report.examples.names))
    assert set(tested) == {"test"}


def test_history_has_every_validation_and_the_best_one_is_kept(done):
    finished, output, _ = done
    with open(output / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["5", "10", "12"]
    assert rows == finished.history
    scores = [
        (float(row["validation_accuracy"]), -float(row["validation_loss"]), int(row["step"]))
        for row in rows
    ]
    assert finished.classifier.recipe["best"]["step"] == max(scores)[2]


@pytest.mark.slow
def test_the_recipe_is_printed_first_and_repeats_the_run_on_its_data(done, data, tmp_path):
    finished, output, text = done
    assert text.splitlines()[0].startswith("model")
    assert "12 steps of 6 images: 72 images seen, 3.0 epochs" in text
    recipe = json.loads((output / "recipe.json").read_text())
    settings = FineTuning.from_json(recipe["settings"])
    again = finetune(data, tmp_path / "again", settings, log=silent)
    weights = zip(
        finished.classifier.model.get_weights(),
        again.classifier.model.get_weights(),
        strict=True,
    )
    for first, second in weights:
        np.testing.assert_array_equal(first, second)


def test_a_classifier_is_transferred_with_a_new_head_and_interpolated_positions(done, data):
    finished, output, _ = done
    settings = FineTuning(weights=str(output), image_size=(24, 20), head="new")
    model, origin = build_model(plan_of(data, "out", settings))
    assert not model.get_layer("predictions").kernel.numpy().any()
    source = finished.classifier.model
    np.testing.assert_array_equal(
        model.get_layer("patch_embedding").kernel, source.get_layer("patch_embedding").kernel
    )
    zoom = pytest.importorskip("scipy.ndimage").zoom
    old = source.get_layer("position_embedding").get_weights()[0][0]
    new = model.get_layer("position_embedding").get_weights()[0][0]
    expected = zoom(old[1:].reshape(3, 2, 16), (2, 2.5, 1), order=1).reshape(30, 16)
    np.testing.assert_array_equal(new[0], old[0])
    np.testing.assert_allclose(new[1:], expected, atol=1e-6)
    assert "positions interpolated from 3x2 to 6x5 patches" in origin


def test_the_hidden_layer_of_pretraining_stays_behind(data, tmp_path):
    model = keras_vit.build(CONFIG, input_shape=(8, 8, 3), classes=5)
    keras_vit.save_checkpoint(model, tmp_path / "pretrained.npz")
    weights = str(tmp_path / "pretrained.npz")
    settings = FineTuning(model=CONFIG, weights=weights, image_size=(8, 8))
    transferred, _ = build_model(plan_of(data, tmp_path / "out", settings))
    assert "pre_logits" not in {layer.name for layer in transferred.layers}
    assert not transferred.get_layer("predictions").kernel.numpy().any()


@pytest.mark.parametrize(
    "config",
    [
        configs.BiTConfig((1, 1), 0.5),
        configs.AxialConfig(8, 16, 1, 16, 2),
        tiny_config(patch_size=8, classifier="token+distillation"),
    ],
    ids=["BiT", "axial", "distilled"],
)
def test_other_architectures_are_transferred_and_kept_with_softmax(config, data, tmp_path):
    source = keras_vit.build(config, input_shape=(64, 64, 3), classes=3)
    source.save(tmp_path / "source.keras")
    weights = str(tmp_path / "source.keras")
    settings = FineTuning(weights=weights, normalization="half", image_size=(96, 80))
    model, _ = build_model(plan_of(data, tmp_path / "out", settings))
    images = np.random.default_rng(0).normal(size=(1, 96, 80, 3)).astype("float32")
    expected = keras.ops.softmax(model(images))
    np.testing.assert_allclose(inference_model(model)(images), expected, atol=1e-6)


@pytest.mark.slow
def test_pretraining_with_mixup_learns(data, tmp_path):
    settings = PreTraining(
        model=CONFIG,
        image_size=(8, 8),
        steps=20,
        batch_size=10,
        accumulate=1,
        learning_rate=3e-3,
        augmentation="light2",  # Mixup: labels are shares of classes.
        validation=0.0,
    )
    finished = pretrain(data, tmp_path / "out", settings, log=silent)
    assert finished.report.top_1 > 0.9
    assert finished.classifier.recipe["best"] is None
    assert finished.classifier.recipe["job"] == "pretrain"


@pytest.mark.parametrize(
    ("num_images", "expected"),
    [
        # The rows of Table 4: Pets, CIFAR, ImageNet.
        (3_680, (500, 100, 0.1)),
        (50_000, (10_000, 500, 0.02)),
        (1_281_167, (20_000, 500, 0.01)),
    ],
)
def test_the_defaults_are_the_rows_of_table_4(num_images, expected):
    settings = FineTuning().resolve(num_images)
    assert (settings.steps, settings.warmup_steps, settings.validation) == expected
    assert (settings.batch_size, settings.momentum, settings.global_clipnorm) == (512, 0.9, 1.0)
    # By the head and the weights, when they are known.
    assert (settings.learning_rate, settings.image_size) == (None, None)


def test_accumulation_is_chosen_by_memory():
    config = configs.resolve("ViT-B/16")
    settings = FineTuning(batch_size=512, image_size=384)
    small = choose_accumulation(settings, config, 16 * 2**30)
    large = choose_accumulation(settings, config, 2**45)
    assert large.accumulate == 1
    assert 16 <= small.accumulate <= 512
    assert small.batch_size == 512
    needed = step_memory(settings, config, small.micro_batch_size)
    assert needed < 16 * 2**30 < step_memory(settings, config, 4 * small.micro_batch_size)
    assert choose_accumulation(FineTuning(accumulate=4), config, 1).accumulate == 4


@pytest.mark.parametrize(("code", "expected"), [(0, 100 * 2**20), (9, 8 * 2**30)])
def test_the_memory_of_a_gpu_is_that_of_a_query_that_succeeds(
    code, expected, monkeypatch, tmp_path
):
    query = tmp_path / "nvidia-smi"
    query.write_text(f"#!/bin/sh\necho 100\nexit {code}\n")
    query.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind])
    assert free_memory() == expected


@pytest.mark.slow
def test_mixed_precision_leaves_a_float32_classifier_and_the_policy_as_it_was(data, tmp_path):
    settings = dataclasses.replace(SETTINGS, precision="mixed_bfloat16", steps=4, validation=0.0)
    finished = finetune(data, tmp_path / "out", settings, log=silent)
    assert keras.config.dtype_policy().name == "float32"
    assert {layer.compute_dtype for layer in finished.classifier.model.layers} == {"float32"}


def test_unequal_classes_are_weighted(data, tmp_path):
    settings = dataclasses.replace(SETTINGS, validation=0.0, class_weight="balanced")
    spec = DataSpec(data, exclude=tuple(f"train/red/{i}.png" for i in range(4, 10)))
    started = run_of(spec, tmp_path / "run", settings)
    plan = planned(started)
    assert plan.record.to_json()["images"]["train"] == 24  # Ten blue, ten green, four red.
    fact = plan.record.to_json()["facts"]["class_weight"]
    assert fact == {"value": {"blue": 0.8, "green": 0.8, "red": 2.0}, "from": "balanced"}
    text = dry_run(started)
    assert "blue 0.8, green 0.8, red 2 (balanced)" in text
    assert "the choice of the best weights count each image once" in text


def test_the_plan_and_the_recipe_have_the_steps_of_epochs(data, tmp_path):
    settings = dataclasses.replace(SETTINGS, steps=None, epochs=2)
    started = run_of(data, tmp_path / "out", settings)
    plan = planned(started)
    assert plan.record.to_json()["images"]["train"] == 24
    assert (plan.settings.steps, plan.settings.epochs) == (8, None)
    assert plan.record.to_json()["settings"]["steps"] == 8
    fact = {"value": 2, "from": "8 steps: 24 images in batches of 6"}
    assert plan.record.to_json()["facts"]["epochs"] == fact
    text = " ".join(dry_run(started).split())
    assert "epochs 2 (8 steps: 24 images in batches of 6)" in text
    assert "8 steps of 6 images: 48 images seen, 2.0 epochs" in text


def test_the_plan_lists_settings_with_their_defaults_in_one_line(data, tmp_path):
    settings = dataclasses.replace(SETTINGS, weight_decay=0.25)
    lines = dry_run(run_of(data, tmp_path / "out", settings)).splitlines()
    (defaults,) = (line for line in lines if line.startswith("defaults "))
    assert "momentum 0.9, " in defaults
    assert [line.split() for line in lines if line.startswith("weight_decay")] == [
        ["weight_decay", "0.25"]
    ]


@pytest.mark.parametrize(
    ("momentum", "line"),
    [
        (
            0.999,
            "0.999: the averages are kept, after 4 steps still 100% the weights before training",
        ),
        (0.4, "0.4"),  # A 40th.
    ],
)
def test_the_plan_says_how_much_of_the_averages_is_from_before_training(
    data, tmp_path, momentum, line
):
    settings = dataclasses.replace(SETTINGS, steps=4, ema_momentum=momentum)
    lines = dry_run(run_of(data, tmp_path / "out", settings)).splitlines()
    (printed,) = (line for line in lines if line.startswith("ema_momentum"))
    assert printed.removeprefix("ema_momentum").strip().partition(";")[0] == line


def test_the_end_names_the_step_of_the_kept_weights(done):
    finished, output, text = done
    step = json.loads((output / "recipe.json").read_text())["best"]["step"]
    (kept,) = (line for line in text.splitlines() if line.startswith("kept "))
    assert f"the weights after step {step} of {SETTINGS.steps}, chosen by " in kept


@pytest.mark.parametrize(
    ("callback", "advice"),
    [
        (keras.callbacks.EarlyStopping("val_loss"), "patience=5.*EarlyStopping"),
        (keras.callbacks.LearningRateScheduler(lambda epoch: 0.1), "decay.*LearningRateSch"),
        (keras.callbacks.ReduceLROnPlateau(), "learning_rate.*ReduceLROnPlateau"),
    ],
)
def test_callbacks_that_wait_for_epochs_are_answered_with_the_setting(
    data, tmp_path, callback, advice
):
    with pytest.raises(ValueError, match=advice):
        finetune(data, tmp_path / "out", SETTINGS, callbacks=[callback])
    assert not list(tmp_path.iterdir())


def test_settings_among_the_options_are_answered_with_the_third_argument():
    with pytest.raises(TypeError, match=r"FineTuning\(steps=500\)"):
        finetune("photos", "out", num_epochs=1)
