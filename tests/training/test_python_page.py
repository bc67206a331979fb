import pathlib
import re

import numpy as np
import pytest
from PIL import Image

import keras_vit

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "python.md"


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        for name, color in (("blue", (30, 30, 220)), ("red", (220, 30, 30))):
            folder = tmp_path / "photos" / part / name
            folder.mkdir(parents=True)
            for index in range(4):
                pixels = np.clip(rng.normal(color, 25, (20, 24, 3)), 0, 255).astype("uint8")
                Image.fromarray(pixels).save(folder / f"{index}.jpg")


@pytest.mark.slow
def test_the_script_of_the_python_page_trains_saves_and_predicts(photos, tmp_path, capsys):
    config = keras_vit.ViTConfig(8, 16, 1, 16, 2)
    keras_vit.save_checkpoint(
        keras_vit.build(config, input_shape=(16, 16, 3), classes=7), tmp_path / "weights.npz"
    )
    script = re.search(r"`model.fit`:\n\n```python\n(.*?)```", PAGE.read_text(), re.S)[1]
    small = f"MODEL, WEIGHTS, SIZE, STEPS = keras_vit.{config!r}, 'weights.npz', (24, 16), 10"
    script, changed = re.subn(r"(?m)^MODEL, .*$", small, script)
    assert changed == 1
    assert "model.fit(" in script
    assert len([line for line in script.splitlines() if line.strip()]) <= 20
    exec(compile(script, str(PAGE), "exec"), {})
    classifier = keras_vit.load_classifier("photos-classifier")
    assert classifier.class_names == ("blue", "red")
    assert classifier.preprocessing.image_size == (24, 16)
    assert "[('blue', " in capsys.readouterr().out
