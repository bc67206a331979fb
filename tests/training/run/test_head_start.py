"""A new head starts as a linear probe, and what a run starts from may be what it keeps."""

import argparse
import csv
import dataclasses
import re
import shutil

import keras
import numpy as np
import pytest
from PIL import Image
from runs import SignalAt, build_model, plan_of, run_of, silent
from sklearn.linear_model import LogisticRegression, Ridge

from keras_vit.description.run_record import Fact
from keras_vit.models.rebuild import feature_model, head_of
from keras_vit.training import recipes
from keras_vit.training.evaluation.classification import evaluate_classifier
from keras_vit.training.evaluation.predictions import extract, predictions_of
from keras_vit.training.evaluation.ridge import L2_SHARES
from keras_vit.training.evaluation.scores import compute_scores
from keras_vit.training.run import head_start
from keras_vit.training.run.finetune import below_start, dry_run, finetune, objective_of
from keras_vit.training.run.head_start import (
    HeadStart,
    fit_logits,
    start_head,
)
from keras_vit.training.run.image_size import probed_size
from keras_vit.training.run.loop import Interrupted
from keras_vit.training.run.plan import make_plan
from keras_vit.training.settings import FineTuning, PreTraining
from keras_vit.training.trainer.devices import Place
from keras_vit.utils.fields import add_arguments, given_fields
from makers import COLORS, write_classes, write_picture


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Pictures of three colours: ten of each to train with, four to test."""
    return write_classes(tmp_path_factory.mktemp("colors"), {"train": 10, "test": 4})


@pytest.fixture(scope="module")
def settings(tiny):
    """A run from random features, whose two validations are after every step."""
    return FineTuning(
        weights=str(tiny), head="new", steps=2, batch_size=6, evaluate_every=1, validation=0.2,
        learning_rate=1e-3, samples="none",
    )  # fmt: skip


@pytest.fixture(scope="module")
def first(data, settings, tmp_path_factory):
    return finetune(data, tmp_path_factory.mktemp("runs") / "first", settings, log=silent)


def steps_of(folder):
    with open(folder / "history.csv", newline="") as file:
        return {int(row["step"]): row for row in csv.DictReader(file)}


def test_the_head_is_the_ridge_regression_of_scikit_learn_times_a_number(data, settings, tmp_path):
    plan = plan_of(data, tmp_path / "run", settings)
    model, _ = build_model(plan)
    train = plan.source.splits["train"]
    reading = {"preprocessing": plan.preprocessing, "batch_size": 6}
    features, labels = map(
        np.concatenate, zip(*predictions_of(feature_model(model), train, **reading), strict=True)
    )
    fact = start_head(model, plan)
    assert fact.value == "linear probe"
    assert fact.origin.startswith("cross-entropy of 24 training images, each left out: 0.")
    kernel, bias = map(keras.ops.convert_to_numpy, head_of(model).weights)
    logits = features @ kernel + bias
    centred = features.astype("float64") - features.mean(axis=0)
    mean = np.square(centred).sum() / min(features.shape)
    targets = np.eye(3)[labels]
    fits = [Ridge(share * mean).fit(features.astype("float64"), targets) for share in L2_SHARES]
    slopes = [np.polyfit(fit.predict(features).ravel(), logits.ravel(), 1) for fit in fits]
    errors = [
        np.abs(slope * fit.predict(features) + constant - logits).max()
        for fit, (slope, constant) in zip(fits, slopes, strict=True)
    ]
    assert min(errors) < 1e-4 * np.abs(logits).max()
    assert (np.argmax(logits, axis=1) == labels).mean() > 0.9


def test_known_features_are_not_computed_again(data, settings, tmp_path, monkeypatch):
    plan = plan_of(data, tmp_path / "run", settings)
    model, _ = build_model(plan)
    train = plan.source.splits["train"]
    scores = compute_scores(model, train, plan.preprocessing, batch_size=6)
    known = dict(zip(train.names[::2], scores.features[::2], strict=True))
    computed = []

    def extracted(model, examples, **options):
        computed.extend(examples.names)
        return extract(model, examples, **options)

    monkeypatch.setattr("keras_vit.training.evaluation.scores.extract", extracted)
    again = compute_scores(model, train, plan.preprocessing, known=known, batch_size=6)
    assert computed == train.names[1::2]
    np.testing.assert_allclose(again.logits, scores.logits, atol=1e-6)
    np.testing.assert_array_equal(again.labels, scores.labels)


@pytest.mark.parametrize("several", [False, True])
def test_logits_are_scaled_to_the_least_cross_entropy(several):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(400, 2))
    if several:  # A logistic regression of all scores, which has the same least loss.
        targets = (rng.random((400, 2)) < 1 / (1 + np.exp(1 - 3 * scores))).astype("float64")
        fit = LogisticRegression(C=1e9).fit(scores.reshape(-1, 1), targets.ravel())
        expected = fit.coef_[0, 0], fit.intercept_[0]
    else:  # The difference of two scores decides between two classes.
        difference = scores[:, 1] - scores[:, 0]
        second = rng.random(400) < 1 / (1 + np.exp(-3 * difference))
        targets = np.stack([~second, second], axis=1).astype("float64")
        fit = LogisticRegression(C=1e9, fit_intercept=False).fit(difference[:, None], second)
        expected = fit.coef_[0, 0], 0.0
    _, scale, shift = fit_logits(scores, targets, several)
    np.testing.assert_allclose((scale, shift), expected, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("several", [False, True])
def test_losses_are_those_of_numpy_whatever_the_chunks(several, monkeypatch):
    rng = np.random.default_rng(3)
    scores, labels = rng.normal(size=(50, 4)), rng.integers(0, 4, 50)
    targets = np.eye(4)[labels]
    whole = fit_logits(scores, targets, several)
    monkeypatch.setattr(head_start, "_CHUNK", 12)
    losses, scale, shift = fit_logits(scores, targets, several)
    np.testing.assert_allclose((scale, shift), whole[1:], rtol=1e-4)
    wanted = (50 * targets + (0.5 if several else 0.25)) / 51
    logits = scale * scores + shift
    if several:
        expected = (np.log(1 + np.exp(logits)) - wanted * logits).sum(axis=1)
    else:
        expected = np.log(np.exp(logits).sum(axis=1)) - (wanted * logits).sum(axis=1)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)


def test_more_classes_than_a_probe_is_solved_for_leave_the_head_and_say_so(
    data, settings, tmp_path, monkeypatch
):
    plan = plan_of(data, tmp_path / "run", settings)
    model, _ = build_model(plan)
    monkeypatch.setattr(head_start, "MAX_TARGETS", 12)  # Four images of three classes.
    fact = start_head(model, plan)
    assert fact == Fact("zeros", "a linear probe is solved for at most 2 classes or 4 images of 3")


def test_features_that_are_all_equal_leave_the_head(data, settings, tmp_path):
    plan = plan_of(data, tmp_path / "run", settings)
    model, _ = build_model(plan)
    for weight in model.get_layer("encoder_norm").weights:
        weight.assign(np.zeros(weight.shape))
    before = [np.asarray(weight) for weight in head_of(model).weights]
    fact = start_head(model, plan)
    assert fact == Fact("zeros", "the features of all training images are equal")
    for one, other in zip(before, head_of(model).weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_rows_of_the_weights_that_are_better_stay(first, settings, tmp_path):
    assert first.classifier.recipe["facts"]["head_start"]["value"] == "linear probe"
    # With one image of each class none can be left out.
    few = write_classes(tmp_path / "few", {"train": 1, "test": 1})
    again = dataclasses.replace(
        settings, weights=str(first.folder), head=None, validation=0.0, learning_rate=1e-9
    )
    second = finetune(few, tmp_path / "second", again, log=silent)
    assert second.classifier.recipe["facts"]["head_start"]["value"] == "the rows of the weights"
    kernels = [np.asarray(head_of(each.model).kernel) for each in (first, second)]
    np.testing.assert_allclose(*kernels, atol=1e-5)


def test_a_run_whose_states_are_damaged_starts_from_the_same_head(data, settings, first, tmp_path):
    with pytest.raises(Interrupted):
        finetune(data, tmp_path / "run", settings, log=silent, callbacks=[SignalAt(1)])
    for state in (tmp_path / "run.partial" / ".states").glob("state-*.npz"):
        state.write_bytes(state.read_bytes()[:100])
    with pytest.warns(UserWarning, match="which is damaged"):
        again = finetune(None, tmp_path / "run", settings, log=silent, resume=True)
    rows = [
        {name: text for name, text in row.items() if name != "images_per_second"}
        for done in (first, again)
        for row in done.history
    ]
    assert rows[: len(rows) // 2] == rows[len(rows) // 2 :]
    for one, other in zip(first.model.get_weights(), again.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def wild(settings):
    """A run whose rate is much too high."""
    return dataclasses.replace(settings, learning_rate=1e4, global_clipnorm=None, warmup_steps=0)


def test_a_run_that_ends_below_its_start_says_so_and_keeps_it(data, wild, tmp_path):
    lines = []
    done = finetune(data, tmp_path / "run", wild, log=lines.append)
    rows = steps_of(done.folder)
    assert list(rows) == [0, 1, 2]
    assert rows[0]["loss"] == ""
    assert float(rows[0]["validation_accuracy"]) == 1.0
    (line,) = (line for line in lines if "ends below its start on the validation images" in line)
    assert line.endswith(". Kept: step 0, the best")
    assert done.report.top_1 == 1.0


@pytest.mark.parametrize(
    ("last", "count", "is_below"),
    [(0.75, 8, False), (0.75, 400, True), (0.875, 8, False), (0.9, 400, False)],
)
def test_a_run_ends_below_its_start_by_more_than_two_standard_errors(last, count, is_below):
    rows = [(0, 0.875), (20, last)]
    history = [{"step": str(step), "validation_accuracy": str(score)} for step, score in rows]
    assert (below_start(history, "accuracy", count) is not None) == is_below


def test_a_run_that_keeps_its_last_weights_has_no_row_of_its_start(data, wild, tmp_path):
    settings = dataclasses.replace(wild, keep="last")
    last = finetune(data, tmp_path / "last", settings, log=silent)
    assert 0 not in steps_of(last.folder)
    assert last.report.top_1 < 1.0


def test_only_a_new_head_of_fine_tuning_starts_as_a_probe(data, settings, tiny, tmp_path):
    def probes(**changes):
        plan = plan_of(data, tmp_path / "run", dataclasses.replace(settings, **changes))
        return any(isinstance(stage, HeadStart) for stage in plan.stages)

    assert probes()
    assert probes(head=None)
    assert probes(train="head")
    assert not probes(head="keep")
    assert not probes(head="extend")
    assert not probes(head_start="zero")


def test_the_papers_recipes_start_at_zero_and_keep_the_last_step():
    for name in recipes.FINETUNING:
        settings = FineTuning.from_recipe(name)
        found = settings.head_start, settings.keep, settings.augmentation
        assert found == ("zero", "last", "inception_crop")


@pytest.mark.parametrize(("images", "expected"), [(240, "none"), (20_000, "inception_crop")])
def test_few_photos_are_not_cropped(images, expected):
    assert FineTuning().resolve(images).augmentation == expected
    assert FineTuning(augmentation="flip").resolve(images).augmentation == "flip"
    assert PreTraining().resolve(images).augmentation == "inception_crop"


def test_multi_label_data_start_as_a_probe_too(data, tiny, tmp_path):
    table = tmp_path / "photos.csv"
    rows = ["path,label,split"]
    for part in ("train", "test"):
        for color in COLORS:
            both = f"{color};warm" if color == "red" else color
            rows += [f"{file},{both},{part}" for file in sorted((data / part / color).iterdir())]
    table.write_text("\n".join(rows) + "\n")
    settings = FineTuning(weights=str(tiny), steps=1, batch_size=6, learning_rate=1e-9)
    done = finetune(table, tmp_path / "run", settings, log=silent, label_separator=";")
    assert done.report.score == 1.0
    assert done.classifier.recipe["facts"]["head_start"]["value"] == "linear probe"


@pytest.fixture(scope="module")
def stripes(tmp_path_factory):
    """Grey pictures with and without stripes that are lost at the 8 pixels of `tiny`."""
    folder, rng = tmp_path_factory.mktemp("stripes"), np.random.default_rng(0)
    period = np.where(np.arange(32) % 4 < 2, 80, -80)
    for part, count in {"train": 20, "test": 10}.items():
        for number in range(2 * count):
            pixels = rng.normal(128, 20, (32, 32, 1)) + (period[None, :, None] if number % 2 else 0)
            picture = np.clip(np.repeat(pixels, 3, axis=-1), 0, 255).astype("uint8")
            write_picture(
                folder / part / ("flat", "striped")[number % 2] / f"{number}.png", picture
            )
    return folder


@pytest.fixture(scope="module")
def striped_run(stripes, tiny, tmp_path_factory):
    lines = []
    settings = FineTuning(weights=str(tiny), steps=1, batch_size=8, learning_rate=1e-9)
    done = finetune(
        stripes, tmp_path_factory.mktemp("runs") / "striped", settings, log=lines.append
    )
    return done, "\n".join(lines)


def test_a_size_whose_probe_is_clearly_better_is_taken(striped_run):
    done, text = striped_run
    fact = done.classifier.recipe["facts"]["image_size"]
    found = re.findall(r"([\d.]+)%(?: right)? at (\d+)", fact["from"])
    shares, sizes = zip(*((float(share), [int(side)] * 2) for share, side in found), strict=True)
    assert sizes == ([8, 8], [28, 28])
    assert (
        fact["value"]
        == list(sizes[np.argmax(shares)])
        == done.classifier.recipe["settings"]["image_size"]
    )
    assert shares[0] < 80 < max(shares)
    assert done.classifier.preprocessing.image_size == tuple(fact["value"])
    assert "a linear probe of 36 training images, each left out" in text


def test_a_dry_run_names_the_larger_size_that_a_run_tries(stripes, tiny, tmp_path):
    settings = FineTuning(weights=str(tiny), steps=1, batch_size=8, samples="none")
    text = dry_run(run_of(stripes, tmp_path / "run", settings))
    assert "28x28 is tried first by a linear probe" in " ".join(text.split())


def test_the_plan_says_what_simple_numbers_reach(striped_run):
    _, text = striped_run
    text = " ".join(text.split())
    assert "simple numbers 100.0% right (thirty simple numbers of each photo, of 36" in text
    assert "photos 32x32 (seen at 28x28: details below 2 pixels are lost" in text


@pytest.mark.parametrize("where", ["card", "page", "log"])
def test_beside_the_accuracy_stand_the_references(striped_run, where):
    done, log = striped_run
    text = {
        "card": lambda: (done.folder / "README.md").read_text(),
        "page": lambda: (done.folder / "report.html").read_text(),
        "log": lambda: log,
    }[where]()
    assert "lways flat, the most frequent class: 50.0%" in text
    assert (
        "not shown to be better than thirty simple numbers of each photo: 100.0%"
        in text.replace("Not", "not")
    )


def test_an_evaluation_of_the_photos_of_the_run_has_the_same_references(
    striped_run, stripes, tmp_path
):
    done, _ = striped_run
    moved = shutil.copytree(stripes, tmp_path / "moved")
    assert len(done.report.references) == 2
    assert evaluate_classifier(done.classifier, stripes).references == done.report.references
    assert evaluate_classifier(done.classifier, moved).references == done.report.references


def test_other_photos_are_not_compared_with_those_of_the_run(striped_run, stripes, tmp_path):
    done, _ = striped_run
    photos = shutil.copytree(stripes, tmp_path / "others")
    for path in photos.rglob("*.png"):
        Image.open(path).rotate(180).save(path)
    assert evaluate_classifier(done.classifier, photos).simple is None


def size_of(data, output, settings):
    """The size that a run has in its record, after the probe and before the first step."""
    started = run_of(data, output, settings)
    opened = objective_of(started.settings).start(started)
    size = probed_size(opened, Place(None, silent))
    return make_plan(opened, started.begun, size).record.to_json()["facts"]["image_size"]


def test_coarse_photos_are_seen_at_the_size_of_the_weights(tiny, tmp_path):
    photos = write_classes(tmp_path / "photos", {"train": 8, "test": 2}, size=(32, 32))
    settings = FineTuning(weights=str(tiny), steps=1, batch_size=8, samples="none")
    fact = size_of(photos, tmp_path / "run", settings)
    assert fact["value"] == [8, 8]
    assert fact["from"].endswith("times as long")


def test_a_given_size_is_not_changed(stripes, settings, tmp_path):
    given = dataclasses.replace(settings, image_size=(8, 8))
    fact = size_of(stripes, tmp_path / "run", given)
    assert fact == {"value": [8, 8], "from": "the settings"}


@pytest.mark.parametrize(("text", "expected"), [("auto", None), ("48", (48, 48))])
def test_the_image_size_auto_is_the_default(text, expected):
    parser = argparse.ArgumentParser()
    add_arguments(parser, FineTuning)
    given = given_fields(FineTuning, parser.parse_args(["--image-size", text]))
    assert given == {"image_size": expected}
    assert FineTuning().image_size is None
