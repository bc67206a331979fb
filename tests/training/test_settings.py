"""Settings of the jobs and the recipes that they come from."""

import dataclasses
import json

import pytest

from keras_vit.training import recipes
from keras_vit.training.settings import FineTuning, MaskedPatches, PreTraining
from makers import tiny_config

SETTINGS = {kind.command: kind for kind in (PreTraining, MaskedPatches, FineTuning)}


@pytest.mark.parametrize("recipe", recipes.RECIPES.values(), ids=lambda recipe: recipe.name)
def test_every_recipe_resolves_to_settings_with_its_values(recipe):
    kind = SETTINGS[recipe.command]
    small = kind(**recipe.settings).scaled(1e-5)
    settings = kind.from_recipe(recipe.name.lower(), 1e-5).resolve(50)
    assert (settings.recipe, settings.recipe_source) == (recipe.name, recipe.source)
    assert settings.scale == 1e-5
    for name in recipe.settings:
        assert getattr(settings, name) == getattr(small, name), name
    text = json.dumps(settings.to_json())
    assert type(settings).from_json(json.loads(text)) == settings


def test_given_values_win_over_the_recipe():
    settings = FineTuning.from_recipe("CIFAR-10", learning_rate=0.03, batch_size=64, clip_norm=None)
    assert (settings.learning_rate, settings.batch_size, settings.clip_norm) == (0.03, 64, None)
    assert settings.steps == 10_000


def test_a_recipe_is_its_settings_by_hand():
    by_name = FineTuning.from_recipe("Oxford Flowers-102", 0.001, weights=None)
    by_hand = FineTuning(
        weights=None,
        image_size=384,
        steps=16,
        batch_size=16,
        learning_rate=0.01 / 32,
        warmup_steps=3,
        validation=0.1,
    )
    nameless = dataclasses.replace(by_name, recipe=None, recipe_source=None, scale=1.0)
    assert nameless == by_hand


def test_with_other_steps_the_warm_up_keeps_its_share():
    settings = FineTuning.from_recipe("Oxford Flowers-102", steps=50)
    assert (settings.steps, settings.warmup_steps) == (50, 10)
    given = FineTuning.from_recipe("Oxford Flowers-102", steps=50, warmup_steps=3)
    assert given.warmup_steps == 3


@pytest.mark.parametrize(
    ("settings", "other"),
    [(FineTuning, "ViT-B/16 ImageNet"), (PreTraining, "CIFAR-10"), (PreTraining, "BiT HyperRule")],
)
def test_a_recipe_of_another_command_is_refused(settings, other):
    with pytest.raises(ValueError, match="this one is for keras-vit"):
        settings.from_recipe(other)


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(ValueError, match="Nearest: BiT HyperRule"):
        FineTuning.from_recipe("hyperrule")


@pytest.mark.parametrize(
    ("num_images", "size", "expected"),
    [
        (1_000, (32, 32), (500, 100, (200, 300, 400), 0.0, (128, 128), (160, 160))),
        (50_000, (32, 32), (10_000, 500, (3000, 6000, 9000), 0.1, (128, 128), (160, 160))),
        (
            1_281_167,
            (375, 500),
            (20_000, 500, (6000, 12_000, 18_000), 0.1, (480, 480), (512, 512)),
        ),
    ],
)
def test_the_hyper_rule_is_resolved_by_the_data(num_images, size, expected):
    settings = FineTuning.from_recipe("BiT HyperRule").resolve(num_images, size)
    assert expected == (
        settings.steps,
        settings.warmup_steps,
        settings.boundaries,
        settings.mixup,
        settings.image_size,
        settings.resize,
    )
    assert (settings.learning_rate, settings.clip_norm) == (0.003, None)
    assert (settings.decay, settings.augmentation) == ("staircase", "resize_random_crop")


