import pathlib
import re

import pytest

import keras_vit
from makers import tiny_config, write_classes

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "python.md"


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    colors = {"blue": (30, 30, 220), "red": (220, 30, 30)}
    counts = {"train": 4, "test": 4}
    write_classes(tmp_path / "photos", counts, colors, size=(20, 24), suffix=".jpg")


@pytest.mark.slow
def test_the_script_of_the_python_page_trains_saves_and_predicts(photos, tmp_path, capsys):
    config = tiny_config(patch_size=8)
    keras_vit.save_checkpoint(
        keras_vit.build(config, input_shape=(16, 16, 3), classes=7), tmp_path / "weights.npz"
    )
    script = re.search(r"from a folder:\n\n```python\n(.*?)```", PAGE.read_text(), re.S)[1]
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
