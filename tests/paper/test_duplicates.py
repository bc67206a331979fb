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


def test_copies_are_listed_paired_and_drawn(folders, capsys):
    output = folders / "copies.txt"
    arguments = ["--train", str(folders / "train"), "--test", str(folders / "test")]
    duplicates.main([*arguments, "--output", str(output), "--workers", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "3 of 5 training images are copies of 2 of 3 test images (3 pairs, 1 exact)"
    )
    assert "broken.png: The image cannot be read" in lines[1]
    listed = [
        line.replace("\\", "/").rsplit("/", 1)[1] for line in output.read_text().split("\n")[:-1]
    ]
    assert listed == ["copy.bmp", "jpeg.jpg", "half.png"]
    table = (folders / "copies_pairs.csv").read_text().splitlines()
    assert table[0] == "train,test,kind,distance,similarity,mirrored"
    assert len(table) == 4
    picture = Image.open(folders / "copies_pairs.png").convert("RGB")
    upper, lower = (np.asarray(picture.crop((8, y, 104, y + 96)), float) for y in (8, 104))
    assert np.abs(upper - lower).mean() < 12  # The least similar pair, which is one.
    assert upper.std() > 10
