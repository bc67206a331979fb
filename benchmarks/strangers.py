"""How well scores tell strangers from known photos: AUROC, and the share refused at 1% of known.

    python benchmarks/strangers.py KEY --data cifar10-images --strangers digits crops

Near strangers are photos of classes that a classifier was not trained on: train it on some of the
classes, and give the test photos of the others as strangers.
"""

from __future__ import annotations

import argparse
import pathlib

import numpy as np
import scipy.special
import scipy.stats

from keras_vit.images.listing import image_files
from keras_vit.images.transcoding import read_image
from keras_vit.models.rebuild import feature_model
from keras_vit.opening import open_predictor
from keras_vit.reports.report import markdown_table
from keras_vit.training.data import DataSpec, open_source
from keras_vit.training.evaluation.scores import MAX_TRAINING, compute_scores
from keras_vit.training.trust.calibration_bound import leverage_arrays, leverages_of

REFUSED = 0.01  # The share of known photos.
NEIGHBOURS = 10
_ROWS = 500  # At a time, for the nearest neighbours.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("classifiers", nargs="+", help="folders, or names of packaged classifiers")
    parser.add_argument("--data", required=True, help="images with a test and a train part")
    parser.add_argument("--strangers", nargs="+", required=True, help="folders of images")
    parser.add_argument("--known", type=int, default=2000, help="test images to compare with")
    arguments = parser.parse_args()
    for name in arguments.classifiers:
        classifier = open_predictor(name)
        splits = open_source(DataSpec(arguments.data), verify=False).splits
        parts = {}
        for split, most in (("train", MAX_TRAINING), ("test", arguments.known)):
            examples = splits[split]
            places = np.linspace(0, len(examples) - 1, min(len(examples), most)).round()
            parts[split] = compute_scores(
                classifier.model,
                examples.take(np.unique(places.astype(int))),
                classifier.preprocessing,
                batch_size=128,
                progress=True,
            )
        known = familiarities(parts["train"].features, parts["test"].features, classifier)
        headings, columns = ["score"], []
        for folder in arguments.strangers:
            features = features_of(classifier, folder)
            found = familiarities(parts["train"].features, features, classifier, known)
            headings += [f"{pathlib.Path(folder).name}, AUROC", "refused"]
            columns.append((len(features), found))
        rows = [
            (score, *(text for _, found in columns for text in _row(values, found[score])))
            for score, values in known.items()
        ]
        counts = ", ".join(str(count) for count, _ in columns)
        print(f"\n{name}: {len(parts['test'])} known photos, {counts} strangers\n")
        print(markdown_table([headings, *rows]), flush=True)


def features_of(classifier, folder) -> np.ndarray:
    """Returns the features of the images in a folder, `(N, D)`."""
    model = feature_model(classifier.model)
    files = image_files(folder)
    found = []
    for start in range(0, len(files), 128):
        images = [read_image(file) for file in files[start : start + 128]]
        found.append(np.asarray(model.predict_on_batch(classifier.preprocess(images))))
    return np.concatenate(found)


def familiarities(trained, features, classifier, known=None) -> dict[str, np.ndarray]:
    """Returns each score of images, `(N,)`, higher for more familiar ones.

    Args:
        trained: Features of training images.
        features: Features of the images.
        classifier: The classifier, whose head gives the logits.
        known: The scores of known images, for those that are made of ranks; by default these.
    """
    kernel, *bias = map(np.asarray, classifier.model.get_layer("predictions").get_weights())
    logits = (features @ kernel + (bias[0] if bias else 0)).astype("float64")
    scores = {
        "probability": scipy.special.softmax(logits, axis=1).max(axis=1),
        "energy": scipy.special.logsumexp(logits, axis=1),
        "leverage": -leverages_of(features, leverage_arrays(trained)),
        f"{NEIGHBOURS} nearest": nearest(trained, features),
    }
    ranks = [
        np.log(1 + np.searchsorted(np.sort((known or scores)[name]), scores[name], side="right"))
        for name in ("probability", "leverage")
    ]
    return {**scores, "probability and leverage": sum(ranks)}


def nearest(trained: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Returns the cosine to the tenth nearest training image (Sun et al., 2022), `(N,)`."""
    rows, others = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (features, trained))
    parts = (rows[start : start + _ROWS] @ others.T for start in range(0, len(rows), _ROWS))
    return np.concatenate([np.partition(part, -NEIGHBOURS)[:, -NEIGHBOURS] for part in parts])


def _row(known, strangers):
    """The AUROC of a score, and the share of strangers below the lowest 1% of known images."""
    area = scipy.stats.mannwhitneyu(known, strangers).statistic / (len(known) * len(strangers))
    refused = (strangers <= np.quantile(known, REFUSED)).mean()
    return f"{area:.3f}", f"{refused:.1%}"


if __name__ == "__main__":
    main()
