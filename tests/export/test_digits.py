"""Loss of accuracy by quantisation of a trained model, on a whole test set."""

import numpy as np
import PIL.Image
import pytest
from ai_edge_litert.interpreter import Interpreter

import keras_vit.export
from keras_vit.classifier import Classifier
from keras_vit.preprocessing import Preprocessing, preprocess_input
from makers import write_picture

pytestmark = pytest.mark.slow

SIZE = 32  # Pixels per side.


@pytest.fixture(scope="module")
def digits():
    """Returns RGB images and labels of scikit-learn's digits in random order."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.images))
    images = [
        PIL.Image.fromarray((image * 255 / 16).astype("uint8"))
        .resize((SIZE, SIZE), PIL.Image.BILINEAR)
        .convert("RGB")
        for image in data.images[order]
    ]
    return np.stack([np.asarray(image) for image in images]), data.target[order]


@pytest.fixture(scope="module")
def classifier(digits):
    import keras

    keras.utils.set_random_seed(0)
    images, labels = digits
    config = keras_vit.ViTConfig(patch_size=4, width=64, depth=4, mlp_dim=128, num_heads=4)
    model = keras_vit.build(config, classes=10, input_shape=(SIZE, SIZE, 3))
    model.compile(
        keras.optimizers.Adam(1e-3, global_clipnorm=1.0), "sparse_categorical_crossentropy"
    )
    model.fit(preprocess_input(images[600:]), labels[600:], batch_size=32, epochs=30, verbose=0)
    return Classifier(model, [str(digit) for digit in range(10)], Preprocessing((SIZE, SIZE)))


@pytest.fixture(scope="module")
def folders(digits, tmp_path_factory):
    """Returns folders of training images and of test images."""
    images, _ = digits
    root = tmp_path_factory.mktemp("digits")
    for name, part in (("train", images[600:728]), ("test", images[:600])):
        for index, image in enumerate(part):
            write_picture(root / name / f"{index:03}.png", image)
    return root / "train", root / "test"


@pytest.fixture(scope="module")
def keras_accuracy(classifier, digits):
    images, labels = digits
    probabilities = classifier.model.predict(preprocess_input(images[:600]), verbose=0)
    accuracy = np.mean(probabilities.argmax(axis=1) == labels[:600])
    assert accuracy > 0.93  # A model that knows nothing loses nothing.
    return accuracy


@pytest.mark.parametrize(
    ("precision", "points"),
    [("float32", 0.0), ("float16", 0.0), ("dynamic_int8", 0.3), ("int8", 1.0)],
)
def test_accuracy_lost_is_within_the_limit(
    classifier, digits, folders, keras_accuracy, tmp_path, precision, points
):
    train, test = folders
    calibration = {"calibration_images": train} if precision == "int8" else {}
    report = keras_vit.export.tflite(
        classifier, tmp_path / "x.tflite", precision=precision, check_images=test, **calibration
    )
    run = Interpreter(report.path).get_signature_runner("serve")
    images, labels = digits
    answers = [
        run(images=image[None].astype("uint8"))["probabilities"][0].argmax()
        for image in images[:600]
    ]
    lost = 100 * (keras_accuracy - np.mean(answers == labels[:600]))
    print(f"{precision}: {lost:+.2f} points lost, {report}")
    assert lost <= points
