import fcntl
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import types

import numpy as np
import pytest

from keras_vit.opening import open_predictor
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.run.start import start
from keras_vit.training.settings import FineTuning, RunOptions
from keras_vit.utils.files import STATES, UNFINISHED
from keras_vit.utils.progress import ProgressBar
from makers import tiny_config

FAST = "--image-size 12 --batch-size 4 --accumulate 1 --steps 6 --learning-rate 0.05 --validation 0"


@pytest.fixture
def finetune(tiny, colors, tmp_path):
    """Returns a function that gives the arguments of a short run, with some others."""

    def arguments(*more, data=colors, weights=tiny):
        output = tmp_path / "runs" / "out"
        given = ["finetune", "--data", data, "--weights", weights, "--output", output]
        return [*given, *FAST.split(), *more]

    return arguments


def runs(folder):
    folder = folder / "runs"
    return sorted(os.listdir(folder)) if folder.exists() else []


@pytest.fixture(scope="module")
def run(command, refused, tiny, colors, tmp_path_factory):
    """A run that replaced a classifier, was stopped by Ctrl-C and resumed as printed."""
    folder = tmp_path_factory.mktemp("run")
    data = shutil.copytree(colors, folder / "data")
    (data / "train" / "red" / "empty.jpg").write_bytes(b"")
    (folder / "list.txt").write_text("train/red/0.png\ntrain/red/1.png\n")
    output = shutil.copytree(tiny, folder / "runs" / "out")
    arguments = ["finetune", "--data", data, "--weights", tiny, "--output", output, *FAST.split()]
    arguments += ["--exclude", folder / "list.txt"]
    line = refused(*arguments)
    update = ProgressBar.update

    def interrupt_at_3(self, n=1):
        if getattr(self, "unit", "") == " steps" and self.n + n == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return update(self, n)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProgressBar, "update", interrupt_at_3)
        stopped = command(*arguments, "--overwrite")
    between = runs(folder)
    resumed = command(*shlex.split(stopped.err.rpartition("Go on with: keras-vit ")[2]))
    return types.SimpleNamespace(
        folder=folder,
        output=output,
        refused=line,
        stopped=stopped,
        runs_when_stopped=between,
        resumed=resumed,
        recipe=json.loads((output / "recipe.json").read_text()),
    )


def test_an_existing_classifier_is_replaced_on_request_alone(run):
    assert "new or empty" in run.refused
    assert run.runs_when_stopped == ["out", "out.partial"]
    assert runs(run.folder) == ["out"]
    assert open_predictor(run.output).preprocessing.image_size == (12, 12)


def test_the_printed_command_resumes(run):
    assert run.stopped.code == 130
    assert run.resumed.code == 0, run.resumed.err
    assert "resumed" in run.resumed.out


def test_a_run_prints_what_it_trains_and_what_it_skips(run):
    for outcome in (run.stopped, run.resumed):
        assert "positions interpolated from 2x2 to 3x3 patches" in outcome.out
        assert "6 steps of 4 images: 24 images seen" in outcome.out
        assert "1 skipped" in outcome.out
    empty = run.folder / "data" / "train" / "red" / "empty.jpg"
    assert f"skipped {empty}: The file is empty." in run.resumed.out
    assert f"all skipped files are in {run.output / 'recipe.json'}" in run.resumed.out


def test_a_run_ends_with_its_result_its_page_and_the_next_commands(run, command, monkeypatch):
    monkeypatch.chdir(run.folder)
    *_, test, result, reference, written, page, predict, export = run.resumed.out.splitlines()
    assert test == "test    6 images"
    assert re.match(r"top-1   \S+%, \d of 6 \(95% interval \S+% to \S+%\)", result)
    assert re.match(r"reference  .*always \w+, the most frequent class: 33.3%", reference)
    assert written == f"written {run.output}"
    assert page == f"report  {run.output / 'report.html'}"
    for line in (predict, export):
        assert command(*shlex.split(line.removeprefix("next    keras-vit "))).code == 0


def test_the_skill_for_agents_names_the_files_of_a_run(run):
    text = (pathlib.Path(__file__).parents[2] / "skills" / "keras-vit" / "SKILL.md").read_text()
    (listed,) = re.findall(r"Writes the folder `runs/pets`: (.*?)\. Its last", text, re.S)
    named = {name.removesuffix("/") for name in re.findall(r"`(.*?)`", listed)}
    assert named == set(os.listdir(run.output))