def test_given_values_win_over_the_hyper_rule():
    settings = FineTuning.from_recipe("BiT HyperRule", image_size=32, steps=50, mixup=0.5)
    settings = settings.resolve(1_000, (300, 300))
    assert (settings.image_size, settings.resize) == ((32, 32), (34, 34))
    assert (settings.boundaries, settings.warmup_steps) == ((20, 30, 40), 10)
    assert settings.mixup == 0.5
    cosine = FineTuning.from_recipe("BiT HyperRule", decay="cosine", augmentation="flip")
    cosine = cosine.resolve(1_000, (300, 300))
    assert (cosine.boundaries, cosine.resize) == ((), None)


def test_the_hyper_rule_can_be_scaled():
    settings = FineTuning.from_recipe("BiT HyperRule", 0.01).resolve(1_000, (300, 300))
    assert (settings.batch_size, settings.steps) == (64, 40)
    assert settings.boundaries == (16, 24, 32)
    assert settings.learning_rate == pytest.approx(0.003 / 8)


@pytest.mark.parametrize(
    "fields",
    [
        {"optimizer": "lamb"},
        {"loss": "hinge"},
        {"loss": "sigmoid", "label_smoothing": 0.1},
        {"strategy": "cluster"},
        {"patience": 0},
        {"mixup": -0.1},
        {"resize": 400},
        {"resize": 300, "image_size": 384, "augmentation": "resize_random_crop"},
        {"timescale": 0},
        {"seed": -1},
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_refused(fields):
    with pytest.raises(ValueError, match="Received"):
        FineTuning(**fields)


def test_steps_per_execution_divide_the_steps():
    settings = FineTuning(steps=12, steps_per_execution=4).resolve(10)
    assert settings.evaluate_every == 4
    with pytest.raises(ValueError, match="steps_per_execution must divide"):
        FineTuning(steps=10, steps_per_execution=4).resolve(10)


def test_the_hyper_rule_fills_in_the_image_size_from_the_data():
    settings = FineTuning.from_recipe("BiT HyperRule")
    assert settings.image_size is None
    assert settings.resolve(1000, (32, 32)).image_size == (128, 128)


def test_settings_with_a_config_survive_json():
    settings = PreTraining(model=tiny_config(), boundaries=(2,))
    assert PreTraining.from_json(json.loads(json.dumps(settings.to_json()))) == settings


def test_layer_decay_is_refused_for_a_linear_probe_alone():
    assert FineTuning(train="head").layer_decay == 1
    assert FineTuning(layer_decay=0.8).train == "all"
    with pytest.raises(ValueError, match='train="head" trains the last'):
        FineTuning(train="head", layer_decay=0.8)


@pytest.mark.parametrize("settings_type", [FineTuning, PreTraining, MaskedPatches])
def test_epochs_become_the_steps_in_which_each_image_is_seen_so_often(settings_type):
    settings = settings_type(epochs=3, batch_size=8).with_epochs(100)
    assert (settings.epochs, settings.steps) == (None, 38)  # 300 / 8 = 37.5.
    executed = settings_type(epochs=0.5, batch_size=8, steps_per_execution=4).with_epochs(100)
    assert executed.steps == 8  # 50 / 8 = 6.25, in whole executions.
    assert settings_type(steps=7).with_epochs(100).steps == 7


def test_epochs_win_over_the_steps_of_a_recipe():
    settings = FineTuning.from_recipe("Oxford Flowers-102", epochs=2, batch_size=10)
    assert settings.with_epochs(100).resolve(100).steps == 20
    by_rule = FineTuning.from_recipe("BiT HyperRule", epochs=2, batch_size=10).with_epochs(1000)
    resolved = by_rule.resolve(1000, (100, 100))
    assert resolved.steps == 200
    assert resolved.boundaries == (80, 120, 160)


@pytest.mark.parametrize("other", [{"steps": 3}, {"boundaries": (3,), "decay": "staircase"}])
def test_epochs_and_steps_exclude_each_other(other):
    with pytest.raises(ValueError, match=r"^epochs decide the steps \(--epochs\): leave out steps"):
        FineTuning(epochs=3, **other)
