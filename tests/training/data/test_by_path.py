"""Which images of a folder are read, and the classes in their paths."""

import numpy as np
import pytest
from labelled_data import opened as opened_with, refused
from PIL import Image

from keras_vit.command_line import main
from keras_vit.training.data.by_path import NO_CLASS_IN_PATH
from makers import encode


def opened(data, **options):
    return opened_with(data, **{"holdout": 0, **options})


def labels(source):
    return [source.class_names[number] for number in source.splits["train"].labels]


@pytest.fixture
def beside(make_folder):
    """Two classes of three JPEGs by name, each with a PNG of the same name beside it."""
    folder = make_folder({"crack/Imgs": 3, "free/Imgs": 3})
    for path in sorted(folder.rglob("*.png")):
        path.with_suffix(".JPG").write_bytes(path.read_bytes())
    return folder


def test_images_with_the_name_of_others_beside_them_are_named(beside):
    source = opened(beside)
    assert len(source.splits["train"]) == 12
    assert source.class_line == "crack 6, free 6; 2 classes at depth 1; 2 folders hold photos"
    assert source.notes[-1] == (
        "6 .png have the name of a .jpg next to them: masks? --only '*.jpg' leaves them out"
    )


def test_a_share_of_files_with_few_grey_levels_is_named(tmp_path):
    rng = np.random.default_rng(0)
    for label in ("a", "b"):
        for number in range(20):
            pixels = rng.integers(0, 256, (8, 8), dtype="uint8")
            if number % 4 == 0:
                pixels = 80 * (pixels // 86)  # Three levels.
            path = tmp_path / label / f"{number:02d}.png"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(encode(np.repeat(pixels[..., np.newaxis], 3, axis=2)))
    note = (
        "10 of 40 lossless files that were looked at have at most 4 grey levels: masks? --only "
        "PATTERN or --exclude LIST leaves them out"
    )
    assert note in opened(tmp_path, verify=True).notes
    flat = [f"{label}/{n:02d}.png" for label in "ab" for n in range(20) if n % 4]
    # All that is left has few levels: drawings, no masks.
    assert note[2:] not in "".join(opened(tmp_path, verify=True, exclude=flat).notes)


def test_masks_with_other_names_are_named_where_the_photos_are_of_a_lossy_type(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(40):
        folder = tmp_path / "ab"[number % 2]
        folder.mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (8, 8, 3), dtype="uint8")
        Image.fromarray(pixels).save(folder / f"{number:02d}.jpg")
        Image.fromarray(255 * (pixels // 128)[..., 0]).save(folder / f"{number:02d}_mask.png")
    [note] = [note for note in opened(tmp_path, verify=True).notes if "masks?" in note]
    assert note.startswith("40 of 40 lossless files")


def test_images_of_one_pattern_are_read_alone(beside):
    source = opened(beside, only="*.jpg")
    assert [name[-4:] for name in source.splits["train"].names] == [".JPG"] * 6
    assert source.notes[-1] == "6 images are left out by --only *.jpg"
    refused(beside, r"--only \(only=\) .*'\*.tif', of 12 images", only="*.tif")


def test_the_line_of_classes_has_their_depth_where_images_lie_deeper(make_folder):
    folder = make_folder({"Fruit/Apple": 2, "Fruit/Kiwi": 2, "Packages/Milk": 2})
    line = opened(folder).class_line
    assert line == (
        "Fruit 4, Packages 2; 2 classes at depth 1; 3 folders hold photos: --folders innermost "
        "makes these the classes"
    )


@pytest.mark.parametrize("parts", [(), ("train", "test")])
def test_the_innermost_folders_are_classes_on_request(make_folder, parts):
    layout = {"Fruit/Apple/Red": 2, "Fruit/Kiwi": 2, "Packages/Milk": 2}
    if parts:
        layout = {f"{part}/{name}": count for part in parts for name, count in layout.items()}
    source = opened(make_folder(layout), folders="innermost")
    images = 2 * max(1, len(parts))
    assert source.class_line == f"Kiwi {images}, Milk {images}, Red {images}"
    assert set(source.splits) == {*(parts or ("train",))}


def test_innermost_folders_of_one_name_are_refused_by_their_places(make_folder):
    folder = make_folder({"n01/images": 2, "n02/images": 2})
    refused(
        folder,
        "innermost folders .*--label-by",
        folders="innermost",
    )
    source = opened(folder, label_by=r"(\w+)/images")
    assert source.class_names == ("n01", "n02")


def test_classes_are_found_in_the_names_of_files(tmp_path, write_image):
    names = ["12_bathroom.png", "13_kitchen.png", "14_bathroom.png", "notes.png"]
    for value, name in enumerate(names):
        write_image(tmp_path / "houses" / name, value)
    source = opened(tmp_path / "houses", label_by=r"_(\w+)\.")
    assert labels(source) == ["bathroom", "kitchen", "bathroom"]
    assert source.skipped == [(str(tmp_path / "houses" / "notes.png"), NO_CLASS_IN_PATH)]
    refused(tmp_path / "houses", r"--label-by .*'\(x'; missing \)", label_by="(x")
    refused(tmp_path / "houses", "4 paths .*12_bath", label_by="none")


def test_classes_in_paths_keep_the_parts(make_folder):
    folder = make_folder({"train/x/cat": 2, "train/dog": 2, "test/cat": 1})
    source = opened(folder, label_by=r"(cat|dog)", min_classes=0)
    counts = {part: np.bincount(of.labels).tolist() for part, of in source.splits.items()}
    assert counts == {"train": [2, 2], "test": [1]}


def test_images_without_folders_are_refused_with_the_flag_before_tensorflow(
    tmp_path, write_image, capsys, monkeypatch
):
    write_image(tmp_path / "houses" / "12_bathroom.png")
    monkeypatch.setattr("keras_vit.command_line.import_tensorflow_quietly", lambda: 1 / 0)
    data, output = str(tmp_path / "houses"), str(tmp_path / "run")
    assert main(["finetune", data, "--weights", "none", "--output", output]) == 2
    assert "--label-by REGEX" in capsys.readouterr().err


def test_patterns_go_with_folders_alone(make_folder):
    folder = make_folder({"a": 2, "b": 2})
    (folder / "list.csv").write_text("path,label\na/00.png,a\nb/00.png,b\n")
    refused(folder / "list.csv", "only goes with folder", only="*.png")
    refused(folder / "list.csv", "label_by goes with folder", label_by="a|b")
