"""Images that a run trained on are not counted as held out, whatever is added to the folder."""

import json
import pathlib
import shutil

import keras
import PIL.Image
import pytest

from keras_vit.description.without_paths import without_paths
from keras_vit.predictor import Predictor
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import DataSpec, open_source
from keras_vit.training.data.split_record import (
    SplitRecord,
    read_fingerprints,
    read_pixel_fingerprints,
)
from keras_vit.training.data.tfrecords import write_records
from keras_vit.training.evaluation import held_out
from keras_vit.training.evaluation.classification import evaluate_classifier
from makers import COLORS, write_classes

NAMES = tuple(COLORS)


@pytest.fixture(scope="module")
def model():
    images = keras.Input((8, 8, 3))
    keras.utils.set_random_seed(0)
    return keras.Model(
        images, keras.layers.Dense(len(NAMES), "softmax")(keras.layers.Flatten()(images))
    )


@pytest.fixture
def run(model, tmp_path):
    """Pictures, 10 of each class, and the classifier of a run that held out 2 and chose by 2."""
    data = write_classes(tmp_path / "photos", 10)
    return data, *classifier_of(DataSpec(data, split_seed=3), model, tmp_path)


def classifier_of(spec, model, tmp_path):
    """The images of a run and its classifier."""
    source = open_source(spec, 0.25)
    folder = tmp_path / "run"
    folder.mkdir()
    prints = read_fingerprints(source.splits), read_pixel_fingerprints(source.splits)
    SplitRecord.of(*prints).write(folder)
    counts = {name: len(part) for name, part in source.splits.items()}
    recipe = {"data": spec.to_json(), "images": {**counts, "skipped": 0}}
    return source, Predictor(model, NAMES, Preprocessing((8, 8)), recipe, folder)


def without_record(classifier, tmp_path):
    """The same classifier, of a version without records."""
    (tmp_path / "older").mkdir()
    return Predictor(
        classifier.model,
        NAMES,
        Preprocessing((8, 8)),
        classifier.recipe,
        tmp_path / "older",
    )


def add_new(data, count=3):
    """Adds images to each class, whose names come before those that were there."""
    added = write_classes(data.parent / "added", count, rng=9)
    for path in added.glob("*/*"):
        shutil.copy(path, data / path.parent.name / f"-{path.name}")


def names_of(report):
    return set(report.examples.names)


def test_data_without_images_of_some_classes_are_evaluated(model, tmp_path):
    one_class = write_classes(tmp_path / "one", 3, {NAMES[0]: COLORS[NAMES[0]]})
    parts = write_classes(tmp_path / "parts", {"train": 2, "test": 2})
    shutil.rmtree(parts / "test" / NAMES[1])
    classifier = Predictor(model, NAMES, Preprocessing((8, 8)))
    assert len(evaluate_classifier(classifier, one_class).examples) == 3
    assert len(evaluate_classifier(classifier, parts).examples) == 4


def test_what_the_run_held_out_is_evaluated(run):
    data, source, classifier = run
    report = evaluate_classifier(classifier, data)
    assert names_of(report) == set(source.splits["test"].names)
    assert str(report).startswith(report.split_lines[0])
    assert report.split_lines == (
        "split   6 images that the run held out; left out: 18 that the run trained on, "
        "6 by which the run chose its weights",
    )


def test_a_file_that_cannot_be_read_is_no_new_image(run):
    data, _, classifier = run
    (data / NAMES[0] / "empty.jpg").touch()
    report = evaluate_classifier(classifier, data)
    assert (report.count, report.new, len(report.skipped)) == (6, None, 1)


def test_new_images_have_a_report_of_their_own(run):
    data, source, classifier = run
    add_new(data)
    report = evaluate_classifier(classifier, data)
    assert names_of(report) == set(source.splits["test"].names)
    assert (report.count, report.new.count) == (6, 9)
    assert "6 images that the run held out; 9 that are new" in report.split_lines[0]
    assert f"new     images that are new to the run: {report.new.summary}" in str(report)
    assert report.to_json()["new"]["images"] == 9


def test_other_photos_are_new_though_a_few_of_them_are_copies_of_held_out_ones(run, tmp_path):
    _, source, classifier = run
    others = write_classes(tmp_path / "others", 3, rng=9)
    for name in source.splits["test"].names:
        path = pathlib.Path(name)
        shutil.copy(path, others / path.parent.name / f"copy {path.name}")
    report = evaluate_classifier(classifier, others)
    assert (report.count, report.new) == (9, None)
    assert report.split_lines[0] == (
        "split   9 images that are new to the run; left out: 6 that the run held out"
    )
    assert evaluate_classifier(classifier, others, split="test").count == 6


@pytest.mark.parametrize("split", ["train", "validation"])
def test_another_split_is_that_of_the_run(run, split):
    data, source, classifier = run
    add_new(data)
    report = evaluate_classifier(classifier, data, split=split)
    assert names_of(report) == set(source.splits[split].names)


