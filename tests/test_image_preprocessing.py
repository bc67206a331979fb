"""Preprocessing in a model: the layer, and that nothing resizes or scales twice around it."""

import dataclasses
import inspect
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from xla_flags import FAST_COMPILATION

import keras_vit
from keras_vit.commands.convert import CONVERSION_FORMATS
from keras_vit.description import Description
from keras_vit.export.formats.artefacts import load_artefact
from keras_vit.export.formats.table import FORMATS
from keras_vit.images.resizing import EVALUATION_STEPS
from keras_vit.layers import ImagePreprocessing
from keras_vit.models.rebuild import inference_model
from keras_vit.preprocessing import (
    EVALUATIONS,
    IMAGENET_MEAN,
    IMAGENET_STD,
    INTERPOLATIONS,
    Preprocessing,
    value_range,
)
from makers import COLORS, smooth_picture, tiny_config, write_picture

IMAGENET = value_range(IMAGENET_MEAN, IMAGENET_STD)
SIZE = (12, 8)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Photos of the package and smooth pictures, of several sizes, as files."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for number, name in enumerate([*COLORS] * 2):
        picture = smooth_picture(rng, (20 + number, 31 - 2 * number), (4, 5))
        write_picture(folder / name / f"{number}.png", np.asarray(picture))
    return folder


@pytest.fixture(scope="module")
def models():
    """A model with its preprocessing and one without it, of the same weights."""
    keras.utils.set_random_seed(0)
    shape = {"input_shape": (*SIZE, 3), "classes": 3}
    without = keras_vit.build(tiny_config(), **shape)
    without.get_layer("predictions").kernel.assign(np.random.randn(16, 3))
    known = Preprocessing(SIZE, value_range=IMAGENET)
    including = keras_vit.build(tiny_config(), **shape, include_preprocessing=known)
    including.set_weights(without.get_weights())
    return including, without, known


@pytest.fixture(scope="module")
def folders(models, tmp_path_factory):
    """The folders of both as classifiers: with the preprocessing included, and without."""
    including, without, known = models
    place = tmp_path_factory.mktemp("classifiers")
    keras_vit.save_classifier(place / "including", including, [*COLORS])
    keras_vit.save_classifier(place / "without", without, [*COLORS], known)
    return place / "including", place / "without"


def files_of(photos):
    return sorted(photos.glob("*/*.png"))


def answers(classifier, photos):
    """Probabilities of photos by class."""
    found = classifier.predict(files_of(photos), top=3)
    return np.array([[dict(answer.top)[name] for name in COLORS] for answer in found])


# The layer.


@pytest.mark.parametrize("ranges", [(-1.0, 1.0), (0.0, 1.0), (0.0, 255.0), IMAGENET])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_the_layer_computes_what_preprocessing_does_on_photos_and_noise(ranges, dtype, photos):
    noise = np.random.default_rng(1).integers(0, 256, (2, 48, 80, 3), "uint8")
    pictures = [np.asarray(Image.open(file))[None] for file in files_of(photos)]
    spread = np.max(np.subtract(*ranges[::-1]))
    for images in (noise, *pictures):
        for size in ((32, 32), (17, 90), images.shape[1:3]):
            expected = Preprocessing(size, value_range=ranges)(images.astype(dtype))
            found = ImagePreprocessing(size, value_range=ranges)(images.astype(dtype))
            assert np.abs(keras.ops.convert_to_numpy(found) - expected).max() < 5e-6 * spread


def test_the_layer_computes_the_same_in_a_graph_of_images_of_any_size(photos):
    images = keras.Input((None, None, 3), dtype="uint8")
    model = keras.Model(images, ImagePreprocessing(SIZE)(images))
    assert model.output_shape == (None, *SIZE, 3)
    for file in files_of(photos):
        pixels = np.asarray(Image.open(file))[None]
        found = model.predict(pixels, verbose=0)
        np.testing.assert_allclose(found, Preprocessing(SIZE)(pixels), atol=1e-5)


