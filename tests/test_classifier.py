import io
import itertools
import json
import logging
import multiprocessing
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import keras_vit
from keras_vit import images as image_formats
from keras_vit.classifier import save_classifier
from keras_vit.classifier_folder import FILES
from keras_vit.images.listing import image_files, images_below
from keras_vit.opening import open_predictor
from keras_vit.preprocessing import Preprocessing
from makers import tiny_config, write_picture

NAMES = ("ant", "bee", "crow with spaces")
PREPROCESSING = Preprocessing((16, 24))


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    config = tiny_config(patch_size=8)
    model = keras_vit.build(config, input_shape=(16, 24, 3), classes=3)
    model.get_layer("predictions").kernel.assign(np.random.randn(16, 3))
    return model


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier") / "pets"
    save_classifier(
        folder,
        model,
        NAMES,
        PREPROCESSING,
        recipe={"seed": 3},
        history=[{"step": 1, "loss": 2.0}, {"step": 2, "validation_loss": 1.0}],
    )
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for index in range(5):
        pixels = rng.integers(0, 256, (20 + index, 30, 3), np.uint8)
        write_picture(folder / f"{index}.PNG", pixels)
    (folder / "notes.txt").write_text("no image")
    return folder


def copy_of(folder, tmp_path, **changes):
    """A copy of a classifier's folder with the content of some files changed or removed."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in FILES:
        content = (folder / name).read_bytes()
        content = changes.get(name.partition(".")[0], content)
        if content is not None:
            (copy / name).write_bytes(content)
    return copy


def test_the_folder_has_its_files_and_nothing_is_left_beside_it(folder):
    assert sorted(os.listdir(folder)) == sorted(FILES)
    assert os.listdir(folder.parent) == ["pets"]
    assert (folder / "history.csv").read_text().splitlines() == [
        "step,loss,validation_loss",
        "1,2.0,",
        "2,,1.0",
    ]


def test_a_loaded_classifier_equals_the_saved_one(folder, model):
    loaded = open_predictor(folder)
    assert loaded.class_names == NAMES
    assert loaded.preprocessing == PREPROCESSING
    assert loaded.recipe == {"seed": 3}
    images = np.random.default_rng(1).normal(size=(2, 16, 24, 3)).astype("float32")
    np.testing.assert_array_equal(
        loaded.model.predict(images, verbose=0), model.predict(images, verbose=0)
    )


def test_predict_gives_the_models_probabilities_of_the_preprocessed_files(folder, images):
    classifier = open_predictor(folder)
    paths = [images / f"{index}.PNG" for index in range(5)]
    predictions = classifier.predict(paths, top=3, batch_size=2)
    inputs = classifier.preprocess([np.asarray(Image.open(path)) for path in paths])
    expected = classifier.model.predict(inputs, verbose=0)
    for path, prediction, row in zip(paths, predictions, expected, strict=True):
        assert prediction.path == str(path)
        assert [name for name, _ in prediction.top] == [NAMES[k] for k in np.argsort(-row)]
        # float32, batches of other sizes.
        np.testing.assert_allclose([p for _, p in prediction.top], -np.sort(-row), atol=1e-6)


def test_preprocess_takes_one_image_a_batch_a_list_and_pil(folder, images):
    classifier = open_predictor(folder)
    picture = Image.open(images / "0.PNG")
    array = np.asarray(picture)
    one = classifier.preprocess(array)
    assert one.shape == (1, 16, 24, 3)
    assert one.dtype == np.float32
    np.testing.assert_array_equal(classifier.preprocess(picture), one)
    np.testing.assert_array_equal(classifier.preprocess([array, array])[1], one[0])
    np.testing.assert_array_equal(classifier.preprocess(np.stack([array] * 3))[2], one[0])


def test_predict_takes_images_of_the_program_with_files_in_any_order(folder, images):
    classifier, path = open_predictor(folder), sorted(images.iterdir())[0]
    pixels = np.asarray(Image.open(path).convert("RGB"))
    content = path.read_bytes()
    given = [pixels, path, Image.open(path), content, bytearray(content), io.BytesIO(content)]
    predictions = classifier.predict(given)
    expected = ["image 0", str(path), "image 2", "image 3", "image 4", "image 5"]
    assert [prediction.path for prediction in predictions] == expected
    assert len({tuple(prediction.top) for prediction in predictions}) == 1
    for one in (*given[2:4], pixels, np.stack([pixels])):
        (prediction,) = classifier.predict(one)
        assert dict(prediction.top) == pytest.approx(dict(predictions[0].top), abs=1e-6)


def test_a_pil_image_is_turned_and_scaled_as_its_file(folder, tmp_path):
    classifier = open_predictor(folder)
    values = np.random.default_rng(0).integers(0, 2**16, (20, 30), dtype="uint16")
    Image.fromarray(values).save(tmp_path / "16_bits.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray((values // 256).astype("uint8")).save(tmp_path / "turned.png", exif=exif)
    cases = [*tmp_path.iterdir()]
    assert cases
    for path in cases:
        file, image = classifier.predict([path, Image.open(path)])
        assert dict(image.top) == pytest.approx(dict(file.top), abs=1e-6)
        (row,) = classifier.model.predict_on_batch(classifier.preprocess(Image.open(path)))
        assert max(row) == pytest.approx(file.top[0][1], abs=1e-6)


@pytest.mark.parametrize(
    "wrong", [np.zeros((4, 4, 3)), np.zeros((4, 4), "uint8"), np.zeros((4, 4, 1), "uint8"), 7]
)
def test_an_image_of_the_program_of_another_type_is_an_error(folder, wrong):
    classifier = open_predictor(folder)
    with pytest.raises(ValueError, match="path, bytes"):
        classifier.predict([wrong])
    with pytest.raises(ValueError, match="mode F"):
        classifier.predict(Image.new("F", (4, 4)))


def test_pixels_divided_by_255_are_named_by_preprocess_and_by_predict(folder):
    classifier = open_predictor(folder)
    pixels = np.linspace(0, 1, 16 * 24 * 3, dtype="float32").reshape(16, 24, 3)
    with pytest.warns(UserWarning, match="nearly black"):
        classifier.preprocess(pixels)
    with pytest.raises(ValueError, match="uint8.* nearly black"):
        classifier.predict(pixels)


def test_a_tf_data_set_is_answered_with_the_call_that_takes_it(folder):
    photos = tf.data.Dataset.from_tensors(np.zeros((2, 16, 24, 3), "uint8"))
    with pytest.raises(ValueError, match="classifier.model.predict.*Received: _TensorDataset"):
        open_predictor(folder).predict(photos)


def test_several_classifiers_predict_without_remarks_on_retracing(folder):
    remarks = []
    handler = logging.Handler()
    handler.emit = lambda record: remarks.append(record.getMessage())
    logging.getLogger("tensorflow").addHandler(handler)
    try:
        for _ in range(5):  # Each has a model, whose function is traced.
            open_predictor(folder).predict(np.zeros((16, 24, 3), "uint8"))
    finally:
        logging.getLogger("tensorflow").removeHandler(handler)
    assert not [remark for remark in remarks if "retracing" in remark]


def test_a_corrupt_image_has_its_reason_and_the_others_are_predicted(folder, images, tmp_path):
    bad, empty = tmp_path / "bad.jpg", tmp_path / "empty.png"
    bad.write_bytes(b"not an image")
    empty.write_bytes(b"")
    predictions = open_predictor(folder).predict([bad, images, empty])
    assert [bool(p.error) for p in predictions] == [True, *[False] * 5, True]
    assert predictions[0].top == []
    assert "\n" not in predictions[0].error


def test_probabilities_that_are_not_finite_are_an_error_of_their_image(folder):
    classifier = open_predictor(folder)
    prediction = classifier.prediction("x.png", np.array([0.2, np.nan, 0.8]))
    assert (prediction.top, prediction.labels) == ([], ())
    assert "not finite" in prediction.error


def test_logits_are_never_printed_as_probabilities(folder):
    classifier = open_predictor(folder)
    answer = classifier.prediction("photo.jpg", np.array([3.6, 0.9, -0.2], "float32"))
    assert (answer.top, answer.error) == (
        [],
        "The model's outputs are not probabilities, but logits.",
    )


def test_a_user_model_of_logits_is_refused(model):
    head = model.get_layer("predictions")
    logits = keras.layers.Dense(3, name="scores")(head.input)
    with pytest.raises(ValueError, match='classifier_activation="softmax".*logits'):
        keras_vit.classifier.Classifier(keras.Model(model.input, logits), NAMES, PREPROCESSING)


SCALINGS = {
    "Rescaling": lambda: keras.layers.Rescaling(1 / 255),
    "Normalization": lambda: keras.layers.Normalization(mean=127.0, variance=3000.0),
}


def scaling_model(scaling):
    """A user's model of mean colours, with its own scaling behind the input."""
    images = keras.Input((16, 24, 3))
    means = keras.layers.GlobalAveragePooling2D()(SCALINGS[scaling]()(images))
    return keras.Model(images, keras.layers.Softmax()(means))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_pixels_are_scaled_once(scaling, tmp_path):
    model = scaling_model(scaling)
    message = rf"{scaling.lower()}.*value_range=\(0, 255\)"
    with pytest.raises(ValueError, match=message):
        save_classifier(tmp_path / "saved", model, ("r", "g", "b"), PREPROCESSING)
    assert not (tmp_path / "saved").exists()
    raw = Preprocessing((16, 24), value_range=(0, 255))
    save_classifier(tmp_path / "saved", model, ("r", "g", "b"), raw)


