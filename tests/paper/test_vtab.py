import dataclasses
import io
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
import vtab
import vtab_tasks
from PIL import Image
from tables import paper_table
from vtab_tasks import TASKS, Part

import keras_vit
from keras_vit.classifier import save_classifier
from keras_vit.preprocessing import Preprocessing
from keras_vit.training.data import open_source
from keras_vit.training.evaluation.results import Result
from makers import tiny_config

# (train, validation, test, classes) as the benchmark published them.
PUBLISHED = {
    "caltech101": (2754, 306, 6084, 102),
    "cifar100": (45000, 5000, 10000, 100),
    "dtd": (1880, 1880, 1880, 47),
    "oxford_flowers102": (1020, 1020, 6149, 102),
    "oxford_iiit_pet": (2944, 736, 3669, 37),
    "sun397": (76128, 10875, 21750, 397),
    "svhn": (65931, 7326, 26032, 10),
    "patch_camelyon": (262144, 32768, 32768, 2),
    "eurosat": (16200, 5400, 5400, 10),
    "resisc45": (18900, 6300, 6300, 45),
    "diabetic_retinopathy": (35126, 10906, 42670, 5),
    "clevr_count": (63000, 7000, 15000, 8),
    "clevr_distance": (63000, 7000, 15000, 6),
    "dmlab": (65550, 22628, 22735, 6),
    "dsprites_location": (589824, 73728, 73728, 16),
    "dsprites_orientation": (589824, 73728, 73728, 16),
    "kitti_distance": (6347, 423, 711, 4),
    "smallnorb_azimuth": (24300, 12150, 12150, 18),
    "smallnorb_elevation": (24300, 12150, 12150, 9),
}

# Inputs of a label rule, and the label worked out by hand.
CLEVR = [
    # Depths of the objects: their count less 3, and the class of the nearest.
    ((9.2, 11.0, 10.4), 0, 3),
    ((8.0, 12.0, 12.0, 12.0), 1, 0),  # 8 itself is not beyond 8.
    ((8.4, 9.9, 11.5, 13.0, 12.2), 2, 1),
    ((8.75, 9.9, 11.5, 13.0, 12.2, 10.0), 3, 2),
    ((9.75, 10.0, 11.0, 12.0, 13.0, 10.5, 11.5), 4, 4),
    ((10.5, 11.0, 12.0, 13.0, 14.0, 10.6, 10.7, 10.8, 10.9, 12.5), 7, 5),
]
KITTI = [
    # (type, depth in metres) of the objects; 0 car, 1 van, 2 truck, 3 pedestrian.
    ([(0, 5.0), (0, 30.0)], 0),
    ([(2, 8.5), (3, 2.0)], 1),
    ([(1, 20.0)], 1),
    ([(0, 20.5)], 2),
    ([(3, 4.0), (7, 9.0)], 3),
    ([(0, -1.5)], 0),
]


def clevr(depths):
    return {"objects": {"pixel_coords": tf.constant([[1.0, 2.0, z] for z in depths])}}


def kitti(objects):
    return {
        "objects": {
            "type": tf.constant([kind for kind, _ in objects], tf.int64),
            "location": tf.constant([[0.0, 1.0, depth] for _, depth in objects]),
        }
    }


def test_the_tasks_are_the_papers_19_in_its_order():
    assert [task.title for task in TASKS.values()] == paper_table("9")[0][1:-1]
    groups = [task.group for task in TASKS.values()]
    assert groups == ["Natural"] * 7 + ["Specialized"] * 4 + ["Structured"] * 8


@pytest.mark.parametrize("name", TASKS)
def test_splits_have_the_published_sizes_and_share_no_image(name):
    task = TASKS[name]
    sizes = (len(task.train), len(task.validation), len(task.test), task.num_classes)
    assert sizes == PUBLISHED[name]
    used = task.train.first(vtab_tasks.NUM_TRAIN), task.validation.first(vtab_tasks.NUM_VALIDATION)
    assert tuple(map(len, used)) == (800, 200)
    for a, b in itertools.combinations((task.train, task.validation, task.test), 2):
        assert a.split != b.split or a.stop <= b.start or b.stop <= a.start


@pytest.mark.parametrize(("depths", "count", "nearest"), CLEVR)
def test_clevr_labels(depths, count, nearest):
    assert int(TASKS["clevr_count"].label(clevr(depths))) == count
    assert int(TASKS["clevr_distance"].label(clevr(depths))) == nearest


@pytest.mark.parametrize(("objects", "label"), KITTI)
def test_kitti_labels(objects, label):
    assert int(TASKS["kitti_distance"].label(kitti(objects))) == label


