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
    line = "keras-vit: Keras's backend must be tensorflow or jax. Received: KERAS_BACKEND=torch"
    assert (done.returncode, done.stderr) == (2, f"{line}\n")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is not enforced")
def test_too_few_addresses_for_tensorflow_are_an_error_before_it_is_imported():
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2_000_000_000,) * 2)\n"
        "from keras_vit.command_line import main\n"
        "code = main(['predict', 'x', 'y'])\n"
        "sys.exit(3 if 'tensorflow' in sys.modules else code)\n"
    )
    done = run(code)
    line = (
        "keras-vit: The command must have 3 GB of address space (ulimit -v) or more, for "
        "TensorFlow. Received: 2.0 GB\n"
    )
    assert (done.returncode, done.stderr) == (2, line)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is not enforced")
@pytest.mark.parametrize("error", ["AttributeError('half a module')", "MemoryError()"])
def test_libraries_that_have_no_memory_are_an_error_of_one_line(tmp_path, error):
    limited = "AttributeError" in error
    (tmp_path / "tensorflow.py").write_text(
        "import resource\n"
        "used = 4096 * int(open('/proc/self/statm').read().split()[0])\n"
        f"if {limited}: resource.setrlimit(resource.RLIMIT_AS, (used + 2**20,) * 2)\n"
        f"raise {error}\n"
    )
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from keras_vit.command_line import main\n"
        "sys.exit(main(['predict', 'x', 'y']))\n"
    )
    done = run(code)
    assert done.returncode == 2
    name = error.partition("(")[0]
    assert done.stderr.startswith(f"keras-vit: The command must have more memory. Received: {name}")
    assert len(done.stderr.splitlines()) == 1


def test_remarks_that_users_can_do_nothing_about_are_not_printed():
    import_tensorflow_quietly()
    for logger, remark in (("tensorflow", "triggered tf.function retracing"), ("tensorflow", "!")):
        record = logging.LogRecord(logger, logging.WARNING, "", 0, f"5 {remark}", None, None)
        assert bool(logging.getLogger(logger).filter(record)) is (remark == "!")
