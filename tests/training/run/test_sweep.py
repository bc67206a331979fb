"""Several runs: a sweep that is stopped and goes on, and its decisions."""

import csv
import dataclasses
import json
import os
import signal
import types

import numpy as np
import pytest
from read_results import find_results, read_result

from keras_vit.training.data import open_source, sources
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.run import sweep as module
from keras_vit.training.run.finetune import plan_of
from keras_vit.training.run.loop import Interrupted
from keras_vit.training.run.sweep import sweep
from keras_vit.training.settings import FineTuning
from keras_vit.training.trainer.trainer import NonFiniteError
from keras_vit.utils.progress import ProgressBar
from makers import tiny_config, write_classes

SETTINGS = FineTuning.from_recipe(
    "Oxford Flowers-102", model=tiny_config(), weights=None, image_size=8, steps=4, batch_size=6,
    accumulate=1, warmup_steps=0, validation=0.25, evaluate_every=2, augmentation="none",
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Dark and bright pictures without a test part."""
    folder = tmp_path_factory.mktemp("data") / "shades"
    return write_classes(folder, 10, {"bright": 200, "dark": 60}, size=(8, 8), noise=30)


@pytest.fixture(scope="module")
def swept(data, tmp_path_factory):
    """A sweep that was stopped in its second run and went on."""
    output, update = tmp_path_factory.mktemp("sweep") / "swept", ProgressBar.update
    begun, printed = [], []
    options = {"learning_rates": (1e-6, 0.3), "seeds": (0, 1), "command": "keras-vit sweep ..."}

    def interrupt(self, n=1):
        if getattr(self, "unit", "") == " steps" and self.n + n == 1:
            begun.append(self.total)
            if len(begun) == 2:
                os.kill(os.getpid(), signal.SIGINT)
        return update(self, n)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProgressBar, "update", interrupt)
        with pytest.raises(Interrupted):
            sweep(data, output, SETTINGS, **options, log=len)
    first = output / "learning_rates" / "1e-06" / "recipe.json"
    written = first.stat().st_mtime_ns
    done = sweep(data, output, SETTINGS, **options, log=printed.append)
    return types.SimpleNamespace(
        output=output,
        done=done,
        printed="\n".join(printed),
        is_done_again=first.stat().st_mtime_ns != written,
    )


@pytest.mark.slow
def test_a_stopped_sweep_goes_on(swept):
    assert not swept.is_done_again  # A finished run.
    assert swept.printed.count("resumed") == 1
    assert not list(swept.output.rglob("*.partial"))


@pytest.mark.slow
def test_a_sweep_tests_the_rate_that_learns_with_each_seed(swept):
    done = swept.done
    assert done.learning_rate == 0.3
    assert (set(done.development), set(done.test)) == ({1e-6, 0.3}, {0, 1})
    assert done.mean == pytest.approx(sum(done.test.values()) / 2)
    assert done.deviation == pytest.approx(np.std(list(done.test.values()), ddof=1))


@pytest.mark.slow
def test_the_runs_of_a_sweep_hold_out_the_same_images(swept):
    cases = [*swept.output.rglob("recipe.json")]
    assert cases
    for path in cases:
        recipe = json.loads(path.read_text())
        is_final = path.relative_to(swept.output).parts[0] == "seeds"
        images = [recipe["images"][name] for name in ("train", "validation", "test")]
        assert images == ([16, 0, 4] if is_final else [12, 4, 0]), path
        assert (recipe["test"] is None) == (not is_final)
        # Whatever the seed of the run, the images held out are the same.
        assert recipe["data"]["split_seed"] == 0
        assert path.with_name("model.keras").exists() == is_final


@pytest.mark.slow
def test_a_sweep_writes_its_result(swept):
    output, done = swept.output, swept.done
    result = read_result(output / "result.json")
    assert (result.protocol, result.task, result.images) == ("sweep", "shades", 4)
    assert (result.metrics["top_1"], result.metrics["learning_rate"]) == (done.mean, 0.3)
    assert {found.protocol for _, found in find_results([output])} == {"sweep", "classification"}


@pytest.mark.slow
def test_a_sweep_of_other_settings_does_not_go_on(swept, data):
    with pytest.raises(ValueError, match="differs in: steps"):
        sweep(data, swept.output, dataclasses.replace(SETTINGS, steps=6), log=len)


@pytest.fixture
def pretended(monkeypatch):
    """Stands for the training: the score of a run by its rate, and the runs."""
    scores, runs = {}, []
    metric = {"name": "top_1", "task": "multiclass"}

    def run(started):
        data, output, settings = started.data, started.options.output, started.settings
        parts = open_source(data, settings.validation).splits
        images = {part: set(examples.names) for part, examples in parts.items()}
        runs.append((settings, data, images, started.options.resume))
        score, loss = scores.get(settings.learning_rate, (0.75, 1.0))
        if data.test:
            score, loss = scores.get(f"seed {settings.seed}", (score, loss))
        if loss == "diverges":
            raise NonFiniteError(1, settings.learning_rate)
        output.mkdir(parents=True)
        with open(output / "history.csv", "w", newline="") as file:
            writer = csv.writer(file)
            column = {"top_1": "accuracy"}.get(metric["name"], metric["name"])
            writer.writerow(("step", f"validation_{column}", "validation_loss"))
            writer.writerows([(1, 0.99, 0.0), (2, score, loss)])  # The last row counts.
        tested = {metric["name"]: 0.7, "images": len(parts.get("test", ()))}
        recipe = {
            "settings": {"learning_rate": settings.learning_rate},
            "test": tested if data.test else None,
            "images": {"validation": 10},
            "task": metric["task"],
        }
        (output / "model.keras").touch()
        (output / "recipe.json").write_text(json.dumps(recipe))

    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(module, "write_result", lambda result, command: None)
    return scores, runs, metric


def tried(runs):
    return [(s.learning_rate, s.seed, s.validation, data.test) for s, data, *_ in runs]


def test_of_equal_accuracies_the_lowest_loss_is_best(data, tmp_path, pretended):
    scores, runs, _ = pretended
    scores |= {0.1: (0.8, 0.9), 0.2: (0.8, 0.6), 0.3: (0.7, 0.1)}
    done = sweep(data, tmp_path / "out", SETTINGS, learning_rates=(0.1, 0.2, 0.3), log=len)
    assert done.learning_rate == 0.2
    assert "| 0.2 (best), on the development split | 80.0% (49.0 to 94.3) |" in str(done)
    assert "| mean | 70.0% (26.7 to 93.7), ± 0.00 over seeds |" in str(done)
    assert tried(runs[:3]) == [(rate, 0, 0.25, False) for rate in (0.1, 0.2, 0.3)]
    assert tried(runs[3:]) == [(0.2, seed, 0.0, True) for seed in (0, 1, 2)]


def test_several_labels_are_swept_by_their_average_precision(data, tmp_path, pretended):
    scores, _, metric = pretended
    scores |= {0.1: (0.6, 0.9), 0.2: (0.8, 0.6)}
    metric |= {"name": "mAP", "task": "multilabel"}
    done = sweep(data, tmp_path / "out", SETTINGS, learning_rates=(0.1, 0.2), log=len)
    assert (done.learning_rate, done.metric) == (0.2, "mAP")
    assert done.test == {0: 0.7, 1: 0.7, 2: 0.7}
    assert "| run | mAP |" in str(done)


DIVERGES = (None, "diverges")  # The loss of a step is not finite.


@pytest.mark.parametrize("at_the_end", [DIVERGES, ("", "nan")])
def test_a_rate_that_diverges_is_a_row_and_the_others_go_on(at_the_end, data, tmp_path, pretended):
    scores, runs, _ = pretended
    scores |= {0.1: (0.8, 0.9), 9.0: at_the_end}
    for _ in range(2):
        done = sweep(data, tmp_path / "out", SETTINGS, learning_rates=(9.0, 0.1), log=len)
    assert done.development == {9.0: None, 0.1: 0.8}
    assert "| 9, on the development split | diverged |" in str(done)
    assert [rate for rate, *_ in tried(runs)] == [9.0, *[0.1] * 4]  # None is tried again.


def test_a_seed_that_diverges_is_a_row_and_the_others_go_on(data, tmp_path, pretended):
    scores, runs, _ = pretended
    scores["seed 1"] = DIVERGES
    for _ in range(2):
        done = sweep(data, tmp_path / "out", SETTINGS, learning_rates=(0.1,), log=len)
    assert done.test == {0: 0.7, 1: None, 2: 0.7}
    assert "| seed 1, 0.1, on test | diverged |" in str(done)
    assert "| mean of the 2 of 3 seeds that did not diverge | 70.0% (26.7 to 93.7), ±" in str(done)
    assert [seed for _, seed, *_ in tried(runs)] == [0, 1, 2]  # None is tried again.


def test_a_sweep_of_seeds_that_all_diverge_names_them(data, tmp_path, pretended):
    pretended[0].update({"seed 0": DIVERGES, "seed 1": DIVERGES})
    with pytest.raises(ValueError, match="than 0.1 .*: 0, 1, "):
        sweep(data, tmp_path / "out", SETTINGS, learning_rates=(0.1,), seeds=(0, 1), log=len)


def test_a_sweep_looks_for_things_once(data, tmp_path, pretended, monkeypatch):
    searched, searches, find = [], [], sources.find_things
    monkeypatch.setattr(sources, "find_things", lambda *a, **o: searches.append(1) or find(*a, **o))

    def run(started):
        before = len(searches)
        plan_of(started)
        searched.append(len(searches) - before)
        pretended_run(started)

    pretended_run = module.run
    monkeypatch.setattr(module, "run", run)
    sweep(data, tmp_path / "out", SETTINGS, learning_rates=(0.1, 0.2), seeds=(0,), log=len)
    assert searched == [0, 0, 0]  # The sweep has looked before its first run.


def test_a_sweep_of_rates_that_all_diverge_names_them(data, tmp_path, pretended):
    pretended[0].update({8.0: DIVERGES, 9.0: DIVERGES})
    with pytest.raises(ValueError, match=": 8, 9, .*diverged"):
        sweep(data, tmp_path / "out", SETTINGS, learning_rates=(8.0, 9.0), log=len)
    note = (tmp_path / "out" / "learning_rates" / "9" / "diverged.txt").read_text()
    assert "NaN or infinity in step 1, at learning rate 9" in note


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        # The recipe's rates; one rate alone is not tried.
        (FineTuning.from_recipe("CIFAR-10"), [0.001, 0.003, 0.01, 0.03]),
        (FineTuning.from_recipe("VTAB"), []),
    ],
)
def test_the_rates_are_those_of_the_recipe(settings, rates, data, tmp_path, pretended):
    settings = dataclasses.replace(settings, weights=None)
    sweep(data, tmp_path / "out", settings, seeds=(0,), log=len)
    *trials, final = tried(pretended[1])
    assert [rate for rate, *_ in trials] == pytest.approx(rates)
    assert final[1:] == (0, 0.0, True)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"validation": 0.0}, {}, "validation must leave"),
        ({}, {"seeds": ()}, "seeds must"),
        ({}, {"learning_rates": (0.1, 0.1)}, "each once"),
        ({}, {"seeds": (0, 2**32)}, "at most 4294967295"),
    ],
)
def test_a_sweep_that_is_not_possible_is_refused_before_anything_is_written(
    changes, options, message, data, tmp_path
):
    with pytest.raises(ValueError, match=message):
        sweep(data, tmp_path / "out", dataclasses.replace(SETTINGS, **changes), **options)
    assert not list(tmp_path.iterdir())


def test_a_sweep_without_test_images_is_refused_before_anything_is_written(data, tmp_path):
    with pytest.raises(ValueError, match="test images"):
        sweep(DataSpec(data, holdout=0.0), tmp_path / "out", SETTINGS)
    assert not list(tmp_path.iterdir())
