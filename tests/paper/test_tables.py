import csv
import json

import pytest
import tables
from read_results import find_results, read_result

from keras_vit.training.evaluation.results import Result, task_of


def result(task="CIFAR-10", top_1=0.99, seed=0, protocol="classification", **changes):
    model = {"name": "ViT-L/16", "pretraining": "ImageNet-21k", "weights": "imagenet21k"}
    model |= changes.pop("model", {})
    return Result(protocol, task, model, {}, {"top_1": top_1}, 100, seed=seed, **changes)


def table(results, number):
    return {t.name: t for t in tables.make_tables(results)}[f"Table {number}"]


def test_cells_are_mean_and_sample_deviation_over_seeds():
    found = table([result(top_1=x, seed=k) for k, x in enumerate((0.98, 0.99, 1.0))], 2)
    place = (("CIFAR-10",), "ViT-L/16, ImageNet-21k")
    assert found.paper[place] == "99.15±0.03"
    lines = {tuple(line[:2]): line for line in found.lines()}
    column = found.lines()[0].index(place[1])
    assert lines["CIFAR-10", "ours"][column] == "99.00±1.00 (94.6 to 99.8%)"


def test_resnets_go_by_their_optimizer():
    model = {"name": "BiT-R50x1", "pretraining_optimizer": "SGD", "pretraining": "JFT-300M"}
    found = table([result(model=model)], 7)
    assert found.ours.keys() == {(("CIFAR-10",), "BiT-R50x1, SGD")}


def vtab(tasks, **arguments):
    return [result(task, protocol="vtab", **arguments) for task in tasks]


VTAB_TASKS = tables.paper_table("9")[0][1:-1]


def test_the_vtab_mean_needs_all_19_tasks():
    row = ("ViT-L/16, ImageNet-21k",)
    assert (row, "mean") not in table(vtab(VTAB_TASKS[:-1]), 9).ours
    results = vtab(VTAB_TASKS[:10], top_1=0.5) + vtab(VTAB_TASKS[10:], top_1=1.0)
    assert table(results, 9).ours[row, "mean"].mean == pytest.approx((10 * 50 + 9 * 100) / 19)
    assert table(results, 2).ours[("VTAB",), row[0]].mean == pytest.approx((500 + 900) / 19)


def test_the_papers_means_are_those_of_its_cells():
    for row in tables.paper_table("9")[1:]:
        cells = list(map(float, row[1:]))
        assert cells[-1] == pytest.approx(sum(cells[:-1]) / 19, abs=0.1)
    for column in zip(*tables.paper_table("7")[1:], strict=True):
        if column[0] != "ImageNet":
            cells = list(map(float, column))
            assert cells[-1] == pytest.approx(sum(cells[:-1]) / 5, abs=0.015)


def test_the_report_is_written_in_three_forms(tmp_path):
    pytest.importorskip("matplotlib")
    results = [result()]
    written = tables.write_report(tmp_path / "out", tables.make_tables(results), results)
    assert {path.name for path in written} == {
        "report.md",
        "results.csv",
        *(f"table_{number}.{form}" for number in (2, 5, 6) for form in ("csv", "png")),
    }
    rows = list(csv.reader((tmp_path / "out" / "table_5.csv").open()))
    assert rows[0] == [
        "pre-training", "task", "", "ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32", "ViT-H/14"
    ]  # fmt: skip
    assert rows[14] == ["ImageNet-21k", "CIFAR-10", "ours", "", "", "99.00 (94.6 to 99.8%)", "", ""]
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| ImageNet-21k | CIFAR-10 | ours |  |  | 99.00 (94.6 to 99.8%) |  |  |" in text
    assert (
        "| classification | CIFAR-10 | ViT-L/16 | ImageNet-21k | 0 | 100 | 0.9900 | 94.6 to 99.8 |"
        in text
    )
    assert (tmp_path / "out" / "table_5.png").read_bytes().startswith(b"\x89PNG")


