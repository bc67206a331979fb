import ast
import importlib
import importlib.util
import pathlib
import re
import shlex

import pytest

import keras_vit.command_line

ROOT = pathlib.Path(__file__).parents[1]
PAGES = {page.name: page.read_text(encoding="utf-8") for page in ROOT.glob("docs/*.md")}
PAGES |= {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CHANGELOG.md")}


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES[page], re.S | re.M)


def resolve(name):
    """Returns what a dotted name such as `keras_vit.training.SGD` stands for."""
    module, _, attribute = name.rpartition(".")
    if not module:
        return importlib.import_module(name)
    try:
        return getattr(resolve(module), attribute)
    except AttributeError:  # A module that is not imported yet.
        return importlib.import_module(name)


def exists(name):
    """Returns whether there is a dotted name; of a module that needs an extra, in its source."""
    try:
        resolve(name)
        return True
    except ImportError as error:
        if "needs the package" not in str(error):
            raise
    module, _, attribute = name.rpartition(".")
    if (spec := importlib.util.find_spec(module)).submodule_search_locations:
        return importlib.util.find_spec(name) is not None
    tree = ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))
    return attribute in {getattr(node, "name", None) for node in tree.body}


def commands():
    shell = "".join(block for page in PAGES for block in blocks(page, "sh"))
    for line in shell.replace("\\\n", " ").splitlines():
        line = re.sub(r"^[A-Z_]+=\S+ ", "", line)
        if line.startswith("keras-vit "):
            yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("name", keras_vit.command_line.COMMANDS)
def test_the_commands_on_the_pages_are_accepted(name, monkeypatch):
    module = importlib.import_module(f"keras_vit.commands.{name.replace('-', '_')}")
    monkeypatch.setattr(module, "run", lambda arguments: 0)
    monkeypatch.setattr(keras_vit.command_line, "import_tensorflow_quietly", lambda: None)
    for words in commands():
        if words[0] == name:
            assert keras_vit.command_line.main(words) == 0


@pytest.mark.parametrize("page", PAGES)
def test_the_python_names_on_a_page_exist(page):
    imported = {
        f"{node.module}.{alias.name}"
        for block in blocks(page, "python")
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("keras_vit")
        for alias in node.names
    }
    for name in imported | set(re.findall(r"keras_vit(?:\.\w+)+", PAGES[page])):
        assert exists(name)


@pytest.mark.parametrize("page", PAGES)
def test_the_files_on_a_page_exist(page):
    folder = ROOT if (ROOT / page).exists() else ROOT / "docs"
    links = re.findall(r"\]\((?!http)([^)#\s]+)[^)\s]*\)", PAGES[page])
    paths = re.findall(
        r"\b(?:tests|benchmarks|docs|keras_vit|training|export)/[\w/]+\.\w+", PAGES[page]
    )
    missing = [link for link in links if not (folder / link).exists()]
    assert not missing + [path for path in paths if not (ROOT / path).exists()]


def test_the_data_sets_on_the_pages_exist():
    import tensorflow_datasets as tfds

    names = {name for page in PAGES.values() for name in re.findall(r"tfds:(\w+)", page)}
    assert names - {"NAME"} <= set(tfds.list_builders())


def test_the_pages_and_cards_say_what_keras_needs_to_read_a_model():
    from keras_vit.classifier import LOADING

    assert "`import keras_vit` has" in LOADING
    for page in ("README.md", "checkpoints.md"):
        assert "keras.saving.load_model(" in PAGES[page]
    (block,) = (block for block in blocks("README.md", "python") if "load_model(" in block)
    assert block.index("import keras_vit") < block.index('load_model("')
