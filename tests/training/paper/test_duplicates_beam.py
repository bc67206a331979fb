import io
import pathlib

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("apache_beam")

from keras_vit.training.paper import duplicates, duplicates_beam


@pytest.fixture
def images(tmp_path):
    """Writes 40 images, one of which is damaged, and returns their paths by name."""
    rng = np.random.default_rng(0)
    paths = {}
    for k in range(40):
        small = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        paths[f"{k}.png"] = tmp_path / f"{k}.png"
        small.resize((48, 48), Image.Resampling.BICUBIC).save(paths[f"{k}.png"])
    paths["7.png"].write_bytes(b"damaged")
    return {name: str(path) for name, path in paths.items()}


def test_the_pipeline_finds_what_one_process_finds(images):
    def jpeg(path):
        file = io.BytesIO()
        Image.open(path).save(file, "JPEG", quality=60)
        return file.getvalue()

    tests = [(f"test {k}", jpeg(images[f"{k}.png"])) for k in range(5)]
    index = duplicates.index_test_images(tests)
    contents = ((name, pathlib.Path(path).read_bytes()) for name, path in images.items())
    skipped = []
    expected = list(duplicates.find_duplicates(contents, index, skipped=skipped))
    pairs, unread = duplicates_beam.run_pipeline(images, index)
    assert {pair.test for pair in pairs} == {name for name, _ in tests}
    assert sorted(pairs) == sorted(expected)
    assert unread == skipped
    assert unread[0][0] == "7.png"
