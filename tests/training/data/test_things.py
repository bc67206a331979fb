import numpy as np
import pytest
from PIL import Image

from keras_vit.training.data import content, open_source, split_record, things
from keras_vit.training.data.copies import ALIKE, EXACT, NEAR, Copy
from keras_vit.training.data.things import joined, shown_in_training, things_of
from makers import smooth_picture

THINGS, EXPOSURES = 30, 4


@pytest.fixture(scope="module")
def exposures(tmp_path_factory):
    """Photos of 30 surfaces, each at four exposures, cut a little otherwise; classes by lot."""
    folder, rng = tmp_path_factory.mktemp("exposures") / "photos", np.random.default_rng(0)
    for thing in range(THINGS):
        surface = np.asarray(smooth_picture(rng, (110, 110), (12, 12)), "float64")
        name = ("good", "bad")[thing % 2]
        (folder / name).mkdir(parents=True, exist_ok=True)
        for exposure in range(EXPOSURES):
            y, x = rng.integers(0, 4, 2)
            pixels = surface[y : y + 104, x : x + 104] * (0.5 + 0.15 * exposure)
            pixels = np.clip(pixels + rng.normal(0, 2, pixels.shape), 0, 255)
            file = folder / name / f"{thing}_{exposure}.jpg"
            Image.fromarray(pixels.astype("uint8")).save(file, quality=85)
    return folder


def thing_of(name):
    return name.rpartition("/")[2].split("_")[0]


def surfaces(source):
    """The surfaces in each part."""
    return {part: {*map(thing_of, each.names)} for part, each in source.splits.items()}


@pytest.fixture(scope="module")
def source(exposures):
    return open_source(str(exposures), 0.1, calibration=0.1)


def test_photos_of_one_thing_are_in_one_part(source):
    parts = [*surfaces(source).values()]
    assert len(parts) == 4
    assert sum(map(len, parts)) == len(set().union(*parts)) == THINGS


def test_the_line_has_the_number_of_things(source):
    assert source.things.line == "120 photos show 30 things, kept together"


def test_copies_that_are_ignored_are_in_several_parts(exposures):
    source = open_source(str(exposures), 0.1, copies="ignore")
    assert source.things is None
    assert surfaces(source)["train"] & surfaces(source)["test"]


def test_given_parts_are_not_moved_and_what_crosses_is_counted(exposures):
    split = {
        f"{name}/{thing}_{exposure}.jpg": "test" if exposure == 3 or thing >= 28 else "train"
        for thing in range(THINGS)
        for name in [("good", "bad")[thing % 2]]
        for exposure in range(EXPOSURES)
    }
    source = open_source(str(exposures), split=split)
    shown = shown_in_training(source.splits, source.things, "test")
    assert len(source.splits["test"]) == 36
    assert shown.sum() == 28
    assert any("28 of the 36 test images show things" in note for note in source.notes)


def test_groups_are_not_moved_and_what_crosses_is_counted(exposures):
    source = open_source(str(exposures), group_by=r"_(\d)")
    exposures_by_part = [{name[-5] for name in each.names} for each in source.splits.values()]
    assert not exposures_by_part[0] & exposures_by_part[1]
    assert shown_in_training(source.splits, source.things, "test").all()


def test_without_copies_the_parts_are_those_of_a_draw_without_a_search(exposures, tmp_path):
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        for file in (exposures / name).glob("*_0.jpg"):
            (tmp_path / name / file.name).symlink_to(file)
    drawn = [
        open_source(str(tmp_path), 0.2, copies=copies, follow_symlinks=True).splits["test"].names
        for copies in ("together", "ignore")
    ]
    assert drawn[0] == drawn[1]


def test_a_search_in_the_first_process_alone_is_that_of_all(exposures, source):
    calls = []

    def in_first(compute, count):
        calls.append(count)
        return compute()

    again = open_source(str(exposures), 0.1, calibration=0.1, in_first=in_first)
    assert calls == [121]
    assert again.splits["test"].names == source.splits["test"].names


