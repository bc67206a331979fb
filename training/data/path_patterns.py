"""Regular expressions that are searched in the paths of images, within a time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

# A search of Python's cannot be stopped from another thread, and a run's record may have an
# expression without an end: a separate process can be ended.
_SECONDS = 30
_SEARCH = """
import json, re, sys

wanted = json.load(sys.stdin)
try:
    pattern = re.compile(wanted["pattern"])
except (re.error, OverflowError, RecursionError) as error:
    found = str(error)
else:
    matches = map(pattern.search, wanted["names"])
    found = [match and match[1 if pattern.groups else 0] for match in matches]
json.dump(found, sys.stdout)
"""


def texts_in_paths(pattern: str, names: Sequence[str]) -> list[str | None]:
    """Returns what a regular expression finds in each path; None where it does not match.

    Args:
        pattern: The expression: its first capture group counts, or the whole match without one.
        names: Paths relative to the data.

    Raises:
        ValueError: If the expression is wrong, or has not ended in `_SECONDS`.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _SEARCH],
            input=json.dumps({"pattern": pattern, "names": [*names]}),
            capture_output=True,
            check=True,
            text=True,
            encoding="utf-8",
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError(
            f"it has not ended in {_SECONDS} seconds, such as of repeats in repeats"
        ) from error
    found = json.loads(done.stdout)
    if isinstance(found, str):
        raise ValueError(found)
    return found
