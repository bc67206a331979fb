"""Masked patch prediction: what it sees, what counts, and the way to a classifier."""

import dataclasses
import json

import keras
import numpy as np
import pytest
from runs import build_model, plan_of, silent

from keras_vit import configs
from keras_vit.layers.random_numbers import examples_from
from keras_vit.training.run.finetune import pretrain_masked_patches
from keras_vit.training.run.masked_patches import make_masked_patch_trainer, masked_patch_model
from keras_vit.training.settings import FineTuning, MaskedPatches
from makers import tiny_config, write_classes, write_picture

CONFIG = tiny_config(dropout_rate=0.1)
SETTINGS = MaskedPatches(
    model=CONFIG,
    image_size=(16, 12),
    steps=6,
    batch_size=4,
    accumulate=1,
    learning_rate=0.01,
    evaluate_every=3,
    dropout_rate=0.1,
    augmentation="flip",
)


def images(count=2):
    return np.random.default_rng(0).uniform(-1, 1, (count, 16, 12, 3)).astype("float32")


def varied(model):
    """Gives every weight of a model a value that matters."""
    rng = np.random.default_rng(1)
    for weight in model.trainable_variables:
        weight.assign(rng.normal(0, 0.3, weight.shape))
    return model


def changed(pixels, patch, image=0):
    """Returns other pixels in one patch of 4x4 of one image."""
    top, left = patch // 3 * 4, patch % 3 * 4
    pixels = pixels.copy()
    pixels[image, top : top + 4, left : left + 4] *= -0.5
    return pixels


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        configs.AxialConfig(4, 16, 1, 16, 2),
        dataclasses.replace(CONFIG, classifier="gap", position_embedding="relative"),
        dataclasses.replace(CONFIG, num_registers=2),
    ],
    ids=["vit", "axial", "relative", "registers"],
)
def test_a_corrupted_patch_never_sees_itself_and_a_kept_one_does(config):
    model = varied(masked_patch_model(config, image_size=(16, 12)))
    corruption = model.get_layer("corruption")
    before = keras.Model(model.input, corruption.output[0])
    tokens = keras.Model(model.input, model.get_layer("patch_tokens").output)
    pixels = images(6)
    first = model(pixels)
    places = np.array(first["places"])
    same = (np.array(before(pixels)) == np.array(tokens(pixels))).all(-1)
    seen = {"hidden": 0, "kept": 0, "left": 0}
    for patch in range(12):
        kind = "left" if patch not in places[0] else "kept" if same[0, patch] else "hidden"
        seen[kind] += 1
        second = np.array(model(changed(pixels, patch))["predictions"])
        moved = np.abs(second - np.array(first["predictions"])).max(axis=(1, 2, 3))
        assert (moved[0] == 0) == (kind == "hidden")
        assert not moved[1:].any()  # No image sees another.
    assert seen["hidden"]
    assert seen["left"] == 6


def resolved(**changes):
    return dataclasses.replace(SETTINGS, **changes).resolve(100)


@pytest.mark.parametrize("target", ["mean-color", "downsized", "patch"])
def test_the_loss_is_that_of_the_corrupted_patches_alone(target):
    settings = resolved(target=target)
    model = varied(masked_patch_model(CONFIG, image_size=(16, 12), target=target))
    trainer = make_masked_patch_trainer(model, settings, target)
    pixels = images()
    outputs = {name: np.array(value) for name, value in model(pixels).items()}
    predictions, places = outputs["predictions"], outputs["places"]
    losses = []
    for image in range(2):
        for row, patch in enumerate(places[image]):
            top, left = patch // 3 * 4, patch % 3 * 4
            cut = pixels[image, top : top + 4, left : left + 4].astype("float64")
            if target == "patch":
                losses.append(np.mean((predictions[image, row] - cut.ravel()) ** 2))
                continue
            cells = cut.reshape(16, 3) if target == "downsized" else cut.mean((0, 1))[None]
            bits = ((cells + 1) * 127.5 / 32).astype(int)
            logits = predictions[image, row].astype("float64")
            picked = logits[np.arange(len(cells)), bits @ (64, 8, 1)]
            losses.append(np.mean(np.log(np.exp(logits).sum(-1)) - picked))
    expected = pytest.approx(np.mean(losses), rel=1e-5)
    assert float(trainer.compute_loss(pixels, None, model(pixels))) == expected
    scores = trainer.evaluate(pixels, np.zeros(2), verbose=0, return_dict=True)
    assert scores["loss"] == expected
    left = next(patch for patch in range(12) if patch not in places[0])
    others = changed(pixels, left)
    assert float(trainer.compute_loss(others, None, model(pixels))) == expected


