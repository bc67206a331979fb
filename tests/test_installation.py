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

from keras_vit import command_line
from keras_vit._installation import (
    DISTRIBUTION,
    import_optional,
    install_command,
    other_projects,
)

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def other_project(tmp_path_factory):
    """A folder with a stand-in for keras-vit 1.0.1 of the package index, as pip installs it."""
    folder = tmp_path_factory.mktemp("other")
    (folder / "source" / "keras_vit").mkdir(parents=True)
    (folder / "source" / "keras_vit" / "__init__.py").write_text("from keras_vit import vit\n")
    (folder / "source" / "keras_vit" / "vit.py").write_text("")
    (folder / "source" / "setup.py").write_text(
        "import setuptools\n"
        "setuptools.setup(name='keras-vit', version='1.0.1', packages=['keras_vit'])\n"
    )
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    target = ["--no-index", "--target", folder / "packages"]
    subprocess.run([*install, *target, folder / "source"], check=True, capture_output=True)
    return folder / "packages"


def both_installed(folder, other_project, last):
    """Copies this project and the other one into one folder, `last` over the first."""
    (folder / "keras_vit_applications-0.1.0.dist-info").mkdir()
    ignored = shutil.ignore_patterns("weights", "__pycache__")
    for project in ("ours", "theirs") if last == "theirs" else ("theirs", "ours"):
        if project == "theirs":
            shutil.copytree(other_project, folder, dirs_exist_ok=True)
            continue
        for name, target in (("keras_vit", ""), ("training", "training"), ("export", "export")):
            place = folder / "keras_vit" / target
            shutil.copytree(ROOT / name, place, dirs_exist_ok=True, ignore=ignored)


def run_in(folders, program):
    """Runs a program whose first folders of packages are the given ones."""
    return subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={"PYTHONPATH": ":".join(map(str, folders)), "PATH": ""},
        capture_output=True,
        text=True,
    )


COMMAND = "import sys; from keras_vit.command_line import main; sys.exit(main(['models']))"


@pytest.mark.parametrize("program", ["import keras_vit; print(keras_vit.ViTConfig)", COMMAND])
def test_another_project_in_another_folder_is_named_in_one_line(other_project, program):
    done = run_in([ROOT, other_project], program)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert f"keras-vit 1.0.1 in {other_project} is another project whose package is also" in line
    assert f"this one is keras-vit-applications (Vision Transformers) in {ROOT}, and" in line
    assert line.endswith("To remove the other: pip uninstall -y keras-vit")


@pytest.mark.parametrize("program", ["import keras_vit; print(keras_vit.ViTConfig)", COMMAND])
def test_another_project_in_the_same_folder_is_named_in_one_line(other_project, program, tmp_path):
    both_installed(tmp_path, other_project, last="ours")
    done = run_in([tmp_path], program)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert f"keras-vit 1.0.1 in {tmp_path} is another project" in line
    assert "pip uninstall -y keras-vit keras-vit-applications, then install keras-vit-appl" in line


def test_another_project_that_replaced_the_package_is_an_error(other_project, tmp_path):
    both_installed(tmp_path, other_project, last="theirs")
    done = run_in([tmp_path], "import keras_vit.training")
    assert done.stderr.splitlines()[-1].startswith("ImportError: keras-vit 1.0.1 in ")
    done = run_in([tmp_path], COMMAND)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("keras-vit: keras-vit 1.0.1 in ")


def test_without_another_project_nothing_is_said(tmp_path):
    (tmp_path / "keras_vit_applications-0.1.0.dist-info").mkdir()
    assert other_projects([str(tmp_path), str(tmp_path / "missing")]) == []
    done = run_in([ROOT, tmp_path], "import keras_vit")
    assert (done.stdout, done.stderr) == ("", "")


def test_other_forms_of_its_metadata_are_found(tmp_path):
    for name in ("keras_vit-1.0.1-py3.12.egg-info", "keras_vit_applications-0.1.0.egg-info"):
        (tmp_path / name).mkdir()
    assert other_projects([str(tmp_path)]) == [("keras-vit 1.0.1", str(tmp_path))]


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
    assert found == [str(settings), str(ROOT / "export" / "formats" / "__init__.py")]


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
