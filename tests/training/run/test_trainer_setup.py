"""Optimizer, loss and trainer from settings."""

import keras
import pytest

import keras_vit
from keras_vit.training.run.loop import make_optimizer, make_trainer
from keras_vit.training.settings import PreTraining
from makers import tiny_config


def test_table_7_is_trained_with_sgd():
    settings = PreTraining.from_recipe("BiT-R50x1 JFT-300M SGD")
    config = make_optimizer(settings).get_config()
    assert config["name"] == "sgd"
    assert config["momentum"] == 0.9
    assert config["weight_decay"] == pytest.approx(3e-5 * 16)
    assert config["weight_decay_times"] == "schedule"
    assert config["global_clipnorm"] is None
    assert make_optimizer(settings).learning_rate == 0.0  # The warm-up starts at 0.


def test_the_official_code_decays_the_same_weights():
    keras.utils.set_random_seed(0)
    model = keras_vit.build(
        tiny_config(depth=2),
        input_shape=(8, 8, 3),
        classes=3,
        classifier_activation=None,
    )
    trainer = make_trainer(model, PreTraining(steps=2, warmup_steps=0).resolve(10))
    paths = [v.path for v in trainer.trainable_variables]
    decayed = {path for path in paths if trainer.optimizer.decays(path)}
    assert decayed == {path for path in paths if path.endswith("kernel")}
