import csv

import numpy as np
import pytest

import keras_vit
from keras_vit.classifier import save_classifier
from keras_vit.opening import open_predictor
from keras_vit.training.data.content import file_fingerprints
from keras_vit.training.data.split_record import SplitRecord
from keras_vit.training.evaluation.classification import evaluate_classifier
from keras_vit.training.trust import compare_classifiers
from makers import tiny_config, write_picture


def test_a_classifier_against_itself_has_no_flips_and_cannot_be_told_with_few_images(
    command, tiny, colors, tmp_path
):
    output = tmp_path / "flips.csv"
    gate = "top_1 > -0.5, agreement > 20%"
    outcome = command("compare", tiny, tiny, "--data", colors, "--gate", gate, "--output", output)
    assert outcome.code == 3, outcome
    assert "top_1 > -0.5: cannot tell" in outcome.out
    assert "agreement > 20%: holds" in outcome.out
    assert "p-values are corrected for the number of classes (Holm); the intervals" in outcome.out
    assert output.read_text() == "image,true,old,new\n"


def test_flips_are_listed_and_a_failed_gate_ends_with_1(command, tiny, colors, tmp_path):
    better, output, classifier = tmp_path / "better", tmp_path / "flips.csv", open_predictor(tiny)
    names = (classifier.class_names[2], *classifier.class_names[:2])  # In another order.
    save_classifier(better, classifier.model, names, classifier.preprocessing)
    words = ("compare", better, tiny, "--data", colors, "--output", output)
    outcome = command(*words, "--gate", "agreement > 60%")
    assert outcome.code == 1, outcome
    assert "agreement > 60%: fails, agreement is 0.00%" in outcome.out
    old = open_predictor(better)
    answers = {path: old.predict(path)[0].top[0][0] for path in sorted(colors.glob("test/*/*.png"))}
    negative = {str(path) for path, answer in answers.items() if answer == path.parent.name}
    flips = list(csv.DictReader(output.open()))
    assert {flip["image"] for flip in flips if flip["old"] == flip["true"]} == negative
    assert all(flip["old"] != flip["new"] for flip in flips)


@pytest.mark.parametrize("suffix", [".tflite", ".onnx"])
def test_an_export_agrees_with_its_model(tiny, colors, suffix, tmp_path):
    export = keras_vit.export.tflite if suffix == ".tflite" else keras_vit.export.onnx
    photos = sorted(colors.glob("test/*/*.png"))
    export(tiny, tmp_path / f"model{suffix}", check_images=photos)
    gate = "agreement > 50%, negative_flips < 50%"
    found = compare_classifiers(tiny, tmp_path / f"model{suffix}", colors, gate=gate)
    assert [verdict.outcome for verdict in found.verdicts] == ["holds", "holds"]
    (agreement,) = [measure for measure in found.measures if measure.metric == "agreement"]
    assert (agreement.value, agreement.count) == (100, 6)


def test_held_out_and_new_images_are_compared_together(tiny, colors, tmp_path):
    classifier = open_predictor(tiny)
    folder = tmp_path / "run"
    save_classifier(folder, classifier.model, classifier.class_names, classifier.preprocessing)
    numbers = {part: file_fingerprints(sorted(map(str, colors.glob(f"{part}/*/*.png"))))
               for part in ("train", "test")}  # fmt: skip
    record = {"train": numbers["train"], "test": numbers["test"][:2]}
    empty = {"validation": numbers["test"][:0], "calibration": numbers["test"][:0]}
    SplitRecord.of({**record, **empty}).write(folder)
    found = compare_classifiers(folder, folder, colors)
    assert found.measures[0].count == 6
    assert "2 images that the run held out; 4 that are new to the run" in found.lines[3]


def test_coverage_is_the_share_that_each_decision_answers(tmp_path):
    classifier = open_predictor("cifar10")
    photos = tmp_path / "photos"
    rng = np.random.default_rng(0)
    for name in classifier.class_names[:2]:
        (photos / name).mkdir(parents=True)
        for index in range(4):
            write_picture(
                photos / name / f"{index}.png", rng.integers(0, 255, (32, 32, 3), "uint8")
            )
    without = tmp_path / "without"
    keras_vit.export.convert(classifier.folder, without)
    found = compare_classifiers(without, classifier, photos, gate="coverage > -90")
    (coverage,) = [measure for measure in found.measures if measure.metric == "coverage"]
    answered = evaluate_classifier(classifier, photos).is_answered.sum()
    assert answered < 8  # Noise.
    assert coverage.value == pytest.approx(100 * (answered / 8 - 1))


def test_classifiers_of_other_classes_or_another_task_and_an_old_file_are_refused(
    refused, tiny, colors, tmp_path
):
    output = tmp_path / "flips.csv"
    classifier = open_predictor(tiny)
    other = tmp_path / "other"
    save_classifier(other, classifier.model, ("a", "b", "c"), classifier.preprocessing)
    words = ("compare", tiny, tiny, "--data", colors, "--output", output)
    line = refused("compare", tiny, other, "--data", colors, "--output", output)
    assert "both classifiers" in line
    folder = tmp_path / "several"
    model = keras_vit.build(
        tiny_config(), classes=3, input_shape=(8, 8, 3), classifier_activation="sigmoid"
    )
    names, preprocessing = classifier.class_names, classifier.preprocessing
    save_classifier(folder, model, names, preprocessing, task="multilabel")
    line = refused("compare", tiny, folder, "--data", colors, "--output", output)
    assert "task multiclass" in line
    assert not output.exists()
    output.write_text("kept")
    assert "must be new" in refused(*words)
    assert output.read_text() == "kept"
