import json
import os
import re
import shutil

import pytest

from keras_vit.opening import open_predictor
from keras_vit.training.data import open_source
from keras_vit.training.data.tfrecords import write_records
from keras_vit.training.evaluation.classification import evaluate_classifier


def test_the_report_is_printed_and_written(command, tiny, colors, tmp_path):
    outcome = command("evaluate", tiny, "--data", colors, "--output", tmp_path / "report")
    expected = evaluate_classifier(open_predictor(tiny), colors)
    assert outcome.code == 0
    assert str(expected) in outcome.out
    metrics = json.loads((tmp_path / "report" / "metrics.json").read_text())
    assert metrics["images"] == 6
    assert metrics["top_1"] == expected.top_1


def test_the_last_lines_are_the_result_the_page_and_the_next_command(
    command, tiny, colors, tmp_path
):
    outcome = command("evaluate", tiny, "--data", colors, "--output", tmp_path / "report")
    *_, empty, result, reference, page, following = outcome.out.splitlines()
    assert empty == ""
    assert re.match(r"top-1   \S+%, \d of 6 \(95% interval \S+% to \S+%\)", result)
    assert re.match(r"reference  .*always \w+, the most frequent class: 33.3%", reference)
    assert page == f"report  {tmp_path / 'report' / 'report.html'}"
    assert following == f"next    keras-vit predict {tiny} PHOTOS"


def test_without_a_folder_the_next_command_writes_the_page(command, tiny, colors):
    *_, following = command("evaluate", tiny, "--data", colors).out.splitlines()
    assert following == f"next    keras-vit evaluate {tiny} --data {colors} --output evaluation"


OLDER = ("metrics", "report", "result", "per_class", "answers", "skipped", "confusion")


@pytest.mark.parametrize("number", range(6))
def test_an_evaluation_that_ends_while_it_writes_leaves_nothing_of_an_older_one(
    number, command, tiny, colors, tmp_path, monkeypatch
):
    suffixes = {"metrics": ".json", "result": ".json", "report": ".html"}
    for name in (*OLDER, "calibration", "risk_coverage"):
        (tmp_path / f"{name}{suffixes.get(name, '.csv')}").write_text("old")
    renamed, rename = [], os.replace

    def fails(source, target):
        renamed.append(target)
        if len(renamed) > number:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "replace", fails)
    assert command("evaluate", tiny, "--data", colors, "--output", tmp_path).code == 130
    monkeypatch.undo()
    assert "old" not in [path.read_text() for path in tmp_path.iterdir()]
    assert not (tmp_path / "result.json").exists()
    assert command("evaluate", tiny, "--data", colors, "--output", tmp_path).code == 0
    assert (tmp_path / "result.json").exists()


def test_a_tilde_behind_a_flag_is_the_folder_of_the_user(
    command, tiny, colors, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "photos").symlink_to(colors)
    assert command("evaluate", tiny, "~/photos", "--output=~/out").code == 0
    assert (tmp_path / "out" / "result.json").exists()


@pytest.fixture
def with_cut_image(colors, tmp_path):
    """A copy of the data with a file that cannot be read, and its path."""
    data = shutil.copytree(colors, tmp_path / "data")
    path = data / "test" / "red" / "cut.png"
    path.write_bytes((data / "test" / "red" / "0.png").read_bytes()[:60])
    return data, path


def test_a_corrupt_image_is_skipped_counted_and_named(command, tiny, with_cut_image, tmp_path):
    data, path = with_cut_image
    outcome = command("evaluate", tiny, "--data", data, "--output", tmp_path / "report")
    assert outcome.code == 0
    assert "images  6" in outcome.out
    assert "images that could not be read: 1\n" in outcome.out
    assert str(path) in outcome.out
    assert f"written {tmp_path / 'report' / 'skipped.csv'}" in outcome.out
    assert str(path) in (tmp_path / "report" / "skipped.csv").read_text()


def test_a_note_on_the_data_is_whole_on_the_page(command, tiny, colors, tmp_path):
    data = shutil.copytree(colors, tmp_path / "data")
    (data / "test" / "red" / "trip").mkdir()
    (data / "test" / "red" / "0.png").rename(data / "test" / "red" / "trip" / "0.png")
    outcome = command("evaluate", tiny, "--data", data, "--output", tmp_path / "report")
    note = "folders in a class belong to it: red/trip"
    assert f"data    {note}" in outcome.out
    assert note in (tmp_path / "report" / "report.html").read_text()


def test_a_corrupt_image_stops_a_strict_evaluation(refused, tiny, with_cut_image):
    data, path = with_cut_image
    assert str(path) in refused("evaluate", tiny, "--data", data, "--strict")


@pytest.mark.parametrize("name", ["evaluate", pytest.param("finetune", marks=pytest.mark.slow)])
def test_data_that_become_unreadable_are_one_line(name, refused, tiny, colors, tmp_path):
    write_records(open_source(colors), tmp_path / "records")
    part = {"evaluate": "test", "finetune": "train"}[name]
    (path,) = (tmp_path / "records").glob(f"{part}-*")
    content = bytearray(path.read_bytes())
    content[-20] ^= 1  # Within the last record, which has a checksum.
    path.write_bytes(content)
    given = [tiny] if name == "evaluate" else ["--weights", tiny, "--steps", 3, "--batch-size", 4]
    output = [] if name == "evaluate" else ["--output", tmp_path / "run"]
    message = refused(name, *given, "--data", tmp_path / "records", *output)
    assert "must be whole" in message
    assert "corrupted record" in message
