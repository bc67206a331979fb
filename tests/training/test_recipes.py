import pytest

from keras_vit.training import recipes
from keras_vit.training.settings import FineTuning, PreTraining

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
    recipe, settings = recipes.find_recipe(name), PreTraining.from_recipe(name)
    assert expected == [
        recipe.epochs,
        settings.learning_rate,
        settings.decay,
        settings.weight_decay,
        settings.dropout_rate,
    ]
    assert settings.optimizer == "adam"
    assert (settings.batch_size, settings.warmup_steps) == (4096, 10_000)
    assert settings.image_size == (224, 224)
    assert settings.global_clipnorm == (1.0 if recipe.data == "ImageNet" else None)
    images = settings.steps * settings.batch_size
    assert 0 <= images - recipe.epochs * recipes.EXAMPLES[recipe.data] < settings.batch_size


def test_every_row_and_model_of_table_3_has_a_recipe():
    # 13 rows; two models in six of them and four in the last; two more for 7/14 and 30/90.
    from_table = [r for r in recipes.PRETRAINING.values() if r.source == "paper, Table 3"]
    assert len(from_table) == 13 + 6 + 3 + 4


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
    settings = FineTuning.from_recipe(name)
    assert (settings.steps, recipes.find_recipe(name).learning_rates) == (steps, learning_rates)
    assert settings.validation == share
    assert (settings.batch_size, settings.decay) == (512, "cosine")
    assert settings.image_size == (384, 384)
    assert (settings.optimizer, settings.global_clipnorm, settings.weight_decay) == (
        "sgd",
        1.0,
        0.0,
    )
    assert settings.warmup_steps == FineTuning(steps=steps).resolve(1000).warmup_steps


def test_table_2_has_its_own_resolution_and_averages():
    settings = FineTuning.from_recipe("ImageNet ViT-H/14")
    assert settings.image_size == (518, 518)
    assert (settings.ema_momentum, settings.steps) == (0.9999, 20_000)
