"""Photos that show one thing: each command by drawn, given and grouped parts."""

import csv
import hashlib
import shutil

import numpy as np
import pytest

import keras_vit
from keras_vit.training.data import DataSpec, open_source, things as search
from keras_vit.training.data.sources import with_things_among
from keras_vit.training.data.things import unit_numbers
from keras_vit.training.evaluation import classification, few_shot
from keras_vit.training.evaluation.measures import independent_images
from keras_vit.training.run.sweep_result import SweepResult
from keras_vit.training.trust import calibrated_classifier
from makers import tiny_config, write_exposures

THINGS, EXPOSURES = 30, 3
# Photos of things 0 to 5 are grouped by their exposure, others by their thing.
GROUPS = r"(?<=/[0-5]_)\d|(?<=/)(?:[6-9]|[12]\d)(?=_)"
FAST = "--steps 1 --batch-size 8 --accumulate 1 --image-size 8 --samples none --learning-rate 0.01"
HOW = ("drawn", "given", "grouped")


def thing_of(name):
    return int(name.rpartition("/")[2].split("_")[0])


def given_part(name):
    """The part in the table of the given parts."""
    thing, exposure = thing_of(name), int(name[-5])
    if thing >= 24 or (thing >= 20 and exposure == 0):
        return "calibration"
    return "test" if thing in (18, 19) or (thing < 10 and exposure == 2) else "train"


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """The names of 90 photos of 30 surfaces, each at three exposures, by their hash; a folder."""
    folder = tmp_path_factory.mktemp("exposures") / "photos"
    written = write_exposures(folder, THINGS, EXPOSURES)
    table = "".join(f"{name},{given_part(name)}\n" for name in written)
    (folder.parent / "split.csv").write_text(f"path,split\n{table}")
    return folder, {content_hash((folder / name).read_bytes()): name for name in written}


def content_hash(content):
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "little")


@pytest.fixture(scope="module")
def photos(names):
    return names[0]


@pytest.fixture(scope="module")
def flags(photos):
    """The flags of the parts."""
    return {
        "drawn": (),
        "given": ("--split", photos.parent / "split.csv"),
        "grouped": ("--group-by", GROUPS),
    }


@pytest.fixture(scope="module")
def recorded(names):
    """Returns a function from the folder of a run to the things of each part of its record."""

    def read(run):
        with np.load(run / "split.npz") as arrays:
            parts = {part: arrays[part] for part in ("train", "validation", "calibration", "test")}
        return {part: [thing_of(names[1][int(n)]) for n in each] for part, each in parts.items()}

    return read


@pytest.fixture(scope="module")
def runs(command, photos, flags, tiny, tmp_path_factory):
    """Runs of `finetune` by their parts: the folder and what was printed."""
    done = {}
    for how in HOW:
        output = tmp_path_factory.mktemp("runs") / how
        parts = ("--calibration", 0.35, "--validation", 0.2, *flags[how])
        words = ("--weights", tiny, "--output", output, *parts, *FAST.split())
        outcome = command("finetune", photos, *words)
        assert outcome.code == 0, outcome.err
        done[how] = output, one_line(outcome.out)
    return done


def one_line(text):
    return " ".join(text.split())


def crossing(parts):
    """How many things are in several parts, and photos of the last part that show new things."""
    *others, (_, last) = ((part, things) for part, things in parts.items() if things)
    sets = [{*things} for things in parts.values()]
    several = sum(sum(thing in each for each in sets) > 1 for thing in range(THINGS))
    trained = {thing for part, things in others if part != "calibration" for thing in things}
    return several, sum(thing not in trained for thing in last)


def line_of(several):
    """The line on things, by how many are in several parts."""
    if not several:
        return "90 photos show 30 things, kept together"
    return f"90 photos show 30 things, {several} of them in several parts: given parts and groups"


def check_parts(how, parts, printed):
    """Checks what is printed by the parts, and that no thing is in two drawn parts."""
    several, _ = crossing(parts)
    assert sum(map(len, parts.values())) == THINGS * EXPOSURES
    assert (several == 0) == (how == "drawn")
    assert line_of(several) in printed


def check_test(how, parts, printed):
    """Checks the second number of the test, of photos that show new things."""
    _, new = crossing(parts)
    if how == "drawn":
        assert "not trained on" not in printed
    elif new:
        assert f"{new} of them show things that were not trained on: " in printed
    else:
        assert "none of them shows a thing that was not trained on" in printed


@pytest.mark.parametrize("how", HOW)
def test_finetune(runs, recorded, how):
    output, printed = runs[how]
    check_parts(how, recorded(output), printed)
    check_test(how, recorded(output), printed)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
def test_pretrain(command, photos, flags, recorded, how, tmp_path, monkeypatch):
    monkeypatch.setitem(keras_vit.configs.MODELS, "ViT-Ti/16", tiny_config())
    words = ("--model", "ViT-Ti/16", "--output", tmp_path / "run", "--validation", 0.2)
    fast = FAST.replace(" --samples none", "").split()
    outcome = command("pretrain", photos, *words, *flags[how], *fast)
    assert outcome.code == 0, outcome.err
    check_parts(how, recorded(tmp_path / "run"), one_line(outcome.out))
    check_test(how, recorded(tmp_path / "run"), one_line(outcome.out))


