"""`keras-vit push`, against a Hub in this process."""

import json
import re
import shutil

import keras
import numpy as np
import pytest
from fake_hub import READ_TOKEN

import keras_vit
from keras_vit.opening import open_predictor
from makers import write_picture

NAME = "owner/pets"
FILES = {
    *("README.md", "classes.txt", "config.json", "description.json", "history.csv"),
    *("metadata.json", "model.weights.h5", "recipe.json"),
}
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 3)).astype("float32")


@pytest.fixture
def pets(tiny, tmp_path):
    """The folder of a classifier with files that stay at home: photos, names of data, a state."""
    folder = shutil.copytree(tiny, tmp_path / "pets")
    write_picture(folder / "samples" / "00.png", np.full((8, 8, 3), 7))
    for name in ("split.npz", "report.html"):
        (folder / name).write_bytes(b"private")
    return folder


def pushed(hub, kind="model"):
    files = dict(hub.repositories[kind, NAME].files)
    assert files.pop(".gitattributes") == b""
    return files


def test_a_dry_run_lists_every_file_with_its_size_and_asks_nobody(hub, command, pets, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    outcome = command("push", pets, NAME, "--private", "--dry-run")
    assert outcome.code == 0, outcome
    listed = dict(re.findall(r"^(\S+)\s+([\d,]+) bytes$", outcome.out, re.M))
    assert listed.keys() == FILES
    assert f"{NAME} (private)" in outcome.out
    total = sum(int(size.replace(",", "")) for size in listed.values())
    assert re.search(rf"^8 files\s+{total:,} bytes$", outcome.out, re.M)
    assert hub.requests == []


def test_a_license_that_forbids_commercial_use_is_printed_before_the_push(command, pets):
    description = json.loads((pets / "description.json").read_text())
    description["license"] = "cc-by-nc-4.0"
    (pets / "description.json").write_text(json.dumps(description))
    outcome = command("push", pets, NAME, "--dry-run")
    line = "License of the weights: cc-by-nc-4.0, which forbids commercial use."
    assert line in outcome.out


def test_a_push_writes_the_files_of_the_folder_and_names_its_commit(hub, command, pets):
    outcome = command("push", pets, NAME)
    assert outcome.code == 0, outcome
    files = pushed(hub)
    assert files.keys() == FILES
    assert files["README.md"].startswith(b"---\n")
    assert b"THIS FOLDER" not in files["README.md"]
    assert f"/{NAME}/commit/{hub.repositories['model', NAME].refs['main']}" in outcome.out


def test_a_pushed_folder_is_read_by_its_name(hub, command, pets):
    assert command("push", pets, NAME).code == 0
    expected = open_predictor(pets).model(IMAGES)
    classifier = keras_vit.load_classifier(f"hf:{NAME}")
    np.testing.assert_array_equal(classifier.model(IMAGES), expected)
    assert classifier.class_names == ("blue", "green", "red")
    # Keras alone downloads all files of the repository.
    model = keras.saving.load_model(f"hf://{NAME}")
    np.testing.assert_array_equal(model(IMAGES), expected)


def test_files_that_are_there_are_not_pushed_again(hub, command, pets):
    assert command("push", pets, NAME).code == 0
    before = len(hub.requests)
    assert command("push", pets, NAME).code == 0
    assert not [line for line in hub.requests[before:] if line.startswith("PUT")]


def test_files_of_an_earlier_push_are_replaced_and_no_others(hub, command, pets):
    assert command("push", pets, NAME).code == 0
    files = {**hub.repositories["model", NAME].files, "LICENSE": b"mine"}
    hub.repositories["model", NAME].commit({**files, "model.safetensors": b"read before the rest"})
    outcome = command("push", pets, NAME)
    assert outcome.code == 0, outcome
    files = pushed(hub)
    assert files.keys() == FILES | {"LICENSE"}
    card = files["README.md"].decode()
    assert "library_name: keras\n" in card
    assert f'keras_vit.load_classifier("hf:{NAME}")' in card
    assert f'keras.saving.load_model("hf://{NAME}")' in card


def test_the_card_has_what_calibration_found(hub, command):
    outcome = command("push", "vit_mini4_cifar10", NAME)
    assert outcome.code == 0, outcome
    card = pushed(hub)["README.md"].decode()
    assert "with 95% confidence at most 5.0% of the answers are wrong" in card
    assert card.count("license: apache-2.0") == 1
    assert "\n# ViT-Mini/4, 10 classes\n" in card


@pytest.fixture
def finetune(command, colors, tmp_path):
    """Returns a function that trains for two steps with some flags; gives its outcome."""
    given = ("--image-size", "8", "--steps", "2", "--batch-size", "4", "--accumulate", "1")
    output = ("--output", tmp_path / "run", "--holdout", "0")
    return lambda *flags: command("finetune", "--data", colors, *given, *output, *flags)


@pytest.mark.parametrize("flag", ["--weights", "--teacher"])
def test_a_dry_run_downloads_nothing(flag, hub, command, finetune, pets):
    assert command("push", pets, NAME).code == 0
    before = list(hub.requests)
    weights = () if flag == "--weights" else ("--weights", pets)
    outcome = finetune(*weights, flag, f"hf:{NAME}@main", "--dry-run")
    assert outcome.code == 0, outcome
    assert f"hf:{NAME}@main would be downloaded. A dry run fetches nothing" in outcome.out
    assert hub.requests == before


@pytest.fixture
def tuned(command, finetune, pets, tmp_path):
    """The folder of a run from a name of the Hub."""
    assert command("push", pets, NAME).code == 0
    outcome = finetune("--weights", f"hf:{NAME}", "--samples", "none")
    assert outcome.code == 0, outcome
    return tmp_path / "run"


def test_training_starts_from_a_name_whose_commit_and_card_are_kept(hub, command, tuned, tmp_path):
    recipe = json.loads((tuned / "recipe.json").read_text())
    weights = f"hf:{NAME}@{hub.repositories['model', NAME].refs['main']}"
    assert recipe["settings"]["weights"] == weights
    assert recipe["description"]["origins"]["weights"] == weights
    assert command("push", tuned, "owner/tuned").code == 0
    card = hub.repositories["model", "owner/tuned"].files["README.md"].decode()
    assert f"base_model: {NAME}\n" in card
    assert "95% interval" in card
    assert str(tmp_path) not in card


def test_what_cannot_be_pushed_makes_no_repository(hub, refused, pets, tmp_path, monkeypatch):
    assert "OWNER/NAME. Received: pets" in refused("push", pets, "pets")
    assert "A classifier's folder" in refused("push", tmp_path, NAME)
    monkeypatch.setenv("HF_TOKEN", READ_TOKEN)
    assert "the token has no rights" in refused("push", pets, NAME)
    monkeypatch.delenv("HF_TOKEN")
    assert "`hf auth login`, or set HF_TOKEN" in refused("push", pets, NAME)
    assert not hub.repositories


def test_a_push_that_breaks_off_leaves_no_commit(hub, refused, pets):
    hub.broken["upload"] = 1
    assert f"{NAME} cannot be pushed: the token" in refused("push", pets, NAME)
    assert pushed(hub) == {}  # The repository was made, and has no commit of ours.


def test_a_public_repository_is_not_made_private(hub, refused, command, pets):
    assert command("push", pets, NAME).code == 0
    line = refused("push", pets, NAME, "--private")
    assert "must be private" in line


def test_a_hub_that_cannot_be_reached_is_a_line(hub, refused, pets):
    hub.close()
    line = refused("push", pets, NAME)
    assert f"{NAME} cannot be pushed: Hugging Face" in line


def test_a_link_out_of_the_folder_is_not_pushed(hub, refused, pets, tmp_path):
    (tmp_path / "key.pem").write_text("private")
    (pets / "README.md").unlink()
    (pets / "README.md").symlink_to("../key.pem")
    assert "pets/README.md, a link" in refused("push", pets, NAME)
    assert hub.requests == []


def test_a_classifier_in_memory_is_pushed_as_its_model_is_now(hub, pets):
    classifier = keras_vit.load_classifier(pets)
    classifier.model.get_layer("predictions").bias.assign([1.0, 2.0, 3.0])
    done = keras_vit.push(classifier, NAME, log=None)
    assert done.sizes.keys() == {*FILES} == pushed(hub).keys()
    again = keras_vit.load_classifier(f"hf:{NAME}").model.get_layer("predictions").bias
    np.testing.assert_array_equal(again, [1.0, 2.0, 3.0])


def test_a_file_of_keras_is_pushed_as_a_classifier(hub, pets):
    keras_vit.load_classifier(pets).model.save(pets.parent / "alone.keras")
    done = keras_vit.push(pets.parent / "alone.keras", NAME, dry_run=True, log=None)
    assert {"model.weights.h5", "classes.txt", "README.md"} <= done.sizes.keys()
