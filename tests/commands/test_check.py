import csv
import dataclasses
import os
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from keras_vit import command_line
from keras_vit.training.data import open_source
from keras_vit.training.data.corrections import NO_PART
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.trust import check_photos
from keras_vit.training.trust.check_report import write_check
from makers import smooth_picture, write_picture

CLASSES = ("blue", "red")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Red and blue photos, of which one is broken, one has the wrong label and one is a copy."""
    folder, rng = tmp_path_factory.mktemp("data") / "photos", np.random.default_rng(0)
    for number in range(40):
        name = CLASSES[number % 2]
        pixels = 0.4 * np.asarray(smooth_picture(rng, (32, 32), (9, 9)))
        pixels[..., 2 if name == "blue" else 0] += 150
        write_picture(folder / name / f"{number}.png", pixels)
    (folder / "red" / "1.png").rename(folder / "blue" / "wrong.png")
    image = Image.open(folder / "red" / "3.png")
    image.save(folder / "red" / "copy.png")
    (folder / "red" / "broken.png").write_bytes(b"broken")
    return folder


@pytest.fixture(scope="module")
def report(photos, tmp_path_factory):
    output = tmp_path_factory.mktemp("out") / "check"
    before = {path: path.read_bytes() for path in photos.rglob("*.png")}
    report = check_photos(photos, weights="cifar10", output=output)
    assert {path: path.read_bytes() for path in photos.rglob("*.png")} == before
    return report


def test_the_summary_states_what_to_expect_and_all_findings(report):
    text = str(report)
    assert "what to expect from these photos: leave-one-out accuracy" in text
    assert "40 groups left out" in text
    assert "copies      1 pairs" in text
    assert "unreadable  " in text
    assert "broken.png" in text
    assert report.names[report.of_kind("wrong labels")[0].image].endswith("wrong.png")


def test_a_doubted_label_has_a_share_of_wrong_ones_that_is_never_all(report):
    details = [finding.detail for finding in report.of_kind("wrong labels")]
    shares = [int(re.match(r"about (\d+) of 100 labels", detail)[1]) for detail in details]
    assert 25 <= min(shares) <= max(shares) <= 99


def test_of_few_photos_a_doubted_label_has_no_share(photos, tmp_path):
    folder = shutil.copytree(photos, tmp_path / "few")
    for number in range(24, 40):
        (folder / CLASSES[number % 2] / f"{number}.png").unlink()
    findings = check_photos(folder, weights="cifar10").of_kind("wrong labels")
    assert findings
    assert {finding.detail for finding in findings} == {
        "too few images a class to say how many such labels are wrong"
    }


def test_the_table_of_findings_names_paths_in_the_data(report):
    _, table, _ = report.written
    rows = list(csv.DictReader(table.open()))
    row_of = {row["image"]: row for row in reversed(rows)}
    wrong = row_of["blue/wrong.png"]
    assert (wrong["label"], wrong["proposed"]) == ("blue", "red")
    probability = report.of_kind("wrong labels")[0].value
    assert float(wrong["value"]) == pytest.approx(probability, rel=1e-3)
    (copy,) = [row for row in rows if row["kind"] == "copies"]
    assert (copy["image"], copy["other"]) == ("red/copy.png", "red/3.png")
    assert row_of["red/broken.png"]["kind"] == "unreadable"


def parts_of(report):
    """The part of each path in split.csv."""
    return {row["path"]: row["split"] for row in csv.DictReader(report.written[2].open())}


def test_the_table_of_parts_has_each_file_and_keeps_copies_together(report, photos):
    parts = parts_of(report)
    files = {path.relative_to(photos).as_posix() for path in photos.rglob("*.png")}
    assert set(parts) == files
    assert parts["red/3.png"] == parts["red/copy.png"]
    assert parts.pop("red/broken.png") == ""
    assert set(parts.values()) == {"train", "validation", "test"}


def test_the_page_names_paths_in_the_data(report):
    assert "blue/wrong.png" in report.written[0].read_text()


def test_a_run_takes_the_table_of_parts_with_the_labels_and_the_list_of_the_page(report, photos):
    split = report.written[2]
    spec = DataSpec(
        photos,
        split=split,
        labels=["path,label", "blue/wrong.png,red"],
        exclude=["red/copy.png"],
    )
    source = open_source(spec)
    assert len(source.splits["test"]) == list(parts_of(report).values()).count("test")
    assert sum(map(len, source.splits.values())) == 40
    assert source.skipped == [(str(photos / "red/broken.png"), NO_PART)]


@pytest.mark.parametrize("number", range(3))
def test_a_check_that_ends_while_it_writes_leaves_nothing_of_an_older_one(
    number, report, photos, tmp_path, monkeypatch
):
    names, renamed, rename = ("check.html", "findings.csv", "split.csv"), [], os.replace
    for name in names:
        (tmp_path / name).write_text("old")

    def fails(source, target):
        renamed.append(target)
        if len(renamed) > number:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "replace", fails)
    spec = DataSpec(photos)
    splits = open_source(spec).splits
    with pytest.raises(KeyboardInterrupt):
        write_check(report, spec, splits, tmp_path)
    assert "old" not in [path.read_text() for path in tmp_path.iterdir()]
    assert not (tmp_path / "check.html").exists()


def test_only_strict_findings_end_with_exit_code_1(report, monkeypatch, capsys):
    monkeypatch.setattr("keras_vit.training.trust.check_photos", lambda *_, **__: report)
    assert command_line.main(["check", "tfds:photos", "--strict"]) == 1
    assert "strict  files that cannot be read: 1, above 0" in capsys.readouterr().out
    assert command_line.main(["check", "tfds:photos"]) == 0


def test_the_share_of_wrong_labels_is_judged_unless_there_are_too_few_images(report):
    many, few = (dataclasses.replace(report, noise=noise) for noise in (0.02, None))
    assert "estimated share of wrong labels: 0.02, above 0.01" in many.exceeded()
    assert many.exceeded()[:-1] == few.exceeded()
    assert "at least an estimated 2.0% of all are (a lower bound)" in str(many)
    assert "in doubt; too few images a class to estimate how many are wrong" in str(few)


def test_labels_that_are_not_judged_are_a_finding(report, monkeypatch, capsys):
    always = "the features tell the classes apart no better than always red (50.0%)"
    unjudged = dataclasses.replace(report, noise=None, findings=[], unreadable=(), unjudged=always)
    monkeypatch.setattr("keras_vit.training.trust.check_photos", lambda *_, **__: unjudged)
    assert command_line.main(["check", "tfds:photos", "--strict"]) == 1
    printed = capsys.readouterr().out
    assert f"labels      not judged: {always}; try other --weights\n" in printed
    assert f"strict  wrong labels: not judged, {always}\n" in printed


def test_the_line_names_classes_that_are_confused(report):
    confused = dataclasses.replace(report, confused=("cat and dog",))
    line = dict(confused.lines())["labels"]
    assert line.endswith(
        "; wrong labels between cat and dog cannot be seen: these features confuse them"
    )


def test_the_line_of_copies_states_the_bound_and_a_fixed_frame(report):
    fixed = dataclasses.replace(report, fixed=1234)
    assert "(each photo compared with its 12 nearest)" in dict(report.lines())["copies"]
    assert "1,234 look like many others, as from a fixed camera" in dict(fixed.lines())["copies"]


def test_photos_without_a_class_to_see_are_not_judged(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(60):
        picture = smooth_picture(rng, (32, 32), (9, 9))
        write_picture(tmp_path / CLASSES[number % 2] / f"{number}.png", np.asarray(picture))
    report = check_photos(tmp_path, weights="cifar10")
    assert "no better than always" in report.unjudged
    assert report.noise is None
    assert report.of_kind("wrong labels") == []


def test_split_csv_has_the_paths_of_the_data_and_keeps_groups_together(photos, tmp_path):
    for place in ("one", "two"):
        shutil.copytree(photos, tmp_path / place)
    (tmp_path / "two" / "red" / "3.png").rename(tmp_path / "two" / "red" / "own.png")
    files = [path for place in ("one", "two") for path in (tmp_path / place).rglob("[0-9o]*.png")]
    (tmp_path / "list").mkdir()
    table = tmp_path / "list" / "labels.csv"
    table.write_text("path,label\n" + "".join(f"{path},{path.parent.name}\n" for path in files))
    report = check_photos(
        table, weights="cifar10", group_by=r"(\d)\.png", output=tmp_path / "check"
    )
    rows = list(csv.DictReader((tmp_path / "check" / "split.csv").open()))
    names = {row["path"] for row in rows}
    assert {"../one/red/5.png", "../two/red/5.png", "own.png", "3.png"} <= names
    parts = {}  # A group is left out as one and lies in one part.
    for row in rows:
        if digit := re.search(r"(\d)\.png", row["path"]):
            parts.setdefault(digit[1], set()).add(row["split"])
    assert set(map(len, parts.values())) == {1}
    assert "groups left out" in str(report)
    source = open_source(DataSpec(table, split=report.written[2]), verify=False)
    assert sum(map(len, source.splits.values())) == len(files)
