"""Freeze a model and train a linear head on its features: a probe.

The body keeps its weights, so that its features are computed once and the head trains in seconds.
The same numbers come from a model with the frozen body and the head in one.
"""

from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly

import_tensorflow_quietly()  # First, as its start prints lines that nobody can act on.

import keras
import numpy as np
from sklearn.datasets import load_digits

import keras_vit

keras.utils.set_random_seed(0)

digits, labels = load_digits(return_X_y=True)
images = np.kron(digits.reshape(-1, 8, 8, 1) * 15, np.ones((1, 4, 4, 3))).astype("uint8")
images = keras_vit.preprocess_input(images)  # From -1 to 1.
test = np.arange(len(images)) % 4 == 0

body = keras_vit.build("ViT-Mini/4", weights="cifar10", include_top=False, pooling="avg")
body.trainable = False
before = [weight.copy() for weight in body.get_weights()]

# The features, once.
features = body.predict(images, batch_size=128, verbose=0)  # (N, D)
print(f"features: {features.shape[1]} numbers an image")

# The probe: a normalisation with the statistics of the training images, and a linear layer.
normalization = keras.layers.Normalization()
normalization.adapt(features[~test])
head = keras.Sequential([normalization, keras.layers.Dense(10, activation="softmax")])
head.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
head.fit(features[~test], labels[~test], batch_size=64, epochs=30, verbose=0)
accuracy = head.evaluate(features[test], labels[test], verbose=0, return_dict=True)["accuracy"]
print(f"accuracy of the probe: {accuracy:.1%}")

# Body and head as one model, from images to classes.
model = keras.Sequential([body, head])
same = np.mean(model.predict(images[test], verbose=0).argmax(-1) == labels[test])
print(f"accuracy of the whole model: {same:.1%}")
unchanged = all(np.array_equal(*pair) for pair in zip(before, body.get_weights(), strict=True))
print("the body is unchanged:", unchanged)
