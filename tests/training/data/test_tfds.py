import types

import numpy as np
import pytest
from labelled_data import in_order, numbers

from keras_vit.command_line import main
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import evaluation_batches, open_source

COUNTS = {"train": 20, "validation": 6, "test": 4}


def image_of(number):
    """The number of each image is its grey value."""
    return np.full((9, 11, 3), number, "uint8")


def prepared(folder, title, features, examples, version="1.0.0", shards=None):
    """Prepares a data set of TensorFlow Datasets; `examples` are rows by the name of the split."""
    import tensorflow_datasets as tfds

    class Builder(tfds.core.GeneratorBasedBuilder):
        name = title
        VERSION = tfds.core.Version(version)

        def _info(self):
            dictionary = tfds.features.FeaturesDict(features(tfds.features))
            return tfds.core.DatasetInfo(builder=self, features=dictionary)

        def _split_generators(self, _):
            return {split: enumerate(rows) for split, rows in examples.items()}

        def _generate_examples(self):
            raise NotImplementedError

    config = tfds.download.DownloadConfig(num_shards=shards)
    Builder(data_dir=folder).download_and_prepare(download_config=config)
    return folder


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    rows = {
        split: [
            {
                "image": image_of(number),
                "mask": image_of(number)[..., :1],
                "label": -1 if split == "test" else number % 2,
            }
            for number in range(count)
        ]
        for split, count in COUNTS.items()
    }
    return prepared(
        tmp_path_factory.mktemp("tfds"),
        "tiny_pets",
        lambda features: {
            "image": features.Image(encoding_format="png"),
            "mask": features.Image(shape=(None, None, 1)),
            "label": features.ClassLabel(names=["cat", "dog"]),
        },
        rows,
        "1.2.0",
        shards=3,
    )


@pytest.fixture
def source(data_dir):
    return open_source("tfds:tiny_pets", data_dir=data_dir)


def test_a_data_set_is_opened_by_name(source, data_dir):
    assert source.class_names == ("cat", "dog")
    # The labels of the test split are all -1: not published.
    assert {split: len(part) for split, part in source.splits.items()} == {"train": 20, "test": 6}
    assert open_source("tfds:tiny_pets:1.2.0", data_dir=data_dir).class_names == ("cat", "dog")


def test_labels_belong_to_their_images_in_all_shards(source):
    train = source.splits["train"]
    order = in_order(train)
    assert sorted(order) == list(range(20))
    assert train.labels.tolist() == [number % 2 for number in order]


def test_an_image_is_named_by_its_file_and_place(source):
    train = source.splits["train"]
    assert len(set(train.names)) == 20
    assert train.names[0] == "tiny_pets-train.tfrecord-00000-of-00003__0"
    assert train.names[-1].startswith("tiny_pets-train.tfrecord-00002-of-00003__")


def test_a_list_of_classes_is_several_labels(tmp_path):
    sets = [[bit for bit in range(3) if number >> bit & 1] for number in range(8)]
    rows = [
        {"image": image_of(number), "labels": labels, "easy_labels": []}
        for number, labels in enumerate(sets)
    ]

    def features(features):
        lists = features.Sequence(features.ClassLabel(names=["beach", "boat", "dog"]))
        image = features.Image(encoding_format="png")
        return {"image": image, "labels": lists, "easy_labels": lists}

    folder = prepared(tmp_path, "tiny_ports", features, {"train": rows})
    source = open_source("tfds:tiny_ports", data_dir=folder, holdout=0)
    assert (source.task, source.class_names) == ("multilabel", ("beach", "boat", "dog"))
    examples = source.splits["train"]
    batches = evaluation_batches(examples, preprocessing=Preprocessing((8, 6)), batch_size=3)
    expected = [[number >> bit & 1 for bit in range(3)] for number in numbers(batches)]
    np.testing.assert_array_equal(examples.labels, expected)
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in batches]), expected)


def classes_of(names):
    return lambda features: {
        "image": features.Image(encoding_format="png"),
        "label": features.ClassLabel(names=names),
    }


def rows_of(labels):
    return [{"image": image_of(number), "label": label} for number, label in enumerate(labels)]


def test_splits_are_parts_by_the_names_of_folders_and_others_get_a_line(tmp_path):
    rows = {"train": [0, 1] * 3, "val": [0, 1], "dev": [0] * 4, "unlabelled": [-1] * 5}
    rows = {split: rows_of(labels) for split, labels in rows.items()}
    prepared(tmp_path, "tiny_words", classes_of(["cat", "dog"]), rows)
    source = open_source("tfds:tiny_words", data_dir=tmp_path)
    splits = source.splits
    assert {part: len(examples) for part, examples in splits.items()} == {"train": 6, "test": 2}
    parts = "the parts are train, validation, calibration, test, each once"
    assert {note for note in source.notes if note.startswith("left out")} == {
        f"left out the split dev of 4 images: {parts}",
        f"left out the split unlabelled of 5 images: {parts}",
    }


