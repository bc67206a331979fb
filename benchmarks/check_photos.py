"""What `keras-vit check` finds, where the truth is known: CIFAR-10 with labels and pairs by people.

    python benchmarks/check_photos.py CIFAR10.tar.gz [--work FOLDER]
        [--parts noise labels cleaning copies reviewed planted bursts]
        [--human-labels CIFAR-10_human.pt] [--pairs duplicates_cifar10.csv]
        [--reviewed cifar10_mturk.json]

The archive has train/CLASS/*.jpg and test/CLASS/*.jpg in the order of the original data within each
class. Human labels are CIFAR-10N's (github.com/UCSC-REAL/cifar-10-100n), the pairs ciFAIR's
(github.com/cvjena/cifair, with the original test labels as cifar10_test_set_original_labels.npy
beside them), the reviewed test labels are in github.com/cleanlab/label-errors. None of them is
part of this package.

- noise: how many labels are listed, precision and AUROC of their order, and processor time without
  the features, on 3,200 test images with labels turned to any other class,
  to the next or to the other of a pair. Next to cleanlab with logistic regression in 5 shuffled
  folds on the same features: scikit-learn's defaults, and more regularised.
- labels: the same for the human labels. The folds are shuffled, as cleanlab's own are: the files
  are in the order of the true classes, so that without shuffling the wrong labels of one kind are
  all in one fold.
- cleaning: test accuracy of a ridge regression on the human labels, after the labels in doubt are
  dropped or replaced unseen, and after a person has decided on the labels that the page shows.
- copies: recall of ciFAIR's pairs, and other images that are found.
- reviewed: where the reviewed test labels are in the order of doubt, for the features of the
  patches and of the classifier in the package.
- planted: a border on one class, and bursts of five crops across the parts, in 20 sets of 500 test
  images, and the same sets without them.
- bursts: accuracy on the test part of a split of bursts of five crops, with groups kept together
  and without, next to the accuracy on other images.

Features of noise and reviewed are from the patches and the classifier in the package, features of
planted from the classifier, which has not seen the test images. All others are convolutions with
400 random patches of the images (Coates, Lee and Ng, 2011), which have seen no label.
"""

import argparse
import csv
import io
import json
import os
import pathlib
import pickle
import tarfile
import time
import zipfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Threads that wait beside other programs count as processor time, up to ten times the work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from PIL import Image

import keras_vit
from keras_vit.reports.report import markdown_table
from keras_vit.training.data.copies import find_copies, joined_groups
from keras_vit.training.data.parts import assign
from keras_vit.training.evaluation.ridge import Decomposition, one_hot
from keras_vit.training.trust.photo_check import L2_SHARES
from keras_vit.training.trust.shortcuts import find_shortcuts, photo_facts
from keras_vit.training.trust.wrong_labels import doubts_of_classes

CLASSES, SIDE, PATCH, FILTERS = 10, 32, 6, 400
CLASSIFIER = "r14_vit_micro16_cifar10"  # In the package; has not seen the test images.
COUNTS = (50, 100, 1000)
NOISY = 3200
TRIALS, SET, BURST = 20, 500, 5
BURSTS = 600
# Plane and ship, car and truck, bird and frog, cat and dog, deer and horse.
ALIKE_CLASSES = np.array([8, 9, 6, 5, 7, 3, 2, 4, 0, 1])
SHOWN = 1000  # Labels on the page.
REGULARISED = 0.001  # scikit-learn's C.
MAJORITY = 3  # There are five reviewers.

