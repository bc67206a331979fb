"""Small folders of images."""

import numpy as np
import pytest

from makers import encode


@pytest.fixture(scope="session")
def write_image():
    """Returns a function that writes a PNG of one grey value, whatever the suffix."""

    def write(path, value=0):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(np.full((12, 10, 3), value, "uint8")))
        return path

    return write


@pytest.fixture(scope="session")
def write_images(write_image):
    """Returns a function that writes numbers of images, each of another grey, to folders."""

    def write(root, layout):
        names = [f"{folder}/{n:02d}.png" for folder, count in layout.items() for n in range(count)]
        for value, name in enumerate(names):
            write_image(root / name, value)
        return root

    return write


@pytest.fixture
def make_folder(tmp_path, write_images):
    """Returns `write_images` of the test's own folder."""
    return lambda layout: write_images(tmp_path, layout)
