"""Features of images, and the images nearest to one.

A feature is what the head of the model reads. The nearest images have the largest cosine of the
angle between their features; `keras-vit embed` does this for folders of photos.
"""

from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly

import_tensorflow_quietly()  # First, as its start prints lines that nobody can act on.

import keras
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import keras_vit
from keras_vit.training.evaluation.embeddings import nearest

digits, labels = load_digits(return_X_y=True)
images = np.kron(digits.reshape(-1, 8, 8, 1) * 15, np.ones((1, 4, 4, 3))).astype("uint8")

# The model, and the same weights up to the input of the head.
classifier = keras_vit.load_classifier("vit_mini4_cifar10")
model = classifier.model
body = keras.Model(model.input, model.get_layer("predictions").input)
features = body.predict(classifier.preprocess(images), batch_size=128, verbose=0)  # (N, D)

# The nearest images of the first ten, themselves left out.
queries = np.arange(10)
numbers, cosines = nearest(features, features[queries], 6)  # (10, 6), the nearest first.
assert (numbers[:, 0] == queries).all()
for query in queries:
    found = ", ".join(map(str, labels[numbers[query, 1:]]))
    print(f"nearest to a {labels[query]}: {found} (cosine {cosines[query, 1]:.3f})")

# How often the nearest image of all others is of the same class.
numbers, _ = nearest(features, features, 2)
others = np.where(numbers[:, 0] == np.arange(len(images)), numbers[:, 1], numbers[:, 0])
print(f"same class as the nearest image: {np.mean(labels[others] == labels):.1%}")

# A row of pictures for each query.
numbers, _ = nearest(features, features[queries], 6)
rows = [np.concatenate(images[row], axis=1) for row in numbers]
Image.fromarray(np.concatenate(rows)).save("nearest.png")
print("wrote nearest.png")
