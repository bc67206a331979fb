"""A tiny classifier, real image files and one export of each kind, made once."""

import pathlib

import numpy as np
import PIL.Image
import pytest
from npm_packages import installed

CLASS_NAMES = ("red fox", "blå hval", "grey owl")


@pytest.fixture(scope="session", autouse=True)
def _exports_run_here():
    """Runs exports in this process, except for tests that use `own_process`."""
    from keras_vit.export import check

    check.SEPARATE_PROCESS = False
    yield
    check.SEPARATE_PROCESS = True


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
def classifier(model, tmp_path_factory):
    """Returns the model as a classifier in a folder, with the images as its samples."""
    import keras_vit.classifier
    from keras_vit.preprocessing import Preprocessing

    folder = tmp_path_factory.mktemp("classifier") / "animals"
    classifier = keras_vit.save_classifier(
        folder, model, CLASS_NAMES, Preprocessing((32, 24)), recipe={"seed": 7}
    )
    draw_images(folder / "samples")
    return classifier


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
def saved_model(classifier, tmp_path_factory):
    """Returns the report of a SavedModel with warm-up requests."""
    import keras_vit.export

    path = tmp_path_factory.mktemp("saved_model") / "animals" / "1"
    return keras_vit.export.saved_model(
        classifier.folder, path, image_sizes=[(48, 40)], top=2, max_pixels=100_000, warm_up=True
    )


@pytest.fixture(scope="session")
def tflite(classifier, tmp_path_factory):
    """Returns the reports of TFLite files that take preprocessed images, by precision."""
    import keras_vit.export

    folder = tmp_path_factory.mktemp("tflite")
    return {
        precision: keras_vit.export.tflite(
            classifier,
            folder / f"{precision}.tflite",
            precision=precision,
            input="float",
            minimum_agreement=0.8,
        )
        for precision in ("float32", "float16", "dynamic_int8", "int8")
    }


@pytest.fixture(scope="session")
def expected(classifier, files):
    """Returns the Keras model's probabilities of the sample images."""
    from keras_vit.images.decoding import apply_preprocessing
    from keras_vit.images.transcoding import read_image

    images = [apply_preprocessing(read_image(file), classifier.preprocessing) for file in files]
    return classifier.model.predict(np.stack(images), verbose=0)


@pytest.fixture(scope="session")
def not_finite():
    """Returns images of which the first is good; each other one has a pixel that is no number."""
    images = np.random.default_rng(0).uniform(-1, 1, (4, 32, 24, 3)).astype("float32")
    images[[1, 2, 3], 5, 6, 1] = np.nan, np.inf, -np.inf
    return images


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """Returns a folder with the files of onnxruntime-web."""
    from keras_vit.export.html import VERSION

    package = f"onnxruntime-web@{VERSION}"
    return installed("ONNXRUNTIME_WEB", package, tmp_path_factory, "onnxruntime-web/dist")


@pytest.fixture(scope="session")
def onnx(classifier, tmp_path_factory):
    import keras_vit

    return keras_vit.export.onnx(classifier, tmp_path_factory.mktemp("onnx") / "animals.onnx")


@pytest.fixture(scope="module")
def path_of(request):
    """Returns a function from a format to the path of an export, made when it is needed."""

    def path(name):
        report = request.getfixturevalue(name)
        return pathlib.Path((report["float32"] if name == "tflite" else report).path)

    return path