PROGRAM = """
import numpy as np, keras, keras_vit
images = np.random.default_rng(1).integers(0, 256, (2, 48, 80, 3)).astype("uint8")
layer = keras_vit.layers.ImagePreprocessing((32, 20))
given = keras.Input((None, None, 3), dtype="uint8")
model = keras.Model(given, keras.layers.Identity()(layer(given)))
expected = keras_vit.Preprocessing((32, 20))(images)
outputs = [layer(images), model(images)]
print(max(np.abs(keras.ops.convert_to_numpy(x) - expected).max() for x in outputs))
"""


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_layer_computes_the_same_on_every_backend(backend):
    pytest.importorskip(backend)
    environment = {"KERAS_BACKEND": backend, "PATH": "", "CUDA_VISIBLE_DEVICES": ""}
    environment["XLA_FLAGS"] = FAST_COMPILATION
    command = [sys.executable, "-P", "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-5


def test_the_layer_computes_what_no_row_of_the_table_of_resizes_rounds():
    exact = [name for name, steps in EVALUATION_STEPS.items()
             if steps.kernel == "filter" and steps.rounding is None]  # fmt: skip
    assert exact == ["resize"]
    assert ImagePreprocessing(SIZE).preprocessing == Preprocessing(SIZE, evaluation=exact[0])


@pytest.mark.parametrize("evaluation", [name for name in EVALUATIONS if name != "resize"])
def test_a_resize_that_a_graph_cannot_compute_is_refused_by_name(evaluation):
    with pytest.raises(ValueError, match=f"evaluation='{evaluation}'"):
        ImagePreprocessing(SIZE, evaluation)


@pytest.mark.parametrize("filter", INTERPOLATIONS[1:])
def test_a_filter_that_a_graph_cannot_compute_is_refused_by_name(filter):
    with pytest.raises(ValueError, match=f"interpolation='bilinear'.*='{filter}'"):
        ImagePreprocessing(SIZE, interpolation=filter)


def test_a_range_for_other_channels_is_refused():
    with pytest.raises(ValueError, match="3 channels"):
        ImagePreprocessing(SIZE, value_range=IMAGENET)(np.zeros((1, 4, 4, 1)))


def test_the_layer_is_saved_with_its_arguments(tmp_path):
    model = keras.Sequential(
        [keras.Input((20, 30, 3)), ImagePreprocessing(SIZE, "resize", IMAGENET)]
    )
    model.save(tmp_path / "model.keras")
    images = np.random.default_rng(0).uniform(0, 255, (2, 20, 30, 3)).astype("float32")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(images), model(images))
    layer = ImagePreprocessing(SIZE, "resize", IMAGENET)
    assert ImagePreprocessing.from_config(layer.get_config()).preprocessing == layer.preprocessing


def test_the_layer_computes_in_float32_under_mixed_precision():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        images = np.random.default_rng(0).integers(0, 256, (1, 20, 30, 3), "uint8")
        found = ImagePreprocessing(SIZE)(images)
    finally:
        keras.config.set_dtype_policy("float32")
    np.testing.assert_allclose(found, Preprocessing(SIZE)(images), atol=1e-5)


def test_the_record_is_callable_on_arrays_tensors_and_in_tf_data():
    record = Preprocessing(SIZE, value_range=IMAGENET)
    images = np.random.default_rng(0).integers(0, 256, (2, 20, 30, 3), "uint8")
    expected = record(images)
    np.testing.assert_array_equal(record(tf.constant(images)), expected)
    (mapped,) = tf.data.Dataset.from_tensors(images).map(record)
    np.testing.assert_array_equal(mapped, expected)


# A model that includes it.


def test_a_model_that_includes_it_says_so_and_takes_pixels(models):
    including, without, known = models
    described = keras_vit.describe(including)
    assert described.included == known
    assert described.preprocessing == dataclasses.replace(known, value_range=(0.0, 255.0))
    assert "made -2.118" in described.facts
    assert keras_vit.describe(without).included is None
    assert Description.from_json(described.to_json()) == described


def test_it_is_the_last_keyword_of_build_and_of_the_model_functions():
    for function in (keras_vit.ViTB16, keras_vit.applications.ViTMini4):
        *_, (name, last) = inspect.signature(function).parameters.items()
        assert (name, last.default) == ("include_preprocessing", False)
    *_, before, changes = inspect.signature(keras_vit.build).parameters
    assert (before, changes) == ("include_preprocessing", "changes")


