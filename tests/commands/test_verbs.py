"""The words of the shell as functions: each does what its command does, with the same numbers."""

import csv
import dataclasses
import inspect
import json
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest

import keras_vit
from keras_vit.command_line import COMMANDS, command_type
from keras_vit.commands.as_functions import VERBS, signature_of
from keras_vit.export.check import ExportReport, SignatureCheck
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.run.finetune import Finished
from keras_vit.training.trust.check_report import CheckReport, Finding
from keras_vit.utils.fields import flat_fields
from makers import smooth_picture, tiny_config, write_picture

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A run of a few steps: the flags, and the same as keyword arguments.
FLAGS = [
    *("--model", "ViT-Ti/16", "--weights", "none", "--image-size", "8", "--steps", "4"),
    *("--batch-size", "6", "--accumulate", "1", "--learning-rate", "0.1"),
    *("--validation", "0.2", "--samples", "none"),
]
ARGUMENTS = {
    "model": "ViT-Ti/16",
    "weights": None,
    "image_size": 8,
    "steps": 4,
    "batch_size": 6,
    "accumulate": 1,
    "learning_rate": 0.1,
    "validation": 0.2,
    "samples": "none",
}


@pytest.fixture(scope="module", autouse=True)
def _small():
    """Makes ViT-Ti/16 a model that trains in a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(keras_vit.configs.MODELS, "ViT-Ti/16", tiny_config())
        yield


def test_the_verbs_need_neither_tensorflow_nor_keras_to_be_looked_at():
    program = (
        "import sys, keras_vit\n"
        f"for name in {list(VERBS)}: getattr(keras_vit, name)\n"
        "print([name for name in ('keras', 'numpy', 'tensorflow') if name in sys.modules])"
    )
    command = [sys.executable, "-P", "-c", program]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_is_a_function_of_its_command_with_its_options(name):
    function, command = getattr(keras_vit, name), command_type(name.replace("_", "-"))
    assert VERBS[name].command is command
    fields = {field.name for field, *_ in flat_fields(command)}
    shell_only = {"coordinator", "processes", "process", *VERBS[name].shell_only}
    own = set(inspect.signature(function).parameters)
    assert fields - shell_only <= own
    assert own - fields <= {"log", "callbacks", "class_names", "command", "test"}
    assert function.__doc__.startswith(COMMANDS[name.replace("_", "-")])


def test_only_arguments_by_place_come_without_a_name():
    for name, verb in VERBS.items():
        parameters = inspect.signature(getattr(keras_vit, name)).parameters.values()
        places = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        assert places == list(verb.by_place)


def test_help_shows_the_arguments_with_their_texts_and_no_exit_code():
    text = keras_vit.check.__doc__
    assert "As `keras-vit check`; docs/check.md shows it." in text
    assert re.search(r"batch_size: images at once \(default: 32\)", text)
    assert "xit code" not in text


def test_the_stub_is_what_the_commands_say():
    program = runpy.run_path(str(ROOT / "docs" / "verbs_stub.py"))
    assert program["STUB"].read_text() == program["write"](), "Run python docs/verbs_stub.py"


# Each line with `# error` is refused by a type checker, and no other.
CALLS = """
import pathlib
import numpy as np
import keras_vit

