"""Multi-label classification: digits are even or not, more than four or not, with a loop or not.

The data decide: labels `(N, K)` of zeros and ones train with the sigmoid cross-entropy, and each
class gets the threshold with the best F1 on validation images. `keras-vit finetune` does the same
with a CSV file.
"""

from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly

import_tensorflow_quietly()  # First, as its start prints lines that nobody can act on.

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import keras_vit
from keras_vit.training import FineTuning, finetune
from keras_vit.training.evaluation.classification import evaluate_classifier

digits, numbers = load_digits(return_X_y=True)
images = np.kron(digits.reshape(-1, 8, 8, 1) * 15, np.ones((1, 4, 4, 3))).astype("uint8")

names = ["even", "more than four", "with a loop"]
labels = np.stack([numbers % 2 == 0, numbers > 4, np.isin(numbers, [0, 6, 8, 9])], axis=1)
test = np.arange(len(images)) % 4 == 0
data = {
    "train": (images[~test], labels[~test].astype(int)),
    "test": (images[test], labels[test].astype(int)),
}

settings = FineTuning(weights="cifar10", augmentation="none", steps=120, batch_size=32)
done = finetune(data, "runs/labels", settings, class_names=names, log=lambda line: None)

classifier = done.classifier
known = keras_vit.describe(classifier).labels
print("task:", known.task)
for name, threshold in zip(known.names, known.thresholds, strict=True):
    print(f"  {name} from a probability of {threshold:.2f}")

for number in (4, 9):
    path = f"{number}.png"
    Image.fromarray(images[test][numbers[test] == number][0]).save(path)
    labels_of = classifier.predict(path)[0].labels
    print(f"{path}: {', '.join(labels_of) or 'none'}")

print(evaluate_classifier(classifier, data["test"]))
