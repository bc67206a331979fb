"""SavedModels in TensorFlow alone: batches with damaged files, names, limits and sizes."""

import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit.export.formats.check_images import load_images
from keras_vit.export.formats.exported_model import exported_model
from keras_vit.preprocessing import Preprocessing

# Runs where `import keras_vit` fails, as on a server.
CLIENT = """
import sys
sys.modules["keras_vit"] = None
import numpy as np, tensorflow as tf
folder, out, *files = sys.argv[1:]
signatures = tf.saved_model.load(folder).signatures
good = [open(file, "rb").read() for file in files]
batch = [good[0], b"no image at all", *good[1:], good[1][:60], b""]
zeros = tf.zeros((5, 32, 24, 3))
answers = {}
for name, signature, images in (
    ("bytes", "serve_bytes", tf.constant(batch)),
    ("all_damaged", "serve_bytes", tf.constant([b"?", b""])),
    ("float", "serve", zeros),
    ("default", "serving_default", zeros),
):
    found = signatures[signature](images=images)
    answers.update({f"{name}/{key}": value.numpy() for key, value in found.items()})
np.savez(out, **answers)
"""


@pytest.fixture(scope="module")
def saved_model(report_of):
    return report_of("saved_model", input="uint8")


@pytest.fixture(scope="module")
def answers(saved_model, files, tmp_path_factory):
    out = tmp_path_factory.mktemp("answers") / "answers.npz"
    command = [sys.executable, "-c", CLIENT, saved_model.path, str(out), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(out, allow_pickle=True) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def loaded(saved_model):
    return tf.saved_model.load(saved_model.path)


@pytest.fixture(scope="module")
def expected(classifier, files):
    return classifier.model.predict(load_images(classifier, files), verbose=0)


DECODED = [0, 1, 2, 3, *range(5, 10)]  # Places of JPEG and PNG among the ten images,
GOOD = [0, 2, 3, 4, *range(6, 11)]  # and in the client's batch.
DAMAGED = [1, 5, 11, 12]  # One is a BMP, which `serve_bytes` does not take.


def test_bytes_give_the_models_probabilities_without_the_package(answers, expected):
    # The same graph on the same kernels; batches of another size round differently.
    np.testing.assert_allclose(answers["bytes/probabilities"][GOOD], expected[DECODED], atol=1e-5)


def test_a_damaged_image_is_marked_and_does_not_fail_its_batch(answers):
    assert answers["bytes/valid"].tolist() == [place in GOOD for place in range(13)]
    assert not answers["bytes/probabilities"][DAMAGED].any()
    assert not answers["bytes/top_probabilities"][DAMAGED].any()
    assert set(answers["bytes/classes"][DAMAGED].ravel()) == {b""}
    assert answers["all_damaged/valid"].tolist() == [False, False]
    assert answers["all_damaged/probabilities"].shape == (2, 3)


def test_classes_are_the_most_likely_names_with_their_probabilities(answers, classifier, expected):
    names = np.array([name.encode() for name in classifier.class_names], object)
    order = np.argsort(-expected[DECODED], axis=1)
    assert (answers["bytes/classes"][GOOD] == names[order]).all()
    sorted_probabilities = np.take_along_axis(answers["bytes/probabilities"][GOOD], order, 1)
    assert (answers["bytes/top_probabilities"][GOOD] == sorted_probabilities).all()


def test_floats_are_served_too_and_by_default(answers, classifier):
    zeros = np.zeros((5, 32, 24, 3), "float32")
    expected = classifier.model.predict(zeros, verbose=0)
    np.testing.assert_allclose(answers["float/probabilities"], expected, atol=1e-6)
    assert answers["float/classes"].shape == (5, 3)
    assert answers["float/valid"].all()
    assert (answers["default/probabilities"] == answers["float/probabilities"]).all()


def test_an_image_above_the_pixel_limit_is_marked_by_its_header(loaded):
    sizes = [(100, 1000), (100, 1001)]  # The limit of this export is 100,000.
    batch = [tf.io.encode_png(np.zeros((*size, 3), "uint8")).numpy() for size in sizes]
    header = bytearray(tf.io.encode_png(np.zeros((1, 1, 3), "uint8")).numpy())
    header[16:24] = (100_000).to_bytes(4, "big") * 2  # Ten thousand million pixels.
    images = tf.constant([*batch, bytes(header)])
    valid = loaded.signatures["serve_bytes"](images=images)["valid"]
    assert valid.numpy().tolist() == [True, False, False]


def test_both_signatures_are_checked_and_variables_are_written_once(saved_model, classifier):
    assert [check.signature for check in saved_model.checks] == ["serve", "serve_bytes"]
    assert min(check.milliseconds for check in saved_model.checks) > 0
    variables = pathlib.Path(saved_model.path) / "variables"
    size = sum(path.stat().st_size for path in variables.iterdir())
    assert size < 4 * classifier.model.count_params() + 10_000  # And the index.


def test_images_that_are_not_finite_are_not_valid_and_have_no_class(loaded, not_finite):
    answer = loaded.signatures["serve"](images=tf.constant(not_finite))
    answer = {name: value.numpy() for name, value in answer.items()}
    np.testing.assert_array_equal(answer["valid"], [True, False, False, False])
    assert not answer["top_probabilities"][1:].any()
    assert set(answer["classes"][1:].ravel()) == {b""}


def test_images_of_another_shape_are_refused(loaded):
    for shape in ((2, 24, 32, 3), (2, 0, 24, 3)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="not compatible"):
            loaded.signatures["serve"](images=tf.zeros(shape))


def test_scores_that_are_not_finite_are_not_valid():
    images = keras.Input((2, 2, 1))
    model = keras.Model(images, keras.layers.Flatten()(images) / 0.0)
    answer = exported_model(model, Preprocessing((2, 2)))(np.ones((1, 2, 2, 1), "float32"))
    assert not answer["valid"].numpy().any()
