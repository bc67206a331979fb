"""The shape of the project: which way imports point, and what the wheel must hold."""

import ast
import configparser
import functools
import pathlib
import re
import runpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = {"keras_vit": "keras_vit", "training": "keras_vit.training", "export": "keras_vit.export"}

# Files whose work is TensorFlow's although they are outside training/ and export/: both need
# them and may not import each other.
TENSORFLOW_IN_KERAS_VIT = {"decoding.py", "resizing.py"}

# Files that import TensorFlow or JAX inside functions, where it is Keras's backend.
AS_BACKEND = {
    "fused.py",
    "random_numbers.py",
    "keras_private.py",
    "outputs.py",  # Several devices and processes of JAX.
    "fused_attention.py",  # JAX or PyTorch, whichever computes.
}

# What a part may import of the package when its module is loaded.
MAY_IMPORT = {
    "configs": {"configs", "utils.synonyms"},
    "layers": {
        "layers",
        "configs.blocks",
        "configs.position_resize",
        "configs.resnet_configs",
        "keras_private",
        "preprocessing",
        "utils.json_files",
    },
    "utils": {"utils", "_installation"},
    "_installation": set(),
    "keras_private": set(),
    "description": {"configs", "description", "preprocessing", "utils"},
    "preprocessing": {"images", "images.pixels"},
    "checkpoints": {
        "_installation",
        "keras_private",
        "checkpoints",
        "configs",
        "description",
        "preprocessing",
        "utils",
    },
    "hub": {"_installation", "checkpoints", "description", "hub", "utils"},
    "models": {
        "_installation",
        "checkpoints",
        "configs",
        "description",
        "hub",
        "images.pixels",
        "keras_private",
        "layers",
        "models",
        "preprocessing",
        "utils",
    },
}


@functools.cache
def sources():
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


@functools.cache
def nodes_of(path):
    """All nodes of a file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def name_of(path):
    """The module's name as installed."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts[:1] = FOLDERS.get(parts[0], parts[0]).split(".")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path, anywhere=True):
    """Full names that a file imports; with `anywhere` also inside functions."""
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    nodes = nodes_of(path)
    for node in nodes if anywhere else nodes[0].body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
                base = f"{base}.{node.module}" if node.module else base
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


@functools.cache
def modules():
    """The files of this package by the names of their modules."""
    return {name_of(path): path for path in sources()}


def test_training_and_export_never_import_each_other():
    cases = [*sources()]
    assert cases
    for path in cases:
        part = path.relative_to(ROOT).parts[0]
        other = {"training": "keras_vit.export", "export": "keras_vit.training"}.get(part)
        for name in imports(path):
            assert not (other and f"{name}.".startswith(f"{other}.")), f"{path} imports {name}"


def test_layers_models_and_checkpoints_do_not_import_what_is_built_on_them():
    cases = sorted((ROOT / "keras_vit").rglob("*.py"))
    assert cases
    for path in cases:
        part = path.relative_to(ROOT / "keras_vit").parts[0].removesuffix(".py")
        if part not in MAY_IMPORT:
            continue
        for name in imports(path, anywhere=False):
            if name.startswith("keras_vit."):
                _, used, *rest = name.split(".")
                file = ".".join((used, *rest[:1]))
                assert {used, file} & MAY_IMPORT[part], f"{path} imports {name}"


# Modules of this package that a file imports by a text, which no picture of the imports shows: the
# table of commands.
IMPORTED_BY_TEXT = {"keras_vit/command_line.py": {"keras_vit.commands."}}


def test_only_commands_are_imported_by_a_text():
    by_text = {}
    for path in sources():
        nodes = nodes_of(path)
        calls = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
        if not any(call.endswith("import_module") for call in calls):
            continue
        tables = [node for node in nodes if isinstance(node, ast.Dict | ast.JoinedStr)]
        constants = [node for table in tables for node in ast.walk(table)]
        texts = {str(node.value) for node in constants if isinstance(node, ast.Constant)}
        named = {text for text in texts if text in modules() or text == "keras_vit.commands."}
        if named:
            by_text[path.relative_to(ROOT).as_posix()] = named
        in_calls = re.findall(r"import_module\(['\"]keras_vit", path.read_text())
        assert not in_calls, path
    assert by_text == IMPORTED_BY_TEXT