def test_a_result_file_comes_back_as_written(tmp_path):
    given = result(recipe={"shots": 5}, command="keras-vit few-shot")
    given.write(tmp_path / "a" / "result.json")
    (tmp_path / "a" / "other.json").write_text("[]")
    ((path, found),) = find_results([tmp_path])
    assert found == given
    assert path == tmp_path / "a" / "result.json"
    assert {"keras_vit", "tensorflow", "keras", "numpy", "python"} <= set(found.versions)


def write_run(folder, data, test=None, **settings):
    """Writes what a run leaves of itself: 4096 images, seen 14 times."""
    folder.mkdir()
    (folder / "model.keras").write_bytes(b"weights")
    settings = {"weights": None, "steps": 14, "batch_size": 4096, "optimizer": "adam", "seed": 0,
                "image_size": [224, 224], "evaluation": "resize", **settings}  # fmt: skip
    recipe = {
        "model": "BiT-R50x1",
        "config": {},
        "classes": 10,
        "settings": settings,
        "data": {"data": data},
        "images": {"train": 4096, "validation": 0, "test": 100},
        "versions": {},
        "test": test or {"images": 100, "top_1": 0.9, "top_5": 0.99, "loss": 0.2},
    }
    (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder


def test_a_classifiers_folder_is_a_result(tmp_path):
    test = {"images": 3669, "top_1": 0.94, "top_5": 0.99, "loss": 0.2}
    write_run(tmp_path / "a", "tfds:oxford_iiit_pet", test, weights="imagenet21k", seed=3)
    ((_, found),) = find_results([tmp_path])
    assert (found.task, found.pretraining, found.seed) == ("Pets", "ImageNet-21k", 3)
    assert (found.images, len(found.model["model_keras_sha256"])) == (3669, 64)
    assert table([found], 5).ours[("ImageNet-21k", "Pets"), "BiT-R50x1"].mean == 94.0


def test_pretraining_is_read_from_the_first_run(tmp_path):
    first = write_run(tmp_path / "a", "photographs")
    middle = write_run(tmp_path / "b", "tfds:imagenet2012", weights=str(first), optimizer="sgd")
    last = write_run(tmp_path / "c", "tfds:cifar10", weights=str(middle), optimizer="sgd")
    found = read_result(last / "recipe.json")
    facts = {key: value for key, value in found.model.items() if key.startswith("pretraining")}
    assert facts == {
        "pretraining": "photographs",
        "pretraining_images": 4096,
        "pretraining_epochs": 14,
        "pretraining_optimizer": "Adam",
        "pretraining_image_size": [224, 224],
        "pretraining_classes": 10,
    }
    assert (("CIFAR-10",), "BiT-R50x1, Adam, photographs") in table([found], 7).ours
    row = ("BiT-R50x1, photographs", "14")
    assert table([found], 6).ours[row, "CIFAR-10"].mean == 90.0


def test_what_is_no_result_is_an_error(tmp_path):
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(ValueError, match=r"result\.json .*result file"):
        read_result(tmp_path / "result.json")
    with pytest.raises(ValueError, match="No such folder: .*nowhere"):
        list(find_results([tmp_path / "nowhere"]))
    with pytest.raises(ValueError, match="1 results, .*Tables 2, 5"):
        tables.make_tables([result("cats and dogs")])


@pytest.mark.parametrize(
    ("data", "task"),
    [
        ("tfds:cifar10", "CIFAR-10"),
        ("tfds:cifar100:3.0.2", "CIFAR-100"),
        ("/data/cifar-10", "CIFAR-10"),
        ("tfrecords:/data/cifar-10", "CIFAR-10"),
        ("tfds:oxford_flowers102:2.*.*", "Flowers-102"),
        ("tfds:sun397/tfds", "sun397"),
        ("photos/", "photos"),
    ],
)
def test_data_sets_are_called_as_in_the_paper(data, task):
    assert task_of(data) == task