def test_images_are_read_a_batch_ahead_and_no_further(folder, images):
    taken = []

    def endless():
        while True:
            taken.append(1)
            yield images / "1.PNG"

    stream = open_predictor(folder).stream(endless(), batch_size=2)
    for _ in range(5):
        next(stream)
    assert len(taken) <= 8


def test_image_files_lists_folders_and_refuses_what_does_not_exist(images, tmp_path):
    assert [pathlib.Path(f).name for f in image_files(images)] == [f"{i}.PNG" for i in range(5)]
    assert image_files([images / "3.PNG"]) == [str(images / "3.PNG")]
    with pytest.raises(ValueError, match="have images"):
        image_files(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "notes").symlink_to(tmp_path / "none")
    assert images_below(tmp_path) == ([], [str(tmp_path / "notes"), str(tmp_path / "pipe")])
    with pytest.raises(ValueError, match="existing file"):
        image_files(tmp_path / "none.jpg")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, "one of .*model.keras"),
        ({"model": b"PK\x03\x04 no archive"}, "must be whole"),
        ({"classes": b"ant\nbee\n"}, "belong together"),
        ({"classes": b"ant\n\nbee\n"}, "one class name"),
        ({"classes": b"\xff\xfe\n"}, "UTF-8"),
        ({"description": b"none"}, "must be JSON"),
        ({"recipe": b"{"}, "must be JSON"),
        ({"recipe": b"[1]"}, "one JSON object"),
    ],
    ids=str,
)
def test_a_folder_with_a_wrong_file_is_an_error_of_one_line(folder, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message) as error:
        open_predictor(copy_of(folder, tmp_path, **changes))
    assert len(str(error.value).splitlines()) == 1


