import json

from keras_vit.training.evaluation.measures import accuracy_text


def test_few_shot_prints_and_writes_results(command, tiny, colors, tmp_path):
    arguments = ("--data", colors, "--shots", 1, 4, "--seeds", 0, 1)
    outcome = command("few-shot", tiny, *arguments, "--output", tmp_path / "out")
    assert outcome.code == 0
    assert "images   6 to test (each once), 12 to choose from" in outcome.out
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == [f"result_{n}_shot_seed_{seed}.json" for n in (1, 4) for seed in (0, 1)]
    result = json.loads((tmp_path / "out" / files[-1]).read_text())
    assert (result["protocol"], result["task"], result["images"]) == ("few-shot", "colors", 6)
    assert result["recipe"] == {"shots": 4, "l2": 1024.0, "feature": "pre_logits"}
    assert len(result["model"]["weights_sha256"]) == 64
    assert accuracy_text(result["metrics"]["top_1"], 6) in outcome.out


def test_few_shot_refuses_in_one_line(refused, tiny, colors, tmp_path):
    for arguments, message in (
        ((tiny, "--data", colors, "--shots", 0), "shots must be numbers of at least 1"),
        ((tiny, "--data", tmp_path / "none"), "no such folder"),
        (("BiT-R50x1", "--weights", "random", "--image-size", 32, "--feature", "token", "--data",
          colors), "tokens of a Vision Transformer"),
        ((tmp_path, "--data", colors), "must hold one of"),
        ((tiny, "--weights", "imagenet", "--data", colors), "of keras_vit.list_models()"),
    ):  # fmt: skip
        assert message in refused("few-shot", *arguments)
