import duplicates
import numpy as np
import pytest
from PIL import Image

from makers import encode


@pytest.fixture
def folders(tmp_path):
    """Two folders of noise; three training images are copies of two test images."""
    rng = np.random.default_rng(0)
    noise = [Image.fromarray(rng.integers(0, 256, (24, 24, 3), np.uint8)) for _ in range(6)]
    noise = [image.resize((96, 96), Image.Resampling.BICUBIC) for image in noise]
    files = {
        "train/a/copy.bmp": encode(noise[0], "BMP"),
        "train/a/jpeg.jpg": encode(noise[0], "JPEG"),
        "train/b/half.png": encode(noise[1].resize((48, 48))),
        "train/b/other.png": encode(noise[2]),
        "train/b/broken.png": b"no image",
        "test/a/one.png": encode(noise[0]),
        "test/b/two.png": encode(noise[1]),
        "test/b/three.png": encode(noise[3]),
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path


@pytest.fixture
def listed(folders, capsys):
    """The folder with the files that the program wrote, and the lines that it printed."""
    output = folders / "copies.txt"
    arguments = ["--train", str(folders / "train"), "--test", str(folders / "test")]
    duplicates.main([*arguments, "--output", str(output), "--workers", "1"])
    return folders, capsys.readouterr().out.splitlines()


def test_copies_are_counted(listed):
    _, lines = listed
    assert lines[0] == (
        "3 of 5 training images are copies of 2 of 3 test images (3 pairs, 1 exact)"
    )
    assert "broken.png: The image cannot be read" in lines[1]


def test_copies_are_listed_with_their_pairs(listed):
    folders, _ = listed
    paths = (folders / "copies.txt").read_text().splitlines()
    names = [path.replace("\\", "/").rsplit("/", 1)[1] for path in paths]
    assert names == ["copy.bmp", "jpeg.jpg", "half.png"]
    table = (folders / "copies_pairs.csv").read_text().splitlines()
    assert table[0] == "train,test,kind,distance,similarity,mirrored"
    assert len(table) == 4


def test_pairs_are_drawn_with_the_least_similar_first(listed):
    folders, _ = listed
    picture = Image.open(folders / "copies_pairs.png").convert("RGB")
    upper, lower = (np.asarray(picture.crop((8, y, 104, y + 96)), float) for y in (8, 104))
    assert np.abs(upper - lower).mean() < 12  # The least similar pair, which is one.
    assert upper.std() > 10
