"""The site of the documentation, built in build/site by Zensical: `make docs`.

Pages of docs/ are copied with README, the examples and the like; commands are written from their
argparse definitions, and the reference names what the packages list in `__init__.pyi` or
`__all__`. mkdocstrings fills in the docstrings, whose examples `Examples` marks as code.

python docs/site_pages.py
"""

import argparse
import ast
import inspect
import json
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
import textwrap

import griffe
import yaml

from keras_vit.command_line import COMMANDS, command_type, details_of
from keras_vit.export.formats.table import FORMATS
from keras_vit.utils.fields import add_arguments

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"

EXAMPLES = sorted(
    file for file in (ROOT / "examples").iterdir() if file.suffix in (".py", ".ipynb")
)

# With it the search runs on pages that are opened as files, where browsers have no workers.
SHIM = "https://unpkg.com/iframe-worker/shim"

# Pages of the site by their files outside docs/.
OTHER_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "examples/README.md": "examples/index.md",
    "paper/README.md": "paper/README.md",
    "paper/claims/README.md": "paper/claims/README.md",
    "skills/keras-vit/SKILL.md": "skill.md",
    **{f"examples/{file.name}": f"examples/{file.stem}.md" for file in EXAMPLES},
}

# Title, and modules of which all public names are shown; other modules show what they export.
PACKAGES = {
    "keras_vit": ("Models, weights, classifiers", ("preprocessing",)),
    "keras_vit.applications": ("Models by name", ()),
    "keras_vit.configs": ("Configs and costs", ("counting",)),
    "keras_vit.layers": ("Layers", ()),
    "keras_vit.models": ("Builders", ("vit", "resnet", "rebuild")),
    "keras_vit.checkpoints": ("Files of weights", ("checkpoint", "load", "save", "resize")),
    "keras_vit.training": ("Training", ("recipes",)),
    "keras_vit.training.data": ("Data", ()),
    "keras_vit.training.evaluation": (
        "Evaluation",
        (
            *("classification", "measures", "few_shot"),
            *("embeddings", "predictions", "results"),
        ),
    ),
    "keras_vit.training.trust": ("Checks, decisions, comparisons", ()),
    "keras_vit.export": ("Export and serving", ()),
    "keras_vit.inspection": ("Inspection", ()),
}

# These packages lie beside keras_vit/ and are installed inside it.
OUTSIDE = ("training", "export")


def main():
    """Writes the pages and their configuration, and builds the site: a wrong link is an error."""
    for folder in (BUILD / "pages", BUILD / "reference"):
        shutil.rmtree(folder, ignore_errors=True)
    for name in ("keras_vit", *OUTSIDE):  # In the shape of the installed package.
        copy = BUILD / "reference" / ("keras_vit" if name == "keras_vit" else f"keras_vit/{name}")
        ignored = shutil.ignore_patterns("__pycache__", "weights")
        shutil.copytree(ROOT / name, copy, ignore=ignored)
    ignored = shutil.ignore_patterns("*.py", "__pycache__")
    shutil.copytree(ROOT / "docs", BUILD / "pages", ignore=ignored)
    pages = {f"docs/{file.name}": file.name for file in (ROOT / "docs").glob("*.md")} | OTHER_PAGES
    texts = {uri: site_links(page_of_file(ROOT / name), name, uri) for name, uri in pages.items()}
    texts["commands/index.md"] = commands_index()
    texts |= {f"commands/{name}.md": command_page(name) for name in COMMANDS}
    texts["reference/index.md"] = reference_index()
    texts |= {reference_page(name): package_page(name) for name in PACKAGES}
    for uri, text in texts.items():
        (BUILD / "pages" / uri).parent.mkdir(parents=True, exist_ok=True)
        (BUILD / "pages" / uri).write_text(text, encoding="utf-8")
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    following = {
        "examples/index.md": [
            {file.stem.replace("_", " ").capitalize(): f"examples/{file.stem}.md"}
            for file in EXAMPLES
        ],
        "commands/index.md": [{name: f"commands/{name}.md"} for name in COMMANDS],
        "reference/index.md": [
            {title: reference_page(name)} for name, (title, _) in PACKAGES.items()
        ],
    }
    add_following(config["nav"], following)
    (BUILD / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    command = ["zensical", "build", "--clean", "--strict", "--config-file", BUILD / "mkdocs.yml"]
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False)
    if not done.returncode:
        write_for_programs(config["nav"], texts)
    for page in (BUILD / "site").rglob("*.html"):  # The site brings its own copy of the shim.
        up = "../" * (len(page.relative_to(BUILD / "site").parts) - 1)
        text = page.read_text(encoding="utf-8").replace(SHIM, f"{up}iframe_worker.js")
        # A long command goes on in the next line, but not within a flag.
        text = re.sub(
            r'(<span class="w"> +</span>)(-[\w-]+)', r'\1<span class="flag">\2</span>', text
        )
        page.write_text(text, encoding="utf-8")
    return done.returncode


