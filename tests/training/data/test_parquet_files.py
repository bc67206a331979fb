"""Parquet files with images, with columns and metadata as Hugging Face `datasets` writes them."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from keras_vit.training.data.spec import DataSpec
from keras_vit.training.data.split_record import SplitRecord, read_fingerprints

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

NAMES = {"names": ["cat", "dog"], "_type": "ClassLabel"}
FEATURES = {"image": {"_type": "Image"}, "label": NAMES}


def encoded(value):
    buffer = io.BytesIO()
    Image.new("RGB", (6, 5), (value, value, value)).save(buffer, "PNG")
    return buffer.getvalue()


def write(path, labels, *, start=0, features=FEATURES, columns=("image", "label"), paths=True):
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [
        {"bytes": encoded(start + n), "path": f"{start + n}.png" if paths else None}
        for n in range(len(labels))
    ]
    kind = arrow.struct({"bytes": arrow.binary(), "path": arrow.string()})
    table = arrow.table({columns[0]: arrow.array(images, kind), columns[1]: arrow.array(labels)})
    text = json.dumps({"info": {"features": features}})
    table = table.replace_schema_metadata({"huggingface": text} if features else {})
    parquet.write_table(table, path, row_group_size=3)
    return path


def opened(path, **options):
    return DataSpec(f"parquet:{path}", **options).open()


def pixels(examples):
    return [np.asarray(Image.open(io.BytesIO(image)))[0, 0, 0] for image, _ in examples.encoded()]


def test_a_file_has_class_names_labels_names_and_images(tmp_path):
    path = write(tmp_path / "train-00000-of-00001.parquet", [0, 1] * 5)
    source = opened(tmp_path, holdout=0.0)
    train = source.splits["train"]
    assert source.class_names == ("cat", "dog")
    assert train.labels.tolist() == [0, 1] * 5
    assert train.names[:2] == ["0.png", "1.png"]
    assert pixels(train) == list(range(10))
    assert opened(path, holdout=0.0).splits["train"].names == train.names


@pytest.mark.parametrize("places", [[0], [4], [9], [2, 3, 8], [5, 6, 7]])
def test_some_images_are_read_from_their_row_groups(tmp_path, places):
    write(tmp_path / "data" / "train-00000-of-00002.parquet", [0, 1, 0, 1])
    write(tmp_path / "data" / "train-00001-of-00002.parquet", [0, 1] * 3, start=4)
    train = opened(tmp_path, holdout=0.0).splits["train"].take(places)
    assert pixels(train) == places


def test_files_are_named_after_the_parts(tmp_path):
    write(tmp_path / "train-00000-of-00001-abc.parquet", [0, 1, 1])
    write(tmp_path / "validation" / "a.parquet", [0, 1], start=10)
    write(tmp_path / "test-00000-of-00001.parquet", [1, 0], start=20)
    source = opened(tmp_path, exclude=["train/2.png"])
    names = {part: examples.names for part, examples in source.splits.items()}
    assert names == {
        "train": ["train/0.png", "train/1.png"],
        "validation": ["validation/10.png", "validation/11.png"],
        "test": ["test/20.png", "test/21.png"],
    }


def test_labels_may_be_names_numbers_or_lists(tmp_path):
    path = write(tmp_path / "a.parquet", ["dog", "cat"], features=None, paths=False)
    source = opened(path, holdout=0.0)
    assert source.class_names == ("cat", "dog")
    assert source.splits["train"].labels.tolist() == [1, 0]
    assert source.splits["train"].names == ["a.parquet:0", "a.parquet:1"]
    path = write(tmp_path / "b.parquet", [10, 2], features=None)
    assert opened(path, holdout=0.0).class_names == ("2", "10")
    features = {"img": {"_type": "Image"}, "tags": {"feature": NAMES, "_type": "List"}}
    path = write(
        tmp_path / "c.parquet", [[0, 1], [], [1]], features=features, columns=("img", "tags")
    )
    source = opened(path, holdout=0.0)
    assert source.splits["train"].labels.tolist() == [[1, 1], [0, 0], [0, 1]]


def test_other_columns_are_named(tmp_path):
    path = write(tmp_path / "a.parquet", ["x", "y"], features=None, columns=("photo", "breed"))
    assert opened(path, holdout=0.0, label_column="breed").class_names == ("x", "y")
    with pytest.raises(ValueError, match="--label-column .* labels in .*: photo, breed. Received"):
        opened(path)
    with pytest.raises(ValueError, match="--path-column .* images in .*: photo, .*Received: breed"):
        opened(path, path_column="breed", label_column="breed")


def test_the_split_of_a_run_is_recorded(tmp_path):
    write(tmp_path / "a.parquet", [0, 1] * 5)
    source = DataSpec(f"parquet:{tmp_path}").open(0.2)
    record = SplitRecord.of(read_fingerprints(source.splits))
    counts = {part: len(numbers) for part, numbers in record.parts.items()}
    assert counts == {"train": 6, "validation": 2, "calibration": 0, "test": 2}


def test_a_recipe_has_the_last_part_of_the_path():
    from keras_vit.description.without_paths import last_part

    assert last_part("parquet:/home/me/photos") == "parquet:photos"


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda folder: None, "a folder with files that end in .parquet. Received"),
        (lambda folder: (folder / "a.parquet").write_bytes(b"x" * 20), "must be a Parquet file"),
        (lambda folder: write(folder / "a.parquet", [0, -1]), "Labels must be from 0 to 1; .*-1"),
        (lambda folder: write(folder / "a.parquet", [0, None]), "Every image must have a label"),
        (lambda folder: write(folder / "train-0-of-2.parquet", [0, 1]), "All shards of a part"),
        (
            lambda folder: [
                write(folder / f"{name}.parquet", [0, 1]) for name in ("train-0", "other")
            ],
            "named after one part each .*other.parquet",
        ),
        (
            lambda folder: [write(folder / name / "train.parquet", [0, 1]) for name in "ab"],
            "The files of train must lie in one folder",
        ),
        (
            lambda folder: [
                write(folder / "a.parquet", [0, 1]),
                write(folder / "b.parquet", ["x", "y"]),
            ],
            "All Parquet files must have the same columns",
        ),
    ],
)
def test_a_mistake_is_named_in_a_line(tmp_path, make, match):
    make(tmp_path)
    with pytest.raises(ValueError, match=match) as error:
        opened(tmp_path)
    assert "\n" not in str(error.value)


def test_images_that_are_paths_only_are_refused(tmp_path):
    table = arrow.table(
        {
            "image": arrow.array(
                [{"bytes": None, "path": "a.png"}],
                arrow.struct({"bytes": arrow.binary(), "path": arrow.string()}),
            ),
            "label": arrow.array([0]),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="with 1 images that are paths only"):
        opened(tmp_path)


def test_images_of_a_group_in_a_column_are_in_the_same_part(tmp_path):
    path = write(tmp_path / "train-00000-of-00001.parquet", [0, 1] * 20)
    table = parquet.read_table(path)
    shoots = [f"shoot {n // 4}" for n in range(39)] + [None]
    parquet.write_table(table.append_column("shoot", arrow.array(shoots)), path)
    source = opened(tmp_path, holdout=0.3, group_by="shoot")
    assert len(set(source.groups.values())) == 11
    parts = [{source.groups[name] for name in part.names} for part in source.splits.values()]
    assert len(parts) == 2
    assert not parts[0] & parts[1]


def test_a_column_that_parquet_files_lack_is_taken_for_an_expression(tmp_path):
    write(tmp_path / "train-00000-of-00001.parquet", [0, 1] * 5)
    with pytest.raises(ValueError, match="a column of the table, or a regular expression"):
        opened(tmp_path, group_by="shoot")
