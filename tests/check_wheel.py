"""Installs the wheel in a scratch environment, imports every module and runs the command.

Call: python tests/check_wheel.py dist/*.whl
      python tests/check_wheel.py --release dist/*

The scratch environment borrows the dependencies of the environment that runs this file, but not
the package itself, and starts outside the repository. With --release each file, the wheel and the
sdist, is installed twice in an empty environment, with the lowest and with the newest versions that
setup.cfg allows, and only imports and the command are tried.
"""

import email
import os
import pathlib
import subprocess
import sys
import tempfile
import venv
import zipfile

from packaging.requirements import Requirement

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
        if error.name != "jax" and 'pip install -e ".[' not in str(error):
            raise
        without.append(name)
missing = set({expected!r}) - set(names) - {{"keras_vit"}}
assert not missing, missing
print(f"{{len(names)}} modules import; {{without}} ask for an extra that is not installed")
"""

UV = (sys.executable, "-m", "uv")  # pip cannot choose the lowest versions.


def main(wheel):
    """Exits with an error where the wheel lacks something."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = os.path.realpath(scratch)
        python = install(wheel, scratch)
        check_imports(python, scratch, modules_of(wheel))
    print("The wheel installs, imports and runs")


def check_release(files):
    """Exits with an error where a file does not run with the lowest or the newest versions."""
    files = sorted(files)
    if [file.endswith(".whl") for file in files] != [True, False]:
        sys.exit(f"dist/ must hold a wheel and an sdist. Found: {files}")
    wheel = files[0]
    for file in files:
        for lowest in (True, False):
            with tempfile.TemporaryDirectory() as scratch:
                scratch = os.path.realpath(scratch)
                python = os.path.join(scratch, "bin", "python")
                subprocess.run([*UV, "venv", "-q", "-p", sys.executable, scratch], check=True)
                # lowest-direct: the lowest of what is named here, the newest of what those need.
                versions = ["lowest-direct", *floors(wheel)] if lowest else ["highest"]
                pip = [*UV, "pip", "install", "-q", "-p", python, "--resolution", *versions]
                subprocess.run([*pip, os.path.abspath(file)], check=True)
                subprocess.run([*UV, "pip", "list", "-q", "-p", python], check=True)
                check_imports(python, scratch, modules_of(wheel))
            print(f"{os.path.basename(file)} runs with the {versions[0]} versions")


def floors(wheel):
    """Returns the requirements of the wheel that name a lowest version, and what they need."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    found = [
        f"{line.name}{line.specifier}"
        for line in map(Requirement, lines)
        if line.marker is None or line.marker.evaluate({"extra": ""})
    ]
    # See the extra tpu.
    return [line for line in found if ">=" in line] + ["tensorflow-metadata>=1.17,<1.18"]


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
    """Installs the wheel in a new environment with this one's dependencies; returns its Python."""
    venv.create(scratch, with_pip=False)
    python = os.path.join(scratch, "bin", "python")
    pip = [sys.executable, "-m", "pip", "--python", python]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", os.path.abspath(wheel)], check=True)
    # A .pth would bring the editable install along; a plain path entry does not.
    dependencies = [path for path in sys.path if path.endswith("site-packages")]
    packages = next(pathlib.Path(scratch).glob("lib/python*/site-packages"))
    (packages / "dependencies.pth").write_text("\n".join(dependencies))
    return python


if __name__ == "__main__":
    if sys.argv[1] == "--release":
        check_release(sys.argv[2:])
    else:
        (given,) = sys.argv[1:]
        main(given)
