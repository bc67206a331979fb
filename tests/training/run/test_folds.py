"""Cross-validation: its runs, its intervals, and what is refused."""

import json

import pytest

from keras_vit.command_line import main
from keras_vit.training.run import folds
from keras_vit.training.run.folds import FoldsResult, finetune_folds
from keras_vit.training.settings import FineTuning
from makers import tiny_config, write_classes

SETTINGS = FineTuning(
    model=tiny_config(),
    weights=None,
    image_size=(8, 8),
    steps=2,
    batch_size=4,
    accumulate=1,
    validation=0.0,
    augmentation="none",
)


def test_the_table_has_each_fold_the_mean_and_both_intervals(tmp_path):
    done = FoldsResult((0.9, 0.8), (10, 10), (0.7, 0.9), tmp_path, test_images=10)
    table = str(done)
    assert "| 2 | 10 | 80.0% (49.0 to 94.3) | 90.0% (59.6 to 98.2) |" in table
    assert "| mean | 20 | 85.00% | 80.0% (49.0 to 94.3) |" in table
    assert "mean 85.00%, 95% t-interval 21.47% to 100.00% (of 2 runs" in table
    assert "17 of 20 right, 85.0% (64.0 to 94.8)" in table
    of_labels = FoldsResult((0.9, 0.8), (10, 10), (), tmp_path, "mAP")
    assert "Wilson" not in str(of_labels)
    assert of_labels.to_json()["pooled"] is None


@pytest.fixture
def pretended(monkeypatch):
    """The folds that were trained; the training itself is left out."""
    calls = []

    def finetune(data, output, settings, **options):
        calls.append((data.fold, options["resume"]))
        output.mkdir(parents=True)
        images = len(data.open(verify=False).splits["test"])
        recipe = {"test": {"top_1": 0.5, "images": images}, "task": "multiclass"}
        (output / "recipe.json").write_text(json.dumps(recipe))

    monkeypatch.setattr(folds, "finetune", finetune)
    return calls


def test_finished_folds_are_not_trained_again(pretended, tmp_path):
    data = write_classes(tmp_path / "photos", 4)
    run = tmp_path / "run"
    first = finetune_folds(data, run, SETTINGS, folds=3, log=len)
    assert pretended == [((number, 3), False) for number in (1, 2, 3)]
    (run / "fold-2" / "recipe.json").unlink()
    (run / "fold-2").rmdir()
    assert finetune_folds(data, run, SETTINGS, folds=3, log=len) == first
    assert pretended[3:] == [((2, 3), False)]
    assert first.pooled == (6, 12)
    written = json.loads((run / "folds.json").read_text())
    assert written["folds"] == 3
    assert written["result"]["mean"] == 0.5
    with pytest.raises(ValueError, match="differs in: folds"):
        finetune_folds(data, run, SETTINGS, folds=4, log=len)


def test_wrong_folds_are_refused_before_anything_is_written(tmp_path, capsys):
    data = write_classes(tmp_path / "photos", 4)
    with pytest.raises(ValueError, match="at least 2 folds. Received: folds=1"):
        finetune_folds(data, tmp_path / "run", SETTINGS, folds=1)
    with pytest.raises(ValueError, match="13 folds need at least 13 images. Received: 12"):
        finetune_folds(data, tmp_path / "run", SETTINGS, folds=13)
    command = ["finetune", "--data", str(data), "--output", str(tmp_path / "run"), "--folds"]
    assert main([*command, "1"]) == 2
    assert main([*command, "3", "--resume"]) == 2
    assert "the same command continues" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_each_fold_is_a_classifier_and_the_test_part_is_evaluated_by_each(tmp_path):
    data = write_classes(tmp_path / "photos", {"train": 4, "test": 2}, size=(8, 8))
    done = finetune_folds(data, tmp_path / "run", SETTINGS, folds=2, log=len)
    assert done.images == (6, 6)
    assert len(done.test) == 2
    for number in (1, 2):
        recipe = json.loads((tmp_path / "run" / f"fold-{number}" / "recipe.json").read_text())
        assert recipe["images"]["train"] == recipe["images"]["test"] == 6
        assert recipe["data"]["fold"] == [number, 2]
    assert "on test" in (tmp_path / "run" / "folds.md").read_text()
