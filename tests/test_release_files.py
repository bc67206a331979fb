"""What a release needs: the version in every place, and files that parse."""

import configparser
import pathlib
import re

import pytest

import keras_vit

yaml = pytest.importorskip("yaml")
ROOT = pathlib.Path(__file__).resolve().parents[1]


def read(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_the_citation_has_the_version_and_cites_the_paper():
    citation = read("CITATION.cff")
    assert citation["version"] == keras_vit.__version__
    assert citation["license"] == "Apache-2.0"
    (paper,) = citation["references"]
    assert len(paper["authors"]) == 12
    assert "2010.11929" in paper["url"]


@pytest.mark.parametrize("name", ["bug", "wrong_numbers"])
def test_the_command_of_a_form_prints_the_versions(name, capsys):
    (field,) = (
        field
        for field in read(f".github/ISSUE_TEMPLATE/{name}.yml")["body"]
        if field["id"] == "versions"
    )
    (program,) = re.findall(r'`python -c "(.*)"`', field["attributes"]["description"])
    exec(program, {})
    assert keras_vit.__version__ in capsys.readouterr().out


def test_the_checks_run_on_every_python_of_setup_cfg():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    pythons = re.findall(r"Python :: (3\.\d+)", settings["metadata"]["classifiers"])
    job = read(".github/workflows/checks.yml")["jobs"]["checks"]
    assert job["strategy"]["matrix"]["python"] == pythons
    assert {"run": ".ci/run"} in job["steps"]


def test_actions_of_others_are_named_by_commit():
    cases = [*(ROOT / ".github" / "workflows").iterdir()]
    assert cases
    for path in cases:
        for action in re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8")):
            assert re.fullmatch(r"actions/.*|.*@[0-9a-f]{40}", action), f"{path}: {action}"


def test_only_the_job_that_publishes_may_ask_for_an_identity():
    workflow = read(".github/workflows/release.yml")
    assert workflow["permissions"] == {"contents": "read"}
    assert "permissions" not in workflow["jobs"]["build"]
    assert workflow["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert {"run": "make release"} in workflow["jobs"]["build"]["steps"]