def add_following(entries, following):
    """Adds pages to the entries of the navigation that they follow, at any depth."""
    for entry in entries:
        for title, page in entry.items() if isinstance(entry, dict) else ():
            if isinstance(page, list):
                add_following(page, following)
            elif page in following:
                entry[title] = [page, *following[page]]


def write_for_programs(nav, texts):
    """Writes llms.txt, which lists the pages for programs, and the Markdown of each page.

    The form is described at https://llmstxt.org. Pages of the reference are HTML, as their
    Markdown has the names of the docstrings alone.
    """
    readme = texts["index.md"]
    summary = " ".join(readme.split("\n\n")[1].split())
    summary = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", summary)  # Without its links.
    parts = [readme.splitlines()[0], f"> {summary}"]
    for section in nav:
        for title, item in section.items():
            links = [_link_for_programs(uri, texts[uri]) for uri in _uris(item)]
            parts += [f"## {title}", "\n".join(links)]
    (BUILD / "site" / "llms.txt").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    for uri, text in texts.items():
        (BUILD / "site" / uri).write_text(text, encoding="utf-8")


def _uris(item):
    """Returns the pages of an entry of the navigation, in their order."""
    if isinstance(item, str):
        return [item]
    entries = item.values() if isinstance(item, dict) else item
    return [uri for entry in entries for uri in _uris(entry)]


def _link_for_programs(uri, text):
    heading = re.search(r"(?m)^# (.*)", text)[1]
    page = uri.replace(".md", ".html") if "\n::: " in text else uri
    return f"- [{heading}]({page})"


def site_links(text, name, uri):
    """Returns the text of a file whose links lead to the pages of the site."""

    def of_site(match):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), match[1]))
        page = OTHER_PAGES.get(target, target.removeprefix("docs/"))
        return f"]({posixpath.relpath(page, posixpath.dirname(uri) or '.')}"

    return re.sub(r"\]\((?!\w+:|#)([^)#\s]+)", of_site, text)


def page_of_file(file):
    """Returns a page of Markdown: a file of it, a program or a notebook."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        return "\n\n".join(map(_cell_of_notebook, json.loads(text)["cells"])) + "\n"
    return text if file.suffix == ".md" else f"# {file.name}\n\n{_code('python', text)}\n"


def _cell_of_notebook(cell):
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return re.sub(r"(?m)^\[!\[.*\n?", "", source)  # Badges are pictures of other hosts.
    parts = [_code("python", source)]
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            png = "".join(data["image/png"].split())
            parts.append(f"![what the cell shows](data:image/png;base64,{png})")
        elif text := "".join(output.get("text", data.get("text/plain", ""))):
            parts.append(_code("text", text))
    return "\n\n".join(parts)


def _code(language, text):
    return f"```{language}\n{text.strip()}\n```"


def commands_index():
    """Returns the page that lists the commands."""
    lines = [f"| [`keras-vit {name}`]({name}.md) | {text} |" for name, text in COMMANDS.items()]
    return (
        "# Commands\n\n| command | |\n| --- | --- |\n" + "\n".join(lines) + "\n\n"
        "`keras-vit COMMAND --help` prints these pages. An error is one line, with exit code 2; "
        "every command has `--traceback`, which shows where it was raised.\n"
    )


def command_page(name):
    """Returns the page of a command: usage, and a table for each group of its arguments."""
    parser = argparse.ArgumentParser(prog=f"keras-vit {name}", add_help=False)
    add_arguments(parser, command_type(name))
    parts = [f"# keras-vit {name}", COMMANDS[name], f"```text\n{_usage(parser)}\n```"]
    for group in parser._action_groups:
        rows = [_row(parser, action) for action in group._group_actions]
        rows = [row for row in rows if row]
        if rows:
            title = group.title[:1].upper() + group.title[1:]
            parts += [f"## {title}", group.description or ""]
            table = "| argument | meaning |\n| --- | --- |\n" + "\n".join(rows)
            parts.append(f'<div class="arguments" markdown>\n\n{table}\n\n</div>')
    parts.append(_escape(details_of(name)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _usage(parser):
    """Returns the call with what it needs; the tables have the rest."""
    formatter = parser._get_formatter()
    needed = [action for action in parser._actions if action.required]
    formatter.add_usage(None, needed, [], prefix="")
    options = [] if len(needed) == len(parser._actions) else ["[OPTIONS]"]
    return " ".join([*formatter.format_help().split(), *options])


def _row(parser, action):
    """Returns the row of an argument; None if it is hidden."""
    if action.help == argparse.SUPPRESS:
        return None
    formatter = parser._get_formatter()
    if action.choices and action.option_strings:  # They are long: the text has them.
        action.metavar = ""
    called = formatter._format_action_invocation(action)
    if len(action.option_strings) > 1 and action.nargs != 0:  # Its values once.
        called = (
            f"{', '.join(action.option_strings)} {called.rpartition(action.option_strings[-1])[2]}"
        )
    text = formatter._expand_help(action) if action.help else ""
    if action.required and action.option_strings:
        text += " (required)"
    if action.choices:
        text = f"{', '.join(map(str, action.choices))}: {text}"
    text = re.sub(r"(?<!\S)--[a-z][a-z-]+", r"`\g<0>`", _escape(text))
    # Within backticks the backslash of an upright line would be shown.
    return f"| <code>{_cell(_escape(called).strip())}</code> | {_cell(text)} |"


def _cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def _escape(text):
    """Returns text in which nothing is Markdown or HTML."""
    return re.sub(r"([*_<>\[\]`])", r"\\\1", text)


class Examples(griffe.Extension):
    """Examples of docstrings as blocks of code: those below `Example:` are not indented."""

    def on_object(self, *, obj, **_):
        """Changes the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"(?m)^( *)Example:\n((?:\1 *(?:>>>|\.\.\. ).*\n?|(?<=\n)\1 *\S.*\n?)+)",
                lambda match: (
                    f"**Example**\n\n```pycon\n{textwrap.dedent(match[2]).strip()}\n```\n"
                ),
                obj.docstring.value,
            )


