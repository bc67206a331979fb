import argparse
import ast
import csv
import importlib
import importlib.util
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

import keras_vit.command_line
from keras_vit import configs
from keras_vit.utils import synonyms
from keras_vit.utils.fields import add_arguments

ROOT = pathlib.Path(__file__).parents[1]
DOCS = [page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/**/*.md")]
PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in (
        *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
        *("examples/README.md", "paper/README.md", "paper/claims/README.md"),
        *("skills/keras-vit/SKILL.md", *DOCS),
    )
}
MIGRATE = ("docs/migrate.md", "docs/migrate_more.md")


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


def commands(page):
    """Yields the words of each call of keras-vit on a page."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    if page in MIGRATE:
        lines += calls(page)
    for line in lines:
        line = re.sub(r"^[A-Z_]+=\S+ ", "", line)
        if line.startswith("keras-vit "):
            yield shlex.split(line, comments=True)[1:]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_programs_and_targets_on_a_page_exist(page, monkeypatch):
    monkeypatch.setattr(keras_vit.command_line, "run_command", lambda name, arguments: 0)
    known = set(keras_vit.command_line.COMMANDS)
    for words in commands(page):
        assert words[0] in known, words
        assert keras_vit.command_line.main(words) == 0, words
    assert set(re.findall(r"`keras-vit\s+([a-z][\w-]*)", PAGES[page])) <= known
    shell = "".join(blocks(page, "sh"))
    targets = " ".join(re.findall(r"^make ([a-z -]+)", shell, re.M)).split()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert not [name for name in targets if f"\n{name}:" not in makefile]
    programs = re.findall(r"python ([\w/]+\.py)", PAGES[page])
    assert not {name for name in programs if not (ROOT / name).exists()} - {"train.py"}


def test_readme_and_pages_are_short():
    lengths = {page: len(text.splitlines()) for page, text in PAGES.items() if page in DOCS}
    assert len(PAGES["README.md"].splitlines()) <= 110
    assert not {page: length for page, length in lengths.items() if length > 300}


@pytest.mark.parametrize("page", sorted({*DOCS, "README.md"}))
def test_a_page_begins_with_its_title(page):
    assert re.match(r"# \S.*\n\n", PAGES[page])
    assert (
        len(re.findall(r"^# ", re.sub(r"^```.*?^```", "", PAGES[page], flags=re.S | re.M), re.M))
        == 1
    )


def test_help_has_twenty_questions_with_a_command_or_call_each():
    page = "docs/help.md"
    questions = re.split(r"^## ", PAGES[page], flags=re.M)[1:]
    assert len(questions) == 20
    assert not [text for text in questions if "```sh\n" not in text and "```python\n" not in text]


def test_the_glossary_is_short_and_sorted():
    words = re.findall(r"^\| ([^|]+) \|", PAGES["docs/glossary.md"], re.M)[2:]
    assert len(words) <= 20
    assert words == sorted(words, key=lambda word: word.strip('"'))


def test_the_names_of_other_libraries_are_the_synonyms_that_errors_answer_with():
    page = PAGES["docs/migrate.md"].partition("## Names of arguments, flags and commands")[2]
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    written = {(name, code(here)[0]) for theirs, here in rows for name in code(theirs)}
    tables = (synonyms.ARGUMENTS, synonyms.FLAGS, synonyms.COMMANDS)
    renamed = [row for table in tables for row in table.values() if " " not in row.here]
    assert written == {(row.name, row.here) for row in renamed}


def code(text):
    return re.findall(r"`([^`]+)`", text)


def test_the_skill_is_short_and_has_the_front_matter_of_a_skill():
    lines = PAGES["skills/keras-vit/SKILL.md"].splitlines()
    assert len(lines) < 120
    start, name, description, end = lines[:4]
    assert (start, name, end) == ("---", "name: keras-vit", "---")  # The name of its folder.
    assert re.fullmatch(r"description: [^:<>]{100,1000}", description)


def test_the_models_of_the_paper_have_their_costs_and_accuracy():
    with open(ROOT / "paper" / "published" / "table_5.csv", newline="") as file:
        published = {(row["pre-training"], row["task"]): row for row in csv.DictReader(file)}
    accuracies = published["ImageNet-21k", "ImageNet"]
    rows = re.findall(
        r"^\| (ViT-\S+) \| (.*) million \| (.*) \| (.*)% \|", PAGES["docs/models.md"], re.M
    )
    assert {name for name, *_ in rows} == {name for name in accuracies if name in configs.MODELS}
    for name, *shown in rows:
        cost = keras_vit.describe(name)
        flops = f"{cost.flops / 1e9:.1f}"
        assert shown == [f"{cost.parameters / 1e6:.0f}", flops, accuracies[name]], name


def table_of(writer):
    """Returns the table that a program of docs/ wrote on the page of compatible models."""
    return (
        PAGES["docs/compatible_models.md"].partition(f"<!-- {writer}:")[2].partition("<!-- end")[0]
    )


def test_readme_has_the_numbers_of_models_that_agree_with_other_libraries():
    (converted,) = re.findall(r"^\| all \| \d+ \| (\d+) ", table_of("timm"), re.M)
    rows = re.findall(r"^\| transformers .* (\d+) \| (\de-\d+)", table_of("peers"), re.M)
    differences = {
        converted: re.findall(r"\| (\de-\d+) \|$", table_of("timm"), re.M),
        sum(int(count) for count, _ in rows): [difference for _, difference in rows],
    }
    cases = [*differences.items()]
    assert cases
    for count, values in cases:
        largest = f"{max(map(float, values)):.0e}".replace("e-0", "e-")
        for page in ("README.md", "docs/compatible_models.md"):
            assert re.search(rf"{count} (names|models)?.*to\s+{largest}\b", PAGES[page])


def test_the_numbers_of_readme_are_on_the_pages_that_measure_them():
    claims = re.search(
        r"Of (\d+) statements: (\d+) reproduced, (\d+) not seen at this size, (\d+) contradicted",
        PAGES["paper/claims/README.md"],
    )
    total, hold, unseen, fail = claims.groups()
    line = f"{total} claims trained again: {hold} hold, {fail} do not, {unseen} not seen"
    assert line in PAGES["README.md"]


def test_the_first_table_of_speed_has_numbers_of_the_tables_below():
    summary, _, below = PAGES["docs/speed.md"].partition("## ")
    rows = re.findall(r"^\| (?:one H200|two CPU)[^|]*\|(.*)", summary, re.M)
    speeds = re.findall(r"[\d.,]*\d", "".join(rows))
    assert len(speeds) == 10
    assert set(speeds) <= set(re.findall(r"[\d.,]*\d", below))


def test_our_flags_on_the_pages_about_other_libraries_exist():
    parser = argparse.ArgumentParser(conflict_handler="resolve")
    for name in keras_vit.command_line.COMMANDS:
        add_arguments(parser, keras_vit.command_line.command_type(name))
    usage = set(re.findall(r"--[\w-]+", parser.format_help()))
    ours = [code for page in MIGRATE for code in calls(page) if code.startswith("--")]
    assert len(ours) > 20
    assert set(re.findall(r"--[\w-]+", " ".join(ours))) <= usage


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


def attributes():
    """Returns the names such as keras_vit.training.SGD in programs and text of all pages."""
    found = {
        ast.unparse(node)
        for page in PAGES
        for block in blocks(page, "python")
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Attribute)
    }
    found.update(code for page in PAGES for code in inline_code(page))
    names = {re.match(r"keras_vit(?:\.\w+)+", name) for name in found}
    return sorted({name[0] for name in names if name})


def inline_code(page):
    """Returns the code within the paragraphs and tables of a page."""
    text = re.sub(r"^```.*?^```", "", PAGES[page], flags=re.S | re.M)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]


# A package that loads its parts when they are asked for has no part that another name has loaded.
AS_FRESH = """
import sys, types, keras_vit
for name in sys.argv[1:]:
    for package, module in list(sys.modules.items()):
        if package.split(".")[0] == "keras_vit" and "__getattr__" in vars(module):
            for part, value in list(vars(module).items()):
                if isinstance(value, types.ModuleType) and value.__name__ == f"{package}.{part}":
                    delattr(module, part)
    try:
        eval(name)
    except AttributeError as error:
        print(name, error)
