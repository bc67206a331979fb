"""Small folders of images."""

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(scope="session")
def write_image():
    """Returns a function that writes an image of one grey value, and its folders."""

    def write(path, value=0, size=(12, 10)):
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.full((*size, 3), value, "uint8")
        Image.fromarray(pixels).save(path, "PNG")
        return path

    return write


@pytest.fixture(scope="session")
def write_images(write_image):
    """Returns a function that writes images into a folder, each with its own grey value.

    Args:
        root: The folder.
        layout: Folder in it: number of images.
    """

    def write(root, layout):
        value = 0
        for folder, count in layout.items():
            for number in range(count):
                write_image(root / folder / f"{number:02d}.png", value)
                value += 1
        return root

    return write


@pytest.fixture
def make_folder(tmp_path, write_images):
    """Returns `write_images` of the test's own folder."""
    return lambda layout: write_images(tmp_path, layout)