@pytest.fixture
def run_with_calibration(model, tmp_path):
    """The same of a run that held out 2 of each class for calibration, too."""
    data = write_classes(tmp_path / "photos", 10)
    spec = DataSpec(data, calibration=0.25, split_seed=3)
    return data, *classifier_of(spec, model, tmp_path)


def test_images_that_were_held_out_for_calibration_are_not_of_the_test_part(run_with_calibration):
    data, source, classifier = run_with_calibration
    report = evaluate_classifier(classifier, data)
    assert names_of(report) == set(source.splits["test"].names)
    assert "6 that are for calibration" in report.split_lines[0]


def test_images_that_were_held_out_for_calibration_are_evaluated_by_name(run_with_calibration):
    data, source, classifier = run_with_calibration
    report = evaluate_classifier(classifier, data, split="calibration")
    assert names_of(report) == set(source.splits["calibration"].names)
    assert report.split_lines[0].startswith("split   6 images that are for calibration; left out: ")


def test_the_calibration_part_is_drawn_again_without_a_record(run_with_calibration, tmp_path):
    data, source, classifier = run_with_calibration
    drawn_again = without_record(classifier, tmp_path)
    report = evaluate_classifier(drawn_again, data, split="calibration")
    assert names_of(report) == set(source.splits["calibration"].names)
    assert "trained on" not in report.split_lines[0]
    chosen = held_out.choose_images(drawn_again, DataSpec(data), first="calibration")
    assert set(chosen.examples.names) == set(source.splits["calibration"].names)


def test_trained_images_in_a_test_folder_are_left_out(run, tmp_path):
    data, source, classifier = run
    add_new(data)
    (tmp_path / "parts").mkdir()
    for part in ("train", "test"):
        shutil.copytree(data, tmp_path / "parts" / part)
    report = evaluate_classifier(classifier, tmp_path / "parts")
    assert (report.count, report.new.count) == (6, 9)
    assert "18 that the run trained on" in report.split_lines[0]


def test_a_line_says_so_if_all_images_are_new_or_were_trained_on(run, tmp_path):
    data, source, classifier = run
    report = evaluate_classifier(classifier, write_classes(tmp_path / "others", 2, rng=5))
    assert report.split_lines == ("split   6 images that are new to the run",)
    for part in ("validation", "test"):
        for name in source.splits[part].names:
            pathlib.Path(name).unlink()
    report = evaluate_classifier(classifier, data)
    assert report.count == 18
    assert report.split_lines == (
        "split   none of the 18 images is new or was held out: 18 that the run trained on",
    )


def test_a_copy_of_a_trained_image_among_those_held_out_is_printed(run):
    data, source, classifier = run
    record = SplitRecord.read(classifier.folder)
    record.parts["train"][0] = record.parts["test"][0]
    record.write(classifier.folder)
    report = evaluate_classifier(classifier, data)
    assert report.split_lines[1].startswith("split   1 of the images that the run held out show")


def test_a_run_without_a_record_is_split_anew_and_a_line_says_so(run, tmp_path):
    data, source, classifier = run
    report = evaluate_classifier(without_record(classifier, tmp_path), data)
    assert names_of(report) == set(source.splits["test"].names)
    assert "no record of the run's split: drawn again" in report.split_lines[0]
    assert "from 30 images as in the run" in report.split_lines[0]


def test_training_images_of_a_run_without_a_record_count_as_seen(run, tmp_path):
    data, _, classifier = run
    older = without_record(classifier, tmp_path)
    assert held_out.choose_images(older, DataSpec(data), "train").seen.all()
    assert not held_out.choose_images(older, DataSpec(data)).seen.any()
    others = write_classes(tmp_path / "others", 2, rng=5)
    assert held_out.choose_images(older, DataSpec(others), "train").seen is None


def test_a_line_says_if_data_without_a_record_have_other_images_now(run, tmp_path, monkeypatch):
    data, _, classifier = run
    older = without_record(classifier, tmp_path)
    add_new(data)
    monkeypatch.setattr(Predictor, "is_export", True)
    line = evaluate_classifier(older, data).split_lines[0]
    assert "an export holds no record of its run's split: drawn again by the run's seed" in line
    assert "from 39 images instead of 30, so that" in line


def test_without_any_record_all_images_are_taken_as_new(run, tmp_path):
    data, source, classifier = run
    write_records(source, tmp_path / "records")
    plain = Predictor(classifier.model, NAMES, Preprocessing((8, 8)))
    for given in ((classifier, tmp_path / "records"), (plain, data)):
        report = evaluate_classifier(*given)
        assert report.split_lines[0] == (
            "split   no record of what the model was trained on: all images are taken as new"
        )
    assert report.count == 30


def test_data_of_an_evaluation_have_no_options_of_the_run(run):
    data, source, classifier = run
    report = evaluate_classifier(classifier, DataSpec(data, strict=True))
    assert names_of(report) == set(source.splits["test"].names)
    with pytest.raises(ValueError, match="holdout, split_seed"):
        evaluate_classifier(classifier, DataSpec(data, holdout=0.5, split_seed=1))


