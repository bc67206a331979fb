import json
import shutil

import numpy as np
import pytest
from PIL import Image

from keras_vit.training.data.spec import DataSpec
from keras_vit.training.evaluation import few_shot
from keras_vit.training.evaluation.intervals import accuracy_text
from keras_vit.training.evaluation.predictions import build_evaluated
from keras_vit.training.evaluation.protocols import FEW_SHOT_RESIZE
from keras_vit.training.evaluation.results import Result
from makers import smooth_picture


def test_few_shot_prints_and_writes_what_report_collects(command, tiny, colors, tmp_path):
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

    summary = command("report", tmp_path / "out")
    assert summary.code == 0
    assert summary.out.count("few-shot 4") == 2
    assert "none of Tables" in summary.out


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
                assert result["metrics"]["top_1"] == report.accuracies[shots][seed]
                assert result["recipe"]["fold"] == [number, 3]
                assert result["images"] == len(source.splits["test"])
    assert command("report", tmp_path / "out").code == 0

    alone = command("few-shot", tiny, *arguments, *grouped, "--folds", 3)
    assert alone.code == 2  # Each class is one group.
    assert "Folds need two groups or more of every class" in alone.err


@pytest.mark.slow
def test_few_shot_names_classes_with_fewer_images_than_shots(command, tiny, colors):
    outcome = command(
        "few-shot", tiny, "--data", colors, "--shots", 1, 5, "--seeds", 0, "--no-cache"
    )
    assert outcome.code == 0
    assert "class blue has 4 training images: all are taken for more shots" in outcome.out


def test_few_shot_refuses_in_one_line(refused, tiny, colors, tmp_path):
    for arguments, message in (
        ((tiny, "--data", colors, "--shots", 0), "shots must be numbers of at least 1"),
        ((tiny, "--data", tmp_path / "none"), "no such folder"),
        (("BiT-R50x1", "--weights", "random", "--image-size", 32, "--feature", "token", "--data",
          colors), "needs a Vision Transformer"),
        ((tmp_path, "--data", colors), "must hold one of"),
        ((tiny, "--weights", "imagenet", "--data", colors), "stored in the classifier's folder"),
    ):  # fmt: skip
        assert message in refused("few-shot", *arguments, "--no-cache")


def test_vtab_refuses_in_one_line(refused, tiny, tmp_path):
    output = tmp_path / "out"
    for arguments, message in (
        ((tiny, "--tasks", "mnist"), "must be one of caltech101"),
        ((tiny, "--scale", 0), "scale must be in (0, 1]"),
        (("ViT-B/16",), "needs weights"),
        ((tiny, "--tasks", "resisc45"), "downloaded by hand: get NWPU-RESISC45.rar"),
    ):
        line = refused("vtab", *arguments, "--output", output, "--data-dir", tmp_path / "none")
        assert message in line
    assert not output.exists()