def test_a_model_function_gives_the_answers_of_its_weights_for_pixels():
    model = keras_vit.applications.ViTMini4(weights="cifar10", include_preprocessing=True)
    classifier = keras_vit.applications.ViTMini4(weights="cifar10")
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), "uint8")
    expected = classifier.predict(keras_vit.describe(classifier).preprocessing(images), verbose=0)
    np.testing.assert_allclose(model.predict(images, verbose=0), expected, atol=1e-5)


def test_pixels_of_any_size_are_resized_by_a_model_on_such_an_input(models):
    _, without, known = models
    images = keras.Input((None, None, 3), dtype="uint8")
    model = keras_vit.build(
        tiny_config(), input_tensor=images, input_shape=(*SIZE, 3), classes=3,
        include_preprocessing=known,
    )  # fmt: skip
    model.set_weights(without.get_weights())
    pixels = np.random.default_rng(0).integers(0, 256, (2, 30, 41, 3), "uint8")
    expected = without.predict(known(pixels), verbose=0)
    np.testing.assert_allclose(model.predict(pixels, verbose=0), expected, atol=1e-5)
    assert keras_vit.describe(model).included == known


def test_what_cannot_be_included_is_refused_by_name():
    crop = Preprocessing(SIZE, evaluation="torchvision")
    with pytest.raises(ValueError, match="evaluation='torchvision'"):
        keras_vit.build(tiny_config(), input_shape=(*SIZE, 3), include_preprocessing=crop)
    with pytest.raises(ValueError, match="image size.*input_shape=.None"):
        keras_vit.build(tiny_config(), input_shape=(None, None, 3), include_top=False,
                        include_preprocessing=True)  # fmt: skip


def test_pixels_scaled_in_front_of_a_model_that_scales_them_are_refused(models, tmp_path):
    including, _, known = models
    with pytest.raises(ValueError, match="scaled once"):
        keras_vit.save_classifier(tmp_path / "twice", including, [*COLORS], known)
    with pytest.raises(ValueError, match="scaled once"):
        keras_vit.Classifier(including, [*COLORS], known)


# The same answers on every path.


def test_predict_and_preprocess_of_a_classifier(folders, photos):
    including, without = map(keras_vit.load_classifier, folders)
    np.testing.assert_allclose(answers(including, photos), answers(without, photos), atol=1e-5)
    (pixels,) = (np.asarray(Image.open(files_of(photos)[0]))[None],)
    found = including.model.predict(including.preprocess(pixels), verbose=0)
    expected = without.model.predict(without.preprocess(pixels), verbose=0)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_saved_model_file(models, tmp_path):
    including, without, known = models
    including.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert keras_vit.describe(loaded).included == known
    pixels = np.random.default_rng(0).integers(0, 256, (2, *SIZE, 3), "uint8")
    expected = without.predict(known(pixels), verbose=0)
    np.testing.assert_allclose(loaded.predict(pixels, verbose=0), expected, atol=1e-5)


def test_evaluate(folders, photos):
    first, second = (keras_vit.evaluate(folder, photos, log=None) for folder in folders)
    assert first.loss == pytest.approx(second.loss, rel=1e-5)


@pytest.mark.parametrize("input", ["float", "uint8"])
@pytest.mark.parametrize("name", ["tflite", "onnx", "openvino"])
def test_an_export(folders, photos, tmp_path, name, input):
    export = getattr(keras_vit.export, name)
    path = tmp_path / f"model{FORMATS[name].suffix}"
    export(folders[0], path, input=input, check_images=files_of(photos))
    exported = load_artefact(path)
    expected = answers(keras_vit.load_classifier(folders[1]), photos)
    np.testing.assert_allclose(answers(exported, photos), expected, atol=1e-4)
    assert exported.description.included is not None


def test_a_served_model_of_encoded_images(folders, photos, tmp_path):
    keras_vit.export.saved_model(folders[0], tmp_path / "served", check_images=files_of(photos))
    expected = answers(keras_vit.load_classifier(folders[1]), photos)
    served = load_artefact(tmp_path / "served")
    np.testing.assert_allclose(answers(served, photos), expected, atol=1e-5)


