"""A stopped run ends with the weights of a run without the stop, bit for bit: whole jobs, small."""

import numpy as np
import pytest
from runs import SignalAt, silent, tiny_settings

from keras_vit.training import finetune
from keras_vit.training.run.loop import Interrupted

# Every image is augmented by its epoch and place, so that a batch too early or too late shows.
# Keras's layers draw once for each image, and CutMix for each batch.
SETTINGS = tiny_settings(
    image_size=8,
    steps=6,
    batch_size=6,
    accumulate=2,
    evaluate_every=3,
    dropout_rate=0.2,
    augmentation="inception_crop",
    mixup=0.2,
    layers=("RandomErasing", "CutMix"),
    ema_momentum=0.9,
)


@pytest.fixture(scope="module")
def runs(colors, tmp_path_factory):
    """A run without a stop, and one that was stopped after two steps."""
    folder = tmp_path_factory.mktemp("runs")
    whole = finetune(colors, folder / "whole", SETTINGS, log=silent)
    with pytest.raises(Interrupted):
        finetune(colors, folder / "run", SETTINGS, log=silent, callbacks=[SignalAt(2)])
    return whole, finetune(None, folder / "run", resume=True, log=silent)


def test_a_stopped_command_ends_with_the_weights_of_one_that_was_not(runs):
    whole, resumed = runs
    for first, second in zip(whole.model.get_weights(), resumed.model.get_weights(), strict=True):
        np.testing.assert_array_equal(first, second)
    columns = ("step", "validation_loss", "validation_accuracy", "averaged_loss")
    rows = [[[row[name] for name in columns] for row in each.history] for each in (whole, resumed)]
    assert rows[0] == [row for row in rows[1] if row[0] != "2"]  # The stop has its own row.


def test_the_recipe_and_the_curves_have_the_step_of_the_stop(runs):
    whole, resumed = runs
    assert resumed.classifier.recipe["resumed"] == [2]
    assert "resumed" not in whole.classifier.recipe
    assert resumed.classifier.recipe["settings"]["layers"] == ["RandomErasing", "CutMix"]
    pages = [(each.folder / "report.html").read_text() for each in runs]
    # On the charts of loss, accuracy and learning rate.
    assert [page.count("resumed after step 2") for page in pages] == [0, 3]
