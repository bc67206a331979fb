"""The sweep of learning rates: one real one that is stopped and goes on, and its decisions."""

import csv
import dataclasses
import json
import os
import signal

import numpy as np
import pytest

from keras_vit.command_line import main
from keras_vit.training.evaluation.results import find_results, read_result
from keras_vit.training.run import folds, sweep as module
from keras_vit.training.run.loop import Interrupted
from keras_vit.training.run.sweep import sweep
from keras_vit.training.settings import FineTuning
from keras_vit.utils.progress import ProgressBar
from makers import tiny_config, write_classes

SETTINGS = FineTuning.from_recipe(
    "Oxford Flowers-102",
    model=tiny_config(),
    weights=None,
    image_size=8,
    steps=4,
    batch_size=6,
    accumulate=1,
    warmup_steps=0,
    validation=0.25,
    evaluate_every=2,
    augmentation="none",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Dark and bright pictures without a test part."""
    folder = tmp_path_factory.mktemp("data") / "shades"
    return write_classes(folder, 10, {"bright": 200, "dark": 60}, size=(8, 8), noise=30)


@pytest.fixture(scope="module")
def swept(data, tmp_path_factory):
    """A sweep that Ctrl-C stopped in the second run, and the same call again."""
    output = tmp_path_factory.mktemp("runs") / "swept"
    update = ProgressBar.update
    begun = []

    def interrupt(self, n=1):
        if getattr(self, "unit", "") == " steps" and self.n + n == 1:
            begun.append(self.total)
            if len(begun) == 2:
                os.kill(os.getpid(), signal.SIGINT)
        return update(self, n)

    def run(log):
        return sweep(
            data,
            output,
            SETTINGS,
            learning_rates=(1e-6, 0.3),
            seeds=(0, 1),
            log=log,
            command="keras-vit sweep ...",
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProgressBar, "update", interrupt)
        with pytest.raises(Interrupted):
            run(len)
    first = (output / "learning_rates" / "1e-06" / "recipe.json").stat().st_mtime_ns
    printed = []
    done = run(printed.append)
    return done, output, first, "\n".join(printed)


@pytest.mark.slow
def test_the_rate_that_learns_is_chosen_and_trained_with_each_seed(swept):
    done, _, _, _ = swept
    assert done.learning_rate == 0.3
    assert set(done.development) == {1e-6, 0.3}
    assert set(done.test) == {0, 1}
    assert done.mean == pytest.approx(sum(done.test.values()) / 2)
    assert done.deviation == pytest.approx(np.std(list(done.test.values()), ddof=1))


@pytest.mark.slow
def test_a_finished_run_is_not_done_again_and_a_stopped_one_goes_on(swept):
    _, output, first, printed = swept
    assert (output / "learning_rates" / "1e-06" / "recipe.json").stat().st_mtime_ns == first
    assert printed.count("resumed") == 1
    assert not list(output.rglob("*.partial"))


@pytest.mark.slow
def test_only_the_final_runs_see_the_test_images_and_all_training_images(swept):
    _, output, _, _ = swept
    recipes = {
        path.parent.relative_to(output): json.loads(path.read_text())
        for path in output.rglob("recipe.json")
    }
    for path, recipe in recipes.items():
        is_final = path.parts[0] == "seeds"
        images = {name: recipe["images"][name] for name in ("train", "validation", "test")}
        expected = (16, 0, 4) if is_final else (12, 4, 0)
        assert images == dict(zip(images, expected, strict=True)), path
        assert (recipe["test"] is None) == (not is_final)
        # Whatever the seed of the run, the images held out are the same.
        assert recipe["data"]["split_seed"] == 0
        assert (output / path / "model.keras").exists() == is_final


@pytest.mark.slow
def test_the_outcome_is_a_result_and_a_table(swept, capsys):
    done, output, _, _ = swept
    result = read_result(output / "result.json")
    assert (result.protocol, result.task, result.images) == ("sweep", "shades", 4)
    assert result.metrics["top_1"] == done.mean
    assert result.metrics["learning_rate"] == 0.3
    table = (output / "sweep.md").read_text()
    assert "| 0.3 (best) |" in table
    assert f"| mean | {100 * done.mean:.2f} ± {100 * done.deviation:.2f}% |" in table
    assert {found.protocol for _, found in find_results([output])} == {"sweep", "classification"}
    assert main(["report", str(output)]) == 0
    assert "sweep" in capsys.readouterr().out


@pytest.mark.slow
def test_another_sweep_does_not_go_into_its_folder(swept, data):
    _, output, _, _ = swept
    with pytest.raises(ValueError, match="differs in: steps"):
        sweep(data, output, dataclasses.replace(SETTINGS, steps=6), log=len)


class Pretend:
    """Stands for the training: development accuracy and loss by learning rate."""

    def __init__(self, monkeypatch, scores, metrics=("accuracy", "top_1")):
        self.scores, self.metrics, self.calls = scores, metrics, []
        monkeypatch.setattr(folds, "finetune", self)
        monkeypatch.setattr(module, "write_result", lambda result, command: None)

    def __call__(self, data, output, settings, **options):
        self.calls.append((settings.learning_rate, settings.seed, settings.validation, data.test))
        output.mkdir(parents=True)
        accuracy, loss = self.scores.get(settings.learning_rate, (0.5, 1.0))
        with open(output / "history.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow((f"validation_{self.metrics[0]}", "validation_loss"))
            writer.writerows([(0.99, 0.0), (accuracy, loss)])  # The last row counts.
        recipe = {
            "settings": {"learning_rate": settings.learning_rate},
            "test": {self.metrics[1]: 0.7, "images": 20} if data.test else None,
            "images": {"validation": 10},
            "task": "multilabel" if self.metrics[1] == "mAP" else "multiclass",
        }
        (output / "recipe.json").write_text(json.dumps(recipe))


def test_of_equal_accuracies_the_lowest_loss_is_best(data, tmp_path, monkeypatch):
    pretend = Pretend(monkeypatch, {0.1: (0.8, 0.9), 0.2: (0.8, 0.6), 0.3: (0.7, 0.1)})
    done = sweep(data, tmp_path / "out", SETTINGS, learning_rates=(0.1, 0.2, 0.3), log=len)
    assert done.learning_rate == 0.2
    assert "| 0.2 (best) | 80.0% (49.0 to 94.3) |" in str(done)
    assert "| mean | 70.0% (48.1 to 85.5), ± 0.00 over seeds |" in str(done)
    assert pretend.calls[:3] == [(rate, 0, 0.25, False) for rate in (0.1, 0.2, 0.3)]
    assert pretend.calls[3:] == [(0.2, seed, 0.0, True) for seed in (0, 1, 2)]


def test_folds_choose_the_rate_and_see_no_test_image(data, tmp_path, monkeypatch):
    scores, seen = {0.1: (0.5, 0.9, 0.7), 0.2: (0.6, 0.8, 0.8), 0.3: (0.6, 0.6, 0.8)}, []

    def finetune(data, output, settings, **options):
        parts = data.open(settings.validation).splits
        seen.append({part: set(examples.names) for part, examples in parts.items()})
        rate = settings.learning_rate
        top_1 = scores[rate][data.fold[0] - 1] if data.fold else 0.75
        recipe = {
            "settings": {"learning_rate": rate},
            "test": {"top_1": top_1, "images": len(parts["test"])},
            "images": {"validation": 0},
            "task": "multiclass",
        }
        output.mkdir(parents=True)
        (output / "model.keras").touch()
        (output / "recipe.json").write_text(json.dumps(recipe))

    monkeypatch.setattr(folds, "finetune", finetune)
    options = {"learning_rates": (0.1, 0.2, 0.3), "seeds": (0, 1), "folds": 3, "log": len}
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_result", lambda result, command: None)
        done = sweep(data, tmp_path / "out", SETTINGS, **options)
        assert sweep(data, tmp_path / "out", SETTINGS, **options) == done  # Nothing is repeated.
    assert (done.learning_rate, len(seen)) == (0.2, 3 * 3 + 2)
    assert done.development[0.2] == pytest.approx(2.2 / 3)
    # Student's t with 2 degrees of freedom: 4.3027 * deviation / sqrt(3).
    reach = 4.302653 * np.std(scores[0.2], ddof=1) / 3**0.5
    assert done.folds[0.2].interval == pytest.approx((2.2 / 3 - reach, min(2.2 / 3 + reach, 1)))
    assert "| 0.2 (best) | 73.33%, 95% t-interval 44.65% to 100.00% |" in str(done)
    assert "| learning rate | top-1 out of 3 folds |" in str(done)
    *trials, first, second = seen
    assert first == second
    tested = [parts["test"] for parts in trials[:3]]
    assert set.union(*tested) == first["train"]
    assert sum(map(len, tested)) == len(first["train"]) == 16
    assert all(not (first["test"] & (parts["train"] | parts["test"])) for parts in trials)
    assert len(list((tmp_path / "out").rglob("model.keras"))) == 2
    assert not list(find_results([tmp_path / "out" / "learning_rates"]))  # These are trials.
    with pytest.raises(ValueError, match="differs in: folds"):
        sweep(data, tmp_path / "out", SETTINGS, **options | {"folds": 4})
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_result", lambda result, command: None)
        single = sweep(data, tmp_path / "one", SETTINGS, **options | {"learning_rates": (0.2,)})
    assert single.development == {0.2: done.development[0.2]}  # Without a choice, for its interval.


def test_several_labels_are_swept_by_their_average_precision(data, tmp_path, monkeypatch):
    Pretend(monkeypatch, {0.1: (0.6, 0.9), 0.2: (0.8, 0.6)}, ("mAP", "mAP"))
    done = sweep(data, tmp_path / "out", SETTINGS, learning_rates=(0.1, 0.2), log=len)
    assert (done.learning_rate, done.metric) == (0.2, "mAP")
    assert done.test == {0: 0.7, 1: 0.7, 2: 0.7}
    assert "mAP on the development split" in str(done)


def test_the_rates_are_those_of_the_recipe_scaled_as_it_is(data, tmp_path, monkeypatch):
    pretend = Pretend(monkeypatch, {})
    settings = FineTuning.from_recipe("CIFAR-10", 0.01, weights=None)
    sweep(data, tmp_path / "out", settings, seeds=(0,), log=len)
    tried = [call[0] for call in pretend.calls[:-1]]
    assert tried == pytest.approx([rate / 8 for rate in (0.001, 0.003, 0.01, 0.03)])


def test_one_rate_alone_is_not_tried(data, tmp_path, monkeypatch):
    pretend = Pretend(monkeypatch, {})
    settings = FineTuning.from_recipe("VTAB", weights=None)
    sweep(data, tmp_path / "out", settings, log=len)
    assert pretend.calls == [(0.01, seed, 0.0, True) for seed in (0, 1, 2)]


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"validation": 0.0}, {}, "validation must leave some, or there must be folds"),
        ({}, {"seeds": ()}, "seeds must be one or more"),
        ({}, {"learning_rates": (0.1, 0.1)}, "each once"),
        ({}, {"holdout": 0.0}, "test images to report on"),
        ({}, {"folds": 1}, "at least 2 folds"),
        ({}, {"folds": 17}, "17 folds need at least 17 images. Received: 16"),
    ],
)
def test_a_sweep_that_is_not_possible_is_refused_before_anything_is_written(
    changes, options, message, data, tmp_path
):
    with pytest.raises(ValueError, match=message):
        sweep(data, tmp_path / "out", dataclasses.replace(SETTINGS, **changes), **options)
    assert not list(tmp_path.iterdir())


def test_images_too_few_for_a_development_split_are_refused_before_a_training(tmp_path):
    data = write_classes(tmp_path / "data", 2, {"bright": 200, "dark": 60}, size=(8, 8))
    with pytest.raises(ValueError, match="validation=0.25, none of 2 images"):
        sweep(data, tmp_path / "out", SETTINGS, learning_rates=(0.1, 0.3), log=len)
    assert not (tmp_path / "out").exists()