def test_class_indices_of_keras_are_names_in_the_order_of_their_numbers(model):
    indices = {"tabby": 1, "beagle": 0, "boxer": 2}
    assert keras_vit.Classifier(model, indices, PREPROCESSING).class_names == (
        "beagle",
        "tabby",
        "boxer",
    )


@pytest.mark.parametrize("numbers", [(1, 2, 3), (0, 1, 1), (0, 1, 5)])
def test_class_indices_with_other_numbers_are_refused(model, numbers):
    with pytest.raises(ValueError, match="its number, from 0"):
        keras_vit.Classifier(model, dict(zip("abc", numbers, strict=True)), PREPROCESSING)


def test_only_a_classifier_is_replaced_and_on_request(model, tmp_path):
    output = tmp_path / "out"
    save_classifier(output, model, NAMES, PREPROCESSING)
    with pytest.raises(ValueError, match="new or empty"):
        save_classifier(output, model, NAMES, PREPROCESSING)
    save_classifier(output, model, ("x", "y", "z"), PREPROCESSING, overwrite=True)
    assert open_predictor(output).class_names == ("x", "y", "z")
    with pytest.raises(ValueError, match="file model.keras"):
        save_classifier(tmp_path, model, NAMES, PREPROCESSING, overwrite=True)
    assert os.listdir(tmp_path) == ["out"]


