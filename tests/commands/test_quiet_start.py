import logging
import os
import subprocess
import sys

import pytest

from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly


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


def test_what_is_no_greeting_is_printed(tmp_path):
    (tmp_path / "tensorflow.py").write_text(
        "import os\n"
        "os.write(2, b'I0000 00:00 port.cc] oneDNN custom operations are on.\\n')\n"
        "os.write(2, b'E0000 00:00 something is broken\\n')\n"
        "raise ImportError('no such library')\n"
    )
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from keras_vit.utils.quiet_tensorflow import import_tensorflow_quietly\n"
        "import_tensorflow_quietly()\n"
    )
    done = run(code)
    assert "oneDNN" not in done.stderr
    assert "something is broken" in done.stderr
    assert "ImportError: no such library" in done.stderr


def test_a_backend_that_the_package_lacks_is_an_error_of_one_line():
    code = (
        "from keras_vit.command_line import main; import sys; sys.exit(main(['predict', 'x', 'y']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KERAS_BACKEND": "torch"},
    )
    line = (
        "keras-vit: For the commands Keras's backend must be tensorflow or jax; the models, their "
        "fit and predict also run on torch. Received: KERAS_BACKEND=torch"
    )
    assert (done.returncode, done.stderr) == (2, f"{line}\n")


def test_remarks_that_users_can_do_nothing_about_are_not_printed():
    import_tensorflow_quietly()
    for logger, remark in (("tensorflow", "triggered tf.function retracing"), ("tensorflow", "!")):
        record = logging.LogRecord(logger, logging.WARNING, "", 0, f"5 {remark}", None, None)
        assert bool(logging.getLogger(logger).filter(record)) is (remark == "!")
