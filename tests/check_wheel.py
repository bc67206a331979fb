"""Installs the wheels in scratch environments, imports every module, runs the command and mypy.

Call: python tests/check_wheel.py dist/*.whl
      python tests/check_wheel.py --release dist/*

The scratch environment of both wheels borrows the dependencies of the environment that runs this
file, but not the package itself, and starts outside the repository. The one of keras-vit-runtime
borrows only what this wheel requires. With --release each file, a wheel or the sdist, is installed
twice in an empty environment, with the lowest and with the newest versions that setup.cfg allows,
and only imports and the command are tried; the runtime runs exports of three formats.
"""

import contextlib
import email
import importlib.metadata
import os
import pathlib
import re
import site
import subprocess
import sys
import tempfile
import venv
import zipfile

from packaging.requirements import Requirement

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXPORT = str(ROOT / "tests" / "golden" / "export.onnx")
RUNTIMES = ("tflite", "openvino")  # The extras that runtimes of exports need.
RUNTIME_MEGABYTES = 300  # At most, with all that it requires.

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
found = [d for d in importlib.metadata.distributions() if d.name.startswith("keras-vit-")]
named = {re.split("[<>=!~;\\[ ]", line)[0] for d in found for line in d.requires
         if "extra ==" not in line}
print(" ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(named)))
"""

WITHOUT_TENSORFLOW = """
import importlib.util
names = ("tensorflow", "keras", "keras_vit.layers")
found = [name for name in names if importlib.util.find_spec(name)]
assert not found, found
"""

PICTURE = """
import os, sys
from PIL import Image
os.makedirs(os.path.dirname(sys.argv[1]), exist_ok=True)
Image.linear_gradient("L").convert("RGB").save(sys.argv[1])
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


def main(wheels):
    """Exits with an error where the wheels lack something."""
    expected = [name for wheel in wheels for name in modules_of(wheel)]
    if doubled := {name for name in expected if expected.count(name) > 1}:
        sys.exit(f"The wheels must have no module in common. Found: {sorted(doubled)}")
    with tempfile.TemporaryDirectory() as scratch:
        scratch = os.path.realpath(scratch)
        python = install(wheels, scratch)
        check_imports(python, scratch, expected)
        check_types(python, pathlib.Path(scratch))
    print("Both wheels together install, import, run and have types")
    with tempfile.TemporaryDirectory() as scratch:
        (wheel,) = (wheel for wheel in wheels if is_runtime(wheel))
        python = install([wheel], scratch, only=required_by(wheel))
        check_runtime(python, scratch, [EXPORT])
    print(f"{os.path.basename(wheel)} runs with what it requires alone")


def check_release(files):
    """Exits with an error where a file does not run with the lowest or the newest versions."""
    runtime = [file for file in files if is_runtime(file)]
    others = sorted(set(files) - set(runtime))
    if len(runtime) != 1 or [file.endswith(".whl") for file in others] != [True, False]:
        sys.exit(f"dist/ must hold two wheels and one sdist. Found: {files}")
    expected = [name for file in files if file.endswith(".whl") for name in modules_of(file)]
    with tempfile.TemporaryDirectory() as folder:
        exports = write_exports(folder)
        for lowest in (True, False):
            with environment(runtime[0], lowest) as (python, scratch):
                size = installed_bytes(scratch) / 1e6
                print(f"keras-vit-runtime and what it requires: {size:.0f} MB")
                if size > RUNTIME_MEGABYTES:
                    sys.exit(f"They must be at most {RUNTIME_MEGABYTES} MB.")
                check_runtime(python, scratch, exports[:1])
            with environment(runtime[0], lowest, extras=RUNTIMES) as (python, scratch):
                check_runtime(python, scratch, exports)
    for file in others:
        for lowest in (True, False):
            with environment(file, lowest, others[0]) as (python, scratch):
                check_imports(python, scratch, expected)


@contextlib.contextmanager
def environment(file, lowest, described_by=None, extras=()):
    """Yields the Python and the folder of an environment with one file of dist/ installed.

    Args:
        file: The wheel or the sdist; another distribution that it requires is taken from its
            folder.
        lowest: Whether the lowest versions are installed, else the newest.
        described_by: The wheel with its requirements, if it is none.
        extras: Extras to install.
    """
    with tempfile.TemporaryDirectory() as scratch:
        scratch = os.path.realpath(scratch)
        python = os.path.join(scratch, "bin", "python")
        subprocess.run([*UV, "venv", "-q", "-p", sys.executable, scratch], check=True)
        # lowest-direct: the lowest of what is named here, the newest of what those need.
        pip = [*UV, "pip", "install", "-q", "-p", python, "--resolution"]
        pip += ["lowest-direct", *floors(described_by or file, extras)] if lowest else ["highest"]
        pip += ["--find-links", os.path.dirname(os.path.abspath(file))]
        named = f"[{','.join(extras)}]" if extras else ""
        subprocess.run([*pip, os.path.abspath(file) + named], check=True)
        subprocess.run([python, "-c", VERSIONS], check=True, cwd=scratch)
        yield python, scratch
    versions = "lowest" if lowest else "newest"
    print(f"{os.path.basename(file)}{named} installs and runs with the {versions} versions")


def is_runtime(file):
    """Returns whether a file is a wheel of keras-vit-runtime."""
    return os.path.basename(file).startswith("keras_vit_runtime-")


def requirements_in(wheel, extras=("",)):
    """Returns the requirements of a wheel, for some of its extras; "" is none."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    return [line for line in map(Requirement, lines) if applies(line, extras)]


def applies(requirement, extras=("",)):
    """Returns whether a requirement counts here."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


def floors(wheel, extras=()):
    """Returns the requirements of a wheel that name a lowest version, and what they need."""
    found = [f"{line.name}{line.specifier}" for line in requirements_in(wheel, ("", *extras))]
    found = [line for line in found if ">=" in line]
    if any(line.startswith("tensorflow>") for line in found):
        found.append("tensorflow-metadata>=1.17,<1.18")  # See the extra tpu.
    return found


def required_by(wheel):
    """Returns the files and folders of all that a wheel requires, in this environment."""
    found, done = set(), set()
    waiting = [line.name for line in requirements_in(wheel)]
    while waiting:
        name = waiting.pop()
        if name in done:
            continue
        done.add(name)
        distribution = importlib.metadata.distribution(name)
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}
        found |= {pathlib.Path(distribution.locate_file(top)) for top in tops}
        lines = map(Requirement, distribution.requires or ())
        waiting += [line.name for line in lines if applies(line)]
    return sorted(path for path in found if path.name != "__pycache__")


