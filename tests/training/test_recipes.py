import subprocess
import sys

import pytest

import keras_vit
from keras_vit.training import recipes
from keras_vit.training.settings import FineTuning

# The paper's rows, written again: name, epochs, learning rate, decay, weight decay, dropout.
ROWS = [
    ("ViT-B/32 JFT-300M", 7, 8e-4, "linear", 0.1, 0.0),
    ("ViT-L/16 JFT-300M 7 epochs", 7, 4e-4, "linear", 0.1, 0.0),
    ("ViT-L/16 JFT-300M", 14, 4e-4, "linear", 0.1, 0.0),
    ("ViT-H/14 JFT-300M", 14, 3e-4, "linear", 0.1, 0.0),
    ("BiT-R50x2 JFT-300M", 7, 1e-3, "linear", 0.1, 0.0),
    ("BiT-R101x1 JFT-300M", 7, 8e-4, "linear", 0.1, 0.0),
    ("R50+ViT-L/32 JFT-300M", 7, 2e-4, "linear", 0.1, 0.0),
    ("ViT-B/16 ImageNet-21k", 90, 1e-3, "linear", 0.03, 0.1),
    ("ViT-L/32 ImageNet-21k 30 epochs", 30, 1e-3, "linear", 0.03, 0.1),
    ("ViT-L/16 ImageNet", 300, 3e-3, "cosine", 0.3, 0.1),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_pretraining_is_table_3(row):
    name, *expected = row
    recipe = recipes.find_recipe(name)
    assert expected == [
        recipe.epochs,
        recipe.base_lr,
        recipe.decay,
        recipe.weight_decay,
        recipe.dropout_rate,
    ]
    assert (recipe.batch_size, recipe.warmup_steps, recipe.image_size) == (4096, 10_000, 224)
    assert recipe.global_clipnorm == (1.0 if recipe.data == "ImageNet" else None)
    images = recipe.steps * recipe.batch_size
    assert 0 <= images - recipe.epochs * recipes.EXAMPLES[recipe.data] < recipe.batch_size


def test_every_row_and_model_of_table_3_has_a_recipe():
    # 13 rows; two models in six of them and four in the last; two more for 7/14 and 30/90.
    from_table = [r for r in recipes.PRETRAINING.values() if r.source == "paper, Table 3"]
    assert len(from_table) == 13 + 6 + 3 + 4


def test_every_model_of_a_recipe_can_be_built():
    known = keras_vit.list_models()
    assert {recipe.model for recipe in recipes.PRETRAINING.values()} <= set(known)


@pytest.mark.parametrize(
    ("name", "steps", "learning_rates", "share"),
    [
        ("ImageNet", 20_000, (0.003, 0.01, 0.03, 0.06), 0.01),
        ("CIFAR-100", 10_000, (0.001, 0.003, 0.01, 0.03), 0.02),
        ("CIFAR-10", 10_000, (0.001, 0.003, 0.01, 0.03), 0.02),
        ("Oxford-IIIT Pets", 500, (0.001, 0.003, 0.01, 0.03), 0.1),
        ("oxford flowers-102", 500, (0.001, 0.003, 0.01, 0.03), 0.1),
        ("VTAB", 2500, (0.01,), 0.0),
    ],
)
def test_fine_tuning_is_table_4(name, steps, learning_rates, share):
    recipe = recipes.find_recipe(name)
    assert (recipe.steps, recipe.learning_rates) == (steps, learning_rates)
    assert recipe.development_share == share
    assert (recipe.batch_size, recipe.decay, recipe.image_size) == (512, "cosine", 384)
    assert (recipe.optimizer, recipe.global_clipnorm, recipe.weight_decay) == ("sgd", 1.0, 0.0)
    assert recipe.warmup_steps == FineTuning(steps=steps).resolve(1000).warmup_steps


def test_table_2_has_its_own_resolution_and_averages():
    recipe = recipes.find_recipe("ImageNet ViT-H/14")
    assert (recipe.image_size, recipe.averaging, recipe.steps) == (518, 0.9999, 20_000)


def test_scaling_follows_the_documented_rule():
    recipe = recipes.find_recipe("ViT-B/16 ImageNet")
    small = recipe.scaled(0.01)
    assert small.batch_size == 512  # The power of two nearest to 4096 / 10.
    images = recipe.steps * recipe.batch_size
    assert small.steps * small.batch_size == pytest.approx(images * 0.01, rel=1e-3)
    assert small.base_lr == pytest.approx(3e-3 / 8**0.5)
    assert small.warmup_steps / small.steps == pytest.approx(10_000 / recipe.steps, rel=1e-3)
    assert recipes.find_recipe("CIFAR-10").scaled(0.01).base_lr == pytest.approx(0.01 / 8)
    assert recipe.scaled(1) is recipe


@pytest.mark.parametrize("recipe", recipes.RECIPES.values(), ids=lambda recipe: recipe.name)
def test_every_recipe_can_be_scaled_to_a_few_steps(recipe):
    small = recipe.scaled(1e-6)
    assert small.batch_size == 8
    assert 0 <= small.warmup_steps < small.steps < 2000


def test_a_recipe_makes_its_optimizer():
    optimizer = recipes.find_recipe("BiT-R50x1 JFT-300M SGD").make_optimizer()
    config = optimizer.get_config()
    assert config["momentum"] == 0.9
    assert config["weight_decay"] == pytest.approx(3e-5 * 16)
    assert config["weight_decay_times"] == "schedule"
    assert optimizer.learning_rate == 0.0  # The warm-up starts at 0.
    sweep = recipes.find_recipe("CIFAR-10").make_optimizer(base_lr=0.03)
    assert float(sweep.get_config()["learning_rate"]["config"]["base_lr"]) == 0.03


@pytest.mark.parametrize(
    ("examples", "size", "expected"),
    [
        (1000, (32, 32), (500, (200, 300, 400), 100, 0.0, 128)),
        (50_000, (95, 97), (10_000, (3000, 6000, 9000), 500, 0.1, 128)),
        (1_281_167, (500, 375), (20_000, (6000, 12_000, 18_000), 500, 0.1, 480)),
    ],
)
def test_the_hyper_rule_is_that_of_bit(examples, size, expected):
    recipe = recipes.bit_hyper_rule(examples, size)
    assert expected == (
        recipe.steps,
        recipe.boundaries,
        recipe.warmup_steps,
        recipe.mixup,
        recipe.image_size,
    )
    assert recipe.make_optimizer().get_config()["global_clipnorm"] is None


def test_unknown_recipe_names_the_nearest():
    with pytest.raises(ValueError, match="Oxford Flowers-102"):
        recipes.find_recipe("Oxford Flowers")
    with pytest.raises(ValueError, match="scale"):
        recipes.find_recipe("VTAB").scaled(2)


def test_recipes_import_neither_keras_nor_tensorflow():
    code = (
        "import sys, keras_vit.training.recipes; "
        "assert not {'keras', 'tensorflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