def test_the_recipe_has_the_command_and_the_counts_of_images(run):
    assert run.recipe["skipped"] == [["train/red/empty.jpg", "The file is empty."]]
    assert run.recipe["command"].startswith("keras-vit ")
    counts = {"train": 10, "validation": 0, "calibration": 0, "test": 6, "skipped": 1}
    assert run.recipe["images"] == counts


def test_a_fine_tuned_classifier_is_evaluated_as_in_its_run(run, command, colors):
    evaluated = command("evaluate", run.output, "--data", run.folder / "data")
    assert f"top-1   {100 * run.recipe['test']['top_1']:.1f}%" in evaluated.out
    assert command("predict", run.output, colors / "test").code == 0


@pytest.fixture(scope="module")
def ended(command, tiny, colors, tmp_path_factory):
    """The arguments and the folder of a run that was killed when only its exit was left."""
    output = tmp_path_factory.mktemp("ended") / "out"
    arguments = ["finetune", "--data", colors, "--weights", tiny, "--output", output, *FAST.split()]
    assert command(*arguments).code == 0
    (output / STATES).mkdir()
    return arguments, output


@pytest.mark.parametrize("resumes", [False, True])
def test_the_command_of_a_run_that_has_ended_says_so_and_succeeds(ended, command, resumes):
    arguments, output = ended
    before = (output / "model.keras").stat().st_mtime_ns
    again = command(*(["finetune", "--output", output, "--resume"] if resumes else arguments))
    assert (again.code, again.err) == (0, "")
    assert (
        again.out
        == f"finished {output}, by this command; --overwrite trains again, as for new photos\n"
    )
    assert (output / "model.keras").stat().st_mtime_ns == before
    assert not (output / STATES).exists()


def test_the_command_of_a_run_is_refused_once_its_tables_have_other_lines(
    command, refused, tiny, colors, tmp_path
):
    listed = tmp_path / "exclude.txt"
    whole = f"{colors}/train/red/0.png\n"  # The record has it without its folders.
    listed.write_text(whole)
    arguments = ["finetune", "--data", colors, "--weights", tiny, "--exclude", listed]
    arguments += ["--output", tmp_path / "out", *FAST.split()]
    assert command(*arguments).code == 0
    assert command(*arguments).out.startswith("finished ")
    listed.write_text(f"{whole}train/red/1.png\n")
    assert "begun with other exclude" in refused(*arguments)
    (tmp_path / "out").rename(tmp_path / "out.partial")
    record = json.loads((tmp_path / "out.partial" / "recipe.json").read_text())
    (tmp_path / "out.partial" / UNFINISHED).parent.mkdir(exist_ok=True)
    record["command"] = shlex.join(["keras-vit", *map(str, arguments)])
    (tmp_path / "out.partial" / UNFINISHED).write_text(json.dumps(record))
    assert "begun with other exclude" in refused(*arguments)


@pytest.mark.parametrize("more", [["--steps", 7], ["--seed", 1]])
def test_another_command_does_not_take_a_finished_folder_for_its_own(ended, refused, more):
    assert "new or empty" in refused(*ended[0], *more)


def test_a_finished_folder_is_not_that_of_another_job_or_folder(ended, refused, monkeypatch):
    arguments, output = ended
    assert "unfinished run" in refused("pretrain", "--output", output, "--resume")
    monkeypatch.chdir(output)  # Where a relative path would mean other data.
    assert "new or empty" in refused(*arguments)


