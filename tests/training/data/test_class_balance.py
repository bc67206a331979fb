"""Weights of classes in the loss, and sampling of each class equally often."""

import collections

import numpy as np
import pytest

from keras_vit import ViTConfig
from keras_vit.training.data import open_source, training_batches, write_records
from keras_vit.training.data.class_balance import balanced, class_weights
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.run.job import Job
from keras_vit.training.run.run_options import RunOptions
from keras_vit.training.settings import FineTuning

LABELS = np.array([0] * 6 + [1] * 3 + [2])
NAMES = ("cat", "dog", "sea")


def test_balanced_weights_are_those_of_scikit_learn():
    weighting = pytest.importorskip("sklearn.utils.class_weight")
    expected = weighting.compute_class_weight("balanced", classes=np.arange(3), y=LABELS)
    found = class_weights("balanced", LABELS, NAMES)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.mean(np.array(found)[LABELS]) == pytest.approx(1)


def test_balanced_multi_label_weights_make_both_answers_weigh_the_same():
    labels = np.array([[1, 0], [1, 1], [1, 0], [0, 1], [1, 0]], "uint8")
    assert class_weights("balanced", labels, NAMES[:2]) == pytest.approx((1 / 4, 3 / 2))
    with pytest.raises(ValueError, match="no label may be on every image. Received: dog"):
        class_weights("balanced", np.array([[1, 1], [0, 1]], "uint8"), NAMES[:2])


def test_weights_are_read_by_name(tmp_path):
    path = tmp_path / "weights.csv"
    path.write_text("class,weight\nsea,3\ncat,0.5\ndog,1e1\n")
    assert class_weights(path, LABELS, NAMES) == (0.5, 10.0, 3.0)


@pytest.mark.parametrize(
    "rows",
    [
        ("cat,1", "dog,2"),
        ("cat,1", "dog,-2", "sea,1"),
        ("cat,1", "dog,nan", "sea,1"),
        ("cat,1", "dog,2", "sea,1", "fox,1"),
        ("cat,1", "dog,2", "sea,1", "cat,3"),
    ],
)
def test_a_file_of_other_weights_is_refused(tmp_path, rows):
    path = tmp_path / "weights.csv"
    path.write_text("\n".join(("class,weight", *rows)))
    message = "positive number for each of the 3 classes"
    with pytest.raises(ValueError, match=message) as error:
        class_weights(path, LABELS, NAMES)
    assert str(path) in str(error.value)


def test_a_file_in_latin_1_is_refused_by_its_name(tmp_path):
    path = tmp_path / "weights.csv"
    path.write_bytes("class,weight\ncaf\xe9,1\n".encode("latin-1"))
    with pytest.raises(ValueError, match="weights.csv must be a CSV file in UTF-8"):
        class_weights(path, LABELS, NAMES)


def test_no_file_and_no_image_are_named(tmp_path):
    with pytest.raises(ValueError, match='"balanced" or a CSV file'):
        class_weights(tmp_path / "none.csv", LABELS, NAMES)
    with pytest.raises(ValueError, match="must have a training image. Received: none of sea"):
        class_weights("balanced", LABELS[:-1], NAMES)


@pytest.fixture(scope="module")
def sources(write_images, tmp_path_factory):
    """The same 10 images, of three classes, as files and as records."""
    folder, records = (tmp_path_factory.mktemp(name) for name in ("files", "records"))
    counts = dict(zip(NAMES, np.bincount(LABELS).tolist(), strict=True))
    source = open_source(write_images(folder, counts), holdout=0, verify=False)
    write_records(source, records)
    return {"files": source, "records": open_source(records, holdout=0)}


@pytest.mark.parametrize("kind", ["files", "records"])
def test_an_epoch_has_every_class_equally_often(sources, kind):
    examples = sources[kind].splits["train"]
    found = balanced(examples, NAMES, seed=3)
    assert np.bincount(found.labels).tolist() == [6, 6, 6]
    times = collections.Counter(found.names)
    assert sorted(times.values()) == [1] * 6 + [2] * 3 + [6]
    options = {"image_size": (4, 4), "batch_size": 6, "seed": 1}
    epochs = training_batches(found, **options).take(6)
    labels = np.concatenate([labels for _, labels in epochs.as_numpy_iterator()])
    assert np.bincount(labels[:18]).tolist() == np.bincount(labels[18:]).tolist() == [6, 6, 6]
    # Each copy of an image has its own index, by which the augmentation is drawn.
    indices = [int(index) for *_, index in found.shuffled(1).take(18)]
    assert sorted(indices) == list(range(18))
    images = [batch for batch, _ in epochs.as_numpy_iterator()]
    later = training_batches(found, **options, start_step=2).take(1)
    np.testing.assert_array_equal(next(later.as_numpy_iterator())[0], images[2])


def test_uneven_repeats_are_drawn_by_the_seed(sources):
    examples = sources["files"].splits["train"].take(range(9))  # 6 cats, 3 dogs.
    kept = examples.take([0, 1, 2, 3, 4, 6, 7, 8])  # 5 cats, 3 dogs.
    draws = {tuple(balanced(kept, NAMES[:2], seed).names) for seed in range(8)}
    assert len(draws) > 1
    assert balanced(kept, NAMES[:2], 0).names == balanced(kept, NAMES[:2], 0).names
    for names in draws:
        assert sorted(collections.Counter(names).values()) == [1] * 6 + [2] * 2


def test_several_labels_are_not_sampled_evenly(sources):
    examples = sources["files"].splits["train"].relabelled(np.arange(3), 3)
    with pytest.raises(ValueError, match="one class. Received: multi-label data"):
        balanced(examples, NAMES, 0)


@pytest.fixture
def job(make_folder, tmp_path_factory):
    """A job with balanced classes: four images of a, two of b."""
    settings = FineTuning(
        model=ViTConfig(4, 16, 1, 16, 2),
        weights=None,
        image_size=8,
        steps=2,
        batch_size=2,
        validation=0.0,
        class_weights="balanced",
    )
    data = DataSpec(make_folder({"a": 4, "b": 2}), holdout=0)
    return Job(data, RunOptions(tmp_path_factory.mktemp("runs") / "run"), settings)


def test_the_weights_of_a_run_are_in_its_recipe(job):
    plan = job.plan()
    assert tuple(plan.class_weights) == (6 / 8, 6 / 4)
    assert plan.recipe["facts"]["class_weights"]["value"] == {"a": 6 / 8, "b": 6 / 4}


def test_a_resumed_run_has_the_weights_of_its_recipe(job):
    recipe = job.plan().recipe
    recipe["facts"]["class_weights"]["value"] = {"a": 1.0, "b": 3.0}
    with job.folder.locked():
        job.folder.start(recipe)
    resumed = Job(DataSpec(), RunOptions(job.folder.output, resume=True), FineTuning()).plan()
    assert tuple(resumed.class_weights) == (1.0, 3.0)
