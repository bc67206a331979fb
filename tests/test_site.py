"""The site of the documentation, where the extra `docs` is installed."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest
from page_flaws import flaws_of

from keras_vit.command_line import COMMANDS

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = {
    "keras_vit": "keras_vit",
    "keras_vit.training": "training",
    "keras_vit.training.data": "training/data",
    "keras_vit.training.evaluation": "training/evaluation",
    "keras_vit.export": "export",
}


@pytest.fixture(scope="module")
def site():
    """The site, built strictly: a link, an anchor or a name that does not exist is an error."""
    pytest.importorskip("zensical")
    pytest.importorskip("mkdocstrings_handlers.python")
    build = [sys.executable, ROOT / "docs" / "site_pages.py"]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return ROOT / "build" / "site"


def exported(folder):
    """Returns the names that a package exports."""
    tree = ast.parse((ROOT / folder / "__init__.pyi").read_text(encoding="utf-8"))
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in nodes for alias in node.names if node.module or "/" in folder}


def test_the_reference_has_every_public_name(site):
    pages = {page: page.read_text(encoding="utf-8") for page in site.glob("reference/*.html")}
    anchors = set(re.findall(r'id="(keras_vit[\w.]*)"', "".join(pages.values())))
    cases = [*PACKAGES.items()]
    assert cases
    for package, folder in cases:
        missing = {name for name in exported(folder) if f"{package}.{name}" not in anchors}
        assert not {name for name in missing if f"keras_vit.applications.{name}" not in anchors}
    import keras_vit.inspection
    import keras_vit.layers

    for module in (keras_vit.inspection, keras_vit.layers):
        public = {name for name, value in vars(module).items() if isinstance(value, type)}
        assert {f"{module.__name__}.{name}" for name in public} <= anchors


def test_every_command_has_a_page_with_its_arguments(site):
    for name in COMMANDS:
        assert f"keras-vit {name}" in (site / "commands" / f"{name}.html").read_text()
    assert "--label-smoothing SHARE" in (site / "commands/finetune.html").read_text()


def test_llms_txt_lists_every_page_for_programs(site):
    text = (site / "llms.txt").read_text()
    links = re.findall(r"^- \[.+\]\((\S+)\)$", text, re.M)
    assert not [link for link in links if not (site / link).is_file()]
    built = {page.relative_to(site).with_suffix("") for page in site.rglob("*.html")}
    listed = {pathlib.Path(re.sub("README.md$", "index", link)).with_suffix("") for link in links}
    assert built - listed == {pathlib.Path("404")}
    assert text.startswith("# keras-vit-applications\n\n> Turn a folder of labelled photos into an")


def test_nothing_is_fetched_from_other_hosts(site):
    fetched = r'<(?:script|img|iframe)[^>]+src="?(?:https?:)?//|<link[^>]+rel="?stylesheet"?[^>]+//'
    cases = [*site.rglob("*.html")]
    assert cases
    for page in cases:
        assert not re.search(fetched, page.read_text(encoding="utf-8")), page


@pytest.mark.parametrize("page", ["index", "export", "results", "help", "commands/finetune"])
def test_no_page_scrolls_sideways_on_a_phone(site, chromium, page):
    flaws = flaws_of(chromium, (site / f"{page}.html").as_uri())  # Colours are the theme's.
    assert not [flaw for flaw in flaws if "pixels wide" in flaw]


def test_the_options_of_a_command_stand_in_groups(site):
    page = (site / "commands/finetune.html").read_text(encoding="utf-8")
    groups = re.findall(r"<h2 id=\"([\w-]+)\"", page)
    assert groups[:3] == ["data", "photos-that-belong-together", "output"]
    assert {"model-and-weights", "steps-and-batches"} <= {*groups}
    assert "<code>--group-by COLUMN|REGEX</code>" in page
