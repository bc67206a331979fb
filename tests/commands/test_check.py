import csv
import dataclasses
import os
import pathlib
import re
import shlex
import shutil

import numpy as np
import pytest
from PIL import Image

from keras_vit import command_line
from keras_vit.training.data import open_source
from keras_vit.training.data.copies import Copy
from keras_vit.training.data.corrections import NO_PART
from keras_vit.training.data.parts import held_out
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.trust import check_photos
from keras_vit.training.trust.check_files import write_check
from keras_vit.training.trust.check_report import expected_separated
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
    assert "copies      1 pair in 1 group, 0 with different labels; a random draw" in text
    assert "unreadable  " in text
    assert "broken.png" in text
    assert report.names[report.of_kind("wrong labels")[0].image].endswith("wrong.png")


def test_the_labels_have_a_count_and_what_the_features_are_right_for(report):
    (fact,) = [fact for fact in report.report().facts if fact.name == "labels"]
    doubted = len(report.of_kind("wrong labels"))
    labels = f"{doubted} labels" if doubted > 1 else "1 label"
    assert fact.value == (
        f"{labels} that the features doubt, which name {report.expected[0]:.1%} of these "
        "photos right"
    )


def test_nothing_expects_how_many_labels_are_wrong(report):
    words = ("expected to be wrong", "lower bound", "estimated", "of 100", "probab")
    page, table, *_ = (path.read_text() for path in report.written)
    text = f"{report} {table} {page.partition('<script>')[0]}"
    assert [word for word in words if word in text] == []


def test_the_summary_of_copies_has_its_reservation_in_a_second_line(report):
    first, second = str(report).split("copies      ")[1].splitlines()[:2]
    assert first.startswith("1 pair in 1 group")
    assert second == " " * 12 + "each photo was compared with its 12 nearest"


def test_the_sizes_of_photos_are_a_range(report):
    assert "photos of 32x32 are seen at 32x32" in str(report)


def test_groups_csv_has_the_group_of_each_photo(report, photos):
    rows = {row["path"]: row["group"] for row in csv.DictReader(report.written[3].open())}
    files = {path.relative_to(photos).as_posix() for path in photos.rglob("*.png")}
    assert set(rows) == files - {"red/broken.png"}
    assert rows["red/3.png"] == rows["red/copy.png"]
    assert len(set(rows.values())) == 40


@pytest.mark.parametrize("counts", [(30, 30), (12, 7), (200, 5)])
def test_the_expected_number_of_separated_pairs_is_that_of_simulated_draws(counts):
    labels = np.repeat([0, 1], counts)
    pairs = [Copy(0, 1, "near"), Copy(1, 2, "near"), Copy(0, len(labels) - 1, "near")]
    separated = []
    for seed in range(4000):
        test = held_out(labels, 0.2, np.random.default_rng(seed))
        separated.append(sum(test[pair.first] != test[pair.second] for pair in pairs))
    assert expected_separated(labels, pairs, None, 0.2) == pytest.approx(
        np.mean(separated), abs=0.06
    )


def test_pairs_of_a_given_group_are_not_separated():
    labels, groups = np.zeros(10, int), np.repeat(np.arange(5), 2)
    assert expected_separated(labels, [Copy(0, 1, "near")], groups, 0.2) == 0
    assert expected_separated(labels, [Copy(0, 2, "near")], groups, 0.2) == pytest.approx(0.32)


def test_the_table_of_findings_names_paths_in_the_data(report):
    _, table, *_ = report.written
    rows = list(csv.DictReader(table.open()))
    row_of = {row["image"]: row for row in reversed(rows)}
    wrong = row_of["blue/wrong.png"]
    assert (wrong["label"], wrong["proposed"]) == ("blue", "red")
    score = report.of_kind("wrong labels")[0].score
    assert float(wrong["score"]) == pytest.approx(score, rel=1e-3)
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


@pytest.mark.parametrize("number", range(4))
def test_a_check_that_ends_while_it_writes_leaves_nothing_of_an_older_one(
    number, report, photos, tmp_path, monkeypatch
):
    renamed, rename = [], os.replace
    for name in ("check.html", "findings.csv", "split.csv", "groups.csv"):
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


