"""Where a model looks: the attention on a photo, as a picture.

    python attention_on_a_photo.py                         # A photo and a model of the package.
    python attention_on_a_photo.py garden.jpg runs/photos  # Your own.

Attention Rollout (appendix D.8 of the paper) multiplies the attention of all layers; `keras-vit
inspect` draws it and more for a folder of photos. Drawing needs matplotlib (extra `plots`).
"""

import pathlib
import sys

from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly

import_tensorflow_quietly()  # First, as its start prints lines that nobody can act on.

import numpy as np

import keras_vit
from keras_vit.images.transcoding import read_image

SAMPLES = pathlib.Path(keras_vit.__file__).parent / "weights/vit_mini4_cifar10/samples"

photo, model = (*sys.argv[1:], *(SAMPLES / "00.jpg", "vit_mini4_cifar10")[len(sys.argv) - 1 :])
classifier = keras_vit.load_classifier(model)
name, probability = classifier(photo).top[0]
print(f"{pathlib.Path(photo).name} is {name} ({probability:.0%})")

image = read_image(photo)  # (H, W, 3), uint8
inputs = classifier.preprocess([image])  # (1, H, W, 3)
relevance = keras_vit.inspection.attention_rollout(classifier, inputs)[0]  # (rows, columns)
print(f"{relevance.shape[0]} x {relevance.shape[1]} patches")

row, column = np.unravel_index(relevance.argmax(), relevance.shape)
share = relevance.max() / relevance.mean()
print(f"most attention: row {row + 1}, column {column + 1}, {share:.1f} times the mean")

figure = keras_vit.inspection.draw_rollout(image, relevance, title=f"{name}, {probability:.0%}")
figure.savefig("attention.png", dpi=100)
print("wrote attention.png")

# Single layers and heads: a list of (B, heads, T, T), where T counts the class token too.
for number, layer in enumerate(keras_vit.inspection.attention_maps(classifier, inputs), 1):
    entropy = -(layer * np.log(layer + 1e-12)).sum(-1).mean()
    print(f"layer {number}: each token attends to about {np.exp(entropy):.0f} of {layer.shape[-1]}")