@pytest.fixture
def decoded(monkeypatch):
    """Receives an item for each image that the search or the record of a split decodes."""
    decoded, with_pixels = [], content.with_pixels

    def counted(*arguments):
        decoded.append(1)
        return with_pixels(*arguments)

    for module in (content, things):
        monkeypatch.setattr(module, "with_pixels", counted)
    return decoded


@pytest.mark.parametrize("searched", [20_000, 10])
def test_search_and_record_decode_each_photo_once(exposures, decoded, monkeypatch, searched):
    monkeypatch.setattr(things, "SEARCHED", searched)
    source = open_source(str(exposures), 0.1, log=lambda line: None)
    record = things.record_of(source, split_record.read_fingerprints(source.splits))
    assert len(decoded) == THINGS * EXPOSURES
    pixels = split_record.read_pixel_fingerprints(source.splits)
    assert record.pixels.keys() >= pixels.keys()
    assert all((record.pixels[part] == np.sort(pixels[part])).all() for part in pixels)


def test_an_estimate_of_the_time_stands_before_a_long_search(exposures, decoded, monkeypatch):
    monkeypatch.setattr(things, "_WORTH_A_LINE", 0)
    lines = []
    open_source(str(exposures), 0.1, log=lambda line: lines.append((line, len(decoded))))
    ((line, count),) = lines
    assert line.startswith("things  120 photos are compared with each other, which takes about")
    assert count < THINGS * EXPOSURES or content.at_once() >= THINGS * EXPOSURES


def test_things_of_a_former_search_are_taken_for_the_same_photos(exposures, source, decoded):
    again = open_source(str(exposures), 0.1, calibration=0.1, things=source.things)
    assert not decoded
    assert again.splits["test"].names == source.splits["test"].names
    assert again.things.line == source.things.line


def test_things_of_a_former_search_are_not_taken_for_other_photos(exposures, source, tmp_path):
    for file in exposures.glob("*/1*.jpg"):
        (tmp_path / file.parent.name).mkdir(exist_ok=True)
        (tmp_path / file.parent.name / file.name).write_bytes(file.read_bytes())
    others = open_source(str(tmp_path), 0.1, things=source.things)
    assert others.things.line == "44 photos show 11 things, kept together"


def test_a_chain_of_bursts_is_separated_into_its_copies():
    chain = [Copy(number, number + 1, ALIKE) for number in range(0, 29)]
    *things, separated = things_of([*chain, Copy(3, 4, NEAR)], 100).tolist()
    assert separated == 1
    assert things[3] == things[4]
    assert len({*things}) == 99


def test_a_burst_of_all_photos_of_a_class_is_separated():
    labels = np.repeat([0, 1], [4, 96])
    bursts = [Copy(0, 1, ALIKE), Copy(1, 2, ALIKE), Copy(2, 3, EXACT), Copy(10, 11, ALIKE)]
    *things, separated = things_of(bursts, 100, labels).tolist()
    assert separated == 1
    assert [things[2], things[10]] == [things[3], things[11]]
    assert len({*things[:4]}) == 3


def test_copies_of_all_photos_of_a_class_stay_together():
    labels = np.repeat([0, 1], [3, 97])
    *things, separated = things_of([Copy(0, 1, NEAR), Copy(1, 2, NEAR)], 100, labels).tolist()
    assert (len({*things[:3]}), separated) == (1, 0)


def test_groups_and_things_are_left_out_together():
    groups = {"a": 0, "b": 0, "c": 1, "d": 2}
    things = {"a": 5, "b": 6, "c": 6, "d": 7}
    units = joined(groups, things)
    assert units["a"] == units["b"] == units["c"] != units["d"]
    assert joined(None, things) is things
    assert joined(groups, None) is groups


def test_record_files_are_compared_by_equal_pixels_alone(exposures, tmp_path):
    from keras_vit.training.data import write_records

    source = open_source(str(exposures), copies="ignore")
    write_records(source, tmp_path / "records")
    again = open_source(str(tmp_path / "records"))
    assert again.things.line.startswith("120 photos show 120 things; only equal files")