images, labels = np.zeros((4, 8, 8, 3), "uint8"), np.zeros(4, int)
done = keras_vit.finetune("photos", "runs/photos", epochs=3, optimizer="adam")
print(done.folder / "model.keras", done.report.summary if done.report else "")
keras_vit.finetune({"train": (images, labels)}, pathlib.Path("runs"), log=None)
report = keras_vit.check("photos", image_size=(48, 64), exclude=["a.jpg"])
print(report.written, report.exceeded())
keras_vit.evaluate("runs/photos", "photos", split="test")
arrays, skipped = keras_vit.embed("runs/photos", ["a.jpg", pathlib.Path("b.jpg")], "out.npz")
print(keras_vit.push("runs/photos", "me/photos", dry_run=True).sizes["README.md"])
keras_vit.finetune("photos", "runs/photos", lr=0.1)  # error: call-arg
keras_vit.finetune("photos", "runs/photos", epochs="3")  # error: arg-type
keras_vit.finetune("photos", "runs/photos", optimizer="rmsprop")  # error: arg-type
keras_vit.finetune("photos")  # error: call-arg
keras_vit.embed("runs/photos", "a.jpg", "out.npz", "cifar10")  # error: call-arg
keras_vit.check("photos").no_such  # error: attr-defined
"""


def test_a_type_checker_takes_right_calls_and_refuses_wrong_ones(tmp_path):
    (tmp_path / "calls.py").write_text(CALLS.lstrip())
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "calls.py"]
    paths = f"{tmp_path / 'packages'}"
    (tmp_path / "packages").mkdir()
    shutil.copytree(ROOT / "keras_vit", tmp_path / "packages" / "keras_vit",
                    ignore=shutil.ignore_patterns("weights", "__pycache__"))  # fmt: skip
    for folder in ("training", "export"):  # In the shape of the installed package.
        shutil.copytree(ROOT / folder, tmp_path / "packages" / "keras_vit" / folder,
                        ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
    done = subprocess.run(
        [*command, "--follow-imports", "silent", "--cache-dir", tmp_path / "cache"],
        cwd=tmp_path,
        env={"PATH": "", "MYPYPATH": paths},
        capture_output=True,
        text=True,
    )
    found = re.findall(r"^calls\.py:(\d+): error: .*\[([a-z-]+)\]", done.stdout, re.M)
    lines = enumerate(CALLS.lstrip().splitlines(), 1)
    wrong = [(str(line), text.split("# error: ")[1]) for line, text in lines if "# error" in text]
    assert found == wrong, done.stdout


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("lr", "lr is called learning_rate here"),
        ("num_epochs", "num_epochs is called epochs here"),
        ("num_train_epochs", "num_train_epochs is called epochs here"),
        ("imgsz", "imgsz is called image_size here"),
        ("dropout", "dropout is called dropout_rate here"),
        ("warmup_epochs", "warmup_epochs: here warmup_steps, in steps"),
        ("verbose", "verbose: here log, a function that receives the lines"),
        ("epoch", "The nearest: epochs"),
        ("zzz", "zzz is none of those that help() lists"),
    ],
)
def test_a_wrong_argument_is_answered_in_one_line(name, answer):
    with pytest.raises(TypeError) as error:
        keras_vit.finetune("photos", "runs/photos", **{name: 1})
    text = str(error.value)
    assert text.startswith(f"keras_vit.finetune has no argument {name}. {answer}")
    assert "\n" not in text


def test_batch_is_a_batch_size_in_every_verb_that_has_one():
    with pytest.raises(TypeError, match="batch is called batch_size"):
        keras_vit.evaluate("model", "photos", batch=3)
    with pytest.raises(TypeError, match="no argument lr"):
        keras_vit.evaluate("model", "photos", lr=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": "3"}, r"float \| None.*epochs='3'"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"steps": 0}, "steps=0"),
        ({"optimizer": "rmsprop"}, "optimizer must"),
        ({"image_size": "384"}, r"image_size .*int \| tuple\[int, int\] \| None"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(arguments, message):
    with pytest.raises(ValueError, match=message):
        keras_vit.finetune("photos", "runs/photos", **arguments)


def test_a_missing_argument_is_named_with_those_by_place():
    with pytest.raises(TypeError, match=r"'output'.*\(data, output\)"):
        keras_vit.finetune("photos")


# A run, by the command and by the function.


@pytest.fixture(scope="module")
def runs(command, colors, once):
    """The folders of the same run by the command and by the function, and what each returned."""

    def make(folder):
        outcome = command("finetune", colors, *FLAGS, "--output", folder / "command")
        assert outcome.code == 0, outcome.err
        lines = []
        done = keras_vit.finetune(colors, folder / "function", **ARGUMENTS, log=lines.append)
        return folder, outcome, lines, done.report.count, done.classifier.class_names

    return once("runs_of_verbs", make)


def test_finetune_gives_the_same_report_and_weights_as_the_command(runs):
    folder, _, _, count, names = runs
    assert (count, names) == (6, ("blue", "green", "red"))
    recipes = [json.loads((folder / run / "recipe.json").read_text())
               for run in ("command", "function")]  # fmt: skip
    by_command, by_function = (
        keras_vit.load_classifier(folder / run).model.get_weights()
        for run in ("command", "function")
    )
    assert all(map(np.array_equal, by_command, by_function))
    assert recipes[0]["settings"] == recipes[1]["settings"]
    assert recipes[0]["data"] == recipes[1]["data"]


def test_log_receives_the_lines_that_the_command_prints(runs):
    folder, outcome, lines, *_ = runs
    printed = outcome.out.replace(str(folder / "command"), "RUN").splitlines()
    received = "\n".join(lines).replace(str(folder / "function"), "RUN").splitlines()
    different = {*printed} ^ {*received}
    assert len(printed) > 10
    assert all(line.split()[0] == "next" for line in different), different


def test_a_run_on_arrays_with_log_none_shows_neither_lines_nor_progress(tmp_path, capfd):
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3), "uint8")
    arrays, names = (images, np.arange(30) % 2), ("a", "b")
    given = {**ARGUMENTS, "class_names": names, "strategy": "cpu"}
    done = keras_vit.finetune(arrays, tmp_path / "silent", **given, log=None)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "train" not in shown.err
    assert done.classifier.class_names == names


def test_a_data_spec_is_data_too(colors, tmp_path):
    given = {**ARGUMENTS, "log": None}
    spec = DataSpec(colors / "train", holdout=0.25)
    done = keras_vit.finetune(spec, tmp_path / "spec", **given)
    assert done.report.count == 3
    with pytest.raises(ValueError, match="data options.*: holdout"):
        keras_vit.finetune(spec, tmp_path / "twice", holdout=0.5, **given)


REPORTS = {"evaluate": {}, "few_shot": {"shots": [1, 4], "seeds": (0, 1)}}


@pytest.fixture(scope="module")
def reports(tiny, colors):
    """By verb, its report on the folder of a classifier, and the lines before it."""
    done = {}
    for name, options in REPORTS.items():
        lines = []
        report = getattr(keras_vit, name)(tiny, colors, log=lines.append, **options)
        done[name] = report, lines
    return done


@pytest.fixture(scope="module")
def compared(tiny, colors):
    """A classifier compared with itself."""
    return keras_vit.compare(tiny, tiny, colors, gate="agreement > 20%", log=None)


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_the_one_that_the_command_prints(command, tiny, colors, reports, name):
    (report, lines), options = reports[name], REPORTS[name]
    flags = [f"--{key}" if value is None else str(value)
             for key, values in options.items() for value in (None, *values)]  # fmt: skip
    outcome = command(name.replace("_", "-"), tiny, "--data", colors, *flags)
    assert outcome.code == 0, outcome.err
    printed = outcome.out.partition("\nnext ")[0].splitlines()
    assert [*"\n".join(lines).splitlines(), *str(report).splitlines()] == printed


def test_evaluate_writes_the_files_of_the_command_and_returns_the_report(tiny, colors, tmp_path):
    report = keras_vit.evaluate(tiny, colors, output=tmp_path / "out", log=None)
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["metrics"]["top_1"] == pytest.approx(report.top_1)
    assert (tmp_path / "out" / "report.html").is_file()


def test_check_finds_what_the_command_finds(command, tmp_path):
    rng, photos = np.random.default_rng(0), tmp_path / "photos"
    for number in range(24):
        name = ("blue", "red")[number % 2]
        pixels = 0.4 * np.asarray(smooth_picture(rng, (32, 32), (9, 9)))
        pixels[..., 2 if name == "blue" else 0] += 150
        write_picture(photos / name / f"{number}.png", pixels)
    shutil.copy(photos / "red" / "3.png", photos / "red" / "copy.png")
    weights = "r7_vit_nano8_cifar10"
    report = keras_vit.check(photos, weights=weights, output=tmp_path / "function", log=None)
    outcome = command("check", photos, "--weights", weights, "--output", tmp_path / "command")
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith(str(report))
    tables = [list(csv.reader((tmp_path / run / "findings.csv").open()))
              for run in ("command", "function")]  # fmt: skip
    assert tables[0] == tables[1]
    assert len(report.findings) == len(tables[0]) - 1 > 0


def test_compare_gives_the_lines_and_verdicts_of_the_command(command, tiny, colors, compared):
    outcome = command("compare", tiny, tiny, "--data", colors, "--gate", "agreement > 20%")
    assert [verdict.outcome for verdict in compared.verdicts] == ["holds"]
    assert (outcome.out, outcome.code) == (f"{compared}\n", compared.exit_code)


def test_embed_returns_the_arrays_that_the_command_writes(command, tiny, colors, tmp_path):
    images = sorted(colors.glob("test/*/*.png"))
    arrays, skipped = keras_vit.embed(tiny, images, tmp_path / "function.npz", log=None)
    outcome = command("embed", tiny, *images, "--output", tmp_path / "command.npz")
    assert (outcome.code, skipped) == (0, [])
    with np.load(tmp_path / "command.npz") as written:
        assert np.array_equal(arrays["features"], written["features"])
        assert [*arrays["names"]] == [*written["names"]]


def test_calibrate_gives_the_classifier_with_the_threshold_of_the_command(command, tmp_path):
    rng = np.random.default_rng(0)
    without, photos = tmp_path / "function", tmp_path / "photos"
    keras_vit.convert("r7_vit_nano8_cifar10", without)
    names = keras_vit.load_classifier(without).class_names
    pictures = [smooth_picture(rng, (32, 32), (6, 6)) for _ in range(90)]
    answers = keras_vit.load_classifier(without).predict(pictures)
    for number, (picture, answer) in enumerate(zip(pictures, answers, strict=True)):
        # Labels that the classifier gives, except for one of each class.
        name = names[number] if number < len(names) else answer.top[0][0]
        write_picture(photos / name / f"{number}.png", np.asarray(picture))
    shutil.copytree(without, tmp_path / "command")
    bounds = {"max_error": 0.3}
    lines = []
    calibrated = keras_vit.calibrate(without, photos, **bounds, log=lines.append)
    outcome = command("calibrate", tmp_path / "command", photos, "--max-error", 0.3)
    assert outcome.code == 0, outcome.err
    *printed, _, following = outcome.out.splitlines()
    assert "\n".join(lines).splitlines()[:-1] == printed
    assert following.startswith("next    keras-vit export ")
    weights = keras_vit.load_classifier(tmp_path / "command").model.get_weights()
    assert all(map(np.array_equal, weights, calibrated.model.get_weights()))
    assert isinstance(calibrated, keras_vit.Classifier)


def test_convert_returns_the_notes_that_the_command_prints(command, tiny, tmp_path):
    notes = keras_vit.convert(tiny, tmp_path / "function.npz")
    outcome = command("convert", tiny, tmp_path / "command.npz")
    assert outcome.out == "".join(f"note: {note}\n" for note in notes) + (
        f"{tmp_path / 'command.npz'}\n"
    )
    assert (tmp_path / "function.npz").read_bytes() == (tmp_path / "command.npz").read_bytes()


def test_verify_returns_the_report_that_the_command_prints(command, tiny, colors, tmp_path):
    photos = sorted(colors.glob("test/*/*.png"))
    keras_vit.export.onnx(tiny, tmp_path / "model.onnx", check_images=photos)
    report = keras_vit.verify(tmp_path / "model.onnx")
    outcome = command("verify", tmp_path / "model.onnx")
    timed = re.compile(r" +\d+\.\d+\b")  # Milliseconds differ.
    assert timed.sub("", outcome.out) == timed.sub("", f"{report}\n")


def test_push_returns_the_address_and_the_files(hub, tiny, capsys):
    listed = keras_vit.push(tiny, "owner/colors", dry_run=True, log=None)
    assert (listed.url, hub.requests) == (None, [])
    pushed = keras_vit.push(tiny, "owner/colors")
    files = hub.repositories["model", "owner/colors"].files
    assert {name: len(content) for name, content in files.items() if name in pushed.sizes} == (
        pushed.sizes
    )
    assert pushed.url.endswith(hub.repositories["model", "owner/colors"].refs["main"])
    assert capsys.readouterr().out.startswith("owner/colors (public)\n")


def test_pretrain_gives_the_weights_of_the_command(command, colors, tmp_path):
    arguments = {**ARGUMENTS, "log": None}
    del arguments["weights"]
    done = keras_vit.pretrain(colors, tmp_path / "function", **arguments)
    flags = [flag for flag in FLAGS if flag not in ("--weights", "none", "--samples")]
    words = ("pretrain", colors, *flags, "--samples", "none", "--output", tmp_path / "command")
    assert command(*words).code == 0
    by_command = keras_vit.load_classifier(tmp_path / "command").model.get_weights()
    assert all(map(np.array_equal, by_command, done.classifier.model.get_weights()))


def test_pretrain_without_labels_has_the_arguments_of_its_objective(colors, tmp_path):
    given = {name: ARGUMENTS[name] for name in ("model", "image_size", "steps", "batch_size")}
    options = {"objective": "masked-patches", "target": "downsized", "accumulate": 1, "log": None}
    done = keras_vit.pretrain(colors / "train", tmp_path / "body", **given, **options)
    assert done.classifier is None
    with pytest.raises(ValueError, match="target .*--objective masked-patches"):
        keras_vit.pretrain(colors, tmp_path / "other", target="patch")


def test_sweep_gives_the_table_of_the_command(command, colors, tmp_path):
    given = {name: value for name, value in ARGUMENTS.items() if name != "learning_rate"}
    rates = {"learning_rates": (0.1, 0.01), "seeds": (1,)}
    done = keras_vit.sweep(colors, tmp_path / "function", **given, **rates, log=None)
    flags = [flag for flag in FLAGS if flag not in ("--learning-rate", "0.1")]
    more = ("--learning-rates", 0.1, 0.01, "--seeds", 1, "--output", tmp_path / "command")
    outcome = command("sweep", colors, *flags, *more)
    assert outcome.code == 0, outcome.err
    assert f"\n{done}\n" in outcome.out


def test_the_table_of_the_page_is_the_table_of_the_verbs():
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `keras-vit ([\w-]+)` \| `keras_vit\.(\w+)\((.*?)\)` \| .*\]\((.*?)\)",
                      text, re.M)  # fmt: skip
    expected = [
        (name.replace("_", "-"), name, ", ".join(verb.by_place), verb.page)
        for name, verb in VERBS.items()
    ]
    assert rows == expected


def test_a_backend_that_a_verb_does_not_run_on_is_refused_by_name(monkeypatch, colors, tmp_path):
    import keras

    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(ValueError, match="keras_vit.finetune .*backend tensor"):
        keras_vit.finetune(colors, tmp_path / "out", log=None)


def test_the_signature_is_the_one_of_the_table():
    for name in VERBS:
        assert inspect.signature(getattr(keras_vit, name)) == signature_of(name)
        assert isinstance(getattr(keras_vit, name), types.FunctionType)
        assert dataclasses.is_dataclass(VERBS[name].command)


# A classifier in memory, where a path of one is taken.


@pytest.mark.parametrize("name", REPORTS)
def test_a_classifier_in_memory_is_evaluated_as_its_folder(tiny, colors, reports, name):
    verb, classifier = getattr(keras_vit, name), keras_vit.load_classifier(tiny)
    report = verb(classifier, colors, log=None, **REPORTS[name])
    assert str(report) == str(reports[name][0])


def test_what_evaluate_sees_of_a_classifier_is_its_model_now(tiny, colors):
    classifier = keras_vit.load_classifier(tiny)
    bias = classifier.model.get_layer("predictions").bias
    bias.assign([0.0, 0.0, 1000.0])  # Answers red always.
    report = keras_vit.evaluate(classifier, colors, log=None)
    assert set(report.given) == {2}
    bias.assign([0.0, 1000.0, 0.0])
    assert keras_vit.compare(tiny, classifier, colors, log=None).flips


def test_a_classifier_in_memory_is_compared_with_its_folder(tiny, colors):
    classifier = keras_vit.load_classifier(tiny)
    by_place = [keras_vit.compare(*pair, colors, log=None).flips
                for pair in ((classifier, tiny), (tiny, classifier))]  # fmt: skip
    assert by_place == [(), ()]


def test_a_classifier_in_memory_is_embedded_and_converted(tiny, colors, tmp_path):
    classifier = keras_vit.load_classifier(tiny)
    images = sorted(colors.glob("test/*/*.png"))
    expected, _ = keras_vit.embed(tiny, images, tmp_path / "folder.npz", log=None)
    found, _ = keras_vit.embed(classifier, images, tmp_path / "memory.npz", log=None)
    np.testing.assert_array_equal(found["features"], expected["features"])
    keras_vit.convert(classifier, tmp_path / "copy")
    weights = keras_vit.load_classifier(tmp_path / "copy").model.get_weights()
    assert all(map(np.array_equal, weights, classifier.model.get_weights()))


def test_a_classifier_has_its_size_and_facts(tiny, colors):
    classifier = keras_vit.load_classifier(tiny)
    with pytest.raises(ValueError, match="has its model, image size and facts.*: image_size"):
        keras_vit.evaluate(classifier, colors, image_size=16, log=None)


@pytest.mark.parametrize("argument", ["weights", "teacher"])
def test_a_run_needs_a_classifier_on_disk(tiny, argument):
    classifier = keras_vit.load_classifier(tiny)
    message = rf"{argument} must be on disk: first write it with classifier.save\(folder\)"
    with pytest.raises(ValueError, match=message):
        keras_vit.finetune("photos", "runs/photos", **{argument: classifier})


def test_verify_needs_an_export_on_disk(tiny):
    message = r"artefact must be on disk: first write it with classifier.export\(path\)"
    with pytest.raises(ValueError, match=message):
        keras_vit.verify(keras_vit.load_classifier(tiny))


@pytest.mark.parametrize("name", ["evaluate", "embed", "few_shot", "convert", "push"])
def test_what_is_no_classifier_is_named(name, colors, tmp_path):
    places = {"embed": (colors, tmp_path / "a.npz"), "push": ("a/b",), "convert": (tmp_path / "a",)}
    with pytest.raises(TypeError, match=r"must be a keras_vit.Classifier or .* Received: int"):
        getattr(keras_vit, name)(3, *places.get(name, (colors,)), log=None)


# What a notebook shows of a result on its last line.


def test_reports_are_short_in_a_notebook_and_whole_in_print(reports, compared):
    report, number = reports["evaluate"][0], compared.measures[0]
    assert repr(report) == f"<ClassificationReport: {report.summary}; print() shows all>"
    assert repr(compared).startswith(f"<Comparison: {number.name} {number} on 6 images; agree")
    assert "> 20%: holds; print() shows all>" in repr(compared)
    assert "images  6 (each once)" in str(report)
    assert str(compared).startswith("models")


def test_a_finished_run_is_short_in_a_notebook(reports):
    report, _ = reports["evaluate"]
    finished = Finished(pathlib.Path("runs/photos"), [{"step": "1"}], None, report=report)
    assert repr(finished).startswith(f"<Finished: runs/photos, {report.summary}; print(")
    without = Finished(pathlib.Path("runs/photos"), [], None)
    assert "runs/photos, no test images" in repr(without)


def test_findings_of_a_check_are_counted_in_a_notebook():
    findings = [
        Finding("leaks", 0, "", ""),
        Finding("leaks", 1, "", ""),
        Finding("copies", 2, "", ""),
    ]
    names = [f"{number}.png" for number in range(2000)]
    report = CheckReport(("a", "b"), names, names, names, np.zeros(2000, int), (0.5, 0.4, 0.6),
                         findings, (), (), ())  # fmt: skip
    assert repr(report) == (
        "<CheckReport: 2,000 photos of 2 classes; leaks: 2, copies: 1; print() shows all>"
    )
    assert "no findings" in repr(dataclasses.replace(report, findings=[]))


def test_an_export_is_short_in_a_notebook():
    check = SignatureCheck("serve", 0.96875, 1e-6, 1e-8, 20.0, 30.0)
    report = ExportReport("a.onnx", "onnx", 10_900_000, 32, (check,), ("a note " * 50,))
    assert repr(report) == (
        "<ExportReport: a.onnx, onnx, 10.90 MB; agreement 96.88% on 32 images; print() shows all>"
    )
    assert "Note: a note" in str(report)