@pytest.fixture
def photos(tmp_path):
    """20 different images to train; to test, copies of two and two others."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 20), ("test", 2)):
        for name in ("a", "b"):
            (tmp_path / "photos" / part / name).mkdir(parents=True)
            for k in range(count):
                image = smooth_picture(rng, (40, 40), (5, 5))
                image.save(tmp_path / "photos" / part / name / f"{k}.png")
    train, test = tmp_path / "photos" / "train", tmp_path / "photos" / "test"
    shutil.copy(train / "a" / "3.png", test / "b" / "exact.png")
    Image.open(train / "b" / "7.png").save(test / "a" / "jpeg.jpg", quality=70)
    return tmp_path / "photos"


def test_deduplicate_writes_a_list_that_the_data_take_as_an_exclusion(command, photos, tmp_path):
    from keras_vit.training.data import open_source

    output = tmp_path / "list.txt"
    outcome = command(
        "deduplicate", "--train", photos, "--test", photos, "--output", output, "--workers", 1
    )
    assert outcome.code == 0, outcome.err
    assert "2 training images are copies of 2 test images (2 pairs, 1 exact)" in outcome.out
    names = output.read_text().splitlines()
    assert names == ["train/a/3.png", "train/b/7.png"]
    assert (tmp_path / "list_pairs.png").exists()
    assert (tmp_path / "list_pairs.csv").read_text().count("\n") == 3
    source = open_source(photos, exclude=names)
    assert (len(source.splits["train"]), len(source.splits["test"])) == (38, 6)
    only_train = command(
        "deduplicate", "--train", photos / "train", "--test", photos / "test",
        "--output", output, "--workers", 1,
    )  # fmt: skip
    assert only_train.code == 0
    assert output.read_text().splitlines() == names


def test_deduplicate_refuses_in_one_line(refused, photos, tmp_path):
    given = ("--train", photos, "--test", photos)
    for arguments, message in (
        (("--train", tmp_path / "none", "--test", photos), "no such folder"),
        ((*given, "--distance", 20), "distance must be in [0, 15]"),
        ((*given, "--similarity", 2), "must be a correlation"),
        ((*given, "--workers", 0), "--workers must be at least 1"),
    ):
        line = refused("deduplicate", *arguments, "--output", tmp_path / "list.txt")
        assert message in line
    line = refused("deduplicate", *given, "--output", tmp_path / "no folder" / "list.txt")
    assert "folder that exists" in line
    assert not (tmp_path / "list.txt").exists()


def test_a_broken_image_is_skipped_or_stops_deduplication(command, refused, photos, tmp_path):
    (photos / "train" / "a" / "0.png").write_bytes(b"broken")
    given = ("--train", photos, "--test", photos, "--output", tmp_path / "l.txt", "--workers", 1)
    outcome = command("deduplicate", *given)
    assert outcome.code == 0
    assert "skipped train/a/0.png: The image cannot be read" in outcome.out
    assert "train/a/0.png" in refused("deduplicate", *given, "--strict")


@pytest.mark.slow
def test_report_takes_what_the_paper_calls_the_data(command, tiny, colors, tmp_path):
    assert command("evaluate", tiny, "--data", colors, "--output", tmp_path / "run").code == 0
    outcome = command("report", tmp_path / "run", "--output", tmp_path / "unknown")
    assert "none of Tables" in outcome.out
    assert "| classification | colors |" in (tmp_path / "unknown" / "report.md").read_text()
    outcome = command("report", tmp_path / "run", "--task", "colors=Pets")
    assert outcome.code == 0
    assert "## Table 5" in outcome.out


@pytest.mark.parametrize("arguments", [(), ("--no-pictures",)])
def test_report_draws_its_tables_unless_there_are_to_be_no_pictures(command, tmp_path, arguments):
    model = {"name": "ViT-L/16", "pretraining": "ImageNet-21k"}
    result = Result("classification", "CIFAR-10", model, {}, {"top_1": 0.9}, 100)
    result.write(tmp_path / "run" / "result.json")
    outcome = command("report", tmp_path / "run", "--output", tmp_path / "out", *arguments)
    assert outcome.code == 0, outcome.err
    assert bool(list((tmp_path / "out").glob("*.png"))) == (not arguments)


def test_report_without_results_is_refused(refused, tmp_path):
    assert "DATA=TASK" in refused("report", tmp_path, "--task", "Pets")
    assert "without results" in refused("report", tmp_path)
    assert "No such folder" in refused("report", tmp_path / "none")


def test_evaluate_writes_a_result_for_the_report(command, tiny, colors, tmp_path):
    assert command("evaluate", tiny, "--data", colors, "--output", tmp_path).code == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["protocol"], result["task"], result["images"]) == ("classification", "colors", 6)
    assert result["metrics"]["calibration"]["images"] == 6


def test_imagenet_protocols_refuse_in_one_line(refused, tiny, tmp_path):
    for arguments, message in (
        ((tiny, "--protocol", "imagenet-real"), "of the 1000 ImageNet classes"),
        ((tiny,), "--data"),
        (("ViT-Ti/16", "--weights", "random", "--protocol", "objectnet", "--data", tmp_path),
         "Missing in"),
    ):  # fmt: skip
        assert message in refused("evaluate", *arguments)
