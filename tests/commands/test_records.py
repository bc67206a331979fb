import shutil

from keras_vit.training.data import open_source


def test_images_become_records_that_other_commands_take(command, tiny, colors, tmp_path):
    outcome = command("records", "--data", colors, "--output", tmp_path / "colors")
    assert outcome.code == 0
    assert "train: 12 images in 1 files" in outcome.out
    assert "test: 6 images in 1 files" in outcome.out
    first, second = (
        command("evaluate", tiny, "--data", data).out.splitlines()
        for data in (colors, tmp_path / "colors")
    )
    assert first[:5] == second[:5]


def test_an_image_that_cannot_be_read_is_named(command, refused, colors, tmp_path):
    data = shutil.copytree(colors, tmp_path / "data")
    (data / "train" / "red" / "cut.png").write_bytes(b"cut")
    assert "cut.png" in command("records", "--data", data, "--output", tmp_path / "out").out
    assert "cut.png" in (tmp_path / "out" / "skipped.csv").read_text()
    assert len(open_source(tmp_path / "out").splits["train"]) == 12
    assert "cut.png" in refused("records", "--data", data, "--output", tmp_path / "a", "--strict")
