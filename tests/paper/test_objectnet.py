import json

import objectnet
import pytest
from PIL import Image

import makers
from keras_vit.preprocessing import Preprocessing

PREPROCESSING = Preprocessing((1, 1), value_range=(0, 255))


@pytest.fixture(scope="module")
def model():
    return makers.red_class_model()


@pytest.fixture
def objectnet_folder(tmp_path):
    """Three classes: one of two ImageNet classes, one of one, one of none."""
    mappings = tmp_path / "mappings"
    mappings.mkdir()
    files = {
        objectnet.FOLDERS: {"alarm_clock": "Alarm clock", "bench": "Bench", "combo": "Combo"},
        objectnet.CLASSES: {"Alarm clock": "analog clock; digital clock", "Bench": "park bench"},
        # From the class index to the line of the label, 0 being the first.
        objectnet.LINES: {"100": 2, "101": 0, "7": 1},
    }
    for name, content in files.items():
        (mappings / name).write_text(json.dumps(content))
    (mappings / objectnet.LABELS).write_text("analog clock\npark bench\ndigital clock\n")
    for name, red in (
        ("alarm_clock/1", 101),
        ("alarm_clock/2", 102),
        ("bench/1", 3),
        ("combo/1", 0),
    ):
        image = Image.new("RGB", (8, 8), (red, 0, 0))
        framed = Image.new("RGB", (12, 12), (255, 0, 0))
        framed.paste(image, (2, 2))
        path = tmp_path / "images" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        framed.save(path)
    return tmp_path


def test_objectnet_maps_several_classes_and_cuts_the_border(objectnet_folder, model):
    mapping = objectnet.read_mapping(objectnet_folder / "mappings")
    assert mapping == {"alarm_clock": (100, 101), "bench": (7,)}
    accuracy = objectnet.evaluate(model, objectnet_folder, PREPROCESSING)
    assert (accuracy.count, accuracy.left_out, accuracy.in_top_1, accuracy.in_top_5) == (3, 1, 1, 2)


def test_objectnet_without_its_files_says_where_they_are(tmp_path, model):
    with pytest.raises(ValueError, match=r"objectnet\.dev.*No such file.*folder_to_objectnet"):
        objectnet.evaluate(model, tmp_path, PREPROCESSING)