"""


def test_the_python_names_on_the_pages_need_no_more_than_import_keras_vit():
    names = attributes()
    assert {"keras_vit.finetune", "keras_vit.Preprocessing"} <= {*names}
    done = subprocess.run(
        [sys.executable, "-P", "-c", AS_FRESH, *names], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == ""


def test_the_flags_in_the_text_of_the_pages_are_ones_of_the_command_with_their_choices():
    flags = {}
    for name in keras_vit.command_line.COMMANDS:
        parser = argparse.ArgumentParser()
        add_arguments(parser, keras_vit.command_line.command_type(name))
        flags[name] = {
            flag: action.choices for action in parser._actions for flag in action.option_strings
        } | dict.fromkeys(("--traceback", "--version", "--help-all"))
    of_any = [(flag, choices) for known in flags.values() for flag, choices in known.items()]
    wrong, seen = [], 0
    for page in PAGES.keys() - {*MIGRATE, "paper/claims/README.md"}:  # Flags of other programs.
        for code in inline_code(page):
            command = re.match(r"keras-vit ([a-z][a-z-]*)", code)
            if not (command or code.startswith(("--", "keras-vit --"))):
                continue
            known = flags[command[1]].items() if command else of_any
            for flag, value in re.findall(r"(--[a-z][\w-]*)(?:[ =]([a-z][\w-]*))?", code):
                found = [choices for name, choices in known if name == flag]
                seen += 1
                if not any(not choices or value in ("", *choices) for choices in found):
                    wrong.append((page, code, flag))
    assert seen > 100
    assert wrong == []


def test_the_modules_on_the_site_exist():
    tree = ast.parse((ROOT / "docs" / "site_pages.py").read_text(encoding="utf-8"))
    (packages,) = (
        eval(ast.unparse(node.value))
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PACKAGES"
    )
    cases = [*packages.items()]
    assert cases
    for package, (_, modules) in cases:
        for name in (package, *(f"{package}.{module}" for module in modules)):
            assert importlib.util.find_spec(name), name


def anchors(text):
    """Returns the anchors that the headings of a page get."""
    headings = re.findall(r"^#+ (.+)", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
    return {
        re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading)).strip("-").lower()
        for heading in headings
    }


@pytest.mark.parametrize("page", PAGES)
def test_the_files_on_a_page_exist_and_its_links_lead_to_pages_and_headings(page):
    folders = "tests|benchmarks|docs|keras_vit|paper|training|export"
    paths = re.findall(rf"\b(?:{folders})/[\w/]+\.\w+", PAGES[page])
    assert not [path for path in paths if not (ROOT / path).exists()]
    text = re.sub(r"^```.*?^```", "", PAGES[page], flags=re.S | re.M)
    for link, _, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(#([^)\s]+))?\)", text):
        target = (ROOT / page).parent / link if link else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), (link, anchor)


def test_the_functions_in_the_files_of_the_architecture_exist():
    text = (ROOT / "docs" / "architecture.md").read_text()
    files = [
        path
        for folder in ("keras_vit", "training", "export")
        for path in (ROOT / folder).rglob("*.py")
    ]
    cases = [*re.findall(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)", text)]
    assert cases
    for place, names in cases:
        found = [path.read_text() for path in files if path.as_posix().endswith(f"/{place}")]
        for name in re.findall(r"\w+", names):
            defined = rf"^\s*(?:def|class) {name}\b|^{name}\b.* = |^\s*{name}: "
            assert any(re.search(defined, source, re.M) for source in found), f"{place}: {name}"


def test_the_data_sets_on_the_pages_exist():
    import tensorflow_datasets as tfds

    names = {name for page in PAGES.values() for name in re.findall(r"tfds:(\w+)", page)}
    assert names - {"NAME"} <= set(tfds.list_builders())