@pytest.mark.parametrize("to", ["classifier", "huggingface"])
def test_a_conversion(folders, photos, tmp_path, to):
    assert to in CONVERSION_FORMATS
    for folder in folders:
        keras_vit.convert(folder, tmp_path / folder.name, to=to, log=None)
    facts = [held_of(tmp_path / folder.name) for folder in folders]
    assert facts[0] == facts[1]
    models = [keras_vit.build(weights=str(tmp_path / folder.name)) for folder in folders]
    assert all(map(np.array_equal, *(model.get_weights() for model in models)))


def held_of(folder):
    """The preprocessing that weights in a folder need."""
    return keras_vit.describe(keras_vit.build(weights=str(folder))).preprocessing


def test_weights_of_it_in_another_model(folders, models):
    """`build` of its folder takes images as the weights need them, or includes the same again."""
    pixels = np.random.default_rng(0).integers(0, 256, (2, *SIZE, 3), "uint8")
    expected = models[1].predict(models[2](pixels), verbose=0)
    plain = keras_vit.build(weights=str(folders[0]))
    found = plain.predict(keras_vit.describe(plain).preprocessing(pixels), verbose=0)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    again = keras_vit.build(weights=str(folders[0]), include_preprocessing=True)
    np.testing.assert_allclose(again.predict(pixels, verbose=0), expected, atol=1e-5)


def test_weights_for_another_range_are_not_loaded_into_it(models, tmp_path):
    _, without, _ = models
    keras_vit.save_classifier(tmp_path / "half", without, [*COLORS], Preprocessing(SIZE))
    with pytest.raises(ValueError, match="range of the pixels"):
        keras_vit.build(weights=tmp_path / "half", include_preprocessing=models[2])


def test_a_new_head_and_a_model_for_inference_keep_it(models):
    including, without, known = models
    pixels = np.random.default_rng(0).integers(0, 256, (2, *SIZE, 3), "uint8")
    for change in (lambda model: keras_vit.with_new_head(model, 5), inference_model):
        changed, expected = change(including), change(without)
        assert Description.of_model(changed).included == known
        found = changed.predict(pixels, verbose=0)
        np.testing.assert_allclose(found, expected.predict(known(pixels), verbose=0), atol=1e-5)


def test_features_of_it(folders, models):
    pixels = np.random.default_rng(0).integers(0, 256, (2, *SIZE, 3), "uint8")
    found = keras_vit.features(models[0]).predict(pixels, verbose=0)
    expected = keras_vit.features(models[1]).predict(models[2](pixels), verbose=0)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_embed_and_few_shot(folders, photos, tmp_path):
    arrays = [
        keras_vit.embed(folder, photos, tmp_path / f"{folder.name}.npz", log=None)[0]["features"]
        for folder in folders
    ]
    np.testing.assert_allclose(*arrays, atol=1e-5)
    reports = [keras_vit.few_shot(folder, photos, shots=[1], seeds=[0], log=None)
               for folder in folders]  # fmt: skip
    assert reports[0].accuracies == reports[1].accuracies


def test_fine_tuning_from_it(folders, photos, tmp_path):
    given = {"steps": 2, "batch_size": 3, "accumulate": 1, "holdout": 0.0, "validation": 0.0,
             "samples": "none", "image_size": SIZE, "log": None}  # fmt: skip
    runs = [
        keras_vit.finetune(photos, tmp_path / folder.name, weights=folder, **given)
        for folder in folders
    ]
    image = Image.open(files_of(photos)[0])
    np.testing.assert_array_equal(*(run.classifier.preprocess(image) for run in runs))
    pairs = zip(*(run.model.get_weights() for run in runs), strict=True)
    assert all(np.array_equal(first, second) for first, second in pairs)


def test_a_folder_at_another_size(folders, photos, tmp_path):
    arrays = [
        keras_vit.embed(folder, photos, tmp_path / f"{folder.name}.npz", image_size=16, log=None)[0]
        for folder in folders
    ]
    np.testing.assert_allclose(*(each["features"] for each in arrays), atol=1e-5)


def test_what_is_neither_true_nor_a_preprocessing_is_refused():
    with pytest.raises(ValueError, match="Received: 'imagenet'"):
        keras_vit.ViTTi16(weights=None, include_preprocessing="imagenet")
