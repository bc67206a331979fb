"""`--minutes`: the steps that fit into a time, decided by the first ones."""

import csv
import dataclasses
import re
import time

import numpy as np
import pytest

import keras_vit
from keras_vit import load_classifier
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.run import job, time_budget
from keras_vit.training.run.classifier_jobs import FineTune, finetune
from keras_vit.training.run.repeated_run import reproduce
from keras_vit.training.run.run_options import RunOptions
from keras_vit.training.run.sweep import sweep
from keras_vit.training.run.time_budget import MeasuredTimes, steps_within
from keras_vit.training.settings import FineTuning
from makers import tiny_config, write_classes

SETTINGS = FineTuning(
    model=tiny_config(),
    weights=None,
    image_size=(12, 8),
    batch_size=6,
    accumulate=1,
    learning_rate=0.01,
    validation=0.2,
    minutes=0.5,
)
TIMES = MeasuredTimes(start=10.0, end=3.0, step=0.5, save=1.0, image=0.01)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_classes(tmp_path_factory.mktemp("data"), {"train": 10, "test": 4})


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A run whose steps were measured as if they took 2 seconds each."""
    output, lines = tmp_path_factory.mktemp("runs") / "colors", []
    with pytest.MonkeyPatch.context() as patch:
        found = MeasuredTimes(start=1.0, end=1.0, step=2.0, save=0.1, image=0.001)
        patch.setattr(job, "measure", lambda trainer, batches, **options: found)
        settings = dataclasses.replace(SETTINGS, minutes=1)
        finished = finetune(data, output, settings, log=lines.append)
    return finished, output, "\n".join(lines)


@pytest.mark.parametrize(("train", "passes"), [("all", 3), ("head", 1)])
def test_a_dry_run_without_minutes_has_the_expected_time(
    train, passes, data, tmp_path, monkeypatch
):
    settings = dataclasses.replace(SETTINGS, minutes=None, steps=40, evaluate_every=10, train=train)
    flops = keras_vit.describe(tiny_config(), input_shape=(12, 8, 3)).flops
    monkeypatch.setattr(time_budget, "answer_rate", lambda *of_model: float(flops))
    text = FineTune(DataSpec(str(data)), RunOptions(tmp_path / "run"), settings).dry_run()
    # 30 images, of which 6 validate 4 times, and 12 test images: at an image a second.
    seconds = passes * 40 * 6 + 4 * 6 + 12
    assert f"about {seconds // 60} min {seconds % 60} s" in text


def test_a_run_reports_the_expected_time_after_its_first_steps(data, tmp_path):
    settings = dataclasses.replace(SETTINGS, minutes=None, steps=12, evaluate_every=12)
    lines = []
    finetune(data, tmp_path / "run", settings, log=lines.append)
    (found,) = (line for line in lines if line.startswith("expected "))
    # 6 validation images once, and 12 test images.
    assert re.fullmatch(
        r"expected 0 min \d+ s: 12 steps of [\d.e-]+ s, measured on the first ones, "
        "and 18 images to evaluate",
        found,
    )


def test_the_rate_is_of_the_operations_of_a_shallow_model(monkeypatch):
    times = iter([0.0, 9.0, 10.0, 12.0, 20.0, 23.0])
    monkeypatch.setattr(time_budget.time, "perf_counter", lambda: next(times))
    config = tiny_config()
    settings = dataclasses.replace(SETTINGS, minutes=None)
    flops = keras_vit.describe(config, input_shape=(12, 8, 3)).flops
    assert time_budget.answer_rate(config, (12, 8, 3), settings) == 6 * flops / 2


@pytest.mark.slow
def test_the_run_ends_in_its_time(data, tmp_path):
    began = time.monotonic()
    done = finetune(data, tmp_path / "run", dataclasses.replace(SETTINGS, minutes=1), log=len)
    assert 30 < time.monotonic() - began < 70  # A minute; the machine may be busy.
    assert done.classifier.recipe["settings"]["steps"] > 20


def test_the_schedule_is_complete(run):
    rows = list(csv.DictReader((run[1] / "history.csv").open()))
    steps = run[0].classifier.recipe["settings"]["steps"]
    assert int(rows[-1]["step"]) == steps
    decayed = steps - run[0].classifier.recipe["settings"]["warmup_steps"]
    # The cosine before the last of n steps is (1 - cos(pi / n)) / 2, at most (pi / 2n)^2.
    assert float(rows[-1]["learning_rate"]) <= SETTINGS.learning_rate * (np.pi / 2 / decayed) ** 2


def test_the_plan_prints_the_expected_time(run):
    steps = run[0].classifier.recipe["settings"]["steps"]
    assert f"1 ({steps} steps of " in run[2]
    assert "2 s, measured; expected 0 min " in run[2]


def test_the_steps_are_recorded_so_that_the_run_is_repeated(run, data):
    assert run[0].classifier.recipe["settings"]["minutes"] is None
    first = int(run[0].history[0]["step"])
    found = reproduce(run[1], DataSpec(str(data)), first_steps=first, log=len)
    assert found.level == "bits"


def test_the_run_is_the_same_as_one_with_its_steps_from_the_start(run, data, tmp_path):
    steps = run[0].classifier.recipe["settings"]["steps"]
    plain = dataclasses.replace(SETTINGS, minutes=None, steps=steps)
    finetune(data, tmp_path / "run", plain, log=len)
    pair = [load_classifier(path).model.get_weights() for path in (run[1], tmp_path / "run")]
    for first, second in zip(*pair, strict=True):
        np.testing.assert_array_equal(first, second)


def test_the_time_is_used_for_steps_validations_and_the_end():
    options = {"executed": 1, "validation": 100, "test": 200}
    found = steps_within(10, 20.0, TIMES, evaluate_every=None, **options)
    # 0.97 of 580 s less compiling, 10 validations with states, the test and the end.
    assert found.steps == int((0.97 * 580 - 10 - 10 * 2 - 2 - 3) / 0.5)
    assert found.expected <= 600
    often = steps_within(10, 20.0, TIMES, evaluate_every=2, **options)
    assert often.steps == int((0.97 * 580 - 10 - 2 - 3) / 1.5)
    together = steps_within(10, 20.0, TIMES, evaluate_every=None, **{**options, "executed": 8})
    assert together.steps == found.steps // 8 * 8


def test_too_few_minutes_are_one_line():
    options = {"evaluate_every": None, "validation": 100, "test": 200}
    with pytest.raises(ValueError, match=r"must be enough for a step.* 0\.9 minutes") as error:
        steps_within(0.1, 20.0, TIMES, executed=1, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("more", [{"steps": 5}, {"boundaries": (2,)}])
def test_minutes_and_steps_are_one_line(more):
    with pytest.raises(ValueError, match="leave out steps and boundaries"):
        FineTuning(minutes=1, **more)


def test_the_steps_of_a_recipe_give_way():
    settings = FineTuning.from_recipe("CIFAR-10", minutes=1)
    assert (settings.steps, settings.warmup_steps) == (None, None)


def test_several_runs_have_steps(data, tmp_path):
    with pytest.raises(ValueError, match="must have equal steps"):
        sweep(data, tmp_path / "sweep", SETTINGS, log=len)
    assert not (tmp_path / "sweep").exists()


def test_a_dry_run_says_that_the_steps_follow(data, tmp_path):
    text = FineTune(DataSpec(str(data)), RunOptions(tmp_path / "run"), SETTINGS).dry_run()
    assert "as many as fit into 0.5 minutes" in text
