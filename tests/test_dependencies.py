"""What the installed packages import is declared in setup.cfg, and what is declared is used."""

import ast
import configparser
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Distributions whose module has another name than theirs.
MODULES = {
    "pillow": "PIL",
    "scikit-learn": "sklearn",
}
# TensorFlow Datasets imports it and does not declare it.
NOT_IMPORTED = {"importlib_resources"}
# Tools and examples of this repository, and the builds of TensorFlow and its data sets for TPUs.
WITHOUT_IMPORTS = {"bench", "demo", "dev", "docs", "peers", "release", "tpu"}

# Modules that an import statement names, in files that the feature alone imports.
OF_AN_EXTRA = {
    **dict.fromkeys(("ai_edge_litert", "flatbuffers", "onnx", "onnxruntime", "openvino"), "export"),
    "huggingface_hub": "hub",
    "jax": "jax",
    "matplotlib": "plots",
    "playwright": "web",
}


@functools.cache
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
    for extra, lines in extras.items():  # With the extras that an extra names.
        for parts in re.findall(r"^keras-vit-applications\[([\w,]+)\]", lines, re.MULTILINE):
            modules[extra] = modules[extra].union(*(modules[part] for part in parts.split(",")))
    return modules


@functools.cache
def nodes():
    """The nodes of each file."""
    folders = ("keras_vit", "training", "export")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [(path, list(ast.walk(ast.parse(path.read_text())))) for path in paths]


def text_of(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def statements(node):
    """Returns the packages in an import statement."""
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and not node.level:
        return [node.module.split(".")[0]]
    return []


def test_an_import_statement_is_of_what_every_installation_has():
    # PyTorch is imported where it is Keras's backend.
    always = declared()[""] | set(sys.stdlib_module_names) | {"keras_vit", "torch"}
    cases = [*nodes()]
    assert cases
    for path, of_file in cases:
        for module in (name for node in of_file for name in statements(node)):
            extra = OF_AN_EXTRA.get(module)
            assert module in always or module in declared().get(extra, ()), f"{path}: {module}"


def test_what_is_declared_is_used():
    every = [node for _, of_file in nodes() for node in of_file]
    used = {name for node in every for name in statements(node)} | NOT_IMPORTED
    used |= {(text_of(node) or "").split(".")[0] for node in every}
    cases = set(declared()) - WITHOUT_IMPORTS
    assert cases
    for extra in cases:
        assert declared()[extra] <= used, extra