def test_a_data_set_without_a_split_of_such_a_name_is_refused_with_its_names(tmp_path):
    prepared(tmp_path, "tiny_trn", classes_of(["cat", "dog"]), {"trn": rows_of([0, 1])})
    with pytest.raises(ValueError, match="splits .*tiny_trn, with trn"):
        open_source("tfds:tiny_trn", data_dir=tmp_path)


@pytest.mark.parametrize("first", [0, -1])
def test_images_without_a_label_are_left_out_and_counted(tmp_path, first):
    labels = [first, 1, -1, 0, 1, 0]
    prepared(
        tmp_path, f"tiny_gaps{first + 1}", classes_of(["cat", "dog"]), {"train": rows_of(labels)}
    )
    source = open_source(f"tfds:tiny_gaps{first + 1}", data_dir=tmp_path, holdout=0)
    examples = source.splits["train"]
    kept = [(number, label) for number, label in enumerate(labels) if label >= 0]
    assert sorted(zip(in_order(examples), examples.labels.tolist(), strict=True)) == kept
    without = "no label, which is the number -1"
    assert source.notes == (f"left out {6 - len(kept)} of 6 images of the split train: {without}",)


def test_lists_of_classes_may_be_empty_and_minus_1_is_no_class(tmp_path):
    lists = [[0], [], [-1], [1, -1], [0, 1]]
    rows = [{"image": image_of(n), "labels": labels} for n, labels in enumerate(lists)]

    def features(types):
        label = types.ClassLabel(names=["cat", "dog"])
        return {"image": types.Image(encoding_format="png"), "labels": types.Sequence(label)}

    prepared(tmp_path, "tiny_lists", features, {"train": rows})
    source = open_source("tfds:tiny_lists", data_dir=tmp_path, holdout=0)
    examples = source.splits["train"]
    found = dict(zip(in_order(examples), examples.labels.tolist(), strict=True))
    assert found == {0: [1, 0], 1: [0, 0], 3: [0, 1], 4: [1, 1]}
    assert source.notes[0].startswith("left out 1 of 5 images of the split train")


def test_an_unknown_name_is_told_in_one_line(data_dir):
    with pytest.raises(ValueError, match="tfds: .*data set .*'tiny_dogs'") as caught:
        open_source("tfds:tiny_dogs", data_dir=data_dir)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("title", "value", "kind"),
    [("tiny_measures", np.float32(0.5), "Scalar"), ("tiny_texts", "cat", "Text")],
)
def test_a_data_set_without_classes_is_refused_with_its_features(title, value, kind, tmp_path):
    rows = {"train": [{"image": image_of(0), "label": value}]}

    def features(types):
        label = types.Text() if kind == "Text" else types.Scalar(value.dtype)
        return {"image": types.Image(), "label": label}

    prepared(tmp_path, title, features, rows)
    match = rf"{title}, with image \(Image\), label \({kind}\)"
    with pytest.raises(ValueError, match=match) as caught:
        open_source(f"tfds:{title}", data_dir=tmp_path)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def unprepared():
    """A data set that fails when it is downloaded."""
    import tensorflow_datasets as tfds

    class TinyBirds(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("2.0.0")
        url_infos = {
            name: types.SimpleNamespace(size=tfds.core.utils.Size(size))
            for name, size in (("images", 3 * 2**20), ("labels", 2**19))
        }

        def _info(self):
            features = {
                "image": tfds.features.Image(),
                "label": tfds.features.ClassLabel(num_classes=2),
            }
            features = tfds.features.FeaturesDict(features)
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, manager):
            raise AssertionError("It was downloaded")

        def _generate_examples(self):
            raise NotImplementedError

    return "tfds:tiny_birds"


def test_a_dry_run_fetches_nothing(unprepared, tmp_path, capsys):
    words = ["finetune", "--model", "ViT-Ti/16", "--weights", "imagenet21k", "--data", unprepared]
    folders = ["--data-dir", str(tmp_path / "data"), "--output", str(tmp_path / "out")]
    assert main([*words, *folders, "--dry-run"]) == 0
    assert "would download 3.50 MiB" in capsys.readouterr().out
    assert not list(tmp_path.rglob("*.*"))
