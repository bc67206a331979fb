import json
import shutil

import numpy as np
import pytest
from calibrated_colors import write_classifier, write_photos

from keras_vit import command_line
from keras_vit.classifier_folder import load_classifier, save_classifier
from keras_vit.training.drift import find_drift


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_classifier(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("alike"), 40, 11)


@pytest.fixture(scope="module")
def brighter(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("brighter"), 40, 12, brighter=60)


def test_photos_like_the_calibration_images_have_not_drifted(folder, alike):
    found = find_drift(folder, alike)
    assert found.drifted == (), str(found)
    assert found.exit_code == 0
    assert len(found.tests) == 5 + 3  # Signals and classes.


def test_brighter_photos_have_drifted_and_the_page_shows_the_strangest(
    folder, brighter, tmp_path, capsys
):
    output = tmp_path / "drift"
    code = command_line.main(["drift", str(folder), str(brighter), "--output", str(output)])
    assert code == 1
    assert "result  drift of" in capsys.readouterr().out
    assert "data:image/jpeg" in (output / "drift.html").read_text()
    content = json.loads((output / "drift.json").read_text())
    assert "brightness" in content["drifted"]
    assert len(content["strangest"]) == 24


def test_estimated_shares_follow_the_classes_of_the_photos(folder, tmp_path):
    photos = write_photos(tmp_path / "photos", 200, 13, names=("blue", "red"))
    found = find_drift(folder, photos)
    assert "class" in found.drifted
    assert found.classes["green"][0] == pytest.approx(1 / 3, abs=0.05)
    assert found.classes["green"][1] == pytest.approx(0, abs=0.1)


def test_photos_are_compared_with_another_folder(folder, brighter, alike):
    assert find_drift(folder, brighter, like=brighter).drifted == ()
    assert "brightness" in find_drift(folder, brighter, like=alike).drifted


def test_shares_of_classes_are_compared_with_the_other_folder(folder, tmp_path):
    photos = [
        write_photos(tmp_path / str(seed), 200, seed, names=("blue", "red")) for seed in (15, 16)
    ]
    found = find_drift(folder, photos[0], like=photos[1], output=tmp_path / "drift")
    before, now = found.classes["green"]
    assert (before, now) == pytest.approx((0, 0), abs=0.1)
    content = json.loads((tmp_path / "drift" / "drift.json").read_text())
    assert content["classes"]["green"] == {"reference": before, "estimated": now}


def test_broken_photos_are_left_out_with_a_line(folder, tmp_path):
    photos = write_photos(tmp_path / "photos", 20, 14)
    (photos / "broken.png").write_bytes(b"not a picture")
    found = find_drift(folder, photos)
    assert any("skipped" in line and "broken.png" in line for line in found.lines)
    assert found.lines[0] == "photos  60 against 144 calibration images"


def test_a_folder_of_broken_photos_is_an_error(folder, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"not a picture")
    with pytest.raises(ValueError, match="There must be photos that can be read"):
        find_drift(folder, tmp_path)


def test_an_empty_folder_is_an_error_and_writes_nothing(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="must have images"):
        find_drift(folder, tmp_path / "empty", output=tmp_path / "drift")
    assert not (tmp_path / "drift").exists()


def test_a_classifier_without_a_reference_ends_with_2_and_says_what_to_run(
    folder, alike, tmp_path, capsys
):
    classifier = load_classifier(folder)
    plain = tmp_path / "plain"
    names = classifier.class_names
    save_classifier(plain, classifier.model, names, classifier.preprocessing)
    output = tmp_path / "drift"
    code = command_line.main(["drift", str(plain), str(alike), "--output", str(output)])
    assert code == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "keras-vit calibrate FOLDER --data DATA" in error
    assert not output.exists()


def test_the_level_must_be_a_probability(folder, alike):
    with pytest.raises(ValueError, match="alarm_level"):
        find_drift(folder, alike, alarm_level=np.float64(1.5))


def test_the_output_of_each_class_is_tested(folder, alike, brighter, tmp_path):
    assert [test.class_name for test in find_drift(folder, alike).tests][-3:] == [
        "blue",
        "green",
        "red",
    ]
    photos = write_photos(tmp_path / "photos", 100, 13, names=("blue", "red"))
    found = find_drift(folder, photos, output=tmp_path / "drift")
    assert "output" in found.drifted
    assert "output of green" in str(found)
    content = json.loads((tmp_path / "drift" / "drift.json").read_text())
    assert [test["class_name"] for test in content["tests"]][-3:] == ["blue", "green", "red"]


def test_a_reference_without_outputs_is_used_with_a_line(folder, alike, tmp_path):
    older = tmp_path / "older"
    shutil.copytree(folder, older)
    description = json.loads((older / "description.json").read_text())
    signals = description["decision"]["reference"]["signals"]
    for name in [name for name in signals if name.startswith("output")]:
        del signals[name]
    (older / "description.json").write_text(json.dumps(description))
    found = find_drift(older, alike)
    assert len(found.tests) == 5
    assert "outputs of the classes are not tested: calibrate again" in "\n".join(found.lines)
