"""Settings of the jobs and the recipes that they come from."""

import json

import pytest

from keras_vit.training import recipes
from keras_vit.training.settings import FineTuning, MaskedPatches, PreTraining

SETTINGS = {kind.command: kind for kind in (PreTraining, MaskedPatches, FineTuning)}


@pytest.mark.parametrize("recipe", recipes.RECIPES.values(), ids=lambda recipe: recipe.name)
def test_every_recipe_resolves_to_settings_with_its_values(recipe):
    kind = SETTINGS[recipe.command]
    small = kind(**recipe.settings).scaled(1e-6)
    settings = kind.from_recipe(recipe.name.lower(), 1e-6).resolve(50)
    assert (settings.recipe, settings.recipe_source) == (recipe.name, recipe.source)
    assert settings.scale == 1e-6
    for name in recipe.settings:
        assert getattr(settings, name) == getattr(small, name), name
    assert settings.batch_size == 8
    assert 0 <= settings.warmup_steps < settings.steps
    text = json.dumps(settings.to_json())
    assert type(settings).from_json(json.loads(text)) == settings


def test_with_other_steps_the_warm_up_keeps_its_share():
    settings = FineTuning.from_recipe("Oxford Flowers-102", steps=50)
    assert (settings.steps, settings.warmup_steps) == (50, 10)
    given = FineTuning.from_recipe("Oxford Flowers-102", steps=50, warmup_steps=3)
    assert given.warmup_steps == 3


@pytest.mark.parametrize(
    ("num_images", "size", "expected"),
    [
        (1_000, (32, 32), (500, 100, (200, 300, 400), 0.0, (128, 128), (160, 160))),
        (50_000, (95, 97), (10_000, 500, (3000, 6000, 9000), 0.1, (128, 128), (160, 160))),
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


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        (FineTuning, {"optimizer": "lamb"}),
        (FineTuning, {"steps": 0}),
        (FineTuning, {"mixup": -0.1}),
        (FineTuning, {"learning_rate": float("nan")}),
        (FineTuning, {"validation": 1.0}),
        (FineTuning, {"image_size": (0, 8)}),
        (FineTuning, {"samples": "photos"}),
        (FineTuning, {"replay": "old", "replay_share": 1.0}),
        (MaskedPatches, {"target": "shape"}),
        (MaskedPatches, {"corruption": 1.0}),
    ],
    ids=str,
)
def test_a_setting_out_of_range_is_refused(settings, fields):
    with pytest.raises(ValueError, match=f"{list(fields)[-1]} must be .*Received"):
        settings(**fields)


@pytest.mark.parametrize(
    ("settings", "fields", "rule"),
    [
        (FineTuning, {"batch_size": 6, "accumulate": 4}, "accumulate must divide"),
        (FineTuning, {"epochs": 3, "steps": 3}, "epochs decide the steps"),
        (FineTuning, {"epochs": 3, "boundaries": (3,)}, "epochs decide the steps"),
        (FineTuning, {"loss": "sigmoid", "label_smoothing": 0.1}, 'is for loss="softmax"'),
        (FineTuning, {"resize": 400}, 'resize is for augmentation="resize_random_crop"'),
        (
            FineTuning,
            {"resize": 300, "image_size": 384, "augmentation": "resize_random_crop"},
            "no less than the image size",
        ),
        (FineTuning, {"teacher": "a", "loss": "sigmoid"}, 'teacher needs loss="softmax"'),
        (FineTuning, {"train": "head", "layer_decay": 0.8}, "needs more than one layer"),
        (FineTuning, {"replay": "old", "head": "new"}, "replay needs weights and extends"),
        (FineTuning, {"replay": "old", "class_weights": "balanced"}, "without class_weights"),
        (MaskedPatches, {"class_weights": "balanced"}, "class_weights need classes"),
        (MaskedPatches, {"samples": 3}, "samples need classes"),
    ],
    ids=str,
)
def test_a_rule_is_checked_and_in_the_help(settings, fields, rule):
    with pytest.raises(ValueError, match=rf"{rule}.*\. Received: .*{list(fields)[-1]}="):
        settings(**fields)
    assert rule in settings.__doc__


def test_steps_per_execution_divide_the_steps():
    settings = FineTuning(steps=12, steps_per_execution=4).resolve(10)
    assert settings.evaluate_every == 4
    with pytest.raises(ValueError, match="steps_per_execution must divide"):
        FineTuning(steps=10, steps_per_execution=4).resolve(10)


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
