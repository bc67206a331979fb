"""Measurements that run in a process each, so that they share no memory or threads."""

import json
import os
import subprocess
import sys


def run_program(program, *arguments):
    """Returns the JSON in the last line that a program prints.

    Args:
        program: Path of a Python file.
        *arguments: Its command line.

    Raises:
        RuntimeError: If the program fails, with the end of its messages.
    """
    command = [sys.executable, os.fspath(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])
