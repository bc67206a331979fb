"""The two distributions: what each holds, and the runtime of exports without the other."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import runtime_modules

import keras_vit
from keras_vit import _installation
from makers import write_classes

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXPORT = ROOT / "tests" / "golden" / "export.onnx"

# Runs the command where only the folder of the runtime and other packages can be imported.
PROGRAM = """
import sys

class Absent:
    def find_spec(name, path=None, target=None):
        if name in ("tensorflow", "keras", "jax", "scipy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path = [Absent, *[f for f in sys.meta_path if "editable" not in str(f)]]
sys.path.insert(0, sys.argv.pop(1))
from keras_vit.command_line import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The modules of each distribution in a folder, as setup.py copies them."""
    folders = {}
    for part in ("runtime", "applications"):
        folders[part] = tmp_path_factory.mktemp(part)
        subprocess.run(
            [sys.executable, "setup.py", "-q", "build_py", "--build-lib", folders[part]],
            cwd=ROOT,
            env={**os.environ, "KERAS_VIT_DISTRIBUTION": part},
            check=True,
        )
    return folders


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return write_classes(folder, 2, {"red fox": (200, 80, 30), "lynx": 120}, suffix=".jpg")


def run(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(folder), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_list_of_the_runtime_is_what_its_commands_import():
    listed = runtime_modules.LIST.read_text().split()
    assert listed == runtime_modules.runtime_modules(), (
        "run: python tests/helpers/runtime_modules.py"
    )


def test_the_distributions_hold_every_module_once(built):
    runtime, applications = files_of(built["runtime"]), files_of(built["applications"])
    assert not runtime & applications
    held = {name.removesuffix(".py").replace("/", ".") for name in runtime | applications}
    assert {name.removesuffix(".__init__") for name in held} >= set(runtime_modules.modules())
    assert any("/weights/" in name for name in applications)
    assert not any("/weights/" in name for name in runtime)


def test_the_runtime_runs_an_export_without_the_rest(built, data, tmp_path):
    photo = next(data.rglob("*.jpg"))
    done = run(built["runtime"], "predict", EXPORT, photo, "--format", "json")
    assert done.returncode == 0, done.stderr
    (entry,) = json.loads(done.stdout)
    expected = keras_vit.export.load_artefact(EXPORT).predict(photo)[0].top
    assert [(e["class"], e["probability"]) for e in entry["top"]] == expected
    done = run(built["runtime"], "evaluate", EXPORT, "--data", data, "--output", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "new" / "metrics.json").read_text())["images"] == 4
    done = run(built["runtime"], "verify", EXPORT)
    assert done.returncode == 0, done.stderr
    assert "Golden samples: pixels equal" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("finetune", "--data", "photos"), "finetune is a command of the distribution keras-vit-a"),
        (("predict", "runs/pets", "photo.jpg"), "No such folder or file: runs/pets"),
        (("predict", "cifar10", "photo.jpg"), "and so the distribution keras-vit-applications"),
        (("evaluate", EXPORT, "--data", "tfds:mnist"), "and so the distribution keras-vit-appl"),
    ],
)
def test_what_needs_the_rest_says_so_in_one_line(built, arguments, message):
    done = run(built["runtime"], *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_help_lists_the_commands_of_the_runtime(built):
    listing = run(built["runtime"], "--help").stdout
    assert all(f"    {name} " in listing for name in runtime_modules.COMMANDS)
    assert "finetune" not in listing


def installed(folder, **requires):
    for name, lines in requires.items():
        (folder / f"{name}-0.1.0.dist-info").mkdir()
        (folder / f"{name}-0.1.0.dist-info" / "METADATA").write_text("\n".join(lines))
    _installation.check_installation.cache_clear()
    return str(folder)


def test_both_distributions_of_one_version_are_no_reason_for_a_warning(tmp_path, recwarn):
    needed = ["Requires-Dist: keras-vit-runtime==0.1.0"]
    folder = installed(tmp_path, keras_vit_applications=needed, keras_vit_runtime=[])
    _installation.check_installation(folder)
    assert not recwarn


@pytest.mark.parametrize("needed", [[], ["Requires-Dist: keras-vit-runtime==0.2.0"]])
def test_a_runtime_of_another_version_or_beside_all_of_it_is_named(tmp_path, needed):
    folder = installed(tmp_path, keras_vit_applications=needed, keras_vit_runtime=[])
    with pytest.warns(UserWarning, match="Remove both, pip uninstall -y keras-vit-applications k"):
        _installation.check_installation(folder)
