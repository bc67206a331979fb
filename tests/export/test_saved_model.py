import concurrent.futures
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit.export
from keras_vit.export.exported_model import exported_model
from keras_vit.images.decoding import apply_preprocessing
from keras_vit.images.transcoding import read_image, transcoded
from keras_vit.preprocessing import Preprocessing

SIGNATURES = ["serve", "serve_bytes", "serve_48x40", "serve_bytes_48x40"]

# Runs where `import keras_vit` fails, as on a server.
CLIENT = """
import sys
sys.modules["keras_vit"] = None
import numpy as np, tensorflow as tf
folder, out, *files = sys.argv[1:]
loaded = tf.saved_model.load(folder)
good = [open(file, "rb").read() for file in files]
batch = [good[0], b"no image at all", *good[1:], good[1][:60], b""]
answers = {}
answers.update({f"bytes/{k}": v.numpy() for k, v in
                loaded.signatures["serve_bytes"](images=tf.constant(batch)).items()})
answers.update({f"all_damaged/{k}": v.numpy() for k, v in
                loaded.signatures["serve_bytes"](images=tf.constant([b"?", b""])).items()})
zeros = tf.zeros((5, 32, 24, 3))
answers.update({f"float/{k}": v.numpy() for k, v in
                loaded.signatures["serve"](images=zeros).items()})
answers["default"] = loaded.signatures["serving_default"](images=zeros)["probabilities"].numpy()
np.savez(out, **answers)
"""


@pytest.fixture(scope="module")
def answers(saved_model, files, tmp_path_factory):
    out = tmp_path_factory.mktemp("answers") / "answers.npz"
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, saved_model.path, str(out), *map(str, files)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with np.load(out, allow_pickle=True) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def server(saved_model):
    return Server(saved_model.path)


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
    order = np.argsort(-expected[DECODED], axis=1)[:, :2]
    assert (answers["bytes/classes"][GOOD] == names[order]).all()
    sorted_probabilities = np.take_along_axis(answers["bytes/probabilities"][GOOD], order, 1)
    assert (answers["bytes/top_probabilities"][GOOD] == sorted_probabilities).all()


def test_floats_are_served_too_and_by_default(answers, classifier):
    zeros = np.zeros((5, 32, 24, 3), "float32")
    np.testing.assert_allclose(
        answers["float/probabilities"], classifier.model.predict(zeros, verbose=0), atol=1e-6
    )
    assert answers["float/classes"].shape == (5, 2)
    assert answers["float/valid"].all()
    assert (answers["default"] == answers["float/probabilities"]).all()


def test_an_image_above_the_pixel_limit_is_marked_by_its_header(server):
    sizes = [(100, 1000), (100, 1001)]  # The limit of this export is 100,000.
    batch = [tf.io.encode_png(np.zeros((*size, 3), "uint8")).numpy() for size in sizes]
    header = bytearray(tf.io.encode_png(np.zeros((1, 1, 3), "uint8")).numpy())
    header[16:24] = (100_000).to_bytes(4, "big") * 2  # Ten thousand million pixels.
    images = tf.constant([*batch, bytes(header)])
    valid = server.loaded.signatures["serve_bytes"](images=images)["valid"]
    assert valid.numpy().tolist() == [True, False, False]


def test_every_signature_is_checked(saved_model):
    assert [check.signature for check in saved_model.checks] == SIGNATURES
    assert min(check.milliseconds for check in saved_model.checks) > 0


def test_another_image_size_adds_only_its_position_embeddings(saved_model, classifier):
    variables = pathlib.Path(saved_model.path) / "variables"
    size = sum(path.stat().st_size for path in variables.iterdir())
    positions = 4 * 32 * (1 + 6 * 5)
    assert size < 4 * classifier.model.count_params() + positions + 10_000  # And the index.


def test_images_that_are_not_finite_are_not_valid_and_have_no_class(server, not_finite):
    answer = server.loaded.signatures["serve"](images=tf.constant(not_finite))
    answer = {name: value.numpy() for name, value in answer.items()}
    np.testing.assert_array_equal(answer["valid"], [True, False, False, False])
    assert not answer["top_probabilities"][1:].any()
    assert set(answer["classes"][1:].ravel()) == {b""}


def test_images_of_another_shape_are_refused(server):
    for shape in ((2, 24, 32, 3), (2, 0, 24, 3)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="not compatible"):
            server.loaded.signatures["serve"](images=tf.zeros(shape))


def test_scores_that_are_not_finite_are_not_valid():
    images = keras.Input((2, 2, 1))
    model = keras.Model(images, keras.layers.Flatten()(images) / 0.0)
    answer = exported_model(model, Preprocessing((2, 2)))(np.ones((1, 2, 2, 1), "float32"))
    assert not answer["valid"].numpy().any()


@pytest.mark.slow
def test_xla_gives_the_same_probabilities(classifier, tmp_path):
    report = keras_vit.export.saved_model(classifier, tmp_path / "1", jit_compile=True)
    assert report.agreement == 1
    # Compiled twice, as XLA fuses otherwise than TensorFlow.
    assert max(check.largest_difference for check in report.checks) < 1e-4


class Server:
    """Answers the serving API's requests from the loaded signatures, as the server does."""

    def __init__(self, folder):
        self.loaded = tf.saved_model.load(folder)

    def predict(self, serialized):
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest.FromString(serialized)
        name = request.model_spec.signature_name or "serving_default"
        inputs = {key: tf.constant(tf.make_ndarray(value)) for key, value in request.inputs.items()}
        response = predict_pb2.PredictResponse()
        response.model_spec.CopyFrom(request.model_spec)
        for key, value in self.loaded.signatures[name](**inputs).items():
            response.outputs[key].CopyFrom(tf.make_tensor_proto(value.numpy()))
        return response.SerializeToString()


def test_concurrent_requests_of_the_serving_api_get_the_right_answers(
    server, classifier, files, expected
):
    from tensorflow_serving.apis import predict_pb2

    encoded = [transcoded(file.read_bytes()) for file in files]
    images = np.stack(
        [apply_preprocessing(read_image(file), classifier.preprocessing) for file in files]
    )

    def ask(number):
        places = [(number + step) % len(files) for step in range(1 + number % 4)]
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "animals"
        if number % 2:
            request.model_spec.signature_name = "serve_bytes"
            batch = np.array([encoded[place] for place in places], object)
        else:
            batch = images[places]
        request.inputs["images"].CopyFrom(tf.make_tensor_proto(batch))
        response = predict_pb2.PredictResponse.FromString(
            server.predict(request.SerializeToString())
        )
        return places, {key: tf.make_ndarray(value) for key, value in response.outputs.items()}

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for places, outputs in pool.map(ask, range(40)):
            np.testing.assert_allclose(outputs["probabilities"], expected[places], atol=1e-5)
            best = [classifier.class_names[row.argmax()].encode() for row in expected[places]]
            assert outputs["classes"][:, 0].tolist() == best


def test_warm_up_requests_parse_as_the_serving_apis_and_get_answers(saved_model, server):
    from tensorflow_serving.apis import prediction_log_pb2

    path = pathlib.Path(saved_model.path) / "assets.extra" / "tf_serving_warmup_requests"
    seen = []
    for record in tf.data.TFRecordDataset(str(path)):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        request = log.predict_log.request
        server.predict(request.SerializeToString())
        batch = tf.make_ndarray(request.inputs["images"])
        seen.append((request.model_spec.signature_name, len(batch)))
    assert seen == [("serve", 1), ("serve_bytes", 1), ("serve", 8), ("serve_bytes", 8)]
