"""The parts of labelled images: given by the data, or drawn; images of a group stay together."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from keras_vit.description.class_labels import MULTILABEL, look_alikes
from keras_vit.utils.safe_text import first_names

from .examples import Examples, class_counts, places_by_class, task_of
from .split_record import PARTS

if TYPE_CHECKING:
    from .labelled_images import Things

# The names of parts, of folders and in tables.
SPLITS = {
    "train": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "calibration": "calibration",
    "test": "test",
}
# Other words for parts, which are read only where `--folders parts` says that they are.
_OTHER_WORDS = {
    "training": "train",
    "dev": "validation",
    "eval": "validation",
    "evaluation": "validation",
    "testing": "test",
    "holdout": "test",
}
_ALL_WORDS = SPLITS | _OTHER_WORDS


def folder_parts(names: Iterable[str], *, are_parts: bool) -> dict[str, str]:
    """Returns the part that each folder of the data is; {} if the folders are no parts.

    A folder "calibration" is a part next to others only: a class may have that name.

    Args:
        names: Names of the folders.
        are_parts: Whether they are known to be parts, so that names such as Training count.

    Raises:
        ValueError: If a folder is another word for a part, or folders have words for "train" and
            for another part in their names, or two folders are one part.
    """
    names = [*names]
    named = {name: words[0] for name in names if len(words := words_for_parts(name)) == 1}
    parts = named if are_parts else {name: SPLITS[name] for name in names if name in SPLITS}
    is_unclear = len({*named.values()}) > 1 and "train" in named.values()
    if not parts and (is_unclear or any(name.lower() in _ALL_WORDS for name in names)):
        raise ValueError(
            f"Folders of parts must be called {', '.join(PARTS)}: --folders parts reads these as "
            f"{first_names([*named.values()], 3)}, --folders classes as classes. Received: "
            f"{first_names([*named], 3)}"
        )
    check_one_word(parts, "The folders")
    return {} if {*parts.values()} == {"calibration"} else parts


def words_for_parts(name: str) -> list[str]:
    """Returns the parts whose words a name has, as training_set, TestImages and val2017 have."""
    words = re.split(r"[\W\d_]+|(?<=[a-z])(?=[A-Z])", name)
    parts = (_ALL_WORDS.get(word.lower().removesuffix("set")) for word in words)
    return [*filter(None, dict.fromkeys(parts))]


def check_one_word(parts: Mapping[str, str], title: str) -> None:
    """Raises ValueError if two of the words stand for one part, as val and valid do.

    Args:
        parts: The part by its word.
        title: What has the words, for the error.
    """
    words: dict[str, str] = {}
    for word, part in parts.items():
        if words.setdefault(part, word) != word:
            raise ValueError(
                f"{title} must have one name for each part. Received: {words[part]} and {word}, "
                f"which are both {part}"
            )


class Drawing(NamedTuple):
    """How images are drawn into parts.

    Args:
        class_names: The classes in the order of their numbers.
        seed: Seed of the choice.
        groups: The group of each image by its name: images of a group are in the same part. None:
            images of a thing are.
        things: The things that the images show; None where they were not looked for. If each image
            shows another thing, each is drawn by itself; see `held_out`.
    """

    class_names: Sequence[str]
    seed: int = 0
    groups: Mapping[str, int] | None = None
    things: Things | None = None

    @property
    def together(self) -> Mapping[str, int] | None:
        """What is in the same part: the group, or else the thing, of each image by its name."""
        if self.groups is not None or self.things is None or self.things.are_single:
            return self.groups
        return self.things.numbers


def with_test(
    splits: dict[str, Examples], holdout: float, how: Drawing, notes: list[str]
) -> dict[str, Examples]:
    """Returns images in parts with a "test" part.

    A validation part without a test part is the test part. Otherwise a share of the training
    images is drawn.

    Args:
        splits: The images.
        holdout: The share of every class; with 0 none is drawn.
        how: The classes, the seed and the groups.
        notes: Receives a line about classes of one image or group.

    Raises:
        ValueError: If a class of multi-label data would be missing in a part, or as `draw`.
    """
    if "test" not in splits and "validation" in splits:
        splits = {**splits, "test": splits["validation"]}
        del splits["validation"]
    if "test" in splits or not holdout or "train" not in splits:
        return splits
    train, names = splits["train"], how.class_names
    counts, unit = class_counts(train.labels, len(names)), "image"
    if how.together is not None:
        counts = class_groups(train.labels, groups_of(train, how.together), len(names))
        unit = "thing" if how.groups is None else "group"
    single = np.flatnonzero(counts == 1)
    if len(single):
        notes.append(f"not tested, as there is a single {unit}: {_named(names, single)}")
    rest, test = draw(train, holdout, "test", how)
    if not len(test):
        return splits
    if task_of(train.labels) == MULTILABEL:  # Nearly stratified: rare labels may share images.
        check_classes({"train": rest}, names)
        check_classes({"test": test}, names, np.setdiff1d(np.arange(len(names)), single))
    return {**splits, "train": rest, "test": test}


def with_calibration(
    splits: dict[str, Examples], share: float, how: Drawing
) -> dict[str, Examples]:
    """Returns images in parts with a share of the training images for "calibration".

    Args:
        splits: The images; their own "calibration" stays.
        share: The share of every class; with 0 none is drawn.
        how: The classes, the seed and the groups.

    Raises:
        ValueError: If there is no class of two training images or more, a class of multi-label
            data would have no training image, or as `draw`.
    """
    if not share or "calibration" in splits:
        return splits
    train, kept = draw(splits["train"], share, "calibration", how)
    if not len(kept):
        raise ValueError("A part for calibration needs a class of two training images or more.")
    if task_of(train.labels) == MULTILABEL:
        check_classes({"train": train}, how.class_names)
    return {**splits, "train": train, "calibration": kept}


def with_validation(splits: dict[str, Examples], share: float, how: Drawing) -> dict[str, Examples]:
    """Returns images in parts with a share of the training images for "validation".

    Args:
        splits: The images; their own "validation" stays if the share is not 0.
        share: The share; with 0 there is no "validation".
        how: The seed and the groups.

    Raises:
        ValueError: As `draw`.
    """
    if share == 0:
        return {name: examples for name, examples in splits.items() if name != "validation"}
    if "validation" in splits:
        return splits
    train, kept = draw(splits["train"], share, "validation", how)
    return {**splits, "train": train, **({"validation": kept} if len(kept) else {})}


def draw(examples: Examples, share: float, part: str, how: Drawing) -> tuple[Examples, Examples]:
    """Returns images in two parts, the second with about a share of every class.

    Args:
        examples: The images.
        share: The share.
        part: Name of the second part, for errors.
        how: The seed and the groups.

    Raises:
        ValueError: If no class has images of two groups.
    """
    if how.together is None:
        chosen = held_out(examples.labels, share, np.random.default_rng(how.seed))
    else:
        numbers = groups_of(examples, how.together)
        chosen = assign(examples.labels, numbers, (1 - share, share), how.seed) == 1
        unit = "things" if how.groups is None else "groups"
        if not chosen.any() or chosen.all():
            raise ValueError(
                f"A {part} part by {unit} needs a class with images of two {unit} or more. "
                f"Received: {len(examples)} images in {len(np.unique(numbers))} {unit}"
            )
    return examples.take(np.flatnonzero(~chosen)), examples.take(np.flatnonzero(chosen))


def groups_of(examples: Examples, groups: Mapping[str, int]) -> np.ndarray:
    """Returns the group of each image, int64 `(N,)`.

    Args:
        examples: The images.
        groups: The group of each image by its name.
    """
    return np.array([groups[name] for name in examples.names], "int64")


def shared_groups(splits: Mapping[str, Examples], groups: Mapping[str, int]) -> list[str]:
    """Returns a line for each two parts that have images of the same group.

    Args:
        splits: The images.
        groups: See `Drawing`.
    """
    numbers = {part: np.unique(groups_of(examples, groups)) for part, examples in splits.items()}
    return [
        f"{count} groups have images in {first} and in {second} of the data"
        for first, second in itertools.combinations([part for part in PARTS if part in numbers], 2)
        if (count := len(np.intersect1d(numbers[first], numbers[second])))
    ]


def check_classes(
    splits: dict[str, Examples],
    class_names: Sequence[str],
    numbers: np.ndarray | None = None,
    more: str = "",
) -> None:
    """Raises ValueError unless each part has images of each class.

    Args:
        splits: The images.
        class_names: The classes in the order of their numbers.
        numbers: The classes that are needed; by default all.
        more: The end of the error.
    """
    for split, examples in splits.items():
        missing = np.flatnonzero(class_counts(examples.labels, len(class_names)) == 0)
        missing = missing if numbers is None else np.intersect1d(missing, numbers)
        if len(missing):
            names = _named(class_names, missing)
            hints = "".join(f"; {hint}" for hint in _hints(splits, class_names, split, missing))
            raise ValueError(
                f"Every split must have images of every class. Received: {split} without "
                f"{names}{hints}{more}"
            )


def _hints(splits, class_names, split, missing):
    """What may be meant where a part lacks classes: other letters, or images without labels."""
    hints = look_alikes(class_names)[:3]
    for other, examples in splits.items():
        (present,) = np.nonzero(class_counts(examples.labels, len(class_names)))
        if other != split and len(present) == 1 and present[0] in missing:
            hints.append(
                f"the {other} images are all in one folder, {class_names[present[0]]}, which "
                f"{split} has not: leave that part out if they have no labels; --data TABLE, with "
                "the columns path,label,split, gives labels that a list has"
            )
    return hints


def _named(class_names, numbers):
    return first_names([class_names[number] for number in numbers])


_DRAWS = 20  # Multi-label splits drawn until every label is in both parts.


def assign(
    labels: np.ndarray, groups: np.ndarray, shares: Sequence[float], seed: int
) -> np.ndarray:
    """Returns the part of each image, int64 `(N,)`; images of a group are in the same part.

    Greedy: the largest groups first, ties in random order, each to the part where it brings the
    images of each class, and of all classes, nearest to the shares (the least sum of squared
    differences, in units of the images that are wanted). Then a class that a part lacks gets its
    smallest group from a part with several, where no other class loses its last group in a part.

    Args:
        labels: As `Examples.labels`.
        groups: The group of each image, int `(N,)`.
        shares: Share of each part; their sum is 1.
        seed: Decides the order of groups of the same size.
    """
    groups = np.unique(groups, return_inverse=True)[1]
    count = int(groups.max()) + 1 if len(groups) else 0
    rows, classes = _pairs(labels)
    num_classes = (labels.shape[1] if labels.ndim == 2 else int(labels.max(initial=-1)) + 1) + 1
    # The last class has all images, also without a label.
    rows = np.concatenate([rows, np.arange(len(labels))])
    classes = np.concatenate([classes, np.full(len(labels), num_classes - 1)])
    keys, numbers = np.unique(groups[rows] * num_classes + classes, return_counts=True)
    of_group, classes = np.divmod(keys, num_classes)
    starts = np.searchsorted(of_group, np.arange(count + 1))
    target = np.outer(shares, np.bincount(classes, numbers, num_classes))
    filled, parts = np.zeros_like(target), np.zeros(count, "int64")
    order = np.random.default_rng(seed).permutation(count)
    sizes = np.bincount(groups, minlength=count)
    for group in order[np.argsort(-sizes[order], kind="stable")]:
        inside = slice(starts[group], starts[group + 1])
        present, images = classes[inside], numbers[inside]
        excess = filled[:, present] - target[:, present]
        cost = (images * (images + 2 * excess) / target[:, present]).sum(axis=1)
        parts[group] = np.argmin(cost)
        filled[parts[group], present] += images
    _fill(parts, of_group, classes, sizes, len(shares), num_classes)
    return parts[groups]


def _fill(parts, of_group, classes, sizes, num_parts, num_classes):
    """Moves groups to parts that lack a class, in place."""
    present = np.zeros((num_parts, num_classes), "int64")  # Groups of each part with a class.
    np.add.at(present, (parts[of_group], classes), 1)
    starts = np.searchsorted(of_group, np.arange(len(parts) + 1))
    for number in np.argsort(present.sum(axis=0), kind="stable"):
        for part in np.flatnonzero(present[:, number] == 0):
            movable = []
            for group in of_group[classes == number]:
                inside = classes[starts[group] : starts[group + 1]]
                if (present[parts[group], inside] >= 2).all():
                    movable.append((sizes[group], group, inside))
            if movable:
                _, group, inside = min(movable, key=lambda candidate: candidate[:2])
                present[parts[group], inside] -= 1
                present[part, inside] += 1
                parts[group] = part


def held_out(labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Returns which examples a stratified split holds out, bool `(N,)`.

    About `share` of every class, at least one of a class of two images or more and none of a
    class of one. Multi-label images allow that only nearly: of 20 assignments the first is taken in
    which every label is in both parts, or else the best.

    Args:
        labels: As `Examples.labels`.
        share: Share of each class; more than 0, less than 1.
        rng: Draws the examples.
    """
    chosen = np.zeros(len(labels), bool)
    if labels.ndim == 1:
        for of_class in places_by_class(labels):
            count, places = len(of_class), rng.permutation(of_class)
            chosen[places[: min(max(round(share * count), 1), count - 1)]] = True
        return chosen
    counts = labels.sum(axis=0, dtype="int64")
    fewest = len(counts) + 1
    for _ in range(_DRAWS):
        seed = int(rng.integers(2**31))
        drawn = assign(labels, np.arange(len(labels)), (1 - share, share), seed) == 1
        second = labels[drawn].sum(axis=0, dtype="int64")
        is_missing = ((counts >= 2) & (second == 0)) | ((counts >= 1) & (second == counts))
        missing = int(is_missing.sum())
        if missing < fewest:
            chosen, fewest = drawn, missing
        if not missing:
            break
    return chosen


def class_groups(labels: np.ndarray, groups: np.ndarray, num_classes: int) -> np.ndarray:
    """Returns the number of groups with images of each class, int `(K,)`."""
    rows, classes = _pairs(labels)
    pairs = np.unique(np.stack([groups[rows], classes]), axis=1)
    return class_counts(pairs[1].astype("int32"), num_classes)


def _pairs(labels):
    """The image and the class of each label, int64 `(L,)` each."""
    if labels.ndim == 2:
        return np.nonzero(labels)
    return np.arange(len(labels)), labels.astype("int64")