def reference_page(name):
    """Returns the page of a package."""
    return f"reference/{name.removeprefix('keras_vit.')}.md"


def reference_index():
    """Returns the page that lists the packages."""
    rows = [
        f"| [`{name}`]({posixpath.basename(reference_page(name))}) | {title} | "
        + ", ".join(f"`{public}`" for public in public_names(name))
        + " |"
        for name, (title, _) in PACKAGES.items()
    ]
    return "# Python\n\n| package | | names |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"


def public_names(package):
    """Returns the names that a package exports, except for packages and models by name."""
    folder = BUILD / "reference" / package.replace(".", "/")
    if folder.with_suffix(".py").exists():
        source = folder.with_suffix(".py").read_text(encoding="utf-8")
        return [
            node.name
            for node in ast.parse(source).body
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        ]
    stub = folder / "__init__.pyi"
    file = stub if stub.exists() else folder / "__init__.py"
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = [
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "applications"
        for alias in node.names
    ]
    return sorted(names, key=str.lower)


def package_page(package):
    """Returns the page of a package, with a directive of mkdocstrings for each name."""
    title, modules = PACKAGES[package]
    parts = [f"# {package}", f"{title}."]
    formats = FORMATS if package == "keras_vit.export" else {}
    for name in public_names(package):
        if name in formats:
            continue
        parts.append(f"::: {package}.{name}\n    options:\n      heading: {package}.{name}")
    if package == "keras_vit.applications":
        parts += models_by_name()
    if formats:
        parts += exports_by_format()
    for module in modules:
        parts.append(f"::: {package}.{module}\n    options:\n      heading: {package}.{module}")
    return "\n\n".join(parts) + "\n"


def models_by_name():
    """Returns a part for each function of a model: made from rows, they are in no source."""
    from keras_vit import applications

    stub = (ROOT / "keras_vit" / "__init__.pyi").read_text(encoding="utf-8")
    names = [
        alias.name
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom) and node.module == "applications"
        for alias in node.names
    ]
    parts = []
    for name in names:
        function = getattr(applications, name)
        summary = (inspect.getdoc(function) or "").partition("\n\n")[0]
        parts += [
            f"## keras_vit.{name} {{#keras_vit.applications.{name}}}",
            f"```python\n{name}{inspect.signature(function)}\n```",
            _escape(summary),
        ]
    return parts


def exports_by_format():
    """Returns a part for each function of an export format, with the options of its class."""
    import keras_vit.export

    parts = []
    for name in FORMATS:
        function = getattr(keras_vit.export, name)
        parts += [
            f"## keras_vit.export.{name} {{#keras_vit.export.{name}}}",
            f"```python\n{name}{inspect.signature(function)}\n```",
            inspect.getdoc(function),
            inspect.getdoc(FORMATS[name]),
        ]
    return parts


if __name__ == "__main__":
    sys.exit(main())
