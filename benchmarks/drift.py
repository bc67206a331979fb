"""False alarms of `serve --monitor` and `drift` on test images, and the changes that they notice.

    python benchmarks/drift.py scores vit_mini4_cifar10 --data cifar10-images --output scores.npz
    python benchmarks/drift.py streams scores.npz
    python benchmarks/drift.py folders scores.npz
    python benchmarks/drift.py cost ViT-Ti/16 ViT-S/16 ViT-B/16

The first command computes the signals of the test images, unchanged and changed; the second and the
third need no model. Half of the test images are the reference, the other half is the stream, or the
images that folders are drawn from. The last measures the time of the monitor against the time of
models.
"""

from __future__ import annotations

import argparse
import io
import math
import time

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter

import keras_vit
from keras_vit.classifier_folder import load_classifier
from keras_vit.description.drift_reference import ALARM_LEVEL, CLASS, DriftReference
from keras_vit.images.listing import image_files
from keras_vit.monitoring.martingales import Martingales, bet, cell, first_shares
from keras_vit.monitoring.signals import (
    SIGNALS,
    MeasuredClassifier,
    answer_signals,
    counts_of,
    image_signals,
)
from keras_vit.prediction import predict_batch
from keras_vit.training.drift.shift_tests import shift_tests
from keras_vit.utils.text_tables import markdown_table

CHANGED = 2000  # Images of each change.
_BATCH = 250
_ROUNDS = 12  # Batches of a model; the first compiles.

CHANGES = {
    "blur": {"0.5 px": 0.5, "1 px": 1.0, "2 px": 2.0},
    "brightness": {"+10%": 1.1, "+25%": 1.25, "+50%": 1.5},
    "JPEG": {"quality 50": 50, "quality 20": 20, "quality 5": 5},
}


def changed(image: Image.Image, change: str, strength: float) -> Image.Image:
    """Returns an image with a change."""
    if change == "blur":
        return image.filter(ImageFilter.GaussianBlur(strength))
    if change == "brightness":
        return ImageEnhance.Brightness(image).enhance(strength)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=int(strength))
    return Image.open(buffer).convert("RGB")


