"""The place of the package: a checkout, an installation, another project in the same folder."""

import configparser
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import venv

import pytest

import keras_vit
from keras_vit import command_line
from keras_vit._installation import (
    DISTRIBUTION,
    check_installation,
    import_optional,
    install_command,
)

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture
def other_project(tmp_path):
    """A folder of packages with the metadata of keras-vit 1.0.1 and of this project."""
    for name in ("keras_vit-1.0.1.dist-info", "keras_vit_applications-0.1.0.dist-info"):
        (tmp_path / name).mkdir()
    check_installation.cache_clear()
    return str(tmp_path)


def test_another_project_in_the_same_folder_is_named(other_project):
    with pytest.warns(UserWarning, match=r"keras-vit-1\.0\.1.*pip uninstall -y keras-vit keras-"):
        check_installation(other_project)


def test_another_project_that_replaced_the_package_is_an_error(other_project, monkeypatch):
    monkeypatch.delattr(keras_vit, "when_imported")
    with pytest.raises(ImportError, match="Another project, keras-vit-1.0.1, is installed"):
        check_installation(other_project)


def test_the_command_prints_that_error_in_one_line(monkeypatch, capsys):
    def refuse():
        raise ImportError("Another project is installed")

    monkeypatch.setattr(command_line, "check_installation", refuse)
    assert command_line.main(["models"]) == 2
    assert capsys.readouterr().err == "keras-vit: Another project is installed\n"


def test_extras_are_installed_from_a_clone_as_in_the_readme():
    assert install_command("export") == 'pip install -e ".[export]", in a clone of this project'
    assert "git clone" in (readme := (ROOT / "README.md").read_text())
    assert 'pip install -e ".[' in readme


def test_the_distribution_has_its_own_name():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    assert settings["metadata"]["name"] == DISTRIBUTION


@pytest.mark.parametrize(
    ("extra", "command"),
    [("export", '-e ".[export]", in a clone of this project'), ("", "no_such")],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(extra, command):
    message = re.escape(f"no_such: pip install {command} (")
    with pytest.raises(ImportError, match=f"A test needs .* {message}"):
        import_optional("no_such.module", "A test", extra)


def test_a_checkout_imports_its_own_folders_without_an_editable_installation():
    program = (
        "import sys, importlib.util, keras_vit\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in str(f).lower()]\n"
        "for name in ('keras_vit.training.settings', 'keras_vit.export.formats'):\n"
        "    print(importlib.util.find_spec(name).origin)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    settings = ROOT / "training" / "settings" / "__init__.py"
    assert found == [str(settings), str(ROOT / "export" / "formats.py")]


@pytest.mark.slow
def test_a_type_checker_finds_an_editable_installation_that_links_its_files(tmp_path):
    """As README states it; a copy, as the links lie in the checkout's `build/`."""
    for name in ("keras_vit", "training", "export"):
        shutil.copytree(ROOT / name, tmp_path / "copy" / name)
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "copy")
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    # All but this package is taken from the environment of the tests.
    packages = pathlib.Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "env")}))
    deps = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "deps.pth").write_text("\n".join(deps))
    install = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    mode = ["--config-settings", "editable_mode=strict"]
    subprocess.run([*install, "-e", tmp_path / "copy", *mode], check=True, capture_output=True)
    (tmp_path / "script.py").write_text(
        "import keras_vit\nreveal_type(keras_vit.build('ViT-B/16'))"
    )
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-untyped-imports"]
        + ["--python-executable", python, "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert 'Revealed type is "keras.src.models.model.Model"' in found.stdout, found.stdout
    assert found.returncode == 0, found.stdout
