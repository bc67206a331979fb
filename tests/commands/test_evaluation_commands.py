import json

from keras_vit.training.data.spec import DataSpec
from keras_vit.training.evaluation import few_shot
from keras_vit.training.evaluation.intervals import accuracy_text
from keras_vit.training.evaluation.predictions import build_evaluated
from keras_vit.training.evaluation.protocols import FEW_SHOT_RESIZE


def test_few_shot_prints_and_writes_results(command, tiny, colors, tmp_path):
    arguments = ("--data", colors, "--shots", 1, 4, "--seeds", 0, 1, "--cache", tmp_path / "cache")
    outcome = command("few-shot", tiny, *arguments, "--output", tmp_path / "out")
    assert outcome.code == 0
    assert "images   6 to test (each once), 12 to choose from" in outcome.out
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == [f"result_{n}_shot_seed_{seed}.json" for n in (1, 4) for seed in (0, 1)]
    result = json.loads((tmp_path / "out" / files[-1]).read_text())
    assert (result["protocol"], result["task"], result["images"]) == ("few-shot", "colors", 6)
    assert result["recipe"] == {
        "shots": 4,
        "l2": 1024.0,
        "feature": "pre_logits",
        "dtype": "float32",
    }
    assert len(result["model"]["weights_sha256"]) == 64
    assert accuracy_text(result["metrics"]["top_1"], 6) in outcome.out
    assert len(list((tmp_path / "cache").iterdir())) == 2
    again = command("few-shot", tiny, *arguments)
    assert again.out == outcome.out.removesuffix(f"written {tmp_path / 'out'}\n")
    assert "images/s" not in again.err  # Nothing was computed.


def test_few_shot_out_of_folds_tests_each_training_image_once(command, tiny, colors, tmp_path):
    arguments = ("--data", colors, "--shots", 1, 2, "--seeds", 0, 1, "--no-cache")
    grouped = ("--group-by", r"(\w+)/\w*\d\.png")
    outcome = command("few-shot", tiny, *arguments, "--folds", 3, "--output", tmp_path / "out")
    assert outcome.code == 0
    assert "images   12, each tested once, out of 3 folds" in outcome.out

    model = build_evaluated(tiny, evaluation=FEW_SHOT_RESIZE)
    for number in (1, 2, 3):
        source = DataSpec(str(colors), fold=(number, 3)).open()
        report = few_shot.evaluate(model, source, shots=(1, 2), seeds=(0, 1))
        for shots in (1, 2):
            for seed in (0, 1):
                name = f"result_{shots}_shot_seed_{seed}_fold_{number}.json"
                result = json.loads((tmp_path / "out" / name).read_text())
                assert result["metrics"]["top_1"] == report.parts[0].accuracies[shots][seed]
                assert result["recipe"]["fold"] == [number, 3]
                assert result["images"] == len(source.splits["test"])

    alone = command("few-shot", tiny, *arguments, *grouped, "--folds", 3)
    assert alone.code == 2  # Each class is one group.
    assert "Folds need two groups or more of every class" in alone.err