def test_draws_belong_to_the_step_and_the_image_and_repeat():
    model = masked_patch_model(CONFIG, image_size=(16, 12))
    trainer = make_masked_patch_trainer(model, resolved(), "mean-color")

    def places(replica, first, count, step):
        trainer.step.assign(step)
        seeds = trainer.draw_seeds(replica, first)
        with (
            keras.StatelessScope(list(zip(trainer.seed_states, seeds, strict=True))),
            examples_from(first, count),
        ):
            return np.array(trainer(images(count), training=True)["places"]).tolist()

    whole = places(0, 0, 8, 1)
    assert len({tuple(row) for row in whole}) == 8
    assert places(0, 0, 5, 1) + places(1, 5, 3, 1) == whole
    assert not any(one == other for one, other in zip(places(0, 0, 8, 2), whole, strict=True))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Ten pictures without labels: a folder, and one inside it."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for index in range(10):
        pixels = rng.normal(rng.uniform(0, 255, 3), 20, (18, 14, 3))
        write_picture((folder / "more" if index % 2 else folder) / f"{index}.png", pixels)
    return folder


@pytest.fixture(scope="module")
def body(photos, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "body"
    printed = []
    finished = pretrain_masked_patches(
        photos,
        output,
        dataclasses.replace(SETTINGS, steps=60, evaluate_every=20),
        command="keras-vit pretrain --objective masked-patches ...",
        log=printed.append,
    )
    return finished, output, "\n".join(printed)


def test_colours_are_learned_without_labels(body):
    finished, _, printed = body
    losses = [float(row["loss"]) for row in finished.history]
    assert losses[0] < np.log(512)
    assert losses[-1] < 0.8 * losses[0]
    assert "no classes" in printed
    assert "10 images to train, 0 to validate" in printed


def test_the_folder_holds_a_plain_vision_transformer(body):
    finished, output, _ = body
    model = keras.saving.load_model(output / "model.keras", compile=False)
    assert model.output_shape == (None, 4, 3, 16)
    names = {layer.name for layer in model.layers}
    assert not names & {"corruption", "patch_predictions", "predictions"}
    np.testing.assert_array_equal(model(images()), finished.model(images()))
    recipe = json.loads((output / "recipe.json").read_text())
    assert recipe["objective"] == "masked-patches"
    assert "--objective masked-patches" in (output / "README.md").read_text()


@pytest.fixture(scope="module")
def colors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("colors")
    return write_classes(folder, 4, {"blue": (30, 30, 220), "red": (220, 30, 30)}, noise=2)


def test_fine_tuning_starts_from_it(body, colors):
    _, output, _ = body
    plan = plan_of(colors, "out", FineTuning(weights=str(output), image_size=(24, 24)))
    assert plan.config == dataclasses.replace(CONFIG, dropout_rate=0.0)
    start, origin = build_model(plan)
    before = plan.weights.model()
    assert "positions interpolated from 4x3 to 6x6 patches" in origin
    for name in ("patch_embedding", "encoder_block_0", "encoder_norm"):
        weights = start.get_layer(name).get_weights()
        for new, old in zip(weights, before.get_layer(name).get_weights(), strict=True):
            np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "BiT-R50x1"}, "without a ResNet"),
        ({"model": dataclasses.replace(CONFIG, classifier="map")}, "pools by attention"),
        (
            {"model": dataclasses.replace(CONFIG, patch_size=2), "target": "downsized"},
            "4x4 pixels",
        ),
        ({"layers": ("CutMix",)}, "mixes images"),
        ({"corruption": 0.01}, "one of the patches"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_are_errors_and_nothing_is_written(
    photos, tmp_path, fields, message
):
    settings = dataclasses.replace(SETTINGS, **fields)
    with pytest.raises(ValueError, match=message):
        pretrain_masked_patches(photos, tmp_path / "out", settings, log=silent)
    assert not list(tmp_path.iterdir())


def test_the_defaults_are_the_paper_s():
    settings = MaskedPatches().resolve(300_000_000)
    assert (settings.steps, settings.warmup_steps, settings.batch_size) == (1_000_000, 10_000, 4096)
    assert (settings.learning_rate, settings.decay, settings.corruption) == (2e-4, "cosine", 0.5)
    assert settings.target == "mean-color"
    assert MaskedPatches(steps=100).resolve(10).warmup_steps == 20
    recipe = MaskedPatches.from_recipe("ViT-B/16 JFT-300M masked patches").resolve(300_000_000)
    changes = {name: None for name in ("recipe", "recipe_source", "model")}
    assert dataclasses.replace(recipe, **changes) == settings
    with pytest.raises(ValueError, match="keras-vit pretrain --objective"):
        FineTuning.from_recipe("ViT-B/16 JFT-300M masked patches")
