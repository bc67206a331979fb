import os
import pty
import subprocess
import sys

import pytest

from keras_vit.utils import libjpeg_lines

LINES = (
    b"Premature end of JPEG file\n"
    b"E0000 00:00:1 op_kernel.cc:1] a line of TensorFlow\n"
    b"Corrupt JPEG data: 23 extraneous bytes before marker 0xd9\n"
    b"photo.jpg: Premature end of JPEG file\n"
    b"\n"
    b"Improper call to JPEG library in state 201\n"
    b"Corrupt JPEG data: of another program\n"
    b"Premature end"
)
KEPT = (
    b"E0000 00:00:1 op_kernel.cc:1] a line of TensorFlow\n"
    b"photo.jpg: Premature end of JPEG file\n"
    b"\n"
    b"Corrupt JPEG data: of another program\n"
    b"Premature end"
)


def copied(*pieces):
    """What is copied of pieces, each of which is read by itself."""
    source, destination = os.pipe(), os.pipe()
    reads = iter([*pieces, b""])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(libjpeg_lines.os, "read", lambda *_: next(reads))
        libjpeg_lines.copy(source[0], destination[1])
    os.close(destination[1])
    with open(destination[0], "rb") as file:
        found = file.read()
    for descriptor in source:
        os.close(descriptor)
    return found


def run(code, **options):
    code = f"from keras_vit.utils.libjpeg_lines import without_libjpeg_lines\n{code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, **options)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 40, 1000])
def test_all_but_the_lines_of_libjpeg_is_copied_in_any_pieces(length):
    pieces = [LINES[start : start + length] for start in range(0, len(LINES), length)]
    assert copied(*pieces) == KEPT


def test_the_start_of_another_line_is_copied_at_once():
    assert copied(b"Continue? ") == b"Continue? "
    assert not libjpeg_lines._may_become_one(b"Continue? ")


def test_children_and_python_write_as_before():
    done = run(
        "import os, subprocess, sys\n"
        "with without_libjpeg_lines():\n"
        "    os.write(2, b'Unsupported marker type 0x5a\\nfrom C\\n')\n"
        "    subprocess.run(['sh', '-c', 'echo Premature end of JPEG file >&2; echo child >&2'])\n"
        "    print('Premature end of JPEG file', file=sys.stderr)\n"
        "os.write(2, b'behind it\\n')\n"
    )
    lines = done.stderr.decode().splitlines()
    assert sorted(lines) == ["Premature end of JPEG file", "behind it", "child", "from C"]
    assert lines[-1] == "behind it"


def test_the_message_of_a_crash_is_copied():
    done = run(
        "import faulthandler, os\n"
        "faulthandler.enable(2)\n"
        "with without_libjpeg_lines():\n"
        "    os.write(2, b'Bogus marker length\\n')\n"
        "    os.abort()\n"
    )
    assert done.returncode == -6
    assert done.stderr.startswith(b"Fatal Python error: Aborted")


def test_python_still_writes_to_a_terminal():
    main, other = pty.openpty()
    code = (
        "import sys\n"
        "from keras_vit.utils.libjpeg_lines import without_libjpeg_lines\n"
        "with without_libjpeg_lines():\n"
        "    print(sys.stderr.isatty(), file=sys.stderr)\n"
    )
    subprocess.run([sys.executable, "-c", code], stderr=other, check=True)
    os.close(other)
    assert os.read(main, 100) == b"True\r\n"
    os.close(main)


def test_a_process_that_cannot_start_leaves_standard_error_alone():
    done = run(
        "import os, sys\n"
        "sys.executable = '/no/such/python'\n"
        "with without_libjpeg_lines():\n"
        "    os.write(2, b'Premature end of JPEG file\\n')\n"
    )
    assert (done.returncode, done.stderr) == (0, b"Premature end of JPEG file\n")