@functools.cache
def uses():
    """The modules that each module imports, in functions, for types, and by a text."""
    found = {}
    for name, path in modules().items():
        texts = set()
        if "import_module" in path.read_text(encoding="utf-8"):
            texts = {node.value for node in nodes_of(path) if isinstance(node, ast.Constant)}
        found[name] = {other for other in {*imports(path)} | texts if other in modules()} - {name}
    return found


def reached(start):
    """The modules that are imported where one is, all functions of all of them counted."""
    found, waiting = set(), [start]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += uses()[name]
    return found


def test_no_file_imports_one_that_imports_it():
    # A package's `__init__` only passes names on.
    rest = {
        name: {used for used in found if modules()[used].name != "__init__.py"}
        for name, found in uses().items()
        if modules()[name].name != "__init__.py"
    }
    while True:
        lowest = {name for name, found in rest.items() if not found & rest.keys()}
        if not lowest:
            break
        rest = {name: found for name, found in rest.items() if name not in lowest}
    assert not rest, sorted(rest)


# The files that a reader may have to open, from one on. These only go down.
NUM_REACHED = {"keras_vit.models.build": 60, "keras_vit.training.run.finetune": 156}


def test_few_files_are_reached():
    assert {name: len(reached(name)) for name in NUM_REACHED} == NUM_REACHED


def test_only_training_and_export_import_tensorflow():
    cases = sorted((ROOT / "keras_vit").rglob("*.py"))
    assert cases
    for path in cases:
        if path.name in TENSORFLOW_IN_KERAS_VIT or "commands" in path.parts:
            continue
        for name in imports(path, anywhere=path.name not in AS_BACKEND):
            assert name.split(".")[0] not in ("tensorflow", "jax", "torch") or (
                "checkpoints" in path.parts and name.split(".")[0] == "torch"
            ), f"{path} imports {name}"


# `models`, `recipes`, and what `predict` and `verify` of an ONNX, TFLite or OpenVINO export load by
# name or in functions.
RUNS_EXPORTS = (
    "keras_vit.command_line",
    *(f"keras_vit.commands.{name}" for name in ("models", "predict", "recipes", "verify")),
    *("keras_vit.classifier", "keras_vit.predictor", "keras_vit.images.transcoding"),
    *(f"keras_vit.export.{name}" for name in ("check", "formats.artefacts")),
)


def test_what_runs_an_export_imports_neither_tensorflow_nor_keras():
    reached, waiting = set(), [(name, name) for name in RUNS_EXPORTS]
    while waiting:
        name, way = waiting.pop()
        if name in reached or name.split(".")[0] != "keras_vit":
            assert name.split(".")[0] not in ("tensorflow", "keras", "jax", "scipy"), way
            continue
        reached.add(name)
        parts = name.split(".")
        found = [".".join(parts[:count]) for count in range(1, len(parts))]
        if name in modules():
            found += imports(modules()[name], anywhere=False)
        waiting += [(other, f"{way} -> {other}") for other in found]
    expected = {
        f"keras_vit.{name}" for name in ("export.formats.table", "preprocessing", "utils.files")
    }
    assert expected <= reached


