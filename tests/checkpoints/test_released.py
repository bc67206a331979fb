import pathlib
import re
import shutil

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import configs
from keras_vit.checkpoints.catalogue import RELEASED, name_of_folder, released_folder
from keras_vit.models.rebuild import without_unknown
from keras_vit.opening import open_model, open_predictor
from keras_vit.training.evaluation.predictions import build_evaluated

BEST, PLAIN = RELEASED[0], RELEASED[-1]
PARAMETERS = {
    "R7+ViT-Nano/8": 2_575_530,
    "R14+ViT-Micro/16": 2_638_250,
    "ViT-Mini/4": 1_007_626,
}
NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


@pytest.fixture(scope="module", params=RELEASED, ids=[row.key for row in RELEASED])
def released(request):
    return request.param


@pytest.fixture(scope="module")
def classifier(released):
    return open_predictor(released.key)


def test_a_released_classifier_is_small_and_whole(released, classifier):
    assert classifier.recipe["model"] == released.model
    assert classifier.class_names == tuple(NAMES)
    assert classifier.preprocessing.image_size == (configs.IMAGE_SIZES[released.model],) * 2
    assert keras_vit.describe(classifier.model).parameters == PARAMETERS[released.model]
    files = [file for file in released.folder.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 6_000_000


def test_its_accuracy_on_its_samples_is_that_of_its_recipe(released, classifier):
    samples = sorted((released.folder / "samples").iterdir())
    top = [prediction.top[0][0] for prediction in classifier.predict(samples, top=1)]
    # An evenly spread choice of the test images, which are in the order of their classes.
    labels = [NAMES[index * len(NAMES) // len(samples)] for index in range(len(samples))]
    right = np.mean([a == b for a, b in zip(top, labels, strict=True)])
    # Three standard deviations of a rate over so few images.
    spread = 3 * np.sqrt(0.25 / len(samples))
    assert abs(right - classifier.recipe["test"]["top_1"]) < spread


def test_it_answers_the_share_of_its_samples_that_was_found(released, classifier):
    decision, samples = (
        classifier.recipe["decision"],
        sorted((released.folder / "samples").iterdir()),
    )
    assert (decision["images"], decision["max_error"]) == (9500, 0.05)
    assert classifier.model.output_shape == (None, 11)
    found = np.mean([p.label != "unknown" for p in classifier.predict(samples)])
    spread = 3 * np.sqrt(0.25 / len(samples))  # As above.
    assert abs(found - decision["answered"] / decision["images"]) < spread


def test_weights_by_name_are_those_of_the_classifier(released, classifier):
    assert len(released.names)
    for name in released.names:
        model = keras_vit.build(released.model, weights=name)
        assert model.input_shape == classifier.model.input_shape
        assert model.output_shape == (None, 10)
        images = np.random.default_rng(0).uniform(-1, 1, (2, *model.input_shape[1:]))
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(model(images.astype("float32"))),
            keras.ops.convert_to_numpy(without_unknown(classifier.model)(images.astype("float32"))),
        )


def test_the_best_of_a_data_set_goes_first():
    accuracies = [open_predictor(row.key).recipe["test"]["top_1"] for row in RELEASED]
    assert accuracies == sorted(accuracies, reverse=True)
    assert {row.name for row in RELEASED} == {"cifar10"}
    assert released_folder("cifar10") == BEST.folder


def test_a_models_name_selects_among_the_classifiers():
    assert open_model("cifar10").description.name == BEST.model
    assert open_model("cifar10", model=PLAIN.model).description.name == PLAIN.model
    assert released_folder("cifar10", configs.MODELS[PLAIN.model]) == PLAIN.folder
    with pytest.raises(ValueError, match="ViT-Ti/16"):
        open_model("cifar10", model="ViT-Ti/16")


def test_other_classes_and_sizes_are_a_transfer():
    assert keras_vit.build("ViT-Mini/4", weights="cifar10").output_shape == (None, 10)
    model = keras_vit.build("ViT-Mini/4", weights="cifar10", classes=3, input_shape=(48, 40, 3))
    assert not keras.ops.convert_to_numpy(model.get_layer("predictions").kernel).any()
    assert model.get_layer("position_embedding").grid == (12, 10)
    features = keras_vit.applications.ViTMini4(
        weights="cifar10", include_top=False, pooling="token"
    )
    assert features.output_shape == (None, 128)


def test_the_weights_are_of_these_models():
    known = re.escape(" or ".join(row.model for row in RELEASED))
    with pytest.raises(ValueError, match=rf"{known}\. Received: ViT-Ti/16"):
        keras_vit.build("ViT-Ti/16", weights="cifar10", classes=10)


def test_a_name_that_is_a_folder_too_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PLAIN.folder, "cifar10")
    for use in (
        released_folder,
        open_model,
        lambda name: keras_vit.build("ViT-Mini/4", weights=name),
    ):
        with pytest.raises(ValueError, match=r"\./cifar10"):
            use("cifar10")
    assert released_folder(pathlib.Path("cifar10")) == pathlib.Path("cifar10")
    assert open_model("./cifar10").description.name == PLAIN.model
    assert released_folder("runs/cifar10") == pathlib.Path("runs/cifar10")


def test_a_result_has_the_name_of_a_classifier_of_the_package_and_no_path():
    evaluated = build_evaluated(BEST.name)
    assert evaluated.source == BEST.key
    assert name_of_folder("some/folder") == "some/folder"


def test_only_a_resize_that_was_given_is_called_so():
    protocol = build_evaluated(BEST.name, evaluation="resize_central_crop").description.facts
    assert "evaluation resize_central_crop (the few-shot protocol)" in protocol
    given = build_evaluated(BEST.name, evaluation="resize_small_central_crop").description.facts
    assert "evaluation resize_small_central_crop (given)" in given
