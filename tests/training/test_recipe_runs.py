"""A real training, small, by a recipe of Table 3.

Table 4's is in test_sweep.py.
"""

import json

import numpy as np
import pytest

from keras_vit.training.run.finetune import pretrain
from keras_vit.training.settings import PreTraining
from makers import tiny_config, write_classes

TINY = tiny_config()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Noisy pictures of three colours, 12 pixels high and 10 wide."""
    return write_classes(tmp_path_factory.mktemp("colors"), {"train": 8, "test": 2}, size=(12, 10))


@pytest.mark.slow
def test_table_3_with_the_sigmoid_loss_and_its_head_bias(data, tmp_path):
    settings = PreTraining.from_recipe(
        "ViT-B/16 ImageNet-21k",
        model=TINY,
        image_size=8,
        steps=2,
        batch_size=48,
        head_bias=-2.0,
        accumulate=1,
        ema_momentum=0.9,
    )
    lines = []
    finished = pretrain(data, tmp_path / "out", settings, log=lines.append)
    # At the start every logit is the bias: softplus(-2) for each class, and 2 for the right one.
    expected = 3 * np.log1p(np.exp(-2.0)) + 2.0
    assert float(finished.history[0]["loss"]) == pytest.approx(expected, abs=1e-4)
    text = "\n".join(lines)
    assert "ViT-B/16 ImageNet-21k (paper, Table 3)" in text
    recipe = json.loads((tmp_path / "out" / "recipe.json").read_text())
    assert recipe["settings"]["recipe"] == "ViT-B/16 ImageNet-21k"
    assert recipe["settings"]["recipe_source"] == "paper, Table 3"
    assert recipe["skipped_steps"] == 0
    assert finished.history[0]["averaged_accuracy"]
