"""A calibrated classifier of plain colours, and photos for it."""

import keras
import numpy as np

from keras_vit.classifier_folder import save_classifier
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import DataSpec
from keras_vit.training.data.split_record import SplitRecord, read_fingerprints
from keras_vit.training.settings.decisions import DecisionSettings
from keras_vit.training.trust.calibrated_classifier import calibrate
from makers import write_picture

COLORS = {"blue": (95, 95, 190), "green": (95, 190, 95), "red": (190, 95, 95)}


def write_photos(folder, count, seed, brighter=0, names=tuple(COLORS)):
    """Plain pictures whose colours overlap, of each class."""
    rng = np.random.default_rng(seed)
    for name in names:
        for number in range(count):
            pixels = rng.normal(COLORS[name], 50) + rng.normal(0, 10, (8, 8, 3)) + brighter
            write_picture(folder / name / f"{number}.png", np.clip(pixels, 0, 255))
    return folder


def write_classifier(folder):
    """Writes a calibrated classifier whose features are the colours of four parts."""
    photos = folder / "photos"
    write_photos(photos / "train", 30, 0)
    write_photos(photos / "test", 60, 1)
    images = keras.Input((8, 8, 3))
    features = keras.layers.Flatten()(keras.layers.AveragePooling2D(4)(images))
    outputs = keras.layers.Dense(3, "softmax", name="predictions")(features)
    model = keras.Model(images, outputs)
    colors = np.array(list(COLORS.values())) / 127.5 - 1
    kernel = 3 * np.tile(colors.T, (4, 1))
    model.get_layer("predictions").set_weights([kernel, -6 * (colors**2).sum(axis=1)])
    classifier = folder / "colors"
    save_classifier(classifier, model, tuple(COLORS), Preprocessing((8, 8)))
    SplitRecord.of(read_fingerprints(DataSpec(photos).open().splits)).write(classifier)
    settings = DecisionSettings(max_error=0.4, strange=0.05)
    calibrate(classifier, photos, settings, log=lambda line: None)
    return classifier
