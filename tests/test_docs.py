import argparse
import ast
import importlib
import importlib.util
import pathlib
import re
import runpy
import shlex

import pytest

import keras_vit.command_line
from keras_vit.utils.fields import add_arguments

ROOT = pathlib.Path(__file__).parents[1]
DOCS = [page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/**/*.md")]
PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in ("README.md", "CHANGELOG.md", "paper/README.md", "paper/claims/README.md", *DOCS)
}
COMING_FROM = [page for page in DOCS if page.startswith("docs/coming_from/")]


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
    """Returns whether a dotted name exists; the source shows it where a module needs an extra."""
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


def calls(page):
    """Returns the code in the tables of a page, behind the first column: ours."""
    rows = [line.split("|", 2)[2] for line in PAGES[page].splitlines() if line.startswith("| ")]
    return re.findall(r"`([^`]+)`", "\n".join(rows))


def commands():
    shell = "".join(block for page in PAGES for block in blocks(page, "sh"))
    shell += "\n".join(code for page in COMING_FROM for code in calls(page))
    for line in shell.replace("\\\n", " ").splitlines():
        line = re.sub(r"^[A-Z_]+=\S+ ", "", line)
        if line.startswith("keras-vit "):
            yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("name", keras_vit.command_line.COMMANDS)
def test_the_commands_on_the_pages_are_accepted(name, monkeypatch):
    monkeypatch.setattr(keras_vit.command_line, "run_command", lambda name, arguments: 0)
    for words in commands():
        if words[0] == name:
            assert keras_vit.command_line.main(words) == 0


def test_our_flags_on_the_pages_about_other_libraries_exist():
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    for name in keras_vit.command_line.COMMANDS:
        add_arguments(parser, keras_vit.command_line.command_type(name))
    usage = set(re.findall(r"--[\w-]+", parser.format_help()))
    ours = [code for page in COMING_FROM for code in calls(page) if code.startswith("--")]
    assert len(ours) > 20
    assert set(re.findall(r"--[\w-]+", " ".join(ours))) <= usage


def test_the_readme_is_short():
    assert len(PAGES["README.md"].splitlines()) <= 150


def test_the_table_of_compatibility_is_written_by_its_program():
    program = runpy.run_path(str(ROOT / "docs" / "compatibility.py"))
    assert program["page"]() == PAGES["docs/compatibility.md"], "Run python docs/compatibility.py"


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
    folder = (ROOT / page).parent
    links = re.findall(r"\]\((?!http)([^)#\s]+)[^)\s]*\)", PAGES[page])
    paths = re.findall(
        r"\b(?:tests|benchmarks|docs|keras_vit|paper|training|export)/[\w/]+\.\w+", PAGES[page]
    )
    missing = [link for link in links if not (folder / link).exists()]
    assert not missing + [path for path in paths if not (ROOT / path).exists()]


def test_the_data_sets_on_the_pages_exist():
    import tensorflow_datasets as tfds

    names = {name for page in PAGES.values() for name in re.findall(r"tfds:(\w+)", page)}
    assert names - {"NAME"} <= set(tfds.list_builders())


def test_the_pages_and_cards_say_what_keras_needs_to_read_a_model():
    from keras_vit.classifier_folder import LOADING

    assert "`import keras_vit` has" in LOADING
    for page in ("docs/python.md", "docs/checkpoints.md"):
        assert "keras.saving.load_model(" in PAGES[page]
    (block,) = (block for block in blocks("docs/python.md", "python") if "load_model(" in block)
    assert block.index("import keras_vit") < block.index('load_model("')