@pytest.fixture(scope="module")
def sweeps(command, photos, flags, tiny, tmp_path_factory):
    """Sweeps by their parts: the folder and what was printed."""
    done = {}
    for how in HOW:
        output = tmp_path_factory.mktemp("sweeps") / how
        fast = FAST.partition(" --learning-rate")[0].split()
        words = ("--weights", tiny, "--output", output, "--validation", 0.2, *flags[how], *fast)
        rates = ("--learning-rates", 0.01, 0.02, "--seeds", 0)
        outcome = command("sweep", photos, *words, *rates)
        assert outcome.code == 0, outcome.err
        done[how] = output, one_line(outcome.out)
    return done


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
def test_sweep(sweeps, recorded, how):
    output, printed = sweeps[how]
    tested = recorded(output / "seeds" / "0")
    check_parts(how, tested, printed)
    _, new = crossing(tested)
    if how == "drawn":
        assert "were not trained on" not in printed
    else:
        assert f"right of the {new} test images of things that were not trained on" in printed


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
def test_the_development_part_of_a_sweep(sweeps, recorded, how):
    output, _ = sweeps[how]
    tried = recorded(output / "learning_rates" / "0.01")
    tested = recorded(output / "seeds" / "0")
    several, _ = crossing({"train": tried["train"], "validation": tried["validation"]})
    assert several == 0 or how == "grouped"
    assert sorted(tried["train"] + tried["validation"]) == sorted(tested["train"])


def test_a_sweep_says_that_copies_were_not_looked_for(tmp_path):
    done = SweepResult(0.1, {}, {0: 0.5}, tmp_path, "top_1", (0, 8), ignores_copies=True)
    assert "copies were not looked for (--copies ignore)" in str(done)


@pytest.mark.parametrize("how", HOW)
def test_few_shot(command, photos, flags, tiny, how, monkeypatch):
    sources, evaluate = [], few_shot.evaluate

    def evaluated(model, source, **options):
        sources.append(source)
        return evaluate(model, source, **options)

    monkeypatch.setattr(few_shot, "evaluate", evaluated)
    outcome = command("few-shot", tiny, "--data", photos, *flags[how], "--shots", 1, "--seeds", 0)
    assert outcome.code == 0, outcome.err
    parts = {part: [*map(thing_of, each.names)] for part, each in sources[0].splits.items()}
    parts = {part: parts[part] for part in ("train", "calibration", "test") if part in parts}
    check_parts(how, parts, one_line(outcome.out))
    _, new = crossing(parts)
    text = f"things {new} of the test images show things that are not among the images to choose"
    assert (text in one_line(outcome.out)) == (how != "drawn")


@pytest.mark.parametrize("how", HOW)
def test_records(command, photos, names, flags, how, tmp_path):
    outcome = command("records", photos, *flags[how], "--output", tmp_path / "records")
    assert outcome.code == 0, outcome.err
    source = open_source(f"tfrecords:{tmp_path / 'records'}")
    parts = {
        part: [thing_of(names[1][content_hash(image)]) for image, _ in examples.encoded()]
        for part, examples in source.splits.items()
    }
    parts = {part: parts[part] for part in ("train", "calibration", "test") if part in parts}
    check_parts(how, parts, one_line(outcome.out))
    _, new = crossing(parts)
    shown = len(parts["test"]) - new
    text = f"{shown} of the {len(parts['test'])} test images show things of which others"
    assert (text in outcome.out) == (how != "drawn")


@pytest.mark.parametrize("how", HOW)
def test_calibrate(command, photos, runs, recorded, how, tmp_path, monkeypatch):
    chosen, choose = [], calibrated_classifier.calibration_images

    def chosen_images(*arguments):
        chosen.append(choose(*arguments))
        return chosen[0]

    monkeypatch.setattr(calibrated_classifier, "calibration_images", chosen_images)
    run = shutil.copytree(runs[how][0], tmp_path / "run")
    outcome = command("calibrate", run, "--data", photos)
    assert outcome.code == 0, outcome.err
    # Each thing once: none is in both halves, whichever these are.
    things = [*map(thing_of, chosen[0].examples.names)]
    parts = recorded(run)
    new = [n for n in parts["calibration"] if n not in (*parts["train"], *parts["validation"])]
    assert len({*things}) == len(things)
    assert {*things} <= {*new}
    assert f"{len(new) - len(things)} of the {len(new)} calibration images do not count" in (
        outcome.out
    )


@pytest.mark.parametrize("how", HOW)
def test_evaluate_with_the_record(command, photos, runs, recorded, how):
    outcome = command("evaluate", runs[how][0], "--data", photos)
    assert outcome.code == 0, outcome.err
    check_test(how, recorded(runs[how][0]), one_line(outcome.out))


