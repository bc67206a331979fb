import json

import pytest

from keras_vit.training.evaluation.measures import accuracy_text


@pytest.fixture
def few_shot(command, tiny, colors, tmp_path):
    """What few-shot prints, and the folder that it writes."""
    arguments = ("--data", colors, "--shots", 1, 4, "--seeds", 0, 1)
    return command("few-shot", tiny, *arguments, "--output", tmp_path / "out"), tmp_path / "out"


def test_few_shot_writes_a_file_for_each_number_of_shots_and_seed(few_shot):
    outcome, folder = few_shot
    assert outcome.code == 0
    assert "images  6 to test (each once), 12 to choose from" in outcome.out
    files = sorted(path.name for path in folder.iterdir())
    assert files == [f"result_{n}_shot_seed_{seed}.json" for n in (1, 4) for seed in (0, 1)]


def test_a_result_of_few_shot_has_the_printed_accuracy_and_how_it_was_computed(few_shot):
    outcome, folder = few_shot
    result = json.loads((folder / "result_4_shot_seed_1.json").read_text())
    assert (result["protocol"], result["task"], result["images"]) == ("few-shot", "colors", 6)
    assert result["recipe"] == {"shots": 4, "l2": 1024.0, "feature": "pre_logits"}
    assert len(result["model"]["weights_sha256"]) == 64
    assert accuracy_text(result["metrics"]["top_1"], 6) in outcome.out
