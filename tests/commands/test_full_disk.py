"""Commands whose files the system refuses, as a full disk does."""

import contextlib
import os
import resource
import signal

import pytest

TRAINING = (
    *("--image-size", "8", "--steps", "2", "--batch-size", "4", "--accumulate", "1"),
    *("--holdout", "0"),
)


@contextlib.contextmanager
def small_files(size):
    """Limits the size of the files that this process writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # Then writing fails with EFBIG.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.slow
def test_fine_tuning_says_how_to_go_on_and_does(command, refused, tiny, colors, tmp_path):
    output = tmp_path / "run"
    with small_files(6000):  # The recipe fits, the weights do not.
        given = ("--data", colors, "--weights", tiny, *TRAINING)
        line = refused("finetune", *given, "--output", output)
    assert f"{output}.partial" in line
    assert "File too large" in line
    resume = line.rpartition("go on with: keras-vit ")[2].split()
    assert resume == ["finetune", "--output", str(output), "--resume"]
    assert command(*resume).code == 0
    assert (output / "model.keras").is_file()


@pytest.mark.parametrize(
    ("words", "output"),
    [
        ("export {tiny} --to saved_model --check-images {colors}/test --output", "1"),
        ("export {tiny} --to tflite --check-images {colors}/test --output", "a.tflite"),
        ("convert {tiny}", "a.npz"),
        ("convert {tiny}", "folder"),
        ("convert {tiny} --to huggingface", "other_folder"),
    ],
)
def test_an_output_is_named_and_nothing_of_it_stays(words, output, refused, tiny, colors, tmp_path):
    with small_files(2000):
        line = refused(*words.format(tiny=tiny, colors=colors).split(), tmp_path / output)
    assert f"{tmp_path / output} cannot be written" in line
    assert os.listdir(tmp_path) == []


def test_a_download_names_the_cache_and_goes_on(command, refused, tiny, hub, tmp_path):
    hub.add("owner/pets", {path.name: path.read_bytes() for path in tiny.iterdir()})
    given = ("convert", "hf:owner/pets", tmp_path / "a.npz")
    with small_files(6000):  # The description fits, the weights do not.
        line = refused(*given)
    assert "HF_HUB_CACHE" in line
    before = hub.fetched()
    assert before["classes.txt"] == 1
    assert command(*given).code == 0
    assert hub.fetched() - before == {"model.keras": 1}


@pytest.mark.parametrize("words", ["evaluate {tiny} --data {colors} --output", "convert {tiny}"])
def test_a_read_only_output_is_noticed_before_the_work(
    words, tiny, colors, tmp_path, refused, monkeypatch
):
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # The test may be root.
    line = refused(*words.format(tiny=tiny, colors=colors).split(), tmp_path / "out.npz")
    assert f"{tmp_path} is read-only" in line
