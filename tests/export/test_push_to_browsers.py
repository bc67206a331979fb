"""A pushed page and pushed files for transformers.js, against a Hub in this process."""

import json
import pathlib
import shutil
import subprocess

import pytest
from npm_packages import installed

from keras_vit.checkpoints.repositories import READ_FILES
from keras_vit.command_line import main
from keras_vit.export.chromium import folder_signature
from keras_vit.images.decoding import read_image

NAME = "owner/animals"
PROGRAM = pathlib.Path(__file__).with_name("programs") / "transformers_js_of_hub.mjs"

pytestmark = pytest.mark.slow


@pytest.fixture
def pushed(hub, classifier, runtime, tmp_path):
    """Pushes a classifier without samples for browsers; returns the folder of what was pushed."""
    pytest.importorskip("playwright", reason='pip install -e ".[web]"')
    source = shutil.copytree(classifier.folder, tmp_path / "source")
    shutil.move(source / "samples", tmp_path / "photos")
    given = ["push", str(source), NAME, "--as", "web", "--space", "--runtime", str(runtime)]
    assert main([*given, "--dry-run"]) == 2  # An export is checked on images.
    assert hub.requests == []
    assert main([*given, "--check-images", str(tmp_path / "photos")]) == 0
    for (kind, _), repository in hub.repositories.items():
        for name, content in repository.files.items():
            (tmp_path / kind / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / kind / name).write_bytes(content)
    return tmp_path


def test_a_pushed_space_and_pushed_web_files_answer_as_the_classifier(
    hub, pushed, chromium, classifier, files, tmp_path_factory
):
    assert hub.repositories["space", NAME].sdk == "static"
    card = (pushed / "space" / "README.md").read_text()
    assert "sdk: static\napp_file: index.html\n" in card
    assert f"models:\n- {NAME}\n" in card
    photos = [file for file in files if file.suffix == ".png"]
    expected = [dict(prediction.top) for prediction in classifier.predict(photos)]

    tab = chromium.new_context(offline=True).new_page()
    tab.goto((pushed / "space" / "index.html").as_uri())
    tab.wait_for_selector("body[data-state=ready]")
    assert tab.title() == "animals"
    tab.set_input_files("#files", photos)
    tab.locator("#answers li").nth(len(photos) - 1).wait_for()
    for row, answer in zip(tab.evaluate("kerasVit.rows"), expected, strict=True):
        received = dict(zip(classifier.class_names, row["probabilities"], strict=True))
        assert received == pytest.approx(answer, abs=1e-5)

    if not shutil.which("node"):
        pytest.skip("install Node 20")
    package = "@huggingface/transformers"
    library = installed("TRANSFORMERS_JS", package, tmp_path_factory, package)
    command = ["node", PROGRAM, library / "dist/transformers.node.mjs", hub.address, NAME]
    cache = tmp_path_factory.mktemp("cache")
    done = subprocess.run([*command, cache, *photos], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for rows, answer in zip(json.loads(done.stdout), expected, strict=True):
        received = {row["label"]: row["score"] for row in rows}
        assert received == pytest.approx(answer, abs=1e-5)


def test_a_pushed_folder_for_web_programs_works_as_it_is_and_leaves_nothing(
    hub, pushed, classifier, files
):
    (photo,) = (file for file in files if file.name == "5.png")
    answers = folder_signature(pushed / "model", "index.html").call(read_image(photo)[None])
    (expected,) = classifier.predict([photo])
    received = dict(zip(classifier.class_names, answers[0].tolist(), strict=True))
    assert received == pytest.approx(dict(expected.top), abs=1e-5)

    assert main(["push", str(classifier.folder), NAME]) == 0
    assert hub.repositories["model", NAME].files.keys() <= {".gitattributes", *READ_FILES}