def write_scores(name: str, data: str, output: str) -> None:
    """Writes the signals of test images, of changed ones and of handwritten digits."""
    import sklearn.datasets

    classifier = load_classifier(name)
    measured = MeasuredClassifier(classifier)
    files = image_files(f"{data}/test")
    files = [files[place] for place in np.random.default_rng(0).permutation(len(files))]
    stream = files[len(files) // 2 :][:CHANGED]
    sets = {"clean": (len(files), lambda place: Image.open(files[place]).convert("RGB"))}
    for change, strengths in CHANGES.items():
        for text, strength in strengths.items():
            sets[f"{change} {text}"] = (
                len(stream),
                lambda place, c=change, s=strength: changed(
                    Image.open(stream[place]).convert("RGB"), c, s
                ),
            )
    digits = sklearn.datasets.load_digits().images
    sets["digits"] = (
        len(digits),
        lambda place: (
            Image.fromarray((digits[place] * 15.9).astype("uint8")).resize((32, 32)).convert("RGB")
        ),
    )
    arrays = {}
    for key, (count, image) in sets.items():
        parts = []
        for start in range(0, count, _BATCH):
            pixels = [
                np.asarray(image(place)) for place in range(start, min(start + _BATCH, count))
            ]
            inputs = classifier.preprocess(np.stack(pixels))
            answers = measured.answers(inputs)
            parts.append(measured.signals(inputs, *answers, with_outputs=True))
        for signal in parts[0]:
            arrays[f"{key}/{signal}"] = np.concatenate([part[signal] for part in parts])
        print(key, count, flush=True)
    np.savez(output, **arrays)


def alarm_times(reference, streams, seed: int) -> np.ndarray:
    """Returns the photos until the alarm of many streams at once, `(R,)`; 0 without an alarm.

    The same martingales as `Martingales`, for all streams in each step.

    Args:
        reference: For each signal the numbers of the reference photos of each stream, `(R, N)`.
        streams: For each signal the numbers of the photos, `(R, T)`.
        seed: Seed of the random numbers of ties.
    """
    rng = np.random.default_rng(seed)
    limit = math.log(len(streams) / ALARM_LEVEL)
    found = []
    for name, values in streams.items():
        known = cell(reference[name], name)
        places = cell(values, name)
        lowest = min(known.min(), places.min())
        known, places = known - lowest, places - lowest
        count, rows = len(values), np.arange(len(values))
        bags = np.zeros((count, max(known.max(), places.max()) + 1), "int32")
        np.add.at(bags, (rows[:, np.newaxis], known), 1)
        shares, logs = first_shares(count), np.zeros(count)
        first = np.full(count, np.iinfo(int).max)
        below = np.arange(bags.shape[1])
        for step in range(values.shape[1]):
            place = places[:, step]
            bags[rows, place] += 1
            less = (bags * (below < place[:, np.newaxis])).sum(axis=1)
            p_values = (less + rng.random(count) * bags[rows, place]) / (known.shape[1] + step + 1)
            shares, gains = bet(shares, p_values)
            logs += gains
            first = np.where(logs >= limit, np.minimum(first, step + 1), first)
        found.append(first)
    soonest = np.min(found, axis=0)
    return np.where(soonest == np.iinfo(int).max, 0, soonest)


def print_streams(path: str, num_streams: int, num_changes: int) -> None:
    """Prints the table of false alarms and of photos until an alarm."""
    clean, sets = read_scores(path)
    clean = {name: clean[name] for name in SIGNALS}
    total = len(clean[CLASS])
    half = total // 2
    rng = np.random.default_rng(1)
    orders = np.array([rng.permutation(total) for _ in range(num_streams)])
    began = time.perf_counter()
    found = alarm_times(*_split(clean, orders, half), seed=2)
    false = int((found > 0).sum())
    margin = 1.645 * math.sqrt(ALARM_LEVEL * (1 - ALARM_LEVEL) / num_streams)
    print(
        f"{num_streams} shuffled streams of {total - half} photos: {false} false alarms "
        f"({false / num_streams:.2%}; at most {ALARM_LEVEL:.0%}, {ALARM_LEVEL + margin:.2%} with "
        f"the binomial error; {time.perf_counter() - began:.0f} s)\n",
        flush=True,
    )
    rows = [("change", "strength", "alarms", "photos until the alarm: median", "90%")]
    known = {name: values[:half] for name, values in clean.items()}
    for change, strength, streams in changed_streams(clean, sets, rng, num_changes, CHANGED):
        of = {name: np.tile(values, (num_changes, 1)) for name, values in known.items()}
        of_signals = {name: streams[name] for name in SIGNALS}
        found = alarm_times(of, of_signals, seed=3)
        late = np.where(found > 0, found, np.iinfo(int).max)
        texts = [
            "-" if value == np.iinfo(int).max else f"{value:.0f}"
            for value in (np.quantile(late, q, method="higher") for q in (0.5, 0.9))
        ]
        rows.append((change, strength, f"{(found > 0).sum()} of {num_changes}", *texts))
    print(markdown_table(rows), flush=True)


def print_folders(path: str, num_folders: int, num_changes: int) -> None:
    """Prints how often `drift` finds the changes of folders, by signals, by outputs and by both."""
    clean, sets = read_scores(path)
    half = len(clean[CLASS]) // 2
    rng = np.random.default_rng(1)
    kinds = {
        "5 signals": list(SIGNALS),
        "outputs": [name for name in clean if name not in SIGNALS],
        "all": list(clean),
    }

    def alarms(references, folders, kind):
        """How many folders `(R, T)` drift; `references` has the counts of each."""
        found = 0
        for row, reference in enumerate(references):
            photos = {name: folders[name][row] for name in kinds[kind]}
            tests = shift_tests(reference, photos)
            found += any(test.corrected <= ALARM_LEVEL for test in tests)
        return found

    rows = [("change", "strength", "photos", *kinds)]
    for size in (100, 1000):
        orders = np.array([rng.permutation(2 * half) for _ in range(num_folders)])
        known, folders = _split(clean, orders[:, : half + size], half)
        references = [
            counts_of({name: values[row] for name, values in known.items()})
            for row in range(num_folders)
        ]
        found = [f"{alarms(references, folders, kind)} of {num_folders}" for kind in kinds]
        rows.append(("none", "", f"{size:,}", *found))
        reference = counts_of({name: values[:half] for name, values in clean.items()})
        for change, strength, folders in changed_streams(clean, sets, rng, num_changes, size):
            found = [
                f"{alarms([reference] * num_changes, folders, kind)} of {num_changes}"
                for kind in kinds
            ]
            rows.append((change, strength, f"{size:,}", *found))
    print(markdown_table(rows), flush=True)


def read_scores(path: str) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """Returns the numbers of the unchanged images by signal, and of each change."""
    with np.load(path) as arrays:
        sets: dict[str, dict[str, np.ndarray]] = {}
        for key in arrays:
            change, signal = key.rsplit("/", 1)
            sets.setdefault(change, {})[signal] = arrays[key]
    return sets.pop("clean"), sets


def changed_streams(clean, sets, rng, count, length):
    """Yields a change, its strength, and `count` streams of `length` photos by signal.

    The changed images are from the second half, so the first half is the reference.
    """
    half = len(clean[CLASS]) // 2
    rest = {name: values[half:] for name, values in clean.items()}
    digits = sets["digits"]
    for key, values in sets.items():
        if key == "digits":
            continue
        change, _, strength = key.partition(" ")
        places = _drawn(rng, len(values[CLASS]), count, length)
        yield change, strength, {name: values[name][places] for name in clean}
    for share in (0.05, 0.1, 0.2):
        places = _drawn(rng, half, count, length)
        others = rng.integers(0, len(digits[CLASS]), places.shape)
        is_new = rng.random(places.shape) < share
        mixed = {
            name: np.where(is_new, digits[name][others], values[places])
            for name, values in rest.items()
        }
        yield "new class", f"{share:.0%}", mixed
    for factor in (1.5, 2, 3):
        weights = np.where(rest[CLASS] == 3, float(factor), 1.0)
        places = rng.choice(half, (count, length), p=weights / weights.sum())
        yield "one class", f"x {factor:g}", {name: v[places] for name, v in rest.items()}


def _split(values, orders, half):
    """The references and the streams of shuffled images."""
    parts = orders[:, :half], orders[:, half:]
    return [{name: numbers[part] for name, numbers in values.items()} for part in parts]


def _drawn(rng, count, streams, length):
    return np.array([rng.permutation(count)[:length] for _ in range(streams)])


def print_costs(models: list[str]) -> None:
    """Prints the time of a photo in models and in the monitor, in batches of 8."""
    rng = np.random.default_rng(0)
    signals = {name: rng.integers(0, 10, 1000) for name in SIGNALS}
    martingales = Martingales.of(DriftReference(counts_of(signals)), SIGNALS, 10)
    rows = [("model", "pixels", "ms a photo", "monitor, ms", "share")]
    for name in models:
        model = keras_vit.build(name, classes=10)
        batch = rng.uniform(-1, 1, (8, *model.input_shape[1:])).astype("float32")
        times: dict[str, list[float]] = {"model": [], "monitor": []}
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            outputs = predict_batch(model, batch)
            middle = time.perf_counter()
            found = {**image_signals(batch), **answer_signals(outputs, np.ones(8))}
            for place in range(8):
                martingales.add({name: int(found[name][place]) for name in SIGNALS})
            times["model"].append((middle - began) / 8)
            times["monitor"].append((time.perf_counter() - middle) / 8)
        of_model, of_monitor = (1000 * np.median(took[1:]) for took in times.values())
        share = f"{of_monitor / of_model:.2%}"
        rows.append((name, f"{batch.shape[1]}", f"{of_model:.1f}", f"{of_monitor:.2f}", share))
    print(markdown_table(rows), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    scores = commands.add_parser("scores")
    scores.add_argument("classifier")
    scores.add_argument("--data", required=True)
    scores.add_argument("--output", default="scores.npz")
    streams = commands.add_parser("streams")
    streams.add_argument("scores")
    streams.add_argument("--streams", type=int, default=1000)
    streams.add_argument("--changes", type=int, default=50, help="streams of each change")
    folders = commands.add_parser("folders")
    folders.add_argument("scores")
    folders.add_argument("--folders", type=int, default=1000)
    folders.add_argument("--changes", type=int, default=40, help="folders of each change")
    cost = commands.add_parser("cost")
    cost.add_argument("models", nargs="+", help="names of models")
    arguments = parser.parse_args()
    if arguments.command == "cost":
        print_costs(arguments.models)
    elif arguments.command == "scores":
        write_scores(arguments.classifier, arguments.data, arguments.output)
    elif arguments.command == "folders":
        print_folders(arguments.scores, arguments.folders, arguments.changes)
    else:
        print_streams(arguments.scores, arguments.streams, arguments.changes)


if __name__ == "__main__":
    main()
