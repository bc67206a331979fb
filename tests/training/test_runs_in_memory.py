"""Runs on arrays: the weights of a run on the same images in files, resumed, evaluated."""

import numpy as np
import pytest
from runs import SignalAt, silent, tiny_settings

import keras_vit
from keras_vit.training import PreTraining, finetune
from keras_vit.training.data import open_source
from keras_vit.training.evaluation.classification import evaluate_classifier
from keras_vit.training.run.finetune import dry_run
from keras_vit.training.run.loop import Interrupted
from keras_vit.training.run.start import start
from keras_vit.training.settings import RunOptions
from makers import COLORS, tiny_config, write_picture

SETTINGS = tiny_settings(image_size=8, steps=6, evaluate_every=3, validation=0.0)
PRETRAINING = PreTraining(model=tiny_config(), image_size=8, steps=6, batch_size=6)


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    colors = np.repeat(list(COLORS.values()), 10, axis=0)[:, None, None]
    images = np.clip(rng.normal(colors, 25, (30, 10, 12, 3)), 0, 255).astype("uint8")
    return images, np.repeat([0, 1, 2], 10)


@pytest.fixture(scope="module")
def folder(arrays, tmp_path_factory):
    root = tmp_path_factory.mktemp("colors")
    for number, (pixels, label) in enumerate(zip(*arrays, strict=True)):
        write_picture(root / list(COLORS)[label] / f"{number:02}.png", pixels)
    return root


@pytest.fixture(scope="module")
def stopped(arrays, tmp_path_factory):
    """The output of a run on arrays that was stopped."""
    output = tmp_path_factory.mktemp("runs") / "arrays"
    options = {"log": silent, "settings": SETTINGS, "class_names": COLORS}
    with pytest.raises(Interrupted):
        finetune(arrays, output, callbacks=[SignalAt(2)], **options)
    return output


@pytest.fixture(scope="module")
def resumed(arrays, stopped):
    """The run after it was resumed, which removes the unfinished one."""
    return finetune(arrays, stopped, resume=True, log=silent)


@pytest.mark.slow
def test_a_run_on_arrays_is_resumed_with_the_same_arrays(arrays, stopped):
    output, options = stopped, {"log": silent, "settings": SETTINGS}
    with pytest.raises(ValueError, match="unfinished run.*--resume"):
        finetune(arrays, output, class_names=COLORS, **options)
    images, labels = arrays
    with pytest.raises(ValueError, match="run's, memory:.*memory:"):
        finetune((images, 2 - labels), output, resume=True, **options)
    with pytest.raises(ValueError, match="passed again .*memory:"):
        finetune(None, output, resume=True, **options)


@pytest.mark.slow
def test_a_run_on_arrays_is_that_on_files(resumed, folder, tmp_path):
    done, files = resumed, finetune(folder, tmp_path / "files", SETTINGS, log=silent)
    for first, second in zip(
        files.classifier.model.weights, done.classifier.model.weights, strict=True
    ):
        np.testing.assert_array_equal(first.numpy(), second.numpy())
    assert done.classifier.class_names == tuple(COLORS)
    assert done.report.to_json()["loss"] == files.report.to_json()["loss"]
    recipe = done.classifier.recipe
    assert recipe["data"]["data"].startswith("memory:")
    assert recipe["images"] == files.classifier.recipe["images"]


@pytest.mark.slow
def test_images_that_a_run_held_out_are_known_in_a_part_of_the_arrays(resumed, arrays):
    done, (images, labels) = resumed, arrays
    again = evaluate_classifier(done.classifier, arrays)
    np.testing.assert_array_equal(again.confusion, done.report.confusion)
    some = evaluate_classifier(done.classifier, (images[10:], labels[10:]))
    assert some.counts.images.tolist() == [0, *again.counts.images.tolist()[1:]]
    # With names, as with numbers.
    named = evaluate_classifier(done.classifier, (images[20:], ["red"] * 10))
    assert named.counts.images.tolist() == [0, 0, again.counts.images.tolist()[2]]
    others = evaluate_classifier(done.classifier, (255 - images[25:], labels[25:]))
    assert others.counts.images.tolist() == [0, 0, 5]
    with pytest.raises(ValueError, match="blue, green, red; labels pink"):
        evaluate_classifier(done.classifier, (images[25:], ["pink"] * 5))


def test_a_class_that_is_tested_must_be_trained(arrays, tmp_path):
    images, labels = arrays
    data = {"train": (images[:20], labels[:20]), "test": arrays}
    for settings in (SETTINGS, PRETRAINING):
        spec = keras_vit.training.DataSpec(data, class_names=tuple(COLORS))
        with pytest.raises(ValueError, match=f"Received: train without {list(COLORS)[2]}"):
            dry_run(start(spec, RunOptions(tmp_path / "out"), settings))
    # A class without any image may have a name, and an evaluation trains nothing.
    spec = keras_vit.training.DataSpec((images[:20], labels[:20]), class_names=tuple(COLORS))
    assert len(open_source(spec, trained=True).class_names) == 3
    assert open_source(keras_vit.training.DataSpec(data)).class_names == ("0", "1", "2")
