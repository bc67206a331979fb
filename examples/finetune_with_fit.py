"""Fine-tune with `model.fit`: the CIFAR-10 model of the package learns handwritten digits.

Data from `tf.data`, a schedule with warm-up, `compile` and `fit` as in Keras; then a classifier
in a folder that predicts image files and that every command takes.
"""

from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly

import_tensorflow_quietly()  # First, as its start prints lines that nobody can act on.

import keras
import numpy as np
import tensorflow as tf
from PIL import Image
from sklearn.datasets import load_digits

import keras_vit
from keras_vit.training import SGD, Trainer, warmup_schedule

keras.utils.set_random_seed(0)

# The digits 0 to 4 as images (N, 32, 32, 3) with values from 0 to 255.
digits, labels = load_digits(n_class=5, return_X_y=True)
images = np.kron(digits.reshape(-1, 8, 8, 1) * 15, np.ones((1, 4, 4, 3))).astype("uint8")
test = np.arange(len(images)) % 4 == 0


def batches(chosen):
    """Returns batches of 32 images from -1 to 1, with their labels."""
    pairs = (keras_vit.preprocess_input(images[chosen]), labels[chosen])
    return tf.data.Dataset.from_tensor_slices(pairs).shuffle(1000, seed=0).batch(32)


STEPS = 100
vit = keras_vit.build("ViT-Mini/4", weights="cifar10", classes=5)  # With a new head.
model = Trainer(vit)  # A keras.Model whose steps are exact on any hardware.
schedule = warmup_schedule(0.03, steps=STEPS, warmup_steps=10)
model.compile(SGD(schedule), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(batches(~test).repeat(), steps_per_epoch=STEPS, epochs=1, verbose=2)

accuracy = model.evaluate(batches(test), verbose=0, return_dict=True)["accuracy"]
print(f"accuracy on {test.sum()} held-out digits: {accuracy:.1%}")

names = [f"digit {number}" for number in range(5)]
classifier = keras_vit.save_classifier("digits-classifier", vit, names)
Image.fromarray(images[test][0]).save("digit.png")
print("digit.png is", classifier("digit.png").top[0])
