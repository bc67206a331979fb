"""What the installed packages import is declared in setup.cfg, and what is declared is used."""

import ast
import configparser
import functools
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ("keras_vit", "training", "export")

# Distributions whose module has another name than theirs.
MODULES = {
    "pillow": "PIL",
    "scikit-learn": "sklearn",
    "tensorflow-serving-api": "tensorflow_serving",
}
# TensorFlow Datasets imports it and does not declare it.
NOT_IMPORTED = {"importlib_resources"}
# Tools of this repository, and the builds of TensorFlow and its data sets for TPUs.
WITHOUT_IMPORTS = {"bench", "dev", "docs", "peers", "release", "tpu"}

# Modules that an import statement names, in files that the feature alone imports.
OF_AN_EXTRA = {
    **dict.fromkeys(("ai_edge_litert", "flatbuffers", "onnxruntime", "openvino"), "export"),
    "jax": "jax",
    "matplotlib": "plots",
    "playwright": "web",
}
# A file of PyTorch is read with the PyTorch that wrote it.
OF_NO_EXTRA = {"torch"}

# Functions that import, with their usual extra; `import_optional` has the extra as its third
# argument, and the others may have another one as their second.
IMPORTERS = {"import_export_package": "export"}


def installed(extra):
    """The modules that an extra installs, by the extras in it too."""
    modules = set(declared()[extra])
    for part in parts_of(extra):
        modules |= installed(part)
    return modules


def parts_of(extra):
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    parts = re.findall(
        r"^keras-vit-applications\[([\w,]+)\]",
        settings["options.extras_require"].get(extra, ""),
        re.MULTILINE,
    )
    return [part for group in parts for part in group.split(",")]


def declared():
    """The modules of the distributions by the extra that names them, "" without an extra."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    extras = {"": settings["options"]["install_requires"], **settings["options.extras_require"]}
    modules = {}
    for extra, lines in extras.items():
        names = re.findall(r"^([\w-]+)(?!\S*\[)", lines, re.MULTILINE)
        own = [name for name in names if name != "keras-vit-applications"]
        modules[extra] = {MODULES.get(name, name.replace("-", "_")) for name in own}
    return modules


@functools.cache
def trees():
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [(path, ast.parse(path.read_text())) for path in paths]


@functools.cache
def used_names():
    """Packages of import statements, and all texts up to their first dot."""
    used = set(NOT_IMPORTED)
    for _, tree in trees():
        used |= set(statements(tree))
        used |= {(text_of(node) or "").split(".")[0] for node in ast.walk(tree)}
    return used


def text_of(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def statements(tree):
    """Yields the packages in import statements."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]


def calls(tree):
    """Yields the packages in calls that import, and the extra that they name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        extra = IMPORTERS.get(name)
        given = [*node.args[2 if name == "import_optional" else 1 :]]
        given += [word.value for word in node.keywords]
        if given and (name in IMPORTERS or name == "import_optional"):
            extra = text_of(given[0])
        module = text_of(node.args[0])
        if module is not None and extra is not None:
            yield module.split(".")[0], extra


def test_an_import_statement_is_of_what_every_installation_has():
    always = declared()[""] | set(sys.stdlib_module_names) | {"keras_vit"}
    for path, tree in trees():
        for module in statements(tree):
            extra = OF_AN_EXTRA.get(module)
            assert module in always or module in declared().get(extra, ()), f"{path}: {module}"


def test_an_optional_import_names_the_extra_that_installs_it():
    for path, tree in trees():
        for module, extra in calls(tree):
            assert module in installed(extra) or module in OF_NO_EXTRA, f"{path}: {module}"


@pytest.mark.parametrize("extra", sorted(set(declared()) - WITHOUT_IMPORTS))
def test_what_is_declared_is_used(extra):
    assert declared()[extra] <= used_names()
