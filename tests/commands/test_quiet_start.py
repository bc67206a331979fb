import subprocess
import sys

import pytest


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_wrong_input_is_one_line_though_tensorflow_was_loaded(tmp_path):
    code = (
        "import sys\n"
        "from keras_vit.command_line import main\n"
        f"code = main(['finetune', '--data', {str(tmp_path / 'none')!r}, '--output', 'x'])\n"
        "assert 'tensorflow' in sys.modules\n"
        "sys.exit(code)\n"
    )
    done = run(code)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("keras-vit: The data must be")


def test_what_tensorflow_prints_is_seen_only_if_it_cannot_be_imported(tmp_path):
    fake = tmp_path / "tensorflow.py"
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly as quietly\n"
        "quietly()\n"
    )
    greets = "import os\nos.write(2, b'I0000 oneDNN custom operations are on.')\n"
    fake.write_text(greets)
    assert run(code).stderr == ""
    fake.write_text(f"{greets}raise ImportError('no such library')\n")
    printed = run(code).stderr
    assert "oneDNN" in printed
    assert "ImportError: no such library" in printed