def test_names_and_outputs_that_do_not_fit_are_refused(model, tmp_path):
    config, shape = tiny_config(patch_size=8), (16, 24, 3)
    logits = keras_vit.build(config, input_shape=shape, classes=3, classifier_activation=None)
    plain = keras_vit.build(config, input_shape=shape, classes=3)
    for given, names, preprocessing, message in (
        (model, ("ant", "bee"), PREPROCESSING, "2 names"),
        (model, ("ant", "bee\ncrow", "dog"), PREPROCESSING, "one line"),
        (logits, NAMES, PREPROCESSING, "probabilities"),
        (plain, NAMES, None, "preprocessing=keras_vit.Preproc"),
    ):
        with pytest.raises(ValueError, match=message):
            save_classifier(tmp_path / "out", given, names, preprocessing)
    assert not os.listdir(tmp_path)


def test_a_forked_process_is_refused_and_a_spawned_one_predicts(folder, images):
    classifier = open_predictor(folder)
    refused = pytest.raises(RuntimeError, match=r'forked .*"spawn".*process \d+')
    with multiprocessing.get_context("fork").Pool(1) as pool, refused:
        pool.apply(classifier.predict, (images,))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found, here = pool.apply(classifier.predict, (images,)), classifier.predict(images)
    for one, other in zip(found, here, strict=True):
        assert (one.path, one.error, one.labels) == (other.path, other.error, other.labels)
        assert dict(one.top) == pytest.approx(dict(other.top), abs=1e-6)


@pytest.mark.parametrize("error", [MemoryError, tf.errors.ResourceExhaustedError(None, None, "no")])
def test_too_little_memory_for_one_image_costs_its_answer_alone(error, folder, images, monkeypatch):
    resize, count = image_formats.decoding.apply_preprocessing, itertools.count()

    def fails_once(*arguments):
        if next(count) == 1:
            raise error
        return resize(*arguments)

    monkeypatch.setattr(image_formats.decoding, "apply_preprocessing", fails_once)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    found = open_predictor(folder).predict(images)
    failed = [prediction.error for prediction in found if "more memory" in (prediction.error or "")]
    assert len(failed) == 1
    assert sum(prediction.error is None for prediction in found) > 1


@pytest.mark.parametrize("name", ["load_classifier", "describe"])
def test_opening_in_a_fork_of_a_process_that_has_a_model_is_refused(name, folder):
    open_predictor(folder)
    refused = pytest.raises(RuntimeError, match=r'neither opened .*"spawn".*process \d+')
    with multiprocessing.get_context("fork").Pool(1) as pool, refused:
        pool.apply_async(getattr(keras_vit, name), (folder,)).get(60)


def test_a_damaged_export_is_one_line(tmp_path):
    (tmp_path / "base.onnx").write_text("")
    with pytest.raises(ValueError, match="base.onnx cannot be opened") as error:
        keras_vit.load_classifier(tmp_path / "base.onnx")
    assert "\n" not in str(error.value)


def test_a_new_process_that_only_imports_the_package_loads_it(folder, images):
    # The package loads its layers with Keras, and TensorFlow looks for Keras without loading it.
    code = (
        "import sys, json, keras_vit, tensorflow, keras\n"
        "layer = keras.saving.get_registered_object('keras_vit>ClassToken')\n"
        "assert layer.__name__ == 'ClassToken'\n"
        "c = keras_vit.load_classifier(sys.argv[1])\n"
        "print(json.dumps(c.predict(sys.argv[2], top=1)[0].top))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(images / "2.PNG")],
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    here = open_predictor(folder).predict(images / "2.PNG", top=1)[0].top[0]
    name, probability = json.loads(done.stdout)[0]
    assert name == here[0]
    assert probability == pytest.approx(here[1], abs=1e-6)


def test_a_model_of_other_channels_is_refused_before_a_folder_is_written(tmp_path):
    model = keras_vit.build(tiny_config(), input_shape=(8, 8, 4), classes=3)
    with pytest.raises(ValueError, match=r"3 channels .*\(None, 8, 8, \d\)"):
        save_classifier(tmp_path / "pets", model, NAMES, Preprocessing((8, 8)))
    assert not list(tmp_path.iterdir())
