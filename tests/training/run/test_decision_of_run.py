"""A run that finds at its end when its classifier answers."""

import contextlib
import dataclasses
import json
import re
import shutil

import pytest

from keras_vit.opening import open_predictor
from keras_vit.training.data import DataSpec
from keras_vit.training.data.split_record import SplitRecord
from keras_vit.training.run.finetune import dry_run, finetune
from keras_vit.training.run.start import start
from keras_vit.training.settings import DecisionSettings, FineTuning, RunOptions
from keras_vit.training.trust import calibrate
from keras_vit.training.trust.calibration_bound import enough_images
from keras_vit.utils.files import CARD, RECIPE
from makers import tiny_config, write_classes

SETTINGS = FineTuning(
    model=tiny_config(),
    weights=None,
    image_size=(12, 8),
    steps=12,
    batch_size=6,
    accumulate=1,
    learning_rate=0.1,
    validation=0,
    max_error=0.3,
    samples="none",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Noisy pictures of three colours: 24 of each class to train and calibrate, 4 to test."""
    return write_classes(tmp_path_factory.mktemp("colors"), {"train": 24, "test": 4})


@pytest.fixture(scope="module")
def done(data, tmp_path_factory):
    output, lines = tmp_path_factory.mktemp("runs") / "colors", []
    finished = finetune(DataSpec(data, calibration=0.5), output, SETTINGS, log=lines.append)
    return finished, output, lines


def test_the_decision_is_found_on_the_calibration_part(done):
    finished, output, lines = done
    decision = open_predictor(output).recipe["decision"]
    assert len(SplitRecord.read(output).parts["calibration"]) == 36
    assert decision["images"] == 29  # A fifth of 36 chose the temperature.
    assert decision["max_error"] == 0.3
    assert any(line.startswith("with 95% confidence at most 30.0%") for line in lines)
    assert "## Unknown images" in (output / CARD).read_text()


def test_the_test_images_are_answered_by_it(done):
    finished, output, _ = done
    assert finished.report.count == 12
    recorded = json.loads((output / RECIPE).read_text())["test"]
    assert recorded["decision"]["answered"] == finished.report.decision["answered"]
    assert open_predictor(output).model.output_shape == (None, 4)


def test_a_bound_sets_a_tenth_of_the_training_images_aside(data, tmp_path):
    settings = dataclasses.replace(SETTINGS, max_error=0.9)
    started = start(DataSpec(data), RunOptions(output=tmp_path / "run"), settings)
    assert "66 images to train, 0 to validate, 6 to calibrate" in dry_run(started)


def test_the_plan_and_the_card_say_that_the_bound_of_the_weights_was_dropped(done, data, tmp_path):
    _, weights, _ = done
    settings = dataclasses.replace(
        SETTINGS, model=None, weights=str(weights), max_error=None, steps=1, learning_rate=1e-3
    )
    lines = []
    finetune(data, tmp_path / "run", settings, log=lines.append)
    dropped = "its bound was found for the weights before this run"
    assert any(f"dropped ({dropped}" in line for line in lines)
    assert f"| dropped | {dropped}" in (tmp_path / "run" / CARD).read_text()
    again = dataclasses.replace(settings, max_error=0.9)
    plan = dry_run(start(DataSpec(data), RunOptions(output=tmp_path / "again"), again))
    assert "the weights before this run; a new one of 90.0% is looked for" in plan
    assert "--max-error finds" not in plan
    assert not open_predictor(tmp_path / "run").description.labels.abstains


@pytest.fixture(scope="module")
def undecided(tmp_path_factory):
    """A run whose bound cannot hold, one of whose calibration images is a copy, and its lines."""
    folder, lines = tmp_path_factory.mktemp("undecided"), []
    counts = {"train": 12, "calibration": 12, "test": 4}
    data = write_classes(folder / "data", counts, noise=200)
    name = sorted(path.name for path in (data / "train").iterdir())[0]
    first = sorted((data / "train" / name).iterdir())[0]
    shutil.copy(first, data / "calibration" / name / "copy.png")
    settings = dataclasses.replace(SETTINGS, steps=1, learning_rate=1e-6, max_error=0.2)
    finetune(data, folder / "run", settings, log=lines.append)
    return folder / "run", lines


def test_calibration_images_with_a_copy_that_was_trained_on_are_left_out(undecided):
    _, lines = undecided
    assert "split   1 calibration images of things that were trained on are left out" in lines


@pytest.fixture(scope="module")
def grouped(tiny, tmp_path_factory):
    """A run with a linear probe, on groups of two photos, and its lines."""
    data = write_classes(tmp_path_factory.mktemp("groups"), {"train": 24, "test": 4})
    table = [
        f"{path.relative_to(data)},{path.parent}{number // 2}"
        for folder in sorted(data.glob("*/*"))
        for number, path in enumerate(sorted(folder.iterdir()))
    ]
    groups, lines = data.parent / "groups.csv", []
    groups.write_text("\n".join(["path,group", *table]))
    spec = DataSpec(data, calibration=0.5, groups=str(groups))
    settings = FineTuning(
        weights=str(tiny), image_size=(8, 8), steps=1, batch_size=6, max_error=0.3, samples="none"
    )
    output = data.parent / "run"
    finetune(spec, output, settings, log=lines.append)
    return spec, output, lines


def test_the_plan_says_by_the_probe_how_many_groups_would_do(grouped):
    _, output, lines = grouped
    plan = " ".join("\n".join(map(str, lines)).split())
    found = re.search(
        r"bound (\d+) groups to calibrate; ([\d.]+)% right by a linear probe of", plan
    )
    facts = json.loads((output / RECIPE).read_text())["facts"]
    assert found is not None
    assert facts["bound"]["value"].startswith(f"{found[1]} groups to calibrate")
    accuracy = facts["head_start"]["reference"][1]
    enough = enough_images(accuracy, DecisionSettings(max_error=0.3))
    would_do = "it must refuse some" if enough is None else f"{enough:,} groups would do"
    assert f"{100 * accuracy:.1f}% right by a linear probe" in plan
    assert would_do in plan


def test_after_the_test_a_line_says_how_many_groups_would_do(grouped):
    _, output, lines = grouped
    (line,) = (line for line in lines if str(line).startswith("bound   "))
    right = json.loads((output / RECIPE).read_text())["test"]["top_1"]
    assert f"{right:.1%} right on the test images" in line


def test_too_few_groups_are_refused_as_groups(grouped, tmp_path):
    spec, *_ = grouped
    settings = dataclasses.replace(SETTINGS, max_error=0.02)
    with pytest.raises(ValueError, match=r"249 groups.*Received: \d+"):
        finetune(spec, tmp_path / "run", settings)


def test_calibrate_says_by_the_test_of_the_run_how_many_groups_would_do(grouped, tmp_path):
    spec, output, _ = grouped
    lines, run = [], shutil.copytree(output, tmp_path / "run")
    calibrate(run, spec.data, DecisionSettings(), groups=spec.groups, log=lines.append)
    assert not any(line.startswith("bound") for line in lines)  # Nothing was asked for.
    with contextlib.suppress(ValueError):  # This test is not about whether the bound holds.
        bounds = DecisionSettings(max_error=0.3)
        calibrate(run, spec.data, bounds, groups=spec.groups, log=lines.append)
    assert any(re.match(r"bound   \d+ groups .* on the test images of the run", x) for x in lines)


def test_too_few_calibration_images_are_refused_before_the_first_step(data, tmp_path):
    settings = dataclasses.replace(SETTINGS, max_error=0.02)
    with pytest.raises(ValueError, match="200 answered photos.*: 36"):
        finetune(DataSpec(data, calibration=0.5), tmp_path / "run", settings)
    assert not list(tmp_path.iterdir())


def test_a_bound_that_cannot_hold_leaves_a_run_without_a_decision(undecided):
    output, lines = undecided
    assert not open_predictor(output).description.labels.abstains
    (line,) = (line for line in lines if line.startswith("no decision: At most 20.0% "))
    assert re.search(r"That is \d+\.\d%; of as many new answers up to \d+\.\d% may be wrong", line)
    card = (output / CARD).read_text()
    assert "No threshold keeps the errors below 20.0%: every photo is answered." in card
