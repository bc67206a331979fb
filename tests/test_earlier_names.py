"""Files that were written before fields had the names of Keras."""

import dataclasses

import keras
import pytest

from keras_vit.description import Description
from keras_vit.description.run_record import RunRecord
from keras_vit.training import FineTuning, MaskedPatches, SoftmaxCrossentropy, Trainer


def test_settings_are_read_by_their_earlier_names():
    fields = {"clip_norm": 0.5, "averaging": 0.9, "class_weights": "balanced"}
    read = FineTuning.from_json(fields)
    assert read == FineTuning(global_clipnorm=0.5, ema_momentum=0.9, class_weight="balanced")


def test_a_setting_is_read_by_its_earlier_value():
    read = MaskedPatches.from_json({"target": "mean-colour"})
    assert read.target == "mean-color"


def test_a_recipe_has_the_present_names_in_its_settings_facts_and_description():
    recipe = RunRecord.from_json(
        {
            "settings": {"clip_norm": 1.0},
            "facts": {"class_weights": {"value": {"cat": 1.0}, "from": "balanced"}},
            "description": {"licence": "mit"},
        }
    )
    assert recipe.settings == {"global_clipnorm": 1.0}
    assert recipe.facts["class_weight"].value == {"cat": 1.0}
    assert recipe.description == {"license": "mit"}


def test_a_description_is_read_by_its_earlier_names():
    description = Description(name="a", license="apache-2.0")
    fields = description.to_json()
    fields["licence"] = fields.pop("license")
    assert Description.from_json(fields) == description


def test_a_loss_is_read_by_its_earlier_names():
    loss = SoftmaxCrossentropy(class_weight=(1.0, 2.0))
    config = loss.get_config()
    config["class_weights"] = config.pop("class_weight")
    assert SoftmaxCrossentropy.from_config(config).class_weight == [1.0, 2.0]


def test_a_trainer_is_read_by_its_earlier_names():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    config = Trainer(model, gradient_accumulation_steps=2, ema_momentum=0.9).get_config()
    for name, before in (
        ("gradient_accumulation_steps", "accumulation_steps"),
        ("ema_momentum", "averaging"),
    ):
        config[before] = config.pop(name)
    read = Trainer.from_config(config)
    assert (read.gradient_accumulation_steps, read.ema_momentum) == (2, 0.9)


@pytest.mark.parametrize("kind", [FineTuning, MaskedPatches])
def test_no_setting_has_an_earlier_name(kind):
    names = {field.name for field in dataclasses.fields(kind)}
    assert names.isdisjoint({"clip_norm", "averaging", "class_weights", "licence"})
