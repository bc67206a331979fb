import sys

from keras_vit.training.evaluation.results import Result


def write(path, **model):
    model = {"name": "ViT-B/16", **model}
    Result("classification", "photos", model, {}, {"top_1": 0.5}, 10, seed=0).write(path)


def test_figures_are_drawn_and_results_left_out_are_listed(command, tmp_path):
    write(tmp_path / "runs" / "result_0.json", pretraining="ImageNet-21k")
    write(tmp_path / "runs" / "result_1.json")
    arguments = (tmp_path / "runs", "--output", tmp_path / "out")
    outcome = command("scaling", *arguments, "--task", "photos=CIFAR-10")
    assert outcome.code == 0, outcome.err
    assert "result_1.json: Figure 3 needs model.pretraining" in outcome.out
    assert "result_0.json: Figure 5 needs model.pretraining_epochs" in outcome.out
    assert "Figure 3  ViT-B/16          CIFAR-10" in outcome.out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "scaling.csv", "figure_3.png", "figure_3.svg"
    }  # fmt: skip
    assert ",paper," in (tmp_path / "out" / "scaling.csv").read_text()
    assert command("scaling", *arguments, "--no-paper").code == 0
    assert ",paper," not in (tmp_path / "out" / "scaling.csv").read_text()


def test_wrong_input_is_an_error_of_one_line(refused, tmp_path, monkeypatch):
    output = ("--output", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    assert "without results" in refused("scaling", tmp_path / "empty", *output)
    assert "No such folder" in refused("scaling", tmp_path / "none", *output)
    assert "DATA=TASK" in refused("scaling", tmp_path, "--task", "photos", *output)
    (tmp_path / "text.json").write_text("text")
    assert "must be a result file" in refused("scaling", tmp_path / "text.json", *output)
    write(tmp_path / "runs" / "result.json")
    message = refused("scaling", tmp_path / "runs", *output)
    assert "No result has what a figure needs" in message
    assert "model.pretraining" in message
    write(tmp_path / "runs" / "result.json", pretraining="ImageNet")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "[plots]" in refused("scaling", tmp_path / "runs", *output)
    assert not (tmp_path / "out").exists()