def test_labels_have_no_level(report):
    assert [line for line in report.exceeded() if "label" in line] == []


def test_labels_that_are_not_ranked_say_why(report):
    always = "the features tell the classes apart no better than always red (50.0%)"
    unjudged = dataclasses.replace(report, findings=[], unreadable=(), unjudged=always)
    assert f"not ranked: {always}; try other --weights\n" in str(unjudged)
    assert unjudged.exceeded() == []


def test_the_line_names_classes_that_are_confused(report):
    confused = dataclasses.replace(report, confused=("cat and dog",))
    (fact,) = [fact for fact in confused.report().facts if fact.name == "labels"]
    assert fact.origin == (
        "wrong labels between cat and dog cannot be seen: these features confuse them"
    )


def test_the_line_of_copies_states_a_fixed_frame(report):
    fixed = dataclasses.replace(report, fixed=1234)
    assert "; 1,234 look like many others, as from a fixed camera" in str(fixed)


def test_data_with_parts_have_the_number_of_pairs_in_different_parts(report):
    (pair,) = report.of_kind("copies")
    leak = dataclasses.replace(report, separated=None, findings=[pair._replace(kind="leaks")])
    assert "copies      1 pair in 1 group, 1 in different parts of the data, 0 of" in str(leak)


def test_the_shortcuts_of_a_class_are_one_line(report):
    rows = [
        report.findings[0]._replace(kind="shortcuts", title=name, detail=f"AUROC {auroc}")
        for name, auroc in (("border", 0.99), ("width", 1.0))
    ]
    facts = dataclasses.replace(report, findings=rows).report().facts
    (fact,) = [fact for fact in facts if fact.name == "shortcut"]
    assert fact.value == (
        "blue is given away by border (AUROC 0.99), width (AUROC 1.0), which may be "
        "the thing itself"
    )


def test_photos_without_a_class_to_see_are_not_judged(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(60):
        picture = smooth_picture(rng, (32, 32), (9, 9))
        write_picture(tmp_path / CLASSES[number % 2] / f"{number}.png", np.asarray(picture))
    report = check_photos(tmp_path, weights="cifar10")
    assert "no better than always" in report.unjudged
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


def test_the_next_command_takes_the_decisions_that_the_check_was_given(photos, tmp_path):
    corrected, listed = ["path,label", "blue/wrong.png,red"], ["red/copy.png"]
    options = {"weights": "cifar10", "labels": corrected, "exclude": listed}
    output = tmp_path / "check"
    check_photos(photos, output=output, **options)
    spec = DataSpec(photos, checked=output)
    assert (list(spec.labels), list(spec.exclude)) == (corrected, listed)
    skipped = [pathlib.PurePath(path).name for path, _ in open_source(spec, verify=False).skipped]
    assert skipped == ["broken.png"]
    with pytest.raises(ValueError, match="exclude.txt, with other lines"):
        check_photos(photos, output=output, **{**options, "exclude": ["red/5.png"]})
    assert (output / "check.html").is_file()


def test_the_next_command_takes_parts_groups_and_saved_decisions(
    report, photos, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("keras_vit.training.trust.check_photos", lambda *_, **__: report)
    folder = shutil.copytree(report.written[0].parent, tmp_path / "check")
    (folder / "exclude.txt").write_text("blue/0.png\n")
    monkeypatch.chdir(tmp_path)
    command_line.main(["check", str(photos), "--weights", "cifar10", "--folders", "classes"])
    printed = capsys.readouterr().out.splitlines()
    saved = os.path.join("check", "exclude.txt")
    assert f"saved   {saved} is for finetune; --exclude {saved} checks with it" in printed
    (line,) = [line for line in printed if line.startswith("next")]
    program, *arguments = shlex.split(line.removeprefix("next"))
    assert program == "keras-vit"
    assert arguments[2:8] == ["--checked", "check", "--weights", "cifar10", "--folders", "classes"]
    assert command_line.main([*arguments, "--batch-size", "8", "--dry-run"]) == 0
    plan = " ".join(capsys.readouterr().out.split())
    assert "from check: split.csv, groups.csv, exclude.txt; no labels.csv" in plan
    assert "groups of 40 images" in plan