# What NumPy's arrays need in a pickle; anything else in the file is refused.
_ALLOWED = {("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) == ("_codecs", "encode"):
            return lambda text, encoding: text.encode(encoding)
        if (module, name) not in _ALLOWED:
            raise ValueError(f"The file must hold arrays only. Received: {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def read_human_labels(path):
    """Returns the labels of CIFAR-10N by name, each class after the other as in the archive."""
    with zipfile.ZipFile(path) as archive:
        labels = _ArraysOnly(archive.open("archive/data.pkl")).load()
    order = np.argsort(labels["clean_label"], kind="stable")
    return {name: values[order] for name, values in labels.items()}, order


def read_images(archive, work):
    """Returns the images of both parts, uint8 `(N, 32, 32, 3)`, and the files of the test part."""
    found = {}
    with tarfile.open(archive) as members:
        for member in members:
            if member.isfile():
                part, label, name = pathlib.PurePath(member.name).parts[-3:]
                found[part, label, name] = members.extractfile(member).read()
    images = {}
    for part in ("train", "test"):
        path = work / f"{part}.npy"
        if not path.exists():
            files = [found[key] for key in sorted(found) if key[0] == part]
            pixels = [np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) for file in files]
            np.save(path, np.stack(pixels))
        images[part] = np.load(path)
    return images


def patch_features(images, work, parts):
    """Returns features of parts, float32 `(N, 1600)`, and the function that computes them."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    numbers = rng.integers(0, len(images["train"]), 100_000)
    rows, columns = rng.integers(0, SIDE - PATCH + 1, (2, len(numbers)))
    patches = np.stack(
        [
            images["train"][number, row : row + PATCH, column : column + PATCH].reshape(-1)
            for number, row, column in zip(numbers, rows, columns, strict=True)
        ]
    ).astype("float64")
    patches -= patches.mean(axis=1, keepdims=True)
    patches /= np.sqrt(patches.var(axis=1, keepdims=True) + 10)
    mean = patches.mean(axis=0)
    eigenvalues, axes = np.linalg.eigh(np.cov(patches.T))
    whitening = (axes / np.sqrt(eigenvalues + 0.1)) @ axes.T
    filters = (patches[:FILTERS] - mean) @ whitening
    filters /= np.linalg.norm(filters, axis=1, keepdims=True)
    kernel, mean = tf.constant(whitening @ filters.T, tf.float32), tf.constant(mean, tf.float32)

    @tf.function
    def features(batch):
        cut = tf.image.extract_patches(
            tf.cast(batch, tf.float32), [1, PATCH, PATCH, 1], [1] * 4, [1] * 4, "VALID"
        )
        centre, variance = tf.nn.moments(cut, [-1], keepdims=True)
        whitened = tf.tensordot((cut - centre) / tf.sqrt(variance + 10) - mean, kernel, 1)
        active = tf.nn.relu(whitened - 0.5)
        half = (SIDE - PATCH + 1) // 2
        quarters = [
            active[:, i : i + half + 1, j : j + half + 1] for i in (0, half) for j in (0, half)
        ]
        return tf.concat([tf.reduce_mean(quarter, [1, 2]) for quarter in quarters], axis=-1)

    def patches_of(pixels):
        return np.concatenate(
            [features(pixels[start : start + 100]) for start in range(0, len(pixels), 100)]
        )

    found = {}
    for part in parts:
        path = work / f"{part}_features.npy"
        if not path.exists():
            np.save(path, patches_of(images[part]))
        found[part] = np.load(path)
    return found, patches_of


def ranks(order, wrong):
    """Returns the precision in the first images, and the AUROC, of an order from most doubtful."""
    if not wrong.any():
        return [""] * (len(COUNTS) + 1)
    places = np.empty(len(order))
    places[order] = np.arange(len(order))
    bad, good = int(wrong.sum()), int((~wrong).sum())
    area = 1 - (places[wrong].sum() - bad * (bad - 1) / 2) / (bad * good)
    return [*(f"{wrong[order[:count]].mean():.3f}" for count in COUNTS), f"{area:.4f}"]


def ridge_doubts(decomposition, labels):
    """Returns the doubts of labels and the processor seconds."""
    began = time.process_time()
    l2 = decomposition.chosen_l2(labels, decomposition.l2_of(L2_SHARES))
    doubts = doubts_of_classes(lambda: decomposition.left_out_scores(labels, l2), labels)
    return doubts, time.process_time() - began


def planted_labels(truth, features):
    """Returns labels by name, some turned to another class.

    The last ones are turned where people would: between classes that look alike, all cats that are
    wrong into dogs, and, of all classes, the images that the features are least sure of.
    """
    labels = {"right": truth}
    for kind in ("any", "next", "pairs"):
        for share in (0.03, 0.1, 0.3):
            rng = np.random.default_rng(0)
            wrong = rng.random(len(truth)) < share
            turned = {
                "any": truth + rng.integers(1, CLASSES, len(truth)),
                "next": truth + 1,
                "pairs": truth ^ 1,
            }[kind]
            labels[f"{kind}, {share:.0%}"] = np.where(wrong, turned % CLASSES, truth)
    rng = np.random.default_rng(0)
    draws = rng.random(len(truth))
    for share in (0.1, 0.2):
        labels[f"hard pairs, {share:.0%}"] = np.where(draws < share, ALIKE_CLASSES[truth], truth)
    for share in (0.2, 0.5):
        labels[f"cats as dogs, {share:.0%}"] = np.where((truth == 3) & (draws < share), 5, truth)
    decomposition = Decomposition(features)
    scores = decomposition.ridge(one_hot(truth), decomposition.l2_of([0.01])[0])
    scores = scores.left_out_predictions
    own = scores[np.arange(len(truth)), truth]
    others = np.where(one_hot(truth, CLASSES) > 0, -np.inf, scores)
    order = np.argsort(np.argsort(own - others.max(axis=1)))  # 0 is the least sure.
    for share in (0.1,):
        wrong = draws < 2 * share * (1 - order / len(truth))
        turned = np.where(wrong, others.argmax(axis=1), truth)
        labels[f"least sure, {share:.0%}"] = turned
    return labels


def measure_labels(features, truth, sets):
    """Prints the table of wrong labels, for sets of labels by name."""
    began = time.process_time()
    decomposition = Decomposition(features)
    base = time.process_time() - began
    rows = []
    for name, labels in sets.items():
        wrong = labels != truth
        doubts, seconds = ridge_doubts(decomposition, labels)
        ranked = doubts.ranked()
        right = f"{np.mean(doubts.named == labels):.1%}"
        shares = [f"{wrong.mean():.1%}", right, f"{len(ranked):,}", int(wrong[ranked].sum())]
        numbers = ranks(np.argsort(-doubts.score, kind="stable"), wrong)
        rows.append([name, "check", *shares, *numbers, f"{base + seconds:.0f}"])
        if wrong.any():
            rows += cleanlab_rows(features, labels, wrong, name)
    columns = ["labels", "by", "wrong", "features right", "listed", "of them wrong"]
    print_table([*columns, *(f"first {count}" for count in COUNTS), "AUROC", "CPU s"], rows)


def cleanlab_rows(features, labels, wrong, name):
    """Returns the rows of cleanlab, or none if it is not installed."""
    try:
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_predict
    except ImportError:
        return []
    rows = []
    for setting in ({}, {"C": REGULARISED, "max_iter": 60}):
        began = time.process_time()
        scaled = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-6)
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        probabilities = cross_val_predict(
            LogisticRegression(**setting), scaled, labels, cv=folds, method="predict_proba"
        )
        quality = get_label_quality_scores(labels, probabilities)
        seconds = time.process_time() - began
        listed = find_label_issues(labels, probabilities, n_jobs=1).sum()
        order = np.argsort(quality, kind="stable")
        by = f"cleanlab, C={setting.get('C', 1)}"
        shares = ["", "", f"{listed:,}", ""]
        rows.append([name, by, *shares, *ranks(order, wrong), f"{seconds:.0f}"])
    return rows


def measure_cleaning(features, human, test_features, test_labels):
    """Prints test accuracy with human labels, and with the doubts acted on."""
    decomposition, rows = Decomposition(features), []
    for name in ("random_label1", "random_label2", "random_label3"):
        labels, truth = human[name], human["clean_label"]
        doubts, _ = ridge_doubts(decomposition, labels)
        chosen = doubts.score >= doubts.least
        decided = labels.copy()
        shown = doubts.ranked()[:SHOWN]
        decided[shown] = truth[shown]
        kept = ~chosen
        changed = {
            "unchanged": labels,
            "replaced": np.where(chosen, doubts.proposed, labels),
            f"{SHOWN:,} decided": decided,
        }
        l2 = decomposition.l2_of([0.01])[0]
        ridges = {by: decomposition.ridge(one_hot(now), l2) for by, now in changed.items()}
        ridges["dropped"] = Decomposition(features[kept]).ridge(one_hot(labels[kept]), l2)
        found = [
            (ridge.predict(test_features).argmax(axis=1) == test_labels).mean()
            for ridge in ridges.values()
        ]
        share = (labels != truth)[chosen].mean()
        rows.append([name, int(chosen.sum()), f"{share:.2f}", *(f"{value:.4f}" for value in found)])
    print_table(["labels", "acted on", "of them wrong", *ridges], rows)


def measure_bursts(images, features_of, test_features, test_labels):
    """Prints the accuracy of a test part of bursts, by a split with groups and by one without."""
    rows = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        sources = rng.permutation(len(images))[:BURSTS]
        labels = np.repeat(sources // (len(images) // CLASSES), BURST)
        pixels = np.concatenate([crops_of(images[number], rng) for number in sources])
        values = features_of(pixels)
        prints = [photo_facts(png(picture)).fingerprint for picture in pixels]
        found = joined_groups(len(pixels), find_copies(prints).pairs)
        honest = []
        for groups in (np.arange(len(pixels)), found):
            parts = assign(labels, groups, [0.8, 0.2], seed)
            decomposition = Decomposition(values[parts == 0])
            l2 = decomposition.l2_of(L2_SHARES)
            ridge = decomposition.ridge(one_hot(labels[parts == 0]), l2, groups=groups[parts == 0])
            for inside, truth in (
                (values[parts == 1], labels[parts == 1]),
                (test_features, test_labels),
            ):
                right = ridge.predict(inside).argmax(axis=1) == truth
                honest.append(f"{right.mean():.3f}")
        rows.append([seed, len(np.unique(found)), *honest])
    columns = ["test part, no groups", "other images", "test part, grouped", "other images"]
    print_table(["seed", f"groups of {BURSTS} bursts", *columns], rows)


def measure_copies(images, features, order, pairs_file):
    """Prints the recall of ciFAIR's pairs among the test images and as many training images."""
    original = np.load(pathlib.Path(pairs_file).with_name("cifar10_test_set_original_labels.npy"))
    place_of_test = np.argsort(np.argsort(original, kind="stable"))
    place_of_train = np.argsort(order)
    with open(pairs_file, newline="") as file:
        pairs = [
            (
                place_of_test[int(row["TestID"])],
                place_of_train[int(row["TrainID"])],
                row["Judgment"],
            )
            for row in csv.DictReader(file)
        ]
    rng = np.random.default_rng(0)
    wanted = np.unique([train for _, train, _ in pairs])
    others = rng.permutation(np.setdiff1d(np.arange(len(order)), wanted))
    train = np.concatenate([wanted, others[: len(images["test"]) - len(wanted)]])
    position = {int(number): place for place, number in enumerate(train)}
    count = len(images["test"])
    pixels = np.concatenate([images["test"], images["train"][train]])
    prints = [photo_facts(png(picture)).fingerprint for picture in pixels]
    began = time.process_time()
    found = find_copies(prints).pairs
    seconds = time.process_time() - began
    across = {(c.first, c.second): c.kind for c in found if c.first < count <= c.second}
    known = {(int(a), count + position[int(b)]): judgment for a, b, judgment in pairs}
    rows = []
    for kinds in (("exact", "near"), ("exact", "near", "alike")):
        hits = {pair for pair, kind in across.items() if kind in kinds}
        recall = [
            f"{sum(pair in hits for pair in known if known[pair] == judgment)} of "
            f"{sum(value == judgment for value in known.values())}"
            for judgment in ("1", "2")
        ]
        rows.append([" + ".join(kinds), *recall, len(hits - set(known)), f"{seconds:.0f}"])
    print_table(
        ["found as", "near-duplicates", "very similar", "pairs not in the list", "CPU s"], rows
    )


def measure_reviewed(features, labels, original, reviewed):
    """Prints how many of the reviewed labels of the test images are in the first of the order."""
    place_of_test = np.argsort(np.argsort(original, kind="stable"))
    reviews = json.loads(pathlib.Path(reviewed).read_text())
    places = place_of_test[[row["id"] for row in reviews]]
    is_wrong = np.array([row["mturk"]["given"] < MAJORITY for row in reviews])
    wrong = np.zeros(len(labels), bool)
    wrong[places[is_wrong]] = True
    rows = []
    for name, values in features.items():
        doubts, _ = ridge_doubts(Decomposition(values), labels)
        order = np.argsort(-doubts.score, kind="stable")
        first, thousand = set(order[: len(reviews)].tolist()), set(order[:1000].tolist())
        counts = [len(first & set(places[is_wrong].tolist())), len(first & set(places.tolist()))]
        counts.append(len(thousand & set(places[is_wrong].tolist())))
        rows.append([name, *counts, ranks(order, wrong)[-1]])
    count, all_wrong = len(reviews), int(is_wrong.sum())
    columns = [f"of {all_wrong} in first {count}", f"of {count}", f"of {all_wrong} in first 1000"]
    print_table(["features", *columns, f"AUROC of {all_wrong}"], rows)


def png(pixels):
    """Returns an image as a PNG file's content."""
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG", compress_level=1)
    return content.getvalue()


def crops_of(pixels, rng):
    """Returns a burst: crops of one image, of 28 pixels at most 4 apart, resized to its size."""
    crops = []
    for down, right in rng.integers(0, 5, (BURST, 2)):
        cut = Image.fromarray(pixels[down : down + 28, right : right + 28])
        crops.append(np.asarray(cut.resize((SIDE, SIDE), Image.Resampling.BICUBIC)))
    return np.stack(crops)


def measure_planted(images, labels, features_of):
    """Prints in how many sets a border and a burst are found, planted and without."""
    usual, found = features_of(images["test"]), {"border": [0, 0], "burst": [0, 0]}
    for trial in range(TRIALS):
        rng = np.random.default_rng(trial)
        chosen = rng.permutation(len(labels))[:SET]
        pixels, values, own = images["test"][chosen], usual[chosen], labels[chosen]
        facts = [photo_facts(png(picture)) for picture in pixels]
        test = rng.random(SET) < 0.2

        # Clean.
        copies = find_copies([photo.fingerprint for photo in facts]).pairs
        found["burst"][1] += any(test[pair.first] != test[pair.second] for pair in copies)
        shortcuts = find_shortcuts(facts, own, joined_groups(SET, copies), seed=trial)
        found["border"][1] += any(shortcut.is_strong for shortcut in shortcuts)

        # A border of two pixels on one class.
        members, color = np.flatnonzero(labels[chosen] == trial % CLASSES), rng.integers(0, 256, 3)
        framed = list(facts)
        for place in members:
            picture = np.broadcast_to(color.astype("uint8"), (SIDE, SIDE, 3)).copy()
            picture[2:-2, 2:-2] = pixels[place, 2:-2, 2:-2]
            framed[place] = photo_facts(png(picture))
        shortcuts = find_shortcuts(framed, own, joined_groups(SET, copies), seed=trial)
        found["border"][0] += any(
            shortcut.is_strong and shortcut.class_number == trial % CLASSES
            for shortcut in shortcuts
        )

        crops = crops_of(pixels[0], rng)
        burst = [photo_facts(png(picture)) for picture in crops]
        values = np.concatenate([values[BURST:], features_of(crops)])
        prints = [photo.fingerprint for photo in [*facts[BURST:], *burst]]
        groups = joined_groups(SET, find_copies(prints).pairs)
        found["burst"][0] += len(set(groups[-BURST:].tolist())) == 1
    rows = [[name, *(f"{value} of {TRIALS}" for value in values)] for name, values in found.items()]
    print_table(["planted", "found", "found in clean sets"], rows)


def print_table(columns, rows):
    """Prints a table as Markdown, and an empty line."""
    print(markdown_table([columns, *[list(map(str, row)) for row in rows]]), "\n", flush=True)


def main():
    """Prints a table for each part."""
    parts = ("noise", "labels", "cleaning", "copies", "reviewed", "planted", "bursts")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", help="CIFAR-10 as image files in a .tar.gz")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--human-labels", metavar="FILE")
    parser.add_argument("--pairs", metavar="FILE")
    parser.add_argument("--reviewed", metavar="FILE")
    parser.add_argument("--work", default="check_photos_work", help="folder for arrays")
    arguments = parser.parse_args()
    work = pathlib.Path(arguments.work)
    work.mkdir(exist_ok=True)
    images = read_images(arguments.archive, work)
    test_labels = np.repeat(np.arange(CLASSES), len(images["test"]) // CLASSES)
    if set(arguments.parts) != {"planted"}:
        stored = () if set(arguments.parts) <= {"noise", "planted"} else ("train", "test")
        features, patches_of = patch_features(images, work, stored)
    if {"labels", "cleaning", "copies"} & set(arguments.parts):
        human, order = read_human_labels(arguments.human_labels)
    if "labels" in arguments.parts:
        truth = human["clean_label"]
        names = ("clean_label", "aggre_label", "random_label1")
        measure_labels(features["train"], truth, {name: human[name] for name in names})
    if "cleaning" in arguments.parts:
        measure_cleaning(features["train"], human, features["test"], test_labels)
    if "copies" in arguments.parts:
        measure_copies(images, features, order, arguments.pairs)
    if "bursts" in arguments.parts:
        measure_bursts(images["train"], patches_of, features["test"], test_labels)
    if {"noise", "reviewed", "planted"} & set(arguments.parts):
        from keras_vit.models.rebuild import feature_model

        classifier = keras_vit.load_classifier(CLASSIFIER)
        model = feature_model(classifier.model, "pre_logits")

        def features_of(pixels):
            return model.predict(classifier.preprocess(list(pixels)), batch_size=100, verbose=0)

        if "noise" in arguments.parts:
            chosen = np.random.default_rng(0).permutation(len(test_labels))[:NOISY]
            truth, pixels = test_labels[chosen], images["test"][chosen]
            for values in (features_of(pixels), patches_of(pixels)):
                measure_labels(values, truth, planted_labels(truth, values))
        if "reviewed" in arguments.parts:
            original = np.load(
                pathlib.Path(arguments.pairs).with_name("cifar10_test_set_original_labels.npy")
            )
            found = {"patches": features["test"], CLASSIFIER: features_of(images["test"])}
            measure_reviewed(found, test_labels, original, arguments.reviewed)
        if "planted" in arguments.parts:
            measure_planted(images, test_labels, features_of)


if __name__ == "__main__":
    main()
