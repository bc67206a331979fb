"""Images of a group stay in the same part."""

import numpy as np
import pytest

from keras_vit.training.data import by_path, open_source
from keras_vit.training.data.by_path import group_of
from keras_vit.training.data.parts import assign, class_groups, groups_of
from keras_vit.training.data.spec import DataSpec
from makers import write_classes


def random_case(seed, count=600, classes=5, multi_label=False):
    """Labels of unequal classes, and groups of 1 to 20 images that prefer a class."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(count), rng.integers(1, 20, count))[:count]
    weights = rng.dirichlet(np.ones(classes))
    main = rng.choice(classes, groups.max() + 1, p=weights)
    other = rng.choice(classes, count, p=weights)
    labels = np.where(rng.random(count) < 0.7, main[groups], other).astype("int32")
    order = rng.permutation(count)
    if multi_label:
        flags = np.zeros((count, classes), "uint8")
        flags[np.arange(count), labels] = 1
        flags |= (rng.random((count, classes)) < 0.1).astype("uint8")
        labels = flags
    return labels[order], groups[order]


def imbalance(labels, parts, shares):
    """Mean distance of the share of a class in a part from the wanted one."""
    found = [np.bincount(labels[parts == part], minlength=5) for part in range(len(shares))]
    totals = np.maximum(np.bincount(labels, minlength=5), 1)
    return np.abs(np.array(found) / totals - np.array(shares)[:, np.newaxis]).mean()


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.2,) * 5, (0.95, 0.05)])
def test_a_group_is_in_one_part_and_the_parts_have_their_shares(shares, multi_label):
    for seed in range(10):
        labels, groups = random_case(seed, multi_label=multi_label)
        parts = assign(labels, groups, shares, 0)
        assert len(np.unique(np.stack([groups, parts]), axis=1).T) == len(np.unique(groups))
        sizes = np.bincount(parts, minlength=len(shares)) / len(parts)
        np.testing.assert_allclose(sizes, shares, atol=0.05)
        of_class = class_groups(labels, groups, 5)
        hot = labels if multi_label else np.eye(5, dtype="uint8")[labels]
        for part in range(len(shares)):
            assert (hot[parts == part].any(axis=0) | (of_class < len(shares))).all()


@pytest.mark.filterwarnings("ignore:The least populated class")
def test_the_classes_are_balanced_as_well_as_by_scikit_learn():
    splitter = pytest.importorskip("sklearn.model_selection").StratifiedGroupKFold
    ours, theirs = [], []
    for seed in range(20):
        labels, groups = random_case(seed)
        parts = np.zeros(len(labels), int)
        folds = splitter(5, shuffle=True, random_state=0).split(labels, labels, groups)
        for part, (_, places) in enumerate(folds):
            parts[places] = part
        theirs.append(imbalance(labels, parts, (0.2,) * 5))
        ours.append(imbalance(labels, assign(labels, groups, (0.2,) * 5, 0), (0.2,) * 5))
    assert np.mean(ours) <= np.mean(theirs)


def test_the_assignment_depends_on_the_seed_alone():
    labels, groups = random_case(0)
    first = assign(labels, groups, (0.8, 0.2), 0)
    np.testing.assert_array_equal(first, assign(labels, groups, (0.8, 0.2), 0))
    np.testing.assert_array_equal(first, assign(labels, 7 * groups + 3, (0.8, 0.2), 0))
    assert (first != assign(labels, groups, (0.8, 0.2), 1)).any()


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        ("(", "regular expression .*'\\('"),
        ("z", "none of 2 images"),
    ],
)
def test_a_wrong_pattern_is_refused(pattern, match):
    with pytest.raises(ValueError, match=match):
        group_of(pattern, ["a", "b"])


def make_bursts(make_folder, classes="ab", bursts=6, shots=4):
    return make_folder({f"{name}/{burst}": shots for name in classes for burst in range(bursts)})


def check_apart(source):
    """Checks that no group is in two parts, and returns the number of images in each."""
    found = {
        part: set(groups_of(examples, source.groups)) for part, examples in source.splits.items()
    }
    assert sum(map(len, found.values())) == len(set(source.groups.values()))
    return {part: len(examples) for part, examples in source.splits.items()}


@pytest.mark.parametrize("group_by", [r"^\w/(\d)", r"^\w/\d"])
def test_every_drawn_part_has_whole_groups(make_folder, group_by):
    data = make_bursts(make_folder)
    options = {"group_by": group_by, "folders": "classes"}
    spec = DataSpec(data, holdout=0.17, calibration=0.2, **options)
    source = open_source(spec, 0.25, verify=False)
    assert check_apart(source) == {"train": 24, "validation": 8, "calibration": 8, "test": 8}
    count = len(set(source.groups.values()))
    assert source.notes == (f"{count} groups of 48 images",)


def test_a_column_has_the_groups(make_folder):
    data = make_bursts(make_folder)
    names = sorted(path.relative_to(data) for path in data.rglob("*.png"))
    rows = [f"{name},{name.parts[0]},{name.parts[1].replace('5', '')}" for name in names]
    table = data / "list.csv"
    table.write_text("\n".join(["path,label,animal", *rows]))
    source = open_source(DataSpec(table, group_by="animal"), 0.25, verify=False)
    check_apart(source)
    assert source.notes == ("13 groups of 48 images, 8 of one image without the information",)
    flags = [f"{name},{int(name.parts[0] == 'a')},1,{name.parts[1]}" for name in names]
    table.write_text("\n".join(["path,x,y,animal", *flags]))
    spec = DataSpec(table, group_by="animal", label_column="x,y")
    source = open_source(spec, verify=False)
    assert source.class_names == ("x", "y")
    check_apart(source)


def test_a_part_that_cannot_be_filled_is_refused_with_the_numbers(make_folder):
    data = make_bursts(make_folder, bursts=1)
    match = "test part .*8 images in 2"
    with pytest.raises(ValueError, match=match):
        open_source(DataSpec(data, group_by="^\\w"), verify=False)
    with pytest.raises(ValueError, match="validation part .*8 images in 2 groups"):
        open_source(DataSpec(data, holdout=0.0, group_by="^\\w"), 0.1, verify=False)


def test_a_class_of_one_group_is_trained_on_and_a_line_says_so(make_folder):
    data = make_folder({"a/0": 4, "a/1": 4, "b/2": 4})
    source = open_source(DataSpec(data, group_by="\\d/"), verify=False)
    assert source.notes[-1] == "not tested, as there is a single group: b"
    assert np.bincount(source.splits["train"].labels).tolist() == [4, 4]


def test_a_line_says_that_given_parts_share_groups(make_folder):
    data = make_folder({f"{part}/{name}": 3 for part in ("train", "test") for name in "ab"})
    source = open_source(DataSpec(data, group_by="\\d\\d"), verify=False)
    assert source.notes[-1] == "3 groups have images in train and in test of the data"


def test_an_expression_without_an_end_is_refused_after_its_time(monkeypatch):
    monkeypatch.setattr(by_path, "_SECONDS", 2)
    with pytest.raises(ValueError, match="group_by=.*2 seconds"):
        group_of("(a+)+$", ["a" * 40 + "/b.png"])


def test_groups_are_what_the_expression_finds_in_any_name():
    names = ["cow 1/\u00e9_a.png", "cow 1/\u00e9_b.png", "cow 2/\udcff.png", "x.png"]
    numbers, alone = group_of(r"(cow \d)/", names)
    assert (numbers.tolist(), alone) == ([0, 0, 1, 2], 1)
    optional = group_of(r"x(y)?\.png|(cow)", ["x.png", "xy.png"])
    assert (optional[0].tolist(), optional[1]) == ([0, 1], 1)


def test_groups_that_look_alike_are_named(make_folder):
    groups = ["cow1", "Cow1", "cow 2", "cow3", "1", "1.0", "001", ""]
    folder = make_folder({"a": 4, "b": 4})
    names = [f"{label}/0{n}.png" for label in "ab" for n in range(4)]
    rows = [f"{name},{name[0]},{group}" for name, group in zip(names, groups, strict=True)]
    (folder / "list.csv").write_text("\n".join(["path,label,cow", *rows]))
    spec = DataSpec(folder / "list.csv", group_by="cow", holdout=0.0)
    assert open_source(spec, verify=False).notes[0] == (
        "8 groups of 8 images, 1 of one image without the information; look alike: 'cow1' and "
        "'Cow1' are different, '1' and '1.0' and '001' are different"
    )
    in_paths = make_folder({"a/1_": 2, "a/01_": 2, "b/2_": 2})
    (note, *_) = open_source(
        DataSpec(in_paths, group_by=r"/(\d+)_", holdout=0.0), verify=False
    ).notes[-1:]
    assert note.endswith("; look alike: '01' and '1' are different")


def write_table(path, rows):
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def test_a_table_of_groups_keeps_them_together(make_folder, tmp_path):
    photos = make_bursts(make_folder)
    names = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    rows = [f"{name},{name[:3]}" for name in names if not name.startswith("b/5")]
    table = write_table(tmp_path / "groups.csv", ["path,group", *rows])
    source = open_source(photos, folders="classes", groups=table, verify=False)
    check_apart(source)
    assert source.notes[0] == "15 groups of 48 images, 4 of one image without the information"


def test_groups_come_from_a_table_or_an_expression(tmp_path):
    with pytest.raises(ValueError, match="not both"):
        DataSpec("photos", groups=["path,group", "a/1.png,x"], group_by="(.)")


def test_the_folder_of_a_check_gives_parts_groups_and_saved_decisions(make_folder, tmp_path):
    check = tmp_path / "check"
    check.mkdir()
    write_table(check / "split.csv", ["path,split", "a/0_0.png,train", "b/0_0.png,test"])
    write_table(check / "groups.csv", ["path,group", "a/0_0.png,1"])
    write_table(check / "exclude.txt", ["a/0_1.png"])
    spec = DataSpec("photos", checked=str(check))
    assert spec.split[1] == "a/0_0.png,train"
    assert spec.groups == ("path,group", "a/0_0.png,1")
    assert spec.exclude == ("a/0_1.png",)
    assert (
        "split.csv, groups.csv, exclude.txt; no labels.csv: check.html saves" in spec.checked_line
    )


def test_a_check_of_fewer_photos_asks_for_a_new_one(tmp_path):
    write_classes(tmp_path / "photos", 2)
    (tmp_path / "check").mkdir()
    write_table(tmp_path / "check" / "split.csv", ["path,split", "red/0.png,train"])
    with pytest.raises(ValueError, match="is of other photos: run keras-vit check again"):
        open_source(DataSpec(tmp_path / "photos", checked=str(tmp_path / "check")))


def test_a_folder_without_a_check_is_refused(tmp_path):
    with pytest.raises(ValueError, match="keras-vit check"):
        DataSpec("photos", checked=str(tmp_path))
