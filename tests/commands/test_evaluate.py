import json
import shutil

import pytest

from keras_vit.classifier_folder import load_classifier
from keras_vit.command_line import main
from keras_vit.training.data.spec import open_source
from keras_vit.training.data.tfrecords import write_records
from keras_vit.training.evaluation import few_shot, reports
from keras_vit.training.evaluation.held_out import evaluate_classifier


def test_the_report_is_printed_and_written(command, tiny, colors, tmp_path):
    outcome = command("evaluate", tiny, "--data", colors, "--output", tmp_path / "report")
    expected = evaluate_classifier(load_classifier(tiny), colors)
    assert outcome.code == 0
    assert str(expected) in outcome.out
    metrics = json.loads((tmp_path / "report" / "metrics.json").read_text())
    assert metrics["images"] == 6
    assert metrics["top_1"] == expected.top_1


@pytest.mark.parametrize(
    ("name", "options", "file"),
    [
        ("evaluate", [], "result.json"),
        ("few-shot", ["--shots", "1", "--seeds", "0"], "result_1_shot_seed_0.json"),
    ],
)
def test_files_are_written_before_the_report_is_printed(
    name, options, file, tiny, colors, tmp_path, monkeypatch
):
    def fails(report):
        raise OSError("The console is gone.")

    module = {"evaluate": reports.ClassificationReport, "few-shot": few_shot.FewShotReport}[name]
    monkeypatch.setattr(module, "__str__", fails)
    arguments = [name, str(tiny), "--data", str(colors), *options]
    assert main([*arguments, "--output", str(tmp_path / "out")]) == 2
    assert (tmp_path / "out" / file).is_file()


def test_a_corrupt_image_is_skipped_counted_and_named_or_stops(
    command, refused, tiny, colors, tmp_path
):
    data = shutil.copytree(colors, tmp_path / "data")
    path = data / "test" / "red" / "cut.png"
    path.write_bytes((data / "test" / "red" / "0.png").read_bytes()[:60])
    outcome = command("evaluate", tiny, "--data", data)
    assert outcome.code == 0
    assert "images  6" in outcome.out
    assert "skipped 1 images" in outcome.out
    assert str(path) in outcome.out
    outcome = command("evaluate", tiny, "--data", data, "--output", tmp_path / "report")
    assert f"written {tmp_path / 'report' / 'skipped.csv'}" in outcome.out
    assert str(path) in (tmp_path / "report" / "skipped.csv").read_text()
    assert str(path) in refused("evaluate", tiny, "--data", data, "--strict")


def test_a_classifier_is_evaluated_at_another_image_size(command, tiny, colors):
    outcome = command("evaluate", tiny, "--data", colors, "--image-size", 12)
    assert outcome.code == 0, outcome.err
    assert "images  6" in outcome.out


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
    assert "must be whole while they are read" in message
    assert "corrupted record" in message
