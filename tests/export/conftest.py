"""A tiny classifier, real image files and one export of each kind, made once."""

import functools
import os
import pathlib
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest
from npm_packages import installed

CLASS_NAMES = ("red fox", "blå hval", "grey owl")


@pytest.fixture
def own_process(monkeypatch):
    """Runs exports in a separate process, as outside of tests."""
    from keras_vit.export import check

    monkeypatch.setattr(check, "SEPARATE_PROCESS", True)


@pytest.fixture(scope="session")
def model():
    """Returns a depth-2 model whose random head gives clear answers."""
    import keras

    import keras_vit

    keras.utils.set_random_seed(0)
    config = keras_vit.ViTConfig(patch_size=8, width=32, depth=2, mlp_dim=64, num_heads=2)
    model = keras_vit.build(config, classes=3, input_shape=(32, 24, 3))
    head = model.get_layer("predictions")
    head.kernel.assign(np.random.default_rng(0).normal(size=head.kernel.shape))
    return model


@pytest.fixture(scope="session")
def classifier(model, once):
    """Returns the model as a classifier in a folder, with the images as its samples."""
    import keras_vit
    from keras_vit.preprocessing import Preprocessing

    def make(folder):
        path, preprocessing = folder / "animals", Preprocessing((32, 24))
        keras_vit.save_classifier(path, model, CLASS_NAMES, preprocessing, recipe={"seed": 7})
        draw_images(path / "samples")
        return path

    from keras_vit.opening import open_predictor

    return open_predictor(once("classifier", make))


@pytest.fixture(scope="session")
def files(classifier):
    """Returns the sample images' paths, sorted."""
    return sorted((classifier.folder / "samples").iterdir())


def draw_images(folder):
    """Draws images of different sizes and formats that look different."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    images = []
    for index in range(10):
        blocks = (rng.random((4, 3, 3)) * 255).astype("uint8")
        image = PIL.Image.fromarray(blocks).resize((40 + 7 * index, 60), PIL.Image.BILINEAR)
        images.append(image)
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # Turned by 90 degrees.
    images[0].save(folder / "0_turned.jpg", exif=exif)
    images[1].convert("L").save(folder / "1_grey.png")
    images[2].convert("RGBA").save(folder / "2_alpha.png")
    images[3].convert("CMYK").save(folder / "3_cmyk.jpg")
    images[4].save(folder / "4.bmp")
    for index in range(5, 10):
        images[index].save(folder / f"{index}.png")


@pytest.fixture(scope="session")
def report_of(once, classifier):
    """Returns a function to the report of an export, which all workers share."""
    import keras_vit.export
    from keras_vit.export.formats.table import FORMATS

    def report(name, precision="float32", input="float"):
        options = {"precision": precision, "input": input, "minimum_agreement": 0.8}
        if name == "saved_model":  # It has signatures for both.
            options = {"max_pixels": 100_000}
            input = "any"
        if name == "openvino":
            pytest.importorskip("openvino")

        def make(folder):
            path = folder / f"animals{FORMATS[name].suffix}"
            return getattr(keras_vit.export, name)(classifier.folder, path, **options)

        return once(f"{name}_{precision}_{input}", make)

    return report


@pytest.fixture(scope="session")
def tflite(report_of):
    """Returns a function from a precision to the report of a file for preprocessed images."""
    return functools.partial(report_of, "tflite")


@pytest.fixture(scope="session")
def path_of(report_of):
    """Returns a function from a format to the path of an export that takes pixels."""
    return lambda name: pathlib.Path(report_of(name, input="uint8").path)


@pytest.fixture(scope="session")
def not_finite():
    """Returns images of which the first is good; each other one has a pixel that is no number."""
    images = np.random.default_rng(0).uniform(-1, 1, (4, 32, 24, 3)).astype("float32")
    images[[1, 2, 3], 5, 6, 1] = np.nan, np.inf, -np.inf
    return images


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """Returns a folder with the files of onnxruntime-web."""
    from keras_vit.export.formats.html import VERSION

    package = f"onnxruntime-web@{VERSION}"
    return installed("ONNXRUNTIME_WEB", package, tmp_path_factory, "onnxruntime-web/dist")


@pytest.fixture(scope="session")
def python_with(tmp_path_factory):
    """Returns a function to the Python of a new environment, or the one a variable names."""

    def python(variable, packages, without_dependencies=()):
        if variable in os.environ:
            return os.environ[variable]
        folder = tmp_path_factory.mktemp("environment")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, *packages], check=True)
        if without_dependencies:
            subprocess.run([*install, "--no-deps", *without_dependencies], check=True)
        return str(folder / "bin" / "python")

    return python
