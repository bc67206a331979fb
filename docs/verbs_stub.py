"""Writes `keras_vit/verbs.pyi`, which shows editors and type checkers the verbs' arguments.

python docs/verbs_stub.py
"""

import inspect
import pathlib
import subprocess
import sys

from keras_vit.commands.as_functions import VERBS, docstring_of, signature_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
STUB = ROOT / "keras_vit" / "verbs.pyi"

HEAD = '''"""The words of the shell in Python; docs/verbs_stub.py writes this file."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from keras_vit.classifier import Classifier
from keras_vit.commands.push import Pushed
from keras_vit.configs import BiTConfig, ViTConfig
from keras_vit.export import ExportReport
from keras_vit.training.data.in_memory import Labelled
from keras_vit.training.data.spec import DataSpec
from keras_vit.training.evaluation.few_shot import FewShotReport
from keras_vit.training.evaluation.imagenet import ImageNetAccuracy
from keras_vit.training.evaluation.reports import EvaluationReport
from keras_vit.training.run.finetune import Finished
from keras_vit.training.run.sweep_result import SweepResult
from keras_vit.training.trust import CheckReport, Comparison
'''


def write():
    """Returns the text of the stub, formatted."""
    text = "\n\n".join([HEAD, *map(function_text, VERBS)])
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", STUB, "-"]
    done = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=True)
    return done.stdout


def function_text(name):
    """Returns the text of a function without its body."""
    signature, lines = signature_of(name), [f"def {name}("]
    has_star = False
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not has_star:
            lines.append("    *,")
            has_star = True
        line = f"    {parameter.name}: {parameter.annotation}"
        if parameter.default is not parameter.empty:
            default = parameter.default
            line += f" = {'...' if callable(default) else repr(default)}"
        lines.append(f"{line},")
    lines.append(f") -> {signature.return_annotation}:")
    docstring = docstring_of(name).strip().splitlines()
    raw = "r" if "\\" in docstring_of(name) else ""
    lines.append(f'    {raw}"""{docstring[0]}')
    lines += [f"    {line}" if line else "" for line in docstring[1:]]
    return "\n".join([*lines, '    """'])


if __name__ == "__main__":
    STUB.write_text(write(), encoding="utf-8")
