"""A description with one more field, through every file that holds a description.

further_fact.py FOLDER writes found.json: the value of the field by the kind of file.
"""

import dataclasses
import json
import pathlib
import sys

from keras_vit import description
from keras_vit.description import description as description_file, description_texts


@dataclasses.dataclass(frozen=True)
class WithMotto(description.Description):
    """A description with a motto."""

    motto: str = "none"


# Before anything else imports it.
for module in (description, description_file, description_texts):
    module.Description = WithMotto

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from PIL import Image  # noqa: E402

import keras_vit  # noqa: E402
from keras_vit import export  # noqa: E402
from keras_vit.classifier import Classifier  # noqa: E402
from keras_vit.classifier_folder import write_files  # noqa: E402
from keras_vit.export import check  # noqa: E402
from keras_vit.preprocessing import Preprocessing  # noqa: E402

# Exports answer in this process, and tiny graphs run as they were traced.
check.SEPARATE_PROCESS = False
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})

folder = pathlib.Path(sys.argv[1])
samples = folder / "samples"
samples.mkdir()
pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype="uint8")
for number, image in enumerate(pixels):
    Image.fromarray(image).save(samples / f"{number}.png")

keras.utils.set_random_seed(0)
model = keras_vit.build(keras_vit.ViTConfig(4, 16, 1, 16, 2), input_shape=(8, 8, 3), classes=2)
model.get_layer("predictions").kernel.assign(np.random.default_rng(1).normal(size=(16, 2)))
described = WithMotto(
    preprocessing=Preprocessing((8, 8)), labels=description.Labels(("cat", "dog")), motto="MIT"
)
(folder / "pets").mkdir()
write_files(folder / "pets", Classifier.of(model, described))

found = {}
classifier = keras_vit.load_classifier(folder / "pets")
found["folder"] = classifier.description.motto
found["model"] = keras_vit.describe(classifier.model).motto
loaded = keras.saving.load_model(folder / "pets" / "model.keras")
found["model.keras"] = keras_vit.describe(loaded).motto
options = {"check_images": samples}
for name, suffix in (
    ("saved_model", ""),
    ("tflite", ".tflite"),
    ("onnx", ".onnx"),
    ("openvino", ""),
):
    path = folder / f"{name}{suffix or '_folder'}"
    getattr(export, name)(classifier, path, **options)
    found[name] = keras_vit.open_model(path).description.motto
(folder / "found.json").write_text(json.dumps(found))