def test_parts_and_labels_of_a_table_are_those_of_the_run(model, tmp_path):
    data = write_classes(tmp_path / "photos", 10)
    paths = [path.relative_to(data) for path in sorted(data.glob("*/*"))]
    split = {str(path): "test" if int(path.stem[-1]) < 3 else "train" for path in paths}
    labels = {str(paths[0]): NAMES[-1]}
    spec = DataSpec(data, split=split, labels=labels, split_seed=3)
    source, classifier = classifier_of(spec, model, tmp_path)
    add_new(data)
    report = evaluate_classifier(classifier, data)
    assert names_of(report) == set(source.splits["test"].names)
    assert report.new.count == 9
    assert report.split_lines[0].endswith("; 1 have the label in the run's table")
    examples = report.examples
    numbers = dict(zip(examples.names, examples.labels, strict=True))
    assert source.class_names[numbers[str(data / paths[0])]] == NAMES[-1]


def test_new_images_of_a_group_that_was_trained_on_are_left_out(run):
    data, source, classifier = run
    trained = next(name for name in source.splits["train"].names)
    add_new(data)
    new = pathlib.Path(next(iter(sorted(data.glob("*/-*")))))
    new.rename(new.with_name(f"{pathlib.Path(trained).stem}-again.png"))
    with_groups = DataSpec(data, group_by=r"(\w+/-?\d+)(-again)?\.png")
    if pathlib.Path(trained).parent != new.parent:
        pytest.fail("The first training image must be of the first class.")
    report = evaluate_classifier(classifier, with_groups)
    assert names_of(report) == set(source.splits["test"].names)
    assert report.new.count == 8
    left_out = "1 that are new, but of a group that the run trained on or chose its weights by"
    assert left_out in report.split_lines[0]


def recorded(classifier, **options):
    """The classifier, with options of its data, as a finished run records them."""
    recipe = {**classifier.recipe, "data": {**classifier.recipe["data"], **options}}
    recipe = without_paths(json.loads(json.dumps(recipe)))
    return Predictor(classifier.model, NAMES, Preprocessing((8, 8)), recipe, classifier.folder)


def test_photos_of_the_same_name_in_another_folder_are_not_the_run_s(run, tmp_path, monkeypatch):
    data, _, classifier = run
    monkeypatch.chdir(tmp_path)
    excluded = [f"{NAMES[0]}/{path.name}" for path in sorted((data / NAMES[0]).iterdir())[:2]]
    options = {"data": "photos", "exclude": excluded}
    options["labels"] = ["path,label", f"{NAMES[0]}/5.png,{NAMES[1]}"]
    classifier = recorded(classifier, **options)
    other = write_classes(tmp_path / "other" / "photos", 4, rng=7)
    monkeypatch.chdir(other.parent)
    report = evaluate_classifier(classifier, "photos")
    assert report.count == 12
    assert report.split_lines == (
        "split   12 images that are new to the run",
        "data    the run's photos was another folder: its exclusions, labels and groups are not "
        "taken over",
    )


def test_what_the_record_leaves_out_of_its_own_data_stands_in_the_line_of_the_count(run):
    data, _, classifier = run
    name = sorted((data / NAMES[0]).iterdir())[0].name
    report = evaluate_classifier(recorded(classifier, exclude=[f"{NAMES[0]}/{name}"]), data)
    assert report.split_lines[0].endswith("; the 1 that the run excluded are left out")


def saved_again(folder, to):
    """The photos of a folder, with the same pixels in other bytes, in two formats."""
    shutil.copytree(folder, to)
    for number, path in enumerate(sorted(to.rglob("*.png"))):
        with PIL.Image.open(path) as image:
            image.load()
        if number % 2:
            image.save(path, compress_level=1, pnginfo=None)
        else:
            image.save(path.with_suffix(".bmp"))
            path.unlink()
    return to


@pytest.mark.parametrize("knows_pixels", [True, False])
def test_photos_that_were_saved_again_are_not_new_to_a_run_that_recorded_pixels(
    run, tmp_path, knows_pixels
):
    data, source, classifier = run
    if not knows_pixels:  # As older versions recorded.
        SplitRecord.of(read_fingerprints(source.splits)).write(classifier.folder)
    other = saved_again(data, tmp_path / "again")
    (line, *_) = evaluate_classifier(classifier, other).split_lines
    if knows_pixels:
        assert line == (
            "split   6 images that the run held out; left out: 18 that the run trained on, "
            "6 by which the run chose its weights"
        )
    else:
        assert line == (
            "split   30 images that are new to the run; known by their bytes, so that a photo that "
            "was saved again counts as new"
        )


def test_a_record_opens_no_folder_that_links_lead_to(run, tmp_path):
    data, _, classifier = run
    (tmp_path / "elsewhere").mkdir()
    photo = next((data / NAMES[0]).iterdir())
    photo.rename(tmp_path / "elsewhere" / photo.name)
    photo.symlink_to(tmp_path / "elsewhere" / photo.name)
    classifier = recorded(classifier, follow_symlinks=True)
    with pytest.raises(ValueError, match="--follow-symlinks"):
        evaluate_classifier(classifier, data)
    assert evaluate_classifier(classifier, data, follow_symlinks=True).count == 6
