"""Commands whose files the system refuses, as a full disk does."""

import os
import resource
import signal

import pytest

from keras_vit.command_line import main

TRAINING = (
    *("--image-size", "8", "--steps", "2", "--batch-size", "4", "--accumulate", "1"),
    *("--holdout", "0"),
)


@pytest.fixture
def small_files():
    """A function that limits the size of the files that this process writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # Then writing fails with EFBIG.
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def in_one_line(error):
    (line,) = (line for line in error.splitlines() if line.startswith("keras-vit: "))
    assert "Traceback" not in error
    return line


@pytest.mark.slow
def test_fine_tuning_says_how_to_go_on_and_does(tiny, colors, tmp_path, small_files, capfd):
    output = tmp_path / "run"
    given = ["finetune", "--data", str(colors), "--weights", str(tiny), *TRAINING]
    small_files(6000)  # The recipe fits, the weights do not.
    code = main([*given, "--output", str(output)])
    small_files(resource.RLIM_INFINITY)
    line = in_one_line(capfd.readouterr().err)
    assert code == 2
    assert f"{output}.partial" in line
    assert "cannot be written: File too large." in line
    resume = line.rpartition("go on with: keras-vit ")[2].split()
    assert resume == ["finetune", "--output", str(output), "--resume"]
    assert main(resume) == 0
    assert (output / "model.keras").is_file()


@pytest.mark.parametrize("format_name", ["saved_model", "tflite"])
def test_an_export_names_its_path(tiny, colors, tmp_path, small_files, capfd, format_name):
    output = tmp_path / ("1" if format_name == "saved_model" else "a.tflite")
    images = ["--check-images", str(colors / "test")]
    small_files(6000)
    code = main(["export", str(tiny), "--to", format_name, "--output", str(output), *images])
    small_files(resource.RLIM_INFINITY)
    line = in_one_line(capfd.readouterr().err)
    assert code == 2
    assert f"{output} cannot be written: File too large. Free space there" in line
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("a.weights.h5", ()),
        ("a.safetensors", ("--to", "timm")),
        ("a.npz", ()),
        ("folder", ()),
    ],
)
def test_a_conversion_names_its_path(name, given, tiny, tmp_path, small_files, capfd):
    if "timm" in given:
        pytest.importorskip("safetensors")
    output = tmp_path / name
    small_files(2000)
    code = main(["convert", str(tiny), str(output), *given])
    small_files(resource.RLIM_INFINITY)
    line = in_one_line(capfd.readouterr().err)
    assert code == 2
    assert f"{output}" in line
    assert "cannot be written: File too large. Free space there" in line
    assert os.listdir(tmp_path) == []
    assert main(["convert", str(tiny), str(output), *given]) == 0


def test_a_download_names_the_cache_and_goes_on(tiny, hub, tmp_path, small_files, capfd):
    hub.add("owner/pets", {path.name: path.read_bytes() for path in tiny.iterdir()})
    given = ["convert", "hf:owner/pets", str(tmp_path / "a.npz")]
    small_files(6000)  # The description fits, the weights do not.
    code = main(given)
    small_files(resource.RLIM_INFINITY)
    line = in_one_line(capfd.readouterr().err)
    assert code == 2
    assert "cannot be written: File too large. Free space there, or set HF_HUB_CACHE to" in line
    before = hub.fetched()
    assert before["classes.txt"] == 1
    assert main(given) == 0
    assert hub.fetched() - before == {"model.keras": 1}


@pytest.mark.parametrize("name", ["evaluate", "few-shot", "convert"])
def test_a_read_only_output_is_noticed_before_the_work(name, tiny, colors, tmp_path, refused):
    before, os.access = os.access, lambda path, mode: path != tmp_path  # The test may be root.
    try:
        if name == "convert":
            line = refused(name, tiny, tmp_path / "out.npz")
        else:
            line = refused(name, tiny, "--data", colors, "--output", tmp_path / "out")
    finally:
        os.access = before
    assert f"{tmp_path} is read-only" in line