def test_resume_needs_a_run_of_the_same_job_and_a_new_run_a_free_folder(
    refused, tiny, colors, tmp_path
):
    resume, partial = ("--output", tmp_path / "out", "--resume"), tmp_path / "out.partial"
    assert "unfinished run" in refused("finetune", *resume)
    recipe = partial / UNFINISHED
    recipe.parent.mkdir(parents=True)
    for content, message in (
        ("{", "must be JSON"),
        ("{}", "must be the recipe of a run"),
        ('{"job": "pretrain", "data": 0, "settings": 0, "command": 0}', "command must be str"),
        ('{"job": "pretrain", "data": {}, "settings": {}, "command": ""}', "started it, pretrain"),
    ):
        recipe.write_text(content)
        assert message in refused("finetune", *resume)
    new = ("finetune", "--data", colors, "--weights", tiny, "--output", tmp_path / "out")
    assert "--resume" in refused(*new)  # An unfinished run is not overwritten.
    recipe.unlink()
    with open(partial / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert f"{partial}, taken" in refused(*new)


def test_resume_refuses_flags_with_other_values_than_the_run_began_with(command, refused, tmp_path):
    recipe = tmp_path / "out.partial" / UNFINISHED
    recipe.parent.mkdir(parents=True)
    settings = FineTuning(steps=4, learning_rate=0.01, image_size=8)
    content = {
        "job": "finetune",
        "command": "keras-vit finetune",
        "data": DataSpec("photos", exclude=["a.jpg"], split_seed=0).to_json(),
        "settings": {**settings.to_json(), "weights": "hf:owner/name@" + 40 * "0"},
        "facts": {"epochs": {"value": 3.0, "from": "4 steps"}},
    }
    recipe.write_text(json.dumps(content))
    resume = ("finetune", "--output", tmp_path / "out", "--resume")
    for flags, message in (
        (("--learning-rate", 0.03), "--learning-rate 0.03, begun with 0.01"),  # The default.
        (("--data", "other"), "--data other, begun with photos"),
        (("--weights", "hf:owner/other"), "--weights hf:owner/other, begun with hf:owner/name@"),
        (("--epochs", 4), "--epochs 4.0, begun with 3.0"),
    ):
        line = refused(*resume, *flags)
        assert "A resumed run" in line
        assert message in line
    started = start(
        DataSpec("photos", exclude=["a.jpg"]),
        RunOptions(tmp_path / "out", resume=True),
        FineTuning(learning_rate=0.01, image_size=8, weights="hf:owner/name"),
    )
    assert (started.settings.steps, started.data.split_seed) == (4, 0)
    same = ("--learning-rate", 0.01, "--data", "photos", "--image-size", 8)
    for length in ((), ("--epochs", 3), ("--steps", 4)):
        assert command(*resume, *same, *length, "--dry-run").code == 0
    assert json.loads(recipe.read_text()) == content


@pytest.mark.slow
def test_a_learning_rate_that_gives_nan_stops_and_keeps_the_last_good_weights(
    refused, finetune, tmp_path
):
    line = refused(*finetune("--learning-rate", 1e38, "--global-clipnorm", 0, "--head", "new"))
    assert "lower learning rate" in line
    (kept,) = re.findall(r"the last good checkpoint is (\S+\.npz)\.", line)
    with np.load(kept) as arrays:
        assert all(np.isfinite(values).all() for values in arrays.values() if values.dtype == "f4")
    assert runs(tmp_path) == ["out.partial"]


def test_a_class_that_cannot_be_written_is_refused_before_the_first_step(
    refused, finetune, tmp_path, colors
):
    data = shutil.copytree(colors, tmp_path / "data")
    for part in ("train", "test"):
        (data / part / "red").rename(data / part / "two\nlines")
    line = refused(*finetune(data=data))
    assert "Class names must" in line
    assert runs(tmp_path) == []


def test_without_a_network_the_file_and_its_address_are_in_the_error(
    refused, finetune, tmp_path, monkeypatch
):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    line = refused(*finetune("--model", "ViT-Ti/16", "--image-size", 32, weights="imagenet21k"))
    assert "fetch https://storage.googleapis.com/vit_models/" in line
    assert ".npz" in line
    assert runs(tmp_path) == []


def test_a_dry_run_prints_the_recipe_and_writes_nothing(command, finetune, tmp_path):
    done = command(*finetune("--recipe", "CIFAR-10", "--dry-run"))
    lines = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert lines["recipe"].startswith("CIFAR-10 (paper, Table 4")
    # What is given wins; the warm-up keeps its share.
    assert lines["steps"] == "6 steps of 4 images: 24 images seen, 2.0 epochs"
    assert (lines["learning_rate"], lines["warmup_steps"]) == ("0.05", "0")
    assert "GiB for 4 images at once" in lines["memory"]
    assert runs(tmp_path) == []


def test_a_dry_run_refuses_an_unknown_model(command, finetune):
    assert command(*finetune("--dry-run", "--model", "ViT-B/61")).code == 2


def test_resume_of_a_run_that_another_process_writes_is_refused(refused, colors, tmp_path):
    recipe = tmp_path / "out.partial" / UNFINISHED
    recipe.parent.mkdir(parents=True)
    settings = FineTuning(model=tiny_config(), weights=None, image_size=8, steps=2)
    content = {"job": "finetune", "command": "", "data": DataSpec(str(colors)).to_json()}
    recipe.write_text(json.dumps({**content, "settings": settings.to_json()}))
    before = sorted(recipe.parents[1].rglob("*"))
    with open(tmp_path / "out.partial" / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        line = refused("finetune", "--output", tmp_path / "out", "--resume")
    assert "Only one run" in line
    (tmp_path / "out.partial" / ".lock").unlink()
    assert sorted(recipe.parents[1].rglob("*")) == before
