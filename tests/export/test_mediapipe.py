"""TFLite files in MediaPipe's image classifier, which finds names and input by their metadata."""

import json
import subprocess

import numpy as np
import pytest

import keras_vit.export
from keras_vit.export.formats.tflite import TFLite
from makers import smooth_picture

pytestmark = pytest.mark.slow

# Prints the score of each class name, for each file and image.
PROGRAM = """
import json, sys
import mediapipe
from mediapipe.tasks.python import BaseOptions, vision

files, images = json.loads(sys.argv[1])
answers = []
for file in files:
    options = vision.ImageClassifierOptions(base_options=BaseOptions(model_asset_path=file))
    with vision.ImageClassifier.create_from_options(options) as classifier:
        for image in images:
            result = classifier.classify(mediapipe.Image.create_from_file(image))
            (head,) = result.classifications
            answers.append({found.category_name: found.score for found in head.categories})
print(json.dumps(answers))
"""

SIZES = [(32, 24), (57, 40)]  # The classifier's, and another.


@pytest.fixture(scope="module")
def python(python_with):
    return python_with("MEDIAPIPE_PYTHON", ["mediapipe>=1.2"])


def scores(python, files, images):
    """Returns the scores by class name that MediaPipe gives for each file and image."""
    given = json.dumps([list(map(str, files)), list(map(str, images))])
    done = subprocess.run([python, "-c", PROGRAM, given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Returns a smooth PNG file of each size."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for height, width in SIZES:
        smooth_picture(rng, (height, width), (4, 3)).save(folder / f"{height}x{width}.png")
    return [folder / f"{height}x{width}.png" for height, width in SIZES]


def test_mediapipe_gives_the_predictions_of_the_folder(python, classifier, photos, tmp_path):
    # int8 calibrates on the first image and is checked on the second.
    tolerances = dict(zip(TFLite.precisions, (1e-3, 3e-3, 0.05, 0.3), strict=True))
    options = {"check_images": photos, "minimum_agreement": 0}
    files, limits = [], []
    for precision, tolerance in tolerances.items():
        for input in ("uint8", "float"):
            files.append(tmp_path / f"{input}_{precision}.tflite")
            limits.append(tolerance)
            keras_vit.export.tflite(
                classifier, files[-1], precision=precision, input=input, **options
            )
    expected = dict(classifier.predict(photos[0])[0].top)
    answers = scores(python, files, photos[:1])
    for file, limit, answer in zip(files, limits, answers, strict=True):
        assert answer == pytest.approx(expected, abs=limit), file


def test_a_file_of_one_size_resizes_in_mediapipe_as_evaluation_does(
    python, classifier, photos, tmp_path
):
    path = tmp_path / "x.tflite"
    keras_vit.export.tflite(classifier, path, input_size=SIZES[1], check_images=photos)
    (answer,) = scores(python, [path], photos[1:])
    # MediaPipe has nothing to resize: its own way would be off by several levels of a pixel.
    assert answer == pytest.approx(dict(classifier.predict(photos[1])[0].top), abs=1e-3)