def test_private_names_of_other_packages_are_in_one_file():
    public = {"_fields", "_replace", "_asdict"}  # Methods of named tuples.
    cases = [*sources()]
    assert cases
    for path in cases:
        if path == ROOT / "keras_vit" / "keras_private.py":
            continue
        for name in imports(path):
            package, *inner = name.split(".")
            is_private = any(part == "src" or re.match("_[a-z]", part) for part in inner)
            is_own = package in ("", *FOLDERS) or path.name == "__init__.py"
            assert is_own or not is_private, f"{path} imports {name}"
        nodes = nodes_of(path)
        named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        own = {node.name for node in nodes if isinstance(node, named)}
        own |= {node.id for node in nodes if isinstance(node, ast.Name)}
        attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
        own |= {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
        for node in attributes:
            if node.attr.startswith("_") and not node.attr.endswith("__"):
                assert node.attr in own | public, f"{path}:{node.lineno} uses {node.attr}"


def settings_of(section):
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    return settings[section]


def test_every_folder_with_code_is_installed():
    declared = set(settings_of("options")["packages"].split())
    assert declared == {name_of(path) for path in sources() if path.name == "__init__.py"}
    for path in sources():
        assert (path.parent / "__init__.py").exists(), f"{path} is in no package"
    # With an __init__.py, pytest would put the root, and so training/ and export/, on the path.
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_every_data_file_is_installed():
    patterns = {
        package: [pattern.strip() for pattern in line.split(",")]
        for package, line in settings_of("options.package_data").items()
    }
    for path in [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))]:
        if path.is_dir() or path.suffix in (".py", ".pyc") or "__pycache__" in path.parts:
            continue
        folder = next(parent for parent in path.parents if (parent / "__init__.py").exists())
        declared = patterns.get(name_of(folder / "__init__.py"), ())
        inside = path.relative_to(folder)
        assert any(inside.match(pattern) for pattern in declared), path


def test_this_project_is_installed_by_its_own_name():
    # The name keras-vit on the package index belongs to another project.
    folders = (*FOLDERS, "benchmarks", "docs", "examples", "paper", "tests")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    kinds = ("", ".cfg", ".md", ".py", ".pyi", ".toml")
    for path in [*files, *ROOT.glob("*.*"), ROOT / "Makefile"]:
        if path.suffix not in kinds or not path.is_file():
            continue
        text = path.read_text()
        found = re.search(r"pip install\b[^`\n]*\bkeras[-_]vit\b(?!-applications)", text)
        assert found is None, f"{path}: {found}"
        # An extra of this project, from a checkout or the package index.
        for call, target in re.findall(r"(pip install [^\n]*?)([\w.-]+)\[[\w,{]+\}?\]", text):
            here = target == "." and ("-e" in call or "editable" in call)
            assert here or target in ("keras-vit-applications", "ray"), f"{path}: {call}{target}"


def test_the_picture_of_the_architecture_is_that_of_the_code():
    # Also fails if two folders import each other.
    program = runpy.run_path(str(ROOT / "docs" / "architecture.py"))
    assert program["draw"]() == program["PICTURE"].read_text(), "Run python docs/architecture.py"


NUM_COMMANDS = 18


def test_a_new_command_replaces_one():
    from keras_vit.command_line import COMMANDS

    assert len(COMMANDS) <= NUM_COMMANDS


# What a reader must hold in his head: the most that each place may have, and how many places have
# more. The second number only goes down.
BRANCHES, LINES, PARAMETERS, ASSERTS, CELL = 20, 60, 8, 6, 160
NUM_OVER = {"branches": 0, "lines": 0, "parameters": 0, "asserts": 0, "table cells": 0}

# The most of all files, or of a file. These only go down too.
NUM_OWN_NAMES = 30  # Names of this package that one file imports or reads through a module.
NUM_WITH_OPTIONS = 15  # Functions with `**options` that are not Keras's `**kwargs`.
NUM_OPEN_TYPES = 199  # `Any` and `object` in annotations of any form.

# Signatures that users call, with a parameter for each thing that a user may choose.
CONTRACT = (
    "keras_vit/models/build.py: build",  # As a Keras application.
    "keras_vit/classifier.py: save_classifier",
    "keras_vit/applications.py: application",  # As keras.applications has them.
    "keras_vit/applications.py: __call__",
    "training/trainer/trainer.py: fit",  # As Keras's own.
)
# Functions and tests that a limit would make worse, with the reason; at most ten.
EXCEPTIONS: dict[str, str] = {}


