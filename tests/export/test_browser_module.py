"""The module of a classifier in a browser, as Node sees it."""

import json
import pathlib
import shutil
import subprocess

import pytest

from keras_vit.export.html import SCRIPT, script
from makers import turned

PROGRAMS = pathlib.Path(__file__).with_name("programs")

FACTS = {"classNames": ["a", "b"], "thresholds": None, "view": {}}


@pytest.fixture(scope="module")
def in_node(tmp_path_factory):
    """Returns what the module does in Node, with WebP files of all orientations and others."""
    if not shutil.which("node"):
        pytest.skip("install Node 20")
    folder = tmp_path_factory.mktemp("node")
    (folder / "classifier.mjs").write_text(script(SCRIPT, FACTS))
    bitmaps = script("bitmaps.js")
    (folder / "bitmaps.mjs").write_text(f"{bitmaps}\nexport {{ withoutOrientation }};\n")
    files = [*turned(folder, "webp", big_endian=True), turned(folder, "jpeg")[5]]
    for name, content in {
        "prefixed": files[5].read_bytes().replace(b"MM\0*", b"Exif\0\0MM\0*"),
        "cut": files[5].read_bytes()[:-30],
        "short": b"RIFF",
    }.items():
        (folder / name).write_bytes(content)
        files.append(folder / name)
    command = ["node", PROGRAMS / "browser_module.mjs", folder, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_orientation_of_webp_files_is_read_once(in_node):
    received = [file["orientation"] for file in in_node["files"]]
    assert received == [1, 2, 3, 4, 5, 6, 7, 8, 1, 6, 1, 1]  # JPEG is left to the browser.
    assert [file["again"] for file in in_node["files"]] == [1] * 12


def test_the_module_says_in_node_that_it_needs_a_browser(in_node):
    expected = (
        "Error: classifier.js works in browsers only. In Node, transformers.js runs its folder."
    )
    assert in_node["browser"] == [expected] * 3


def test_an_argument_of_another_type_gets_a_line_that_names_what_is_taken(in_node):
    for message, kind in zip(in_node["kinds"], ("Number", "Null", "Array", "Object"), strict=True):
        taken = "a Blob or File, an <img>, <canvas> or <video>, an ImageBitmap, or a URL"
        assert message == f"TypeError: classify takes {taken}. Received: {kind}"