def installed_bytes(scratch):
    """Returns the bytes of all installed packages."""
    packages = next(pathlib.Path(scratch).glob("lib/python*/site-packages"))
    return sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())


def write_exports(folder):
    """Returns exports to ONNX, TFLite and OpenVINO of a packaged classifier."""
    command = os.path.join(os.path.dirname(sys.executable), "keras-vit")
    places = {"onnx": "a.onnx", "tflite": "a.tflite", "openvino": "a_openvino"}
    for name, place in places.items():
        export = [command, "export", "cifar10", "--to", name, "--output", place]
        subprocess.run(export, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    return [os.path.join(folder, place) for place in places.values()]


def check_runtime(python, scratch, exports):
    """Exits with an error where the commands of the runtime do not run exports."""
    command = os.path.join(scratch, "bin", "keras-vit")
    subprocess.run([python, "-c", WITHOUT_TENSORFLOW], check=True, cwd=scratch)
    picture = os.path.join(scratch, "data", "class", "picture.png")
    subprocess.run([python, "-c", PICTURE, picture], check=True, cwd=scratch)
    for export in exports:
        for arguments in (["predict", export, picture], ["verify", export]):
            subprocess.run(
                [command, *arguments], check=True, cwd=scratch, stdout=subprocess.DEVNULL
            )
    refused = subprocess.run([command, "finetune"], cwd=scratch, capture_output=True, text=True)
    if refused.returncode != 2 or "keras-vit-applications" not in refused.stderr:
        sys.exit(f"keras-vit finetune must name its distribution. Printed: {refused.stderr}")


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


def install(wheels, scratch, only=None):
    """Installs wheels in a new environment with this one's dependencies; returns its Python.

    Args:
        wheels: The wheels.
        scratch: The folder of the environment.
        only: Files and folders of this environment, without which none of it is there.
    """
    venv.create(scratch, with_pip=False)
    python = os.path.join(scratch, "bin", "python")
    pip = [sys.executable, "-m", "pip", "--python", python]
    files = map(os.path.abspath, wheels)
    subprocess.run([*pip, "install", "--quiet", "--no-deps", *files], check=True)
    dependencies = next(path for path in site.getsitepackages() if path.endswith("site-packages"))
    # A .pth would bring the editable install along; a plain path entry does not.
    packages = next(pathlib.Path(scratch).glob("lib/python*/site-packages"))
    if only is None:
        (packages / "dependencies.pth").write_text(dependencies + "\n")
    for path in only or ():
        (packages / path.name).symlink_to(path)
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
        main(sys.argv[1:])
