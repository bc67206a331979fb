"""Installs a wheel in a scratch environment, imports every module, runs the command and mypy.

Call: python tests/check_wheel.py dist/keras_vit_applications-*.whl

The scratch environment borrows the dependencies of the environment that runs this file, but
not the package itself, and starts outside the repository.
"""

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
        # A module that needs an extra says which.
        if 'pip install "keras-vit-applications[' not in str(error):
            raise
        without.append(name)
missing = set({expected!r}) - set(names) - {{"keras_vit"}}
assert not missing, missing
print(f"{{len(names)}} modules import; {{without}} ask for an extra that is not installed")
"""

# What a type checker makes of a user's script. Keras has no py.typed, so mypy must be told to
# read its types.
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
    with zipfile.ZipFile(wheel) as archive:
        files = [name for name in archive.namelist() if not name.split("/")[0].endswith("-info")]
    outside = {name.split("/")[0] for name in files} - {"keras_vit"}
    outside = {name for name in outside if not name.endswith(".dist-info")}
    if outside:
        sys.exit(f"Only keras_vit may land in site-packages. Found: {sorted(outside)}")
    expected = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in files
        if name.endswith(".py")
    ]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = os.path.realpath(scratch)
        python = install(wheel, scratch)
        script = IMPORT_ALL.format(scratch=scratch, expected=expected)
        subprocess.run([python, "-c", script], check=True, cwd=scratch)
        command = os.path.join(scratch, "bin", "keras-vit")
        listing = subprocess.run(
            [command, "models"], check=True, cwd=scratch, capture_output=True, text=True
        ).stdout
        if "ViT-B/16" not in listing:
            sys.exit(f"keras-vit models must list ViT-B/16. Printed: {listing}")
        check_types(python, pathlib.Path(scratch))
        print(f"{os.path.basename(wheel)} installs, imports, runs and has types")


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
    """Exits with an error where mypy sees other types than those of `REVEALED`."""
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
    main(sys.argv[1])