def test_labels_of_dsprites_and_smallnorb():
    rule = TASKS["dsprites_location"].label
    labels = [int(rule({"label_x_position": tf.constant(x, tf.int64)})) for x in range(32)]
    assert labels == [x // 2 for x in range(32)]
    rule = TASKS["dsprites_orientation"].label
    labels = [int(rule({"label_orientation": tf.constant(x, tf.int64)})) for x in range(40)]
    # Bins of 2.5 values: 0 1 2 | 3 4 | 5 6 7 | 8 9 | ...
    assert labels == [bin_ for bin_, size in enumerate([3, 2] * 8) for _ in range(size)]
    angles = {"label_azimuth": tf.constant(17), "label_elevation": tf.constant(8)}
    assert int(TASKS["smallnorb_azimuth"].label(angles)) == 17
    assert int(TASKS["smallnorb_elevation"].label(angles)) == 8


# Mock data: each TFDS split has 9 images; every boundary of a part is 3 more than the last.
SMALL = 3


def small(task):
    """Returns the task with few images in each part, cut from the same splits."""
    parts = [task.train, task.validation, task.test]
    edges = {}
    for split in {part.split for part in parts}:
        of_split = sorted({e for p in parts if p.split == split for e in (p.start, p.stop)})
        edges[split] = {edge: SMALL * k for k, edge in enumerate(of_split)}
    train, validation, test = (
        Part(p.split, edges[p.split][p.start], edges[p.split][p.stop]) for p in parts
    )
    return dataclasses.replace(task, train=train, validation=validation, test=test)


def value(feature, number):
    """Returns a value of a feature that depends on a number."""
    if isinstance(feature, tfds.features.Image):
        height, width, channels = (side or 20 for side in feature.shape)
        return np.full((height, width, channels), number % 2 if channels == 1 else number, "uint8")
    if isinstance(feature, tfds.features.ClassLabel):
        return number % feature.num_classes
    if isinstance(feature, tfds.features.Text):
        return f"{number}.png"
    if isinstance(feature, tfds.features.FeaturesDict):
        return {key: value(inner, number) for key, inner in feature.items()}
    return np.full(feature.shape, 8.2 + number % 3, feature.np_dtype)


@pytest.fixture(scope="session")
def mock_data(tmp_path_factory):
    """Returns a function from a TFDS name to a data_dir with a small mock of it."""
    root = tmp_path_factory.mktemp("tfds")
    made = {}

    def make(dataset):
        folder = root / dataset.replace("/", "_")  # One each: the others are missing there.
        if dataset in made:
            return folder
        builder = tfds.builder(dataset, data_dir=folder / "none", try_gcs=False)
        tasks = [small(task) for task in TASKS.values() if task.dataset == dataset]
        sizes = {}
        for part in (p for t in tasks for p in (t.train, t.validation, t.test)):
            sizes[part.split] = max(part.stop, sizes.get(part.split, 0))
        features = builder.info.features
        made[dataset] = {
            split: [value(features, 10 * s + k) for k in range(size)]
            for s, (split, size) in enumerate(sorted(sizes.items()))
        }
        name, _, config = dataset.partition("/")
        tfds.dataset_builders.store_as_tfds_dataset(
            name=name,
            config=config or None,
            version=str(builder.version),
            features=features,
            split_datasets={split: enumerate(made[dataset][split]) for split in made[dataset]},
            data_dir=folder,
            disable_shuffling=True,
        )
        return folder

    make.examples = made
    return make


@pytest.fixture
def small_tasks(monkeypatch):
    """VTAB with 2 images to train, 1 to validate and 3 to test."""
    monkeypatch.setattr(vtab_tasks, "NUM_TRAIN", 2)
    monkeypatch.setattr(vtab_tasks, "NUM_VALIDATION", 1)
    tasks = {name: small(task) for name, task in TASKS.items()}
    monkeypatch.setattr(vtab_tasks, "TASKS", tasks)
    return tasks


# Each way to make labels, splits and images; the others are made of the same parts.
@pytest.mark.parametrize("name", ["caltech101", "dsprites_location", "smallnorb_azimuth", "svhn"])
def test_every_task_is_written_with_its_slices_and_labels(name, mock_data, small_tasks, tmp_path):
    task = small_tasks[name]
    vtab_tasks.write_task(name, tmp_path / "images", mock_data(task.dataset))
    examples = mock_data.examples[task.dataset]

    def expected(*parts):
        return [examples[p.split][k] for p in parts for k in range(p.start, p.stop)]

    parts = {
        "train": expected(task.train.first(2), task.validation.first(1)),
        "test": expected(task.test),
    }
    for part, wanted in parts.items():
        classes, found = read(tmp_path / "images" / part)
        assert len(classes) == task.num_classes
        assert [label for _, label in found] == [int(task.label(e)) for e in wanted]
        for (encoded, _), example in zip(found, wanted, strict=True):
            pixel = np.asarray(Image.open(io.BytesIO(encoded)))[0, 0].ravel()[0]
            truth = float(example["image"][0, 0, 0]) * task.image_scale
            np.testing.assert_allclose(float(pixel), truth, atol=2)  # JPEG.


def read(folder):
    """Returns the class names of a folder of TFRecords, and its images with their labels."""
    source = open_source(f"tfrecords:{folder}", holdout=0)
    (examples,) = source.splits.values()
    return source.class_names, [(encoded, int(label)) for encoded, label in examples.encoded()]


def test_tuning_never_sees_the_test_images(mock_data, small_tasks, tmp_path):
    task = small_tasks["svhn"]
    vtab_tasks.write_task("svhn", tmp_path / "images", mock_data(task.dataset), tune=True)
    examples = mock_data.examples["svhn_cropped"]["train"]
    for part, wanted in (("train", examples[0:2]), ("test", examples[3:4])):
        labels = [label for _, label in read(tmp_path / "images" / part)[1]]
        assert labels == [example["label"] for example in wanted]


TINY = tiny_config(width=8)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A classifier's folder of a tiny model of two classes."""
    folder = tmp_path_factory.mktemp("pretrained") / "tiny"
    keras.utils.set_random_seed(0)
    model = keras_vit.build(TINY, input_shape=(8, 8, 3), classes=2)
    save_classifier(folder, model, ("a", "b"), Preprocessing((8, 8)))
    return folder


@pytest.fixture
def study(mock_data, small_tasks, pretrained, tmp_path, monkeypatch):
    """SVHN with two steps of four images."""
    monkeypatch.setattr(vtab, "TASKS", small_tasks)
    settings = dataclasses.replace(
        vtab.SETTINGS, weights=str(pretrained), image_size=(8, 8), steps=2, batch_size=4
    )
    return vtab.Vtab(
        output=tmp_path / "out",
        settings=settings,
        seeds=(1,),
        data_dir=mock_data("svhn_cropped"),
        command="vtab",
        log=str,
    )


@pytest.mark.slow
def test_a_run_writes_a_result_for_each_seed(study, small_tasks):
    tasks = {"svhn": small_tasks["svhn"]}
    results = study.run(tasks)
    assert [(r.protocol, r.task, r.seed, r.images) for r in results] == [("vtab", "SVHN", 1, 3)]
    files = sorted(study.output.rglob("*.*"))
    assert [path.name for path in files] == ["result_seed_1.json"]
    recipe, data = results[0].recipe, results[0].data
    assert (recipe["learning_rate"], recipe["steps"], recipe["seed"]) == (0.01, 2, 1)
    assert data["dataset"].startswith("svhn_cropped/3.")
    assert data["published_version"] is True


@pytest.mark.slow
def test_a_study_that_was_stopped_goes_on_with_the_same_settings(study, small_tasks):
    tasks = {"svhn": small_tasks["svhn"]}
    results = study.run(tasks)
    files = sorted(study.output.rglob("*.*"))
    written = files[0].stat().st_mtime_ns
    assert study.run(tasks) == results
    assert files[0].stat().st_mtime_ns == written
    other = dataclasses.replace(study.settings, learning_rate=0.5)
    with pytest.raises(ValueError, match="differs in: learning_rate"):
        dataclasses.replace(study, settings=other).run(tasks)


def test_the_summary_stands_beside_the_paper():
    results = [
        Result("vtab", "SVHN", {"name": "x"}, {}, {"top_1": top_1}, 2000, seed=seed)
        for seed, top_1 in enumerate((0.5, 0.9, 0.6))
    ]
    lines = vtab.summarize(results).splitlines()
    (line,) = (line for line in lines if line.startswith("SVHN"))
    assert line.split()[:5] == ["SVHN", "60.0", "88.9", "87.4", "80.9"]
    # Wilson: (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n), z = 1.96.
    assert "50.0% (47.8 to 52.2)  90.0% (88.6 to 91.2)  60.0% (57.8 to 62.1)" in line
    (mean,) = (line for line in lines if line.startswith("mean of 19"))
    assert mean.split() == ["mean", "of", "19", "tasks", "77.6", "76.3", "72.7"]  # None of ours.
    (natural,) = (line for line in lines if line.startswith("Natural (mean of 7)"))
    assert natural.split()[-3:] == ["86.7", "85.6", "83.3"]


def test_the_recipe_is_the_papers():
    settings = vtab.SETTINGS.resolve(1000)
    assert (settings.image_size, settings.steps, settings.batch_size) == ((384, 384), 2500, 512)
    assert (settings.learning_rate, settings.momentum, settings.decay) == (0.01, 0.9, "cosine")
    assert (settings.global_clipnorm, settings.validation) == (1.0, 0.0)
    assert len(vtab_tasks.resolve(["specialized", "dtd"])) == 5
    assert list(vtab_tasks.resolve(["dtd", "cifar100"])) == ["cifar100", "dtd"]


def test_missing_data_are_an_error_before_training_or_left_out(mock_data, small_tasks):
    names, data_dir = ("svhn", "resisc45"), mock_data("svhn_cropped")
    with pytest.raises(ValueError, match="Resisc45 .*by hand"):
        vtab.available(names, data_dir)
    messages = []
    found = vtab.available(names, data_dir, skip_missing=True, log=messages.append)
    assert list(found) == ["svhn"]
    assert messages[0].startswith("left out: The data of Resisc45")
