import importlib.util
import pathlib
import sys
import types

import numpy as np
import pytest
from PIL import Image

from keras_vit.training.paper import duplicates
from keras_vit.training.paper.fingerprints import fingerprint_or_reason
from makers import encode, smooth_picture


@pytest.fixture
def images(tmp_path):
    """Writes 40 images, one of which is damaged, and returns their paths by name."""
    rng = np.random.default_rng(0)
    paths = {}
    for k in range(40):
        paths[f"{k}.png"] = tmp_path / f"{k}.png"
        smooth_picture(rng, (48, 48), (6, 6)).save(paths[f"{k}.png"])
    paths["7.png"].write_bytes(b"damaged")
    return {name: str(path) for name, path in paths.items()}


@pytest.fixture
def found(images):
    """The index of five test images, and the duplicates and damaged images by one process."""

    def jpeg(path):
        return encode(Image.open(path), "JPEG", quality=60)

    tests = [(f"test {k}", jpeg(images[f"{k}.png"])) for k in range(5)]
    index = duplicates.index_test_images(tests)
    skipped = []
    pairs = list(duplicates.find_duplicates(contents(images), index, skipped=skipped))
    assert {pair.test for pair in pairs} == {name for name, _ in tests}
    assert [image[0] for image in skipped] == ["7.png"]
    return index, sorted(pairs), skipped


def contents(images):
    return [(name, pathlib.Path(path).read_bytes()) for name, path in images.items()]


def test_the_pipeline_finds_what_one_process_finds(images, found):
    pytest.importorskip("apache_beam")
    from keras_vit.training.paper import duplicates_beam

    index, expected, skipped = found
    pairs, unread = duplicates_beam.run_pipeline(images, index)
    assert sorted(pairs) == expected
    assert unread == skipped


@pytest.fixture
def worker(monkeypatch):
    """The module with an empty Beam, of which no function is called."""
    for name in ("apache_beam", "apache_beam.io", "apache_beam.io.filesystems"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    spec = importlib.util.find_spec("keras_vit.training.paper.duplicates_beam")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fingerprinted(named):
    return [fingerprint_or_reason((name, content, False)) for name, content in named]


def test_the_lines_of_a_worker_are_read_as_they_were_written(images, found, worker):
    index, expected, skipped = found
    pairs, unread = worker._read(worker._find(fingerprinted(contents(images)), index))
    assert pairs == expected
    assert unread == skipped


def test_a_bundle_that_is_computed_again_changes_nothing(images, found, worker):
    index, expected, skipped = found
    batch = fingerprinted(contents(images))
    lost = worker._find(batch, index)
    lines = [next(lost), next(lost)]  # The worker is lost after it has written two lines.
    lost.close()
    for part in (batch[:25], batch[25:], batch[25:]):  # In other bundles, one of which twice.
        lines += worker._find(part, index)
    assert worker._read(lines) == (expected, skipped)


def test_names_may_have_any_characters(images, found, worker):
    index, _, _ = found
    names = ["a\tb.png", "a\nb.png", "a\udcffb.png"]
    named = [(name, pathlib.Path(images["3.png"]).read_bytes()) for name in names]
    lines = list(worker._find(fingerprinted([*named, ("c\td.png", b"damaged")]), index))
    assert all(line.isascii() and "\n" not in line for line in lines)
    pairs, skipped = worker._read(lines)
    assert sorted(pair.train for pair in pairs) == sorted(names)
    assert [image.name for image in skipped] == ["c\td.png"]
