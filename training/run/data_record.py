"""The images that an unfinished run began with, compared when it is resumed."""

from __future__ import annotations

import hashlib
import pathlib

import numpy as np

from keras_vit.checkpoints.formats import load_arrays
from keras_vit.training.data.examples import Examples, Source
from keras_vit.training.data.split_record import Fingerprints
from keras_vit.utils.files import atomic_write

DATA = "data.npz"
_MAX_NAMED = 3  # Files in an error.


def image_hashes(
    examples: Examples, contents: np.ndarray | None, class_names: tuple[str, ...]
) -> np.ndarray:
    """Returns a number for name, content and labels of each image, uint64 `(N,)`.

    Args:
        examples: The images.
        contents: Their fingerprints, uint64 `(N,)`. Records have none, and are known by their
            names and labels alone; see `Examples.fingerprints`.
        class_names: The classes in the order of their numbers.
    """
    contents = np.zeros(len(examples), "uint64") if contents is None else contents
    classes = np.array(class_names, object)
    found = np.empty(len(examples), "uint64")
    for number, (name, content, label) in enumerate(
        zip(examples.names, contents, examples.labels, strict=True)
    ):
        places = np.flatnonzero(label) if np.ndim(label) else [label]
        named = classes[places] if class_names else ()  # Images may have no classes.
        digest = hashlib.blake2b(int(content).to_bytes(8, "little"), digest_size=8)
        # Folder and file alone, as the data may lie elsewhere now.
        for text in ("/".join(pathlib.PurePath(name).parts[-2:]), *named):
            digest.update(f"\0{text}".encode("utf-8", "surrogateescape"))
        found[number] = int.from_bytes(digest.digest(), "little")
    return found


def record_data(folder: pathlib.Path, source: Source, fingerprints: Fingerprints) -> None:
    """Writes the hashes of all images of a run to its folder, 8 bytes for each.

    Args:
        folder: The folder of the run.
        source: The images in splits.
        fingerprints: The images' `read_fingerprints`.
    """
    hashes = _hashes(source, fingerprints)
    with atomic_write(folder / DATA) as partial:
        np.savez(partial, **hashes)


def _hashes(source, fingerprints):
    return {
        split: image_hashes(examples, fingerprints[split], source.class_names)
        for split, examples in source.splits.items()
    }


def changes_of_data(folder: pathlib.Path, source: Source, fingerprints: Fingerprints) -> str:
    """Returns how the images of a run differ from those that it began with; "" if they do not.

    Args:
        folder: The folder of the unfinished run; one of an earlier version has no record.
        source: The present images.
        fingerprints: The present images' `read_fingerprints`.

    Raises:
        ValueError: If the record is damaged.
    """
    if not (folder / DATA).is_file():
        return ""
    before, splits = load_arrays(folder / DATA), source.splits
    known = np.concatenate([*before.values()])
    now = _hashes(source, fingerprints)
    names = [name for split in now for name in splits[split].names]
    hashes = np.concatenate([*now.values()])
    new, gone = np.flatnonzero(~np.isin(hashes, known)), int((~np.isin(known, hashes)).sum())
    parts = []
    if len(new):
        named = ", ".join(names[place] for place in new[:_MAX_NAMED])
        more = ", ..." if len(new) > _MAX_NAMED else ""
        parts.append(f"{len(new)} images are new, changed or of another class ({named}{more})")
    if gone:
        parts.append(f"{gone} images are gone or changed")
    if not parts and not all(
        np.array_equal(now.get(split, ()), before.get(split, ())) for split in {*now, *before}
    ):
        parts.append("the images are in other parts or in another order")
    return "; ".join(parts)
