import keras
import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

import makers
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.evaluation import imagenet

PREPROCESSING = Preprocessing((1, 1), value_range=(0, 255))


@pytest.fixture(scope="module")
def model():
    return makers.red_class_model()


def write(path, red):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (red, 0, 0)).save(path, "PNG")


def test_real_labels_are_the_published_ones():
    labels = imagenet.real_labels()
    assert len(labels) == 50_000
    assert sum(not each for each in labels) == 3163
    assert labels[:4] == ((), (970, 795), (230, 231), (809,))
    assert max(max(each, default=0) for each in labels) == 999


def test_real_takes_any_of_the_labels_and_leaves_out_images_without(tmp_path, model):
    # Image 1 has no label; 2 has 970 and 795, 3 has 230 and 231, 4 has 809.
    for number, red in ((1, 0), (2, 100), (3, 231), (4, 250)):
        write(tmp_path / "n01440764" / f"ILSVRC2012_val_{number:08}.png", red)
    write(tmp_path / "n01443537" / "ILSVRC2012_val_00000007.png", 227)  # Class 334.
    write(tmp_path / "n01443537" / "ILSVRC2012_val_00000011.png", 106)  # Class 109.
    accuracy = imagenet.evaluate(
        model, "imagenet-real", tmp_path, preprocessing=PREPROCESSING, batch_size=2
    )
    assert (accuracy.count, accuracy.left_out, accuracy.in_top_1, accuracy.in_top_5) == (5, 1, 1, 2)
    assert "5 (each once), 1 without a label left out" in str(accuracy)


def test_real_goes_by_file_names_in_tfds_too(tmp_path, model):
    features = tfds.builder("imagenet2012", data_dir=tmp_path / "none", try_gcs=False).info.features
    reds = {1: 0, 3: 230, 4: 0}
    examples = [
        {
            "image": np.full((8, 8, 3), (red, 0, 0), "uint8"),
            "file_name": f"ILSVRC2012_val_{number:08}.JPEG",
            "label": 0,
        }
        for number, red in reds.items()
    ]
    tfds.dataset_builders.store_as_tfds_dataset(
        name="imagenet2012",
        version="5.1.0",
        features=features,
        split_datasets={"validation": enumerate(examples), "train": enumerate(examples)},
        data_dir=tmp_path,
    )
    accuracy = imagenet.evaluate(
        model, "imagenet-real", data_dir=tmp_path, preprocessing=PREPROCESSING
    )
    # JPEG may move the red of 230 by one: 231 is right as well.
    assert (accuracy.count, accuracy.left_out, accuracy.in_top_1) == (2, 1, 1)


def test_original_labels_go_by_wordnet_id(tmp_path, model):
    write(tmp_path / "n01440764" / "a.png", 0)
    write(tmp_path / "n01440764" / "b.png", 1)
    write(tmp_path / "n01514859" / "c.png", 8)  # Hen, class 8.
    write(tmp_path / "n01514859" / "d.png", 5)  # 5, 6, 7, 8 are among five.
    accuracy = imagenet.evaluate(model, "imagenet", tmp_path, preprocessing=PREPROCESSING)
    assert (accuracy.count, accuracy.in_top_1, accuracy.in_top_5) == (4, 2, 3)


def test_equal_scores_are_ordered_by_class():
    targets = np.eye(10, dtype=bool)[[0, 4, 5]]
    assert imagenet.count_correct(np.zeros((3, 10)), targets) == (1, 2)


def test_wrong_input_is_an_error(tmp_path, model):
    given = {"preprocessing": PREPROCESSING}
    with pytest.raises(ValueError, match="imagenet, imagenet-real"):
        imagenet.evaluate(model, "cifar", **given)
    small = keras.Sequential([keras.Input((1, 1, 3)), keras.layers.Flatten()])
    with pytest.raises(ValueError, match="1000 ImageNet"):
        imagenet.evaluate(small, "imagenet", **given)
    write(tmp_path / "cats" / "a.png", 0)
    write(tmp_path / "dogs" / "a.png", 0)
    with pytest.raises(ValueError, match="WordNet ids .* cats, dogs"):
        imagenet.evaluate(model, "imagenet", tmp_path, **given)