@pytest.mark.parametrize("how", HOW)
def test_evaluate_draws_the_parts_again(
    command, photos, runs, recorded, how, tmp_path, monkeypatch
):
    chosen, choose = [], classification.choose_images

    def chosen_images(*arguments, **options):
        chosen.append(choose(*arguments, **options))
        return chosen[0]

    monkeypatch.setattr(classification, "choose_images", chosen_images)
    run = shutil.copytree(runs[how][0], tmp_path / "run")
    (run / "split.npz").unlink()
    outcome = command("evaluate", run, "--data", photos)
    assert outcome.code == 0, outcome.err
    splits = chosen[0].source.splits
    drawn = {part: sorted(map(thing_of, each.names)) for part, each in splits.items()}
    before = recorded(runs[how][0])
    assert drawn["test"] == sorted(before["test"])
    assert drawn["calibration"] == sorted(before["calibration"])
    parts = {part: drawn[part] for part in ("train", "calibration", "test")}
    check_parts(how, parts, one_line(outcome.out))
    check_test(how, parts, one_line(outcome.out))


COUNTED = "things 30 photos show 10 things: the intervals count photos of one thing together"


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """The folder of 30 photos of 10 other surfaces, each at three exposures."""
    folder = tmp_path_factory.mktemp("others") / "photos"
    write_exposures(folder, 10, EXPOSURES)
    return folder


def test_compare_counts_things(command, runs, others):
    outcome = command("compare", runs["drawn"][0], runs["grouped"][0], "--data", others)
    assert outcome.code == 0, outcome.err
    assert COUNTED in one_line(outcome.out)


def test_compare_says_that_copies_were_not_looked_for(command, runs, others):
    pair = runs["drawn"][0], runs["grouped"][0]
    outcome = command("compare", *pair, "--data", others, "--copies", "ignore")
    assert "things copies were not looked for (--copies ignore)" in one_line(outcome.out)


def test_evaluate_counts_things_of_another_folder(command, runs, others):
    outcome = command("evaluate", runs["drawn"][0], "--data", others)
    assert COUNTED in one_line(outcome.out), outcome.err


def test_a_report_on_another_folder_has_the_things_as_units(runs, others):
    report = classification.evaluate_classifier(runs["drawn"][0], others)
    of_names = np.array([*map(thing_of, report.examples.names)])
    pairs = {*zip(report.units.tolist(), of_names.tolist(), strict=True)}
    assert len(pairs) == len({*of_names.tolist()}) < report.count
    assert report.independent == independent_images(report.right, of_names)


def test_evaluate_counts_photos_where_copies_are_ignored(command, runs, others):
    outcome = command("evaluate", runs["drawn"][0], "--data", others, "--copies", "ignore")
    assert "copies were not looked for (--copies ignore)" in one_line(outcome.out)
    assert "photos show" not in outcome.out


def test_evaluate_announces_a_long_search(command, runs, others, monkeypatch):
    monkeypatch.setattr(search, "_WORTH_A_LINE", 0)
    outcome = command("evaluate", runs["drawn"][0], "--data", others)
    assert "photos are compared with each other, which takes about" in outcome.err


def test_calibrate_counts_photos_where_copies_are_ignored(command, photos, runs, tmp_path):
    run = shutil.copytree(runs["drawn"][0], tmp_path / "run")
    outcome = command("calibrate", run, "--data", photos, "--copies", "ignore")
    assert "copies were not looked for (--copies ignore)" in outcome.out, outcome.err
    assert "do not count" not in outcome.out


def test_groups_of_images_that_are_not_tested_are_left_out(others):
    source = open_source(others, holdout=0.0, group_by=r"_(\d)")
    some = source.splits["train"].take(np.arange(8))
    found, lines = with_things_among([some], source, DataSpec(others))
    assert {*found.groups} == {*some.names}
    assert len(unit_numbers(some, found)) == 8
    assert "8 photos show" in lines[0]


@pytest.mark.parametrize("how", HOW)
def test_check(command, photos, flags, tiny, how, tmp_path):
    outcome = command(
        "check", photos, "--weights", tiny, *flags[how], "--output", tmp_path / "page"
    )
    assert outcome.code == 0, outcome.err
    with open(tmp_path / "page" / "groups.csv", newline="") as file:
        groups = {row["path"]: row["group"] for row in csv.DictReader(file)}
    of_things = {}
    for name, group in groups.items():
        of_things.setdefault(thing_of(name), set()).add(group)
    left_out = {group for found in of_things.values() for group in found}
    # Things 0 to 5 are joined by the groups of their exposures.
    assert len(left_out) == (25 if how == "grouped" else THINGS)
    assert all(len(found) == 1 for found in of_things.values())
    assert f"each of {len(left_out)} groups left out" in one_line(outcome.out)


def test_check_counts_what_crosses_given_parts(command, photos, flags, tiny, tmp_path):
    words = ("--weights", tiny, *flags["given"], "--output", tmp_path / "page")
    outcome = command("check", photos, *words)
    with open(tmp_path / "page" / "findings.csv", newline="") as file:
        leaks = sum(row["kind"] == "leaks" for row in csv.DictReader(file))
    assert leaks >= 14  # Things 0 to 9 and 20 to 23.
    assert f"{leaks} in different parts of the data" in one_line(outcome.out)
