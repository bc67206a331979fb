"""Installs a wheel in a scratch environment, imports every module, runs the command and mypy.

Call: python tests/check_wheel.py dist/keras_vit_applications-*.whl
      python tests/check_wheel.py --release dist/*

The scratch environment borrows the dependencies of the environment that runs this file, but
not the package itself, and starts outside the repository. With --release each file, a wheel or
an sdist, is installed twice in an empty environment, with the lowest and with the newest versions
that setup.cfg allows, and only imports and the command are tried.
"""

import configparser
import os
import pathlib
import re
import site
import subprocess
import sys
import tempfile
import venv
import zipfile

IMPORT_ALL = """
import importlib, pkgutil, sys
import keras_vit
assert {scratch!r} in keras_vit.__file__, keras_vit.__file__
names = [module.name for module in pkgutil.walk_packages(keras_vit.__path__, "keras_vit.")]
without = []
for name in names:
    try:
        importlib.import_module(name)
    except ImportError as error:
        # The error of a module that needs an extra names it; JAX modules need the JAX backend.
        if error.name != "jax" and 'pip install "keras-vit-applications[' not in str(error):
            raise
        without.append(name)
missing = set({expected!r}) - set(names) - {{"keras_vit"}}
assert not missing, missing
print(f"{{len(names)}} modules import; {{without}} ask for an extra that is not installed")
"""

UV = (sys.executable, "-m", "uv")  # pip cannot choose the lowest versions.

VERSIONS = """
import importlib.metadata, re
named = [re.split("[<>=!~;\\[ ]", line)[0] for line in
         importlib.metadata.requires("keras-vit-applications") if "extra ==" not in line]
print(" ".join(f"{name} {importlib.metadata.version(name)}" for name in named))
"""

# The types that a type checker finds in a user's script. Keras has no py.typed, so mypy needs
# an option to read its types.
TYPED_SCRIPT = """
import keras_vit
from keras_vit.training import SGD, Trainer

reveal_type(keras_vit.build("ViT-B/16", classes=3))
reveal_type(keras_vit.ViTB16(weights=None))
reveal_type(keras_vit.load_classifier("runs/photos"))
reveal_type(keras_vit.describe("ViT-B/16").flops)
reveal_type(Trainer(keras_vit.build("ViT-B/16")))
reveal_type(SGD(0.1))
keras_vit.build(5)  # An error.
"""
REVEALED = [
    "keras.src.models.model.Model",
    "keras.src.models.model.Model",
    "keras_vit.classifier.Classifier",
    "int",
    "keras_vit.training.trainer.trainer.Trainer",
    "keras_vit.training.trainer.optimizer.SGD",
]


def main(wheel):
    """Exits with an error where the wheel lacks something."""
    expected = modules_of(wheel)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = os.path.realpath(scratch)
        python = install(wheel, scratch)
        check_imports(python, scratch, expected)
        check_types(python, pathlib.Path(scratch))
        print(f"{os.path.basename(wheel)} installs, imports, runs and has types")


def check_release(files):
    """Exits with an error where a file does not run with the lowest or the newest versions."""
    wheels = [file for file in files if file.endswith(".whl")]
    if len(wheels) != 1 or len(files) != 2:
        sys.exit(f"dist/ must hold one wheel and one sdist. Found: {files}")
    expected = modules_of(wheels[0])
    for file in files:
        for versions, lowest in (("lowest", with_floors()), ("newest", [])):
            with tempfile.TemporaryDirectory() as scratch:
                scratch = os.path.realpath(scratch)
                python = os.path.join(scratch, "bin", "python")
                subprocess.run([*UV, "venv", "-q", "-p", sys.executable, scratch], check=True)
                # lowest-direct: the lowest of what is named here, the newest of what those need.
                pip = [*UV, "pip", "install", "-q", "-p", python, "--resolution"]
                pip += ["lowest-direct" if lowest else "highest", *lowest]
                subprocess.run([*pip, os.path.abspath(file)], check=True)
                subprocess.run([python, "-c", VERSIONS], check=True, cwd=scratch)
                check_imports(python, scratch, expected)
            print(f"{os.path.basename(file)} installs and runs with the {versions} versions")


def with_floors():
    """Returns the requirements of setup.cfg that name a lowest version, and what they need."""
    settings = configparser.ConfigParser()
    settings.read(pathlib.Path(__file__).parents[1] / "setup.cfg")
    lines = settings["options"]["install_requires"].split("\n")
    floors = [line for line in lines if ">=" in line and not line.startswith("#")]
    return [*floors, "tensorflow-metadata>=1.17,<1.18"]  # For TensorFlow 2.19: see the extra tpu.


def modules_of(wheel):
    """Returns the names of all modules in a wheel; exits where it holds more than `keras_vit`."""
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if not name.split("/")[0].endswith("-info")]
    outside = {name.split("/")[0] for name in files} - {"keras_vit"}
    if outside:
        sys.exit(f"Only keras_vit may land in site-packages. Found: {sorted(outside)}")
    return [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in files
        if name.endswith(".py")
    ]


def check_imports(python, scratch, expected):
    """Exits with an error where a module is missing or fails, or the command does."""
    script = IMPORT_ALL.format(scratch=scratch, expected=expected)
    subprocess.run([python, "-c", script], check=True, cwd=scratch)
    command = os.path.join(scratch, "bin", "keras-vit")
    listing = subprocess.run(
        [command, "models"], check=True, cwd=scratch, capture_output=True, text=True
    ).stdout
    if "ViT-B/16" not in listing:
        sys.exit(f"keras-vit models must list ViT-B/16. Printed: {listing}")


def install(wheel, scratch):
    """Installs a wheel in a new environment with this one's dependencies; returns its Python."""
    venv.create(scratch, with_pip=False)
    python = os.path.join(scratch, "bin", "python")
    pip = [sys.executable, "-m", "pip", "--python", python]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", os.path.abspath(wheel)], check=True)
    dependencies = next(path for path in site.getsitepackages() if path.endswith("site-packages"))
    # A .pth would bring the editable install along; a plain path entry does not.
    packages = next(pathlib.Path(scratch).glob("lib/python*/site-packages"))
    (packages / "dependencies.pth").write_text(dependencies + "\n")
    return python


def check_types(python, folder):
    """Exits with an error where mypy sees other types than `REVEALED`."""
    script = folder / "script.py"
    script.write_text(TYPED_SCRIPT)
    seen = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-untyped-imports", "--python-executable", python]
        + ["--cache-dir", str(folder / "mypy_cache"), str(script)],
        cwd=folder,
        capture_output=True,
        text=True,
    ).stdout
    revealed = re.findall(r'Revealed type is "(.*)"', seen)
    if revealed != REVEALED or "[arg-type]" not in seen:
        sys.exit(f"mypy must reveal {REVEALED} and refuse build(5). Printed:\n{seen}")


if __name__ == "__main__":
    if sys.argv[1] == "--release":
        check_release(sys.argv[2:])
    else:
        main(sys.argv[1])