def functions_over(paths, measure, limit):
    """Values and places of the functions that exceed a limit, the worst first."""
    places = []
    for path in paths:
        text = path.read_text(encoding="utf-8").splitlines()
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                place = f"{path.relative_to(ROOT).as_posix()}: {node.name}"
                value = measure(node, text)
                if value > limit and place not in EXCEPTIONS:
                    places.append((value, place))
    return sorted(places, reverse=True)


def branches(function, _):
    """Decisions of a function, inner functions included."""
    nodes = list(ast.walk(function))
    loops = ast.For | ast.While | ast.comprehension
    choices = ast.If | ast.IfExp | ast.ExceptHandler | ast.match_case
    count = sum(isinstance(node, loops | choices) for node in nodes)
    return count + sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))


def body_lines(function, text):
    """Code lines of a function without docstring and comments."""
    first = function.body[0]
    is_text = ast.get_docstring(function) is not None
    start = first.end_lineno if is_text else first.lineno - 1
    lines = [line.strip() for line in text[start : function.end_lineno]]
    return sum(bool(line) and not line.startswith("#") for line in lines)


def parameters(function, _):
    """Parameters of a function, without the object that it belongs to."""
    arguments = function.args
    names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return sum(argument.arg not in ("self", "cls") for argument in names)


def asserts(function, _):
    """Assertions of a test."""
    if not function.name.startswith("test_"):
        return 0
    return sum(isinstance(node, ast.Assert) for node in ast.walk(function))


def test_functions_are_short_with_few_branches():
    over = functions_over(sources(), branches, BRANCHES)
    assert len(over) <= NUM_OVER["branches"], over
    over = functions_over(sources(), body_lines, LINES)
    assert len(over) <= NUM_OVER["lines"], over


def test_functions_have_few_parameters():
    over = functions_over(sources(), parameters, PARAMETERS)
    over = [(value, place) for value, place in over if place not in CONTRACT]
    assert len(over) <= NUM_OVER["parameters"], over


def test_a_test_asserts_few_facts():
    over = functions_over(sorted((ROOT / "tests").rglob("*.py")), asserts, ASSERTS)
    assert len(over) <= NUM_OVER["asserts"], over


def test_cells_of_tables_are_short():
    cells = [
        (len(cell.strip()), f"{path.relative_to(ROOT)}: {cell.strip()[:60]}")
        for path in (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
        for cell in line.split("|")
    ]
    over = sorted((cell for cell in cells if cell[0] > CELL), reverse=True)
    assert len(over) <= NUM_OVER["table cells"], over


def own_names(path):
    """Names of this package that a file imports, or reads from a module that it imports."""
    names, own_modules = set(), set()
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom):
            if node.level or (node.module or "").startswith("keras_vit"):
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name.startswith("keras_vit")}
    last_words = {name.rpartition(".")[2] for name in modules()}
    own_modules = {name.rpartition(".")[2] for name in names} & last_words
    for node in nodes_of(path):
        is_read = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if is_read and node.value.id in own_modules:
            names.add(f"{node.value.id}.{node.attr}")
    return names


def test_a_file_uses_few_names_of_others():
    counts = {path: len(own_names(path)) for path in sources() if path.name != "__init__.py"}
    assert max(counts.values()) <= NUM_OWN_NAMES, sorted(counts, key=counts.get)[-3:]


def test_few_functions_take_any_options():
    functions = [
        f"{path}: {node.name}"
        for path in sources()
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.args.kwarg and node.args.kwarg.arg != "kwargs"
    ]
    assert len(functions) <= NUM_WITH_OPTIONS, functions


def annotations(path):
    """Annotations of arguments, results and variables."""
    for node in nodes_of(path):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
            yield node.returns


def test_few_types_are_open():
    names = [
        node.id
        for path in sources()
        for annotation in annotations(path)
        for node in ast.walk(annotation)
        if isinstance(node, ast.Name)
    ]
    assert names.count("Any") + names.count("object") <= NUM_OPEN_TYPES


def test_exceptions_to_the_limits_are_few():
    files = {place.split(": ")[0] for place in (*EXCEPTIONS, *CONTRACT)}
    assert len(EXCEPTIONS) <= 10
    assert not [file for file in files if not (ROOT / file).exists()]
